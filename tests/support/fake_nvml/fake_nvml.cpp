// SPDX-License-Identifier: Apache-2.0
// A libnvidia-ml.so.1 without a driver: it tells what the JSON file AERIE_FAKE_NVML says ("%h" in the path: the host's name),
// read anew at each nvmlInit. For tests in C++ and Python:
//   AERIE_NVML=build/cpu/lib/libfake_nvml.so  AERIE_FAKE_NVML=/some/gpus.json  aerie-preflight ...
// libfake_nvml_old.so has no function that a driver of 2018 lacks. All keys may be left out:
//
// {
//   "driver": "580.95.05", "nvml": "13.580.95.05",
//   "init": 0,                   nvmlReturn_t of nvmlInit (9: driver not loaded)
//   "errors": {"nvmlDeviceGetCount": 999},      return code of a function, by its name without _v2 or _v3
//   "gpus": [{
//     "name": "NVIDIA H200", "uuid": "GPU-0", "pci": "00000000:18:00.0",     (uuid and pci differ by GPU)
//     "lost": false,             every query of it, the handle's too, ends with 15
//     "memory_total": 150323855360, "memory_used": 0,      bytes; used: what no process below holds
//     "reserved": 650117120,     what the driver keeps; the old memory query counts it as used
//     "processes": [{"pid": 4711, "bytes": 1073741824, "kind": "compute", "ghost": false}],
//                                kind: compute, graphics or mps; bytes -1: not told. Only living processes are listed, and only
//                                their bytes are in use, as with a driver; "ghost": true stays (of another PID namespace)
//     "ecc": true, "ecc_corrected": 0, "ecc_uncorrected": 0, "ecc_uncorrected_ever": 0,
//     "remap": {"corrected": 0, "uncorrected": 0, "pending": false, "failed": false},
//     "retirement_pending": false,
//     "temperature": 35, "slowdown": 92, "clock": 345, "max_clock": 1980,
//     "throttle": 0,             bits of nvmlClocksEventReasons (8 hardware slowdown, 64 thermal, 128 power brake)
//     "errors": {"nvmlDeviceGetTotalEccErrors": 3}         as above, of this GPU
//   }]
// }
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include <unistd.h>
#include <nlohmann/json.hpp>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {
using nlohmann::json;
using Return = int;
constexpr Return success = 0, uninitialized = 1, invalid_argument = 2, insufficient_size = 7, gpu_is_lost = 15,
                 version_mismatch = 25, unknown = 999;

json machine;  // null: not initialised

struct Gpu {
  std::size_t index = 0;
};
Gpu handles[64];

/// The file's word for `function` on `gpu`, or `otherwise`.
Return error_of(const json& where, const char* function) {
  return where.value("errors", json::object()).value(function, success);
}
Return machine_error(const char* function) { return machine.is_null() ? uninitialized : error_of(machine, function); }

/// What a query of one GPU ends with; `use(gpu)` when all is well.
template <class F>
Return ask(const Gpu* handle, const char* function, F&& use) {
  if (machine.is_null()) return uninitialized;
  if (!handle) return invalid_argument;
  const json& gpu = machine.at("gpus").at(handle->index);
  if (gpu.value("lost", false)) return gpu_is_lost;
  if (const Return code = error_of(gpu, function)) return code;
  return use(gpu), success;
}

Return copy(const std::string& text, char* out, unsigned size) {
  if (size <= text.size()) return insufficient_size;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return success;
}

/// A zombie has given its memory back.
bool lives(const json& process) {
  if (process.value("ghost", false)) return true;
  const auto pid = process.at("pid").get<pid_t>();
  if (::kill(pid, 0) != 0 && errno == ESRCH) return false;
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const auto end = text.rfind(')');
  return end == std::string::npos || end + 2 >= text.size() || text[end + 2] != 'Z';
}

std::uint64_t used(const json& gpu) {
  auto sum = gpu.value("memory_used", std::uint64_t{0});
  for (const auto& p : gpu.value("processes", json::array()))
    if (const auto bytes = p.value("bytes", std::int64_t{0}); bytes > 0 && lives(p)) sum += static_cast<std::uint64_t>(bytes);
  return sum;
}

template <class Info>
Return processes(const Gpu* handle, const char* function, const char* kind, unsigned* count, Info* out) {
  Return code = success;
  const Return asked = ask(handle, function, [&](const json& gpu) {
    unsigned n = 0;
    for (const auto& p : gpu.value("processes", json::array())) {
      if (p.value("kind", "compute") != kind || !lives(p)) continue;
      if (n < *count) {
        out[n] = Info{};
        out[n].pid = p.at("pid").get<unsigned>();
        const auto bytes = p.value("bytes", std::int64_t{0});
        out[n].bytes = bytes < 0 ? ~0ULL : static_cast<unsigned long long>(bytes);
      }
      ++n;
    }
    if (n > *count) code = insufficient_size;
    *count = n;
  });
  return asked ? asked : code;
}

