// SPDX-License-Identifier: Apache-2.0
// The GPU's side of a CUDA build, through LibTorch's own CUDA layer.
#include <cstdlib>
#include <string_view>

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <aerie/device/nccl_transport.hpp>

#include "gpu.hpp"

namespace aerie::device::gpu {

bool built_in() { return true; }
int visible_count() { return c10::cuda::device_count(); }
void select(c10::DeviceIndex index) { c10::cuda::set_device(index); }
std::string name(c10::DeviceIndex index) { return at::cuda::getDeviceProperties(index)->name; }

std::string bus_id(c10::DeviceIndex index) {
  const auto* p = at::cuda::getDeviceProperties(index);
  return std::to_string(p->pciDomainID) + ":" + std::to_string(p->pciBusID) + ":" + std::to_string(p->pciDeviceID);
}

std::int64_t peak_memory_bytes(c10::DeviceIndex index) {
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(index);
  return stats.allocated_bytes[static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak;
}

std::unique_ptr<comm::Transport> nccl_transport(const comm::Comm& comm, c10::Device device) {
  return make_nccl_transport(comm, device);
}

void setup_determinism() {
  // cuBLAS reads it when a handle is made; a value that the user has set stands, if it is one of the two deterministic ones.
  const char* set = std::getenv("CUBLAS_WORKSPACE_CONFIG");
  if (!set || (std::string_view(set) != ":4096:8" && std::string_view(set) != ":16:8")) {
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 1);
  }
  auto& context = at::globalContext();
  context.setAllowTF32CuBLAS(false);
  context.setAllowTF32CuDNN(false);
  context.setAllowBF16ReductionCuBLAS(false);
  context.setAllowFP16ReductionCuBLAS(false);
  context.setBenchmarkCuDNN(false);
}

}  // namespace aerie::device::gpu
