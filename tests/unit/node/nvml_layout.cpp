// SPDX-License-Identifier: Apache-2.0
// Our declarations of NVML's interface against nvml.h itself. Compiled where the CUDA toolkit's header is found.
#include <cstddef>
#include <type_traits>

#include <gtest/gtest.h>
#define NVML_NO_UNVERSIONED_FUNC_DEFS  // else nvmlInit and others are macros
#include <nvml.h>

#include "nvml.hpp"

namespace ours = aerie::node::nvml;

#define SAME_FIELD(own, field, theirs, name)                                                                  \
  static_assert(offsetof(own, field) == offsetof(theirs, name) && sizeof(own::field) == sizeof(theirs::name), \
                #own "::" #field " is not where NVML has it")

static_assert(sizeof(ours::PciInfo) == sizeof(nvmlPciInfo_t));
SAME_FIELD(ours::PciInfo, bus_id, nvmlPciInfo_t, busId);
static_assert(sizeof(ours::Memory) == sizeof(nvmlMemory_t));
SAME_FIELD(ours::Memory, total, nvmlMemory_t, total);
SAME_FIELD(ours::Memory, used, nvmlMemory_t, used);
static_assert(sizeof(ours::MemoryV2) == sizeof(nvmlMemory_v2_t) && ours::memory_v2 == nvmlMemory_v2);
SAME_FIELD(ours::MemoryV2, version, nvmlMemory_v2_t, version);
SAME_FIELD(ours::MemoryV2, total, nvmlMemory_v2_t, total);
SAME_FIELD(ours::MemoryV2, reserved, nvmlMemory_v2_t, reserved);
SAME_FIELD(ours::MemoryV2, used, nvmlMemory_v2_t, used);
static_assert(sizeof(ours::ProcessV1) == sizeof(nvmlProcessInfo_v1_t));
SAME_FIELD(ours::ProcessV1, pid, nvmlProcessInfo_v1_t, pid);
SAME_FIELD(ours::ProcessV1, bytes, nvmlProcessInfo_v1_t, usedGpuMemory);
static_assert(sizeof(ours::Process) == sizeof(nvmlProcessInfo_v2_t) && sizeof(ours::Process) == sizeof(nvmlProcessInfo_t));
SAME_FIELD(ours::Process, pid, nvmlProcessInfo_t, pid);
SAME_FIELD(ours::Process, bytes, nvmlProcessInfo_t, usedGpuMemory);

static_assert(sizeof(ours::Return) == sizeof(nvmlReturn_t) && sizeof(int) == sizeof(nvmlEnableState_t));
static_assert(ours::success == NVML_SUCCESS && ours::not_supported == NVML_ERROR_NOT_SUPPORTED);
static_assert(ours::insufficient_size == NVML_ERROR_INSUFFICIENT_SIZE &&
              ours::function_not_found == NVML_ERROR_FUNCTION_NOT_FOUND);
static_assert(ours::gpu_is_lost == NVML_ERROR_GPU_IS_LOST && ours::reset_required == NVML_ERROR_RESET_REQUIRED);
static_assert(ours::argument_version_mismatch == NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
static_assert(ours::corrected == NVML_MEMORY_ERROR_TYPE_CORRECTED && ours::uncorrected == NVML_MEMORY_ERROR_TYPE_UNCORRECTED);
static_assert(ours::since_load == NVML_VOLATILE_ECC && ours::ever == NVML_AGGREGATE_ECC);
static_assert(ours::clock_sm == NVML_CLOCK_SM && ours::temperature_gpu == NVML_TEMPERATURE_GPU);
static_assert(ours::threshold_slowdown == NVML_TEMPERATURE_THRESHOLD_SLOWDOWN);
static_assert(ours::not_available == static_cast<unsigned long long>(NVML_VALUE_NOT_AVAILABLE));

// The functions' own types, with handles and enums as the pointers and ints that they are passed as.
template <class... A>
constexpr std::size_t arguments(nvmlReturn_t (*)(A...)) {
  return sizeof...(A);
}
static_assert(arguments(&nvmlDeviceGetRemappedRows) == 5 && arguments(&nvmlDeviceGetTotalEccErrors) == 4);
static_assert(arguments(&nvmlDeviceGetComputeRunningProcesses_v3) == 3 && arguments(&nvmlDeviceGetEccMode) == 3);

#include <aerie/node/gpu.hpp>
static_assert(aerie::node::throttle_hw_slowdown == nvmlClocksThrottleReasonHwSlowdown);
static_assert(aerie::node::throttle_sw_thermal == nvmlClocksThrottleReasonSwThermalSlowdown);
static_assert(aerie::node::throttle_hw_thermal == nvmlClocksThrottleReasonHwThermalSlowdown);
static_assert(aerie::node::throttle_power_brake == nvmlClocksThrottleReasonHwPowerBrakeSlowdown);
static_assert(aerie::node::throttle_power_cap == nvmlClocksThrottleReasonSwPowerCap);

TEST(Nvml, layout) { SUCCEED(); }  // all above is decided while compiling
