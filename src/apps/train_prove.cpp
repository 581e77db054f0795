// SPDX-License-Identifier: Apache-2.0
#include "train_prove.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <aerie/base/error.hpp>
#include <aerie/base/fault.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/hash.hpp>
#include <aerie/base/log.hpp>
#include <aerie/ckpt/checkpoint.hpp>
#include <aerie/config/config.hpp>

#include "child.hpp"
#include "launcher.hpp"
#include "outcome.hpp"

namespace aerie::apps {
namespace {
namespace fs = std::filesystem;
constexpr int stopped = static_cast<int>(base::ExitCode::stopped);
using Hashes = std::map<std::string, std::string>;

std::string count_ranks(int n) { return fmt::format("{} rank{}", n, n == 1 ? "" : "s"); }

/// The last lines of a child's log, for the message when it failed.
std::string end_of(const fs::path& log) {
  const auto text = base::read_text(log);
  return text.size() > 2000 ? text.substr(text.size() - 2000) : text;
}

class Proof {
 public:
  Proof(config::Config c, const ProveFlags& flags, std::int64_t kill_at)
      : c_(std::move(c)), flags_(flags), kill_at_(kill_at), run_(fs::absolute(c_.run_dir)) {
    scratch_ = flags.scratch.empty() ? run_ / fmt::format("prove-{}", ::getpid()) : fs::absolute(flags.scratch);
    // What the children see: the same data and settings, fewer steps, and a checkpoint or two before the kill.
    if (!c_.target.path.empty()) c_.target.path = fs::absolute(c_.target.path);
    c_.dataset.path = fs::absolute(c_.dataset_file());
    if (!c_.eval.path.empty()) c_.eval.path = fs::absolute(c_.eval.path);
    if (!c_.eval.conversations.empty()) c_.eval.conversations = fs::absolute(c_.eval.conversations);
    c_.train.steps = flags.steps;
    c_.train.save_every_steps = std::max<std::int64_t>(1, kill_at / 2);
    c_.train.save_every_seconds = 0;
    c_.train.keep = 2;
    c_.train.keep_every = 0;
    c_.eval.every_steps = 0;
  }

  int run() {
    fs::create_directories(scratch_);
    base::log_info(
        fmt::format("{} steps in {}: straight, killed after step {}, other ranks", flags_.steps, scratch_.string(), kill_at_));
    const int one = flags_.ranks.front();
    std::map<std::string, Hashes> results;
    std::vector<std::string> names;
    const auto note = [&](const std::string& name, Hashes h) {
      names.push_back(name);
      for (const auto& [what, hash] : h) std::printf("%-28s %-11s %s\n", name.c_str(), what.c_str(), hash.c_str());
      std::fflush(stdout);
      results[name] = std::move(h);
    };
    note("straight on " + count_ranks(one), straight("straight", one));
    note(fmt::format("killed on {}, resumed on {}", one, flags_.ranks.back()), killed("killed", one));
    for (std::size_t i = 1; i < flags_.ranks.size(); ++i)
      note("straight on " + count_ranks(flags_.ranks[i]), straight(fmt::format("ranks-{}", flags_.ranks[i]), flags_.ranks[i]));
    const bool same =
        std::all_of(results.begin(), results.end(), [&](const auto& r) { return r.second == results.begin()->second; });
    std::printf("%s\n", same ? "PROVED" : "DIFFERENT");
    std::fflush(stdout);
    if (flags_.ranks.size() < 2) base::log_warning("no other rank count was tried: --ranks 1,2");
    if (!same)
      throw base::Error(base::ExitCode::bug, fmt::format("the runs differ; all of it is in {}", scratch_.string()),
                        "report it with the versions (aerie-train --version) and the logs there");
    if (!flags_.keep) fs::remove_all(scratch_);
    return 0;
  }

 private:
  fs::path make_run(const std::string& name) const {
    const auto dir = scratch_ / name;
    if (fs::exists(dir)) throw base::RefusedError(dir.string() + " is there already", "remove it, or give another --scratch");
    fs::create_directories(dir);
    fs::create_directory_symlink(fs::canonical(run_ / "store"), dir / "store");
    fs::create_symlink(fs::canonical(run_ / "vocab.safetensors"), dir / "vocab.safetensors");
    base::publish_text(dir / "aerie.toml", config::commented_toml(c_), false);
    return dir;
  }

  int start(const fs::path& dir, int ranks, const std::vector<std::string>& more) const {
    auto words = launcher_words(c_, ranks);
    words.insert(words.end(), {fs::canonical("/proc/self/exe").string(), "--run", dir.string()});
    words.insert(words.end(), more.begin(), more.end());
    const auto result = run_child(words, {.environment = launcher_environment(ranks), .soft_stop = true, .output = dir / "log"});
    if (result.asked) throw base::StopRequested("the proof was stopped", "start it again");
    return result.code;
  }
  void finish(const fs::path& dir, int ranks) const {
    const int code = start(dir, ranks, {});
    if (code == 0) return;
    throw base::Error(
        static_cast<base::ExitCode>(code),
        fmt::format("training in {} on {} ended with {}:\n{}", dir.string(), count_ranks(ranks), code, end_of(dir / "log")),
        code == stopped ? "start the proof again" : "the log is in " + (dir / "log").string());
  }

