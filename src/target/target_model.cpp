// SPDX-License-Identifier: Apache-2.0
// The forward pass as a whole: embedding, layers outermost over the residual stream of the batch, captures on the way.
#include <aerie/target/target_model.hpp>

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <aerie/base/error.hpp>

#include "batch_plan.hpp"
#include "layer_forward.hpp"
#include "layer_source.hpp"

namespace aerie::target {
namespace {

// Tokens of a layer's workspace: enough for any GEMM, small beside the residual stream of a large batch.
constexpr std::int64_t group_tokens = 32768;

void check_options(const TargetOptions& o, const interchange::TargetConfig& config) {
  if (o.gemm_rows <= 0 || o.gemm_rows % 32 != 0) {
    throw base::ConfigError(fmt::format("gemm_rows = {} is not a positive multiple of 32", o.gemm_rows), "256 is a good value");
  }
  if (o.dtype != at::kFloat && o.dtype != at::kBFloat16 && o.dtype != at::kHalf) {
    throw base::ConfigError("the compute dtype must be fp32, bf16 or fp16");
  }
  for (const auto l : o.aux_layers) {
    if (l < 0 || l > config.num_layers) {
      throw base::ConfigError(fmt::format("aux layer {} is outside 0..{}", l, config.num_layers),
                              "a layer index means the input of that layer; the number of layers means the last one's output");
    }
  }
}

void check_config(const interchange::TargetConfig& c, const std::filesystem::path& dir) {
  const auto refuse = [&](const std::string& what) {
    throw base::DataError(fmt::format("{}/config.json: {}", dir.string(), what));
  };
  if (c.hidden_act != "silu") refuse(fmt::format("hidden_act \"{}\" is not supported, only \"silu\"", c.hidden_act));
  if (c.num_heads <= 0 || c.num_kv_heads <= 0 || c.num_heads % c.num_kv_heads != 0) {
    refuse(fmt::format("{} attention heads cannot share {} key/value heads", c.num_heads, c.num_kv_heads));
  }
  if (c.head_dim <= 0 || c.head_dim % 2 != 0) refuse(fmt::format("head_dim {} is not even", c.head_dim));
}

/// As transformers computes them: the angle is one fp32 product. Its cosine is taken in double and rounded.
RopeAngles rope_angles(const interchange::RopeTable& table, std::int64_t positions, c10::Device device) {
  const auto half = static_cast<std::int64_t>(table.inverse_frequency.size());
  at::Tensor cos = at::empty({positions, half}, at::kFloat), sin = at::empty({positions, half}, at::kFloat);
  float* c = cos.mutable_data_ptr<float>();
  float* s = sin.mutable_data_ptr<float>();
  for (std::int64_t p = 0; p < positions; ++p) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<float>(p) * table.inverse_frequency[static_cast<std::size_t>(i)];
      c[p * half + i] = static_cast<float>(std::cos(angle)) * table.scale;
      s[p * half + i] = static_cast<float>(std::sin(angle)) * table.scale;
    }
  }
  return {cos.to(device), sin.to(device)};
}

}  // namespace

struct TargetModel::Impl {
  interchange::TargetConfig config;
  TargetOptions options;
  std::unique_ptr<LayerSource> source;

  /// Receives the residual entering layer l (l = N: the last layer's output), and after those the final state, l = N + 1.
  using Sink = std::function<void(std::int64_t l, const at::Tensor& rows)>;

  at::TensorOptions tensor_options() const { return at::TensorOptions().dtype(options.dtype).device(options.device); }
  BatchPlan plan(std::span<const std::span<const std::int32_t>> ids) const;
  at::Tensor embed(std::span<const std::span<const std::int32_t>> ids, const BatchPlan& plan) const;
  void run(std::span<const std::span<const std::int32_t>> ids, const BatchPlan& plan, const std::function<void()>& poll,
           const Sink& sink) const;
};

BatchPlan TargetModel::Impl::plan(std::span<const std::span<const std::int32_t>> ids) const {
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i].empty()) throw base::DataError(fmt::format("sample {} of the batch has no tokens", i));
    for (std::size_t t = 0; t < ids[i].size(); ++t) {
      if (ids[i][t] < 0 || ids[i][t] >= config.vocab_size) {
        throw base::DataError(fmt::format("sample {} of the batch: token {} is {}, but the target's vocabulary has {} entries", i,
                                          t, ids[i][t], config.vocab_size),
                              "the data was tokenised for another model");
      }
    }
    lengths.push_back(static_cast<std::int64_t>(ids[i].size()));
  }
  return plan_batch(lengths, options.gemm_rows, group_tokens);
}

