// SPDX-License-Identifier: Apache-2.0
// A trained drafter out of a checkpoint: which one, and its weights as one flat tensor.
#pragma once
#include <string>

#include <ATen/core/Tensor.h>

#include <aerie/ckpt/checkpoint.hpp>
#include <aerie/config/config.hpp>
#include <aerie/interchange/drafter_layout.hpp>

namespace aerie::apps {

/// `wish`, or the newest checkpoint of the run that verifies. Throws MissingInputError when there is none, RefusedError naming
/// the keys in which the configuration differs from the one it was trained with (another layer set or RoPE would make another
/// network of the same weights).
ckpt::Checkpoint find_checkpoint(const config::Config& config, const std::string& wish);
/// The fp32 masters, [parameter_count], on the CPU. Throws DataError when they are not of `shape`.
at::Tensor masters_of(const ckpt::Checkpoint& checkpoint, const interchange::DrafterShape& shape);

}  // namespace aerie::apps
