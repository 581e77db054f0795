// SPDX-License-Identifier: Apache-2.0
// Keys as CLI11 options, and the TOML file as CLI11's configuration file. Works with CLI11 2.1 and 2.4.
#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>

#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "keys.hpp"
#include "nearest.hpp"
#include "toml_reader.hpp"

namespace aerie::config {
namespace {

// CLI11 decides on the file before --run is bound, and its default name is fixed. So the default is a file that always opens, and
// the reader looks at the options itself: --config, else RUN/aerie.toml, else nothing.
constexpr const char* always_there = "/dev/null";

class TomlFile : public CLI::Config {
 public:
  TomlFile(const CLI::App* app, aerie::config::Config& config) : app_(app), config_(config) {}
  std::string to_config(const CLI::App*, bool, bool, std::string) const override { return {}; }  // commented_toml() writes files
  std::vector<CLI::ConfigItem> from_config(std::istream&) const override {
    const auto path = file();
    std::vector<CLI::ConfigItem> out;
    if (path.empty()) return out;
    for (auto& entry : parse_toml(read(path), path.string())) {
      if (entry.values.empty()) {
        empty_list(entry, path.string());
        continue;
      }
      CLI::ConfigItem item;
      item.name = std::move(entry.key);
      item.inputs = std::move(entry.values);
      out.push_back(std::move(item));
    }
    return out;
  }

 private:
  // CLI11 asks for at least one value. The flag, if given, overwrites this later.
  void empty_list(const Entry& entry, const std::string& origin) const {
    for (const auto& key : keys(config_)) {
      if (key.name != entry.key) continue;
      std::visit(
          [&](auto* value) {
            if constexpr (
                requires { value->push_back({}); } && !requires { value->c_str(); }) {
              value->clear();
            } else {
              throw base::ConfigError(fmt::format("{}:{}: {} must not be empty", origin, entry.line, entry.key));
            }
          },
          key.value);
    }
  }
  static std::string read(const std::filesystem::path& path) {
    if (std::filesystem::exists(path)) return base::read_text(path);
    throw base::MissingInputError(fmt::format("{}: no such file", path.string()),
                                  "make a run with `aerie init RUN --target DIR --conversations FILE`");
  }
  std::filesystem::path file() const {
    if (app_->remaining_size() > 0)
      return {};  // an unknown flag, whose value may have been taken for RUN: it ends the program anyway
    const auto config = app_->get_option("--config")->results();
    if (!config.empty() && config.back() != always_there) return config.back();
    const auto run = app_->get_option("--run")->results();
    return run.empty() ? std::filesystem::path{} : std::filesystem::path(run.back()) / "aerie.toml";
  }
  const CLI::App* app_;
  aerie::config::Config& config_;
};

template <class T>
void add(CLI::App& app, const Key& key, T* value) {
  const auto name = "--" + key.name;
  CLI::Option* option = nullptr;
  if constexpr (std::is_same_v<T, bool>) {
    option = app.add_flag(name, *value, key.comment);
  } else if constexpr (std::is_same_v<T, std::filesystem::path>) {
    option = app.add_option_function<std::string>(
        name, [value](const std::string& text) { *value = text; }, key.comment);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
    option = app.add_option(name, *value, key.comment);
  } else {  // lists: 1,2,3 as one argument, so that a flag never swallows what stands behind it
    using Element = typename T::value_type;
    const bool fixed = std::is_same_v<T, std::array<double, 2>>;
    const auto name_of_key = key.name;
    option = app.add_option_function<std::vector<Element>>(
        name,
        [value, fixed, name_of_key](const std::vector<Element>& list) {
          if (fixed && list.size() != 2) throw base::ConfigError(fmt::format("{} must be a list of 2 numbers", name_of_key));
          if constexpr (std::is_same_v<T, std::array<double, 2>>)
            std::copy(list.begin(), list.end(), value->begin());
          else
            *value = list;
        },
        key.comment);
    option->delimiter(',')->allow_extra_args(false)->type_name("LIST");
  }
  const auto section = key.name.substr(0, key.name.find('.'));
  option->group("[" + section + "]");
}

/// The first argument that looks like the unknown flag of a parse error, without its dashes and value.
std::string unknown_flag(const CLI::ExtrasError& e) {
  const std::string text = e.what();
  const auto at = text.find("--");
  if (at == std::string::npos) return {};
  const auto end = text.find_first_of(" =,", at);
  return text.substr(at + 2, end == std::string::npos ? end : end - at - 2);
}

std::string nearest_flag(const CLI::App& app, const std::string& flag) {
  std::vector<std::string> full, last;
  for (const auto* option : app.get_options())
    for (const auto& name : option->get_lnames()) {
      full.push_back(name);
      last.push_back(name.substr(name.find('.') == std::string::npos ? 0 : name.find('.') + 1));
    }
  const auto whole = nearest_of(flag, full);
  const auto part = nearest_of(flag, last);  // `--steps` means --train.steps
  if (edit_distance(flag, whole) <= edit_distance(flag, part)) return whole;
  return full[static_cast<std::size_t>(std::find(last.begin(), last.end(), part) - last.begin())];
}

}  // namespace

void add_options(CLI::App& app, Config& config) {
  app.add_option_function<std::string>(
      "RUN,--run", [&config](const std::string& dir) { config.run_dir = dir; }, "the run directory");
  app.config_formatter(std::make_shared<TomlFile>(&app, config));
  app.set_config("--config", always_there, "configuration file; default: RUN/aerie.toml");
  app.allow_config_extras(CLI::config_extras_mode::error);
  for (const auto& key : keys(config)) std::visit([&](auto* value) { add(app, key, value); }, key.value);
}

void parse(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, const_cast<char**>(argv));  // CLI11 2.1 takes char**; it does not write
  } catch (const CLI::Success&) {               // --help
    throw;
  } catch (const CLI::ExtrasError& e) {
    const auto flag = unknown_flag(e);
    if (flag.empty()) throw base::ConfigError(e.what(), "`--help` shows what is known");
    throw base::ConfigError(fmt::format("unknown flag '--{}'", flag),
                            fmt::format("did you mean '--{}'?", nearest_flag(app, flag)));
  } catch (const CLI::ParseError& e) {
    throw base::ConfigError(e.what(), "`--help` shows what is known");
  }
}

