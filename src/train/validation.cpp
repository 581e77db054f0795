// SPDX-License-Identifier: Apache-2.0
// Validation during training: the held-out packs, forward only, under the weights as they are. Sums are integers (losses and
// overlaps x 2^20), so that the report does not depend on the rank count. Reads the training state and changes none of it.
#include "trainer_impl.hpp"

#include <cmath>

#include <aerie/base/fault.hpp>
#include <aerie/comm/agree.hpp>

namespace aerie::train {
namespace {
constexpr double scale = 1048576.0;
}

bool Trainer::Impl::validation_due() const {
  return options.validate_every_steps > 0 && !options.validation_packs.empty() && step > 0 &&
         step % options.validate_every_steps == 0 && validated != step;
}

bool Trainer::Impl::validate(stop::StopToken& stop, ValidationReport& report) {
  const double start = now_s();
  if (next.batch.valid()) next.batch.wait();  // one reader of the store at a time
  const auto k_count = static_cast<std::size_t>(K());
  const std::vector<double> coefficients(k_count, 0.0);
  std::vector<std::int64_t> totals(5 * k_count, 0);
  std::int64_t not_finite = 0;
  const auto R = static_cast<std::size_t>(world.size());
  // Rounds of one pack a rank, so that a stop that any rank sees ends all of them after the same round.
  for (std::size_t begin = 0; begin < options.validation_packs.size(); begin += R) {
    if (stop.agree(world) == stop::Request::stop) return false;  // collective over world
    comm::agree_after(world, "validate", [&] {                   // collective over world
      base::fault_point("train.validate");
      const auto mine = begin + static_cast<std::size_t>(world.rank());
      if (mine >= options.validation_packs.size()) return;
      const auto batch = source.load(options.validation_packs[mine]);
      const auto result = draft::unroll(shape, weights, target, vocab, batch, options.unroll, coefficients, nullptr);
      for (std::size_t k = 0; k < k_count; ++k) {
        const auto& s = result.steps[k];
        totals[k] += s.slots;
        totals[k_count + k] += s.matches;
        totals[2 * k_count + k] += s.cumulative;
        if (std::isfinite(s.loss) && std::abs(s.loss) < 1e12)
          totals[3 * k_count + k] += std::llrint(s.loss * scale);
        else
          ++not_finite;
        if (std::isfinite(s.overlap)) totals[4 * k_count + k] += std::llrint(s.overlap * scale);
      }
    });
  }
  totals.push_back(not_finite);
  world.sum(std::span(totals));  // collective over world
  report.step = validated = step;
  for (const auto& pack : options.validation_packs) {
    report.samples += static_cast<std::int64_t>(pack.samples.size());
    report.tokens += pack.n_tokens;
  }
  const auto share = [&](std::size_t block, std::size_t k, double by) {
    return totals[k] > 0 ? static_cast<double>(totals[block * k_count + k]) / static_cast<double>(totals[k]) / by : 0.0;
  };
  for (std::size_t k = 0; k < k_count; ++k) {
    report.slots.push_back(totals[k]);
    report.match.push_back(share(1, k, 1));
    report.cumulative.push_back(share(2, k, 1));
    report.step_loss.push_back(totals.back() > 0 ? std::nan("") : share(3, k, scale));
    report.alpha.push_back(share(4, k, scale));
  }
  report.seconds = now_s() - start;
  return true;
}

}  // namespace aerie::train
