// SPDX-License-Identifier: Apache-2.0
// What device.cpp asks of a GPU. device_cuda.cpp answers in CUDA builds, device_cpu_only.cpp in the others: no GPU there.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include <c10/core/Device.h>

#include <aerie/comm/transport.hpp>

namespace aerie::device::gpu {

bool built_in();
int visible_count();
void select(c10::DeviceIndex index);
std::string name(c10::DeviceIndex index);
/// Names the GPU within its host, whatever CUDA_VISIBLE_DEVICES shows each process.
std::string bus_id(c10::DeviceIndex index);
std::int64_t peak_memory_bytes(c10::DeviceIndex index);
/// Null in CPU builds. Collective over `comm`.
std::unique_ptr<comm::Transport> nccl_transport(const comm::Comm& comm, c10::Device device);
/// No TF32, no reduced-precision sums, a fixed cuBLAS workspace. Before the first cuBLAS handle exists.
void setup_determinism();

}  // namespace aerie::device::gpu
