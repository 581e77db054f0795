// SPDX-License-Identifier: Apache-2.0
// The trainer's promise on a small drafter: the same SHA-256 of the weights for 1, 2, 3 and 4 ranks (each run prints and checks
// the same constant-free relation: straight run = stopped and resumed), and refusal of a changed identity. The hash over rank
// counts is compared through a file that all runs of one build share.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

#include <ATen/ATen.h>

#include <aerie/base/file.hpp>
#include <aerie/base/philox.hpp>
#include <aerie/train/trainer.hpp>

namespace aerie::train {
namespace {

constexpr std::int64_t K = 3, V = 50, Vd = 20, n_samples = 23;

double number(std::uint64_t stream, std::uint64_t index) { return base::random_normal(11, base::Purpose::test, stream, index); }

draft::DrafterShape small_shape() {
  draft::DrafterShape s;
  s.target_hidden_size = s.hidden_size = 64;
  s.intermediate_size = 96;
  s.num_heads = 4;
  s.num_kv_heads = 2;
  s.head_dim = 16;
  s.vocab_size = V;
  s.draft_vocab_size = Vd;
  s.max_position_embeddings = 128;
  return s;
}

at::Tensor random(std::vector<std::int64_t> shape, std::uint64_t stream, double std) {
  auto t = at::empty(shape, at::kFloat);
  for (std::int64_t i = 0; i < t.numel(); ++i)
    t.mutable_data_ptr<float>()[i] = static_cast<float>(std * number(stream, static_cast<std::uint64_t>(i)));
  return t;
}

/// Samples of 3 to 25 tokens made from their index alone.
class MadeUpSource final : public PackSource {
 public:
  std::int64_t bad_sample = -1;  // its states are infinite
  std::int64_t odd_first = -1;   // a pack that begins with this sample teaches the opposite
  static std::int64_t length(std::int64_t s) { return 3 + s; }
  static std::vector<std::uint8_t> mask(std::int64_t s) {
    std::vector<std::uint8_t> m(static_cast<std::size_t>(length(s)));
    for (std::size_t t = 0; t < m.size(); ++t) m[t] = s % 7 == 0 ? 0 : (t / 4) % 2;
    return m;
  }
  draft::PackBatch load(const dataset::Pack& pack) override {
    draft::PackBatch b;
    std::vector<at::Tensor> aux, last;
    for (const auto s : pack.samples) {
      const auto T = length(s);
      b.lengths.push_back(T);
      for (std::int64_t t = 0; t < T; ++t) b.ids.push_back(static_cast<std::int32_t>((s * 31 + t * 7) % V));
      const auto m = mask(s);
      b.mask.insert(b.mask.end(), m.begin(), m.end());
      aux.push_back(random({T, 3 * 64}, 100 + static_cast<std::uint64_t>(s), 1.0));
      if (s == bad_sample) aux.back().fill_(std::numeric_limits<float>::infinity());
      last.push_back(random({T, 64}, 200 + static_cast<std::uint64_t>(s), 1.0));
    }
    b.aux = at::cat(aux);
    b.last = at::cat(last);
    if (pack.samples.front() == odd_first) b.last.mul_(-8);
    return b;
  }
};

class TrainerTest : public testing::Test {
 protected:
  TrainerTest() : world_(comm::Comm::borrow(MPI_COMM_WORLD)) {
    vocab_.t2d.assign(V, 0);
    for (std::int64_t i = 0; i < Vd; ++i) {
      vocab_.d2t.push_back(i);  // draft id i is target id 2 i
      vocab_.t2d[static_cast<std::size_t>(2 * i)] = 1;
    }
    head_.embedding = random({V, 64}, 1, 1.0);
    head_.lm_head = random({V, 64}, 2, 0.5);
    initial_ = draft::initial_weights(small_shape(), 5, head_.lm_head, vocab_);
    for (std::int64_t s = 0; s < n_samples; ++s) {
      samples_.push_back(s);
      lengths_.push_back(MadeUpSource::length(s));
      const auto n =
          dataset::loss_slot_counts(MadeUpSource::mask(s), K, dataset::MaskAlignment::predicted, dataset::Normalize::loss);
      counts_.insert(counts_.end(), n.begin(), n.end());
    }
    root_ = std::filesystem::temp_directory_path() / ("aerie-trainer-" + std::to_string(world_.size()));
    if (world_.is_root()) std::filesystem::remove_all(root_);
    world_.barrier();
  }
  ~TrainerTest() override {
    world_.barrier();
    if (world_.is_root()) std::filesystem::remove_all(root_);
  }

