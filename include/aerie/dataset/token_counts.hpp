// SPDX-License-Identifier: Apache-2.0
// Frequencies of loss tokens, for the draft vocabulary.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include <aerie/dataset/dataset.hpp>

namespace aerie::dataset {

/// How often each id occurs with loss mask 1 in `samples`. Throws DataError naming the sample when an id is outside the
/// vocabulary. `poll` is called between samples (stop requests).
std::vector<std::int64_t> count_loss_tokens(const Dataset& data, std::span<const std::int64_t> samples, std::int64_t vocab_size,
                                            const std::function<void()>& poll = {});

/// Samples that a share `holdout` of is held out from training, chosen by a hash of the string id: independent of order and
/// count.
bool is_held_out(std::string_view sample_id, double holdout);

}  // namespace aerie::dataset
