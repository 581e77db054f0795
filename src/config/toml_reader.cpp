// SPDX-License-Identifier: Apache-2.0
#include "toml_reader.hpp"

#include <aerie/base/error.hpp>

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <toml++/toml.h>

#include "keys.hpp"
#include "nearest.hpp"

namespace aerie::config {
namespace {

enum class Type { integer, real, boolean, text };
struct Expected {
  Type type;
  bool list;
};
Expected expected_of(const Value& value) {
  struct Visitor {
    Expected operator()(std::int64_t*) const { return {Type::integer, false}; }
    Expected operator()(std::uint64_t*) const { return {Type::integer, false}; }
    Expected operator()(double*) const { return {Type::real, false}; }
    Expected operator()(bool*) const { return {Type::boolean, false}; }
    Expected operator()(std::string*) const { return {Type::text, false}; }
    Expected operator()(std::filesystem::path*) const { return {Type::text, false}; }
    Expected operator()(std::vector<std::int32_t>*) const { return {Type::integer, true}; }
    Expected operator()(std::vector<std::int64_t>*) const { return {Type::integer, true}; }
    Expected operator()(std::vector<double>*) const { return {Type::real, true}; }
    Expected operator()(std::vector<std::string>*) const { return {Type::text, true}; }
    Expected operator()(std::array<double, 2>*) const { return {Type::real, true}; }
  };
  return std::visit(Visitor{}, value);
}
std::string describe(Expected e) {
  static constexpr std::string_view one[] = {"an integer", "a number", "true or false", "a text in quotes"};
  static constexpr std::string_view many[] = {"integers", "numbers", "booleans", "texts in quotes"};
  const auto i = static_cast<std::size_t>(e.type);
  return e.list ? fmt::format("a list of {}", many[i]) : std::string(one[i]);
}

/// The value as CLI11 reads it back, or nothing when the type is another one.
std::optional<std::string> scalar_text(const toml::node& node, Type type) {
  switch (type) {
    case Type::integer:
      if (const auto* v = node.as_integer()) return fmt::format("{}", v->get());
      break;
    case Type::real:
      if (const auto* v = node.as_floating_point()) return fmt::format("{}", v->get());
      if (const auto* v = node.as_integer()) return fmt::format("{}", v->get());
      break;
    case Type::boolean:
      if (const auto* v = node.as_boolean()) return v->get() ? "true" : "false";
      break;
    case Type::text:
      if (const auto* v = node.as_string()) return v->get();
      break;
  }
  return std::nullopt;
}

class Reader {
 public:
  explicit Reader(const std::string& origin) : origin_(origin) {
    for (const auto& k : keys(defaults_)) expected_.emplace(k.name, expected_of(k.value));
  }
  void walk(const toml::table& table, const std::string& prefix) {
    for (const auto& [name, node] : table) {
      const std::string key = prefix + std::string(name.str());
      if (const auto* inner = node.as_table(); inner && !expected_.contains(key))
        section(*inner, key, line_of(node));
      else
        leaf(key, node);
    }
  }
  std::vector<Entry> take() {
    std::stable_sort(out_.begin(), out_.end(), [](const Entry& a, const Entry& b) { return a.line < b.line; });
    return std::move(out_);
  }

 private:
  static int line_of(const toml::node& node) { return static_cast<int>(node.source().begin.line); }
  [[noreturn]] void fail(int line, const std::string& what, std::string hint = {}) const {
    throw base::ConfigError(fmt::format("{}:{}: {}", origin_, line, what), std::move(hint));
  }
  void section(const toml::table& inner, const std::string& key, int line) {
    const bool known = std::any_of(sections().begin(), sections().end(), [&](const auto& s) { return s.name == key; });
    if (!known && inner.empty()) {
      std::vector<std::string> names;
      for (const auto& s : sections()) names.emplace_back(s.name);
      fail(line, fmt::format("unknown section [{}]", key), fmt::format("did you mean [{}]?", nearest_of(key, names)));
    }
    walk(inner, key + ".");
  }
  void leaf(const std::string& key, const toml::node& node) {
    const auto found = expected_.find(key);
    const int line = line_of(node);
    if (found == expected_.end())
      fail(line, fmt::format("unknown key '{}'", key), fmt::format("did you mean '{}'?", nearest_key(key)));
    Entry entry{key, {}, line};
    const auto wrong = [&] { fail(line, fmt::format("{} must be {}", key, describe(found->second))); };
    if (found->second.list) {
      const auto* array = node.as_array();
      if (!array) wrong();
      for (const auto& element : *array) entry.values.push_back(text_or(element, found->second.type, wrong));
    } else {
      entry.values.push_back(text_or(node, found->second.type, wrong));
    }
    out_.push_back(std::move(entry));
  }
  template <class F>
  static std::string text_or(const toml::node& node, Type type, const F& wrong) {
    auto text = scalar_text(node, type);
    if (!text) wrong();
    return *std::move(text);
  }

  std::string origin_;
  Config defaults_;
  std::map<std::string, Expected> expected_;
  std::vector<Entry> out_;
};

}  // namespace

std::vector<Entry> parse_toml(std::string_view text, const std::string& origin) {
  toml::table root;
  try {
    root = toml::parse(text, origin);
  } catch (const toml::parse_error& e) {
    throw base::ConfigError(fmt::format("{}:{}: {}", origin, e.source().begin.line, e.description()),
                            "the file must be TOML 1.0");
  }
  Reader reader(origin);
  reader.walk(root, "");
  return reader.take();
}

}  // namespace aerie::config
