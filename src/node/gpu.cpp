// SPDX-License-Identifier: Apache-2.0
// One pass over the GPUs. Each answer that NVML refuses is noted beside the GPU, and the pass goes on.
#include <aerie/node/gpu.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>

#include "nvml.hpp"

namespace aerie::node {
namespace {

std::string library_path() {
  const char* own = std::getenv("AERIE_NVML");
  return own && *own ? own : "libnvidia-ml.so.1";
}

/// Asks one GPU and keeps book of what it refused.
class Asker {
 public:
  Asker(const nvml::Library& library, Gpu& gpu) : library_(library), gpu_(gpu) {}

  /// True when `call()` succeeded; what is merely not supported leaves no trace.
  template <class F>
  bool ask(const char* query, const F& call) {
    const nvml::Return code = call();
    if (code != nvml::success && code != nvml::not_supported && code != nvml::function_not_found) refuse(query, code);
    return code == nvml::success;
  }
  void refuse(const char* query, nvml::Return code) {
    gpu_.lost = gpu_.lost || code == nvml::gpu_is_lost || code == nvml::reset_required;
    gpu_.faults.push_back({query, code, library_.text(code)});
  }
  std::string words(const char* query, nvml::Return (*f)(nvml::Device, char*, unsigned)) {
    char buffer[96] = {};  // the largest that NVML asks for
    return f && ask(query, [&] { return f(device, buffer, sizeof buffer - 1); }) ? std::string(buffer) : std::string();
  }
  /// What `call(&value)` writes into a value of NVML's type V; `there` is the function, null where NVML has none.
  template <class To, class V, class F, class Call>
  std::optional<To> number(const char* query, F* there, const Call& call) {
    V value{};
    if (!there || !ask(query, [&] { return call(&value); })) return std::nullopt;
    return static_cast<To>(value);
  }

  nvml::Device device = nullptr;

