// SPDX-License-Identifier: Apache-2.0
// Which device this rank computes on. In CPU builds only "cpu" exists. LibTorch's process-wide settings (threads, determinism)
// are set once, in apps::run, through setup_compute.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <aerie/comm/comm.hpp>
#include <aerie/comm/transport.hpp>

namespace aerie::device {

/// "auto" takes a GPU when the build has CUDA and one is visible: GPU number = local rank modulo visible GPUs. Throws ConfigError
/// for "cuda" in a CPU build, PeerError when no GPU is visible. Collective over `comm` (ranks of a host are counted).
c10::Device choose_device(std::string_view wish, const comm::Comm& comm);

/// auto: fp32 on CPU, bf16 on GPU.
c10::ScalarType choose_dtype(std::string_view wish, c10::Device device);

/// Threads per rank, deterministic algorithms, no TF32 where fp32 is the reference. Once, before the first tensor.
void setup_compute(std::int64_t threads);

/// "mpi", "nccl", or "auto": NCCL when every rank has a GPU of its own, MPI on host buffers otherwise (also when ranks share one,
/// which NCCL refuses). Throws ConfigError when "nccl" cannot be. Collective over `comm`.
std::unique_ptr<comm::Transport> make_transport(std::string_view wish, const comm::Comm& comm, c10::Device device);

/// "cpu", "NVIDIA H200 (cuda:0)"
std::string describe(c10::Device device);
/// Peak bytes allocated on `device` so far; 0 on CPU.
std::int64_t peak_memory_bytes(c10::Device device);

}  // namespace aerie::device
