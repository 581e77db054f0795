// SPDX-License-Identifier: Apache-2.0
// `aerie vocab`: counts the loss tokens of the samples that are trained on and chooses the draft vocabulary.
#include <aerie/base/error.hpp>
#include <aerie/base/fault.hpp>
#include <aerie/ckpt/checkpoint.hpp>
#include <aerie/dataset/token_counts.hpp>
#include <aerie/interchange/target_config.hpp>
#include <aerie/interchange/vocab_map.hpp>
#include <aerie/report/ledger.hpp>
#include <aerie/stop/stop_token.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <numeric>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "command_line.hpp"
#include "commands.hpp"
#include "phase_inputs.hpp"
#include "phases.hpp"
#include "run_lock.hpp"

namespace aerie::apps {
namespace {
std::vector<std::int64_t> training_samples(const dataset::Dataset& data, double holdout) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < data.size(); ++i)
    if (data.reject(i) == io::FailReason::none && (holdout == 0 || !dataset::is_held_out(data.id(i), holdout))) out.push_back(i);
  if (out.empty())
    throw base::DataError(data.path().string() + ": no usable training sample", "see why samples were rejected: `aerie inspect`");
  return out;
}
/// While this lives, TERM, USR1 and USR2 are noted instead of ending the process; before and after they do what they did.
class StopSignals {
 public:
  StopSignals() {
    for (std::size_t i = 0; i < before_.size(); ++i) ::sigaction(numbers[i], nullptr, &before_[i]);
    stop::StopToken::install_handlers();
  }
  ~StopSignals() {
    for (std::size_t i = 0; i < before_.size(); ++i) ::sigaction(numbers[i], &before_[i], nullptr);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  static constexpr std::array<int, 3> numbers{SIGTERM, SIGUSR1, SIGUSR2};
  std::array<struct sigaction, 3> before_{};
};
/// A map that checkpoints were trained with must not be replaced by another one.
void refuse_change(const config::Config& c, const interchange::VocabMap& map) {
  const auto path = c.run_dir / "vocab.safetensors";
  if (!std::filesystem::exists(path) || !ckpt::ever_had_checkpoint(c.checkpoint_dir())) return;
  if (interchange::vocab_hash(interchange::read_vocab_map(path)) != interchange::vocab_hash(map))
    throw base::RefusedError(path.string() + " would change, but checkpoints were trained with it",
                             "start another run, or undo the change");
}
}  // namespace

void choose_vocabulary(const config::Config& c) {
  const auto start = std::chrono::steady_clock::now();
  const auto data = dataset::Dataset::open(c.dataset_file());
  report::Ledger ledger(c.run_dir);
  auto size = data.vocab_size();
  if (size == 0) size = interchange::read_target_config(interchange::ModelDirectory::open(c.target.path)).vocab_size;
  ledger.phase(report::Phase::vocab, report::PhaseState::running);
  const auto samples = training_samples(data, c.holdout());
  const StopSignals signals;
  stop::StopToken stop(c.run_dir, true);
  const auto counts = dataset::count_loss_tokens(data, samples, size, [&] {
    base::fault_point("vocab.count");
    stop.throw_if_stopped();
  });
  const auto map = interchange::select_vocab(counts, std::min(c.draft.vocab_size, size));
  interchange::check_vocab_map(map, "the new vocabulary");
  refuse_change(c, map);
  interchange::write_vocab_map(c.run_dir / "vocab.safetensors", map);
  const auto tokens = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const auto distinct = std::count_if(counts.begin(), counts.end(), [](auto n) { return n > 0; });
  ledger.phase(report::Phase::vocab, report::PhaseState::complete,
               {{"samples", samples.size()},
                {"tokens", tokens},
                {"distinct", distinct},
                {"draft_vocab", map.draft_size()},
                {"target_vocab", size},
                {"coverage", map.coverage()},
                {"vocab_hash", interchange::vocab_hash(map)},
                {"dataset_hash", data.hash()},
                {"inputs", phase_inputs(c, report::Phase::vocab)},
                {"seconds", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()}});
  print(fmt::format("vocabulary: {} of {} tokens cover {:.2f} % of {} loss tokens ({} distinct) in {} samples", map.draft_size(),
                    size, 100 * map.coverage(), tokens, distinct, samples.size()));
}

int command_vocab(int argc, char** argv) {
  CLI::App app("Counts loss tokens and writes RUN/vocab.safetensors.", "aerie vocab");
  config::Config c;
  config::add_options(app, c);
  if (!parse_command_line(app, argc, argv)) return 0;
  if (c.run_dir.empty()) throw base::ConfigError("RUN is not given", "name the run directory");
  config::validate(c);
  const auto lock = lock_run(c, base::FileLock::Mode::exclusive, "aerie vocab");
  choose_vocabulary(c);
  return 0;
}

}  // namespace aerie::apps