 private:
  const nvml::Library& library_;
  Gpu& gpu_;
};

void look_at_memory(const nvml::Library& lib, Asker& a, Gpu& gpu) {
  // The newer query leaves out what the driver keeps for itself: hundreds of megabytes that no process holds.
  if (nvml::MemoryV2 m{.version = nvml::memory_v2, .total = 0, .reserved = 0, .free = 0, .used = 0}; lib.memory_v2) {
    const nvml::Return code = lib.memory_v2(a.device, &m);
    if (code == nvml::success) {
      gpu.memory_total = static_cast<std::int64_t>(m.total);
      gpu.memory_used = static_cast<std::int64_t>(m.used);
      return;
    }
    if (code != nvml::argument_version_mismatch && code != nvml::not_supported && code != nvml::function_not_found)
      return a.refuse("nvmlDeviceGetMemoryInfo_v2", code);
  }
  nvml::Memory m{};
  if (!lib.memory_v1 || !a.ask("nvmlDeviceGetMemoryInfo", [&] { return lib.memory_v1(a.device, &m); })) return;
  gpu.memory_total = static_cast<std::int64_t>(m.total);
  gpu.memory_used = static_cast<std::int64_t>(m.used);
}

/// All of one list; the number may grow between two calls. False when NVML has no such list or refused it.
template <class P>
bool list_processes(Asker& a, const char* name, nvml::Return (*query)(nvml::Device, unsigned*, P*), std::vector<P>& out) {
  return a.ask(name, [&] {
    unsigned n = 32;
    for (int i = 0;; ++i) {
      out.assign(n, P{});
      const nvml::Return code = query(a.device, &n, out.data());
      if (code != nvml::insufficient_size || i == 8) return out.resize(code == nvml::success ? n : 0), code;
      n += 32;  // NVML has set it to what there was
    }
  });
}

void look_at_processes(const nvml::Library& lib, Asker& a, Gpu& gpu) {
  std::map<std::int64_t, GpuProcess> found;  // one that computes and draws is in two lists
  const auto add = [&](std::int64_t pid, unsigned long long bytes, bool graphics) {
    const auto n = bytes == nvml::not_available ? std::int64_t{-1} : static_cast<std::int64_t>(bytes);
    const auto [at, fresh] = found.try_emplace(pid, GpuProcess{pid, n, graphics});
    if (fresh) return;
    at->second.bytes = std::max(at->second.bytes, n);
    at->second.graphics = at->second.graphics && graphics;
  };
  for (const auto* q : {&lib.compute, &lib.graphics, &lib.mps}) {
    bool known = false;
    const bool graphics = q == &lib.graphics;
    if (std::vector<nvml::Process> list; q->current) {
      known = list_processes(a, q->name, q->current, list);
      for (const auto& p : list) add(p.pid, p.bytes, graphics);
    } else if (std::vector<nvml::ProcessV1> first; q->first) {
      known = list_processes(a, q->name, q->first, first);
      for (const auto& p : first) add(p.pid, p.bytes, graphics);
    }
    if (q == &lib.compute) gpu.processes_known = known;
  }
  for (const auto& [pid, p] : found) gpu.processes.push_back(p);
}

void look_at_errors(const nvml::Library& lib, Asker& a, Gpu& gpu) {
  int on = 0, later = 0;
  if (lib.ecc_mode && a.ask("nvmlDeviceGetEccMode", [&] { return lib.ecc_mode(a.device, &on, &later); })) gpu.ecc = on != 0;
  const auto errors = [&](int kind, int since) {
    return a.number<std::int64_t, unsigned long long>("nvmlDeviceGetTotalEccErrors", lib.ecc_errors,
                                                      [&](auto* v) { return lib.ecc_errors(a.device, kind, since, v); });
  };
  gpu.ecc_corrected = errors(nvml::corrected, nvml::since_load);
  gpu.ecc_uncorrected = errors(nvml::uncorrected, nvml::since_load);
  gpu.ecc_uncorrected_ever = errors(nvml::uncorrected, nvml::ever);
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  const auto rows = [&] { return lib.remapped_rows(a.device, &corrected, &uncorrected, &pending, &failed); };
  if (lib.remapped_rows && a.ask("nvmlDeviceGetRemappedRows", rows))
    gpu.remap = RowRemap{corrected, uncorrected, pending != 0, failed != 0};
  if (!gpu.remap)  // GPUs that remap rows retire no pages
    gpu.retirement_pending = a.number<bool, int>("nvmlDeviceGetRetiredPagesPendingStatus", lib.retirement_pending,
                                                 [&](int* v) { return lib.retirement_pending(a.device, v); });
}

void look_at_clocks(const nvml::Library& lib, Asker& a, Gpu& gpu) {
  const auto ask = [&](const char* query, auto* f, int which) {
    return a.number<int, unsigned>(query, f, [&](unsigned* v) { return f(a.device, which, v); });
  };
  gpu.temperature_c = ask("nvmlDeviceGetTemperature", lib.temperature, nvml::temperature_gpu);
  gpu.slowdown_c = ask("nvmlDeviceGetTemperatureThreshold", lib.temperature_threshold, nvml::threshold_slowdown);
  gpu.sm_clock_mhz = ask("nvmlDeviceGetClockInfo", lib.clock, nvml::clock_sm);
  gpu.sm_clock_max_mhz = ask("nvmlDeviceGetMaxClockInfo", lib.max_clock, nvml::clock_sm);
  gpu.throttle = a.number<std::uint64_t, unsigned long long>("nvmlDeviceGetCurrentClocksThrottleReasons", lib.throttle,
                                                             [&](auto* v) { return lib.throttle(a.device, v); });
}

Gpu look_at_gpu(const nvml::Library& lib, unsigned index) {
  Gpu gpu;
  gpu.index = static_cast<int>(index);
  Asker a(lib, gpu);
  const nvml::Return code = lib.device_by_index(index, &a.device);
  if (code != nvml::success) return a.refuse("nvmlDeviceGetHandleByIndex", code), gpu;  // no handle is a fault, whatever the code
  gpu.name = a.words("nvmlDeviceGetName", lib.device_name);
  gpu.uuid = a.words("nvmlDeviceGetUUID", lib.device_uuid);
  nvml::PciInfo pci{};
  if (lib.device_pci && a.ask("nvmlDeviceGetPciInfo_v3", [&] { return lib.device_pci(a.device, &pci); }))
    gpu.pci_bus_id = plain_pci_id(pci.bus_id);
  look_at_memory(lib, a, gpu);
  look_at_processes(lib, a, gpu);
  look_at_errors(lib, a, gpu);
  look_at_clocks(lib, a, gpu);
  return gpu;
}

/// True when `entry` of CUDA_VISIBLE_DEVICES means `gpu`: its number, or the beginning of its UUID.
bool means(const std::string& entry, const Gpu& gpu) {
  if (entry.empty()) return false;
  if (entry.find_first_not_of("0123456789") == std::string::npos) return entry.size() < 6 && std::stoi(entry) == gpu.index;
  return entry.size() > 4 && !gpu.uuid.empty() && gpu.uuid.compare(0, entry.size(), entry) == 0;
}

void choose_visible(GpuView& view) {
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!list) return;
  for (auto& gpu : view.gpus) gpu.visible = false;
  std::istringstream in(list);
  for (std::string entry; std::getline(in, entry, ',');) {
    std::erase(entry, ' ');
    const auto at = std::find_if(view.gpus.begin(), view.gpus.end(), [&](const Gpu& g) { return means(entry, g); });
    if (at == view.gpus.end()) {
      if (!entry.empty() && entry != "-1" && entry != "NoDevFiles") view.note = entry;
      return;
    }
    at->visible = true;
  }
}

}  // namespace

