// SPDX-License-Identifier: Apache-2.0
#include "common.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/philox.hpp>
#include <aerie/io/store_writer.hpp>

namespace aerie::bench {

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n = values.size();
  return n == 0 ? 0 : (values[(n - 1) / 2] + values[n / 2]) / 2;
}

void Table::add(const std::string& name, const std::string& unit, const std::string& ceiling, double value) {
  auto it = std::find_if(cases_.begin(), cases_.end(), [&](const Case& c) { return c.name == name; });
  if (it == cases_.end()) it = cases_.insert(cases_.end(), {name, unit, ceiling, {}});
  it->values.push_back(value);
  fmt::print(stderr, "  {:<44} {:>9.4g} {}\n", name, value, unit);
}
const Case* Table::find(const std::string& name) const {
  const auto it = std::find_if(cases_.begin(), cases_.end(), [&](const Case& c) { return c.name == name; });
  return it == cases_.end() ? nullptr : &*it;
}
double Table::median(const std::string& name) const { return find(name) ? median_of(find(name)->values) : 0; }
double Table::ratio(const Case& c) const {
  const auto* ceiling = find(c.ceiling);
  if (!ceiling) return 0;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < std::min(c.values.size(), ceiling->values.size()); ++i)
    ratios.push_back(c.values[i] / ceiling->values[i]);
  return median_of(ratios);
}
void Table::print() const {
  fmt::print("{:<44} {:>9} {:>9} {:>9}  {:<6} {:>6} {:>10}\n", "", "median", "lowest", "highest", "", "ratio", "of medians");
  for (const auto& c : cases_) {
    const auto [low, high] = std::minmax_element(c.values.begin(), c.values.end());
    fmt::print("{:<44} {:>9.4g} {:>9.4g} {:>9.4g}  {:<6}", c.name, median_of(c.values), *low, *high, c.unit);
    if (find(c.ceiling)) fmt::print(" {:>6.3f} {:>10.3f}", ratio(c), median_of(c.values) / median(c.ceiling));
    fmt::print("\n");
  }
}
base::Json Table::json() const {
  auto out = base::Json::array();
  for (const auto& c : cases_) {
    base::Json j{{"name", c.name}, {"unit", c.unit}, {"values", c.values}, {"median", median_of(c.values)}};
    if (find(c.ceiling)) j["ceiling"] = c.ceiling, j["ratio"] = ratio(c);
    out.push_back(std::move(j));
  }
  return out;
}

io::StoreIdentity identity(std::int64_t hidden, std::int64_t max_length, io::StateDtype dtype) {
  io::StoreIdentity d;
  d.hidden_size = hidden;
  d.max_length = max_length;
  d.vocab_size = 1000;
  d.target_num_layers = 32;
  d.aux_layer_ids = {2, 16, 29};
  d.dtype = dtype;
  return d;
}
std::int64_t token_bytes(const Shape& shape) {
  return shape.dtype == io::StateDtype::bf16 ? 8 * shape.hidden + 5 : 4 * shape.hidden + 16 + 5;
}
std::int64_t samples_per_writer(const Shape& shape, int writers) {
  return std::max<std::int64_t>(1, shape.bytes / writers / (token_bytes(shape) * shape.sample_tokens));
}
io::Store new_store(const Shape& shape, const std::filesystem::path& dir, int writers) {
  const auto each = samples_per_writer(shape, writers);
  const std::vector<io::PlannedSample> plan(static_cast<std::size_t>(each * writers),
                                            {shape.sample_tokens, io::FailReason::none});
  io::Store::create(dir, identity(shape.hidden, shape.sample_tokens, shape.dtype), plan,
                    each * shape.sample_tokens * token_bytes(shape));
  auto store = io::Store::open(dir);
  base::expect(static_cast<int>(store.parts().size()) == writers, "a part for every writer");
  return store;
}

void in_threads(int count, const std::function<void(int)>& f) {
  std::vector<std::thread> threads;
  std::exception_ptr error;
  std::mutex mutex;
  const auto guarded = [&](int t) {
    try {
      f(t);
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
    }
  };
  for (int t = 1; t < count; ++t) threads.emplace_back(guarded, t);
  guarded(0);
  for (auto& t : threads) t.join();
  if (error) std::rethrow_exception(error);
}

double write_store(const Shape& shape, const io::Store& store, std::int64_t commit_bytes) {
  io::SampleData source;
  const auto tokens = static_cast<std::size_t>(shape.sample_tokens), hidden = static_cast<std::size_t>(shape.hidden);
  source.aux.resize(tokens * 3 * hidden);
  source.last.resize(tokens * hidden);
  std::uint64_t x = 1;
  for (auto* v : {&source.aux, &source.last})
    for (auto& bits : *v)
      x = x * 6364136223846793005ULL + 1442695040888963407ULL, bits = static_cast<std::uint16_t>((x >> 48) & 0xbfffU);
  source.input_ids.assign(tokens, 7);
  source.loss_mask.assign(tokens, 1);
  io::CommitPolicy policy;
  policy.commit_bytes = commit_bytes;
  policy.commit_seconds = 1000;
  return seconds([&] {
    in_threads(static_cast<int>(store.parts().size()), [&](int t) {
      const std::vector<std::int64_t> own{t};
      const auto& part = store.parts()[static_cast<std::size_t>(t)];
      io::StoreWriter writer(store, own, policy);
      for (auto s = part.first; s < part.first + part.n; ++s)
        writer.put(s, source);  // a copy: what the device hands over is new memory
      writer.close();
    });
  });
}

void settle(const std::filesystem::path& dir) {
  const auto d = base::open_file(dir, O_RDONLY | O_DIRECTORY);
  if (::syncfs(d.fd()) != 0) base::throw_errno(errno, "syncfs " + dir.string());
}
void forget(const std::filesystem::path& file) {
  const auto f = base::open_read(file);
  if (::posix_fadvise(f.fd(), 0, 0, POSIX_FADV_DONTNEED) != 0) throw base::IoError("posix_fadvise " + file.string());
}

}  // namespace aerie::bench