template <class T>
Return number(const Gpu* handle, const char* function, const char* key, T otherwise, T* out) {
  return ask(handle, function, [&](const json& gpu) { *out = gpu.value(key, otherwise); });
}

// NVML's structs, written down a second time on purpose: the program's own are not trusted here.
struct PciInfo {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char bus_id[32];
};
struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct ProcessV1 {
  unsigned pid;
  unsigned long long bytes;
};
struct ProcessV2 {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
constexpr auto h200 = std::uint64_t{150323855360}, reserved_by_driver = std::uint64_t{650117120};
}  // namespace

EXPORT Return nvmlInit_v2() {
  const char* named = std::getenv("AERIE_FAKE_NVML");
  std::string path = named ? named : "";
  if (const auto at = path.find("%h"); at != std::string::npos) {
    char host[256] = {};
    ::gethostname(host, sizeof host - 1);
    path.replace(at, 2, host);
  }
  std::ifstream in(path);
  machine = json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!machine.is_object()) {
    std::fprintf(stderr, "fake NVML: AERIE_FAKE_NVML=%s holds no JSON object\n", path.c_str());
    machine = nullptr;
    return unknown;
  }
  if (!machine.contains("gpus")) machine["gpus"] = json::array();
  const Return code = machine.value("init", success);
  if (code) machine = nullptr;
  for (std::size_t i = 0; i < std::size(handles); ++i) handles[i].index = i;
  return code;
}
EXPORT Return nvmlShutdown() { return machine = nullptr, success; }
EXPORT const char* nvmlErrorString(Return code) {
  switch (code) {
    case success:
      return "Success";
    case 3:
      return "Not Supported";
    case 4:
      return "Insufficient Permissions";
    case 9:
      return "Driver Not Loaded";
    case gpu_is_lost:
      return "GPU is lost";
    case 16:
      return "GPU requires reset";
    case unknown:
      return "Unknown Error";
    default:
      return "fake error";
  }
}
EXPORT Return nvmlSystemGetDriverVersion(char* out, unsigned size) {
  const Return code = machine_error("nvmlSystemGetDriverVersion");
  return code ? code : copy(machine.value("driver", "580.95.05"), out, size);
}
EXPORT Return nvmlSystemGetNVMLVersion(char* out, unsigned size) {
  const Return code = machine_error("nvmlSystemGetNVMLVersion");
  return code ? code : copy(machine.value("nvml", "13.580.95.05"), out, size);
}
EXPORT Return nvmlDeviceGetCount_v2(unsigned* n) {
  const Return code = machine_error("nvmlDeviceGetCount");
  return code ? code : (*n = static_cast<unsigned>(machine.at("gpus").size()), success);
}
EXPORT Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu** out) {
  if (machine.is_null()) return uninitialized;
  if (index >= machine.at("gpus").size() || index >= std::size(handles)) return invalid_argument;
  return ask(&handles[index], "nvmlDeviceGetHandleByIndex", [&](const json&) { *out = &handles[index]; });
}
EXPORT Return nvmlDeviceGetName(Gpu* gpu, char* out, unsigned size) {
  return ask(gpu, "nvmlDeviceGetName", [&](const json& g) { copy(g.value("name", "NVIDIA H200"), out, size); });
}
EXPORT Return nvmlDeviceGetUUID(Gpu* gpu, char* out, unsigned size) {
  return ask(gpu, "nvmlDeviceGetUUID",
             [&](const json& g) { copy(g.value("uuid", "GPU-" + std::to_string(gpu->index)), out, size); });
}
EXPORT Return nvmlDeviceGetMemoryInfo(Gpu* gpu, Memory* out) {
  return ask(gpu, "nvmlDeviceGetMemoryInfo", [&](const json& g) {
    const auto total = g.value("memory_total", h200), in_use = used(g) + g.value("reserved", reserved_by_driver);
    *out = {total, total - in_use, in_use};
  });
}
EXPORT Return nvmlDeviceGetComputeRunningProcesses(Gpu* gpu, unsigned* n, ProcessV1* out) {
  return processes(gpu, "nvmlDeviceGetComputeRunningProcesses", "compute", n, out);
}
EXPORT Return nvmlDeviceGetGraphicsRunningProcesses(Gpu* gpu, unsigned* n, ProcessV1* out) {
  return processes(gpu, "nvmlDeviceGetGraphicsRunningProcesses", "graphics", n, out);
}
EXPORT Return nvmlDeviceGetEccMode(Gpu* gpu, int* now, int* later) {
  return ask(gpu, "nvmlDeviceGetEccMode", [&](const json& g) { *now = *later = g.value("ecc", true) ? 1 : 0; });
}
EXPORT Return nvmlDeviceGetTotalEccErrors(Gpu* gpu, int kind, int since, unsigned long long* out) {
  const char* key = kind == 0 ? "ecc_corrected" : since == 0 ? "ecc_uncorrected" : "ecc_uncorrected_ever";
  return number(gpu, "nvmlDeviceGetTotalEccErrors", key, 0ULL, out);
}
EXPORT Return nvmlDeviceGetRetiredPagesPendingStatus(Gpu* gpu, int* out) {
  return ask(gpu, "nvmlDeviceGetRetiredPagesPendingStatus",
             [&](const json& g) { *out = g.value("retirement_pending", false) ? 1 : 0; });
}
EXPORT Return nvmlDeviceGetTemperature(Gpu* gpu, int, unsigned* out) {
  return number(gpu, "nvmlDeviceGetTemperature", "temperature", 35U, out);
}
EXPORT Return nvmlDeviceGetTemperatureThreshold(Gpu* gpu, int, unsigned* out) {
  return number(gpu, "nvmlDeviceGetTemperatureThreshold", "slowdown", 92U, out);
}
EXPORT Return nvmlDeviceGetClockInfo(Gpu* gpu, int, unsigned* out) {
  return number(gpu, "nvmlDeviceGetClockInfo", "clock", 345U, out);
}
EXPORT Return nvmlDeviceGetMaxClockInfo(Gpu* gpu, int, unsigned* out) {
  return number(gpu, "nvmlDeviceGetMaxClockInfo", "max_clock", 1980U, out);
}
EXPORT Return nvmlDeviceGetCurrentClocksThrottleReasons(Gpu* gpu, unsigned long long* out) {
  return number(gpu, "nvmlDeviceGetCurrentClocksThrottleReasons", "throttle", 0ULL, out);
}
EXPORT Return nvmlDeviceGetPciInfo_v3(Gpu* gpu, PciInfo* out) {
  return ask(gpu, "nvmlDeviceGetPciInfo", [&](const json& g) {
    char own[32];
    std::snprintf(own, sizeof own, "00000000:%02X:00.0", 0x18 + static_cast<unsigned>(gpu->index));
    *out = {};
    copy(g.value("pci", std::string(own)), out->bus_id, sizeof out->bus_id);
  });
}

