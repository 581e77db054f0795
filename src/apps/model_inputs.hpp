// SPDX-License-Identifier: Apache-2.0
// What several programs derive from configuration, target, dataset and store in the same way: the drafter's shape, the captured
// layers, the samples that training uses, and the identity that ties a store to its target.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <aerie/config/config.hpp>
#include <aerie/dataset/dataset.hpp>
#include <aerie/interchange/drafter_layout.hpp>
#include <aerie/interchange/model_dir.hpp>
#include <aerie/interchange/target_config.hpp>
#include <aerie/io/store.hpp>

namespace aerie::apps {

/// [extract] layers, or EAGLE-3's default. Throws ConfigError for an id outside 0..N.
std::array<std::int32_t, 3> aux_layers(const config::Config& config, const interchange::TargetConfig& target);

/// The [draft] section over the target's own shape. Throws ConfigError: heads not a multiple of kv_heads, a hidden size that
/// differs from the target's (the drafter reads the target's embedding).
interchange::DrafterShape drafter_shape(const config::Config& config, const interchange::TargetConfig& target);

/// Everything that ties a store to target, tokenizer, dataset and layers, except target_weights_hash, producer and the compute
/// settings.
io::StoreIdentity store_identity(const config::Config& config, const interchange::ModelDirectory& dir,
                                 const interchange::TargetConfig& target, const dataset::Dataset& data);

/// Throws RefusedError naming the fields in which `store` does not belong to this run (docs/reference/store.md, section on
/// identity).
void check_store(const io::Store& store, const io::StoreIdentity& expected);

/// Throws DataError when the dataset was prepared with another tokenizer or chat template than the target's.
void check_tokenizer(const dataset::Dataset& data, const interchange::ModelDirectory& dir, const config::Config& config);

/// Done in the store and not held out for evaluation, ascending.
std::vector<std::int64_t> training_samples(const config::Config& config, const dataset::Dataset& data, const io::Store& store);
/// Hash of the list.
std::string samples_hash(const std::vector<std::int64_t>& samples);

}  // namespace aerie::apps
