// SPDX-License-Identifier: Apache-2.0
// Extraction: target forward over the samples that the store does not hold yet. Ranks work independently on parts they lease; the
// store's records, not any counter here, say what is done.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <aerie/base/json.hpp>
#include <aerie/comm/comm.hpp>
#include <aerie/dataset/dataset.hpp>
#include <aerie/io/store.hpp>
#include <aerie/io/store_writer.hpp>
#include <aerie/stop/stop_token.hpp>
#include <aerie/target/target_model.hpp>

namespace aerie::extract {

/// What the dataset and the configuration say about every sample, before any state exists. Rejections of the dataset are taken
/// over; ids outside [0, vocab_size) make a sample BAD_TOKEN. Reads every token. Throws ConfigError when a sample is longer than
/// `max_length` (the dataset was prepared with another limit). Local.
std::vector<io::PlannedSample> plan_samples(const dataset::Dataset& data, std::int64_t vocab_size, std::int64_t max_length,
                                            const std::function<void()>& poll = {});

struct ExtractOptions {
  std::int64_t batch_tokens = 4096;  // tokens of whole samples per forward
  /// One of several jobs on one store: each rank takes one part after the other, so that nobody sits on parts that another could
  /// do. Otherwise all parts that are free are dealt out at once.
  bool share = false;
  io::CommitPolicy commit;
};

struct FailedNow {
  std::int64_t sample = 0;
  io::FailReason reason = io::FailReason::none;
  std::string text;
};

struct ExtractResult {
  std::int64_t samples = 0, tokens = 0;  // made durable by this run, all ranks
  double seconds = 0;
  bool stopped = false;
  std::vector<FailedNow> failed;       // all ranks, by sample; on every rank
  std::vector<std::int64_t> reopened;  // records that did not match their data and were set pending, all ranks
};

/// Extracts what is missing. Collective over `world`; a failed sample is recorded and the job goes on; an I/O error ends all
/// ranks with the same error. On a stop request (of any rank) the queue is drained, the last group committed, and `stopped` is
/// set. `progress(counts)` is called on rank 0 every few seconds with what is durable.
ExtractResult extract(const comm::Comm& world, io::Store& store, const dataset::Dataset& data, const target::TargetModel& target,
                      const ExtractOptions& options, stop::StopToken& stop,
                      const std::function<void(const io::Counts&)>& progress);

}  // namespace aerie::extract
