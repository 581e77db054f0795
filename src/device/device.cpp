// SPDX-License-Identifier: Apache-2.0
// Device choice and LibTorch's process-wide settings.
#include <aerie/device/device.hpp>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include <fmt/format.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <aerie/base/error.hpp>
#include <aerie/base/host.hpp>
#include <aerie/base/log.hpp>

#include "gpu.hpp"

namespace aerie::device {

namespace {

/// What "auto" comes to without a GPU; said aloud where the job was given GPUs.
c10::Device cpu_instead(const char* why) {
  for (const char* name : {"SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_STEP_GPUS"})
    if (const char* value = std::getenv(name); value && *value)
      base::log_warning(
          fmt::format("{}={}, but {}: this rank computes on the CPU (target.device = \"cuda\" refuses that)", name, value, why));
  return {c10::kCPU};
}

}  // namespace

c10::Device choose_device(std::string_view wish, const comm::Comm& comm) {
  // Every rank splits before any can throw: the split is collective, the checks are not.
  const comm::Comm host = comm.split_by_host();  // collective over comm
  if (wish != "auto" && wish != "cpu" && wish != "cuda") {
    throw base::ConfigError(fmt::format("unknown device \"{}\"", wish), "known devices: auto, cpu, cuda");
  }
  if (wish == "cpu") return {c10::kCPU};
  if (!gpu::built_in()) {
    if (wish == "auto") return cpu_instead("this build has no CUDA");
    throw base::ConfigError("device \"cuda\" was asked for, but this build has no CUDA",
                            "build with the preset cuda, or take device = \"cpu\"");
  }
  const int visible = gpu::visible_count();
  if (visible == 0) {
    if (wish == "auto") return cpu_instead("no GPU is visible");
    throw base::PeerError(fmt::format("no GPU is visible on {}", base::host_name()),
                          "check nvidia-smi, CUDA_VISIBLE_DEVICES and the job's --gres or --gpus");
  }
  const auto index = static_cast<c10::DeviceIndex>(host.rank() % visible);
  gpu::select(index);
  return {c10::kCUDA, index};
}

c10::ScalarType choose_dtype(std::string_view wish, c10::Device device) {
  if (wish == "auto") return device.is_cpu() ? at::kFloat : at::kBFloat16;
  if (wish == "fp32") return at::kFloat;
  if (wish == "bf16") return at::kBFloat16;
  if (wish == "fp16") return at::kHalf;
  throw base::ConfigError(fmt::format("unknown dtype \"{}\"", wish), "known dtypes: auto, fp32, bf16, fp16");
}

void setup_compute(std::int64_t threads) {
  if (threads < 1 || threads > 4096) {
    throw base::ConfigError(fmt::format("threads = {} is not in 1..4096", threads), "1 is the reproducible default on CPUs");
  }
  at::set_num_threads(static_cast<int>(threads));
  // LibTorch accepts this once in a process, and only before its pool has run.
  if (at::get_num_interop_threads() != 1) at::set_num_interop_threads(1);
  auto& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);  // our code writes before it reads; filling costs a memory pass
  gpu::setup_determinism();
}

std::unique_ptr<comm::Transport> make_transport(std::string_view wish, const comm::Comm& comm, c10::Device device) {
  const comm::Comm host = comm.split_by_host();                                                 // collective over comm
  auto gpus = host.all_gather(device.is_cuda() ? gpu::bus_id(device.index()) : std::string());  // collective over host
  std::sort(gpus.begin(), gpus.end());
  const bool mine = device.is_cuda() && std::adjacent_find(gpus.begin(), gpus.end()) == gpus.end();
  const bool own_gpus = comm.min(mine ? 1 : 0) == 1;  // collective over comm
  if (wish == "mpi" || (wish == "auto" && !own_gpus)) return comm::make_mpi_transport(comm);
  if (!own_gpus)
    throw base::ConfigError("train.transport = \"nccl\" needs a GPU of its own for every rank",
                            "start at most as many ranks on a node as it has GPUs, or take \"auto\"");
  return gpu::nccl_transport(comm, device);  // collective over comm
}

std::string describe(c10::Device device) {
  if (device.is_cpu()) return "cpu";
  return fmt::format("{} (cuda:{})", gpu::name(device.index()), static_cast<int>(device.index()));
}

std::int64_t peak_memory_bytes(c10::Device device) { return device.is_cpu() ? 0 : gpu::peak_memory_bytes(device.index()); }

}  // namespace aerie::device
