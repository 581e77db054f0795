// SPDX-License-Identifier: Apache-2.0
// For tests: this process sees the GPUs that a JSON value describes (fake_nvml.cpp has the keys), until the object is gone.
#pragma once
#include <cstdlib>
#include <fstream>
#include <string>

#include <nlohmann/json.hpp>
#include "temp_dir.hpp"

namespace aerie::test {

class FakeGpus {
 public:
  explicit FakeGpus(const nlohmann::json& machine, const char* library = FAKE_NVML) {
    ::setenv("AERIE_NVML", library, 1);
    ::setenv("AERIE_FAKE_NVML", (dir_ / "gpus.json").c_str(), 1);
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    now(machine);
  }
  ~FakeGpus() {
    for (const char* name : {"AERIE_NVML", "AERIE_FAKE_NVML", "CUDA_VISIBLE_DEVICES"}) ::unsetenv(name);
  }
  FakeGpus(const FakeGpus&) = delete;
  FakeGpus& operator=(const FakeGpus&) = delete;
  /// From the next look on.
  void now(const nlohmann::json& machine) const { std::ofstream(dir_ / "gpus.json") << machine.dump(1); }

 private:
  TempDir dir_;
};

/// `n` GPUs without a fault.
inline nlohmann::json sound_gpus(int n) {
  nlohmann::json gpus = nlohmann::json::array();
  for (int i = 0; i < n; ++i) gpus.push_back({{"uuid", "GPU-0000-" + std::to_string(i)}});
  return {{"gpus", gpus}};
}

}  // namespace aerie::test
