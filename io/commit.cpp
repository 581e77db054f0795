// SPDX-License-Identifier: Apache-2.0
#include "commit.hpp"

#include <fcntl.h>

#include <aerie/base/error.hpp>
#include <aerie/base/fault.hpp>

namespace aerie::io {
namespace {

constexpr std::size_t max_open_parts = 64;

void pass(const char* name) {
  if (const int e = base::fault_point(name)) base::throw_errno(e, name);
}

}  // namespace

Committer::OpenPart& Committer::open(std::int64_t part) {
  auto& p = open_[part];
  if (!p.file) {
    p.file = base::open_file(store_->part_path(part), O_RDWR);
    if (policy_.write_mode == WriteMode::mpio)
      p.mpio = std::make_unique<MpioPart>(store_->part_path(part), store_->manifest.identity);
  }
  p.in_current = true;
  return p;
}

void Committer::add_record(std::int64_t part, std::int64_t index, const Record& record) {
  current_.records.push_back({part, index, record});
  current_.tokens += store_->layouts[static_cast<std::size_t>(part)].rows(index);
}

void Committer::add(std::int64_t sample, const StoredSample& data) {
  const auto part = store_->part_of(sample);
  const auto j = sample - store_->manifest.parts[static_cast<std::size_t>(part)].first;
  auto& p = open(part);
  const auto& layout = store_->layouts[static_cast<std::size_t>(part)];
  const auto extents = sample_extents(layout, j);
  const auto bytes = data.pieces();
  for (std::size_t i = 0; i < extents.size(); ++i) {
    base::expect(static_cast<std::int64_t>(bytes[i].size()) == extents[i].bytes, "a sample has the bytes that the plan gives it");
    if (!p.mpio) base::pwrite_full(p.file, bytes[i], extents[i].offset);
    p.written.push_back(extents[i]);
    current_.bytes += extents[i].bytes;
  }
  if (p.mpio) p.mpio->write(layout.row_offset[static_cast<std::size_t>(j)], data);
  // The disk begins now and not at the fdatasync; that one alone says whether all went well.
  for (const auto& e : extents) ::sync_file_range(p.file.fd(), e.offset, e.bytes, SYNC_FILE_RANGE_WRITE);
  add_record(part, j, done_record(sample, data.xxh3()));
}

void Committer::add_failed(std::int64_t sample, FailReason reason) {
  const auto part = store_->part_of(sample);
  open(part);
  add_record(part, sample - store_->manifest.parts[static_cast<std::size_t>(part)].first, failed_record(sample, reason));
}

bool Committer::group_full() const {
  return current_.bytes >= policy_.commit_bytes || static_cast<std::int64_t>(current_.records.size()) >= policy_.commit_samples ||
         open_.size() >= max_open_parts;
}

void Committer::sync_all() {
  for (const auto& entry : open_) base::fdatasync_file(entry.second.file);
}

void Committer::report(Group& group) {
  samples_ += static_cast<std::int64_t>(group.records.size());
  tokens_ += group.tokens;
  group = {};
}

void Committer::close_unused() {
  for (auto it = open_.begin(); it != open_.end();) {
    if (it->second.in_current) {
      ++it;
      continue;
    }
    if (it->second.mpio) it->second.mpio->close();
    it->second.file.close();
    it = open_.erase(it);
  }
}

void Committer::commit() {
  if (current_.records.empty()) return;
  pass("store.after_data_write");
  if (!base::fault_call("store.data_sync").skip) sync_all();  // left out only by the controls of the crash tests
  pass("store.after_data_sync");
  report(previous_);
  close_unused();
  for (auto& entry : open_) {  // clean now; nobody reads it soon, and the page cache is wanted elsewhere
    for (const auto& e : entry.second.written) ::posix_fadvise(entry.second.file.fd(), e.offset, e.bytes, POSIX_FADV_DONTNEED);
    entry.second.written.clear();
  }
  for (const auto& r : current_.records)
    base::pwrite_full(open_.at(r.part).file, std::as_bytes(std::span(&r.record, 1)),
                      store_->layouts[static_cast<std::size_t>(r.part)].state + 16 * r.index);
  pass("store.after_state_write");
  previous_ = std::move(current_);
  current_ = {};
  for (auto& entry : open_) entry.second.in_current = false;
}

void Committer::flush() {
  commit();
  if (previous_.records.empty()) return;
  sync_all();
  report(previous_);
  close_unused();
}

}  // namespace aerie::io
