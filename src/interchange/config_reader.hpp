// SPDX-License-Identifier: Apache-2.0
// Typed access to config.json: a missing key and null are the same thing, and every complaint names file and key.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <aerie/base/error.hpp>
#include <aerie/base/json.hpp>

namespace aerie::interchange {

class ConfigReader {
 public:
  ConfigReader(const base::Json& object, std::string origin) : object_(object), origin_(std::move(origin)) {
    if (!object_.is_object()) throw base::DataError(origin_ + ": not a JSON object");
  }
  const base::Json& json() const { return object_; }
  const std::string& origin() const { return origin_; }

  /// The value, or nullptr when the key is missing or null.
  const base::Json* find(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  /// Whether the key is written at all, null included.
  bool has(const char* key) const { return object_.contains(key); }

  std::optional<std::int64_t> integer(const char* key) const {
    const auto* v = find(key);
    if (!v) return std::nullopt;
    if (!v->is_number_integer()) throw bad(key, "is not a whole number");
    return v->get<std::int64_t>();
  }
  std::optional<double> number(const char* key) const {
    const auto* v = find(key);
    if (!v) return std::nullopt;
    if (!v->is_number()) throw bad(key, "is not a number");
    return v->get<double>();
  }
  std::optional<bool> boolean(const char* key) const {
    const auto* v = find(key);
    if (!v) return std::nullopt;
    if (!v->is_boolean()) throw bad(key, "is neither true nor false");
    return v->get<bool>();
  }
  std::optional<std::string> text(const char* key) const {
    const auto* v = find(key);
    if (!v) return std::nullopt;
    if (!v->is_string()) throw bad(key, "is not a string");
    return v->get<std::string>();
  }
  /// A whole number from 1 to 2^31-1 (so that products of two cannot overflow). Missing: `fallback`, or an error when there is
  /// none.
  std::int64_t size(const char* key, std::optional<std::int64_t> fallback = std::nullopt) const {
    const auto v = integer(key);
    const auto n = v ? v : fallback;
    if (!n) throw bad(key, "is missing");
    if (*n < 1) throw bad(key, "is below 1");
    if (*n > 2147483647) throw bad(key, "is above 2^31 - 1");
    return *n;
  }
  /// One id or a list of ids.
  std::vector<std::int64_t> ids(const char* key) const {
    const auto* v = find(key);
    if (!v) return {};
    std::vector<std::int64_t> out;
    for (const auto& e : v->is_array() ? *v : base::Json::array({*v})) {
      if (!e.is_number_integer()) throw bad(key, "holds something other than token ids");
      out.push_back(e.get<std::int64_t>());
    }
    return out;
  }
  base::DataError bad(const char* key, const std::string& why, std::string hint = {}) const {
    return base::DataError(origin_ + ": " + key + " " + why, std::move(hint));
  }

 private:
  const base::Json& object_;
  std::string origin_;
};

}  // namespace aerie::interchange
