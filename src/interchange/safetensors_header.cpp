// SPDX-License-Identifier: Apache-2.0
// Element types and the header parser. Headers come from anywhere: every number is checked before it is used, nesting and
// size are bounded, and all failures are DataErrors that name the file and the tensor.
#include <aerie/interchange/safetensors.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include <aerie/base/error.hpp>
#include <aerie/base/json.hpp>

#include <fmt/format.h>

namespace aerie::interchange {
namespace {
using base::DataError;
using base::Json;

constexpr std::uint64_t max_header_bytes = 100'000'000;
constexpr std::int64_t max_i64 = std::numeric_limits<std::int64_t>::max();

struct DtypeRow {
  Dtype dtype;
  std::string_view name;
  std::size_t size;
};
constexpr std::array<DtypeRow, 15> dtypes{{{Dtype::boolean, "BOOL", 1},
                                           {Dtype::u8, "U8", 1},
                                           {Dtype::i8, "I8", 1},
                                           {Dtype::f8_e4m3, "F8_E4M3", 1},
                                           {Dtype::f8_e5m2, "F8_E5M2", 1},
                                           {Dtype::i16, "I16", 2},
                                           {Dtype::u16, "U16", 2},
                                           {Dtype::f16, "F16", 2},
                                           {Dtype::bf16, "BF16", 2},
                                           {Dtype::i32, "I32", 4},
                                           {Dtype::u32, "U32", 4},
                                           {Dtype::f32, "F32", 4},
                                           {Dtype::i64, "I64", 8},
                                           {Dtype::u64, "U64", 8},
                                           {Dtype::f64, "F64", 8}}};

const DtypeRow& row(Dtype dtype) { return dtypes.at(static_cast<std::size_t>(dtype)); }

/// A JSON number that is a whole number in [0, 2^63); nothing otherwise (1.0 and 1e3 are not whole numbers in this format).
bool whole(const Json& value, std::int64_t& out) {
  if (!value.is_number_unsigned()) return false;
  const auto v = value.get<std::uint64_t>();
  if (v > static_cast<std::uint64_t>(max_i64)) return false;
  out = static_cast<std::int64_t>(v);
  return true;
}

/// Refuses what a header never has, while parsing: deep nesting (costs memory) and a name that comes twice (the last would win).
Json parse_guarded(std::string_view text, std::string_view origin) {
  std::set<std::string> seen;
  const Json::parser_callback_t guard = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > 3) throw DataError(fmt::format("{}: safetensors header is nested too deeply", origin));
    if (event == Json::parse_event_t::key && depth == 1 && !seen.insert(parsed.get<std::string>()).second)
      throw DataError(fmt::format("{}: tensor '{}' appears twice in the header", origin, parsed.get<std::string>()));
    return true;
  };
  try {
    return Json::parse(text, guard);
  } catch (const Json::exception& e) {
    throw DataError(fmt::format("{}: safetensors header is not valid JSON: {}", origin, e.what()),
                    "the file is damaged or of another format");
  }
}

TensorInfo parse_tensor(const Json& value, std::int64_t data_start, std::int64_t data_bytes, const std::string& name,
                        std::string_view origin) {
  const auto fail = [&](const std::string& why) { return DataError(fmt::format("{}: tensor '{}': {}", origin, name, why)); };
  if (!value.is_object()) throw fail("entry is not an object");
  const auto dtype = value.find("dtype"), shape = value.find("shape"), offsets = value.find("data_offsets");
  if (dtype == value.end() || !dtype->is_string()) throw fail("no dtype");
  if (shape == value.end() || !shape->is_array()) throw fail("no shape");
  if (offsets == value.end() || !offsets->is_array() || offsets->size() != 2) throw fail("data_offsets is not a pair");

  TensorInfo info;
  const auto type = std::find_if(dtypes.begin(), dtypes.end(),
                                 [&](const DtypeRow& r) { return r.name == dtype->get_ref<const std::string&>(); });
  if (type == dtypes.end()) throw fail(fmt::format("unknown dtype '{}'", dtype->get_ref<const std::string&>()));
  info.dtype = type->dtype;

  // The product is checked with zero sizes left out, so that [0, 2^62, 2^62] is refused as every reader of the format does.
  std::int64_t size = static_cast<std::int64_t>(type->size);
  bool empty = false;
  for (const auto& d : *shape) {
    std::int64_t n = 0;
    if (!whole(d, n)) throw fail("shape holds something other than a whole number that is not negative");
    info.shape.push_back(n);
    if (n == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(size, n, &size)) {
      throw fail("shape overflows 64 bits");
    }
  }
  if (empty) size = 0;

  std::int64_t begin = 0, end = 0;
  if (!whole((*offsets)[0], begin) || !whole((*offsets)[1], end))
    throw fail("data_offsets holds something other than whole numbers");
  if (begin > end) throw fail(fmt::format("data_offsets [{}, {}) run backwards", begin, end));
  if (end > data_bytes) throw fail(fmt::format("data ends at {}, but the file holds {} bytes of data", end, data_bytes));
  if (end - begin != size) throw fail(fmt::format("{} bytes in data_offsets, but shape and dtype need {}", end - begin, size));
  info.begin = data_start + begin;
  info.end = data_start + end;
  return info;
}

