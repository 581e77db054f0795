// SPDX-License-Identifier: Apache-2.0
// Phase verify: complete means verified, and missing samples are missing by decision only.
#include <aerie/base/error.hpp>
#include <aerie/base/host.hpp>
#include <aerie/base/log.hpp>
#include <aerie/io/verify.hpp>
#include <aerie/report/commit_clock.hpp>
#include <aerie/report/status.hpp>

#include <algorithm>
#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "command_line.hpp"
#include "phase_inputs.hpp"
#include "phases.hpp"
#include "store_view.hpp"

namespace aerie::apps {
namespace {
void demand_clean(const config::Config& c, const io::VerifyReport& found) {
  if (found.findings.empty()) return;
  for (std::size_t i = 0; i < std::min<std::size_t>(20, found.findings.size()); ++i)
    base::log_error(found.findings[i].file + ": " + found.findings[i].text);
  throw base::Error(
      found.code(),
      fmt::format("{}: {} faults, the first: {}", c.store_dir().string(), found.findings.size(), found.findings[0].text),
      fmt::format("`aerie verify {} --full` lists all", shell_word(c.run_dir.string())));
}

/// status.json while checksums are read: how far, how fast, and whether it still gets on.
class VerifyReports {
 public:
  explicit VerifyReports(const config::Config& c) : status_(c.run_dir), clock_(0, base::unix_now()), start_(base::unix_now()) {
    update(0, 0);
  }
  void update(std::int64_t done, std::int64_t total) {
    const auto now = base::unix_now();
    clock_.advance(done, now);
    base::Json snapshot{{"phase", "verify"}, {"done", done}, {"total", total}, {"unit", "tokens"}};
    if (done > 0 && now > start_) {
      const double rate = static_cast<double>(done) / (now - start_);
      snapshot["rate"] = rate;
      snapshot["eta_s"] = static_cast<double>(total - done) / rate;
    }
    clock_.add_to(snapshot);
    status_.update(snapshot);
  }

 private:
  report::StatusFile status_;
  report::CommitClock clock_;
  double start_;
};
}  // namespace

void finalize_store(const config::Config& c) {
  const auto start = std::chrono::steady_clock::now();
  if (!io::Store::exists(c.store_dir()))
    throw base::MissingInputError((c.store_dir() / "manifest.json").string() + ": no store yet", "run aerie-extract first");
  report::Ledger ledger(c.run_dir);
  ledger.phase(report::Phase::verify, report::PhaseState::running);
  std::size_t damaged = 0;
  try {
    io::VerifyOptions options;
    options.full = true;
    options.threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 8U));
    VerifyReports reports(c);
    options.progress = [&](std::int64_t done, std::int64_t total) { reports.update(done, total); };
    const auto found = io::verify_store(c.store_dir(), options);
    damaged = found.findings.size();
    demand_clean(c, found);
    auto view = view_store(c);
    view->store.refresh();  // COMPLETE must not outlive records that are in the page cache only
    view->counts = view->store.counts();
    demand_settled(c, *view);
    io::write_complete_marker(c.store_dir(), {view->counts, {}, "full"});
    const auto& n = view->counts;
    const auto accepted = n.failed - view->excluded;
    ledger.phase(report::Phase::verify, report::PhaseState::complete,
                 {{"samples", n.total},
                  {"done", n.done},
                  {"excluded", view->excluded},
                  {"accepted_missing", accepted},
                  {"verification", "full"},
                  {"bytes_hashed", found.bytes_hashed},
                  {"store_uuid", view->store.uuid()},
                  {"inputs", phase_inputs(c, report::Phase::verify)},
                  {"tokens", n.done_tokens},
                  {"seconds", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()}});
    base::log_info(fmt::format("store verified: {} samples done, {} excluded by rule, {} missing by decision, {} read", n.done,
                               view->excluded, accepted, base::format_bytes(static_cast<double>(found.bytes_hashed))));
  } catch (const base::Error& e) {
    ledger.phase(report::Phase::verify, report::PhaseState::failed,
                 {{"exit_code", static_cast<int>(e.code())}, {"reason", e.what()}, {"damaged", damaged}});
    throw;
  }
}

}  // namespace aerie::apps
