// SPDX-License-Identifier: Apache-2.0
#include "recover_store.hpp"

#include <aerie/base/error.hpp>
#include <aerie/base/log.hpp>
#include <aerie/io/store_writer.hpp>
#include <aerie/io/verify.hpp>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <regex>
#include <set>

#include <fmt/format.h>

#include "command_line.hpp"
#include "read_rate.hpp"
#include "run_lock.hpp"

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

io::VerifyReport check(const fs::path& store, const MendOptions& how) {
  io::VerifyOptions options;
  options.full = !how.dry_run;
  options.threads = how.threads;
  std::optional<base::Progress> progress;
  options.progress = [&](std::int64_t done, std::int64_t total) {
    if (!progress) progress.emplace("verify", "tokens", total);
    progress->update(done);
  };
  return io::verify_store(store, options);
}

/// What a dry run leaves out.
std::string left_unread(std::int64_t bytes, double rate) {
  const auto n = static_cast<double>(bytes);
  return fmt::format(
      "--dry-run: checksums not read; {} to read, {}", base::format_bytes(n),
      rate > 0 ? fmt::format("about {} at the last known rate, {}/s", base::format_duration(n / rate), base::format_bytes(rate))
               : "no rate is known yet");
}

std::vector<std::int64_t> keys_of(const std::map<std::int64_t, std::string>& samples) {
  std::vector<std::int64_t> out;
  for (const auto& entry : samples) out.push_back(entry.first);
  return out;
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

Mended mend_store(const config::Config& config, report::Ledger& ledger, const MendOptions& options) {
  const auto store = config.store_dir();
  const auto locks = config.run.locks == "none" ? io::Locks::none : io::Locks::fcntl;
  const auto start = std::chrono::steady_clock::now();
  const auto report = check(store, options);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const auto damage = sort_out(report, options.lost);
  Mended out;
  out.counts = report.counts;
  out.bytes_hashed = report.bytes_hashed;
  out.bad = static_cast<std::int64_t>(damage.samples.size());
  for (const auto p : damage.parts)
    out.bad += report.parts.at(static_cast<std::size_t>(p)).at("counts").at("done").get<std::int64_t>();
  out.verified = report.counts.done - out.bad;
  out.missing = report.counts.total - out.verified - report.counts.failed;
  print(fmt::format("verify     {} of {} samples {}, {} bad, {} failed, {} missing", out.verified, report.counts.total,
                    options.dry_run ? "done by their records" : "verified", out.bad, report.counts.failed, out.missing));
  if (options.dry_run) print(fmt::format("{:<10} {}", "", left_unread(report.bytes_done, last_read_rate(ledger.read()))));
  for (const auto& f : report.findings) print(fmt::format("  FAULT    {}: {}", f.file, f.text));
  out.evidence = {{"verified", out.verified},     {"bad", out.bad},
                  {"total", report.counts.total}, {"failed", report.counts.failed},
                  {"missing", out.missing},       {"bytes_hashed", out.bytes_hashed},
                  {"seconds", took.count()},      {"findings", report.findings.size()},
                  {"by", "aerie verify --full"}};
  if (!damage.beyond.empty())
    throw base::Error(report.code(), fmt::format("{}: {}", damage.beyond[0].first, damage.beyond[0].second),
                      "this cannot be mended here: look at the disk, or restore the file");
  if (report.findings.empty() || options.dry_run) return out;
  // Recorded before anything is changed: a recovery that is cut short here must not leave mended damage that nobody knows of.
  ledger.evidence("damage",
                  {{"samples", keys_of(damage.samples)}, {"parts", damage.parts}, {"findings", report.findings.size()}});
  reopen_phases(ledger, out.evidence);

  for (const auto p : damage.parts) io::set_part_aside(store, p, holder_text("aerie recover"), locks);
  const auto reopened = io::reopen_damaged(store, keys_of(damage.samples), holder_text("aerie recover"), locks);
  for (const auto& file : damage.leftovers) fs::remove(store / file);
  if (damage.marker) io::remove_complete_marker(store);
  out.evidence["reopened"] = reopened;
  out.evidence["parts_set_aside"] = damage.parts;
  out.evidence["leftovers_removed"] = damage.leftovers;
  out.evidence["reason"] = "aerie recover found damage in the store";
  ledger.evidence("recover", out.evidence);
  std::string left;  // their bytes are what was written: doing them again would write the same
  for (const auto& [sample, text] : damage.samples)
    if (!std::binary_search(reopened.begin(), reopened.end(), sample))
      left += fmt::format("{}sample {}: {}", left.empty() ? "" : "; ", sample, text);
  if (!left.empty())
    throw base::DataError("not mended, for the bytes are those that were written: " + left,
                          "the dataset or the target is at fault: correct it and make a new store");
  print(fmt::format("  mended   {} samples set back, {} with torn records to do anyway, {} parts set aside", reopened.size(),
                    damage.torn, damage.parts.size()));
  return out;
}

}  // namespace aerie::apps
