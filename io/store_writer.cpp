// SPDX-License-Identifier: Apache-2.0
// Leases, the bounded queue and the thread. The protocol itself is in commit.cpp.
#include <aerie/io/store_writer.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include <fmt/format.h>
#include <sys/resource.h>

#include <aerie/base/error.hpp>
#include <aerie/base/log.hpp>

#include "commit.hpp"
#include "lease.hpp"

namespace aerie::io {
namespace {

using Clock = std::chrono::steady_clock;

/// A lease is a descriptor; raises the soft limit when a rank holds very many of them.
void make_room_for(std::size_t descriptors) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = descriptors + 256;
  if (limit.rlim_cur >= wanted || limit.rlim_max < wanted) return;
  limit.rlim_cur = wanted;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

struct StoreWriter::Impl {
  enum class Mark : std::uint8_t { open, settled, queued };
  struct Item {
    std::int64_t sample = 0, bytes = 0;
    FailReason reason = FailReason::none;  // none: done
    StoredSample data;
  };

  Impl(std::shared_ptr<Store::Impl> s, CommitPolicy p) : store(std::move(s)), policy(std::move(p)), committer(store, policy) {}

  std::shared_ptr<Store::Impl> store;
  CommitPolicy policy;
  std::function<void(const std::string&)> log;
  Assignment assignment;
  std::map<std::int64_t, std::optional<base::FileLock>> leases;  // joined parts too
  std::vector<std::int64_t> reopened;
  Committer committer;  // the thread's alone, but for its counters

  std::mutex mutex;
  std::condition_variable work, space, drained;
  std::map<std::int64_t, std::vector<Mark>> marks;  // by part
  std::deque<Item> queue;
  std::int64_t queued_bytes = 0;
  bool drain_wanted = false, stop = false, closed = false, told_settled = false;
  std::exception_ptr error;
  std::thread thread;

