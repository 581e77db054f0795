// SPDX-License-Identifier: Apache-2.0
// NCCL behind comm::Transport. The communicator is non-blocking, so that every wait has a deadline and a dead peer is an error,
// not a hang. Segments of different lengths: a reduce-scatter is one reduce per root, an all-gather one broadcast per root,
// each inside one group call.
#include <aerie/device/nccl_transport.hpp>

#include <chrono>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include <c10/cuda/CUDAStream.h>

#include <aerie/base/error.hpp>
#include <aerie/base/log.hpp>
#include <aerie/comm/agree.hpp>

namespace aerie::device {
namespace {

using Clock = std::chrono::steady_clock;

base::PeerError nccl_error(ncclComm_t comm, ncclResult_t code, std::string_view doing) {
  const char* detail = ncclGetLastError(comm);
  return base::PeerError(
      fmt::format("NCCL {}: {}{}{}", doing, ncclGetErrorString(code), detail && *detail ? ": " : "", detail ? detail : ""),
      "a peer or its GPU may be gone; NCCL_DEBUG=WARN prints more");
}

void check_cuda(cudaError_t code, std::string_view doing) {
  if (code != cudaSuccess) throw base::PeerError(fmt::format("CUDA {}: {}", doing, cudaGetErrorString(code)));
}

class NcclTransport final : public comm::Transport {
 public:
  NcclTransport(const comm::Comm& comm, c10::Device device, double deadline_s, void* stream)
      : rank_(comm.rank()),
        size_(comm.size()),
        device_(device.index()),
        deadline_s_(deadline_s),
        stream_(stream ? static_cast<cudaStream_t>(stream) : c10::cuda::getCurrentCUDAStream(device.index()).stream()) {
    ncclUniqueId id{};
    comm::agree_after(comm, "NCCL id", [&] {  // collective over comm
      check_cuda(cudaSetDevice(device_), "choosing the device");
      if (comm.is_root()) check_now(ncclGetUniqueId(&id), "making an id");
    });
    comm.broadcast(std::as_writable_bytes(std::span(&id, 1)));  // collective over comm
    const auto mine = base::capture([&] {
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      wait(ncclCommInitRankConfig(&comm_, size_, id, rank_, &config), "starting");
    });
    if (mine) abort();
    try {
      comm::agree(comm, "NCCL start", mine);  // collective over comm
    } catch (...) {
      abort();
      throw;
    }
  }

  ~NcclTransport() override {
    if (!comm_) return;
    // In order: drain the stream, finalize, destroy. Abort is for the failure path alone.
    const bool drained = cudaStreamSynchronize(stream_) == cudaSuccess;
    const auto failure = base::capture([&] {
      if (!drained) throw base::PeerError("the stream failed");
      wait(ncclCommFinalize(comm_), "finishing");
    });
    if (failure) {
      base::log_warning(fmt::format("NCCL transport ends by abort: {}", failure->what()));
      abort();
      return;
    }
    ncclCommDestroy(comm_);
  }
  NcclTransport(const NcclTransport&) = delete;
  NcclTransport& operator=(const NcclTransport&) = delete;

  std::string_view name() const override { return "nccl"; }
  comm::MemoryKind memory() const override { return comm::MemoryKind::device; }

  void reduce_scatter_sum(std::span<std::int64_t> all, std::span<std::int64_t> mine,
                          std::span<const std::int64_t> counts) override {
    reduce_scatter(all, mine, counts, ncclInt64);
  }
  void reduce_scatter_sum(std::span<float> all, std::span<float> mine, std::span<const std::int64_t> counts) override {
    reduce_scatter(all, mine, counts, ncclFloat32);
  }

