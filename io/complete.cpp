// SPDX-License-Identifier: Apache-2.0
// COMPLETE: what finalize found, tied to the manifest by its hash.
#include <cerrno>

#include <fmt/format.h>
#include <unistd.h>

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/hash.hpp>
#include <aerie/base/host.hpp>
#include <aerie/base/version.hpp>

#include "complete.hpp"
#include "manifest.hpp"

namespace aerie::io {

base::Json counts_json(const Counts& c) {
  base::Json reasons = base::Json::object();
  for (std::size_t r = 1; r < c.by_reason.size(); ++r)
    reasons[std::string(reason_name(static_cast<FailReason>(r)))] = c.by_reason[r];
  return {{"total", c.total},
          {"pending", c.pending},
          {"done", c.done},
          {"failed", c.failed},
          {"torn", c.torn},
          {"by_reason", reasons},
          {"done_tokens", c.done_tokens},
          {"total_tokens", c.total_tokens}};
}

std::filesystem::path complete_path(const std::filesystem::path& store) { return store / "COMPLETE"; }

void remove_complete_marker(const std::filesystem::path& store) {
  if (::unlink(complete_path(store).c_str()) == 0)
    base::fsync_directory(store);
  else if (errno != ENOENT)
    base::throw_errno(errno, "remove " + complete_path(store).string());
}

void write_complete_marker(const std::filesystem::path& store, const CompleteMarker& marker) {
  base::remove_temporaries(complete_path(store));  // of a process that was killed
  auto hash = marker.manifest_hash;
  if (hash.empty()) hash = base::xxh3_128_tagged(base::read_text(manifest_path(store)));
  const base::Json j{{"schema", "aerie-store-complete"},
                     {"schema_version", 1},
                     {"manifest_hash", hash},
                     {"counts", counts_json(marker.counts)},
                     {"verification", marker.verification},
                     {"time", base::utc_now()},
                     {"producer", base::producer()}};
  base::publish_text(complete_path(store), j.dump(1) + "\n");
}

std::optional<std::string> complete_marker_problem(const std::filesystem::path& store, const std::string& manifest_hash,
                                                   const Counts* counts) {
  try {
    const auto j = base::read_json(complete_path(store));
    if (j.at("schema") != "aerie-store-complete" || j.at("schema_version") != 1) return "is of another schema";
    if (j.at("manifest_hash") != manifest_hash) return "was written for another manifest";
    if (counts && j.at("counts") != counts_json(*counts)) return "does not agree with the records of the samples any more";
  } catch (const base::Json::exception& e) {
    return fmt::format("is damaged: {}", e.what());
  } catch (const base::DataError& e) {
    return fmt::format("is damaged: {}", e.what());
  }
  return std::nullopt;
}

bool complete_marker_holds(const Store& store) {
  if (!std::filesystem::exists(complete_path(store.path()))) return false;
  const auto counts = store.counts();
  return !complete_marker_problem(store.path(), store.manifest_hash(), &counts);
}

}  // namespace aerie::io
