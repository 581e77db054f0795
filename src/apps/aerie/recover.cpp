// SPDX-License-Identifier: Apache-2.0
// `aerie recover`: the night's work in one command. Assess, clear, verify, plan, resume; each of its four items stands in the
// ledger with its evidence.
#include <aerie/base/error.hpp>
#include <aerie/base/host.hpp>
#include <aerie/config/config.hpp>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <map>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "command_line.hpp"
#include "commands.hpp"
#include "leftovers.hpp"
#include "recover_assess.hpp"
#include "recover_plan.hpp"
#include "recover_queue.hpp"
#include "recover_store.hpp"
#include "recovery_items.hpp"
#include "run_lock.hpp"

namespace aerie::apps {
namespace {
using base::Json;

struct Options {
  std::string run, site;
  bool dry_run = false, lost = false, submit = false, resume = false;
  int threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 8U));
  double grace_s = 10;
  std::vector<std::int64_t> foreign;  // pids that a person gave
};

class Recovery {
 public:
  explicit Recovery(const Options& o) : o_(o), config_(config::load(o.run)), ledger_(config_.run_dir) {}

  /// Whether there is anything to resume.
  bool run() {
    if (!o_.dry_run) {
      queued_.emplace(ledger_);
      if (const auto jobs = queued_->in_queue(); o_.resume && !jobs.empty())
        throw base::RefusedError(fmt::format("jobs of this run are in the queue: {}", fmt::join(jobs, ", ")),
                                 "--submit lets them go on; or `scancel` them first");
    }
    found_ = assess(config_);
    left_ = find_leftovers(config_.run_dir, found_.state, found_.over, found_.gpus);
    strangers_ = find_strangers(config_.run_dir, found_.state, found_.over, left_, found_.gpus);
    const auto chosen = choose_foreign();
    // What is refused leaves the record as it was, but for jobs that were held: nothing is written before that is known.
    if (!o_.dry_run) lock(left_.found.empty());
    if (!o_.dry_run) open_items(ledger_);
    say("assess", found_.said);
    close(item_assess, found_.evidence);
    clear(chosen);
    if (!o_.dry_run) lock(true);
    if (queued_) queued_->take_over();
    verify();
    const bool anything = plan();
    lock_.reset();
    if (queued_ && o_.submit && next_) queued_->cancel_unless(*next_);
    if (queued_) queued_->let_go();
    return anything;
  }
  /// Jobs that were in the queue and go on by themselves.
  std::vector<std::string> queued() const { return queued_ ? queued_->ids() : std::vector<std::string>(); }
  /// Jobs that were in the queue, and stay where they are.
  std::vector<std::string> kept() const { return queued_ ? queued_->kept() : std::vector<std::string>(); }
  /// Processes of this run are left that could not be ended.
  bool unended() const { return unended_; }

 private:
  void say(const char* step, const std::vector<std::string>& lines) const {
    for (std::size_t i = 0; i < lines.size(); ++i) print(fmt::format("{:<10} {}", i == 0 ? step : "", lines[i]));
  }
  void close(std::string_view item, const Json& evidence) {
    if (!o_.dry_run) close_item(ledger_, item, evidence);
  }

  /// Takes the run's lock unless it is held already. A leftover may still hold it: then it need not be free.
  void lock(bool must) {
    if (lock_) return;
    if (must)
      lock_ = lock_run(config_, base::FileLock::Mode::exclusive, "aerie recover");
    else
      base::capture([&] { lock_ = lock_run(config_, base::FileLock::Mode::exclusive, "aerie recover"); });
  }

