// SPDX-License-Identifier: Apache-2.0
// Rules from the most urgent down; the first that fits is the answer.
#include "next_step.hpp"

#include <aerie/base/exit_codes.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace aerie::report {
namespace {
using base::Json;

std::string state_of(const Json& status, std::string_view phase) {
  for (const auto& p : status.at("phases"))
    if (p.at("phase") == phase) return p.at("state").get<std::string>();
  return "pending";
}

/// A word for the shell: quoted unless it is plain.
std::string shell_word(const std::string& text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '/' || c == ',' || c == ':' || c == '+' || c == '@' ||
           c == '=';
  });
  if (plain) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

Json step(std::string command, std::string why) { return {{"command", std::move(command)}, {"why", std::move(why)}}; }

/// Failed samples that nobody decided about, named where they are few.
std::optional<Json> decide_about_failed(const std::string& run, const Json& status) {
  const Json& samples = status.at("samples");
  if (samples.is_null() || samples.at("missing").get<std::int64_t>() > 0 || state_of(status, "extract") == "complete")
    return std::nullopt;
  std::string ids;
  std::int64_t n = 0;
  bool nameable = true;  // an id with a comma cannot stand in a comma-separated list
  for (const auto& f : samples.at("failed_samples")) {
    if (f.at("decided").get<bool>()) continue;
    const auto id = f.at("id").get<std::string>();
    nameable = nameable && !id.empty() && id.find(',') == std::string::npos;
    ids += (n++ == 0 ? "" : ",") + id;
  }
  if (n == 0) return std::nullopt;
  const auto which = nameable && n <= 20 ? "--ids " + shell_word(ids) : std::string("--all-failed");
  return step(fmt::format("aerie accept-missing {} {} --reason TEXT", run, which),
              fmt::format("{} failed {} for a decision: accept, or mend the data and run again", n,
                          n == 1 ? "sample waits" : "samples wait"));
}
}  // namespace

Json next_step(const std::filesystem::path& run_path, const Json& status) {
  const std::string run = shell_word(run_path.string());
  const Json& attempts = status.at("attempts");
  for (auto it = attempts.rbegin(); it != attempts.rend(); ++it)
    if (it->at("outcome") == "running")
      return step(fmt::format("aerie status {} --watch", run),
                  fmt::format("{} is running", it->at("program").get<std::string>()));
  if (!status.at("problems").empty())
    return step(fmt::format("aerie verify {}", run),
                "the record has a problem: " + status.at("problems").front().get<std::string>());
  std::error_code ignored;
  if (std::filesystem::exists(run_path / "stop", ignored))
    return step(fmt::format("rm {} && aerie run {}", shell_word((run_path / "stop").string()), run),
                "the stop file holds the run");
  if (!attempts.empty() && attempts.back().at("exit_code") == static_cast<int>(base::ExitCode::no_progress))
    return step(fmt::format("aerie run {} --reset-attempts", run), "three attempts made no progress: repair the cause first");
  if (state_of(status, "verify") == "failed") return step(fmt::format("aerie recover {}", run), "verification found damage");
  if (auto decision = decide_about_failed(run, status)) return *decision;
  bool all = true;
  for (const auto phase : {"prepare", "extract", "train", "eval", "export"}) all = all && state_of(status, phase) == "complete";
  if (all) return step("", "all phases are complete");
  std::string why = "phases are left to do";
  if (!attempts.empty()) {
    const auto& last = attempts.back();
    const auto& code = last.at("exit_code");
    const auto row = code.is_number() ? base::explain_exit(code.get<int>()) : std::nullopt;
    if (last.at("outcome") == "died")
      why = fmt::format("{} died: look for the cause in the log", last.at("program").get<std::string>());
    else if (row && row->code != base::ExitCode::done)
      why = fmt::format("{} ended {}: {}", last.at("program").get<std::string>(), code.get<int>(), row->next);
  }
  return step(fmt::format("aerie run {}", run), why);
}

}  // namespace aerie::report