#ifndef FAKE_NVML_OLD
EXPORT Return nvmlDeviceGetMemoryInfo_v2(Gpu* gpu, MemoryV2* out) {
  if (out->version != (sizeof(MemoryV2) | 2U << 24)) return version_mismatch;
  return ask(gpu, "nvmlDeviceGetMemoryInfo", [&](const json& g) {
    const auto total = g.value("memory_total", h200), kept = g.value("reserved", reserved_by_driver), in_use = used(g);
    *out = {out->version, total, kept, total - kept - in_use, in_use};
  });
}
EXPORT Return nvmlDeviceGetComputeRunningProcesses_v3(Gpu* gpu, unsigned* n, ProcessV2* out) {
  return processes(gpu, "nvmlDeviceGetComputeRunningProcesses", "compute", n, out);
}
EXPORT Return nvmlDeviceGetGraphicsRunningProcesses_v3(Gpu* gpu, unsigned* n, ProcessV2* out) {
  return processes(gpu, "nvmlDeviceGetGraphicsRunningProcesses", "graphics", n, out);
}
EXPORT Return nvmlDeviceGetMPSComputeRunningProcesses_v3(Gpu* gpu, unsigned* n, ProcessV2* out) {
  return processes(gpu, "nvmlDeviceGetMPSComputeRunningProcesses", "mps", n, out);
}
EXPORT Return nvmlDeviceGetRemappedRows(Gpu* gpu, unsigned* corrected, unsigned* uncorrected, unsigned* pending,
                                        unsigned* failed) {
  return ask(gpu, "nvmlDeviceGetRemappedRows", [&](const json& g) {
    const auto r = g.value("remap", json::object());
    *corrected = r.value("corrected", 0U), *uncorrected = r.value("uncorrected", 0U);
    *pending = r.value("pending", false) ? 1U : 0U, *failed = r.value("failed", false) ? 1U : 0U;
  });
}
#endif
