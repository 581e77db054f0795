// SPDX-License-Identifier: Apache-2.0
// The checks. Each gathers one text per rank, empty where all is well, and judges on every rank alike.
#include <aerie/preflight/preflight.hpp>

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/host.hpp>
#include <aerie/base/log.hpp>

#include <chrono>
#include <map>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <sys/statvfs.h>

namespace aerie::preflight {
namespace {
namespace fs = std::filesystem;

/// What the checks share.
struct Scene {
  const comm::Comm& world;
  const Request& request;
  std::vector<std::string> hosts;  // by rank
  std::string nonce;               // of this examination
};

/// The error's text, or nothing.
template <class F>
std::string trouble(F&& f) {
  const auto error = base::capture(std::forward<F>(f));
  return error ? error->what() : std::string();
}

/// Collective: every rank brings its trouble; the lowest one is told, all hosts that have any are named.
Finding judge(const Scene& s, std::string check, const std::string& mine, std::string good, std::string advice) {
  const auto all = s.world.all_gather(mine);
  Finding f{std::move(check), true, std::move(good), std::move(advice), {}};
  std::set<std::string> bad, fine;
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].empty()) {
      fine.insert(s.hosts[r]);
      continue;
    }
    if (f.ok) f.text = fmt::format("rank {} {}: {}", r, s.hosts[r], all[r]);
    f.ok = false;
    bad.insert(s.hosts[r]);
  }
  if (!fine.empty()) f.hosts.assign(bad.begin(), bad.end());
  return f;
}

Finding layout(const Scene& s) {
  std::map<std::string, int> ranks;
  for (const auto& h : s.hosts) ++ranks[h];
  const auto nodes = static_cast<std::int64_t>(ranks.size());
  Finding f{"layout",
            true,
            fmt::format("{} ranks on {} nodes", s.world.size(), nodes),
            "start it with the launcher that MPI was built for: srun --mpi=pmix, or mpirun",
            {}};
  if (s.request.nodes > 0 && nodes != s.request.nodes) {
    f.ok = false;
    f.text += fmt::format(", but the job has {} nodes", s.request.nodes);
  }
  for (const auto& [host, n] : ranks)
    if (n != ranks.begin()->second) {
      f.ok = false;
      f.text += fmt::format(", {} on {} and {} on {}", ranks.begin()->second, ranks.begin()->first, n, host);
      break;
    }
  return f;
}

fs::path note_of(const Scene& s, int rank) { return s.request.run / fmt::format(".preflight-{}-{}", s.nonce, rank); }

/// Another node's file may take a moment to appear on a network file system.
void read_note(const Scene& s, int rank) {
  using namespace std::chrono_literals;
  const auto expected = fmt::format("{} {}", s.nonce, rank);
  std::string seen;
  for (int i = 0; i < 50; ++i) {
    seen = trouble([&] {
      if (base::read_text(note_of(s, rank)) != expected) throw base::DataError("its content is not what was written");
    });
    if (seen.empty()) return;
    std::this_thread::sleep_for(100ms);
  }
  throw base::DataError(fmt::format("{}, written on {}, is not seen here: {}", note_of(s, rank).string(),
                                    s.hosts[static_cast<std::size_t>(rank)], seen));
}

/// Written with fsync and renamed by every rank, read by its neighbour.
Finding directory(const Scene& s) {
  const int rank = s.world.rank(), next = (rank + 1) % s.world.size();
  auto mine = trouble([&] { base::publish_text(note_of(s, rank), fmt::format("{} {}", s.nonce, rank)); });
  auto written = judge(s, "directory", mine, "", "make the run directory writable on every node, with space left");
  if (!written.ok) {
    trouble([&] { fs::remove(note_of(s, rank)); });
    return written;
  }
  mine = trouble([&] { read_note(s, next); });
  std::string space;
  struct statvfs v {};
  if (::statvfs(s.request.run.c_str(), &v) == 0)
    space = fmt::format(", {} free", base::format_bytes(static_cast<double>(v.f_bavail) * static_cast<double>(v.f_frsize)));
  auto f = judge(s, "directory", mine, "every node writes, syncs, renames and sees the others' files" + s.world.broadcast(space),
                 "the run directory must be on a file system that all nodes share");
  std::error_code ignored;
  fs::remove(note_of(s, rank), ignored);
  return f;
}

/// Who holds it refuses all others, and whoever comes after gets it: from the first rank to the last.
Finding locks(const Scene& s) {
  if (!s.request.locks) return {"locks", true, "none, as run.locks says", {}, {}};
  const auto path = s.request.run / fmt::format(".preflight-{}-lock", s.nonce);
  const auto take = [&] { return base::FileLock::try_acquire(path, base::FileLock::Mode::exclusive, "preflight"); };
  const int rank = s.world.rank(), last = s.world.size() - 1;
  std::string mine;
  for (const int holder : {0, last}) {
    std::optional<base::FileLock> lock;
    if (rank == holder)
      mine += trouble([&] {
        if (!(lock = take())) throw base::IoError("a free lock is refused");
      });
    s.world.barrier();
    if (rank != holder)
      mine += trouble([&] {
        if (take()) throw base::IoError(fmt::format("a lock that rank {} holds is given again", holder));
      });
    s.world.barrier();
    lock.reset();
    s.world.barrier();
  }
  auto f =
      judge(s, "locks", mine, last == 0 ? "one rank: nobody to exclude" : "what one node locks is refused on the others",
            "mount the file system with working locks, or set run.locks = \"none\" and see to it that one job runs at a time");
  std::error_code ignored;
  if (s.world.is_root()) fs::remove(path, ignored);
  return f;
}

Finding version(const Scene& s) {
  const auto first = s.world.broadcast(s.request.version);
  return judge(s, "version", first == s.request.version ? "" : "another program than on rank 0: " + s.request.version, first,
               "install the same build on every node");
}

/// A warning that comes at once would put the job back before it has done anything, for ever.
Finding time(const Scene& s) {
  const auto& left = s.request.seconds_left;
  std::string mine, good = "no end is known";
  if (left) {
    good = fmt::format("{} until the end, warned {} before it", base::format_duration(*left),
                       base::format_duration(s.request.warning_s));
    if (s.world.is_root() && *left < s.request.warning_s + 30)
      mine = fmt::format("{} until the end, and the warning comes up to {} before it: the job would only be requeued",
                         base::format_duration(*left), base::format_duration(s.request.warning_s + 30));
  }
  return judge(s, "time", mine, s.world.broadcast(good), "ask for a longer --time, or a shorter --signal");
}
}  // namespace

std::vector<Finding> examine(const comm::Comm& world, const Request& request, const std::function<void()>& poll) {
  const auto self = base::this_process();
  Scene s{world, request, world.all_gather(base::host_name()),
          world.broadcast(fmt::format("{}-{}-{}", self.host, self.pid, self.start_ticks))};
  std::vector<Finding> out;
  for (const auto check : {layout, directory, locks, version, time}) {
    poll();
    out.push_back(check(s));
    if (!out.back().ok && (check == layout || check == directory)) break;  // the rest would only repeat it
  }
  return out;
}

}  // namespace aerie::preflight
