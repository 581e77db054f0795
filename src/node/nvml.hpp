// SPDX-License-Identifier: Apache-2.0
// The part of NVML's C interface that is used here, declared anew so that building needs no CUDA toolkit, and the library opened
// at run time. tests/unit/node/nvml_layout.cpp compares every type with nvml.h where that is installed.
#pragma once
#include <memory>
#include <string>

namespace aerie::node::nvml {

using Return = int;  // nvmlReturn_t, an enum
constexpr Return success = 0, not_supported = 3, insufficient_size = 7, function_not_found = 13, gpu_is_lost = 15,
                 reset_required = 16, argument_version_mismatch = 25;
using Device = struct DeviceHandle*;
constexpr unsigned long long not_available = ~0ULL;  // NVML_VALUE_NOT_AVAILABLE

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
constexpr unsigned memory_v2 = sizeof(MemoryV2) | 2U << 24;
struct ProcessV1 {
  unsigned pid;
  unsigned long long bytes;
};
struct Process {  // of both _v2 and _v3
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};

// Enumerators of NVML, as the int that is passed.
constexpr int corrected = 0, uncorrected = 1;  // nvmlMemoryErrorType_t
constexpr int since_load = 0, ever = 1;        // nvmlEccCounterType_t: volatile, aggregate
constexpr int clock_sm = 1;                    // nvmlClockType_t
constexpr int temperature_gpu = 0;             // nvmlTemperatureSensors_t
constexpr int threshold_slowdown = 1;          // nvmlTemperatureThresholds_t

/// The library, open and initialised; each pointer is null where this version of it has no such function.
class Library {
 public:
  /// Throws std::runtime_error saying why there is none.
  explicit Library(const std::string& path);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  std::string text(Return code) const;

  Return (*system_driver_version)(char*, unsigned) = nullptr;
  Return (*system_nvml_version)(char*, unsigned) = nullptr;
  Return (*device_count)(unsigned*) = nullptr;
  Return (*device_by_index)(unsigned, Device*) = nullptr;
  Return (*device_name)(Device, char*, unsigned) = nullptr;
  Return (*device_uuid)(Device, char*, unsigned) = nullptr;
  Return (*device_pci)(Device, PciInfo*) = nullptr;
  Return (*memory_v1)(Device, Memory*) = nullptr;
  Return (*memory_v2)(Device, MemoryV2*) = nullptr;
  struct ProcessQuery {
    const char* name = nullptr;
    Return (*current)(Device, unsigned*, Process*) = nullptr;  // _v3, else _v2
    Return (*first)(Device, unsigned*, ProcessV1*) = nullptr;  // without a version
  };
  ProcessQuery compute, graphics, mps;
  Return (*ecc_mode)(Device, int*, int*) = nullptr;
  Return (*ecc_errors)(Device, int, int, unsigned long long*) = nullptr;
  Return (*remapped_rows)(Device, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  Return (*retirement_pending)(Device, int*) = nullptr;
  Return (*temperature)(Device, int, unsigned*) = nullptr;
  Return (*temperature_threshold)(Device, int, unsigned*) = nullptr;
  Return (*clock)(Device, int, unsigned*) = nullptr;
  Return (*max_clock)(Device, int, unsigned*) = nullptr;
  Return (*throttle)(Device, unsigned long long*) = nullptr;

 private:
  template <class F>
  void find(F*& out, const char* name, const char* older = nullptr) const;
  void find(ProcessQuery& out, const char* newest, const char* newer, const char* oldest) const;

  struct Close {
    void operator()(void* handle) const;
  };
  std::unique_ptr<void, Close> handle_;
  Return (*shutdown_)() = nullptr;
  const char* (*error_string_)(Return) = nullptr;
};

}  // namespace aerie::node::nvml
