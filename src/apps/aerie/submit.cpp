// SPDX-License-Identifier: Apache-2.0
// `aerie submit`: writes the job scripts into the run and hands them to sbatch as a chain, each after the one it needs.
#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/log.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "command_line.hpp"
#include "commands.hpp"
#include "job_script.hpp"
#include "phases.hpp"
#include "prepare.hpp"
#include "recovery_items.hpp"
#include "run_lock.hpp"
#include "slurm_queue.hpp"

namespace aerie::apps {
namespace {
namespace fs = std::filesystem;
using report::Phase;

struct Stage {
  Phase phase;
  const char* name;                // of the script
  const char* site_variable;       // its own options in site.env
  std::vector<const char*> needs;  // must have ended 0
  const char* after = "";          // must have ended: the run is used by one job at a time
};
const std::vector<Stage>& stages() {
  static const std::vector<Stage> all{{Phase::extract, "extract", "SUBMIT_EXTRACT", {}},
                                      {Phase::verify, "finalize", "SUBMIT_FINALIZE", {"extract"}},
                                      {Phase::train, "train", "SUBMIT_TRAIN", {"finalize"}},
                                      {Phase::eval, "eval", "SUBMIT_EVAL", {"train"}},
                                      {Phase::export_, "export", "SUBMIT_EXPORT", {"train"}, "eval"}};
  return all;
}

fs::path find_templates() {
  const auto here = program_directory();
  for (const auto& p : {here / "../share/aerie/slurm", here / "../../../jobs/slurm", fs::path(AERIE_SOURCE_DIR) / "jobs/slurm"})
    if (fs::exists(p / "lib/common.sh")) return fs::canonical(p);
  throw base::MissingInputError((here / "../share/aerie/slurm").string() + ": no job scripts", "install jobs/slurm there");
}

fs::path find_site(const std::string& flag, const config::Config& c, const fs::path& templates) {
  const auto before = c.run_dir / "jobs/site.env";  // of an earlier submission
  const fs::path site = !flag.empty()           ? fs::path(flag)
                        : !c.slurm.site.empty() ? fs::path(c.slurm.site)
                        : fs::exists(before)    ? before
                                                : templates / "site.env";
  if (!fs::exists(site))
    throw base::MissingInputError(
        site.string() + ": no site settings",
        fmt::format("copy one of {}/examples, edit it, and name it with --site or slurm.site", templates.string()));
  return fs::absolute(site);
}

/// What a shell makes of the site's file. Modules that only compute nodes have may fail here.
std::map<std::string, std::string> read_site(const fs::path& site) {
  std::vector<std::string> names{"GPUS_PER_NODE", "LAUNCHER", "GRES", "SUBMIT_ALL"};
  for (const auto& s : stages()) names.emplace_back(s.site_variable);
  const std::string script = R"(bash -n "$1" || exit 2; . "$1" >/dev/null 2>&1; shift; for v; do printf '%s\n' "${!v:-}"; done)";
  std::vector<std::string> words{"bash", "-c", script, "bash", site.string()};
  words.insert(words.end(), names.begin(), names.end());
  const auto end = capture_output(words);
  if (end.code == 2) throw base::ConfigError(site.string() + ": not a shell script", "see the message above");
  std::map<std::string, std::string> out;
  std::istringstream in(end.out);
  std::string line;
  for (const auto& name : names) out[name] = std::getline(in, line) ? line : "";
  if (out["GPUS_PER_NODE"].empty())
    throw base::ConfigError(site.string() + ": GPUS_PER_NODE is not set", "set the number of ranks a node gets");
  return out;
}

class Chain {
 public:
  Chain(const config::Config& c, const fs::path& templates, const fs::path& site, int array)
      : templates_(templates), site_(site), settings_(read_site(site)), array_(array), run_(fs::absolute(c.run_dir)) {}

  fs::path jobs() const { return run_ / "jobs"; }
  fs::path script(const Stage& s) const { return jobs() / fmt::format("{}.sbatch", s.name); }

