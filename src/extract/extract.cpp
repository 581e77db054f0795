// SPDX-License-Identifier: Apache-2.0
#include <aerie/extract/extract.hpp>

#include "stop_relay.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <thread>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <aerie/base/host.hpp>
#include <aerie/base/log.hpp>
#include <aerie/comm/agree.hpp>

namespace aerie::extract {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Raw bf16 bits of a tensor on any device.
std::vector<std::uint16_t> bf16_bits(const at::Tensor& t) {
  const auto host = t.to(at::kBFloat16).cpu().contiguous();
  std::vector<std::uint16_t> bits(static_cast<std::size_t>(host.numel()));
  std::memcpy(bits.data(), host.const_data_ptr(), bits.size() * 2);
  return bits;
}

/// Leaves one part in the assignment; which one differs from process to process, so that jobs that start together seldom meet.
void keep_one_part(const io::Store& store, io::Assignment& a) {
  if (a.parts.size() < 2) return;
  const auto chosen = a.parts[static_cast<std::size_t>(base::this_process().start_ticks + ::getpid()) % a.parts.size()];
  const auto& part = store.parts()[static_cast<std::size_t>(chosen)];
  a.parts = {chosen};
  std::erase_if(a.samples, [&](std::int64_t s) { return s < part.first || s >= part.first + part.n; });
}

/// The dealing-out, made on rank 0 from one fresh look at the records and the leases, and shared: ranks that looked for
/// themselves while another job commits would not see the same. Collective over world.
io::Assignment own_assignment(const comm::Comm& world, io::Store& store, const ExtractOptions& options) {
  const auto host = world.split_by_host();
  const auto first_of_host = world.all_gather(host.broadcast(std::int64_t{world.rank()}));  // names the host
  base::Json shared = base::Json::array();
  comm::agree_after(world, "deal out samples", [&] {
    if (!world.is_root()) return;
    store.refresh();
    const auto skip = options.commit.locks == io::Locks::fcntl ? io::leased_parts(store) : std::vector<std::int64_t>{};
    if (!skip.empty() && !options.share)
      base::log_info(fmt::format("{} parts are leased by another job and left to it", skip.size()));
    const std::vector<int> hosts(first_of_host.begin(), first_of_host.end());
    int idle = 0;
    for (auto& a : options.share ? io::assign(store, world.size(), skip) : io::assign(store, hosts, skip)) {
      if (options.share) keep_one_part(store, a);
      idle += a.samples.empty();
      shared.push_back({{"samples", a.samples}, {"parts", a.parts}, {"shared", a.shared}, {"joined", a.joined}});
    }
    if (idle > 0 && !options.share)
      base::log_warning(fmt::format(
          "{} of {} ranks have nothing to do: the unfinished parts are fewer than the hosts, or the samples left fewer than the "
          "ranks; a part is never split among hosts (a smaller extract.part_bytes makes more parts in a new store)",
          idle, world.size()));
  });
  const auto all = base::Json::parse(world.broadcast(shared.dump()));
  const auto& own = all.at(static_cast<std::size_t>(world.rank()));
  const auto list = [&](const char* name) { return own.at(name).get<std::vector<std::int64_t>>(); };
  return {list("samples"), list("parts"), list("shared"), list("joined")};
}

/// One rank's work: batches of whole samples through the target, each into the writer.
class Worker {
 public:
  Worker(const dataset::Dataset& data, const target::TargetModel& target, io::StoreWriter& writer, std::vector<FailedNow>& failed)
      : data_(data), target_(target), writer_(writer), failed_(failed) {}

