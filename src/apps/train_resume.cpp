// SPDX-License-Identifier: Apache-2.0
#include "train_resume.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include <aerie/base/log.hpp>
#include <aerie/comm/agree.hpp>
#include <aerie/report/train_history.hpp>
#include <aerie/train/lead_time.hpp>

namespace aerie::apps {
namespace {

const std::set<std::string>& changeable() {
  static const std::set<std::string> fields{
      "train.lr",    "train.min_lr", "train.warmup", "train.weight_decay", "train.clip",     "train.betas",       "train.eps",
      "train.steps", "train.epochs", "total_steps",  "train.step_weights", "train.bad_step", "train.spike_factor"};
  return fields;
}

/// Rank 0's choice: a path, or nothing to start afresh.
std::string choose(const ProgramContext& context, const TrainFlags& flags) {
  const auto& root = context.config.checkpoint_dir();
  ckpt::remove_leftovers(root);
  const auto bad = ckpt::list_set_aside(root);
  if (flags.fresh) {
    if (!ckpt::list_steps(root).empty())
      throw base::RefusedError(fmt::format("--fresh, but {} holds checkpoints", root.string()),
                               "move them away, or leave --fresh out to go on");
    context.ledger.decision("fresh-start", {{"set_aside", bad}});
    return {};
  }
  const auto history = report::train_history(context.ledger.read());
  const auto log = [](const std::string& line) { base::log_warning(line); };
  if (const auto found = ckpt::latest(root, true, log, history.avoid)) {
    const auto newest = ckpt::list_steps(root).back();
    if (found->step < newest) {
      base::log_warning(fmt::format("two attempts got nowhere from step {}: going on from {}, {} steps before it", newest,
                                    found->path.string(), newest - found->step));
      context.status.update({{"fallback_from", newest}, {"fallback_to", found->step}}, true);
      context.ledger.evidence("fallback", {{"passed_over", newest}, {"loaded", found->step}});
    } else if (history.avoid.contains(found->step)) {
      base::log_warning(fmt::format("two attempts got nowhere from step {}, but no other checkpoint is there", found->step));
    }
    return found->path.string();
  }
  // A fresh start that was decided on holds until something was published; a checkpoint set aside since then is news.
  const bool decided = history.fresh_start && !history.published && ckpt::list_set_aside(root) == history.set_aside;
  if (!decided && (ckpt::ever_had_checkpoint(root) || history.ever_published))
    throw base::RefusedError(fmt::format("{}: this run has had checkpoints, but none verifies now", root.string()),
                             "restore one from a backup; --fresh starts over once no step-* directory is left");
  return {};
}

/// Keys of the configuration that differ from the checkpoint's and change no result: for the record.
void record_harmless_changes(const ProgramContext& context, const ckpt::Checkpoint& checkpoint) {
  const auto before = checkpoint.manifest.value("settings", base::Json{});
  if (!before.is_object()) return;
  const auto result = config::result_keys(context.config);
  base::Json changed = base::Json::object();
  const auto now = config::to_json(context.config);
  for (const auto& [section, keys] : now.items())
    for (const auto& [key, value] : keys.items()) {
      const auto name = section + "." + key;
      const auto old = before.value(section, base::Json::object()).value(key, base::Json{});
      if (!result.contains(name) && old != value) changed[name] = {{"was", old}, {"is", value}};
    }
  if (changed.empty()) return;
  context.ledger.evidence("configuration-changed", {{"since_step", checkpoint.step}, {"keys", changed}});
  std::vector<std::string> names;
  for (const auto& [name, unused] : changed.items()) names.push_back(name);
  base::log_info(fmt::format("changed since the checkpoint, without effect on the result: {}", fmt::join(names, ", ")));
}

}  // namespace

void guard_progress(const ProgramContext& context, const TrainFlags& flags) {
  comm::agree_after(context.world, "no-progress guard", [&] {  // collective over world
    if (!context.world.is_root()) return;
    if (flags.reset_attempts) context.ledger.decision("reset-attempts", {{"program", "aerie-train"}});
    const auto n = report::attempts_without_progress(context.ledger.read(), "aerie-train");
    if (n >= 3)
      throw base::NoProgressError(fmt::format("{} attempts of train in a row made no progress", n),
                                  "repair the cause (aerie status), then start with --reset-attempts");
  });
}

std::set<std::string> allowed_changes(const TrainFlags& flags) {
  std::set<std::string> out;
  for (const auto& field : flags.allow_change) {
    if (!changeable().contains(field))
      throw base::ConfigError(fmt::format("--allow-change={}: a run cannot change it", field),
                              fmt::format("these may change: {}", fmt::join(changeable(), ", ")));
    out.insert(field);
    if (field == "train.steps" || field == "train.epochs") out.insert("total_steps");
  }
  return out;
}

std::optional<ckpt::Checkpoint> load_newest(const ProgramContext& context, const TrainFlags& flags, train::Trainer& trainer) {
  const auto& world = context.world;
  const auto allowed = allowed_changes(flags);
  for (;;) {
    std::string chosen, hash;
    comm::agree_after(world, "choose a checkpoint", [&] {  // collective over world
      if (!world.is_root()) return;
      chosen = choose(context, flags);
      if (!chosen.empty()) hash = ckpt::open(chosen).manifest_hash;
    });
    chosen = world.broadcast(chosen);
    hash = world.broadcast(hash);
    if (chosen.empty()) return std::nullopt;
    std::optional<ckpt::Checkpoint> checkpoint;
    comm::agree_after(world, "open the checkpoint", [&] {  // collective over world
      checkpoint = ckpt::open(chosen);
      if (checkpoint->manifest_hash != hash)
        throw base::IoError(
            fmt::format("{} is not what rank 0 sees: manifest {}, there {}", chosen, checkpoint->manifest_hash, hash),
            "the run directory must be shared, and its file system's caches consistent");
    });
    checkpoint->before_chunk = [&] { context.stop.throw_if_stopped(); };
    context.end_details["loaded_step"] = checkpoint->step;
    context.end_details["loading"] = true;
    std::vector<std::string> changes;
    // resume() agrees on its outcome: every rank sees the same error here.
    const auto error = base::capture([&] { changes = trainer.resume(*checkpoint, allowed); });
    if (!error) {
      context.end_details.erase("loading");
      comm::agree_after(world, "record changes", [&] {  // collective over world
        if (!world.is_root()) return;
        for (const auto& line : changes) base::log_warning("allowed to change: " + line);
        if (!changes.empty()) context.ledger.decision("allow-change", {{"since_step", checkpoint->step}, {"changes", changes}});
        record_harmless_changes(context, *checkpoint);
      });
      return checkpoint;
    }
    if (error->code() != base::ExitCode::data) throw base::Error(*error);
    comm::agree_after(world, "set a damaged checkpoint aside", [&] {  // collective over world
      if (!world.is_root()) return;
      const auto bad = ckpt::set_aside(checkpoint->path);
      base::log_warning(
          fmt::format("{}; renamed to {}, going on from the checkpoint before it", error->what(), bad.filename().string()));
      context.status.update({{"fallback_from", checkpoint->step}}, true);
    });
  }
}

double lead_seconds(const config::Config& config) {
  if (config.slurm.lead_seconds > 0) return config.slurm.lead_seconds;
  const char* text = std::getenv("AERIE_LEAD_SECONDS");
  if (!text || !*text) return 0;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (end == text || *end != '\0' || !std::isfinite(value) || value < 0) {
    base::log_warning(fmt::format("AERIE_LEAD_SECONDS=\"{}\" is no number of seconds; the lead time counts as not known", text));
    return 0;
  }
  return value;
}

void check_lead_time(const ProgramContext& context, double lead_s, bool strict) {
  comm::agree_after(context.world, "lead time", [&] {  // collective over world
    if (!context.world.is_root()) return;
    if (lead_s <= 0) {
      base::log_info("lead time between a warning and the end: not known (AERIE_LEAD_SECONDS, slurm.lead_seconds)");
      return;
    }
    const auto history = report::train_history(context.ledger.read());
    if (history.save_s <= 0) {
      base::log_info(fmt::format("lead time {:.0f} s; compared with the first save once it is measured", lead_s));
      return;
    }
    const auto problem = train::lead_time_problem(lead_s, history.save_s, history.step_s);
    if (problem.empty()) {
      base::log_info(fmt::format("lead time {:.0f} s; a stop needs up to {:.1f} s as last measured", lead_s,
                                 2 * history.save_s + history.step_s));
      return;
    }
    if (strict) throw base::RefusedError(problem, train::lead_time_hint);
    base::log_warning(problem + " (" + train::lead_time_hint + ")");
  });
}

void demand_space(const std::filesystem::path& root, double bytes) {
  std::error_code error;
  std::filesystem::create_directories(root, error);
  const auto space = std::filesystem::space(root, error);
  if (error) return;  // a file system that does not tell
  if (static_cast<double>(space.available) < 2 * bytes)
    throw base::IoError(fmt::format("{} has {} left, two checkpoints need {}", root.string(),
                                    base::format_bytes(static_cast<double>(space.available)), base::format_bytes(2 * bytes)),
                        "make room, or put the run elsewhere");
}

}  // namespace aerie::apps