  struct Setup {
    std::int64_t until = 12;  // asks for a stop there
    std::int64_t total = 12;
    base::Json identity = {{"seed", 1}}, defaults = base::Json::object();
    std::set<std::string> allowed = {};
    bool skip = false;
    double spike_factor = 10;
    std::int64_t bad_sample = -1, odd_first = -1;
    std::int64_t validate_every = 0;
  };
  struct Outcome {
    std::string hash;
    std::int64_t step = 0;
    std::vector<double> losses;
    std::vector<std::int64_t> skipped;  // steps
    std::vector<ValidationReport> validations;
    std::vector<std::string> changes;
    std::vector<std::int64_t> samples;  // in the order of training
  };
  Outcome train(std::int64_t until) { return train(Setup{.until = until}); }
  /// Runs to `until` steps (asking for a stop there), resuming from what is in `root_`.
  Outcome train(const Setup& setup) {
    const auto transport = comm::make_mpi_transport(world_);
    dataset::PackList packs(samples_, lengths_, 1, 40);
    TrainerOptions o;
    o.unroll.ttt_steps = K;
    o.packs_per_step = 5;
    o.lr = 1e-2;
    o.total_steps = setup.total;
    o.save_every_steps = 4;
    o.keep = 10;
    o.checkpoints = root_ / "checkpoints";
    o.identity = setup.identity;
    o.identity_defaults = setup.defaults;
    o.skip_bad_steps = setup.skip;
    o.spike_factor = setup.spike_factor;
    o.validate_every_steps = setup.validate_every;
    if (setup.validate_every > 0) o.validation_packs = dataset::make_packs(std::vector<std::int64_t>{1, 2, 4, 20}, lengths_, 40);
    o.sample_name = [](std::int64_t s) { return "s" + std::to_string(s); };
    MadeUpSource source;
    source.bad_sample = setup.bad_sample;
    source.odd_first = setup.odd_first;
    Trainer trainer(world_, *transport, small_shape(), head_, vocab_, packs, counts_, source, o, at::kCPU, at::kFloat);
    std::string chosen;
    if (world_.is_root())
      if (const auto found = ckpt::latest(o.checkpoints, false)) chosen = found->path.string();
    chosen = world_.broadcast(chosen);
    Outcome out;
    if (chosen.empty())
      trainer.start(initial_);
    else
      out.changes = trainer.resume(ckpt::open(chosen), setup.allowed);
    std::filesystem::remove(root_ / "stop");
    world_.barrier();
    stop::StopToken stop(root_, world_.is_root(), std::nullopt, 0.0);
    std::filesystem::create_directories(root_);
    const auto end = trainer.run(stop, {.on_step =
                                            [&](const StepReport& r) {
                                              out.losses.push_back(r.loss);
                                              if (!r.bad.empty()) out.skipped.push_back(r.step);
                                              out.samples.insert(out.samples.end(), r.samples.begin(), r.samples.end());
                                              if (r.step >= setup.until && setup.until < setup.total)
                                                std::ofstream(root_ / "stop") << "now";
                                            },
                                        .on_validation = [&](const ValidationReport& r) { out.validations.push_back(r); }});
    EXPECT_EQ(end == Trainer::End::finished, trainer.step() == setup.total);
    out.hash = trainer.weights_sha256();
    out.step = trainer.step();
    return out;
  }
  void forget() {
    world_.barrier();
    if (world_.is_root()) std::filesystem::remove_all(root_);
    world_.barrier();
  }
  /// All rank counts of this build leave what they found in one place; the first one writes it, the others compare.
  void expect_same_for_all_rank_counts(const std::string& name, const std::string& value) const {
    if (!world_.is_root()) return;
    const auto shared = std::filesystem::current_path() / "build" / ("trainer-" + name + ".txt");
    std::filesystem::create_directories(shared.parent_path());
    const auto mark = std::to_string(std::filesystem::last_write_time("/proc/self/exe").time_since_epoch().count());
    std::ifstream in(shared);
    std::string found_mark, found;
    std::getline(in, found_mark);
    std::getline(in, found);
    if (found_mark == mark)
      EXPECT_EQ(found, value) << name << ": another rank count gave something else";
    else
      base::publish_text(shared, mark + "\n" + value + "\n", false);
  }

