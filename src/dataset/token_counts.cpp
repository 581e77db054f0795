// SPDX-License-Identifier: Apache-2.0
// Frequencies of loss tokens, and which samples are held out.
#include <aerie/dataset/token_counts.hpp>

#include <aerie/base/error.hpp>
#include <aerie/base/hash.hpp>

#include <fmt/format.h>

namespace aerie::dataset {

std::vector<std::int64_t> count_loss_tokens(const Dataset& data, std::span<const std::int64_t> samples, std::int64_t vocab_size,
                                            const std::function<void()>& poll) {
  base::expect(vocab_size > 0, "vocab_size is positive");
  std::vector<std::int64_t> counts(static_cast<std::size_t>(vocab_size), 0);
  Tokens tokens;
  for (const auto s : samples) {
    if (poll) poll();
    data.read(s, tokens);
    for (std::size_t t = 0; t < tokens.ids.size(); ++t) {
      const auto id = tokens.ids[t];
      // Tokens without loss are checked too: the target's embedding has no row for them either.
      if (id < 0 || id >= vocab_size)
        throw base::DataError(fmt::format("{}: sample {} ('{}'): token {} is {}, outside the vocabulary of {}",
                                          data.path().string(), s, data.id(s), t, id, vocab_size),
                              "the dataset was prepared for another tokenizer or target");
      counts[static_cast<std::size_t>(id)] += tokens.mask[t] != 0;
    }
  }
  return counts;
}

bool is_held_out(std::string_view sample_id, double holdout) {
  const auto hash = base::xxh3_64(std::as_bytes(std::span(sample_id)));
  // The upper 53 bits: exact in a double and always below 1, so that a share of 1 holds out everything.
  return static_cast<double>(hash >> 11) * 0x1p-53 < holdout;
}

}  // namespace aerie::dataset
