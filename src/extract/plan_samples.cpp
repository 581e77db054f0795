// SPDX-License-Identifier: Apache-2.0
#include <aerie/extract/extract.hpp>

#include <algorithm>

#include <fmt/format.h>

namespace aerie::extract {

std::vector<io::PlannedSample> plan_samples(const dataset::Dataset& data, std::int64_t vocab_size, std::int64_t max_length,
                                            const std::function<void()>& poll) {
  std::vector<io::PlannedSample> plan(static_cast<std::size_t>(data.size()));
  dataset::Tokens tokens;
  for (std::int64_t i = 0; i < data.size(); ++i) {
    if (poll && i % 1024 == 0) poll();
    auto& sample = plan[static_cast<std::size_t>(i)];
    sample.reject = data.reject(i);
    if (sample.reject != io::FailReason::none) continue;
    if (max_length > 0 && data.length(i) > max_length)
      throw base::ConfigError(
          fmt::format("{}: sample {} ({}) has {} tokens, but dataset.max_length is {}", data.path().string(), i, data.id(i),
                      data.length(i), max_length),
          "prepare the dataset again with this max_length, or set dataset.max_length to what it was prepared with");
    data.read(i, tokens);
    const bool ok =
        std::all_of(tokens.ids.begin(), tokens.ids.end(), [&](std::int32_t id) { return id >= 0 && id < vocab_size; });
    if (!ok)
      sample.reject = io::FailReason::bad_token;
    else
      sample.n_tokens = data.length(i);
  }
  return plan;
}

}  // namespace aerie::extract
