// SPDX-License-Identifier: Apache-2.0
// Values as text (TOML, command line) and JSON, and the commented aerie.toml.
#include <aerie/base/error.hpp>

#include <type_traits>

#include <fmt/format.h>

#include "keys.hpp"

namespace aerie::config {
namespace {
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char ch : text) {
    const auto u = static_cast<unsigned char>(ch);
    if (ch == '"' || ch == '\\')
      out += {'\\', ch};
    else if (u < 0x20 || u == 0x7f)
      out += fmt::format("\\u{:04X}", static_cast<unsigned>(u));
    else
      out += ch;
  }
  return out + '"';
}
std::string real(double value) {
  auto text = fmt::format("{}", value);  // the shortest text that reads back as the same double
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}
struct Toml {
  std::string operator()(const std::string& v) const { return quoted(v); }
  std::string operator()(double v) const { return real(v); }
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  template <class I>
  std::string operator()(I v) const {
    return fmt::format("{}", v);
  }
};
struct Flag : Toml {
  using Toml::operator();
  std::string operator()(const std::string& v) const { return v; }
};
template <class T>
concept Scalar = std::is_arithmetic_v<T> || std::is_same_v<T, std::string>;

template <class Form>
std::string text_of(const Value& value, const Form& form, std::string_view open, std::string_view separator,
                    std::string_view close) {
  return std::visit(
      [&](auto* v) -> std::string {
        using T = std::remove_pointer_t<decltype(v)>;
        if constexpr (Scalar<T>) {
          return form(*v);
        } else if constexpr (std::is_same_v<T, std::filesystem::path>) {
          return form(v->string());
        } else {
          std::string out(open);
          for (std::size_t i = 0; i < v->size(); ++i) out += (i == 0 ? "" : std::string(separator)) + form((*v)[i]);
          return out + std::string(close);
        }
      },
      value);
}
}  // namespace

std::string toml_text(const Value& value) { return text_of(value, Toml{}, "[", ", ", "]"); }
std::string flag_text(const Value& value) { return text_of(value, Flag{}, "", ",", ""); }

base::Json json_value(const Value& value) {
  return std::visit(
      [](auto* v) -> base::Json {
        if constexpr (std::is_same_v<std::remove_pointer_t<decltype(v)>, std::filesystem::path>)
          return v->string();
        else
          return *v;
      },
      value);
}

std::string commented_toml(const Config& config) {
  Config copy = config;
  const auto all = keys(copy);
  std::string out =
      "# Configuration of an aerie run. Every key is also a flag: --train.steps 100; flags beat this file.\n"
      "# Relative paths are taken from the working directory of the program.\n";
  for (const auto& section : sections()) {
    out += fmt::format("\n# {}\n[{}]\n", section.comment, section.name);
    const auto prefix = fmt::format("{}.", section.name);
    for (const auto& key : all) {
      if (!key.name.starts_with(prefix)) continue;
      out +=
          fmt::format("{:<40} # {}\n", fmt::format("{} = {}", key.name.substr(prefix.size()), toml_text(key.value)), key.comment);
    }
  }
  return out;
}

std::vector<std::string> differing_flags(const Config& base, const Config& other) {
  Config from = base, to = other;
  const auto a = keys(from), b = keys(to);
  std::vector<std::string> out;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (json_value(a[i].value) != json_value(b[i].value)) out.push_back(fmt::format("--{}={}", b[i].name, flag_text(b[i].value)));
  return out;
}

}  // namespace aerie::config
