// SPDX-License-Identifier: Apache-2.0
#include "drafter_checkpoint.hpp"

#include <cstring>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <aerie/base/error.hpp>
#include <aerie/base/log.hpp>
#include <aerie/draft/drafter.hpp>

namespace aerie::apps {

ckpt::Checkpoint find_checkpoint(const config::Config& config, const std::string& wish) {
  if (!wish.empty()) return ckpt::open(wish);
  const auto found = ckpt::latest(config.checkpoint_dir(), false, [](const std::string& line) { base::log_warning(line); });
  if (!found) throw base::MissingInputError(fmt::format("{}: no checkpoint", config.checkpoint_dir().string()), "train first");
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
