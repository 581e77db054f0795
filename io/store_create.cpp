// SPDX-License-Identifier: Apache-2.0
// Creation: parts first, the manifest last. Without a manifest there is no store, so a creation that was cut short starts over,
// unless what lies there could hold somebody's states.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <aerie/base/error.hpp>
#include <aerie/base/fault.hpp>
#include <aerie/base/host.hpp>
#include <aerie/base/log.hpp>
#include <aerie/base/version.hpp>
#include <aerie/io/store.hpp>

#include "lease.hpp"
#include "manifest.hpp"
#include "part.hpp"

namespace aerie::io {
namespace {

using base::RefusedError;
namespace fs = std::filesystem;

/// Several jobs may start on a run at the same moment; one creates, the others wait and find it done.
base::FileLock lock_creation(const fs::path& dir) {
  const auto path = dir / "locks" / "create.lock";
  const auto me = base::this_process();
  const auto text = fmt::format("job {} host {} {}", me.job.empty() ? "-" : me.job, me.host, base::pid_text(me));
  for (int i = 0; i < 1200; ++i) {
    if (auto lock = base::FileLock::try_acquire(path, base::FileLock::Mode::exclusive, text)) return std::move(*lock);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  throw RefusedError(fmt::format("{}: the store is being created by {}", dir.string(), base::FileLock::holder(path)),
                     "wait for it to end");
}

/// Throws RefusedError unless every record of a part that no manifest knows is as creation leaves it.
void refuse_if_used(const fs::path& path) {
  const char* hint = "move the directory away if its states are not needed; put manifest.json back if they are";
  const auto refuse = [&](const std::string& why) {
    throw RefusedError(fmt::format("{}: the store has no manifest.json, but this part {}", path.string(), why), hint);
  };
  try {
    const auto file = ContiguousFile::open(path);
    const auto records = file.read_all<Record>("state");
    const auto ids = file.read_all<std::int64_t>("sample_id");
    for (std::size_t j = 0; j < records.size(); ++j) {
      const auto s = decode(j < ids.size() ? ids[j] : -1, records[j]).state;
      if (s.kind == StateKind::done) refuse(fmt::format("holds sample {}, which is done", ids[j]));
      if (s.kind == StateKind::failed && !is_planning_reason(s.reason))
        refuse(fmt::format("holds sample {}, which failed at extraction", ids[j]));
    }
  } catch (const base::DataError& e) {
    refuse(fmt::format("cannot be read, so that it cannot be said to be unused ({})", e.what()));
  }
}

/// Under the creation's lock: parts of a creation that was cut short, and its manifest that was not yet renamed.
void clear_leftovers(const fs::path& dir) {
  const auto parts = dir / "parts";
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(parts)) files.push_back(entry.path());
  for (const auto& f : files)
    if (f.extension() == ".h5") refuse_if_used(f);
  for (const auto& f : files)
    if (f.extension() == ".h5" || f.extension() == ".tmp") fs::remove(f);
  base::remove_temporaries(manifest_path(dir));
}

/// All parts together must fit before the first is made: fallocate finds a full disk too, but not before HDF5 has written the
/// part's index, and HDF5 cannot give up a file whose metadata did not reach the disk (1.10 then crashes when MPI ends).
void demand_space(const fs::path& dir, std::span<const PartInfo> parts, const StoreIdentity& identity) {
  constexpr std::int64_t index_bytes = 8 + 8 + 16, part_overhead = 256 << 10;
  std::int64_t need = static_cast<std::int64_t>(parts.size()) * part_overhead;
  for (const auto& p : parts) need += p.tokens * bytes_per_token(identity) + p.n * index_bytes;
  const auto available = static_cast<std::int64_t>(fs::space(dir).available);
  if (available < need)
    base::throw_errno(
        ENOSPC, fmt::format("create {} parts in {}: {} bytes needed, {} available", parts.size(), dir.string(), need, available));
}

/// A few threads, because each part waits for its own fsync; HDF5 itself is entered by one at a time.
void create_parts(const fs::path& dir, Manifest& m, std::span<const PlannedSample> samples) {
  demand_space(dir, m.parts, m.identity);
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&] {
    try {
      for (std::size_t i; (i = next++) < m.parts.size();) {
        const auto& p = m.parts[i];
        create_part(dir, m, static_cast<std::int64_t>(i),
                    samples.subspan(static_cast<std::size_t>(p.first), static_cast<std::size_t>(p.n)));
        if (const int e = base::fault_point("store.part_created")) base::throw_errno(e, "create " + p.file);
      }
    } catch (...) {
      next = m.parts.size();  // the others end after the part they are at
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t t = 1; t < std::min<std::size_t>(8, m.parts.size()); ++t) threads.emplace_back(work);
  work();
  for (auto& t : threads) t.join();
  if (error) std::rethrow_exception(error);
}

/// Parts that were set aside, made again with the same bytes outside their rows. One job makes them, others wait for it.
void recreate_parts(const fs::path& dir, const Manifest& m, std::span<const PlannedSample> samples, Locks locks) {
  std::vector<std::int64_t> wanted;
  for (std::size_t i = 0; i < m.parts.size(); ++i)
    if (!fs::exists(dir / m.parts[i].file) && fs::exists(set_aside_path(dir, static_cast<std::int64_t>(i))))
      wanted.push_back(static_cast<std::int64_t>(i));
  if (wanted.empty()) return;
  std::optional<base::FileLock> lock;
  if (locks == Locks::fcntl) lock = lock_creation(dir);
  for (const auto index : wanted) {
    const auto promised = m.parts[static_cast<std::size_t>(index)];
    if (fs::exists(dir / promised.file)) continue;  // another job was faster
    auto again = m;
    again.parts[static_cast<std::size_t>(index)].meta_xxh3.clear();
    demand_space(dir, std::span(&promised, 1), m.identity);
    create_part(dir, again, index,
                samples.subspan(static_cast<std::size_t>(promised.first), static_cast<std::size_t>(promised.n)), &promised);
    base::fsync_directory(dir / "parts");
    use_up_set_aside(dir, index);
    base::log_info(fmt::format("{} was made again; its {} samples are to do", promised.file, promised.n));
  }
}

void compare_existing(const fs::path& dir, const StoreIdentity& identity, std::span<const PlannedSample> samples, Locks locks) {
  auto m = load_manifest(dir);
  auto lines = Store::differences(m.identity, identity);
  const auto hash = plan_hash(samples, plan_parts(m.identity, samples, m.part_bytes));  // the store keeps its part size
  if (m.plan_hash != hash) {
    if (m.n_samples != static_cast<std::int64_t>(samples.size()))
      lines.push_back(fmt::format("n_samples: store {}, expected {}", m.n_samples, samples.size()));
    lines.push_back(fmt::format("plan_hash: store {}, expected {}", m.plan_hash, hash));
  }
  if (!lines.empty())
    throw RefusedError(fmt::format("{}: the store was made for something else: {}", dir.string(), fmt::join(lines, "; ")),
                       "use another run directory, or go back to the configuration that made this store");
  try {
    recreate_parts(dir, m, samples, locks);
  } catch (const fs::filesystem_error& e) {
    throw base::IoError(e.what(), "check free space and permissions");
  }
}

}  // namespace

void Store::create(const fs::path& dir, const StoreIdentity& identity, std::span<const PlannedSample> samples,
                   std::int64_t part_bytes, Locks locks) {
  Manifest m;
  m.identity = identity;
  if (m.identity.producer.empty()) m.identity.producer = base::producer();
  m.parts = plan_parts(identity, samples, part_bytes);
  if (exists(dir)) return compare_existing(dir, identity, samples, locks);

  const auto parts = dir / "parts";
  try {
    fs::create_directories(parts);
    fs::create_directories(dir / "locks");
    std::optional<base::FileLock> lock;
    if (locks == Locks::fcntl) lock = lock_creation(dir);
    if (exists(dir)) return compare_existing(dir, identity, samples, locks);
    clear_leftovers(dir);
    m.uuid = random_uuid();
    m.part_bytes = part_bytes;
    m.n_samples = static_cast<std::int64_t>(samples.size());
    m.plan_hash = plan_hash(samples, m.parts);
    for (auto& p : m.parts) {
      m.n_tokens += p.tokens;
      p.uuid = random_uuid();
    }
    try {
      create_parts(dir, m, samples);
    } catch (...) {  // gives a full disk its space back; nothing in these parts has been written by anybody
      std::error_code ignored;
      for (const auto& p : m.parts) fs::remove(dir / p.file, ignored);
      throw;
    }
    base::fsync_directory(parts);
    base::fsync_directory(dir / "locks");
    base::fsync_directory(dir);
    if (const int e = base::fault_point("store.before_manifest")) base::throw_errno(e, "create " + manifest_path(dir).string());
    base::publish_text(manifest_path(dir), manifest_text(m));
    base::fsync_directory(dir.parent_path());
  } catch (const fs::filesystem_error& e) {
    throw base::IoError(e.what(), "check free space and permissions");
  }
}

}  // namespace aerie::io