  void clear(const std::set<std::int64_t>& chosen) {
    std::vector<std::string> said;
    for (const auto n : left_.rebooted)
      said.push_back(fmt::format("attempt {}: this host was started again since: nothing of it is left", n));
    for (const auto n : left_.hidden)
      said.push_back(fmt::format(
          "attempt {}: ranks of it on this host cannot be seen from here (another container?): they may be alive; look there",
          n));
    for (const auto& f : left_.found)
      said.push_back(fmt::format("process {} of attempt {}, {} rank {} ({}){}{}", f.process.pid, f.attempt, f.program, f.rank,
                                 f.why_over, f.holds.empty() ? "" : fmt::format(", holds {}", fmt::join(f.holds, ", ")),
                                 o_.dry_run ? ": would be ended" : ""));
    for (const auto& s : left_.spared)
      said.push_back(fmt::format("process {} is left alone: {} ({})", s.process.pid, s.why, s.process.command));
    Json evidence{{"host", found_.evidence.at("host")},
                  {"boot_id", found_.evidence.at("boot_id")},
                  {"rebooted_since", left_.rebooted},
                  {"hidden", left_.hidden},
                  {"ended", Json::array()},
                  {"spared", Json::array()},
                  {"foreign", Json::array()},
                  {"foreign_ended", Json::array()}};
    const auto ends = o_.dry_run ? std::map<std::int64_t, std::string>() : end_all(chosen);
    for (const auto& f : left_.found)
      if (!o_.dry_run) evidence["ended"].push_back(ended_json(f, ends.at(f.process.pid)));
    for (const auto& e : evidence["ended"])
      said.push_back(fmt::format("process {}: {}", e.at("pid").get<std::int64_t>(), e.at("how").get<std::string>()));
    for (const auto& s : left_.spared)
      evidence["spared"].push_back({{"pid", s.process.pid}, {"command", s.process.command}, {"why", s.why}});
    for (const auto& s : strangers_) {
      const auto end = ends.find(s.process.pid);
      name(s, chosen.contains(s.process.pid), end == ends.end() ? "" : end->second, said, evidence);
    }
    evidence["gpus"] = memory_now();
    if (said.empty())
      said.push_back(fmt::format("{}: nothing of this run is left running; {}", base::host_name(),
                                 found_.gpus.gpus.empty() ? "no GPUs here to look at" : "nobody else is on its GPUs"));
    for (const auto& h : other_hosts()) {
      said.push_back(fmt::format("{}: looked at when a job starts there", h));
      evidence["elsewhere"].push_back(h);
    }
    say("clear", said);
    for (const auto& e : evidence["ended"]) unended_ = unended_ || !is_gone(e.at("how").get<std::string>());
    if (!unended_) return close(item_clear, evidence);
    say("", {"what could not be ended keeps this step open: end it, or start this host again"});
    if (!o_.dry_run) ledger_.evidence("clear", evidence);
  }

  /// --end-foreign names processes by hand; each must be one of those found on a GPU.
  std::set<std::int64_t> choose_foreign() const {
    for (const auto pid : o_.foreign)
      if (std::none_of(strangers_.begin(), strangers_.end(),
                       [&](const auto& s) { return s.process.pid == pid && s.process.start_ticks != 0; }))
        throw base::ConfigError(fmt::format("--end-foreign {}: no foreign process with this pid is on a GPU of this host", pid),
                                "`aerie recover --dry-run` lists them");
    return {o_.foreign.begin(), o_.foreign.end()};
  }
  /// The leftovers and the chosen of the strangers, in one go: by pid, how each ended.
  std::map<std::int64_t, std::string> end_all(const std::set<std::int64_t>& chosen) const {
    std::vector<node::Process> processes;
    for (const auto& f : left_.found) processes.push_back(f.process);
    for (const auto& s : strangers_)
      if (chosen.contains(s.process.pid)) processes.push_back(s.process);
    const auto words = try_to_end(processes, o_.grace_s);
    std::map<std::int64_t, std::string> out;
    for (std::size_t i = 0; i < words.size(); ++i) out[processes[i].pid] = words[i];
    return out;
  }
  /// `how` it ended; empty when it was not to be.
  void name(const Stranger& s, bool chosen, const std::string& how, std::vector<std::string>& said, Json& evidence) const {
    said.push_back(fmt::format("foreign: {}{}", describe(s), chosen ? o_.dry_run ? "; would be ended" : "" : "; left alone"));
    auto line = to_json(s);
    if (how.empty()) return void(evidence["foreign"].push_back(std::move(line)));
    line["how"] = how;
    said.push_back(fmt::format("foreign process {}: {}", s.process.pid, how));
    evidence["foreign_ended"].push_back(std::move(line));
  }

  Json memory_now() const {
    Json out = Json::array();
    for (const auto& g : node::look_at_gpus().gpus)
      out.push_back(
          {{"index", g.index}, {"bytes_used", g.memory_used ? Json(*g.memory_used) : Json{}}, {"processes", g.processes.size()}});
    return out;
  }

