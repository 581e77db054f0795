// SPDX-License-Identifier: Apache-2.0
#include "lease.hpp"

#include <algorithm>
#include <cerrno>
#include <map>

#include <fcntl.h>
#include <fmt/format.h>

#include <aerie/base/error.hpp>
#include <aerie/base/host.hpp>
#include <aerie/io/store_writer.hpp>

#include "complete.hpp"

namespace aerie::io {
namespace {

[[noreturn]] void refuse_leased(const std::filesystem::path& store, std::int64_t part) {
  const auto other = base::FileLock::holder(lock_path(store, part));
  throw base::RefusedError(
      fmt::format("{}: leased by {}", (store / part_file(part)).string(), other.empty() ? "an unknown process" : other),
      "wait for that job, or stop it");
}

void write_pending(const base::File& file, const PartLayout& layout, const std::vector<std::int64_t>& indices) {
  const Record pending{};
  for (const auto j : indices) base::pwrite_full(file, std::as_bytes(std::span(&pending, 1)), layout.state + 16 * j);
  if (!indices.empty()) base::fdatasync_file(file);  // before any row is written again
}

}  // namespace

std::string default_holder() {
  const auto me = base::this_process();
  return fmt::format("job {} host {} {}", me.job.empty() ? "-" : me.job, me.host, base::pid_text(me));
}

std::optional<base::FileLock> lease_part(const std::filesystem::path& store, std::int64_t part, const std::string& holder,
                                         Locks locks) {
  if (locks == Locks::none) return std::nullopt;
  const auto path = lock_path(store, part);
  if (auto lock = base::FileLock::try_acquire(path, base::FileLock::Mode::exclusive, holder)) return lock;
  refuse_leased(store, part);
}

std::optional<base::FileLock> join_part(const std::filesystem::path& store, std::int64_t part, Locks locks) {
  if (locks == Locks::none) return std::nullopt;
  if (auto lock = base::FileLock::try_acquire(lock_path(store, part), base::FileLock::Mode::shared, {})) return lock;
  refuse_leased(store, part);
}

OwnedPart take_over(const Store::Impl& store, std::int64_t part, std::int64_t group_bytes, std::int64_t group_samples,
                    const std::function<void(const std::string&)>& log) {
  const auto p = static_cast<std::size_t>(part);
  const auto& info = store.manifest.parts[p];
  const auto& layout = store.layouts[p];
  const auto per_token = bytes_per_token(store.manifest.identity);
  auto file = base::open_file(store.dir / info.file, O_RDWR);
  sync_before_trust(file);                                // after a kill a record may be in the page cache only
  ::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED);  // after a write error the cache may hold what the disk never got
  const auto records = read_records(file, layout, info.n);

  OwnedPart out;
  out.states.resize(records.size());
  std::vector<std::int64_t> bad;
  std::int64_t bytes_left = 0, samples_left = 0;
  bool in_run = false;
  for (auto j = info.n - 1; j >= 0; --j) {
    auto& state = out.states[static_cast<std::size_t>(j)];
    state = decode(info.first + j, records[static_cast<std::size_t>(j)]).state;
    if (state.kind == StateKind::failed) continue;  // no rows: neither in a run nor the end of one
    if (state.kind != StateKind::done) {
      in_run = false;
      continue;
    }
    if (!in_run) bytes_left = group_bytes, samples_left = group_samples;
    in_run = true;
    if (bytes_left <= 0 || samples_left <= 0) continue;
    bytes_left -= layout.rows(j) * per_token;
    --samples_left;
    const auto found = stored_hash(file, layout, j);
    if (found == state.xxh3) continue;
    if (log)
      log(fmt::format("{}: sample {}: checksum is {:016x}, its record says {:016x}; it is pending again", file.path().string(),
                      info.first + j, found, state.xxh3));
    bad.push_back(j);
    out.reopened.push_back(info.first + j);
    state = {};
  }
  write_pending(file, layout, bad);
  file.close();
  std::sort(out.reopened.begin(), out.reopened.end());
  return out;
}