void set_key(Config& config, const std::string& assignment) {
  const auto equals = assignment.find('=');
  const auto trim = [](std::string text) {
    const auto a = text.find_first_not_of(" \t"), b = text.find_last_not_of(" \t");
    return a == std::string::npos ? std::string() : text.substr(a, b - a + 1);
  };
  const auto name = trim(assignment.substr(0, equals));
  if (equals == std::string::npos)
    throw base::ConfigError(fmt::format("'{}' is not section.key=value", assignment), "for example train.steps=100");
  const auto all = keys(config);
  if (std::none_of(all.begin(), all.end(), [&](const Key& k) { return k.name == name; }))
    throw base::ConfigError(fmt::format("unknown key '{}'", name), fmt::format("did you mean '{}'?", nearest_key(name)));
  auto value = trim(assignment.substr(equals + 1));
  try {  // as it would stand in the file: quotes, brackets
    const auto entries = parse_toml(name + " = " + value, "value");
    value.clear();
    for (const auto& v : entries.at(0).values) value += (value.empty() ? "" : ",") + v;
  } catch (const base::ConfigError&) {  // or as it would stand behind a flag
  }
  CLI::App app;
  add_options(app, config);
  const auto flag = fmt::format("--{}={}", name, value);
  const char* const argv[] = {"aerie", flag.c_str()};
  parse(app, 2, argv);
}

Config load(const std::filesystem::path& run_dir) {
  Config config;
  CLI::App app;
  add_options(app, config);
  const std::string run = run_dir.string();
  const char* const argv[] = {"aerie", "--run", run.c_str()};
  parse(app, 3, argv);
  validate(config);
  return config;
}

}  // namespace aerie::config
