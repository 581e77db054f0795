// SPDX-License-Identifier: Apache-2.0
#include "prepare.hpp"

#include <aerie/base/error.hpp>
#include <aerie/dataset/dataset.hpp>
#include <aerie/report/ledger.hpp>

#include <array>
#include <chrono>
#include <cstdlib>

#include <fmt/format.h>
#include <unistd.h>

#include "phase_inputs.hpp"

namespace aerie::apps {
namespace {
namespace fs = std::filesystem;
const fs::path source_tree = AERIE_SOURCE_DIR;

fs::path find_tool() {
  const auto here = program_directory();
  // Installed beside this program, in the source tree above the build tree, or in the source tree this was built from.
  for (const auto& p : {here / "aerie-prepare", here / "../../../tools/aerie-prepare", source_tree / "tools/aerie-prepare"})
    if (fs::exists(p)) return fs::canonical(p);
  throw base::MissingInputError((here / "aerie-prepare").string() + ": no such file", "install aerie-prepare beside aerie");
}
std::string find_python() {
  if (const char* p = std::getenv("AERIE_PYTHON"); p && *p) return p;
  const auto venv = source_tree / ".deps/venv/bin/python";
  return ::access(venv.c_str(), X_OK) == 0 ? venv.string() : "python3";
}

ChildResult prepare_one(const config::Config& c, const fs::path& conversations, const fs::path& out, std::int64_t limit) {
  if (!out.parent_path().empty()) fs::create_directories(out.parent_path());
  std::vector<std::string> argv{find_python(),  find_tool().string(),   conversations.string(),
                                "--target",     c.target.path.string(), "--out",
                                out.string(),   "--max-length",         fmt::format("{}", c.dataset.max_length),
                                "--overlength", c.dataset.overlength};
  if (!c.dataset.chat_template.empty()) argv.insert(argv.end(), {"--chat-template", c.dataset.chat_template.string()});
  if (limit > 0) argv.insert(argv.end(), {"--limit", fmt::format("{}", limit)});
  return run_child(argv, {});
}

base::Json describe(const fs::path& file) {
  const auto data = dataset::Dataset::open(file);
  std::array<std::int64_t, 8> by_reason{};
  for (std::int64_t i = 0; i < data.size(); ++i) ++by_reason.at(static_cast<std::size_t>(data.reject(i)));
  base::Json rejected = base::Json::object();
  for (std::size_t r = 1; r < by_reason.size(); ++r)
    if (by_reason[r] > 0) rejected[std::string(io::reason_name(static_cast<io::FailReason>(r)))] = by_reason[r];
  return {{"samples", data.size()},
          {"usable", by_reason[0]},
          {"rejected", rejected},
          {"tokens", data.n_tokens()},
          {"truncated", data.n_truncated()},
          {"dataset_hash", data.hash()},
          {"tokenizer_hash", data.tokenizer_hash()}};
}
}  // namespace

fs::path program_directory() { return fs::read_symlink("/proc/self/exe").parent_path(); }

ChildResult prepare_datasets(const config::Config& c) {
  const auto start = std::chrono::steady_clock::now();
  report::Ledger ledger(c.run_dir);
  const bool given =
      !c.dataset.path.empty() && fs::exists(c.dataset.path);  // a dataset made elsewhere, by `aerie import` for example
  if (!given && c.dataset.conversations.empty())
    throw base::ConfigError("neither dataset.conversations nor dataset.path is set", "name the conversations in aerie.toml");
  ledger.phase(report::Phase::prepare, report::PhaseState::running);
  ChildResult result;
  if (!given) result = prepare_one(c, c.dataset.conversations, c.dataset_file(), c.dataset.limit);
  const bool eval_given = !c.eval.path.empty() && fs::exists(c.eval.path);
  if (result.code == 0 && !c.eval.conversations.empty() && !eval_given)
    result = prepare_one(c, c.eval.conversations, c.eval_file(), 0);
  if (result.code != 0) {
    ledger.phase(report::Phase::prepare, result.asked ? report::PhaseState::interrupted : report::PhaseState::failed,
                 {{"exit_code", result.code}});
    return result;
  }
  auto evidence = describe(c.dataset_file());
  if (!c.eval.conversations.empty() || !c.eval.path.empty()) evidence["eval"] = describe(c.eval_file());
  evidence["inputs"] = phase_inputs(c, report::Phase::prepare);
  evidence["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ledger.phase(report::Phase::prepare, report::PhaseState::complete, evidence);
  return result;
}

}  // namespace aerie::apps
