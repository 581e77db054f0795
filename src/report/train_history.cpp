// SPDX-License-Identifier: Apache-2.0
#include <aerie/report/train_history.hpp>

#include <aerie/base/error.hpp>

#include <map>

namespace aerie::report {
namespace {
using base::Json;

/// How attempts from one checkpoint ended.
struct Trials {
  int while_loading = 0;
  std::map<int, int> by_code;  // 65 and 70, before the first new step
};
bool counts(int code) {
  // Done, stopped, a peer or the launcher's kill say nothing about the checkpoint; nor do usage, refusal and the guard.
  static const std::set<int> neutral{0, 2, 75, 76, 78, 93, 137, 143};
  return !neutral.contains(code);
}
}  // namespace

TrainHistory train_history(const std::vector<Json>& lines, const std::string& program) {
  TrainHistory out;
  std::map<std::int64_t, Trials> trials;
  try {
    for (const auto& line : lines) {
      const auto kind = line.at("kind").get<std::string>();
      const Json details = line.value("details", Json{});
      if (kind == "decision") {
        const auto what = line.value("what", "");
        const bool ours = !details.is_object() || details.value("program", program) == program;
        if ((what == "reset-attempts" && ours) || what == "fresh-start") trials.clear();
        if (what != "fresh-start") continue;
        out.fresh_start = true;
        out.published = false;
        out.set_aside.clear();
        if (details.is_object()) out.set_aside = details.value("set_aside", out.set_aside);
      } else if (kind == "checkpoint" && line.value("program", program) == program) {
        out.published = out.ever_published = true;
        if (!details.is_object()) continue;
        out.save_s = details.value("save_s", out.save_s);
        out.step_s = details.value("step_s", out.step_s);
      } else if (kind == "attempt" && line.at("event") == "end" && line.at("program") == program && details.is_object() &&
                 details.contains("loaded_step")) {
        const auto loaded = details.at("loaded_step").get<std::int64_t>();
        const auto code = line.at("exit_code").get<int>();
        if (details.value("steps", std::int64_t{0}) > 0) {
          trials.erase(loaded);
        } else if (counts(code)) {
          auto& t = trials[loaded];
          if (details.value("loading", false)) ++t.while_loading;
          if (code == 65 || code == 70) ++t.by_code[code];
        }
      }
    }
  } catch (const Json::exception& e) {
    throw base::DataError(std::string("ledger: ") + e.what(), "the ledger was edited or damaged");
  }
  for (const auto& [step, t] : trials) {
    bool twice = t.while_loading >= 2;
    for (const auto& [code, n] : t.by_code) twice = twice || n >= 2;
    if (twice) out.avoid.insert(step);
  }
  return out;
}

}  // namespace aerie::report