std::vector<Gpu> GpuView::visible() const {
  std::vector<Gpu> out;
  std::copy_if(gpus.begin(), gpus.end(), std::back_inserter(out), [](const Gpu& g) { return g.visible; });
  return out;
}

GpuView look_at_gpus() {
  GpuView view;
  try {
    const nvml::Library lib(library_path());
    unsigned n = 0;
    if (const auto code = lib.device_count(&n); code != nvml::success)
      throw std::runtime_error("nvmlDeviceGetCount: " + lib.text(code));
    view.nvml = true;
    const auto system = [](nvml::Return (*f)(char*, unsigned)) {
      char text[96] = {};
      return f && f(text, sizeof text - 1) == nvml::success ? std::string(text) : std::string();
    };
    view.driver = system(lib.system_driver_version);
    view.nvml_version = system(lib.system_nvml_version);
    for (unsigned i = 0; i < n; ++i) view.gpus.push_back(look_at_gpu(lib, i));
    choose_visible(view);
  } catch (const std::runtime_error& e) {
    view = {};
    view.why_not = e.what();
  }
  return view;
}

std::vector<std::string> throttle_reasons(std::uint64_t bits) {
  std::vector<std::string> out;
  if (bits & throttle_hw_thermal) out.emplace_back("thermal slowdown by the hardware");
  if (bits & throttle_sw_thermal) out.emplace_back("thermal slowdown by the driver");
  if (bits & throttle_power_brake) out.emplace_back("power brake by the node's power supply");
  // The first bit stands for the ones above too; alone it has another cause.
  if (bits & throttle_hw_slowdown && !(bits & (throttle_hw_thermal | throttle_power_brake)))
    out.emplace_back("slowdown by the hardware");
  return out;
}

std::string plain_pci_id(std::string_view text) {
  const std::string id(text.starts_with("PCI:") ? text.substr(4) : text);
  unsigned domain = 0, bus = 0, device = 0;
  if (std::sscanf(id.c_str(), "%x:%x:%x", &domain, &bus, &device) != 3) return std::string(text);
  return fmt::format("{:04x}:{:02x}:{:02x}", domain, bus, device);
}

}  // namespace aerie::node
