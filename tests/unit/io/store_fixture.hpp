// SPDX-License-Identifier: Apache-2.0
// A small store with uneven lengths and rejected samples, and data that any test can make again from the sample's index.
#pragma once
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <aerie/base/error.hpp>
#include <aerie/base/philox.hpp>
#include <aerie/io/store.hpp>
#include <aerie/io/store_writer.hpp>

#include "temp_dir.hpp"

namespace aerie::test {

constexpr std::int64_t hidden = 24, vocab = 1000;

inline io::StoreIdentity small_identity() {
  io::StoreIdentity d;
  d.hidden_size = hidden;
  d.max_length = 64;
  d.target_num_layers = 61;
  d.vocab_size = vocab;
  d.aux_layer_ids = {2, 30, 58};
  d.gemm_rows = 256;
  d.final_norm_eps = 1e-6;
  d.final_norm_hash = "xxh3-128:01";
  d.target_name = "tiny";
  d.target_config_hash = "xxh3-128:02";
  d.target_weights_hash = "xxh3-128:03";
  d.lm_head_hash = "xxh3-128:04";
  d.embed_hash = "xxh3-128:05";
  d.tokenizer_hash = "xxh3-128:06";
  d.dataset_hash = "xxh3-128:07";
  d.producer = "test";
  return d;
}

/// 23 samples of 1 to 40 tokens; 5, 11 and 12 are rejected.
inline std::vector<io::PlannedSample> small_plan() {
  std::vector<io::PlannedSample> plan;
  for (std::int64_t i = 0; i < 23; ++i) plan.push_back({1 + (i * 7) % 40, io::FailReason::none});
  plan[5] = {0, io::FailReason::too_long};
  plan[11] = {0, io::FailReason::empty};
  plan[12] = {0, io::FailReason::bad_token};
  return plan;
}
constexpr std::int64_t small_part_bytes = 100 * (8 * hidden + 5);  // 100 tokens a part

inline io::SampleData make_sample(std::int64_t sample, std::int64_t tokens, std::int64_t h = hidden) {
  io::SampleData d;
  const auto random = [&](std::uint64_t stream, std::int64_t i) {
    return base::random_u64(static_cast<std::uint64_t>(sample), base::Purpose::test, stream, static_cast<std::uint64_t>(i));
  };
  for (std::int64_t i = 0; i < tokens * 3 * h; ++i)
    d.aux.push_back(static_cast<std::uint16_t>(random(0, i) & 0xbfffU));  // always finite
  for (std::int64_t i = 0; i < tokens * h; ++i) d.last.push_back(static_cast<std::uint16_t>(random(1, i) & 0xbfffU));
  for (std::int64_t i = 0; i < tokens; ++i) d.input_ids.push_back(static_cast<std::int32_t>(random(2, i) % vocab));
  for (std::int64_t i = 0; i < tokens; ++i) d.loss_mask.push_back(static_cast<std::uint8_t>(random(3, i) & 1U));
  return d;
}

inline bool equal(const io::SampleData& a, const io::SampleData& b) {
  return a.aux == b.aux && a.last == b.last && a.input_ids == b.input_ids && a.loss_mask == b.loss_mask;
}

inline std::vector<std::int64_t> all_parts(const io::Store& store) {
  std::vector<std::int64_t> parts;
  for (std::size_t p = 0; p < store.parts().size(); ++p) parts.push_back(static_cast<std::int64_t>(p));
  return parts;
}

/// Small groups, so that several are committed; the age limit never strikes.
inline io::CommitPolicy small_policy(const std::string& holder = "job 1 host test") {
  io::CommitPolicy p;
  p.commit_bytes = 12000;
  p.commit_samples = 3;
  p.commit_seconds = 1000;
  p.queue_bytes = 20000;
  p.holder = holder;
  return p;
}

/// Writes all samples of `parts` that are pending, in one process.
inline void write_parts(const io::Store& store, const std::vector<std::int64_t>& parts, const io::CommitPolicy& policy) {
  io::StoreWriter writer(store, parts, policy);
  for (const auto p : parts) {
    const auto& part = store.parts()[static_cast<std::size_t>(p)];
    for (auto s = part.first; s < part.first + part.n; ++s)
      if (store.state(s).kind == io::StateKind::pending) writer.put(s, make_sample(s, store.length(s)));
  }
  writer.close();
}

inline io::Store create_small(const std::filesystem::path& dir) {
  const auto plan = small_plan();
  io::Store::create(dir, small_identity(), plan, small_part_bytes);
  return io::Store::open(dir);
}

inline std::string slurp(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void flip_bit(const std::filesystem::path& path, std::int64_t offset, int bit = 0) {
  std::fstream f(path, std::ios::binary | std::ios::in | std::ios::out);
  f.seekg(offset);
  char c = 0;
  f.get(c);
  f.seekp(offset);
  f.put(static_cast<char>(c ^ (1 << bit)));
  ASSERT_TRUE(f.good());
}

/// A python with h5py and xxhash: $AERIE_H5PY_PYTHON, the project's own, python3. Empty when there is none, which is a failure
/// where AERIE_REQUIRE names h5py.
inline std::string h5py_python() {
  const char* given = std::getenv("AERIE_H5PY_PYTHON");
  for (const std::string& python : {std::string(given ? given : ""),
                                    std::string(AERIE_IO_TEST_DIR "/../../../.deps/venv/bin/python"), std::string("python3")})
    if (!python.empty() && std::system((python + " -c 'import h5py, xxhash' 2>/dev/null").c_str()) == 0) return python;
  const char* required = std::getenv("AERIE_REQUIRE");
  if (required && std::string(required).find("h5py") != std::string::npos) ADD_FAILURE() << "no python has h5py and xxhash";
  return {};
}

/// The text of the error that `f` throws; empty when it throws none of type E.
template <class E, class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return {};
}
inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace aerie::test
