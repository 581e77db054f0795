// SPDX-License-Identifier: Apache-2.0
#include "nvml.hpp"

#include <stdexcept>

#include <dlfcn.h>
#include <fmt/format.h>

namespace aerie::node::nvml {

void Library::Close::operator()(void* handle) const { ::dlclose(handle); }

template <class F>
void Library::find(F*& out, const char* name, const char* older) const {
  void* symbol = ::dlsym(handle_.get(), name);
  if (!symbol && older) symbol = ::dlsym(handle_.get(), older);
  out = reinterpret_cast<F*>(symbol);
}
void Library::find(ProcessQuery& out, const char* newest, const char* newer, const char* oldest) const {
  out.name = oldest;
  find(out.current, newest, newer);
  find(out.first, oldest);
}

Library::Library(const std::string& path) : handle_(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (!handle_) {
    const char* why = ::dlerror();
    throw std::runtime_error(why ? why : path + ": cannot be opened");
  }
  Return (*init)() = nullptr;
  find(init, "nvmlInit_v2", "nvmlInit");
  find(error_string_, "nvmlErrorString");
  find(system_driver_version, "nvmlSystemGetDriverVersion");
  find(system_nvml_version, "nvmlSystemGetNVMLVersion");
  find(device_count, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount");
  find(device_by_index, "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex");
  find(device_name, "nvmlDeviceGetName");
  find(device_uuid, "nvmlDeviceGetUUID");
  find(device_pci, "nvmlDeviceGetPciInfo_v3");  // the older ones fill in a shorter struct
  find(memory_v1, "nvmlDeviceGetMemoryInfo");
  find(memory_v2, "nvmlDeviceGetMemoryInfo_v2");
  find(compute, "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2",
       "nvmlDeviceGetComputeRunningProcesses");
  find(graphics, "nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2",
       "nvmlDeviceGetGraphicsRunningProcesses");
  find(mps, "nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v2",
       "nvmlDeviceGetMPSComputeRunningProcesses");
  find(ecc_mode, "nvmlDeviceGetEccMode");
  find(ecc_errors, "nvmlDeviceGetTotalEccErrors");
  find(remapped_rows, "nvmlDeviceGetRemappedRows");
  find(retirement_pending, "nvmlDeviceGetRetiredPagesPendingStatus");
  find(temperature, "nvmlDeviceGetTemperature");
  find(temperature_threshold, "nvmlDeviceGetTemperatureThreshold");
  find(clock, "nvmlDeviceGetClockInfo");
  find(max_clock, "nvmlDeviceGetMaxClockInfo");
  find(throttle, "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons");
  if (!init || !device_count || !device_by_index)
    throw std::runtime_error(path + " is not NVML: nvmlInit or the device list is missing");
  if (const Return code = init(); code != success) throw std::runtime_error("nvmlInit: " + text(code));
  find(shutdown_, "nvmlShutdown");
}

Library::~Library() {
  if (shutdown_) shutdown_();
}

std::string Library::text(Return code) const {
  const char* own = error_string_ ? error_string_(code) : nullptr;
  return own ? own : fmt::format("error {}", code);
}

}  // namespace aerie::node::nvml