  std::string text(const Stage& s) const {
    JobScriptRequest r{run_, jobs(), program_directory(), s.name, {}, {}, s.phase == Phase::extract ? array_ : 0};
    if (s.phase == Phase::extract || s.phase == Phase::train) r.gres = gres();
    if (s.phase == Phase::eval && settings_.at("GRES") == "none") r.gres = "none";
    r.options = {settings_.at("SUBMIT_ALL"), settings_.at(s.site_variable)};
    auto out = render_job_script(base::read_text(templates_ / fmt::format("{}.sbatch", s.name)), r);
    check_job_times(s.name, job_times(out));
    return out;
  }
  void write(const std::vector<const Stage*>& chain) const {
    fs::create_directories(jobs() / "lib");
    fs::create_directories(run_ / "logs");
    base::publish_text(jobs() / "lib/common.sh", base::read_text(templates_ / "lib/common.sh"));
    if (site_ != jobs() / "site.env") base::publish_text(jobs() / "site.env", base::read_text(site_));
    for (const auto* s : chain) base::publish_text(script(*s), text(*s));
  }
  std::vector<std::string> command(const Stage& s, const std::map<std::string, std::string>& ids) const {
    std::vector<std::string> words{"sbatch", "--parsable", "--kill-on-invalid-dep=yes"};
    std::string after;
    const auto add = [&](const char* how, const char* other) {
      if (const auto it = ids.find(other); it != ids.end())
        after += fmt::format("{}{}:{}", after.empty() ? "" : ",", how, it->second);
    };
    for (const auto* n : s.needs) add("afterok", n);
    add("afterany", s.after);
    if (!after.empty()) words.push_back("--dependency=" + after);
    words.push_back(script(s).string());
    return words;
  }

 private:
  std::string gres() const {
    const auto& g = settings_.at("GRES");
    return g.empty() ? "gpu:" + settings_.at("GPUS_PER_NODE") : g;
  }
  fs::path templates_, site_;
  std::map<std::string, std::string> settings_;
  int array_;
  fs::path run_;
};

Phase stage_phase(const std::string& name) {
  const auto phase = phase_named(name);
  if (std::none_of(stages().begin(), stages().end(), [&](const Stage& s) { return s.phase == phase; }))
    throw base::ConfigError(fmt::format("phase {} has no job of its own", name), "known: extract, verify, train, eval, export");
  return phase;
}

/// From `from` on, what is not complete. The store must be verified before training, so that stage comes along where it is
/// missing.
std::vector<const Stage*> choose(const config::Config& c, Phase from, Phase to, bool again) {
  const auto state = report::replay(report::Ledger(c.run_dir).read());
  std::vector<const Stage*> chain;
  for (const auto& s : stages()) {
    if (s.phase > to) continue;
    const bool asked = s.phase >= from;
    if (!asked && !(s.phase == Phase::verify && from == Phase::train)) continue;
    const auto why = why_not_done(c, state, s.phase);
    if (!why && !(again && asked)) {
      base::log_info(fmt::format("{}: complete", s.name));
      continue;
    }
    chain.push_back(&s);
  }
  return chain;
}

/// Jobs of an earlier submission of this run that are still in the queue.
void refuse_twice(const report::RunState& state) {
  const auto queue = jobs_in_queue(state);
  if (!queue && !state.jobs.empty() && capture_output({"sh", "-c", "command -v squeue"}).code == 0)
    throw base::RefusedError("Slurm does not say whether jobs of this run are in its queue", "try again when `squeue` answers");
  if (!queue) return;  // sbatch will say what is wrong with Slurm
  std::string left;
  for (const auto& j : state.jobs)
    if (report::find_job(*queue, j.job)) left += (left.empty() ? "" : " ") + j.job;
  if (!left.empty())
    throw base::RefusedError(fmt::format("jobs of this run are still in the queue: {}", left),
                             fmt::format("wait for them, or `scancel {}`", left));
}

std::string submit_one(const Chain& chain, const Stage& s, const std::map<std::string, std::string>& ids) {
  const auto end = capture_output(chain.command(s, ids));
  if (end.code == 0 && !end.out.empty()) return end.out.substr(0, end.out.find(';'));  // "12;cluster"
  std::vector<std::string> undo{"scancel"};
  for (const auto& [name, id] : ids) undo.push_back(id);
  if (undo.size() > 1) capture_output(undo);
  throw base::ConfigError(fmt::format("sbatch ended {} for {}; jobs submitted before it are cancelled", end.code, s.name),
                          "see the message above; SUBMIT_ALL and the like in site.env hold the site's options");
}

void make_ready(const config::Config& c, bool dry) {
  const auto missing = [&](Phase p) { return why_not_done(c, report::replay(report::Ledger(c.run_dir).read()), p); };
  for (const auto phase : {Phase::prepare, Phase::vocab}) {
    const auto why = missing(phase);
    if (!why) continue;
    base::log_info(fmt::format("{}: {}{}", report::phase_name(phase), *why, dry ? ", and would be done first" : ""));
    if (dry) continue;
    const auto lock = lock_run(c, base::FileLock::Mode::exclusive, "aerie submit");
    if (phase == Phase::vocab) {
      choose_vocabulary(c);
    } else if (const auto end = prepare_datasets(c); end.code != 0) {
      throw base::Error(static_cast<base::ExitCode>(end.code), fmt::format("phase prepare ended with exit code {}", end.code),
                        "see the message above");
    }
    report::Ledger ledger(c.run_dir);
    close_resume(ledger, phase, {{"phase", report::phase_name(phase)}, {"done_by", "aerie submit"}});
  }
}

/// "12=15": job 15 took the place of job 12.
void record_replacement(const std::string& run, const std::string& pair) {
  const auto equals = pair.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == pair.size())
    throw base::ConfigError(fmt::format("--replaced {} is not OLD=NEW", pair), "the ids of two jobs, for example 12=15");
  if (!fs::is_directory(run)) throw base::MissingInputError(run + ": no run directory", "check RUN");
  report::Ledger(run).submitted({{"job", pair.substr(equals + 1)}, {"replaces", pair.substr(0, equals)}});
}
}  // namespace

