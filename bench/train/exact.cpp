// SPDX-License-Identifier: Apache-2.0
// What exact training costs against fast: whole steps of both modes in turn in one process, the reduction's own passes against
// the memory's copy speed, flash attention's deterministic backward against the other one, and what a save beside training takes
// from the steps. Made-up data at the named shape; ceilings are measured in the same run.
//   bench_exact [--shape 8b|smol] [--tokens N] [--packs N] [--rounds N] [--loss-share F] [--json]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <aerie/base/json.hpp>
#include <aerie/base/version.hpp>
#include <aerie/device/device.hpp>
#include <aerie/draft/drafter.hpp>
#include <aerie/train/fixed_point.hpp>
#include <aerie/train/trainer.hpp>

#include "flat_math.hpp"

namespace {
using namespace aerie;
namespace fs = std::filesystem;

struct Case {
  std::string shape = "8b";
  std::int64_t tokens = 2048, packs = 4, rounds = 3, steps = 3;
  double loss_share = 1.0;
};

draft::DrafterShape shape_of(const std::string& name) {
  draft::DrafterShape s;
  if (name == "8b") {  // Llama-3.1-8B's drafter
    s.target_hidden_size = s.hidden_size = 4096;
    s.intermediate_size = 14336;
    s.num_heads = 32, s.num_kv_heads = 8, s.head_dim = 128;
    s.vocab_size = 128256, s.draft_vocab_size = 32000;
  } else {
    s.target_hidden_size = s.hidden_size = 576;
    s.intermediate_size = 1536;
    s.num_heads = 9, s.num_kv_heads = 3, s.head_dim = 64;
    s.vocab_size = 49152, s.draft_vocab_size = 4096;
  }
  s.max_position_embeddings = 8192;
  return s;
}

/// One random pack, given again and again: what is timed does not depend on the values.
class OnePack final : public train::PackSource {
 public:
  OnePack(const draft::DrafterShape& shape, const Case& c, c10::Device device, c10::ScalarType dtype) {
    batch_.lengths = {c.tokens};
    for (std::int64_t t = 0; t < c.tokens; ++t) batch_.ids.push_back(static_cast<std::int32_t>((t * 7919) % shape.vocab_size));
    const auto first_loss = static_cast<std::int64_t>((1.0 - c.loss_share) * static_cast<double>(c.tokens));
    for (std::int64_t t = 0; t < c.tokens; ++t) batch_.mask.push_back(t >= first_loss ? 1 : 0);
    const auto options = at::TensorOptions(device).dtype(dtype);
    batch_.aux = at::randn({c.tokens, 3 * shape.target_hidden_size}, options);
    batch_.last = at::randn({c.tokens, shape.target_hidden_size}, options);
  }
  draft::PackBatch load(const dataset::Pack&) override { return batch_; }
  const std::vector<std::uint8_t>& mask() const { return batch_.mask; }

 private:
  draft::PackBatch batch_;
};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.at(v.size() / 2);
}
double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
void wait_for(c10::Device device) {
  if (device.is_cuda()) at::zeros({1}, at::TensorOptions(device)).item<float>();
}
/// Seconds a call, the median of `rounds` rounds of `repeats`.
double time_of(c10::Device device, std::int64_t rounds, int repeats, const std::function<void()>& f) {
  f();
  std::vector<double> times;
  for (std::int64_t r = 0; r < rounds; ++r) {
    wait_for(device);
    const double start = now();
    for (int i = 0; i < repeats; ++i) f();
    wait_for(device);
    times.push_back((now() - start) / repeats);
  }
  return median(times);
}

/// A trainer with its own weights; step() makes steps of the same pack.
struct Lane {
  Lane(const comm::Comm& world, const Case& c, const draft::DrafterShape& shape, const draft::TargetHead& head,
       const interchange::VocabMap& vocab, OnePack& source, const at::Tensor& initial, bool fast, const fs::path& dir,
       c10::Device device, c10::ScalarType dtype)
      : transport(device::make_transport("auto", world, device)),
        packs(std::vector<std::int64_t>{0}, std::vector<std::int64_t>{c.tokens}, 1, c.tokens),
        counts(dataset::loss_slot_counts(source.mask(), 7, dataset::MaskAlignment::predicted, dataset::Normalize::loss)) {
    options.packs_per_step = c.packs;
    options.total_steps = std::int64_t{1} << 40;
    options.save_every_steps = 0;
    options.save_every_seconds = 0;
    options.keep = 2;
    options.checkpoints = dir;
    options.spike_factor = 0;
    options.fast_reduce = fast;
    trainer =
        std::make_unique<train::Trainer>(world, *transport, shape, head, vocab, packs, counts, source, options, device, dtype);
    trainer->start(initial);
  }
  std::unique_ptr<comm::Transport> transport;
  dataset::PackList packs;
  std::vector<std::int64_t> counts;
  train::TrainerOptions options;
  std::unique_ptr<train::Trainer> trainer;
};