  void run_batch(std::span<const std::int64_t> samples) {
    std::vector<dataset::Tokens> tokens(samples.size());
    std::vector<std::span<const std::int32_t>> ids;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      data_.read(samples[i], tokens[i]);
      ids.emplace_back(tokens[i].ids);
    }
    std::vector<target::SampleStates> states;
    if (const auto error = base::capture([&] {
          try {
            states = target_.forward(ids);
          } catch (
              const c10::OutOfMemoryError& e) {  // try the samples one by one; any other device error is no fault of a sample
            throw base::DataError(e.what_without_backtrace());
          }
        })) {
      if (error->code() != base::ExitCode::data) throw base::Error(*error);
      if (samples.size() == 1) {  // alone in its batch: the fault is the sample's
        writer_.fail(samples[0], io::FailReason::target);
        failed_.push_back({samples[0], io::FailReason::target, error->what()});
        return;
      }
      for (const auto s : samples) run_batch(std::span(&s, 1));
      return;
    }
    for (std::size_t i = 0; i < samples.size(); ++i) {
      io::SampleData sample;
      sample.aux = bf16_bits(states[i].aux);
      sample.last = bf16_bits(states[i].last);
      sample.input_ids = std::move(tokens[i].ids);
      sample.loss_mask = std::move(tokens[i].mask);
      states[i] = {};
      if (!writer_.put(samples[i], std::move(sample)))
        failed_.push_back({samples[i], io::FailReason::nonfinite, "the target gave a hidden state that is not finite"});
    }
  }

 private:
  const dataset::Dataset& data_;
  const target::TargetModel& target_;
  io::StoreWriter& writer_;
  std::vector<FailedNow>& failed_;
};

/// Every rank's failures on every rank, by sample.
std::vector<FailedNow> gather_failures(const comm::Comm& world, const std::vector<FailedNow>& mine) {
  base::Json list = base::Json::array();
  for (const auto& f : mine) list.push_back({f.sample, static_cast<int>(f.reason), f.text});
  std::vector<FailedNow> all;
  for (const auto& text : world.all_gather(list.dump()))
    for (const auto& f : base::Json::parse(text))
      all.push_back({f[0].get<std::int64_t>(), static_cast<io::FailReason>(f[1].get<int>()), f[2].get<std::string>()});
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.sample < b.sample; });
  return all;
}

/// A rank's share of what is left, and the writer that holds its parts.
struct Lease {
  io::Assignment own;
  std::unique_ptr<io::StoreWriter> writer;
};

/// Deals out and leases. Another job may take a part between the look and the lease: then all ranks give theirs back and the deal
/// is made anew, in which that part is left out. Collective over world.
Lease lease_parts(const comm::Comm& world, io::Store& store, const ExtractOptions& options) {
  for (int tries = 1;; ++tries) {
    Lease lease;
    lease.own = own_assignment(world, store, options);  // collective over world
    const auto mine = base::capture([&] {
      lease.writer = std::make_unique<io::StoreWriter>(store, lease.own, options.commit,
                                                       [](const std::string& line) { base::log_warning(line); });
    });
    // A disk error of any rank ends all: its fdatasync must not be tried again.
    const bool only_refused = world.max(mine && mine->code() != base::ExitCode::refused ? 1 : 0) == 0;  // collective over world
    const auto error = base::capture([&] { comm::agree(world, "lease parts", mine); });                 // collective over world
    if (!error) {
      comm::agree_after(world, "share parts", [&] { lease.writer->share(); });  // collective over world
      comm::agree_after(world, "join parts", [&] { lease.writer->join(); });    // collective over world
      return lease;
    }
    if (!only_refused || tries == 20) throw base::Error(*error);
    lease.writer.reset();
    std::this_thread::sleep_for(std::chrono::milliseconds(20 * tries + ::getpid() % 50));
  }
}

/// Calls `look` every two seconds until `f`, on a thread of its own, has ended; throws what it threw.
void look_while(const std::function<void()>& look, const std::function<void()>& f) {
  auto work = std::async(std::launch::async, f);
  while (work.wait_for(std::chrono::seconds(2)) != std::future_status::ready) look();
  work.get();
}