  /// Where dead attempts may have left something that this host cannot see.
  std::set<std::string> other_hosts() const {
    std::set<std::string> out;
    for (const auto& a : found_.state.attempts)
      if (a.end.empty() && a.begin_details.is_object())
        for (const auto& h : a.begin_details.value("hosts", Json::array())) out.insert(h.get<std::string>());
    out.erase(base::host_name());
    return out;
  }

  void verify() {
    if (!io::Store::exists(config_.store_dir())) {
      say("verify", {"no store yet"});
      return close(item_verify, {{"verified", 0}, {"store", "none yet"}});
    }
    store_ = mend_store(config_, ledger_, {o_.dry_run, o_.lost, o_.threads});
    close(item_verify, store_->evidence);
  }

  bool plan() {
    const auto plan = plan_resume(config_, found_, store_);
    say("resume", plan.said);
    next_ = plan.phase;
    if (!o_.dry_run) {
      if (plan.phase)
        plan_item(ledger_, *plan.phase, plan.evidence);
      else
        close(item_resume, {{"phases", Json::array()}, {"missing", 0}});
    }
    return plan.phase.has_value();
  }

  const Options& o_;
  config::Config config_;
  report::Ledger ledger_;
  Assessment found_;
  Leftovers left_;
  std::vector<Stranger> strangers_;
  std::optional<base::FileLock> lock_;
  bool unended_ = false;
  std::optional<report::Phase> next_;
  std::optional<Mended> store_;
  std::optional<HeldJobs> queued_;
};

int go_on(const Options& o, int (*command)(int, char**), const char* name) {
  std::vector<std::string> words{name, o.run};
  if (!o.site.empty()) words.insert(words.end(), {"--site", o.site});
  std::vector<char*> argv;
  for (auto& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  return command(static_cast<int>(words.size()), argv.data());
}
}  // namespace

int command_recover(int argc, char** argv) {
  CLI::App app(
      "After a crash: says what survived, ends what dead attempts left running, reads the whole store, says what is missing; "
      "goes on with --submit or --resume.",
      "aerie recover");
  Options o;
  app.add_option("RUN,--run", o.run, "the run directory")->required();
  app.add_flag("--dry-run", o.dry_run, "only say what would be done; reads records, no checksums");
  auto* submit = app.add_flag("--submit", o.submit, "go on with `aerie submit`");
  app.add_flag("--resume", o.resume, "go on with `aerie run`, on this machine")->excludes(submit);
  app.add_option("--site", o.site, "with --submit: the site's settings")->needs(submit);
  app.add_flag("--lost", o.lost, "parts that are missing are lost for good: make them again");
  app.add_option("--end-foreign", o.foreign, "end this foreign process too; it must be on a GPU of this host (repeatable)");
  app.add_option("--grace", o.grace_s, "seconds between TERM and KILL (10)")->check(CLI::Range(0.0, 3600.0));
  app.add_option("--threads", o.threads, "threads that read")->check(CLI::Range(1, 1024));
  if (!parse_command_line(app, argc, argv)) return 0;

  if (!std::isfinite(o.grace_s)) throw base::ConfigError("--grace is no number of seconds", "for example --grace 10");
  std::signal(SIGPIPE, SIG_IGN);  // whoever reads along may go: the work is finished
  Recovery recovery(o);
  const bool anything = recovery.run();
  if (o.dry_run) return print("dry run: nothing was changed"), 0;
  const auto jobs = recovery.queued(), kept = recovery.kept();
  if (!jobs.empty()) print(fmt::format("{:<10} job {} was in the queue and goes on", "", fmt::join(jobs, ", ")));
  if (!kept.empty())
    print(fmt::format("{:<10} job {} was held before (by its user, an administrator or Slurm), and stays so: scontrol release {}",
                      "", fmt::join(kept, ", "), fmt::join(kept, ",")));
  if (!jobs.empty() || !kept.empty()) return 0;
  if (!anything) return 0;
  if (o.submit) return go_on(o, command_submit, "aerie submit");
  if (o.resume && recovery.unended())
    throw base::Error(base::ExitCode::preflight, "processes of this run could not be ended", "see above; then start again");
  if (o.resume) return go_on(o, command_run, "aerie run");
  print(fmt::format("next       aerie submit {0}, or here: aerie run {0}", shell_word(o.run)));
  return 0;
}

}  // namespace aerie::apps
