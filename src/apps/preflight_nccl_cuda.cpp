// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <optional>
#include <thread>

#include <ATen/ATen.h>
#include <c10/cuda/CUDAStream.h>

#include <aerie/base/error.hpp>
#include <aerie/device/device.hpp>

#include "preflight_nccl.hpp"

namespace aerie::apps {
namespace {
using Clock = std::chrono::steady_clock;
constexpr double deadline_s = 30;

/// Waits for the device's stream, but not for ever: a peer that is gone would never come.
void drain(c10::Device device) {
  const auto stream = c10::cuda::getCurrentCUDAStream(device.index());
  const auto until = Clock::now() + std::chrono::duration<double>(deadline_s);
  while (!stream.query()) {
    if (Clock::now() > until)
      throw base::PeerError("the sum did not end in 30 s", "NCCL_DEBUG=INFO shows which peer it waits for");
    std::this_thread::yield();
  }
}

class NcclNetwork final : public preflight::Network {
 public:
  NcclNetwork(c10::Device device, std::unique_ptr<comm::Transport> transport)
      : device_(device), transport_(std::move(transport)) {}
  double sum(std::span<std::int64_t> values) override {
    const auto host = at::from_blob(values.data(), {std::ssize(values)}, at::kLong);
    auto there = host.to(device_);
    drain(device_);
    const auto start = Clock::now();
    transport_->all_reduce_sum({there.data_ptr<std::int64_t>(), values.size()});
    drain(device_);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    host.copy_(there);
    return seconds;
  }

 private:
  c10::Device device_;
  std::unique_ptr<comm::Transport> transport_;
};
}  // namespace

preflight::OpenNetwork nccl_network() {
  return
      [device = std::make_shared<std::optional<c10::Device>>()](const comm::Comm& comm) -> std::unique_ptr<preflight::Network> {
        if (!*device) *device = device::choose_device("cuda", comm);             // collective over comm
        auto transport = device::make_transport("auto", comm, device->value());  // collective over comm
        if (transport->name() != "nccl") return nullptr;                         // ranks share a GPU
        return std::make_unique<NcclNetwork>(device->value(), std::move(transport));
      };
}

}  // namespace aerie::apps
