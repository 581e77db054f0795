// SPDX-License-Identifier: Apache-2.0
// The GPUs of this machine as the driver's own library (NVML) tells them: memory and who holds it, errors, clocks, temperature.
// NVML is opened while the program runs, so that one program works with and without a driver and none links a CUDA library.
// Looking changes nothing and makes no CUDA context. Local; a machine without a GPU is not an error.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace aerie::node {

struct GpuProcess {
  std::int64_t pid = 0;     // as NVML tells it: of the host, not of a container
  std::int64_t bytes = -1;  // held on this GPU; -1: NVML does not say
  bool graphics = false;    // a display, and no computation
};

/// Memory rows that the GPU has replaced by spare ones (Ampere and newer).
struct RowRemap {
  std::int64_t corrected = 0, uncorrected = 0;  // rows remapped after errors of that kind
  bool pending = false;                         // takes effect at the next reset
  bool failed = false;                          // no spare row was left
};

/// A query that NVML refused for a reason other than "not supported".
struct GpuFault {
  std::string query;  // NVML's function
  int code = 0;       // nvmlReturn_t
  std::string text;   // NVML's own
};

/// Empty optionals: this GPU or driver does not tell.
struct Gpu {
  int index = 0;  // NVML's: by PCI bus
  std::string name, uuid;
  std::string pci_bus_id;                                 // as the kernel writes it: "0000:18:00"
  bool visible = true;                                    // CUDA_VISIBLE_DEVICES gives it to this process
  bool lost = false;                                      // fell off the bus, or works no more until it is reset
  std::optional<std::int64_t> memory_total, memory_used;  // bytes; without what the driver keeps for itself, where it tells
  bool processes_known = false;                           // false: `processes` says nothing
  std::vector<GpuProcess> processes;                      // by pid
  std::optional<bool> ecc;                                // switched on
  std::optional<std::int64_t> ecc_corrected;              // since the driver was loaded
  std::optional<std::int64_t> ecc_uncorrected;            // since the driver was loaded
  std::optional<std::int64_t> ecc_uncorrected_ever;       // in the GPU's life
  std::optional<RowRemap> remap;                          // Ampere and newer
  std::optional<bool> retirement_pending;                 // pages, before Ampere
  std::optional<int> temperature_c, slowdown_c;           // now, and where the hardware slows down
  std::optional<int> sm_clock_mhz, sm_clock_max_mhz;      // now (low when idle), and the highest it has
  std::optional<std::uint64_t> throttle;                  // bits, see throttle_reasons()
  std::vector<GpuFault> faults;
};

struct GpuView {
  bool nvml = false;    // NVML was found and answered
  std::string why_not;  // when it was not
  std::string driver, nvml_version;
  std::vector<Gpu> gpus;
  std::string note;  // what CUDA_VISIBLE_DEVICES names that NVML does not show; empty: nothing
  /// Those that this process may use.
  std::vector<Gpu> visible() const;
};

/// Opens the library (AERIE_NVML, else libnvidia-ml.so.1), asks, closes it. Never throws for what the machine lacks. GPUs that
/// CUDA_VISIBLE_DEVICES leaves out are listed with visible = false; its numbers are taken as NVML's (the order of PCI buses,
/// which is CUDA's for GPUs of one kind), and, as CUDA does, everything behind an entry that names no GPU is left out.
GpuView look_at_gpus();

// Why clocks are lowered, as bits of Gpu::throttle. The others (idle, application clocks, power cap) are no trouble.
constexpr std::uint64_t throttle_hw_slowdown = 0x8, throttle_sw_thermal = 0x20, throttle_hw_thermal = 0x40,
                        throttle_power_brake = 0x80, throttle_power_cap = 0x4;
/// "hardware slowdown", "thermal slowdown (hardware)" ...: those of the four that mean trouble; empty when none is set.
std::vector<std::string> throttle_reasons(std::uint64_t bits);

/// "00000000:18:00.0", "PCI:0000:18:00" or "0000:18:00" to "0000:18:00"; what is none of them comes back as it is.
std::string plain_pci_id(std::string_view text);

}  // namespace aerie::node
