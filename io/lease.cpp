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

namespace aerie::io {
namespace {

void write_pending(const base::File& file, const PartLayout& layout, const std::vector<std::int64_t>& indices) {
  const Record pending{};
  for (const auto j : indices) base::pwrite_full(file, std::as_bytes(std::span(&pending, 1)), layout.state + 16 * j);
  if (!indices.empty()) base::fdatasync_file(file);  // before any row is written again
}

}  // namespace

std::string default_holder() {
  const auto me = base::this_process();
  return fmt::format("job {} host {} pid {}", me.job.empty() ? "-" : me.job, me.host, me.pid);
}

base::FileLock lease_part(const Store::Impl& store, std::int64_t part, const std::string& holder) {
  const auto path = lock_path(store.dir, part);
  if (auto lock = base::FileLock::try_acquire(path, base::FileLock::Mode::exclusive, holder)) return std::move(*lock);
  const auto other = base::FileLock::holder(path);
  throw base::RefusedError(
      fmt::format("{}: leased by {}", store.part_path(part).string(), other.empty() ? "an unknown process" : other),
      "wait for that job, or stop it");
}

OwnedPart take_over(const Store::Impl& store, std::int64_t part, std::int64_t group_bytes, std::int64_t group_samples,
                    const std::function<void(const std::string&)>& log) {
  const auto p = static_cast<std::size_t>(part);
  const auto& info = store.manifest.parts[p];
  const auto& layout = store.layouts[p];
  const auto per_token = bytes_per_token(store.manifest.identity);
  auto file = base::open_file(store.dir / info.file, O_RDWR);
  sync_before_trust(file);  // after a kill a record may be in the page cache only
  const auto records = read_records(file, layout, info.n);

  OwnedPart out;
  out.states.resize(records.size());
  std::vector<std::int64_t> bad;
  std::int64_t bytes_left = 0, samples_left = 0;
  bool in_run = false;
  for (auto j = info.n - 1; j >= 0; --j) {
    auto& state = out.states[static_cast<std::size_t>(j)];
    state = decode(info.first + j, records[static_cast<std::size_t>(j)]).state;
    if (state.kind != StateKind::done) {
      in_run = false;
      continue;
    }
    if (!in_run) bytes_left = group_bytes, samples_left = group_samples;
    in_run = true;
    if (bytes_left <= 0 || samples_left <= 0) continue;
    bytes_left -= layout.rows(j) * per_token;
    --samples_left;
    const auto found = stored_hash(file, layout, j, store.manifest.identity.hidden_size);
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

void set_pending(const Store& store, std::span<const std::int64_t> samples, const std::string& holder) {
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
  std::vector<base::FileLock> leases;
  for (const auto& entry : by_part) leases.push_back(lease_part(impl, entry.first, holder.empty() ? default_holder() : holder));
  for (const auto& [p, indices] : by_part) {
    auto file = base::open_file(impl.part_path(p), O_RDWR);
    write_pending(file, impl.layouts[static_cast<std::size_t>(p)], indices);
    file.close();
  }
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
