// SPDX-License-Identifier: Apache-2.0
// Writes samples into parts that this rank owns, through a thread with a bounded queue, so that the GPU never waits for
// fdatasync. Pipelined group commit: data of group k, fdatasync (which also makes the records of group k-1 durable), records of
// group k (docs/reference/store.md has the protocol and its proof).
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <aerie/comm/comm.hpp>
#include <aerie/io/store.hpp>

namespace aerie::io {

struct CommitPolicy {
  std::int64_t commit_bytes = std::int64_t{128} << 20;  // a group is full at this size ...
  std::int64_t commit_samples = 4096;                   // ... or this many samples ...
  double commit_seconds = 10.0;                         // ... or this age
  std::int64_t queue_bytes = std::int64_t{512} << 20;   // put() blocks above this
  std::string holder;                                   // text for lease files: job, host, pid
};

/// What one rank is to do: samples that are neither done nor failed, in ascending order, all in parts this rank holds the lease
/// of.
struct Assignment {
  std::vector<std::int64_t> samples;
  std::vector<std::int64_t> parts;
};
/// Remaining samples dealt out to ranks: unfinished parts by descending remaining tokens, each to the least loaded rank. The same
/// on every rank; depends on the store's state and the rank count alone. `skip` parts are leased by another job.
std::vector<Assignment> assign(const Store& store, int ranks, std::span<const std::int64_t> skip_parts = {});

/// Parts that another process holds the lease of right now: what to give assign() as `skip_parts`. Touches no lock. Take the
/// leases, refresh() and look at the states again before trusting an older assignment: the other job may have ended in between.
std::vector<std::int64_t> leased_parts(const Store& store);

class StoreWriter {
 public:
  /// Takes the leases of `parts` (throws RefusedError naming the holder when one is taken), syncs them before trusting `state`,
  /// re-verifies the end of the last commit (mismatches go back to pending, reported through `log`), and starts the thread.
  StoreWriter(const Store& store, std::span<const std::int64_t> parts, CommitPolicy policy,
              std::function<void(const std::string&)> log = {});
  ~StoreWriter();  // drains nothing: what was not drained is not done
  StoreWriter(const StoreWriter&) = delete;
  StoreWriter& operator=(const StoreWriter&) = delete;

  /// Samples of the leased parts that were set back to pending by the constructor's check.
  const std::vector<std::int64_t>& reopened() const;

  /// Queues one sample; blocks while the queue is full. A non-finite state makes the sample failed with NONFINITE instead
  /// (returns false). A sample that was done or failed already when the lease was taken stays as it is and is not counted
  /// (returns true); the first such is logged. Throws the thread's error, if it had one (IoError: fatal, no retry), and DataError
  /// for a mask that is neither 0 nor 1. Thread-safe.
  bool put(std::int64_t sample, SampleData data);
  /// NONFINITE or TARGET; the other reasons belong to planning.
  void fail(std::int64_t sample, FailReason reason);
  /// Waits until everything queued is durable, records included.
  void drain();
  /// Samples and tokens durable so far (done or failed).
  std::int64_t committed_samples() const;
  std::int64_t committed_tokens() const;
  /// Ends the thread after drain(); reports close errors.
  void close();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Sets `samples` (done or failed) back to pending under the parts' leases, durably. For --retry-failed and recover. Throws
/// RefusedError naming the holder when a part is leased, DataError for a sample that planning rejected. refresh() shows the
/// change.
void set_pending(const Store& store, std::span<const std::int64_t> samples, const std::string& holder);

}  // namespace aerie::io
