// SPDX-License-Identifier: Apache-2.0
// Appending to the ledger. What the lines add up to is in replay.cpp and guard.cpp.
#include <aerie/report/ledger.hpp>

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/host.hpp>
#include <aerie/base/version.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

namespace aerie::report {
namespace {
using base::Json;

constexpr std::array<std::string_view, 9> phase_names{"prepare", "preflight", "extract", "verify", "vocab",
                                                      "train",   "eval",      "export",  "bench"};
constexpr std::array<std::string_view, 5> state_names{"pending", "running", "complete", "interrupted", "failed"};

/// Two jobs that begin at once must not take the same number. Where locks do not work, or somebody holds this one for long, going
/// on with a number that may be taken is better than not starting: host and pid still tell the attempts apart.
std::optional<base::FileLock> lock_numbers(const std::filesystem::path& path) {
  using namespace std::chrono_literals;
  for (int i = 0; i < 100; ++i) {
    try {
      if (auto lock = base::FileLock::try_acquire(path, base::FileLock::Mode::exclusive, "")) return lock;
    } catch (const base::IoError&) {
      return std::nullopt;
    }
    std::this_thread::sleep_for(50ms);
  }
  return std::nullopt;
}
}  // namespace

std::string_view phase_name(Phase phase) { return phase_names.at(static_cast<std::size_t>(phase)); }
std::string_view phase_state_name(PhaseState state) { return state_names.at(static_cast<std::size_t>(state)); }
Phase phase_from_name(std::string_view name) {
  const auto it = std::find(phase_names.begin(), phase_names.end(), name);
  if (it == phase_names.end())
    throw base::DataError("no phase is named \"" + std::string(name) + "\"", "see docs/reference/ledger.md");
  return static_cast<Phase>(it - phase_names.begin());
}

namespace {
// Texts from outside (sample ids, error messages) may not be UTF-8; the record must not fail for that.
std::string text_of(const Json& line) { return line.dump(-1, ' ', false, Json::error_handler_t::replace); }
}  // namespace

Json Ledger::stamped(const std::string& kind, Json line) const {
  line["time"] = base::utc_now();
  line["kind"] = kind;
  if (attempt_ != 0 && kind != "attempt") {
    line["attempt"] = attempt_;
    line["program"] = program_;
  }
  return line;
}

void Ledger::append(const std::string& kind, Json line) { base::append_line(path_, text_of(stamped(kind, std::move(line)))); }

std::int64_t Ledger::attempt_begin(const std::string& program, const Json& details) {
  const auto lock = lock_numbers(path_.parent_path() / "ledger.lock");
  std::int64_t number = 0;
  for (const auto& line : read())
    if (line.is_object() && line.value("kind", Json{}) == "attempt" && line.contains("number") &&
        line["number"].is_number_integer())
      number = std::max(number, line["number"].get<std::int64_t>());
  ++number;
  const auto self = base::this_process();
  append("attempt", {{"event", "begin"},
                     {"number", number},
                     {"program", program},
                     {"process",
                      {{"host", self.host},
                       {"boot_id", self.boot_id},
                       {"pid_namespace", self.pid_namespace},
                       {"pid", self.pid},
                       {"start_ticks", self.start_ticks},
                       {"job", self.job},
                       {"restart_count", self.restart_count}}},
                     {"version", base::producer()},
                     {"details", details}});
  attempt_ = number;
  program_ = program;
  return number;
}

void Ledger::attempt_end(std::int64_t number, const std::string& program, int exit_code, const std::string& reason,
                         const Json& details) {
  append("attempt", {{"event", "end"},
                     {"number", number},
                     {"program", program},
                     {"exit_code", exit_code},
                     {"reason", reason},
                     {"details", details}});
}

void Ledger::phase(Phase phase, PhaseState state, const Json& evidence) {
  base::expect(state != PhaseState::complete || !evidence.empty(), "a phase is complete only with evidence");
  Json line = {{"phase", phase_name(phase)}, {"state", phase_state_name(state)}};
  if (!evidence.empty()) line["evidence"] = evidence;
  append("phase", std::move(line));
}
void Ledger::evidence(const std::string& what, const Json& details) {
  append("evidence", {{"what", what}, {"details", details}});
}
void Ledger::decision(const std::string& what, const Json& details) {
  append("decision", {{"what", what}, {"details", details}});
}
void Ledger::sample_failed(std::int64_t sample, const std::string& id, const std::string& reason, const std::string& text) {
  append("sample-failed", {{"sample", sample}, {"id", id}, {"reason", reason}, {"text", text}});
}
void Ledger::samples_failed(std::span<const FailedSample> samples) {
  if (samples.empty()) return;
  // Lines of one append: a power cut in it leaves the first of them whole and tears one, like the last line of any append.
  std::string lines;
  for (const auto& f : samples) {
    if (!lines.empty()) lines += '\n';
    lines += text_of(stamped("sample-failed", {{"sample", f.sample}, {"id", f.id}, {"reason", f.reason}, {"text", f.text}}));
  }
  base::append_line(path_, lines);
}
void Ledger::todo(const std::string& content, const std::string& priority, const std::string& status, const Json& details) {
  append("todo", {{"content", content}, {"priority", priority}, {"status", status}, {"details", details}});
}
void Ledger::submitted(const Json& details) { append("submit", {{"details", details}}); }
void Ledger::checkpoint_published(std::int64_t step, const std::string& path, const std::string& manifest_hash,
                                  const Json& details) {
  Json line{{"step", step}, {"path", path}, {"manifest_hash", manifest_hash}};
  if (!details.empty()) line["details"] = details;
  append("checkpoint", std::move(line));
}

std::vector<Json> Ledger::read() const { return base::read_json_lines(path_); }

}  // namespace aerie::report
