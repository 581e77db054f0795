// SPDX-License-Identifier: Apache-2.0
// The commit protocol, single-threaded. Invariant: the records of a group are written only after an fdatasync that covers the
// group's data returned 0; a group is reported only after an fdatasync that covers its records returned 0.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <aerie/io/store_writer.hpp>

#include "mpio_part.hpp"
#include "store_impl.hpp"

namespace aerie::io {

class Committer {
 public:
  Committer(std::shared_ptr<const Store::Impl> store, const CommitPolicy& policy) : store_(std::move(store)), policy_(policy) {}

  /// Writes the rows now; the record waits for the group.
  void add(std::int64_t sample, const StoredSample& data);
  void add_failed(std::int64_t sample, FailReason reason);
  bool group_empty() const { return current_.records.empty(); }
  bool group_full() const;
  /// Nothing is waiting for any fdatasync.
  bool idle() const { return current_.records.empty() && previous_.records.empty(); }
  /// fdatasync (data of this group, records of the group before), report the group before, write this group's records.
  void commit();
  /// commit(), then one more fdatasync: everything is durable and reported.
  void flush();

  // Durable so far; may be read by other threads.
  std::int64_t samples() const { return samples_; }
  std::int64_t tokens() const { return tokens_; }

 private:
  struct Pending {
    std::int64_t part, index;
    Record record;
  };
  struct Group {
    std::vector<Pending> records;
    std::int64_t bytes = 0, tokens = 0;
  };
  struct OpenPart {
    base::File file;
    std::unique_ptr<MpioPart> mpio;  // rows go through it when there is one
    std::vector<Extent> written;     // by the current group
    bool in_current = false;
  };
  OpenPart& open(std::int64_t part);
  void add_record(std::int64_t part, std::int64_t index, const Record& record);
  void sync_all();
  void report(Group& group);
  void close_unused();

  std::shared_ptr<const Store::Impl> store_;
  CommitPolicy policy_;
  Group current_, previous_;
  std::map<std::int64_t, OpenPart>
      open_;  // parts of both groups: a descriptor stays open until the fdatasync that covers its writes
  std::atomic<std::int64_t> samples_{0}, tokens_{0};
};

}  // namespace aerie::io
