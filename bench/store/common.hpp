// SPDX-License-Identifier: Apache-2.0
// What the parts of bench_store share: the shape of the work, clocks, medians, and the table they fill.
#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <aerie/base/json.hpp>
#include <aerie/io/store.hpp>

namespace aerie::bench {

struct Shape {
  std::filesystem::path dir;  // a new folder for the files, on the file system to be measured
  std::int64_t hidden = 4096, sample_tokens = 512, bytes = std::int64_t{2} << 30;  // bytes: all writers together
  io::StateDtype dtype = io::StateDtype::bf16;
  int rounds = 5;
  std::vector<int> writers{1, 2, 4};
  std::vector<std::int64_t> commit_mib{64, 256};
};

/// One measured thing: a value a round. `ceiling` is the case that its ratio refers to.
struct Case {
  std::string name, unit, ceiling;
  std::vector<double> values;
};
class Table {
 public:
  void add(const std::string& name, const std::string& unit, const std::string& ceiling, double value);
  double median(const std::string& name) const;
  /// Median of the per-round ratios to the ceiling; 0 without one.
  double ratio(const Case& c) const;
  void print() const;
  base::Json json() const;

 private:
  const Case* find(const std::string& name) const;
  std::vector<Case> cases_;
};

double median_of(std::vector<double> values);
/// Seconds that `f` takes.
template <class F>
double seconds(F&& f) {
  const auto start = std::chrono::steady_clock::now();
  std::forward<F>(f)();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}
constexpr double mib = 1024.0 * 1024.0;

io::StoreIdentity identity(std::int64_t hidden, std::int64_t max_length, io::StateDtype dtype);
/// Bytes of one token in the files.
std::int64_t token_bytes(const Shape& shape);
std::int64_t samples_per_writer(const Shape& shape, int writers);
/// A new store with one part per writer.
io::Store new_store(const Shape& shape, const std::filesystem::path& dir, int writers);
/// All of them at once, each in a thread of its own; throws the first error.
void in_threads(int count, const std::function<void(int)>& f);
/// Writes the store's samples, part k by thread k, and returns the seconds to the last durable sample.
double write_store(const Shape& shape, const io::Store& store, std::int64_t commit_bytes);
/// Everything written so far is on disk, so that one case does not pay for the one before.
void settle(const std::filesystem::path& dir);
/// Drops the file's pages from the cache.
void forget(const std::filesystem::path& file);

void bench_write(const Shape& shape, Table& table);
/// Random reads of samples and verify --full, against plain pread of the same bytes.
void bench_read(const Shape& shape, Table& table);
/// Creation, opening and planning of a store of very many very small samples.
void bench_small(const Shape& shape, std::int64_t samples, std::int64_t part_bytes, Table& table);

}  // namespace aerie::bench
