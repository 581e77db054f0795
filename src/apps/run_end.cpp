// SPDX-License-Identifier: Apache-2.0
#include "run_end.hpp"

#include <aerie/base/host.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

namespace aerie::apps {
namespace {
void print(const std::string& line) {
  std::fputs((line + "\n").c_str(), stderr);
  std::fflush(stderr);
}
/// True when every rank has come to this point; false after `seconds` (negative: waits for ever).
bool all_arrive(const comm::Comm& world, double seconds) {
  using namespace std::chrono_literals;
  if (world.size() == 1) return true;
  MPI_Request request = MPI_REQUEST_NULL;
  comm::check(MPI_Ibarrier(world.get(), &request));
  const auto start = std::chrono::steady_clock::now();
  for (auto pause = 100us;; pause = std::min(pause * 2, std::chrono::microseconds(50ms))) {
    int done = 0;
    comm::check(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    if (done) return true;
    if (seconds >= 0 && std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds) return false;
    std::this_thread::sleep_for(pause);
  }
}
}  // namespace

Outcome end_together(const comm::Comm& world, const Outcome& mine, double abort_after_s,
                     const std::function<void()>& before_abort) {
  const int rank = world.rank();
  if (!all_arrive(world, mine.failed() ? abort_after_s : -1.0)) {
    print(error_line(mine, rank, base::host_name()));
    if (before_abort) before_abort();
    comm::Environment::abort(mine.code);
  }
  const auto codes = world.all_gather(std::int64_t{mine.code});
  const auto texts = world.all_gather(mine.what);
  const auto failing = std::find_if(codes.begin(), codes.end(), [](auto c) { return c != 0 && c != 75; });
  auto speaker = failing;
  if (speaker == codes.end()) speaker = std::find(codes.begin(), codes.end(), 75);
  if (speaker == codes.end()) return {};
  const int root = static_cast<int>(speaker - codes.begin());
  Outcome all{static_cast<int>(*speaker), texts[static_cast<std::size_t>(root)], world.broadcast(mine.hint, root)};
  if (all.failed() && rank == root && !all.what.empty()) {
    // An agreed error is the same on all ranks and names the rank itself.
    const bool agreed = std::all_of(texts.begin(), texts.end(), [&](const auto& t) { return t == all.what; });
    print(error_line(all, agreed ? -1 : rank, base::host_name()));
  }
  return all;
}

}  // namespace aerie::apps
