// SPDX-License-Identifier: Apache-2.0
#include "extract_phase.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <aerie/base/fault.hpp>
#include <aerie/base/hash.hpp>
#include <aerie/base/host.hpp>
#include <aerie/base/log.hpp>
#include <aerie/base/version.hpp>
#include <aerie/comm/agree.hpp>
#include <aerie/device/device.hpp>
#include <aerie/extract/extract.hpp>
#include <aerie/report/commit_clock.hpp>

#include "model_inputs.hpp"
#include "phase_inputs.hpp"
#include "recovery_items.hpp"
#include "store_view.hpp"

namespace aerie::apps {
namespace {

/// The same value as ModelDirectory::weights_hash, with the tensors dealt out to ranks: hundreds of gigabytes are read once,
/// together. Rounds of one tensor a rank, large ones first, so that a stop that any rank sees ends all after the same round.
std::string weights_hash(const ProgramContext& context, const interchange::ModelDirectory& dir) {
  const auto& world = context.world;
  auto names = dir.tensor_names();
  std::stable_sort(names.begin(), names.end(),
                   [&](const auto& a, const auto& b) { return dir.info(a).bytes() > dir.info(b).bytes(); });
  base::Json mine = base::Json::object();
  const auto R = static_cast<std::size_t>(world.size());
  for (std::size_t begin = 0; begin < names.size(); begin += R) {
    end_if_stopped(context, "hashing the target's weights");     // collective over world
    comm::agree_after(world, "hash the target's weights", [&] {  // collective over world
      base::fault_point("extract.hash");
      const auto i = begin + static_cast<std::size_t>(world.rank());
      if (i < names.size()) mine[names[i]] = dir.bytes_hash(names[i]);
    });
  }
  std::map<std::string, std::string> hashes;
  for (const auto& text : world.all_gather(mine.dump())) {
    const auto theirs = base::Json::parse(text);
    for (const auto& [name, hash] : theirs.items()) hashes[name] = hash.get<std::string>();
  }
  return dir.weights_hash(hashes);
}

base::Json counts_json(const io::Counts& n) {
  base::Json reasons = base::Json::object();
  for (std::size_t r = 1; r < n.by_reason.size(); ++r)
    if (n.by_reason[r] > 0) reasons[std::string(io::reason_name(static_cast<io::FailReason>(r)))] = n.by_reason[r];
  return {{"total", n.total}, {"done", n.done}, {"failed", n.failed}, {"pending", n.pending}, {"by_reason", reasons}};
}

/// Every failed record gets its line in the ledger, also those of a job that was killed before it could write them. On rank 0.
void record_failures(const ProgramContext& context, const dataset::Dataset& data, const io::Store& store,
                     const std::vector<extract::FailedNow>& now) {
  std::map<std::int64_t, std::string> texts;
  for (const auto& f : now) texts[f.sample] = f.text;
  std::map<std::int64_t, std::string> known;  // sample -> reason
  for (const auto& f : report::replay(context.ledger.read()).failed) known[f.sample] = f.reason;
  std::vector<report::FailedSample> fresh;
  for (std::int64_t i = 0; i < store.size(); ++i) {
    const auto& record = store.state(i);
    if (record.kind != io::StateKind::failed) continue;
    const auto reason = std::string(io::reason_name(record.reason));
    if (const auto line = known.find(i); line != known.end() && line->second == reason) continue;
    auto text = texts.contains(i) ? texts[i] : data.note(i);
    if (text.empty()) text = fmt::format("{}, line {} of its source", data.path().string(), data.source_line(i));
    fresh.push_back({i, data.id(i), reason, std::move(text)});
  }
  context.ledger.samples_failed(fresh);
}

io::Locks locks(const config::Config& config) { return config.run.locks == "none" ? io::Locks::none : io::Locks::fcntl; }

/// Creates the store on rank 0 unless it is there. Collective over world.
void create_store(const ProgramContext& context, const dataset::Dataset& data, const io::StoreIdentity& identity) {
  const auto& c = context.config;
  comm::agree_after(context.world, "create the store", [&] {
    if (!context.world.is_root()) return;
    const auto plan = extract::plan_samples(data, identity.vocab_size, c.dataset.max_length, [&] {
      base::fault_point("extract.scan");
      context.stop.throw_if_stopped();
    });
    io::Store::create(c.store_dir(), identity, plan, c.extract.part_bytes, locks(c));
  });
}

void retry_failed(const ProgramContext& context, io::Store& store) {
  comm::agree_after(context.world, "set failed samples pending", [&] {
    if (!context.world.is_root()) return;
    std::vector<std::int64_t> again;
    for (std::int64_t i = 0; i < store.size(); ++i)
      if (store.state(i).kind == io::StateKind::failed &&
          (store.state(i).reason == io::FailReason::nonfinite || store.state(i).reason == io::FailReason::target))
        again.push_back(i);
    const auto set = io::set_pending(store, again, "aerie-extract --retry-failed", locks(context.config));
    base::log_info(fmt::format("{} failed samples are to be tried again", set.size()));
  });
  store.refresh();
}

int finish(const ProgramContext& context, const dataset::Dataset& data, const io::Store& store,
           const extract::ExtractResult& result, const ExtractFlags& flags) {
  const auto counts = store.counts();
  auto evidence = counts_json(counts);
  evidence["tokens"] = result.tokens;
  evidence["seconds"] = result.seconds;
  evidence["samples"] = result.samples;
  evidence["store_uuid"] = store.uuid();
  evidence["store_state"] = store_state_hash(store);
  evidence["inputs"] = phase_inputs(context.config, report::Phase::extract);
  auto& ledger = context.ledger;
  record_failures(context, data, store, result.failed);
  context.end_details["done"] = samples_settled(counts);
  context.end_details["samples"] = result.samples;
  context.end_details["progress"] = result.samples > 0;
  if (counts.pending == 0) close_resume(ledger, report::Phase::extract, evidence);
  context.status.update({{"phase", "extract"}, {"done", counts.done}, {"failed", counts.failed}, {"total", counts.total}}, true);
  base::log_info(fmt::format("{} samples, {} tokens in {} ({} tok/s); store: {} done, {} failed, {} missing of {}",
                             result.samples, result.tokens, base::format_duration(result.seconds),
                             base::format_count(result.seconds > 0 ? static_cast<double>(result.tokens) / result.seconds : 0),
                             counts.done, counts.failed, counts.pending, counts.total));
  if (result.stopped && counts.pending > 0) {
    ledger.phase(report::Phase::extract, report::PhaseState::interrupted, evidence);
    throw base::StopRequested(
        fmt::format("stopped by {} with {} of {} samples left",
                    context.stop.reason().empty() ? "another rank" : context.stop.reason(), counts.pending, counts.total),
        "run the same command again: it goes on where it was");
  }
  if (counts.pending > 0 && flags.share) {  // whoever ends last finds nothing left and says complete
    base::log_info(fmt::format("{} samples are in parts that other jobs hold: left to them", counts.pending));
    return 0;
  }
  if (counts.pending > 0) {
    ledger.phase(report::Phase::extract, report::PhaseState::interrupted, evidence);
    throw base::Error(base::ExitCode::stopped, fmt::format("{} samples are in parts that another job works on", counts.pending),
                      "run the same command again when that job has ended");
  }
  if (const auto error = base::capture([&] { demand_settled(context.config, *view_store(context.config)); })) {
    ledger.phase(report::Phase::extract, report::PhaseState::failed, evidence);
    throw base::Error(*error);
  }
  ledger.phase(report::Phase::extract, report::PhaseState::complete, evidence);
  return 0;
}

}  // namespace

int extract_phase(const ProgramContext& context, const ExtractFlags& flags) {
  const auto& c = context.config;
  const auto& world = context.world;
  std::optional<interchange::ModelDirectory> dir;
  std::optional<dataset::Dataset> data;
  interchange::TargetConfig target_config;
  io::StoreIdentity identity;
  target::TargetOptions options;
  device::setup_compute(c.run.threads);
  options.device = device::choose_device(c.target.device, world);  // collective over world
  comm::agree_after(world, "open target and dataset", [&] {        // collective over world
    dir = interchange::ModelDirectory::open(c.target.path);
    target_config = interchange::read_target_config(*dir);
    data = dataset::Dataset::open(c.dataset_file());
    check_tokenizer(*data, *dir, c);
    options.dtype = device::choose_dtype(c.target.dtype, options.device);
    options.gemm_rows = c.target.gemm_rows > 0 ? c.target.gemm_rows : options.device.is_cpu() ? 256 : 4096;
    options.aux_layers = aux_layers(c, target_config);
    options.streamed = c.target.stream == "layers";
    identity = store_identity(c, *dir, target_config, *data);
    identity.gemm_rows = options.gemm_rows;
    identity.producer = fmt::format("{}, {} on {}", base::producer(), options.dtype == c10::ScalarType::Float ? "fp32" : "bf16",
                                    options.device.is_cpu() ? "cpu" : "cuda");
  });
  identity.target_weights_hash = weights_hash(context, *dir);  // collective over world
  create_store(context, *data, identity);                      // collective over world
  std::optional<io::Store> store;
  comm::agree_after(world, "open the store", [&] {  // collective over world
    store = io::Store::open(c.store_dir());
    if (world.is_root()) store->refresh();  // a kill may have left records that are in the page cache only
  });
  if (flags.retry_failed) retry_failed(context, *store);

  const auto before = store->counts();
  extract::ExtractResult result;
  if (world.max(before.pending) > 0) {
    if (world.is_root()) {
      context.ledger.phase(report::Phase::extract, report::PhaseState::running);
      base::log_info(fmt::format("{} of {} samples to do ({} done, {} failed) on {} rank{}, {}", before.pending, before.total,
                                 before.done, before.failed, world.size(), world.size() == 1 ? "" : "s",
                                 device::describe(options.device)));
    }
    std::optional<target::TargetModel> model;
    comm::agree_after(world, "load the target",
                      [&] { model = target::TargetModel::load(*dir, options); });  // collective over world
    extract::ExtractOptions extract_options;
    extract_options.batch_tokens = c.extract.batch_tokens > 0 ? c.extract.batch_tokens : options.device.is_cpu() ? 4096 : 32768;
    extract_options.share = flags.share;
    extract_options.commit.commit_bytes = c.extract.commit_bytes;
    extract_options.commit.commit_seconds = c.extract.commit_seconds;
    extract_options.commit.locks = locks(c);
    if (c.extract.write_mode == "mpio") extract_options.commit.write_mode = io::WriteMode::mpio;
    base::Progress progress("", "samples", before.total);
    report::CommitClock clock(before.done + before.failed, base::unix_now());
    result = extract::extract(
        world, *store, *data, *model, extract_options, context.stop, [&](const io::Counts& n) {  // collective over world
          progress.update(n.done + n.failed, n.done_tokens, n.total_tokens);
          clock.advance(n.done + n.failed, base::unix_now());  // records of all ranks and of other jobs, as they are durable
          const double rate = static_cast<double>(n.done_tokens - before.done_tokens) / std::max(1e-9, progress.elapsed_s());
          base::Json snapshot{{"phase", "extract"},
                              {"done", n.done},
                              {"failed", n.failed},
                              {"total", n.total},
                              {"unit", "samples"},
                              {"tokens", n.done_tokens},
                              {"total_tokens", n.total_tokens},
                              {"rate", rate}};
          if (rate > 0) snapshot["eta_s"] = static_cast<double>(n.total_tokens - n.done_tokens) / rate;
          clock.add_to(snapshot);
          context.status.update(snapshot);
        });
  }
  // Rank 0 decides; the others follow through the agreement at the end.
  int code = 0;
  comm::agree_after(world, "finish", [&] {  // collective over world
    if (world.is_root()) code = finish(context, *data, *store, result, flags);
  });
  return code;
}

}  // namespace aerie::apps