  Hashes straight(const std::string& name, int ranks) const {
    const auto dir = make_run(name);
    finish(dir, ranks);
    return hashes(dir);
  }
  Hashes killed(const std::string& name, int ranks) {
    if (base::fault_point("prove.other_seed") != 0) c_.train.seed += 1;  // the control of the tests: must come out different
    const auto dir = make_run(name);
    const int code = start(dir, ranks, {fmt::format("--kill-at={}", kill_at_)});
    const auto steps = steps_made(dir);
    if (code == 0 || steps < kill_at_)
      throw base::Error(base::ExitCode::bug, fmt::format("the run that was to die after step {} ended with {} after step {}:\n{}",
                                                         kill_at_, code, steps, end_of(dir / "log")));
    const auto newest = ckpt::latest(dir / "checkpoints", false);
    if (!newest || newest->step == 0)
      throw base::Error(base::ExitCode::bug, "the killed run left no checkpoint to resume from", "a larger --kill-at");
    const int others = flags_.ranks.back();
    base::log_info(fmt::format("killed after step {} (exit {}), goes on from step {} on {}", steps, code, newest->step,
                               count_ranks(others)));
    finish(dir, others);
    return hashes(dir);
  }

  /// Steps that the sample log knows.
  static std::int64_t steps_made(const fs::path& dir) {
    if (!fs::exists(dir / "samples.jsonl")) return 0;
    const auto text = base::read_text(dir / "samples.jsonl");
    return std::count(text.begin(), text.end(), '\n');
  }

  Hashes hashes(const fs::path& dir) const {
    const auto checkpoint = ckpt::latest(dir / "checkpoints", false);
    if (!checkpoint || checkpoint->step != flags_.steps)
      throw base::Error(base::ExitCode::bug, fmt::format("{} holds no checkpoint of step {}", dir.string(), flags_.steps));
    Hashes out;
    for (const auto& v : checkpoint->manifest.at("vectors")) {
      const auto name = v.at("name").get<std::string>();
      out[name] = ckpt::vector_sha256(*checkpoint, name);
    }
    const auto order = base::read_text(dir / "samples.jsonl");
    out["samples"] = base::sha256_tagged(order);
    if (!flags_.keep) fs::remove_all(dir / "checkpoints");
    return out;
  }

  config::Config c_;
  const ProveFlags& flags_;
  std::int64_t kill_at_;
  fs::path run_, scratch_;
};

int prove(int argc, char** argv) {
  CLI::App app("Proves on this machine that training gives the same bits straight, killed and resumed, and on other rank counts.",
               "aerie-train --prove");
  config::Config c;
  ProveFlags flags;
  std::int64_t kill_at = 0;
  app.add_option("--kill-at", kill_at, "SIGKILL after this step; default a third of the steps");
  add_prove_options(app, flags);
  config::add_options(app, c);
  try {
    config::parse(app, argc, argv);
  } catch (const CLI::Success&) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  }
  config::validate(c);
  if (c.run_dir.empty()) throw base::ConfigError("--run DIR is not given", "name the run directory");
  if (flags.steps < 4) throw base::ConfigError("--prove needs at least 4 steps");
  if (kill_at == 0) kill_at = std::max<std::int64_t>(2, flags.steps / 3);
  if (kill_at < 2 || kill_at >= flags.steps)
    throw base::ConfigError(fmt::format("--kill-at={}, but must be at least 2 and below {}: the first steps have no checkpoint",
                                        kill_at, flags.steps));
  if (flags.ranks.empty() || *std::min_element(flags.ranks.begin(), flags.ranks.end()) < 1)
    throw base::ConfigError("--ranks needs rank counts of at least 1", "for example --ranks 1,2");
  for (const auto* needed : {"store", "vocab.safetensors"})
    if (!fs::exists(c.run_dir / needed))
      throw base::MissingInputError((c.run_dir / needed).string() + ": not there",
                                    fmt::format("aerie run {} --to vocab makes it", c.run_dir.string()));
  return Proof(c, flags, kill_at).run();
}

}  // namespace

void add_prove_options(CLI::App& app, ProveFlags& flags) {
  app.add_option("--prove", flags.steps,
                 "train so many steps straight, killed and resumed, and on other ranks; compare the bits");
  app.add_option("--ranks", flags.ranks, "with --prove: ranks of the straight and the killed run, then other rank counts")
      ->delimiter(',');
  app.add_option("--scratch", flags.scratch, "with --prove: where; empty: in the run directory");
  app.add_flag("--keep-scratch", flags.keep, "with --prove: leave the runs behind");
}

bool asks_for_proof(int argc, const char* const* argv) {
  return std::any_of(argv + 1, argv + argc, [](const char* word) {
    const std::string_view w(word);
    return w == "--prove" || w.starts_with("--prove=");
  });
}

int prove_main(int argc, char** argv) {
  base::set_log_identity("prove", 0, 1);
  const auto outcome = outcome_of([&] { return prove(argc, argv); });
  if (outcome.failed()) std::fputs((error_line(outcome) + "\n").c_str(), stderr);
  return outcome.code;
}

}  // namespace aerie::apps
