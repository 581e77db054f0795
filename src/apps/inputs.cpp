// SPDX-License-Identifier: Apache-2.0
#include "inputs.hpp"

#include <aerie/base/error.hpp>

#include <fmt/format.h>

namespace aerie::apps {
namespace {
void demand(const char* key, const std::filesystem::path& path) {
  if (!path.empty() && !std::filesystem::exists(path))
    throw base::MissingInputError(fmt::format("{} = {}: no such file or directory", key, path.string()), "check the path");
}
}  // namespace

void check_paths(const config::Config& c) {
  if (c.target.path.empty()) throw base::ConfigError("target.path is not set", "name the target model's directory");
  demand("target.path", c.target.path);
  demand("target.path", c.target.path / "config.json");
  demand("dataset.conversations", c.dataset.conversations);
  demand("dataset.path", c.dataset.path);
  demand("dataset.chat_template", c.dataset.chat_template);
  demand("draft.init_from", c.draft.init_from);
  demand("eval.conversations", c.eval.conversations);
  demand("eval.path", c.eval.path);
  demand("slurm.site", c.slurm.site);
}

}  // namespace aerie::apps
