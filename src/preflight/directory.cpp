// SPDX-License-Identifier: Apache-2.0
// The run directory as every node sees it: writing, syncing, renaming, seeing each other's files, locks, space.
#include "scene.hpp"

#include <chrono>
#include <optional>
#include <thread>

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/log.hpp>

namespace aerie::preflight {
namespace {
namespace fs = std::filesystem;

fs::path note_of(const Scene& s, int rank) { return s.request.run / fmt::format(".preflight-{}-{}", s.nonce, rank); }

/// Another node's file may take a moment to appear on a network file system.
void read_note(const Scene& s, int rank) {
  using namespace std::chrono_literals;
  const auto expected = fmt::format("{} {}", s.nonce, rank);
  std::string seen;
  for (int i = 0; i < 50; ++i) {
    seen = error_text([&] {
      if (base::read_text(note_of(s, rank)) != expected) throw base::DataError("its content is not what was written");
    });
    if (seen.empty()) return;
    std::this_thread::sleep_for(100ms);
  }
  throw base::DataError(fmt::format("{}, written on {}, is not seen here: {}", note_of(s, rank).string(),
                                    s.hosts[static_cast<std::size_t>(rank)], seen));
}
}  // namespace

/// Written with fsync and renamed by every rank, read by its neighbour.
Finding directory(const Scene& s) {
  const int rank = s.world.rank(), next = (rank + 1) % s.world.size();
  const auto remove = [&] {
    std::error_code ignored;
    fs::remove(note_of(s, rank), ignored);
  };
  auto mine = trouble([&] { base::publish_text(note_of(s, rank), fmt::format("{} {}", s.nonce, rank)); },
                      "make the run directory writable on every node, with space left");
  if (auto written = judge(s, "directory", mine, ""); written.result != Result::pass) return remove(), written;
  mine = trouble([&] { read_note(s, next); }, "the run directory must be on a file system that all nodes share");
  auto f = judge(s, "directory", mine, "every node writes, syncs, renames and sees the others' files");
  remove();
  return f;
}

/// Who holds it refuses all others, and whoever comes after gets it: from the first rank to the last.
Finding locks(const Scene& s) {
  if (!s.request.locks) return judge(s, "locks", {}, "none, as run.locks says");
  const auto path = s.request.run / fmt::format(".preflight-{}-lock", s.nonce);
  const auto take = [&] { return base::FileLock::try_acquire(path, base::FileLock::Mode::exclusive, "preflight"); };
  const int rank = s.world.rank(), last = s.world.size() - 1;
  Troubles mine;
  const auto expect = [&](const std::function<void()>& f) {
    const auto more = trouble(
        f, "mount the file system with working locks, or set run.locks = \"none\" and see to it that one job runs at a time");
    mine.insert(mine.end(), more.begin(), more.end());
  };
  for (const int holder : {0, last}) {
    std::optional<base::FileLock> lock;
    if (rank == holder)
      expect([&] {
        if (!(lock = take())) throw base::IoError("a free lock is refused");
      });
    s.world.barrier();
    if (rank != holder)
      expect([&] {
        if (take()) throw base::IoError(fmt::format("a lock that rank {} holds is given again", holder));
      });
    s.world.barrier();
    lock.reset();
    s.world.barrier();
  }
  auto f = judge(s, "locks", mine, last == 0 ? "one rank: nobody to exclude" : "what one node locks is refused on the others");
  std::error_code ignored;
  if (s.world.is_root()) fs::remove(path, ignored);
  return f;
}

/// Of the file system; quotas are not asked.
Finding space(const Scene& s) {
  const auto& needs = s.request.needs;
  const auto need = s.world.broadcast(needs.disk_bytes);
  const auto what = s.world.broadcast(needs.disk_what);
  constexpr std::int64_t always = std::int64_t{64} << 20, little = std::int64_t{1} << 30;  // for records and logs
  struct statvfs v {};
  const bool known = ::statvfs(s.request.run.c_str(), &v) == 0;
  const auto free = known ? static_cast<std::int64_t>(v.f_bavail) * static_cast<std::int64_t>(v.f_frsize) : std::int64_t{-1};
  const auto left = base::format_bytes(static_cast<double>(free));
  const auto asked = need > 0 ? fmt::format("{} still needs {}{}", s.request.needs.phase,
                                            base::format_bytes(static_cast<double>(need)), what.empty() ? "" : " (" + what + ")")
                              : std::string();
  Troubles mine;
  if (known && free < need + always)
    mine.push_back({Result::fail, fmt::format("{} free{}", left, asked.empty() ? "" : ", " + asked),
                    "make space, or put the run on a larger file system"});
  else if (known && free < need + little)
    mine.push_back({Result::warn, fmt::format("{} free, hardly more than is needed{}", left, asked.empty() ? "" : ": " + asked),
                    "make space before the phase fills it"});
  const auto good =
      known ? fmt::format("{} free{}", left, asked.empty() ? "" : "; " + asked) : std::string("not told by the file system");
  auto f = judge(s, "space", mine, good);
  f.hosts.clear();  // the file system is one
  const auto first = s.world.broadcast(free);
  f.details = {{"free_bytes", first < 0 ? base::Json() : base::Json(first)}, {"needed_bytes", need}};
  return f;
}

}  // namespace aerie::preflight