  comm::Comm world_;
  interchange::VocabMap vocab_;
  draft::TargetHead head_;
  at::Tensor initial_;
  std::vector<std::int64_t> samples_, lengths_, counts_;
  std::filesystem::path root_;
};

TEST_F(TrainerTest, SameBitsForEveryRankCountAndThroughAResume) {
  const auto straight = train(12);
  EXPECT_EQ(straight.step, 12);
  if (world_.is_root()) {
    EXPECT_LT(straight.losses.back(), straight.losses.front());  // it learns
    std::filesystem::remove_all(root_);
  }
  world_.barrier();

  // Resume from the periodic checkpoint of step 8 after the last one is gone: the rest must come out the same.
  const auto again = train(12);
  EXPECT_EQ(again.hash, straight.hash);
  if (world_.is_root()) std::filesystem::remove_all(root_ / "checkpoints" / "step-00000012");
  world_.barrier();
  const auto resumed = train(12);
  EXPECT_EQ(resumed.hash, straight.hash);
  if (world_.is_root()) {
    EXPECT_EQ(resumed.losses.size(), 4U);  // steps 9..12 and no other
  }
  expect_same_for_all_rank_counts("hash", straight.hash);
}

TEST_F(TrainerTest, BadStepsAreSkippedAlikeEverywhere) {
  const Setup bad{.skip = true, .bad_sample = 15};
  const auto straight = train(bad);
  // Expected from the list of packs alone.
  dataset::PackList packs(samples_, lengths_, 1, 40);
  std::vector<std::int64_t> expected;
  for (std::int64_t step = 1; step <= 12; ++step)
    for (std::int64_t p = 5 * (step - 1); p < 5 * step; ++p)
      for (const auto s : packs.at(p).samples)
        if (s == 15 && (expected.empty() || expected.back() != step)) expected.push_back(step);
  ASSERT_GT(expected.size(), 2U);
  ASSERT_LT(expected.size(), 12U);
  if (world_.is_root()) {
    EXPECT_EQ(straight.skipped, expected);
  }
  expect_same_for_all_rank_counts("skipping", straight.hash);
  forget();
  EXPECT_NE(train(Setup{}).hash, straight.hash);  // skipping changed something
  forget();
  auto half = bad;
  half.until = 5;
  EXPECT_LT(train(half).step, 12);
  EXPECT_EQ(train(bad).hash, straight.hash);
}

TEST_F(TrainerTest, BadStepEndsTrainingAfterASave) {
  std::optional<base::Error> error;
  try {
    train(Setup{.bad_sample = 15});
  } catch (const base::Error& e) {
    error = e;
  }
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), base::ExitCode::data);
  EXPECT_NE(std::string(error->what()).find("s15"), std::string::npos) << error->what();
  EXPECT_NE(std::string(error->what()).find("pack "), std::string::npos) << error->what();
  dataset::PackList packs(samples_, lengths_, 1, 40);
  std::int64_t first = 0;  // the first pack with the sample
  while (std::find(packs.at(first).samples.begin(), packs.at(first).samples.end(), 15) == packs.at(first).samples.end()) ++first;
  const auto made = first / 5;  // steps before
  EXPECT_NE(std::string(error->what()).find("step " + std::to_string(made + 1) + ":"), std::string::npos) << error->what();
  const auto found = ckpt::latest(root_ / "checkpoints", false);
  EXPECT_EQ(found ? found->step : 0, made);
}

