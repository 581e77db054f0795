// SPDX-License-Identifier: Apache-2.0
// What the dead attempts of a run left running on this host, and who else is on its GPUs. A process is ended only when the ledger
// knows it by host, boot, pid and start time, its attempt is over for certain, it works on this run and belongs to the run's
// owner; whatever lacks one of these is named, and left alone.
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <aerie/base/host.hpp>
#include <aerie/node/gpu.hpp>
#include <aerie/node/process.hpp>
#include <aerie/report/ledger.hpp>

#include "slurm_queue.hpp"

namespace aerie::apps {

/// Attempts that are over for certain, each with the reason: it recorded its end (half a minute ago or longer: until then its
/// ranks are ending), its first rank on this host is gone (not merely out of sight, as in another container), or Slurm no longer
/// runs its job or has started it again. `queue`: of jobs_in_queue(); nothing when Slurm could not be asked.
std::map<std::int64_t, std::string> attempts_over(const report::RunState& state, const std::optional<Queue>& queue,
                                                  const base::ProcessIdentity& here);

struct Leftover {
  std::int64_t attempt = 0, rank = 0;
  std::string program, why_over;
  node::Process process;
  std::vector<std::string> holds;  // "GPU 0", "run.lock", "store/..."
};
struct Spared {
  node::Process process;
  std::string why;
};
struct Leftovers {
  std::vector<Leftover> found;
  std::vector<Spared> spared;          // like one, but for one mark
  std::vector<std::int64_t> rebooted;  // attempts that were here before this host was started again
  /// Attempts without an end that have ranks on this host which cannot be seen from here: in another container, say. They may
  /// live, and hold what they held.
  std::vector<std::int64_t> hidden;
};
Leftovers find_leftovers(const std::filesystem::path& run, const report::RunState& state,
                         const std::map<std::int64_t, std::string>& over, const node::GpuView& gpus);

/// Somebody else's process on a GPU.
struct Stranger {
  node::Process process;  // the pid alone where it cannot be seen from here
  std::vector<int> gpus;
  std::int64_t bytes = 0;
};
/// On all GPUs: everybody but the leftovers and the ranks of attempts that may be at work.
std::vector<Stranger> find_strangers(const std::filesystem::path& run, const report::RunState& state,
                                     const std::map<std::int64_t, std::string>& over, const Leftovers& leftovers,
                                     const node::GpuView& gpus);

/// Whether `how`, as try_to_end() said it, means that the process is gone.
bool is_gone(const std::string& how);
/// TERM to all, KILL to those that are left after `grace_s`; how each ended, in words, or why it cannot be ended. Never throws
/// for that.
std::vector<std::string> try_to_end(const std::vector<node::Process>& processes, double grace_s);
/// The same to leftovers; evidence for the ledger: [{attempt, program, rank, pid, command, holds, over, how}].
base::Json end_leftovers(const std::vector<Leftover>& found, double grace_s);
/// That evidence, when they were ended together with others.
base::Json ended_json(const Leftover& leftover, const std::string& how);

base::Json to_json(const Stranger& stranger);
std::string describe(const Stranger& stranger);

}  // namespace aerie::apps
