// SPDX-License-Identifier: Apache-2.0
// One StopToken per process: signals (USR2, USR1, TERM), the file RUN/stop and the clock (AERIE_END_TIME). Polled in every loop
// longer than a second. The handler sets one flag and does nothing else.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <aerie/comm/comm.hpp>

namespace aerie::stop {

/// Creates the empty file that AERIE_READY_FILE names, if it names one: a job script passes no warning on before, for a signal in
/// the middle of a launch hits the launcher and the site's prologs. Call it when every process of the program has its handlers
/// (after MPI_Init: on one rank). Never throws: without the file the script passes a warning on later, and takes a death for a
/// launch that failed.
void announce_ready() noexcept;

enum class Request : std::int64_t { none = 0, save_now = 1, stop = 2 };

class StopToken {
 public:
  /// Installs the handlers (call before MPI starts; they stay until the process ends) and unblocks their signals, so that one
  /// that came before, to a program started with them blocked, is seen.
  static void install_handlers();

  /// `run` may be empty (no files are looked at). Only `watches_files` ranks (rank 0) look at files and clock, at most every
  /// `look_interval_s`. An end time in the past is reported and not obeyed.
  StopToken(std::filesystem::path run, bool watches_files, std::optional<double> end_time_unix = end_time_from_environment(),
            double look_interval_s = 2.0);

  /// This process's own view; cheap. Once stop, always stop. save_now stays until save_done().
  Request poll();
  /// The largest request of all ranks. After a stop every rank's reason() names who saw it. Collective over `comm`.
  Request agree(const comm::Comm& comm);
  /// Local; throws StopRequested (exit 75) when poll() says stop. For loops outside collectives.
  void throw_if_stopped();
  /// "signal USR2", "file RUN/stop", "time budget"
  std::string reason() const { return reason_; }
  /// Seconds that a stop needs before the end time (twice the save time, a step, a margin); the clock is compared with it.
  void set_lead_time(double seconds) { lead_s_ = seconds; }
  /// Removes RUN/save-now after the save was made. Every rank may call it; only the rank that watches files removes.
  void save_done();
  /// AERIE_END_TIME in seconds since 1970. Nothing when unset or empty; text that is no number is reported and not obeyed.
  static std::optional<double> end_time_from_environment();

 private:
  void look_at_files_and_clock();
  std::filesystem::path run_;
  bool watches_files_;
  std::optional<double> end_time_;
  double look_interval_s_, lead_s_ = 30.0, last_look_ = -1e300;
  Request seen_ = Request::none;
  std::string reason_;
};

}  // namespace aerie::stop
