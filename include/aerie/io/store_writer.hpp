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

/// How rows reach the file: pwrite, or independent H5Dwrite through parallel HDF5 on MPI_COMM_SELF. Records and fdatasync are
/// the same in both.
enum class WriteMode { posix, mpio };

struct CommitPolicy {
  std::int64_t commit_bytes = std::int64_t{128} << 20;  // a group is full at this size ...
  std::int64_t commit_samples = 4096;                   // ... or this many samples ...
  double commit_seconds = 10.0;                         // ... or this age
  std::int64_t queue_bytes = std::int64_t{512} << 20;   // put() blocks above this; one larger sample is let in alone
  std::string holder;                                   // text for lease files: job, host, pid
  Locks locks = Locks::fcntl;
  WriteMode write_mode = WriteMode::posix;  // mpio: ConfigError without parallel HDF5 or MPI_THREAD_MULTIPLE
};

/// What one rank is to do: samples that are neither done nor failed, in ascending order, all in `parts` or `joined`.
struct Assignment {
  std::vector<std::int64_t> samples;
  std::vector<std::int64_t> parts;   // this rank leases them
  std::vector<std::int64_t> shared;  // those of `parts` that other ranks of this host write into as well
  std::vector<std::int64_t> joined;  // leased by another rank of this host
};
/// Remaining samples dealt out to ranks: unfinished parts by descending remaining tokens, each to the least loaded rank. Where
/// there are fewer parts than ranks, parts go to hosts and a host's ranks split theirs: never across hosts, because two page
/// caches may rewrite each other's boundary pages. `host_of_rank` numbers the hosts. The same on every rank; depends on the
/// store's state and the layout alone. `skip` parts are leased by another job.
std::vector<Assignment> assign(const Store& store, std::span<const int> host_of_rank,
                               std::span<const std::int64_t> skip_parts = {});
/// Every rank on a host of its own: nothing is split.
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
  /// As above for `assignment.parts`. Where parts are split: construct on all ranks, agree, share() on all, agree, join() on all,
  /// agree. A split part stays leased until the last of its ranks has closed its writer or died.
  StoreWriter(const Store& store, const Assignment& assignment, CommitPolicy policy,
              std::function<void(const std::string&)> log = {});
  ~StoreWriter();  // drains nothing: what was not drained is not done
  StoreWriter(const StoreWriter&) = delete;
  StoreWriter& operator=(const StoreWriter&) = delete;

  /// Opens the shared parts to this host's other ranks, and to nobody else. Local.
  void share();
  /// Takes part in the joined parts. Throws RefusedError when they are not shared. Local.
  void join();

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

/// Sets `samples` (done or failed) back to pending under the parts' leases, durably, and takes COMPLETE away. For --retry-failed
/// and recover. A sample whose record is not what `store` shows any more was dealt with by somebody else and stays as it is.
/// Returns the samples that were set. Throws RefusedError naming the holder when a part is leased, DataError for a sample that
/// planning rejected. refresh() shows the change.
std::vector<std::int64_t> set_pending(const Store& store, std::span<const std::int64_t> samples, const std::string& holder,
                                      Locks locks = Locks::fcntl);

/// Hashes `samples` again, each under its part's lease, and sets those whose bytes do not match their record back to pending,
/// durably; takes COMPLETE away if there are any. Needs no other part than theirs. Returns the samples that were set. Throws
/// RefusedError as above, DataError and MissingInputError when a part itself is damaged.
std::vector<std::int64_t> reopen_damaged(const std::filesystem::path& store, std::span<const std::int64_t> samples,
                                         const std::string& holder, Locks locks = Locks::fcntl);

/// Moves a part that is damaged beyond its samples to <file>.bad, durably, under its lease, and takes COMPLETE away: the next
/// Store::create() makes it anew, all its samples pending. Returns the new name. Throws as set_pending().
std::filesystem::path set_part_aside(const std::filesystem::path& store, std::int64_t part, const std::string& holder,
                                     Locks locks = Locks::fcntl);

}  // namespace aerie::io
