// SPDX-License-Identifier: Apache-2.0
// Choosing, checking and storing the draft vocabulary.
#include <aerie/interchange/vocab_map.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include <aerie/base/error.hpp>
#include <aerie/base/hash.hpp>
#include <aerie/interchange/safetensors.hpp>

#include <fmt/format.h>

namespace aerie::interchange {
namespace {
using base::DataError;
static_assert(std::endian::native == std::endian::little, "files hold little-endian values, copied as they are");

template <class T>
std::vector<T> read_vector(const SafetensorsFile& file, const std::string& name, Dtype dtype) {
  const auto& info = file.info(name);
  if (info.dtype != dtype || info.shape.size() != 1)
    throw DataError(fmt::format("{}: '{}' is not a list of {}", file.path().string(), name, dtype_name(dtype)));
  std::vector<T> out(static_cast<std::size_t>(info.shape[0]));
  file.read(name, std::as_writable_bytes(std::span(out)));
  return out;
}

/// Whether `ids` are strictly increasing within [0, limit).
bool ascending(const std::vector<std::int64_t>& ids, std::int64_t limit) {
  std::int64_t last = -1;
  for (const auto id : ids) {
    if (id <= last || id >= limit) return false;
    last = id;
  }
  return true;
}

bool marks(const std::vector<std::uint8_t>& t2d, const std::vector<std::int64_t>& ids) {
  if (std::count(t2d.begin(), t2d.end(), 1) != static_cast<std::ptrdiff_t>(ids.size())) return false;
  return std::all_of(ids.begin(), ids.end(), [&](std::int64_t id) { return t2d[static_cast<std::size_t>(id)] == 1; });
}
}  // namespace

double VocabMap::coverage() const {
  std::int64_t all = 0, covered = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    all += counts[i];
    if (t2d[i]) covered += counts[i];
  }
  return all == 0 ? 0.0 : static_cast<double>(covered) / static_cast<double>(all);
}

VocabMap select_vocab(std::span<const std::int64_t> counts, std::int64_t draft_size) {
  if (draft_size < 1 || draft_size > static_cast<std::int64_t>(counts.size()))
    throw base::ConfigError(fmt::format("draft.vocab_size is {}, but the target has {} tokens", draft_size, counts.size()),
                            "choose a size from 1 to the target's vocabulary size");
  std::vector<std::int64_t> ids(counts.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto middle = ids.begin() + draft_size;
  std::partial_sort(ids.begin(), middle, ids.end(), [&](std::int64_t a, std::int64_t b) {
    const auto ca = counts[static_cast<std::size_t>(a)], cb = counts[static_cast<std::size_t>(b)];
    return ca != cb ? ca > cb : a < b;
  });
  ids.erase(middle, ids.end());
  std::sort(ids.begin(), ids.end());

  VocabMap map;
  map.counts.assign(counts.begin(), counts.end());
  map.t2d.assign(counts.size(), 0);
  map.d2t.reserve(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    map.d2t.push_back(ids[i] - static_cast<std::int64_t>(i));
    map.t2d[static_cast<std::size_t>(ids[i])] = 1;
  }
  return map;
}

void check_vocab_map(const VocabMap& map, std::string_view origin) {
  const auto target = map.target_size();
  if (map.d2t.empty()) throw DataError(fmt::format("{}: d2t is empty", origin));
  if (map.draft_size() > target)
    throw DataError(fmt::format("{}: d2t has {} entries, but the target has {} tokens", origin, map.draft_size(), target));
  if (std::any_of(map.t2d.begin(), map.t2d.end(), [](std::uint8_t v) { return v > 1; }))
    throw DataError(fmt::format("{}: t2d holds values other than 0 and 1", origin));
  if (!map.counts.empty() && map.counts.size() != map.t2d.size())
    throw DataError(fmt::format("{}: {} counts for {} tokens", origin, map.counts.size(), target));

  std::vector<std::int64_t> ids(map.d2t.size());
  for (std::size_t i = 0; i < ids.size(); ++i)  // wraps instead of overflowing: entries come from anywhere
    ids[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(map.d2t[i]) + i);
  const bool offsets = ascending(ids, target);
  if (offsets && marks(map.t2d, ids)) return;

  // Another convention stores the target ids themselves. Only t2d can tell when both readings give rising ids.
  if (ascending(map.d2t, target) && (!offsets || marks(map.t2d, map.d2t)))
    throw DataError(fmt::format("{}: d2t holds absolute ids, not offsets (target id minus draft id)", origin),
                    "subtract i from entry i");
  if (offsets) throw DataError(fmt::format("{}: t2d does not mark the same tokens as d2t", origin));
  std::int64_t last = -1;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] <= last || ids[i] >= target)
      throw DataError(fmt::format("{}: entry {} of d2t maps to target id {}, which is {}", origin, i, ids[i],
                                  ids[i] < 0 || ids[i] >= target ? fmt::format("outside [0, {})", target)
                                                                 : fmt::format("not above the one before ({})", last)));
    last = ids[i];
  }
}

VocabMap read_vocab_map(const std::filesystem::path& path) {
  const auto file = SafetensorsFile::open(path);
  VocabMap map;
  map.d2t = read_vector<std::int64_t>(file, "d2t", Dtype::i64);
  map.t2d = read_vector<std::uint8_t>(file, "t2d", Dtype::boolean);
  if (file.contains("counts")) map.counts = read_vector<std::int64_t>(file, "counts", Dtype::i64);
  check_vocab_map(map, path.string());
  return map;
}

void write_vocab_map(const std::filesystem::path& path, const VocabMap& map) {
  check_vocab_map(map, path.string());
  std::vector<TensorToWrite> tensors{{"d2t", Dtype::i64, {map.draft_size()}, std::as_bytes(std::span(map.d2t))},
                                     {"t2d", Dtype::boolean, {map.target_size()}, std::as_bytes(std::span(map.t2d))}};
  if (!map.counts.empty()) tensors.push_back({"counts", Dtype::i64, {map.target_size()}, std::as_bytes(std::span(map.counts))});
  write_safetensors(path, tensors);
}

std::string vocab_hash(const VocabMap& map) {
  base::Xxh3 hash;
  hash.update(fmt::format("[{},{}]\n", map.draft_size(), map.target_size()));
  hash.update(std::as_bytes(std::span(map.d2t)));
  hash.update(std::as_bytes(std::span(map.t2d)));
  return hash.digest128();
}

}  // namespace aerie::interchange
