// SPDX-License-Identifier: Apache-2.0
// `aerie status` of a run with 100,000 samples of which 10,000 failed: it must stay a thing that people type, and `--watch`.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include <fmt/format.h>

#include <aerie/config/config.hpp>
#include <aerie/dataset/dataset.hpp>
#include <aerie/io/store_writer.hpp>
#include <aerie/report/ledger.hpp>

#include "fixture.hpp"

namespace {
using namespace aerie;

constexpr std::int64_t samples = 100000, every = 10;  // each tenth fails

void make_dataset(const test::TempDir& dir, const std::filesystem::path& run) {
  std::string lines;
  for (std::int64_t i = 0; i < samples; ++i)
    lines += fmt::format("{{\"id\":\"c{}\",\"input_ids\":[7,8],\"loss_mask\":[0,1]}}\n", i);
  test::write(dir / "tokens.jsonl", lines);
  dataset::ImportOptions options;
  options.vocab_size = 64;
  dataset::import_jsonl(dir / "tokens.jsonl", run / "dataset/train.h5", options);
}

void make_store(const std::filesystem::path& run) {
  const auto data = dataset::Dataset::open(run / "dataset/train.h5");
  io::StoreIdentity id;
  id.hidden_size = 4;
  id.max_length = 4096;
  id.target_num_layers = 8;
  id.vocab_size = 64;
  id.aux_layer_ids = {2, 4, 5};
  id.target_name = id.producer = "test";
  id.dataset_hash = data.hash();
  io::Store::create(run / "store", id, std::vector<io::PlannedSample>(samples, {2, io::FailReason::none}), 1 << 20);
  const auto store = io::Store::open(run / "store");
  std::vector<std::int64_t> parts(store.parts().size());
  for (std::size_t p = 0; p < parts.size(); ++p) parts[p] = static_cast<std::int64_t>(p);
  io::CommitPolicy policy;
  policy.commit_samples = samples;
  io::StoreWriter writer(store, parts, policy);
  std::vector<report::FailedSample> failed;
  for (std::int64_t i = 0; i < samples; i += every) {
    writer.fail(i, io::FailReason::nonfinite);
    failed.push_back({i, data.id(i), "NONFINITE", "the target gave a hidden state that is not finite"});
  }
  writer.drain();
  writer.close();
  report::Ledger(run).samples_failed(failed);
}

TEST(LargeRun, status_is_quick) {
  test::TempDir dir;
  test::Run run(dir);
  make_dataset(dir, run.path());
  make_store(run.path());
  run.mark_extracted();  // so that status asks whether that still holds
  ASSERT_EQ(test::aerie("accept-missing " + run.name() + " --all-failed --reason test").code, 0);
  double best = 1e9;
  test::Ended e;
  for (int i = 0; i < 3; ++i) {
    const auto start = std::chrono::steady_clock::now();
    e = test::aerie("status --json " + run.name());
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    ASSERT_EQ(e.code, 0) << e.err;
  }
  const auto found = e.json().at("samples");
  EXPECT_EQ(found.at("failed"), samples / every);
  ASSERT_EQ(found.at("failed_samples").size(), static_cast<std::size_t>(samples / every));
  EXPECT_EQ(found.at("failed_samples").back().at("id"), fmt::format("c{}", samples - every));
  EXPECT_TRUE(found.at("failed_samples").back().at("decided").get<bool>());
  std::printf("aerie status --json: %.3f s\n", best);
  EXPECT_LT(best, 2.0);  // ten times what is aimed at: the machine may be busy; quadratic work is minutes
}

}  // namespace
