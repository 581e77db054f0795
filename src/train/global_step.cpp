// SPDX-License-Identifier: Apache-2.0
// One global step: this rank's packs, each from zero into the fixed-point sum; one all-reduce of counts, losses, requests and
// readiness; then the update, or, when the step is bad, none. Every decision is made from sums that all ranks share.
#include "trainer_impl.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <aerie/base/log.hpp>
#include <aerie/comm/agree.hpp>
#include <aerie/train/fixed_point.hpp>

#include "flat_math.hpp"

namespace aerie::train {
namespace {
constexpr std::int64_t most_skipped_in_row = 10;  // weights that went bad make every later step bad
// Totals of a step: four blocks of K (slots, matches, cumulative as counts; coefficient x loss in fixed point), then these.
enum Extra : std::size_t { failed, stop_asked, save_asked, tokens, ready, bad_packs, extras };
}  // namespace

/// Pack indices of this step that this rank takes, in list order.
std::vector<std::int64_t> Trainer::Impl::own_packs(std::int64_t first) {
  std::vector<std::int64_t> costs;
  for (std::int64_t i = 0; i < options.packs_per_step; ++i) costs.push_back(packs.at(first + i).n_tokens);
  const auto dealt = dataset::deal_packs(costs, world.size());
  std::vector<std::int64_t> out;
  for (const auto i : dealt[static_cast<std::size_t>(world.rank())]) out.push_back(first + static_cast<std::int64_t>(i));
  return out;
}

/// The pack's states; the one after it starts loading in a thread meanwhile.
draft::PackBatch Trainer::Impl::fetch(std::int64_t index, std::int64_t after) {
  draft::PackBatch batch;
  if (next.index == index)
    batch = next.batch.get();
  else
    batch = source.load(packs.at(index));
  next.index = after;
  if (after >= 0) next.batch = std::async(std::launch::async, [this, pack = packs.at(after)] { return source.load(pack); });
  return batch;
}

std::string Trainer::Impl::tensor_at(std::int64_t element) const {
  for (const auto& t : interchange::drafter_tensors(shape)) {
    if (element < t.elements()) return fmt::format("{}[{}]", t.name, element);
    element -= t.elements();
  }
  return "?";
}

std::string Trainer::Impl::samples_of(std::int64_t pack) {
  std::vector<std::string> names;
  for (const auto s : packs.at(pack).samples)
    names.push_back(options.sample_name ? options.sample_name(s) : fmt::format("{}", s));
  return fmt::format("pack {} (samples {})", pack, fmt::join(names, ", "));
}

/// n_k of the global batch: known from the data before the first forward.
std::vector<std::int64_t> Trainer::Impl::global_counts(std::int64_t first) {
  std::vector<std::int64_t> n(static_cast<std::size_t>(K()), 0);
  for (std::int64_t i = 0; i < options.packs_per_step; ++i)
    for (const auto s : packs.at(first + i).samples)
      for (std::int64_t k = 0; k < K(); ++k) n[static_cast<std::size_t>(k)] += loss_counts[static_cast<std::size_t>(s * K() + k)];
  return n;
}

/// Forward and backward of one pack, added to the sums. Returns what is bad about it, in words that do not depend on the rank.
std::optional<std::string> Trainer::Impl::add_pack(std::int64_t pack, std::int64_t after, const std::vector<double>& coefficients,
                                                   std::vector<std::int64_t>& totals, StepReport& report) {
  const double wait = now_s();
  const auto batch = fetch(pack, after);
  report.waiting_s += now_s() - wait;
  if (!options.fast_reduce) grad_flat.zero_();
  const auto result = draft::unroll(shape, weights, target, vocab, batch, options.unroll, coefficients, &grads);
  totals[4 * static_cast<std::size_t>(K()) + tokens] += static_cast<std::int64_t>(batch.ids.size());
  const auto k_count = static_cast<std::size_t>(K());
  const double limit = fixed_point_range / static_cast<double>(options.packs_per_step * K());  // all steps are added up
  for (std::size_t k = 0; k < k_count; ++k) {
    const double weighted = coefficients[k] * result.steps[k].loss;
    if (!std::isfinite(weighted) || std::abs(weighted) >= limit)
      return fmt::format("the loss of unroll step {} is {}", k, result.steps[k].loss);
  }
  if (options.fast_reduce) {  // the sum of all packs so far: one number that is not finite makes it so
    if (!std::isfinite(grad_flat.sum().item<float>())) return "the gradient is not finite";
  } else if (const auto bad = flat::add_fixed_point(grad_flat, sum, options.packs_per_step); bad >= 0) {
    return fmt::format("the gradient of {} is {}", tensor_at(bad), grad_flat[bad].item<float>());
  }
  for (std::size_t k = 0; k < k_count; ++k) {
    const auto& s = result.steps[k];
    totals[k] += s.slots;
    totals[k_count + k] += s.matches;
    totals[2 * k_count + k] += s.cumulative;
    totals[3 * k_count + k] += to_fixed_point(coefficients[k] * s.loss);
  }
  return std::nullopt;
}

/// The bad packs of all ranks, in list order.
std::string Trainer::Impl::describe_bad(const std::vector<BadPack>& mine) {
  base::Json list = base::Json::array();
  for (const auto& b : mine) list.push_back({b.pack, b.what});
  std::vector<std::pair<std::int64_t, std::string>> all;
  for (const auto& text : world.all_gather(list.dump()))
    for (const auto& b : base::Json::parse(text)) all.emplace_back(b[0].get<std::int64_t>(), b[1].get<std::string>());
  std::sort(all.begin(), all.end());
  std::vector<std::string> lines;
  for (const auto& [pack, what] : all) lines.push_back(fmt::format("{} in {}", what, samples_of(pack)));
  return fmt::format("{}", fmt::join(lines, "; "));
}

void Trainer::Impl::update(StepReport& report, std::int64_t loss) {
  AdamWOptions adam;
  adam.lr = report.lr;
  adam.beta1 = options.beta1;
  adam.beta2 = options.beta2;
  adam.eps = options.eps;
  adam.weight_decay = options.weight_decay;
  adam.step = step + 1;
  const double start = now_s();
  report.grad_norm = optimizer.step(options.fast_reduce ? grad_padded : sum, adam, options.clip);  // collective over world
  if (!std::isfinite(report.grad_norm)) {  // nothing was changed; all ranks hold the same norm
    report.bad = "the gradient's norm is not finite";
    return;
  }
  optimizer.gather_weights(flat_padded);  // collective over world
  report.update_s = now_s() - start;
  watch.add(loss);
  skipped_in_row = 0;
}

StepOutcome Trainer::Impl::train_step(StepReport& report, stop::Request request, stop::StopToken& stop,
                                      const std::optional<base::Error>& trouble) {
  const double start = now_s();
  const auto first = packs_consumed;
  const auto coefficients = loss_coefficients(options.step_weights, global_counts(first));
  options.fast_reduce ? grad_padded.zero_() : sum.zero_();
  const auto k_count = static_cast<std::size_t>(K());
  std::vector<std::int64_t> totals(4 * k_count + extras, 0);
  const auto extra = [&](Extra e) -> std::int64_t& { return totals[4 * k_count + e]; };

  std::vector<BadPack> bad;
  const auto error = base::capture([&] {
    if (trouble) throw base::Error(*trouble);
    const auto mine = own_packs(first);
    const auto upcoming =
        step + 1 < options.total_steps ? own_packs(first + options.packs_per_step) : std::vector<std::int64_t>{};
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const auto after = i + 1 < mine.size() ? mine[i + 1] : upcoming.empty() ? -1 : upcoming.front();
      if (auto what = add_pack(mine[i], after, coefficients, totals, report)) bad.push_back({mine[i], std::move(*what)});
    }
  });
  if (stop.poll() == stop::Request::stop) request = stop::Request::stop;
  extra(failed) = error ? 1 : 0;
  extra(stop_asked) = request == stop::Request::stop ? 1 : 0;
  extra(save_asked) = request == stop::Request::save_now ? 1 : 0;
  extra(ready) = saver.ready() ? 1 : 0;
  extra(bad_packs) = static_cast<std::int64_t>(bad.size());
  world.sum(std::span(totals));  // collective over world
  if (extra(failed) > 0) comm::agree(world, "train", error);

