// SPDX-License-Identifier: Apache-2.0
#include "import_line.hpp"

#include <algorithm>
#include <limits>

#include <aerie/base/json.hpp>

#include <fmt/format.h>

namespace aerie::dataset {
namespace {
using base::Json;
using io::FailReason;

/// Why this line cannot be used.
struct Rejected {
  FailReason reason;
  std::string why;
};
[[noreturn]] void bad(std::string why) { throw Rejected{FailReason::bad_input, std::move(why)}; }

Json parse(std::string_view text) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& e) {
    bad(fmt::format("not valid JSON: {}", e.what()));
  }
}
std::string id_of(const Json& value, const std::string& fallback) {
  const auto it = value.is_object() ? value.find("id") : value.end();
  if (!value.is_object() || it == value.end()) return fallback;
  if (it->is_string() && !it->get_ref<const std::string&>().empty()) return it->get<std::string>();
  return it->is_number_integer() ? it->dump() : fallback;
}
const Json& list(const Json& value, const char* key) {
  const auto it = value.find(key);
  if (it == value.end()) bad(fmt::format("\"{}\" is missing", key));
  if (!it->is_array()) bad(fmt::format("\"{}\" is not a list", key));
  return *it;
}
/// Whatever does not fit in 63 bits is outside every vocabulary.
std::int64_t clamped(const Json& v) {
  if (v.is_number_unsigned()) return static_cast<std::int64_t>(std::min(v.get<std::uint64_t>(), std::uint64_t{1} << 62));
  return v.get<std::int64_t>();
}
std::vector<std::int64_t> read_ids(const Json& values) {
  std::vector<std::int64_t> out;
  out.reserve(values.size());
  for (const auto& v : values) {
    if (!v.is_number_integer()) bad(fmt::format("input_ids[{}] is not an integer", out.size()));
    out.push_back(clamped(v));
  }
  return out;
}
std::vector<std::uint8_t> read_mask(const Json& values) {
  std::vector<std::uint8_t> out;
  out.reserve(values.size());
  for (const auto& v : values) {
    if (!v.is_number_integer() && !v.is_boolean()) bad(fmt::format("loss_mask[{}] is not an integer", out.size()));
    const auto m = v.is_boolean() ? std::int64_t{v.get<bool>()} : clamped(v);
    if (m != 0 && m != 1) bad(fmt::format("loss_mask[{}] is {}, not 0 or 1", out.size(), m));
    out.push_back(static_cast<std::uint8_t>(m));
  }
  return out;
}

void fill(const Json& value, const ImportOptions& options, ImportedLine& out) {
  if (!value.is_object()) bad(fmt::format("a JSON object expected, found {}", value.type_name()));
  const auto& id_list = list(value, "input_ids");
  const auto& mask_list = list(value, "loss_mask");
  const auto ids = read_ids(id_list);
  auto mask = read_mask(mask_list);
  if (ids.size() != mask.size()) bad(fmt::format("{} input_ids but {} values in loss_mask", ids.size(), mask.size()));
  if (ids.empty()) throw Rejected{FailReason::empty, "no tokens"};
  const auto vocab = options.vocab_size > 0 ? options.vocab_size : std::int64_t{std::numeric_limits<std::int32_t>::max()} + 1;
  const auto outside = std::find_if(ids.begin(), ids.end(), [&](std::int64_t id) { return id < 0 || id >= vocab; });
  if (outside != ids.end())
    throw Rejected{FailReason::bad_token,
                   fmt::format("token {} is {}, outside the vocabulary of {}", outside - ids.begin(), *outside, vocab)};

  const auto n = static_cast<std::int64_t>(ids.size());
  auto kept = n;
  if (options.max_length > 0 && n > options.max_length) {
    if (options.overlength != Overlength::truncate)
      throw Rejected{FailReason::too_long, fmt::format("{} tokens, more than max_length {}", n, options.max_length)};
    kept = options.max_length;
    out.truncated = true;
    out.note = fmt::format("truncated from {} to {} tokens", n, kept);
  }
  mask.resize(static_cast<std::size_t>(kept));
  if (std::find(mask.begin(), mask.end(), 1) == mask.end())
    throw Rejected{FailReason::no_loss, "no token carries loss" + (out.truncated ? " (" + out.note + ")" : "")};
  out.tokens.mask = std::move(mask);
  out.tokens.ids.assign(ids.begin(), ids.begin() + kept);
}
}  // namespace

ImportedLine import_line(std::string_view text, const std::string& origin, const ImportOptions& options) {
  ImportedLine out;
  out.id = origin;
  try {
    const Json value = parse(text);
    out.id = id_of(value, origin);
    fill(value, options, out);
  } catch (const Rejected& r) {
    out.reject = r.reason;
    out.note = origin + ": " + r.why;
    out.truncated = false;
    out.tokens = {};
  }
  return out;
}

}  // namespace aerie::dataset