  void run();
  void loop(std::unique_lock<std::mutex>& lock);
  void end_thread();
  bool enqueue(Item item);
  void add_marks(std::int64_t part, const std::vector<SampleState>& states);
};

/// False when the record of the sample was settled before this writer came.
bool StoreWriter::Impl::enqueue(Item item) {
  const auto part = store->part_of(item.sample);
  const auto index = static_cast<std::size_t>(item.sample - store->manifest.parts[static_cast<std::size_t>(part)].first);
  std::unique_lock lock(mutex);
  base::expect(!closed, "a closed writer is given nothing");
  const auto found = marks.find(part);
  base::expect(found != marks.end(), "a sample lies in a part that this writer holds the lease of");
  auto& mark = found->second[index];
  base::expect(mark != Mark::queued, "a sample is given to the writer once");
  if (mark == Mark::settled) {
    if (!std::exchange(told_settled, true) && log)
      log(fmt::format("sample {} was finished by another job before its part was leased; it stays as it is (said once)",
                      item.sample));
    return false;
  }
  space.wait(lock, [&] { return error || queued_bytes == 0 || queued_bytes + item.bytes <= policy.queue_bytes; });
  if (error) std::rethrow_exception(error);
  mark = Mark::queued;
  queued_bytes += item.bytes;
  queue.push_back(std::move(item));
  work.notify_one();
  return true;
}

void StoreWriter::Impl::run() {
  std::unique_lock lock(mutex);
  try {
    loop(lock);
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    error = std::current_exception();
    queue.clear();
  }
  space.notify_all();
  drained.notify_all();
}

void StoreWriter::Impl::loop(std::unique_lock<std::mutex>& lock) {
  const auto patience = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(policy.commit_seconds));
  auto since = Clock::now();  // the group's first sample, or the last commit while nothing comes
  const auto ready = [&] { return stop || drain_wanted || !queue.empty(); };
  for (;;) {
    bool in_time = true;
    if (committer.idle())
      work.wait(lock, ready);
    else
      in_time = work.wait_until(lock, since + patience, ready);
    if (stop) return;
    if (!in_time) {
      lock.unlock();
      committer.group_empty() ? committer.flush() : committer.commit();
      since = Clock::now();
      lock.lock();
    } else if (!queue.empty()) {
      {
        const Item item = std::move(queue.front());
        queue.pop_front();
        lock.unlock();
        if (committer.group_empty()) since = Clock::now();
        if (item.reason == FailReason::none)
          committer.add(item.sample, item.data);
        else
          committer.add_failed(item.sample, item.reason);
        if (committer.group_full() || Clock::now() - since >= patience) {
          committer.commit();
          since = Clock::now();
        }
        lock.lock();
        queued_bytes -= item.bytes;
      }
      space.notify_all();
    } else if (drain_wanted) {
      lock.unlock();
      committer.flush();
      lock.lock();
      if (!queue.empty()) continue;  // more came meanwhile
      drain_wanted = false;
      drained.notify_all();
    }
  }
}

void StoreWriter::Impl::end_thread() {
  {
    const std::lock_guard lock(mutex);
    stop = true;
  }
  work.notify_all();
  if (thread.joinable()) thread.join();
}

void StoreWriter::Impl::add_marks(std::int64_t part, const std::vector<SampleState>& states) {
  auto& own = marks[part];
  for (const auto& s : states) own.push_back(s.kind == StateKind::pending ? Mark::open : Mark::settled);
}

StoreWriter::StoreWriter(const Store& store, std::span<const std::int64_t> parts, CommitPolicy policy,
                         std::function<void(const std::string&)> log)
    : StoreWriter(store, Assignment{{}, {parts.begin(), parts.end()}, {}, {}}, std::move(policy), std::move(log)) {}

StoreWriter::StoreWriter(const Store& store, const Assignment& assignment, CommitPolicy policy,
                         std::function<void(const std::string&)> log) {
  if (policy.write_mode == WriteMode::mpio) MpioPart::demand_support();
  if (policy.holder.empty()) policy.holder = default_holder();
  base::expect(policy.commit_bytes > 0 && policy.commit_samples > 0 && policy.commit_seconds > 0 && policy.queue_bytes > 0,
               "the limits of a commit are above zero");
  impl_ = std::make_unique<Impl>(StoreAccess::impl(store), std::move(policy));
  auto& w = *impl_;
  w.log = std::move(log);
  w.assignment = assignment;
  make_room_for(assignment.parts.size() + assignment.joined.size());
  for (const auto p : assignment.parts) {
    base::expect(p >= 0 && p < static_cast<std::int64_t>(store.parts().size()), "a leased part lies inside the store");
    if (!w.leases.contains(p)) w.leases.emplace(p, lease_part(w.store->dir, p, w.policy.holder, w.policy.locks));
  }
  for (const auto& entry : w.leases) {
    const auto owned = take_over(*w.store, entry.first, w.policy.commit_bytes, w.policy.commit_samples, w.log);
    w.add_marks(entry.first, owned.states);
    w.reopened.insert(w.reopened.end(), owned.reopened.begin(), owned.reopened.end());
  }
  w.thread = std::thread([&w] { w.run(); });
}

StoreWriter::~StoreWriter() { impl_->end_thread(); }

void StoreWriter::share() {
  for (const auto p : impl_->assignment.shared)
    if (auto& lease = impl_->leases.at(p)) lease->downgrade();
}

void StoreWriter::join() {
  auto& w = *impl_;
  for (const auto p : w.assignment.joined) {
    auto lease = join_part(w.store->dir, p, w.policy.locks);
    const auto& part = w.store->manifest.parts[static_cast<std::size_t>(p)];
    const auto records =
        read_records(base::open_read(w.store->part_path(p)), w.store->layouts[static_cast<std::size_t>(p)], part.n);
    std::vector<SampleState> states;
    for (std::int64_t j = 0; j < part.n; ++j)
      states.push_back(decode(part.first + j, records[static_cast<std::size_t>(j)]).state);
    const std::lock_guard lock(w.mutex);
    w.leases.emplace(p, std::move(lease));
    w.add_marks(p, states);
  }
}

const std::vector<std::int64_t>& StoreWriter::reopened() const { return impl_->reopened; }

bool StoreWriter::put(std::int64_t sample, SampleData data) {
  auto& store = *impl_->store;
  const auto part = static_cast<std::size_t>(store.part_of(sample));
  const auto tokens = static_cast<std::size_t>(store.layouts[part].rows(sample - store.manifest.parts[part].first));
  const auto hidden = static_cast<std::size_t>(store.manifest.identity.hidden_size);
  base::expect(data.aux.size() == tokens * 3 * hidden && data.last.size() == tokens * hidden && data.input_ids.size() == tokens &&
                   data.loss_mask.size() == tokens,
               "a sample has the rows that the plan gives it");
  for (const auto m : data.loss_mask)
    if (m > 1) throw base::DataError(fmt::format("sample {}: loss mask holds {}, neither 0 nor 1", sample, m));
  auto stored = encode(std::move(data), store.manifest.identity);
  if (!stored) {
    fail(sample, FailReason::nonfinite);
    return false;
  }
  Impl::Item item;
  item.sample = sample;
  item.bytes = stored->bytes();
  item.data = std::move(*stored);
  impl_->enqueue(std::move(item));
  return true;
}

void StoreWriter::fail(std::int64_t sample, FailReason reason) {
  base::expect(reason == FailReason::nonfinite || reason == FailReason::target,
               "a sample fails at extraction with NONFINITE or TARGET");
  Impl::Item item;
  item.sample = sample;
  item.reason = reason;
  impl_->enqueue(std::move(item));
}

void StoreWriter::drain() {
  auto& w = *impl_;
  std::unique_lock lock(w.mutex);
  if (w.error) std::rethrow_exception(w.error);
  base::expect(!w.closed, "a closed writer is not drained");
  w.drain_wanted = true;
  w.work.notify_one();
  w.drained.wait(lock, [&] { return w.error || !w.drain_wanted; });
  if (w.error) std::rethrow_exception(w.error);
}

std::int64_t StoreWriter::committed_samples() const { return impl_->committer.samples(); }
std::int64_t StoreWriter::committed_tokens() const { return impl_->committer.tokens(); }

void StoreWriter::close() {
  drain();
  impl_->end_thread();
  const std::lock_guard lock(impl_->mutex);
  impl_->closed = true;
  impl_->leases.clear();
}

}  // namespace aerie::io
