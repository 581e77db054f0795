// SPDX-License-Identifier: Apache-2.0
#include "job_script.hpp"

#include <aerie/base/error.hpp>
#include <aerie/base/log.hpp>

#include <algorithm>
#include <cmath>
#include <sstream>

#include <fmt/format.h>

#include "shell_word.hpp"

namespace aerie::apps {
namespace {
constexpr std::string_view directive = "#SBATCH ";

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string w; in >> w;) words.push_back(w);
  return words;
}
/// As sbatch reads a header: in double quotes, with backslashes.
std::string header_word(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}
std::string with_gres(const std::string& line, const std::string& gres) {
  if (gres.empty()) return line;
  std::string out = "#SBATCH";
  for (const auto& w : words_of(line.substr(directive.size())))
    if (!w.starts_with("--gres=")) out += " " + w;
  return out + (gres == "none" || line.find("--gres=") == std::string::npos ? "" : " --gres=" + gres);
}
double number(const std::string& text, const std::string& whole) {
  std::size_t used = 0;
  double value = -1;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != text.size() || value < 0)
    throw base::ConfigError(fmt::format("'{}' is no time limit", whole), "Slurm takes minutes, h:m:s or d-h:m:s");
  return value;
}
}  // namespace

std::string render_job_script(const std::string& text, const JobScriptRequest& r) {
  std::istringstream in(text);
  std::string out, line, body;
  bool header = true;
  while (std::getline(in, line)) {
    header = header && line.starts_with("#!") | line.starts_with(directive);
    (header ? out : body) += (header && line.starts_with(directive) ? with_gres(line, r.gres) : line) + "\n";
  }
  for (const auto& o : r.options)
    if (!words_of(o).empty()) out += fmt::format("{}{}\n", directive, o);
  if (r.array > 0) out += fmt::format("{}--array=0-{} --nodes=1\n", directive, r.array - 1);
  const auto log = r.run / "logs" / fmt::format("aerie-{}-{}.out", r.name, r.array > 0 ? "%A_%a" : "%j");
  out += fmt::format("{}--output={}\n", directive, header_word(log.string()));
  const auto times = job_times(out);
  out += fmt::format("# Written by `aerie submit`, which writes it anew.\nexport RUN={} AERIE_JOBS={} AERIE_SITE={}\n",
                     shell_word(r.run.string()), shell_word(r.jobs.string()), shell_word((r.jobs / "site.env").string()));
  out += fmt::format("export AERIE_BIN={} AERIE_SCRIPT={} AERIE_WARNING={:.0f}\n", shell_word(r.bin.string()),
                     shell_word((r.jobs / (r.name + ".sbatch")).string()), times.warning);
  return out + body;
}

std::optional<double> parse_slurm_time(const std::string& text) {
  if (text == "UNLIMITED" || text == "INFINITE" || text == "0") return std::nullopt;
  const auto dash = text.find('-');
  const double days = dash == std::string::npos ? 0 : number(text.substr(0, dash), text);
  std::vector<double> parts;
  std::istringstream in(dash == std::string::npos ? text : text.substr(dash + 1));
  for (std::string p; std::getline(in, p, ':');) parts.push_back(number(p, text));
  if (parts.empty() || parts.size() > 3) number("", text);
  if (dash != std::string::npos) {  // h, h:m, h:m:s
    parts.resize(3, 0);
    return days * 86400 + parts[0] * 3600 + parts[1] * 60 + parts[2];
  }
  if (parts.size() == 1) return parts[0] * 60;
  if (parts.size() == 2) return parts[0] * 60 + parts[1];
  return parts[0] * 3600 + parts[1] * 60 + parts[2];
}

JobTimes job_times(const std::string& script) {
  JobTimes times;
  std::istringstream in(script);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(directive)) continue;
    const auto words = words_of(line.substr(directive.size()));
    for (std::size_t i = 0; i < words.size(); ++i) {
      const auto value = [&](std::string_view name, std::string_view short_name) -> std::optional<std::string> {
        const auto& w = words[i];
        if (w.starts_with(name) && w.size() > name.size() && w[name.size()] == '=') return w.substr(name.size() + 1);
        const bool next = i + 1 < words.size();
        if (w == name || (!short_name.empty() && w == short_name)) return next ? words[i + 1] : std::string();
        if (!short_name.empty() && w.starts_with(short_name) && !w.starts_with("--")) return w.substr(short_name.size());
        return std::nullopt;
      };
      if (const auto t = value("--time", "-t")) times.limit = parse_slurm_time(*t);
      if (const auto s = value("--signal", "")) {
        const auto at = s->find('@');
        times.warning = at == std::string::npos ? 60 : number(s->substr(at + 1), *s);  // sbatch's own default
      }
    }
  }
  return times;
}

void check_job_times(const std::string& name, const JobTimes& times) {
  constexpr double early = 30, work = 10;
  if (!times.limit || *times.limit >= times.warning + early + work) return;
  throw base::ConfigError(
      fmt::format(
          "{}: a time limit of {} with a warning {} before it: the job would be warned when it starts, and requeue for ever",
          name, base::format_duration(*times.limit), base::format_duration(times.warning)),
      fmt::format("ask for a limit of {} or more, or a shorter --signal", base::format_duration(times.warning + early + work)));
}

}  // namespace aerie::apps