at::Tensor TargetModel::Impl::embed(std::span<const std::span<const std::int32_t>> ids, const BatchPlan& plan) const {
  at::Tensor x = at::zeros({plan.rows, config.hidden_size}, tensor_options());
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    const RowGroup& group = plan.groups[g];
    const std::int64_t used =
        plan.samples[group.samples_end - 1].first + plan.samples[group.samples_end - 1].tokens - group.first;
    at::Tensor index = at::empty({used}, at::kLong);
    auto* to = index.mutable_data_ptr<std::int64_t>();
    for (std::size_t i = group.samples_begin; i < group.samples_end; ++i) to = std::copy(ids[i].begin(), ids[i].end(), to);
    x.narrow(0, group.first, used).copy_(source->embed(index));
  }
  return x;
}

void TargetModel::Impl::run(std::span<const std::span<const std::int32_t>> ids, const BatchPlan& plan,
                            const std::function<void()>& poll, const Sink& sink) const {
  const LayerShape shape{{config.num_heads, config.num_kv_heads, config.head_dim}, options.gemm_rows, options.hf_numerics};
  const RopeAngles angles = rope_angles(interchange::rope_table(config.rope, config.head_dim, config.max_position_embeddings),
                                        plan.longest, options.device);
  Workspace work(plan.largest_group, options.gemm_rows, config.hidden_size, config.intermediate_size, shape.heads,
                 tensor_options());
  at::Tensor x = embed(ids, plan);
  for (std::int64_t l = 0; l < config.num_layers; ++l) {
    if (poll) poll();
    sink(l, x);
    const auto weights = source->layer(l);
    for (const auto& group : plan.groups) layer_forward(*weights, shape, angles, plan, group, work, x);
  }
  if (poll) poll();
  sink(config.num_layers, x);
  for (std::int64_t r = 0; r < plan.rows; r += options.gemm_rows) {
    at::Tensor rows = x.narrow(0, r, options.gemm_rows);
    rms_norm(rows, source->final_norm(), options.hf_numerics, work.normed);
    rows.copy_(work.normed);
  }
  sink(config.num_layers + 1, x);
}

TargetModel::TargetModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TargetModel::TargetModel(TargetModel&&) noexcept = default;
TargetModel& TargetModel::operator=(TargetModel&&) noexcept = default;
TargetModel::~TargetModel() = default;

TargetModel TargetModel::load(const interchange::ModelDirectory& dir, const TargetOptions& options) {
  const c10::NoGradGuard no_grad;
  auto impl = std::make_unique<Impl>();
  impl->config = interchange::read_target_config(dir);
  impl->options = options;
  check_config(impl->config, dir.path());
  check_options(options, impl->config);
  impl->source = make_layer_source(dir, impl->config, options.device, options.dtype, options.streamed);
  return TargetModel(std::move(impl));
}

const interchange::TargetConfig& TargetModel::config() const { return impl_->config; }
const TargetOptions& TargetModel::options() const { return impl_->options; }

std::vector<SampleStates> TargetModel::forward(std::span<const std::span<const std::int32_t>> ids,
                                               const std::function<void()>& poll) const {
  if (ids.empty()) return {};
  const c10::NoGradGuard no_grad;
  const BatchPlan plan = impl_->plan(ids);
  const auto& aux_layers = impl_->options.aux_layers;
  const std::int64_t hidden = impl_->config.hidden_size, last = impl_->config.num_layers + 1;
  std::vector<SampleStates> states;
  for (const auto& sample : plan.samples) {
    states.push_back({at::empty({sample.tokens, std::ssize(aux_layers), hidden}, impl_->tensor_options()),
                      at::empty({sample.tokens, hidden}, impl_->tensor_options())});
  }
  impl_->run(ids, plan, poll, [&](std::int64_t l, const at::Tensor& x) {
    for (std::size_t i = 0; i < states.size(); ++i) {
      const at::Tensor rows = x.narrow(0, plan.samples[i].first, plan.samples[i].tokens);
      for (std::size_t a = 0; a < aux_layers.size(); ++a) {
        if (aux_layers[a] == l) states[i].aux.select(1, static_cast<std::int64_t>(a)).copy_(rows);
      }
      if (l == last) states[i].last.copy_(rows);
    }
  });
  return states;
}

TargetModel::AllStates TargetModel::forward_all(std::span<const std::int32_t> ids) const {
  const c10::NoGradGuard no_grad;
  const std::span<const std::span<const std::int32_t>> batch(&ids, 1);
  const BatchPlan plan = impl_->plan(batch);
  const std::int64_t tokens = plan.samples[0].tokens, hidden = impl_->config.hidden_size, last = impl_->config.num_layers + 1;
  AllStates all{at::empty({last, tokens, hidden}, impl_->tensor_options()), at::empty({tokens, hidden}, impl_->tensor_options())};
  impl_->run(batch, plan, {}, [&](std::int64_t l, const at::Tensor& x) {
    (l == last ? all.last : all.residuals.select(0, l)).copy_(x.narrow(0, 0, tokens));
  });
  return all;
}

}  // namespace aerie::target
