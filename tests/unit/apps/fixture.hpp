// SPDX-License-Identifier: Apache-2.0
// Small made-up runs, and `aerie` started as a user starts it.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include <aerie/base/json.hpp>
#include <aerie/io/store.hpp>

#include "temp_dir.hpp"

namespace aerie::test {

struct Ended {
  int code = -1;
  std::string out, err;
  base::Json json() const { return base::parse_json(out, "stdout"); }
};
/// Runs a shell command with its streams caught.
Ended shell(const std::string& command);
/// `aerie ARGUMENTS`; `arguments` is a piece of shell.
Ended aerie(const std::string& arguments);

std::string read(const std::filesystem::path& path);
void write(const std::filesystem::path& path, const std::string& text);
/// Inverts one byte; negative offsets count from the end.
void flip_byte(const std::filesystem::path& path, std::int64_t offset);

/// A model directory of 8 layers, width 16, 64 tokens; the two tensors that its configuration is checked against.
std::filesystem::path make_target(const std::filesystem::path& dir);

/// A run with aerie.toml, a dataset of six samples (ids s0 ... s5; s3 has no loss) and, when asked for, a store in which s3 is
/// excluded.
class Run {
 public:
  explicit Run(const TempDir& dir);
  const std::filesystem::path& path() const { return path_; }
  std::string name() const { return path_.string(); }
  /// Creates the store and writes `done`; `failed` get NONFINITE.
  void make_store(const std::vector<std::int64_t>& done, const std::vector<std::int64_t>& failed = {});
  /// Publishes checkpoints/step-0000000N; returns its path.
  std::filesystem::path make_checkpoint(std::int64_t step);
  std::vector<base::Json> ledger() const;
  /// Phases up to extract as the programs leave them.
  void mark_extracted();

 private:
  std::filesystem::path path_;
};

}  // namespace aerie::test