  StepOutcome out;
  out.request = extra(stop_asked) > 0   ? stop::Request::stop
                : extra(save_asked) > 0 ? stop::Request::save_now
                                        : stop::Request::none;
  out.all_ready = extra(ready) == world.size();

  std::int64_t loss = 0;
  for (std::size_t k = 0; k < k_count; ++k) loss += totals[3 * k_count + k];
  if (extra(bad_packs) > 0) {
    report.bad = describe_bad(bad);  // collective over world
  } else if (watch.is_spike(loss)) {
    report.bad = fmt::format("the loss jumped to {:.4f}, the median of the steps before is {:.4f}", from_fixed_point(loss),
                             from_fixed_point(watch.median()));
    for (std::int64_t i = 0; i < options.packs_per_step; ++i)
      report.bad += fmt::format("{} {}", i == 0 ? ";" : ",", samples_of(first + i));
  }
  report.lr = schedule.at(step);
  if (report.bad.empty()) update(report, loss);  // collective over world; may find the sum of the gradients bad
  if (!report.bad.empty()) {
    if (!options.skip_bad_steps || skipped_in_row + 1 >= most_skipped_in_row) {
      out.bad = base::DataError(
          fmt::format("step {}: {}{}", step + 1, report.bad,
                      options.skip_bad_steps ? fmt::format("; {} steps in a row were bad", skipped_in_row + 1) : ""),
          "look at these samples; train.bad_step = \"skip\" leaves such steps out, a lower train.lr or train.clip may help");
      return out;
    }
    ++skipped;
    ++skipped_in_row;
  }
  ++step;
  packs_consumed += options.packs_per_step;

  report.step = step;
  report.first_pack = first;
  for (std::int64_t i = 0; i < options.packs_per_step; ++i) {
    const auto& samples = packs.at(first + i).samples;
    report.samples.insert(report.samples.end(), samples.begin(), samples.end());
  }
  report.tokens = extra(tokens);
  const auto ratio = [](std::int64_t a, std::int64_t b) { return b > 0 ? static_cast<double>(a) / static_cast<double>(b) : 0.0; };
  report.loss = from_fixed_point(loss);
  for (std::size_t k = 0; k < k_count; ++k) {
    const double weighted = from_fixed_point(totals[3 * k_count + k]);
    report.step_loss.push_back(
        coefficients[k] > 0 ? weighted / coefficients[k] / static_cast<double>(std::max<std::int64_t>(1, totals[k])) : 0.0);
    report.match.push_back(ratio(totals[k_count + k], totals[k]));
    report.cumulative.push_back(ratio(totals[2 * k_count + k], totals[k]));
  }
  report.seconds = now_s() - start;
  return out;
}

}  // namespace aerie::train
