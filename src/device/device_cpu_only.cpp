// SPDX-License-Identifier: Apache-2.0
// The GPU's side of a build without CUDA: there is none.
#include <aerie/base/error.hpp>

#include "gpu.hpp"

namespace aerie::device::gpu {

bool built_in() { return false; }
int visible_count() { return 0; }
void select(c10::DeviceIndex) { throw base::Bug("this build has no CUDA"); }
std::string name(c10::DeviceIndex) { throw base::Bug("this build has no CUDA"); }
std::string bus_id(c10::DeviceIndex) { throw base::Bug("this build has no CUDA"); }
std::int64_t peak_memory_bytes(c10::DeviceIndex) { throw base::Bug("this build has no CUDA"); }
std::unique_ptr<comm::Transport> nccl_transport(const comm::Comm&, c10::Device) { throw base::Bug("this build has no CUDA"); }
void setup_determinism() {}

}  // namespace aerie::device::gpu
