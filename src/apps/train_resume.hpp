// SPDX-License-Identifier: Apache-2.0
// Where a start of the trainer goes on: the guard, the choice of a checkpoint, and what may differ from it.
#pragma once
#include <optional>

#include <aerie/ckpt/checkpoint.hpp>
#include <aerie/train/trainer.hpp>

#include "run.hpp"
#include "train_phase.hpp"

namespace aerie::apps {

/// Exit code 93 after three attempts in a row without progress. Collective over world.
void guard_progress(const ProgramContext& context, const TrainFlags& flags);

/// The flags' fields as identity fields. Throws ConfigError for one that may not change.
std::set<std::string> allowed_changes(const TrainFlags& flags);

/// Resumes from the newest checkpoint whose every chunk is whole; one that is not is set aside and the one before it taken, and
/// one that two attempts failed with is passed over. Nothing when the run starts fresh. What changed since is recorded.
/// Collective over world.
std::optional<ckpt::Checkpoint> load_newest(const ProgramContext& context, const TrainFlags& flags, train::Trainer& trainer);

/// Warns, or with --strict refuses, when a stop as last measured does not fit into `lead_s`. Collective over world.
void check_lead_time(const ProgramContext& context, double lead_s, bool strict);
/// slurm.lead_seconds, else AERIE_LEAD_SECONDS, else 0: not known.
double lead_seconds(const config::Config& config);

/// Two checkpoints of `bytes` must fit. Throws IoError. Local.
void demand_space(const std::filesystem::path& root, double bytes);

}  // namespace aerie::apps