struct Steps {
  std::vector<double> seconds, update_s;
};
/// `n` steps; their times go into `out`. A save is asked for at the first of them when `save` is given.
void run_steps(Lane& lane, const fs::path& dir, std::int64_t n, Steps& out, bool save = false) {
  fs::create_directories(dir);
  fs::remove(dir / "stop");
  if (save) std::fclose(std::fopen((dir / "save-now").c_str(), "w"));
  stop::StopToken stop(dir, true, std::nullopt, 0.0);
  std::int64_t made = 0;
  lane.trainer->run(stop, {.on_step = [&](const train::StepReport& r) {
                      out.seconds.push_back(r.seconds);
                      out.update_s.push_back(r.update_s);
                      if (++made == n) std::fclose(std::fopen((dir / "stop").c_str(), "w"));
                    }});
}

}  // namespace

int main(int argc, char** argv) {
  Case c;
  bool json = false;
  CLI::App app("Exact training against fast, in turn, in one process.");
  app.add_option("--shape", c.shape)->check(CLI::IsMember({"8b", "smol"}));
  app.add_option("--tokens", c.tokens, "tokens of a pack");
  app.add_option("--packs", c.packs, "packs of a step");
  app.add_option("--rounds", c.rounds);
  app.add_option("--loss-share", c.loss_share, "share of the tokens with loss, at the end of the sample");
  app.add_flag("--json", json);
  CLI11_PARSE(app, argc, argv);
  try {
    const comm::Environment environment(argc, argv);
    const auto world = environment.world();
    device::setup_compute(1);
    const auto device = device::choose_device("auto", world);
    const auto dtype = device::choose_dtype("auto", device);
    const auto shape = shape_of(c.shape);
    const auto options = at::TensorOptions(device).dtype(dtype);
    const c10::NoGradGuard no_grad;

    interchange::VocabMap vocab;
    vocab.t2d.assign(static_cast<std::size_t>(shape.vocab_size), 0);
    for (std::int64_t i = 0; i < shape.draft_vocab_size; ++i) {
      vocab.d2t.push_back(0);
      vocab.t2d[static_cast<std::size_t>(i)] = 1;
    }
    draft::TargetHead head;
    head.embedding = at::randn({shape.vocab_size, shape.target_hidden_size}, options).mul_(0.02);
    head.lm_head = at::randn({shape.vocab_size, shape.target_hidden_size}, options).mul_(0.02);
    const auto n = draft::parameter_count(shape);
    const auto initial = at::randn({n}, at::kFloat).mul_(0.01);
    const auto name = fmt::format("bench-exact.{}", ::getpid());
    const auto dir = fs::temp_directory_path() / name;
    // Each round ends in a checkpoint that nobody times: in memory where there is room.
    const auto quick = fs::exists("/dev/shm") ? fs::path("/dev/shm") / name : dir;

    OnePack source(shape, c, device, dtype);
    base::Json out{{"bench", "exact"},
                   {"device", device::describe(device)},
                   {"producer", base::producer()},
                   {"shape", c.shape},
                   {"tokens_per_pack", c.tokens},
                   {"packs_per_step", c.packs},
                   {"loss_share", c.loss_share},
                   {"parameters", n}};

    Steps exact_steps, fast_steps, saving;
    double save_s = 0, blocked_s = 0;
    {
      Lane exact(world, c, shape, head, vocab, source, initial, false, quick / "exact", device, dtype);
      Lane fast(world, c, shape, head, vocab, source, initial, true, quick / "fast", device, dtype);
      Steps warm;
      for (std::int64_t i = 0; i < 2; ++i) {
        run_steps(exact, dir / "run", 1, warm);
        run_steps(fast, dir / "run", 1, warm);
      }
      for (std::int64_t r = 0; r < c.rounds; ++r) {
        run_steps(exact, dir / "run", c.steps, exact_steps);
        run_steps(fast, dir / "run", c.steps, fast_steps);
      }
    }
    fs::remove_all(quick);
    const double exact_s = median(exact_steps.seconds), fast_s = median(fast_steps.seconds);
    out["step_exact_s"] = exact_s;
    out["step_fast_s"] = fast_s;
    out["exact_over_fast"] = exact_s / fast_s;
    out["update_exact_s"] = median(exact_steps.update_s);
    out["update_fast_s"] = median(fast_steps.update_s);
    out["tokens_per_s"] = static_cast<double>(c.tokens * c.packs) / exact_s;

    // The reduction's passes over the flat vector, against copying the bytes they move.
    const auto blocks = (n + train::block_elements - 1) / train::block_elements;
    const auto padded = blocks * train::block_elements;
    const auto grad = at::randn({padded}, at::TensorOptions(device).dtype(at::kFloat)).mul_(1e-3);
    const auto sum = at::zeros({padded}, at::TensorOptions(device).dtype(at::kLong));
    const auto copy_to = at::empty_like(grad);
    const double copy = time_of(device, c.rounds, 5, [&] { copy_to.copy_(grad); });
    const double bytes_per_s = 8.0 * static_cast<double>(padded) / copy;
    const double add = time_of(device, c.rounds, 5, [&] { train::flat::add_fixed_point(grad, sum, c.packs); });
    const double read = time_of(device, c.rounds, 5, [&] { train::flat::from_fixed_point(sum, copy_to); });
    const double norm = time_of(device, c.rounds, 5, [&] { train::flat::block_sums(grad); });
    out["copy_TB_per_s"] = bytes_per_s * 1e-12;
    out["add_fixed_point_s"] = add;
    out["add_of_copy_speed"] = 20.0 * static_cast<double>(padded) / add / bytes_per_s;  // reads 4 + 8, writes 8 bytes an element
    out["read_fixed_point_s"] = read;
    out["read_of_copy_speed"] = 12.0 * static_cast<double>(padded) / read / bytes_per_s;
    out["block_sums_s"] = norm;
    out["reduction_share"] = (add * static_cast<double>(c.packs) + read) / exact_s;

    if (device.is_cuda()) {  // causal attention of one document at the drafter's heads, bf16
      const auto q = at::randn({1, shape.num_heads, c.tokens, shape.head_dim}, options), k = at::randn_like(q),
                 v = at::randn_like(q);
      const auto f = at::_scaled_dot_product_flash_attention(q, k, v, 0.0, true, false);
      const auto d = at::randn_like(std::get<0>(f));
      const auto backward = [&] {
        at::_scaled_dot_product_flash_attention_backward(d, q, k, v, std::get<0>(f), std::get<1>(f), std::get<2>(f),
                                                         std::get<3>(f), std::get<4>(f).expect_int(), std::get<5>(f).expect_int(),
                                                         0.0, true, std::get<6>(f), std::get<7>(f));
      };
      std::vector<double> exact_a, fast_a;
      for (std::int64_t r = 0; r < c.rounds; ++r) {
        at::globalContext().setDeterministicAlgorithms(true, false);
        exact_a.push_back(time_of(device, 1, 10, backward));
        at::globalContext().setDeterministicAlgorithms(false, false);
        fast_a.push_back(time_of(device, 1, 10, backward));
      }
      at::globalContext().setDeterministicAlgorithms(true, false);
      out["flash_backward_deterministic_s"] = median(exact_a);
      out["flash_backward_s"] = median(fast_a);
      out["flash_backward_ratio"] = median(exact_a) / median(fast_a);
      // Per pack K backward passes at most, were flash attention used in the step.
      out["attention_share"] = 7.0 * static_cast<double>(c.packs) * (median(exact_a) - median(fast_a)) / exact_s;
    }

    {  // Steps while a save goes on beside them, against steps before.
      Lane lane(world, c, shape, head, vocab, source, initial, false, dir / "saves", device, dtype);
      Steps plain;
      run_steps(lane, dir / "run", 2, saving);  // also the first save
      saving = {};
      std::vector<double> with, without;
      for (std::int64_t r = 0; r < c.rounds; ++r) {
        Steps s;
        fs::create_directories(dir / "run");
        std::int64_t made = 0;
        fs::remove(dir / "run" / "stop");
        stop::StopToken stop(dir / "run", true, std::nullopt, 0.0);
        bool running = false;
        lane.trainer->run(stop, {.on_step =
                                     [&](const train::StepReport& report) {
                                       ++made;
                                       (running ? with : without).push_back(report.seconds);
                                       if (made == 3) {
                                         std::fclose(std::fopen((dir / "run" / "save-now").c_str(), "w"));
                                         running = true;  // asked at the end of this step, written during the next ones
                                       }
                                       if (made == 8) std::fclose(std::fopen((dir / "run" / "stop").c_str(), "w"));
                                     },
                                 .on_save =
                                     [&](std::int64_t, const ckpt::Saved& saved) {
                                       running = false;
                                       if (saved.elapsed_s > 0) save_s = saved.elapsed_s, blocked_s = saved.blocked_s;
                                     }});
      }
      if (!with.empty()) {
        out["step_beside_save_s"] = median(with);
        out["step_without_save_s"] = median(without);
        out["steps_beside_saves"] = with.size();
        out["save_costs"] = median(with) / median(without) - 1;
      }
      out["save_elapsed_s"] = save_s;
      out["save_blocked_s"] = blocked_s;
    }
    out["peak_GiB"] = static_cast<double>(device::peak_memory_bytes(device)) / (1 << 30);
    std::error_code ignored;
    fs::remove_all(dir, ignored);
    fs::remove_all(quick, ignored);
    if (json) {
      fmt::print("{}\n", out.dump(1));
    } else {
      for (const auto& [key, value] : out.items()) fmt::print("{:<32} {}\n", key, value.dump());
    }
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 70;
  }
}