std::vector<std::int64_t> set_pending(const Store& store, std::span<const std::int64_t> samples, const std::string& holder,
                                      Locks locks) {
  const auto& impl = *StoreAccess::impl(store);
  std::map<std::int64_t, std::vector<std::int64_t>> by_part;
  for (const auto s : samples) {
    const auto p = impl.part_of(s);
    const auto j = s - impl.manifest.parts[static_cast<std::size_t>(p)].first;
    if (impl.layouts[static_cast<std::size_t>(p)].rows(j) == 0)
      throw base::DataError(fmt::format("{}: sample {} was rejected when the dataset was made; it has no rows to fill",
                                        impl.part_path(p).string(), s),
                            "correct the dataset and create a new store");
    by_part[p].push_back(j);
  }
  std::vector<std::optional<base::FileLock>> leases;
  for (const auto& entry : by_part)
    leases.push_back(lease_part(impl.dir, entry.first, holder.empty() ? default_holder() : holder, locks));
  std::vector<std::int64_t> set;
  for (const auto& [p, indices] : by_part) {
    const auto& part = impl.manifest.parts[static_cast<std::size_t>(p)];
    const auto& layout = impl.layouts[static_cast<std::size_t>(p)];
    auto file = base::open_file(impl.part_path(p), O_RDWR);
    const auto records = read_records(file, layout, part.n);
    std::vector<std::int64_t> unchanged;
    for (const auto j : indices) {
      const auto now = decode(part.first + j, records[static_cast<std::size_t>(j)]).state;
      const auto& seen = impl.states[static_cast<std::size_t>(part.first + j)];
      if (now.kind != seen.kind || now.reason != seen.reason || now.xxh3 != seen.xxh3) continue;
      unchanged.push_back(j);
      set.push_back(part.first + j);
    }
    if (!unchanged.empty()) remove_complete_marker(impl.dir);
    write_pending(file, layout, unchanged);
    file.close();
  }
  std::sort(set.begin(), set.end());
  return set;
}

std::vector<std::int64_t> reopen_damaged(const std::filesystem::path& store, std::span<const std::int64_t> samples,
                                         const std::string& holder, Locks locks) {
  const auto manifest = load_manifest(store);
  std::vector<std::int64_t> out;
  for (std::size_t p = 0; p < manifest.parts.size(); ++p) {
    const auto& part = manifest.parts[p];
    std::vector<std::int64_t> here;
    for (const auto s : samples)
      if (s >= part.first && s < part.first + part.n) here.push_back(s - part.first);
    if (here.empty()) continue;
    const auto index = static_cast<std::int64_t>(p);
    const auto lease = lease_part(store, index, holder.empty() ? default_holder() : holder, locks);
    const auto layout = check_part(store, manifest, index, [&](const std::string& text) {
      throw base::DataError(fmt::format("{}: {}", (store / part.file).string(), text));
    });
    auto file = base::open_file(store / part.file, O_RDWR);
    const auto records = read_records(file, layout, part.n);
    std::vector<std::int64_t> bad;
    for (const auto j : here) {
      const auto state = decode(part.first + j, records[static_cast<std::size_t>(j)]).state;
      if (state.kind != StateKind::done) continue;
      bool good = false;
      if (const auto error = base::capture([&] { good = stored_hash(file, layout, j) == state.xxh3; });
          error && error->code() != base::ExitCode::io)
        throw base::Error(*error);  // what cannot be read is damaged
      if (good) continue;
      bad.push_back(j);
      out.push_back(part.first + j);
    }
    if (!bad.empty()) remove_complete_marker(store);
    write_pending(file, layout, bad);
    file.close();
  }
  return out;
}

void use_up_set_aside(const std::filesystem::path& store, std::int64_t part) {
  const auto bad = set_aside_path(store, part);
  if (!std::filesystem::exists(bad)) return;
  for (int n = 1;; ++n) {
    const std::filesystem::path to = bad.string() + "." + std::to_string(n);
    if (std::filesystem::exists(to)) continue;
    base::rename_durable(bad, to);
    return;
  }
}

std::filesystem::path set_part_aside(const std::filesystem::path& store, std::int64_t part, const std::string& holder,
                                     Locks locks) {
  const auto lease = lease_part(store, part, holder.empty() ? default_holder() : holder, locks);
  const auto path = store / part_file(part), bad = set_aside_path(store, part);
  remove_complete_marker(store);
  use_up_set_aside(store, part);  // an older one is kept under another name
  if (std::filesystem::exists(path)) {
    base::rename_durable(path, bad);
  } else {  // gone: an empty file says that it is to be made again
    auto mark = base::open_file(bad, O_WRONLY | O_CREAT);
    base::fsync_file(mark);
    mark.close();
    base::fsync_directory(bad.parent_path());
  }
  return bad;
}

std::vector<std::int64_t> leased_parts(const Store& store) {
  std::vector<std::int64_t> out;
  for (std::int64_t p = 0; p < static_cast<std::int64_t>(store.parts().size()); ++p) {
    const auto path = lock_path(store.path(), p);
    if (!std::filesystem::exists(path)) continue;
    const auto file = base::open_file(path, O_RDWR);
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    if (::fcntl(file.fd(), F_OFD_GETLK, &lock) != 0) base::throw_errno(errno, "ask for the lock " + path.string());
    if (lock.l_type != F_UNLCK) out.push_back(p);
  }
  return out;
}

}  // namespace aerie::io