int command_submit(int argc, char** argv) {
  CLI::App app("Submits what is not done yet as a chain of Slurm jobs.", "aerie submit");
  std::string run, site_flag, from = "extract", to = "export";
  std::string replaced;
  bool dry = false, reset = false;
  int array = 0;
  app.add_option("RUN,--run", run, "the run directory")->required();
  app.add_option("--site", site_flag,
                 "the site's settings; default: slurm.site, the last submission's, then jobs/slurm/site.env");
  auto* from_option = app.add_option("--from", from, "first phase: extract, verify, train, eval or export; does it again");
  app.add_option("--to", to, "last phase");
  auto* array_option = app.add_option("--array", array, "extract as an array of this many one-node jobs that share the store");
  app.add_flag("--dry-run", dry, "print what would be submitted; write and submit nothing");
  app.add_flag("--reset-attempts", reset, "after a repair: forget attempts that made no progress");
  app.add_option("--replaced", replaced, "OLD=NEW, for job scripts: record that job NEW took the place of OLD; submits nothing");
  if (!parse_command_line(app, argc, argv)) return 0;
  if (!replaced.empty()) return record_replacement(run, replaced), 0;
  if (array_option->count() > 0 && array < 1) throw base::ConfigError(fmt::format("--array is {}, but must be positive", array));
  const auto first = stage_phase(from), last = stage_phase(to);
  if (first > last)
    throw base::ConfigError(fmt::format("--from {} comes after --to {}", from, to), "jobs run extract ... export");
  const auto c = config::load(run);
  config::validate(c);
  if (fs::exists(c.run_dir / "stop"))
    throw base::StopRequested((c.run_dir / "stop").string() + " holds the run", "remove it to go on");
  const auto templates = find_templates();
  const Chain chain(c, templates, find_site(site_flag, c, templates), array);
  make_ready(c, dry);
  const auto todo = choose(c, first, last, from_option->count() > 0);
  if (todo.empty()) return base::log_info("everything is complete"), 0;
  std::map<std::string, std::string> ids;
  if (dry) {
    for (const auto* s : todo) {
      chain.text(*s);
      std::string line;
      for (const auto& w : chain.command(*s, ids)) line += (line.empty() ? "" : " ") + shell_word(w);
      print(line);
      ids[s->name] = fmt::format("<{}>", s->name);
    }
    return 0;
  }
  report::Ledger ledger(c.run_dir);
  refuse_twice(report::replay(ledger.read()));
  if (reset) ledger.decision("reset-attempts", base::Json::object());
  chain.write(todo);
  base::Json jobs = base::Json::array();
  for (const auto* s : todo) {
    const auto id = submit_one(chain, *s, ids);
    ids[s->name] = id;
    jobs.push_back({{"phase", report::phase_name(s->phase)}, {"job", id}, {"script", chain.script(*s).string()}});
    print(fmt::format("{} {}", s->name, id));
  }
  ledger.submitted({{"jobs", jobs}, {"array", array}});
  return 0;
}

}  // namespace aerie::apps
