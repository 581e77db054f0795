// SPDX-License-Identifier: Apache-2.0
#include "drafter_checkpoint.hpp"

#include <cstring>
#include <optional>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <aerie/base/error.hpp>
#include <aerie/base/log.hpp>
#include <aerie/draft/drafter.hpp>
#include <aerie/interchange/vocab_map.hpp>

namespace aerie::apps {

namespace {
void check_identity(const ckpt::Checkpoint& checkpoint, const config::Config& config) {
  auto expected = config::result_keys(config);
  expected["vocab_hash"] = interchange::vocab_hash(interchange::read_vocab_map(config.run_dir / "vocab.safetensors"));
  const auto& found = checkpoint.manifest.at("identity");
  std::string differences;
  for (const auto& [key, value] : expected.items())
    if (!found.contains(key) || found[key] != value)
      differences +=
          fmt::format("\n  {}: checkpoint {}, now {}", key, found.contains(key) ? found[key].dump() : "nothing", value.dump());
  if (!differences.empty())
    throw base::RefusedError(fmt::format("{} was trained with another configuration:{}", checkpoint.path.string(), differences),
                             "restore these values, or train again in a new run directory");
}
}  // namespace

ckpt::Checkpoint find_checkpoint(const config::Config& config, const std::string& wish) {
  std::optional<ckpt::Checkpoint> found;
  if (wish.empty())
    found = ckpt::latest(config.checkpoint_dir(), false, [](const std::string& line) { base::log_warning(line); });
  else
    found = ckpt::open(wish);
  if (!found) throw base::MissingInputError(fmt::format("{}: no checkpoint", config.checkpoint_dir().string()), "train first");
  check_identity(*found, config);
  return *found;
}

at::Tensor masters_of(const ckpt::Checkpoint& checkpoint, const interchange::DrafterShape& shape) {
  const auto bytes = ckpt::read_vector(checkpoint, "masters");
  const auto expected = draft::parameter_count(shape);
  if (static_cast<std::int64_t>(bytes.size()) != expected * static_cast<std::int64_t>(sizeof(float)))
    throw base::DataError(fmt::format("{}: holds {} parameters, the configured drafter has {}", checkpoint.path.string(),
                                      bytes.size() / sizeof(float), expected));
  auto t = at::empty({expected}, at::kFloat);
  std::memcpy(t.mutable_data_ptr(), bytes.data(), bytes.size());
  return t;
}

}  // namespace aerie::apps
