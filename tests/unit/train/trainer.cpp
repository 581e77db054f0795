// SPDX-License-Identifier: Apache-2.0
// The trainer's promise on a small drafter: the same SHA-256 of the weights for 1, 2, 3 and 4 ranks (each run prints and checks
// the same constant-free relation: straight run = stopped and resumed), and refusal of a changed identity. The hash over rank
// counts is compared through a file that all runs of one build share.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

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
      last.push_back(random({T, 64}, 200 + static_cast<std::uint64_t>(s), 1.0));
    }
    b.aux = at::cat(aux);
    b.last = at::cat(last);
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

  struct Outcome {
    std::string hash;
    std::int64_t step;
    std::vector<double> losses;
  };
  /// Runs to `until` steps (asking for a stop there) out of 12, resuming from what is in `root_`.
  Outcome train(std::int64_t until, const base::Json& identity = {{"seed", 1}}) {
    const auto transport = comm::make_mpi_transport(world_);
    dataset::PackList packs(samples_, lengths_, 1, 40);
    TrainerOptions o;
    o.unroll.ttt_steps = K;
    o.packs_per_step = 5;
    o.lr = 1e-2;
    o.total_steps = 12;
    o.save_every_steps = 4;
    o.checkpoints = root_ / "checkpoints";
    o.identity = identity;
    MadeUpSource source;
    Trainer trainer(world_, *transport, small_shape(), head_, vocab_, packs, counts_, source, o, at::kCPU, at::kFloat);
    std::string chosen;
    if (world_.is_root())
      if (const auto found = ckpt::latest(o.checkpoints, false)) chosen = found->path.string();
    chosen = world_.broadcast(chosen);
    if (chosen.empty())
      trainer.start(initial_);
    else
      trainer.resume(ckpt::open(chosen));
    std::filesystem::remove(root_ / "stop");
    stop::StopToken stop(root_, world_.is_root(), std::nullopt);
    Outcome out;
    std::filesystem::create_directories(root_);
    const auto end = trainer.run(stop,
                                 [&](const StepReport& r) {
                                   out.losses.push_back(r.loss);
                                   if (r.step >= until && until < 12) std::ofstream(root_ / "stop") << "now";
                                 },
                                 {});
    EXPECT_EQ(end == Trainer::End::finished, trainer.step() == 12);
    out.hash = trainer.weights_sha256();
    out.step = trainer.step();
    return out;
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

    // All rank counts of this build leave their hash in one place; the first one writes it, the others compare.
    const auto shared = std::filesystem::current_path() / "build" / "trainer-hash.txt";
    std::filesystem::create_directories(shared.parent_path());
    const auto mark = std::to_string(std::filesystem::last_write_time("/proc/self/exe").time_since_epoch().count());
    std::ifstream in(shared);
    std::string found_mark, found_hash;
    in >> found_mark >> found_hash;
    if (found_mark == mark)
      EXPECT_EQ(found_hash, straight.hash) << "another rank count gave other bits";
    else
      base::publish_text(shared, mark + " " + straight.hash + "\n", false);
  }
}

TEST_F(TrainerTest, RefusesACheckpointOfAnotherConfiguration) {
  train(12);
  try {
    train(12, {{"seed", 2}, {"lr", "new"}});
    ADD_FAILURE() << "resumed from a checkpoint of another configuration";
  } catch (const base::Error& e) {
    EXPECT_EQ(e.code(), base::ExitCode::refused);
    EXPECT_NE(std::string(e.what()).find("seed: checkpoint 1, now 2"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("lr: checkpoint nothing"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace aerie::train
