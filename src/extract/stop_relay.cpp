// SPDX-License-Identifier: Apache-2.0
#include "stop_relay.hpp"

namespace aerie::extract {
namespace {
comm::Comm duplicate(const comm::Comm& world) {
  if (world.get() == MPI_COMM_NULL) return comm::Comm::solo();
  MPI_Comm c = MPI_COMM_NULL;
  comm::check(MPI_Comm_dup(world.get(), &c));
  return comm::Comm::own(c);
}
}  // namespace

StopRelay::StopRelay(const comm::Comm& world, stop::StopToken& stop) : channel_(duplicate(world)), stop_(stop) {}

void StopRelay::tell_others() {
  if (told_) return;
  told_ = true;
  for (int r = 0; r < channel_.size(); ++r)
    if (r != channel_.rank())
      comm::check(MPI_Send(nullptr, 0, MPI_BYTE, r, 0, channel_.get()));  // empty: never waits for a receiver
}

void StopRelay::stop() {
  stopped_ = true;
  tell_others();
}

bool StopRelay::stopped() {
  if (stop_.poll() == stop::Request::stop) {
    stopped_ = true;
    tell_others();
  }
  if (channel_.size() == 1) return stopped_;
  for (;;) {
    int waiting = 0;
    comm::check(MPI_Iprobe(MPI_ANY_SOURCE, 0, channel_.get(), &waiting, MPI_STATUS_IGNORE));
    if (!waiting) return stopped_;
    comm::check(MPI_Recv(nullptr, 0, MPI_BYTE, MPI_ANY_SOURCE, 0, channel_.get(), MPI_STATUS_IGNORE));
    ++received_;
    stopped_ = true;
  }
}

void StopRelay::finish() {
  const std::int64_t tellers = channel_.sum(std::int64_t{told_ ? 1 : 0});
  const std::int64_t expected = tellers - (told_ ? 1 : 0);
  while (received_ < expected) {
    comm::check(MPI_Recv(nullptr, 0, MPI_BYTE, MPI_ANY_SOURCE, 0, channel_.get(), MPI_STATUS_IGNORE));
    ++received_;
  }
}

}  // namespace aerie::extract