/// Sorted by place, tensors must touch: the first starts where the data start, each where the one before ends.
void check_coverage(const std::map<std::string, TensorInfo>& tensors, std::int64_t data_start, std::int64_t file_bytes,
                    std::string_view origin) {
  std::vector<const std::pair<const std::string, TensorInfo>*> order;
  order.reserve(tensors.size());
  for (const auto& t : tensors) order.push_back(&t);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  std::int64_t at = data_start;
  for (const auto* t : order) {
    if (t->second.begin < at) throw DataError(fmt::format("{}: tensor '{}' overlaps another one", origin, t->first));
    if (t->second.begin > at)
      throw DataError(fmt::format("{}: hole of {} bytes in front of tensor '{}'", origin, t->second.begin - at, t->first));
    at = t->second.end;
  }
  if (at != file_bytes)
    throw DataError(fmt::format("{}: {} bytes at the end of the file belong to no tensor", origin, file_bytes - at));
}
}  // namespace

std::size_t dtype_size(Dtype dtype) { return row(dtype).size; }
std::string_view dtype_name(Dtype dtype) { return row(dtype).name; }
Dtype dtype_from_name(std::string_view name) {
  for (const auto& r : dtypes)
    if (r.name == name) return r.dtype;
  throw DataError(fmt::format("unknown safetensors dtype '{}'", name));
}

std::int64_t TensorInfo::elements() const {
  std::int64_t n = 1;
  for (const auto d : shape) n *= d;
  return n;
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> head, std::int64_t file_bytes, std::string_view origin) {
  if (file_bytes < 8 || head.size() < 8)
    throw DataError(fmt::format("{}: {} bytes are too few for a safetensors file", origin, file_bytes), "the file is cut short");
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | std::to_integer<std::uint64_t>(head[static_cast<std::size_t>(i)]);
  if (length > max_header_bytes)
    throw DataError(fmt::format("{}: header length {} is above the limit of 100 MB", origin, length),
                    "this is no safetensors file, or it is damaged");
  if (length > static_cast<std::uint64_t>(file_bytes - 8) || length > head.size() - 8)
    throw DataError(fmt::format("{}: header length {} reaches past the end of the file ({} bytes)", origin, length, file_bytes),
                    "the file is cut short");
  const std::string_view text(reinterpret_cast<const char*>(head.data()) + 8, length);
  if (text.empty() || text.front() != '{')
    throw DataError(fmt::format("{}: safetensors header does not start with '{{'", origin));

  const Json json = parse_guarded(text, origin);
  const auto data_start = static_cast<std::int64_t>(8 + length);
  SafetensorsHeader header;
  for (const auto& [name, value] : json.items()) {
    if (name == "__metadata__") {
      if (!value.is_object()) throw DataError(fmt::format("{}: __metadata__ is not an object", origin));
      for (const auto& [key, entry] : value.items()) {
        if (!entry.is_string()) throw DataError(fmt::format("{}: __metadata__ '{}' is not a string", origin, key));
        header.metadata.emplace(key, entry.get<std::string>());
      }
    } else {
      header.tensors.emplace(name, parse_tensor(value, data_start, file_bytes - data_start, name, origin));
    }
  }
  check_coverage(header.tensors, data_start, file_bytes, origin);
  return header;
}

}  // namespace aerie::interchange
