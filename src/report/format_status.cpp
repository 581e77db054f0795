// SPDX-License-Identifier: Apache-2.0
// The status for people: short lines, the most useful last, since a terminal shows the end.
#include <aerie/base/host.hpp>
#include <aerie/base/log.hpp>
#include <aerie/report/status.hpp>

#include <algorithm>

#include <fmt/format.h>

#include "one_line.hpp"

namespace aerie::report {
namespace {
using base::Json;

std::string text(const Json& object, const char* key) { return text_of(object, key); }
double number(const Json& object, const char* key, double otherwise = 0) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? it->get<double>() : otherwise;
}
std::string ago(const Json& age) {
  return age.is_number() ? base::format_duration(age.get<double>()) + " ago" : "at an unknown time";
}

void add_phases(std::string& out, const Json& status) {
  out += "phases\n";
  for (const auto& p : status.at("phases")) {
    const auto outdated = text(p, "outdated");
    const auto state = text(p, "state") + (outdated.empty() ? "" : fmt::format(", outdated: {};", outdated));
    out += fmt::format("  {:<10} {:<12}", text(p, "phase"), state);
    if (!p.at("evidence").is_null()) out += "  " + one_line(p.at("evidence"));
    out += "\n";
  }
}

void add_samples(std::string& out, const Json& samples) {
  if (samples.is_null()) return;
  out += fmt::format("samples    {} of {} done, {} failed, {} missing", samples.at("done").dump(), samples.at("total").dump(),
                     samples.at("failed").dump(), samples.at("missing").dump());
  if (samples.at("excluded") != 0) out += fmt::format(", {} excluded by rule", samples.at("excluded").dump());
  out += "\n";
  constexpr std::size_t shown = 20;
  const auto& failed = samples.at("failed_samples");
  for (std::size_t i = 0; i < std::min(shown, failed.size()); ++i)
    out += fmt::format("  failed   {} (sample {}): {}{}{}\n", text(failed[i], "id"), failed[i].at("sample").dump(),
                       text(failed[i], "reason"), text(failed[i], "text").empty() ? "" : ": " + text(failed[i], "text"),
                       failed[i].at("decided").get<bool>() ? "  [accepted as missing]" : "");
  if (failed.size() > shown)
    out += fmt::format("  failed   and {} more: `aerie status --json` lists all\n", failed.size() - shown);
}

void add_running(std::string& out, const Json& running) {
  if (running.is_null()) return;
  out += fmt::format("progress   {}", text(running, "phase"));
  if (running.at("done").is_number()) out += fmt::format(" {}", running.at("done").dump());
  if (running.at("total").is_number()) out += fmt::format("/{}", running.at("total").dump());
  if (!text(running, "unit").empty()) out += " " + text(running, "unit");
  if (running.at("loss").is_number()) out += fmt::format(", loss {:.4g}", number(running, "loss"));
  if (running.at("rate").is_number()) out += fmt::format(", {}/s", base::format_count(number(running, "rate")));
  if (running.at("eta_s").is_number()) out += fmt::format(", {} left", base::format_duration(number(running, "eta_s")));
  out += fmt::format(" (as of {})\n", ago(running.at("age_s")));
}

void add_attempts(std::string& out, const Json& attempts) {
  if (attempts.empty()) return;
  out += "attempts\n";
  constexpr std::size_t shown = 10;
  if (attempts.size() > shown)
    out += fmt::format("  {} earlier ones: `aerie status --json` lists all\n", attempts.size() - shown);
  for (std::size_t i = attempts.size() > shown ? attempts.size() - shown : 0; i < attempts.size(); ++i) {
    const auto& a = attempts[i];
    out += fmt::format("  {:>3} {:<14} {} {}", a.at("number").dump(), text(a, "program"), text(a, "begin"), text(a, "host"));
    if (!text(a, "job").empty()) out += " job " + text(a, "job");
    out += text(a, "outcome") == "ended" ? fmt::format("  exit {}", a.at("exit_code").dump()) : "  " + text(a, "outcome");
    out += ": " + text(a, "explanation");
    if (!text(a, "reason").empty()) out += " (" + text(a, "reason") + ")";
    out += "\n";
  }
}
void add_stall(std::string& out, const Json& status) {
  const auto& stall = status.at("stall");
  if (stall.is_null()) return;
  const auto median = stall.at("median_interval_s");
  out += fmt::format("STALLED    {}: nothing was committed for {}, since {}; {}\n", text(stall, "phase"),
                     base::format_duration(number(stall, "silent_s")), text(stall, "since"),
                     median.is_number() ? fmt::format("usual is every {}", base::format_duration(median.get<double>()))
                                        : "what is usual is not known yet");
  for (const auto& p : stall.at("processes")) {
    out += fmt::format("  rank {:<4} {} pid {}", p.at("rank").dump(), text(p, "host"), p.at("pid").dump());
    if (p.at("state").is_null())
      out += text(p, "host") == base::host_name() ? ": cannot be seen from here (another container?)" : ": on another host";
    else
      out += ": " + (text(p, "waits_for").empty() ? text(p, "state") : text(p, "waits_for"));
    out += "\n";
  }
  if (!text(stall, "look").empty()) out += fmt::format("  look there with `{}`\n", text(stall, "look"));
}

void add_jobs(std::string& out, const Json& jobs) {
  std::string line;
  for (const auto& j : jobs)
    if (text(j, "state") != "ENDED")
      line += fmt::format("{}{} {} {}{}", line.empty() ? "" : ", ", text(j, "phase"), text(j, "job"),
                          j.at("state").is_null() ? "?" : text(j, "state"),
                          j.at("holder").is_null() ? "" : fmt::format(" ({})", text(j, "holder")));
  if (!line.empty()) out += fmt::format("jobs       {}\n", line);
}
}  // namespace

std::string format_status(const Json& status) {
  std::string out = fmt::format("run        {}\n", text(status, "run"));
  add_phases(out, status);
  add_samples(out, status.at("samples"));
  add_running(out, status.at("running"));
  if (const auto& c = status.at("checkpoint"); !c.is_null())
    out += fmt::format("checkpoint step {}, {}{}\n", c.at("step").dump(), ago(c.at("age_s")),
                       text(c, "path").empty() ? "" : ", " + text(c, "path"));
  add_attempts(out, status.at("attempts"));
  add_jobs(out, status.at("jobs"));
  for (const auto& d : status.at("decisions"))
    out += fmt::format("decision   {} {}: {}\n", text(d, "time"), text(d, "what"), one_line(d.at("details")));
  for (const auto& t : status.at("todo"))
    if (text(t, "status") != "done")
      out += fmt::format("to do      [{}] {} ({})\n", text(t, "priority"), text(t, "content"), text(t, "status"));
  for (const auto& p : status.at("problems")) out += fmt::format("problem    {}\n", one_line(p));
  add_stall(out, status);
  const auto& next = status.at("next");
  out += text(next, "command").empty() ? fmt::format("next       nothing: {}\n", text(next, "why"))
                                       : fmt::format("next       {}\n           {}\n", text(next, "command"), text(next, "why"));
  return out;
}

}  // namespace aerie::report