/// Waits until all ranks have come here, and goes on looking. Collective over world.
void wait_together(const comm::Comm& world, const std::function<void()>& look) {
  MPI_Request request = MPI_REQUEST_NULL;
  comm::check(MPI_Ibarrier(world.get(), &request));
  auto last_look = std::chrono::steady_clock::now();
  for (auto pause = std::chrono::microseconds(100);; pause = std::min(2 * pause, std::chrono::microseconds(50000))) {
    int done = 0;
    comm::check(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
    if (done) return;
    std::this_thread::sleep_for(pause);
    if (seconds_since(last_look) <= 2.0) continue;
    last_look = std::chrono::steady_clock::now();
    look();
  }
}

/// One deal of parts, worked off. Collective over world.
ExtractResult extract_deal(const comm::Comm& world, io::Store& store, const dataset::Dataset& data,
                           const target::TargetModel& target, const ExtractOptions& options, stop::StopToken& stop,
                           const std::function<void(const io::Counts&)>& progress, bool& had_parts) {
  ExtractResult result;
  const auto [own, writer] = lease_parts(world, store, options);                               // collective over world
  had_parts = world.max(static_cast<std::int64_t>(own.parts.size() + own.joined.size())) > 0;  // collective over world

  // What the check of the last commit set back to pending is to do again.
  auto todo = own.samples;
  todo.insert(todo.end(), writer->reopened().begin(), writer->reopened().end());
  std::sort(todo.begin(), todo.end());
  todo.erase(std::unique(todo.begin(), todo.end()), todo.end());

  std::vector<FailedNow> failed;
  StopRelay relay(world, stop);  // collective over world
  auto last_look = std::chrono::steady_clock::now();
  const auto look = [&] {  // rank 0 tells what is durable, also while its own share is done and others work on
    if (!world.is_root() || !progress) return;
    last_look = std::chrono::steady_clock::now();
    store.look_again();
    progress(store.counts());
  };
  const auto error = base::capture([&] {
    Worker worker(data, target, *writer, failed);
    for (std::size_t at = 0; at < todo.size() && !relay.stopped();) {
      std::size_t end = at;
      for (std::int64_t tokens = 0; end < todo.size(); ++end) {
        tokens += store.length(todo[end]);
        if (end > at && tokens > options.batch_tokens) break;
      }
      worker.run_batch(std::span(todo).subspan(at, end - at));
      at = end;
      if (seconds_since(last_look) > 2.0) look();
    }
    look_while(look, [&] { writer->drain(); });
    result.samples = writer->committed_samples();
    result.tokens = writer->committed_tokens();
    writer->close();
  });
  if (error) relay.stop();     // the others end their batch, commit what they have, and come here
  wait_together(world, look);  // collective over world
  result.stopped = world.max(std::int64_t{relay.stopped() ? 1 : 0}) != 0;  // collective over world
  relay.finish();                                                          // collective over world
  comm::agree(world, "extract", error);                                    // collective over world: one code for all
  result.failed = gather_failures(world, failed);
  result.reopened = world.all_gather(std::span<const std::int64_t>(writer->reopened()));
  std::sort(result.reopened.begin(), result.reopened.end());
  result.samples = world.sum(result.samples);
  result.tokens = world.sum(result.tokens);
  return result;
}

}  // namespace

ExtractResult extract(const comm::Comm& world, io::Store& store, const dataset::Dataset& data, const target::TargetModel& target,
                      const ExtractOptions& options, stop::StopToken& stop,
                      const std::function<void(const io::Counts&)>& progress) {
  ExtractResult all;
  const auto start = std::chrono::steady_clock::now();
  for (bool more = true; more && !all.stopped;) {
    auto deal = extract_deal(world, store, data, target, options, stop, progress, more);  // collective over world
    more = more && options.share;
    all.stopped = deal.stopped;
    all.samples += deal.samples;
    all.tokens += deal.tokens;
    all.failed.insert(all.failed.end(), deal.failed.begin(), deal.failed.end());
    all.reopened.insert(all.reopened.end(), deal.reopened.begin(), deal.reopened.end());
  }
  std::sort(all.failed.begin(), all.failed.end(), [](const auto& a, const auto& b) { return a.sample < b.sample; });
  std::sort(all.reopened.begin(), all.reopened.end());
  if (world.is_root()) store.refresh();
  if (world.is_root() && progress) progress(store.counts());
  all.seconds = seconds_since(start);
  return all;
}

}  // namespace aerie::extract
