// SPDX-License-Identifier: Apache-2.0
// Checks that need no other file: the table's ranges and enumerations, then what holds between keys.
#include <aerie/base/error.hpp>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "keys.hpp"
#include "nearest.hpp"

namespace aerie::config {
namespace {

[[noreturn]] void fail(const std::string& key, const std::string& what, std::string hint = {}) {
  throw base::ConfigError(fmt::format("{} {}", key, what), std::move(hint));
}

std::string range_text(const Rule& r) {
  if (std::isinf(r.max)) return fmt::format("{} {}", r.open_min ? "above" : "at least", r.min);
  return fmt::format("{}{} and at most {}", r.open_min ? "above " : "at least ", r.min, r.max);
}
void check_number(const Key& key, double v) {
  if (!std::isfinite(v)) fail(key.name, "must be a finite number");
  const auto& r = key.rule;
  if (v < r.min || (r.open_min && v <= r.min) || v > r.max)
    fail(key.name, fmt::format("is {}, but must be {}", v, range_text(r)));
}
void check_text(const Key& key, const std::string& v) {
  if (key.rule.choices.empty()) return;
  if (std::find(key.rule.choices.begin(), key.rule.choices.end(), v) == key.rule.choices.end())
    fail(key.name, fmt::format("is \"{}\", but must be one of {}", v, fmt::join(key.rule.choices, ", ")),
         fmt::format("did you mean \"{}\"?", nearest_of(v, key.rule.choices)));
}
struct Checker {
  const Key& key;
  void operator()(const bool*) const {}
  void operator()(const std::string* v) const { check_text(key, *v); }
  void operator()(const std::filesystem::path*) const {}
  void operator()(const std::vector<std::string>* v) const {
    for (const auto& e : *v) check_text(key, e);
  }
  template <class T>
  void operator()(const T* v) const {
    if constexpr (std::is_arithmetic_v<T>)
      check_number(key, static_cast<double>(*v));
    else
      for (const auto e : *v) check_number(key, static_cast<double>(e));
  }
};

}  // namespace

void validate(const Config& config) {
  Config copy = config;
  for (const auto& key : keys(copy)) std::visit(Checker{key}, key.value);

  const auto& layers = config.extract.layers;
  if (!layers.empty() && (layers.size() != 3 || layers[0] >= layers[1] || layers[1] >= layers[2]))
    fail("extract.layers", fmt::format("is [{}], but must be three ascending layers, or empty", fmt::join(layers, ", ")));
  const auto& d = config.draft;
  if (d.heads > 0 && d.kv_heads > 0 && d.heads % d.kv_heads != 0)
    fail("draft.kv_heads", fmt::format("is {}, but must divide draft.heads = {}", d.kv_heads, d.heads));
  if (d.head_dim % 2 != 0) fail("draft.head_dim", fmt::format("is {}, but must be even", d.head_dim));
  const auto& t = config.train;
  if (!t.step_weights.empty()) {
    if (static_cast<std::int64_t>(t.step_weights.size()) != t.ttt_steps)
      fail("train.step_weights", fmt::format("has {} weights, but train.ttt_steps is {}", t.step_weights.size(), t.ttt_steps));
    if (std::all_of(t.step_weights.begin(), t.step_weights.end(), [](double w) { return w == 0; }))
      fail("train.step_weights", "are all 0");
  }
  for (const double beta : t.betas)
    if (beta >= 1) fail("train.betas", fmt::format("holds {}, but must be below 1", beta));
  if (t.min_lr > t.lr) fail("train.min_lr", fmt::format("is {}, above train.lr = {}", t.min_lr, t.lr));
  if (t.save_every_steps == 0 && t.save_every_seconds == 0)
    fail("train.save_every_steps", "and train.save_every_seconds are both 0: a death would lose everything");
  if (config.eval.chain.empty()) fail("eval.chain", "is empty", "for example [3, 7]");
  if (config.export_.formats.empty()) fail("export.formats", "is empty", "for example [\"sglang\", \"vllm\"]");
  // Keys of this format whose work is not done yet: refused, never ignored.
  if (!config.draft.init_from.empty()) fail("draft.init_from", "is set, but a warm start is not available yet", "leave it empty");
  if (config.eval.every_steps > 0 && config.holdout() == 0)
    fail("eval.every_steps", "is set, but no sample of the store is held out",
         "validation during training reads held-out samples: set eval.holdout and no evaluation file, or use 0");
  if (config.run.launcher.empty()) fail("run.launcher", "is empty", "for example \"mpirun\"");
}

}  // namespace aerie::config
