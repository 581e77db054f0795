// SPDX-License-Identifier: Apache-2.0
// Checks a store without GPU and MPI: manifest, attributes, offsets, index, records; with `full` every done sample's checksum.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <aerie/base/exit_codes.hpp>
#include <aerie/io/store.hpp>

namespace aerie::io {

struct VerifyOptions {
  bool full = false;
  int threads = 1;
  int shard = 0, shards = 1;  // parts with index % shards == shard
  std::int64_t vocab_size = 0;
  /// Called by one thread now and then, with `full`: tokens of the samples checked so far, and of all samples in these parts.
  std::function<void(std::int64_t done_tokens, std::int64_t total_tokens)> progress;
};
struct Finding {
  std::string file;
  std::int64_t sample = -1;  // -1: the file as a whole
  std::string text;
  base::ExitCode code = base::ExitCode::data;  // data, missing_input or io
  bool pending = false;                        // the sample reads as pending already: there is nothing to set back
};
struct VerifyReport {
  Counts counts;
  std::vector<Finding> findings;  // empty: clean
  std::vector<base::Json> parts;  // one object per part
  std::int64_t bytes_hashed = 0;
  std::int64_t bytes_done = 0;  // of the done samples: what `full` reads
  /// done when clean, else the worst of the findings' codes (io, missing_input, data in this order).
  base::ExitCode code() const;
};
/// Throws MissingInputError when there is no manifest; everything else becomes a finding.
VerifyReport verify_store(const std::filesystem::path& dir, const VerifyOptions& options);

}  // namespace aerie::io
