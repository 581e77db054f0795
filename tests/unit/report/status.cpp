// SPDX-License-Identifier: Apache-2.0
// The status of runs made line by line: every documented key, how attempts ended, what to do next.
#include <aerie/report/status.hpp>

#include <csignal>
#include <fstream>
#include <regex>
#include <set>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/host.hpp>
#include <aerie/report/ledger.hpp>
#include "temp_dir.hpp"

namespace base = aerie::base;
namespace report = aerie::report;
using base::Json;
using report::Ledger;
using report::Phase;
using report::PhaseState;

namespace {
const Json all_done = {{"total", 300}, {"done", 300}, {"failed", 0}, {"missing", 0}, {"excluded", 0}};

/// A process that waits until it is killed.
struct Sleeper {
  pid_t pid;
  explicit Sleeper(const std::filesystem::path& run, const std::string& program) {
    int ready[2];
    if (::pipe(ready) != 0) throw std::runtime_error("pipe");
    pid = ::fork();
    if (pid == 0) {
      Ledger(run).attempt_begin(program, {{"ranks", 2}});
      if (::write(ready[1], "x", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char c = 0;
    if (::read(ready[0], &c, 1) != 1) throw std::runtime_error("read");
    ::close(ready[0]), ::close(ready[1]);
  }
  void kill() {
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = 0;
  }
  ~Sleeper() { kill(); }
};
std::string phase_state(const Json& status, const std::string& phase) {
  for (const auto& p : status.at("phases"))
    if (p.at("phase") == phase) return p.at("state");
  return "none";
}
Json next(const aerie::test::TempDir& run, const Json& counts = all_done) {
  return report::build_status(run.path(), counts, nullptr).at("next");
}
/// A begin line as another host would have written it.
void begin_elsewhere(const std::filesystem::path& run, int number, const std::string& job, int restart_count = 0) {
  base::append_line(run / "ledger.jsonl",
                    Json{{"time", "2026-01-01T00:00:00.000Z"},
                         {"kind", "attempt"},
                         {"event", "begin"},
                         {"number", number},
                         {"program", "aerie-train"},
                         {"details", {{"processes", {{{"rank", 0}, {"host", "no-such-host"}, {"pid", 1}, {"start_ticks", 1}}}}}},
                         {"process",
                          {{"host", "no-such-host"},
                           {"boot_id", "b"},
                           {"pid", 1},
                           {"start_ticks", 1},
                           {"job", job},
                           {"restart_count", restart_count}}}}
                        .dump());
}
void key_paths(const Json& value, const std::string& prefix, std::set<std::string>& out) {
  if (value.is_array())
    for (const auto& item : value) key_paths(item, prefix + "[]", out);
  if (!value.is_object()) return;
  for (const auto& [key, item] : value.items()) {
    const std::string path = prefix.empty() ? key : prefix + "." + key;
    out.insert(path);
    if (path != "phases[].evidence" && path != "decisions[].details") key_paths(item, path, out);  // free in form
  }
}
}  // namespace

TEST(Status, NoRunIsMissingInput) {
  aerie::test::TempDir dir;
  EXPECT_THROW(report::build_status(dir.path(), nullptr, nullptr), base::MissingInputError);
  EXPECT_THROW(report::build_status(dir / "none", nullptr, nullptr), base::MissingInputError);
  std::ofstream(dir / "aerie.toml") << "";
  const auto status = report::build_status(dir.path(), nullptr, nullptr);
  for (const auto& p : status.at("phases")) EXPECT_EQ(p.at("state"), "pending");
  EXPECT_EQ(status.at("phases").size(), 9U);
  for (const char* none : {"samples", "running", "checkpoint"}) EXPECT_TRUE(status.at(none).is_null()) << none;
  EXPECT_NE(report::format_status(status).find("aerie run"), std::string::npos);
}

TEST(Status, KeysAreExactlyThoseDocumented) {
  aerie::test::TempDir run;
  Ledger ledger(run.path());
  ledger.phase(Phase::prepare, PhaseState::complete, {{"samples", 300}});
  ledger.attempt_begin("aerie-train", {});
  ledger.sample_failed(3, "s3", "NONFINITE", "layer 2");
  ledger.decision("accept-missing", {{"ids", {"s3"}}});
  ledger.todo("look", "high", "open");
  ledger.submitted({{"jobs", {{{"phase", "train"}, {"job", "42"}, {"script", "s"}}}}, {"array", 0}});
  report::StatusFile(run.path(), 1).update({{"phase", "train"}, {"done", 1}, {"began_unix", 1.0}});
  const auto status = report::build_status(run.path(), all_done, {{"step", 4}, {"path", "p"}, {"unix", base::unix_now()}});
  std::set<std::string> written, documented;
  key_paths(status, "", written);
  std::ifstream in(std::string(AERIE_SOURCE_DIR) + "/docs/reference/status.md");
  const std::regex row("^\\| `([a-z_.\\[\\]]+)` \\|.*");
  for (std::string line; std::getline(in, line);)
    if (std::smatch m; std::regex_match(line, m, row)) documented.insert(m[1]);
  EXPECT_EQ(written, documented);
}

TEST(Status, PhasesSamplesAndCheckpointTellTheTruth) {
  aerie::test::TempDir run;
  Ledger ledger(run.path());
  ledger.phase(Phase::prepare, PhaseState::complete, {{"samples", 300}, {"hash", "sha256:ab"}});
  ledger.phase(Phase::extract, PhaseState::interrupted);
  ledger.sample_failed(17, "conv-17", "NONFINITE", "layer 30");
  ledger.sample_failed(18, "conv-18", "TOO_LONG", "");
  ledger.decision("accept-missing", {{"ids", {"conv-18"}}, {"reason", "known"}, {"by", "me"}});
  ledger.checkpoint_published(40, "checkpoints/step-00000040", "sha256:cd");
  const Json counts = {{"total", 300}, {"done", 250}, {"failed", 2}, {"missing", 48}, {"excluded", 5}};
  auto status = report::build_status(run.path(), counts, nullptr);
  EXPECT_NE(report::format_status(status).find("hash sha256:ab,"), std::string::npos) << "a short one is no hash to cut";
  EXPECT_EQ(phase_state(status, "prepare"), "complete");
  EXPECT_EQ(phase_state(status, "extract"), "interrupted");
  EXPECT_EQ(phase_state(status, "train"), "pending");
  const auto& samples = status.at("samples");
  EXPECT_EQ(samples.at("missing"), 48);
  ASSERT_EQ(samples.at("failed_samples").size(), 2U);
  EXPECT_EQ(samples.at("failed_samples")[0],
            (Json{{"sample", 17}, {"id", "conv-17"}, {"reason", "NONFINITE"}, {"text", "layer 30"}, {"decided", false}}));
  EXPECT_TRUE(samples.at("failed_samples")[1].at("decided").get<bool>());
  EXPECT_EQ(status.at("checkpoint").at("step"), 40);
  EXPECT_LT(status.at("checkpoint").at("age_s").get<double>(), 60);
  EXPECT_GE(status.at("checkpoint").at("age_s").get<double>(), 0);
  const auto text = report::format_status(status);
  for (const char* part : {"250 of 300 done, 2 failed, 48 missing", "5 excluded", "conv-17", "NONFINITE", "layer 30",
                           "accepted as missing", "step 40", "samples 300"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  // The store's own list wins: 17 was mended since, 18 is failed still, 19 the ledger never heard of.
  auto with_list = counts;
  with_list["failed_samples"] = {{{"sample", 18}, {"id", "conv-18"}, {"reason", "TOO_LONG"}, {"decided", true}},
                                 {{"sample", 19}, {"id", "conv-19"}, {"reason", "TARGET"}, {"decided", false}}};
  status = report::build_status(run.path(), with_list, {{"step", 50}, {"path", "p50"}, {"unix", base::unix_now() - 100}});
  ASSERT_EQ(status.at("samples").at("failed_samples").size(), 2U);
  EXPECT_TRUE(status.at("samples").at("failed_samples")[0].at("decided").get<bool>());
  EXPECT_FALSE(status.at("samples").at("failed_samples")[1].at("decided").get<bool>());
  EXPECT_NEAR(status.at("checkpoint").at("age_s").get<double>(), 100, 5);
}

TEST(Status, AttemptsSayHowEachEnded) {
  aerie::test::TempDir run;
  Ledger ledger(run.path());
  const auto first = ledger.attempt_begin("aerie-train", {{"ranks", 4}});
  ledger.attempt_end(first, "aerie-train", 75, "signal USR2");
  Sleeper killed(run.path(), "aerie-train"), alive(run.path(), "aerie-extract");
  killed.kill();
  begin_elsewhere(run.path(), 4, "77");
  begin_elsewhere(run.path(), 5, "77");
  const auto status = report::build_status(run.path(), nullptr, nullptr);
  const auto& attempts = status.at("attempts");
  ASSERT_EQ(attempts.size(), 5U);
  EXPECT_EQ(attempts[0].at("outcome"), "ended");
  EXPECT_EQ(attempts[0].at("exit_code"), 75);
  EXPECT_EQ(attempts[0].at("explanation"), "Stopped safely after a commit or checkpoint.");
  EXPECT_EQ(attempts[0].at("reason"), "signal USR2");
  EXPECT_EQ(attempts[0].at("ranks"), 4);
  EXPECT_EQ(attempts[1].at("outcome"), "died");
  EXPECT_TRUE(attempts[1].at("exit_code").is_null());
  EXPECT_EQ(attempts[2].at("outcome"), "running");
  EXPECT_EQ(attempts[3].at("outcome"), "died");  // its job started the program again
  EXPECT_EQ(attempts[4].at("outcome"), "unknown");
  EXPECT_NE(attempts[4].at("explanation").get<std::string>().find("no-such-host"), std::string::npos);
  EXPECT_EQ(status.at("next").at("command"), "aerie status " + run.path().string() + " --watch");
  const auto text = report::format_status(status);
  for (const char* part : {"exit 75", "died", "running", "unknown", "signal USR2"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(Status, RecycledPidIsNotTakenForAlive) {
  aerie::test::TempDir run;
  Ledger(run.path()).attempt_begin("aerie-train", {});
  auto line = base::read_json_lines(run / "ledger.jsonl").at(0);
  EXPECT_EQ(report::build_status(run.path(), nullptr, nullptr).at("attempts")[0].at("outcome"), "running");  // this very process
  for (const auto& [key, value] : {std::pair<std::string, Json>{"start_ticks", 1}, {"boot_id", "another"}}) {
    auto other = line;
    other["process"][key] = value;
    std::ofstream(run / "ledger.jsonl") << other.dump() << "\n";
    EXPECT_EQ(report::build_status(run.path(), nullptr, nullptr).at("attempts")[0].at("outcome"), "died") << key;
  }
}

TEST(Status, NothingIsConcludedAboutAnotherPidNamespace) {
  aerie::test::TempDir run;
  Ledger(run.path()).attempt_begin("aerie-train", {});
  const auto line = base::read_json_lines(run / "ledger.jsonl").at(0);
  const auto outcome = [&](std::int64_t pid, const Json& space, int again = 0) {
    auto first = line, second = line;
    first["process"]["pid"] = pid;
    first["process"]["pid_namespace"] = space;
    second["number"] = 2;
    std::ofstream(run / "ledger.jsonl") << first.dump() << "\n" << (again ? second.dump() + "\n" : "");
    return report::build_status(run.path(), nullptr, nullptr).at("attempts")[0];
  };
  const auto here = base::own_pid_namespace();
  EXPECT_EQ(line.at("process").at("pid_namespace"), here);
  EXPECT_EQ(outcome(::getpid(), here).at("outcome"), "running");
  EXPECT_EQ(outcome(1 << 30, here).at("outcome"), "died");
  for (const std::int64_t pid : {::getpid(), 1 << 30}) {  // its number is somebody's here, or nobody's
    const auto a = outcome(pid, here + 1);
    EXPECT_EQ(a.at("outcome"), "unknown");
    EXPECT_NE(a.at("explanation").get<std::string>().find("another PID namespace of this host"), std::string::npos) << a;
    EXPECT_EQ(outcome(pid, here + 1, true).at("outcome"), "unknown") << "one that begins here says nothing about it";
  }
}

TEST(Status, NextCommandFollowsTheState) {
  aerie::test::TempDir run;
  const std::string dir = run.path().string();
  Ledger ledger(run.path());
  ledger.phase(Phase::prepare, PhaseState::complete, {{"samples", 300}});
  EXPECT_EQ(next(run).at("command"), "aerie run " + dir);
  const auto a = ledger.attempt_begin("aerie-extract", {});
  ledger.sample_failed(3, "it's 3", "NONFINITE", "");
  ledger.sample_failed(4, "four", "NONFINITE", "");
  ledger.attempt_end(a, "aerie-extract", 65, "2 failed samples");
  const Json missing = {{"total", 300}, {"done", 290}, {"failed", 2}, {"missing", 8}, {"excluded", 0}};
  const Json failed = {{"total", 300}, {"done", 298}, {"failed", 2}, {"missing", 0}, {"excluded", 0}};
  EXPECT_EQ(next(run, missing).at("command"), "aerie run " + dir);  // first do what can be done
  EXPECT_EQ(next(run, failed).at("command"), "aerie accept-missing " + dir + " --ids 'it'\\''s 3,four' --reason TEXT");
  ledger.sample_failed(4, "four, and more", "NONFINITE", "");
  EXPECT_EQ(next(run, failed).at("command"),
            "aerie accept-missing " + dir + " --id 'it'\\''s 3' --id 'four, and more' --reason TEXT");
  ledger.sample_failed(4, "four", "NONFINITE", "");
  ledger.decision("accept-missing", {{"ids", {"it's 3", "four"}}});
  EXPECT_EQ(next(run, failed).at("command"), "aerie run " + dir);
  ledger.phase(Phase::verify, PhaseState::failed, {{"damaged", 1}});
  EXPECT_EQ(next(run, failed).at("command"), "aerie recover " + dir);
  ledger.phase(Phase::verify, PhaseState::complete, {{"damaged", 0}});
  ledger.attempt_end(ledger.attempt_begin("aerie-train", {}), "aerie-train", 93, "");
  EXPECT_EQ(next(run, failed).at("command"), "aerie run " + dir + " --reset-attempts");
  std::ofstream(run / "stop") << "";
  EXPECT_EQ(next(run, failed).at("command"), "rm " + dir + "/stop && aerie run " + dir);
  std::filesystem::remove(run / "stop");
  ledger.attempt_end(ledger.attempt_begin("aerie-preflight", {}), "aerie-preflight", 69, "");
  EXPECT_EQ(next(run, failed).at("command"), "aerie run " + dir);
  EXPECT_NE(next(run, failed).at("why").get<std::string>().find("exclude the named node"), std::string::npos);
  for (const auto phase : {Phase::extract, Phase::train, Phase::eval, Phase::export_})
    ledger.phase(phase, PhaseState::complete, {{"checked", true}});
  EXPECT_EQ(next(run, failed).at("command"), "");
}

TEST(Status, ManyFailedSamplesAreNotAllNamedInTheCommand) {
  aerie::test::TempDir run;
  Ledger ledger(run.path());
  for (int i = 0; i < 21; ++i) ledger.sample_failed(i, "s" + std::to_string(i), "NONFINITE", "");
  EXPECT_EQ(next(run).at("command"), "aerie accept-missing " + run.path().string() + " --all-failed --reason TEXT");
  const auto text = report::format_status(report::build_status(run.path(), all_done, nullptr));
  EXPECT_NE(text.find("and 1 more"), std::string::npos) << text;
}

TEST(Status, DamagedPartsAreToldAndTheRestIsShown) {
  aerie::test::TempDir run;
  std::ofstream(run / "ledger.jsonl") << "{\"kind\":\"evidence\"}\nnonsense\n{\"kind\":\"evidence\"}\n";
  std::ofstream(run / "status.json") << "";
  const auto status = report::build_status(run.path(), all_done, nullptr);
  EXPECT_EQ(status.at("problems").size(), 2U);
  EXPECT_EQ(status.at("samples").at("total"), 300);
  EXPECT_TRUE(status.at("running").is_null());
  EXPECT_NE(report::format_status(status).find("ledger.jsonl:2"), std::string::npos);
}

TEST(Status, AttemptsElsewhereAreAskedOfSlurm) {
  aerie::test::TempDir run;
  begin_elsewhere(run.path(), 1, "77");
  begin_elsewhere(run.path(), 2, "78", 1);
  begin_elsewhere(run.path(), 3, "79_3");
  begin_elsewhere(run.path(), 4, "");
  const auto verdicts = [&](const report::Outside& outside) {
    std::string out;
    const auto status = report::build_status(run.path(), nullptr, nullptr, outside);
    for (const auto& a : status.at("attempts")) out += a.at("outcome").get<std::string>().substr(0, 1);
    return out;
  };
  report::Outside outside;
  EXPECT_EQ(verdicts(outside), "uuuu") << "Slurm was not asked";
  outside.queue.emplace();
  EXPECT_EQ(verdicts(outside), "dddu") << "an empty queue: only the one outside Slurm may be at work";
  outside.queue = {{"77", {"RUNNING", 0, "77"}}, {"78", {"RUNNING", 1, "78"}}, {"79_3", {"COMPLETING", 0, "80"}}};
  EXPECT_EQ(verdicts(outside), "rrru");
  outside.queue = {{"77", {"RUNNING", 1, "77"}}, {"78", {"PENDING", 1, "78"}}, {"79_4", {"RUNNING", 0, "80"}}};
  EXPECT_EQ(verdicts(outside), "dddu") << "started again; back in the queue; another task of the array";
}

TEST(Status, OutdatedPhasesAreNotDone) {
  aerie::test::TempDir run;
  Ledger ledger(run.path());
  for (const auto phase : {Phase::prepare, Phase::extract, Phase::train, Phase::eval, Phase::export_})
    ledger.phase(phase, PhaseState::complete, {{"checked", true}});
  ledger.phase(Phase::verify, PhaseState::interrupted);
  EXPECT_EQ(next(run).at("command"), "");
  report::Outside outside;
  outside.outdated = {{Phase::train, "its configuration changed"}, {Phase::verify, "told of complete phases only"}};
  const auto status = report::build_status(run.path(), all_done, nullptr, outside);
  for (const auto& p : status.at("phases"))
    EXPECT_EQ(p.at("outdated"), p.at("phase") == "train" ? Json("its configuration changed") : Json{}) << p;
  EXPECT_EQ(phase_state(status, "train"), "complete");
  EXPECT_EQ(status.at("next").at("command"), "aerie run " + run.path().string());
  EXPECT_NE(status.at("next").at("why").get<std::string>().find("train has to be done again: its configuration changed"),
            std::string::npos);
  EXPECT_NE(report::format_status(status).find("complete, outdated: its configuration changed;"), std::string::npos)
      << report::format_status(status);
}

TEST(Status, OnlyDamageIsForRecover) {
  aerie::test::TempDir run;
  Ledger ledger(run.path());
  ledger.phase(Phase::verify, PhaseState::failed, {{"exit_code", 65}, {"reason", "3 samples are missing"}, {"damaged", 0}});
  EXPECT_EQ(next(run).at("command"), "aerie run " + run.path().string());
  ledger.phase(Phase::verify, PhaseState::failed, {{"exit_code", 65}, {"damaged", 2}});
  EXPECT_EQ(next(run).at("command"), "aerie recover " + run.path().string());
}

TEST(Status, StalledSaysWhoAndWhatItWaitsFor) {
  aerie::test::TempDir run;
  Sleeper stalled(run.path(), "aerie-extract");
  const auto self = base::this_process();
  // As the wrapper lists the ranks: this one, one that has gone, one elsewhere, one in a container beside us.
  auto lines = base::read_json_lines(run / "ledger.jsonl");
  lines[0]["details"]["processes"] = {
      {{"rank", 0}, {"host", self.host}, {"pid", stalled.pid}, {"start_ticks", lines[0]["process"]["start_ticks"]}},
      {{"rank", 1}, {"host", self.host}, {"pid", stalled.pid}, {"start_ticks", 1}},
      {{"rank", 2}, {"host", "no-such-host"}, {"pid", 7}, {"start_ticks", 7}},
      {{"rank", 3}, {"host", self.host}, {"pid_namespace", self.pid_namespace + 1}, {"pid", 9}, {"start_ticks", 9}}};
  std::ofstream(run / "ledger.jsonl") << lines[0].dump() << "\n";
  const auto snapshot = [&](std::int64_t attempt, double silent, const Json& median) {
    report::StatusFile(run.path(), attempt)
        .update({{"phase", "extract"},
                 {"began_unix", base::unix_now() - 1000},
                 {"last_commit_unix", base::unix_now() - silent},
                 {"median_commit_interval_s", median}});
  };
  const auto look = [&](Json counts = all_done) { return report::build_status(run.path(), counts, nullptr); };
  snapshot(1, 110, 10);
  const auto status = look();
  ASSERT_TRUE(status.at("stalled").get<bool>());
  const auto& stall = status.at("stall");
  EXPECT_EQ(stall.at("phase"), "extract");
  EXPECT_EQ(stall.at("attempt"), 1);
  EXPECT_EQ(stall.at("limit_s"), 100);
  EXPECT_NEAR(stall.at("silent_s").get<double>(), 110, 5);
  ASSERT_EQ(stall.at("processes").size(), 4U);
  EXPECT_EQ(stall.at("processes")[0].at("state"), "S");
  std::string kernel;
  std::ifstream("/proc/self/wchan") >> kernel;
  const auto waits = stall.at("processes")[0].at("waits_for").get<std::string>();
  EXPECT_NE(waits.find(kernel.empty() ? "S" : "S (sleeping) in "), std::string::npos) << waits;
  EXPECT_EQ(stall.at("processes")[1].at("state"), "gone") << "the pid is another's by now";
  for (const int out_of_sight : {2, 3}) EXPECT_TRUE(stall.at("processes")[out_of_sight].at("state").is_null());
  EXPECT_EQ(stall.at("look"), "ssh no-such-host aerie status " + run.path().string());
  const auto text = report::format_status(status);
  for (const auto& part : {std::string("STALLED    extract: nothing was committed for 1m5"), std::string("usual is every 10s"),
                           waits, std::string("pid 7: on another host"), std::string("pid 9: cannot be seen from here")})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_NE(status.at("next").at("why").get<std::string>().find("STALLED"), std::string::npos);

  snapshot(1, 90, 10);
  EXPECT_FALSE(look().at("stalled").get<bool>());
  EXPECT_TRUE(look().at("stall").is_null());
  snapshot(1, 110, nullptr);
  EXPECT_FALSE(look().at("stalled").get<bool>()) << "what is usual is not known yet";
  snapshot(1, 110, 10);
  auto counts = all_done;
  counts["last_write_unix"] = base::unix_now() - 50;
  EXPECT_FALSE(look(counts).at("stalled").get<bool>()) << "another job writes to the store";
  snapshot(2, 110, 10);
  EXPECT_FALSE(look().at("stalled").get<bool>()) << "the snapshot is of an attempt that the ledger does not know";
  snapshot(0, 110, 10);
  EXPECT_TRUE(look().at("stalled").get<bool>()) << "of a phase without attempts: its process, this one, lives";
  snapshot(1, 110, 10);
  stalled.kill();
  EXPECT_FALSE(look().at("stalled").get<bool>()) << "the dead do not stall";
}

TEST(Status, AStallElsewhereIsLookedAtThroughSlurm) {
  aerie::test::TempDir run;
  begin_elsewhere(run.path(), 1, "79_3");
  report::StatusFile(run.path(), 1)
      .update({{"phase", "train"}, {"last_commit_unix", base::unix_now() - 50}, {"median_commit_interval_s", 1}});
  report::Outside outside;
  outside.queue = {{"79_3", {"RUNNING", 0, "80"}}};
  const auto status = report::build_status(run.path(), nullptr, nullptr, outside);
  EXPECT_EQ(status.at("stall").at("look"),
            "srun --jobid=80 --overlap -N1 -n1 -w no-such-host aerie status " + run.path().string());
  EXPECT_EQ(status.at("stall").at("job"), "79_3");
  outside.queue.emplace();
  EXPECT_TRUE(report::build_status(run.path(), nullptr, nullptr, outside).at("stall").is_null());
}

TEST(StatusFile, IsReplacedOnceAnInterval) {
  aerie::test::TempDir run;
  report::StatusFile file(run.path(), 0, 1000);
  file.update({{"done", 1}, {"rate", 5.5}, {"eta_s", 60}, {"phase", "train"}, {"total", 10}, {"unit", "steps"}});
  file.update({{"done", 2}});
  EXPECT_EQ(base::read_json(run / "status.json").at("done"), 1);
  std::ofstream(run / "aerie.toml") << "";
  const auto text = report::format_status(report::build_status(run.path(), nullptr, nullptr));
  EXPECT_NE(text.find("train 1/10 steps"), std::string::npos) << text;
  EXPECT_NE(text.find("1m00s left"), std::string::npos) << text;
  file.update({{"done", 3}}, true);
  EXPECT_EQ(base::read_json(run / "status.json").at("done"), 3);
  EXPECT_TRUE(base::read_json(run / "status.json").contains("updated"));
  EXPECT_NO_THROW(report::StatusFile(run / "none").update({{"done", 1}}));
}
