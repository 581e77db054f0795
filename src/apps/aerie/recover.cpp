// SPDX-License-Identifier: Apache-2.0
// `aerie recover`: reads the whole store and sets what is damaged back to be done again: bad samples alone, parts that are lost
// or damaged beyond their samples as a whole. Nothing that verifies is touched.
#include <aerie/base/error.hpp>
#include <aerie/base/log.hpp>
#include <aerie/config/config.hpp>
#include <aerie/io/store_writer.hpp>
#include <aerie/io/verify.hpp>
#include <aerie/report/ledger.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "command_line.hpp"
#include "commands.hpp"
#include "run_lock.hpp"
#include "shell_word.hpp"

namespace aerie::apps {
namespace {
namespace fs = std::filesystem;

struct Damage {
  std::map<std::int64_t, std::string> samples;              // of parts that are otherwise whole: what is wrong with each
  std::int64_t torn = 0;                                    // records that read as pending already, in such parts
  std::set<std::int64_t> parts;                             // lost, or damaged beyond their samples
  std::vector<std::string> leftovers;                       // temporary files
  bool marker = false;                                      // COMPLETE alone
  std::vector<std::pair<std::string, std::string>> beyond;  // what cannot be mended here: file, text
};

std::optional<std::int64_t> part_index(const std::string& file, std::int64_t parts) {
  long long index = 0;
  if (std::sscanf(file.c_str(), "parts/part-%lld.h5", &index) != 1) return std::nullopt;
  if (index < 0 || index >= parts || file != fmt::format("parts/part-{:05d}.h5", index)) return std::nullopt;
  return index;
}

/// What a killed creation or finalize leaves.
bool is_leftover(const std::string& file) {
  static const std::regex ours(R"((parts/part-\d{5}\.h5\.tmp|(manifest\.json|COMPLETE)\.tmp.*))");
  return std::regex_match(file, ours);
}

Damage sort_out(const io::VerifyReport& report, bool lost) {
  Damage d;
  const auto parts = static_cast<std::int64_t>(report.parts.size());
  for (const auto& f : report.findings) {
    const auto part = part_index(f.file, parts);
    if (part && f.sample >= 0) continue;  // below, when it is known which parts are made again as a whole
    if (part && f.code == base::ExitCode::missing_input) {
      if (lost)
        d.parts.insert(*part);
      else
        d.beyond.emplace_back(f.file, f.text + " (is its file system mounted? If it is lost for good: aerie recover --lost)");
    } else if (part && f.code == base::ExitCode::data) {
      d.parts.insert(*part);
    } else if (f.file == "COMPLETE" && f.code == base::ExitCode::data) {
      d.marker = true;
    } else if (is_leftover(f.file)) {
      d.leftovers.push_back(f.file);
    } else {
      d.beyond.emplace_back(f.file, f.text);  // unreadable, no store to speak of, or not this store's
    }
  }
  for (const auto& f : report.findings) {
    const auto part = part_index(f.file, parts);
    if (!part || f.sample < 0 || d.parts.contains(*part)) continue;
    if (f.pending)
      ++d.torn;
    else
      d.samples[f.sample] = f.text;  // also one whose place on the disk cannot be read
  }
  return d;
}

io::VerifyReport check(const fs::path& store, int threads) {
  io::VerifyOptions options;
  options.full = true;
  options.threads = threads;
  std::optional<base::Progress> progress;
  options.progress = [&](std::int64_t done, std::int64_t total) {
    if (!progress) progress.emplace("verify", "tokens", total);
    progress->update(done);
  };
  return io::verify_store(store, options);
}

/// What extraction and verification said about the store holds no longer.
void reopen_phases(report::Ledger& ledger, const base::Json& evidence) {
  const auto state = report::replay(ledger.read());
  for (const auto phase : {report::Phase::extract, report::Phase::verify}) {
    const auto found = state.phases.find(phase);
    if (found != state.phases.end() && found->second.state != report::PhaseState::pending)
      ledger.phase(phase, report::PhaseState::interrupted, evidence);
  }
}

}  // namespace

int command_recover(int argc, char** argv) {
  CLI::App app("Checks the whole store of a run and sets what is damaged back to be done again.", "aerie recover");
  std::string run;
  bool dry_run = false, lost = false;
  int threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 8U));
  app.add_option("RUN,--run", run, "the run directory")->required();
  app.add_flag("--dry-run", dry_run, "only say what would be done");
  app.add_flag("--lost", lost, "parts that are missing are lost for good: make them again");
  app.add_option("--threads", threads, "threads that read")->check(CLI::Range(1, 1024));
  if (!parse_command_line(app, argc, argv)) return 0;

  const auto config = config::load(run);
  const auto store = config.store_dir();
  const auto locks = config.run.locks == "none" ? io::Locks::none : io::Locks::fcntl;
  std::optional<base::FileLock> lock;
  if (!dry_run) lock = lock_run(config, base::FileLock::Mode::exclusive, "aerie recover");
  const auto report = check(store, threads);
  const auto damage = sort_out(report, lost);
  const auto& n = report.counts;
  auto verified = n.done - static_cast<std::int64_t>(damage.samples.size());
  for (const auto p : damage.parts)
    verified -= report.parts.at(static_cast<std::size_t>(p)).at("counts").at("done").get<std::int64_t>();
  print(fmt::format(
      "{} of {} samples done and verified, {} failed, {} to do (samples that are damaged, {}, or in damaged parts, {}, included)",
      verified, n.total, n.failed, n.total - verified - n.failed, damage.samples.size(), damage.parts.size()));
  for (const auto& f : report.findings) print(fmt::format("FAULT {}: {}", f.file, f.text));
  if (!damage.beyond.empty())
    throw base::Error(report.code(), fmt::format("{}: {}", damage.beyond[0].first, damage.beyond[0].second),
                      "this cannot be mended here: look at the disk, or restore the file");
  if (report.findings.empty()) return print("nothing to mend"), 0;
  if (dry_run) return print("dry run: nothing was changed"), 0;

  for (const auto p : damage.parts) io::set_part_aside(store, p, holder_text("aerie recover"), locks);
  std::vector<std::int64_t> samples;
  for (const auto& entry : damage.samples) samples.push_back(entry.first);
  const auto reopened = io::reopen_damaged(store, samples, holder_text("aerie recover"), locks);
  for (const auto& file : damage.leftovers) fs::remove(store / file);
  if (damage.marker) io::remove_complete_marker(store);
  report::Ledger ledger(config.run_dir);
  const base::Json evidence{{"reopened", reopened},
                            {"parts_set_aside", damage.parts},
                            {"leftovers_removed", damage.leftovers},
                            {"verified", verified},
                            {"reason", "aerie recover found damage in the store"}};
  ledger.evidence("recover", evidence);
  reopen_phases(ledger, evidence);
  std::string left;  // their bytes are what was written: doing them again would write the same
  for (const auto& [sample, text] : damage.samples)
    if (!std::binary_search(reopened.begin(), reopened.end(), sample))
      left += fmt::format("{}sample {}: {}", left.empty() ? "" : "; ", sample, text);
  if (!left.empty())
    throw base::DataError("not mended, for the bytes are those that were written: " + left,
                          "the dataset or the target is at fault: correct it and make a new store");
  print(fmt::format("{} samples set back, {} with torn records to do anyway, {} parts set aside; `aerie run {}` does them again",
                    reopened.size(), damage.torn, damage.parts.size(), shell_word(config.run_dir.string())));
  return 0;
}

}  // namespace aerie::apps
