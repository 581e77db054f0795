// SPDX-License-Identifier: Apache-2.0
#include "preflight_phase.hpp"

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/hash.hpp>
#include <aerie/base/host.hpp>
#include <aerie/base/log.hpp>
#include <aerie/base/version.hpp>
#include <aerie/preflight/preflight.hpp>

#include <cstdio>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "version_record.hpp"

namespace aerie::apps {
namespace {
/// The build and the libraries it loaded here. This program's bytes and its siblings' sizes tell two builds of one version apart.
std::string version_here() {
  namespace fs = std::filesystem;
  auto text = version_record().dump() + base::read_text("/proc/self/exe");
  for (const auto* sibling : {"aerie", "aerie-extract", "aerie-train", "aerie-eval", "aerie-export"}) {
    std::error_code none;
    const auto size = fs::file_size(fs::read_symlink("/proc/self/exe").parent_path() / sibling, none);
    text += fmt::format(" {} {}", sibling, none ? 0 : size);
  }
  return fmt::format("{}, {}", base::producer(), base::xxh3_128_tagged(text));
}
}  // namespace

int preflight_phase(const ProgramContext& context, const PreflightFlags& flags) {
  preflight::Request request;
  request.run = context.config.run_dir;
  request.version = version_here();
  request.locks = context.config.run.locks != "none";
  request.nodes = flags.nodes;
  if (const auto end = stop::StopToken::end_time_from_environment()) request.seconds_left = *end - base::unix_now();
  request.warning_s = flags.warning_s;
  const auto findings = preflight::examine(context.world, request, [&] {
    if (context.stop.agree(context.world) == stop::Request::stop)  // collective over world
      throw base::StopRequested("stopped in preflight: " + context.stop.reason(), "run the same command again");
  });
  const bool ok = preflight::all_ok(findings);
  if (context.world.is_root()) {
    std::fputs((context.json ? preflight::to_json(findings).dump(1) + "\n" : preflight::format_table(findings)).c_str(), stdout);
    std::fflush(stdout);
    // Where the run directory is the trouble the record has no place; the table has told it.
    const auto error = base::capture([&] {
      context.ledger.phase(report::Phase::preflight, ok ? report::PhaseState::complete : report::PhaseState::failed,
                           preflight::to_json(findings));
    });
    if (error) base::log_warning(error->what());
  }
  if (ok) return 0;
  for (const auto& f : findings) {
    if (f.ok) continue;
    const auto exclude = f.hosts.empty() ? "" : fmt::format("; or submit with --exclude={}", fmt::join(f.hosts, ","));
    throw base::Error(base::ExitCode::preflight, fmt::format("preflight: {}: {}", f.check, f.text), f.advice + exclude);
  }
  return 0;
}

}  // namespace aerie::apps