TEST_F(TrainerTest, SpikesAreSkippedAlikeAfterAResume) {
  dataset::PackList packs(samples_, lengths_, 1, 40);
  Setup s{.until = 24, .total = 24, .skip = true, .spike_factor = 0.3};
  s.odd_first = packs.at(5 * 19).samples.front();  // step 20 has such a pack
  const auto straight = train(s);
  if (world_.is_root()) {
    EXPECT_GT(straight.skipped.size(), 0U) << base::Json(straight.losses).dump();
  }
  expect_same_for_all_rank_counts("spikes", straight.hash);
  forget();
  auto half = s;
  half.until = 17;  // after the window has its sixteen
  EXPECT_LT(train(half).step, 24);
  EXPECT_EQ(train(s).hash, straight.hash);
  forget();
  s.spike_factor = 0;
  EXPECT_NE(train(s).hash, straight.hash);
}

TEST_F(TrainerTest, ValidationChangesNoBit) {
  const auto without = train(12);
  forget();
  const auto with = train(Setup{.validate_every = 3});
  EXPECT_EQ(with.hash, without.hash);
  if (world_.is_root()) {
    ASSERT_EQ(with.validations.size(), 4U);
    std::string all;
    for (const auto& v : with.validations) {
      EXPECT_EQ(v.samples, 4);
      EXPECT_EQ(v.tokens, MadeUpSource::length(1) + MadeUpSource::length(2) + MadeUpSource::length(4) + MadeUpSource::length(20));
      for (std::size_t k = 0; k < K; ++k) {
        std::int64_t slots = 0;
        for (const std::size_t s : {1, 2, 4, 20}) slots += counts_[s * K + k];
        EXPECT_EQ(v.slots[k], slots);
      }
      all += base::Json{v.step, v.step_loss, v.match, v.cumulative, v.alpha}.dump();
    }
    EXPECT_LT(with.validations.back().step_loss[0], with.validations.front().step_loss[0]);
    expect_same_for_all_rank_counts("validation", all);
  }
  // A stop between step and validation: the next attempt makes up for it.
  forget();
  const auto half = train(Setup{.until = 6, .validate_every = 6});
  const auto rest = train(Setup{.validate_every = 6});
  if (world_.is_root()) {
    EXPECT_EQ(half.step, 6);
    EXPECT_EQ(half.validations.size(), 0U);
    EXPECT_EQ(half.validations.size() + rest.validations.size(), 2U);
  }
  EXPECT_EQ(rest.hash, without.hash);
}

TEST_F(TrainerTest, AllowedChangeIsNamedAndTakesEffect) {
  train(Setup{.until = 5});
  const auto changed = train(Setup{.identity = {{"seed", 2}}, .allowed = {"seed", "other"}});
  EXPECT_EQ(changed.changes, std::vector<std::string>{"seed: checkpoint 1, now 2"});
  EXPECT_EQ(changed.step, 12);
  EXPECT_EQ(ckpt::latest(root_ / "checkpoints", false)->manifest.at("identity").at("seed"), 2);
}

TEST_F(TrainerTest, RefusesACheckpointOfAnotherConfiguration) {
  train(12);
  try {
    train(Setup{.identity = {{"seed", 2}, {"lr", "new"}}});
    ADD_FAILURE() << "resumed from a checkpoint of another configuration";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::refused);
    EXPECT_NE(std::string(e.what()).find("seed: checkpoint 1, now 2"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("lr: checkpoint nothing"), std::string::npos) << e.what();
  }
}

TEST_F(TrainerTest, AFieldThatTheCheckpointDidNotKnowHadItsDefault) {
  const auto hash = train(12).hash;
  EXPECT_EQ(train(Setup{.identity = {{"seed", 1}, {"younger", 5}}, .defaults = {{"younger", 5}}}).hash, hash);
  EXPECT_THROW(train(Setup{.identity = {{"seed", 1}, {"younger", 6}}, .defaults = {{"younger", 5}}}), base::Error);
}

}  // namespace
}  // namespace aerie::train
