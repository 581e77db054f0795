// SPDX-License-Identifier: Apache-2.0
// Derived paths, JSON form and hashes of a Config.
#include <aerie/config/config.hpp>

#include <aerie/base/hash.hpp>

#include <algorithm>

#include "keys.hpp"

namespace aerie::config {

std::filesystem::path Config::dataset_file() const {
  return dataset.path.empty() ? run_dir / "dataset" / "train.h5" : dataset.path;
}
std::filesystem::path Config::eval_file() const { return eval.path.empty() ? run_dir / "dataset" / "eval.h5" : eval.path; }
double Config::holdout() const { return eval.conversations.empty() && eval.path.empty() ? eval.holdout : 0.0; }

base::Json to_json(const Config& config) {
  Config copy = config;
  base::Json out = base::Json::object();
  for (const auto& key : keys(copy)) {
    const auto dot = key.name.find('.');
    out[key.name.substr(0, dot)][key.name.substr(dot + 1)] = json_value(key.value);
  }
  return out;
}

std::string config_hash(const Config& config) { return base::xxh3_128_tagged(base::canonical(to_json(config))); }

base::Json result_keys(const Config& config) {
  Config copy = config;
  copy.eval.holdout = config.holdout();  // without effect when there is an evaluation file
  base::Json out = base::Json::object();
  for (const auto& key : keys(copy))
    if (key.alters_result) out[key.name] = json_value(key.value);
  return out;
}

std::string sections_hash(const Config& config, const std::vector<std::string>& names) {
  const auto all = to_json(config);
  base::Json some = base::Json::object();
  for (const auto& n : names) some[n] = all.at(n);
  return base::xxh3_128_tagged(base::canonical(some));
}

}  // namespace aerie::config