  template <class T>
  void reduce_scatter(std::span<T> all, std::span<T> mine, std::span<const std::int64_t> counts, ncclDataType_t type) {
    expect_counts(counts, all.size(), mine.size());
    grouped("reduce-scatter", [&] {
      std::int64_t at = 0;
      for (int root = 0; root < size_; ++root) {
        const auto n = static_cast<std::size_t>(counts[static_cast<std::size_t>(root)]);
        if (n > 0)
          note(ncclReduce(all.data() + at, root == rank_ ? mine.data() : nullptr, n, type, ncclSum, root, comm_, stream_));
        at += static_cast<std::int64_t>(n);
      }
    });
  }

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all, std::span<const std::int64_t> byte_counts) override {
    expect_counts(byte_counts, all.size(), mine.size());
    grouped("all-gather", [&] {
      std::int64_t at = 0;
      for (int root = 0; root < size_; ++root) {
        const auto n = static_cast<std::size_t>(byte_counts[static_cast<std::size_t>(root)]);
        std::byte* to = all.data() + at;
        if (n > 0) note(ncclBroadcast(root == rank_ ? mine.data() : to, to, n, ncclInt8, root, comm_, stream_));
        at += static_cast<std::int64_t>(n);
      }
    });
  }

  void all_reduce_sum(std::span<std::int64_t> values) override {
    if (values.empty()) return;
    grouped("all-reduce",
            [&] { note(ncclAllReduce(values.data(), values.data(), values.size(), ncclInt64, ncclSum, comm_, stream_)); });
  }

 private:
  static void check_now(ncclResult_t code, std::string_view doing) {
    if (code != ncclSuccess) throw nccl_error(nullptr, code, doing);
  }

  void expect_counts(std::span<const std::int64_t> counts, std::size_t all, std::size_t mine) const {
    base::expect(std::ssize(counts) == size_, "one count per rank");
    base::expect(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) == static_cast<std::int64_t>(all),
                 "the counts add up to the whole");
    base::expect(counts[static_cast<std::size_t>(rank_)] == static_cast<std::int64_t>(mine), "mine has this rank's count");
  }

  /// Inside a group: the first failure is kept, since the group must be closed before it is reported.
  void note(ncclResult_t code) {
    if (first_ == ncclSuccess && code != ncclInProgress) first_ = code;
  }

  template <class F>
  void grouped(std::string_view doing, F&& f) {
    if (!comm_) throw base::PeerError("NCCL: the communicator has failed before", "restart the job");
    first_ = ncclSuccess;
    try {
      check_now(ncclGroupStart(), doing);
      f();
      const ncclResult_t end = ncclGroupEnd();
      wait(first_ != ncclSuccess ? first_ : end, doing);
    } catch (...) {
      abort();
      throw;
    }
  }

  /// Waits until the communicator has taken in the last call (not until the stream has done it).
  void wait(ncclResult_t code, std::string_view doing) {
    const auto until = Clock::now() + std::chrono::duration<double>(deadline_s_);
    for (int spins = 0;; ++spins) {
      if (code != ncclSuccess && code != ncclInProgress) throw nccl_error(comm_, code, doing);
      if (!comm_) throw nccl_error(nullptr, ncclInternalError, doing);
      ncclResult_t state = ncclSuccess;
      check_now(ncclCommGetAsyncError(comm_, &state), doing);
      if (state == ncclSuccess) return;
      if (state != ncclInProgress) throw nccl_error(comm_, state, doing);
      code = ncclInProgress;
      if (Clock::now() > until) {
        throw base::PeerError(fmt::format("NCCL {}: not done after {:.0f} s", doing, deadline_s_),
                              "a peer did not arrive; look at the other ranks' logs");
      }
      if (spins > 1000) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  void abort() noexcept {
    if (comm_) ncclCommAbort(comm_);
    comm_ = nullptr;
  }

  int rank_, size_, device_;
  double deadline_s_;
  cudaStream_t stream_;
  ncclComm_t comm_ = nullptr;
  ncclResult_t first_ = ncclSuccess;
};

}  // namespace

std::unique_ptr<comm::Transport> make_nccl_transport(const comm::Comm& comm, c10::Device device, double deadline_s,
                                                     void* stream) {
  base::expect(device.is_cuda(), "the NCCL transport needs a GPU");
  return std::make_unique<NcclTransport>(comm, device, deadline_s, stream);
}

}  // namespace aerie::device
