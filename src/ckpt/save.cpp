// SPDX-License-Identifier: Apache-2.0
// Publication, in the order that docs/reference/checkpoint.md numbers. Every part that one rank can fail alone ends in an
// agreement. save() goes through the steps at once; background_save.cpp puts the local ones into a thread.
#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/hash.hpp>
#include <aerie/base/log.hpp>
#include <aerie/base/version.hpp>
#include <aerie/ckpt/checkpoint.hpp>
#include <aerie/comm/agree.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <map>
#include <tuple>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "manifest.hpp"
#include "names.hpp"
#include "save_steps.hpp"

namespace aerie::ckpt {
namespace {
using base::CheckpointError;
using base::Json;
namespace fs = std::filesystem;

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Whatever the world did wrong is exit 74 here; a Bug goes into `bug`, to be thrown where all ranks are.
template <class F>
void keep_error(std::optional<base::Error>& error, std::exception_ptr& bug, F&& f) {
  try {
    f();
  } catch (const base::Error& e) {
    error = CheckpointError(e.what(), e.hint(), e.where());
  } catch (const base::Bug&) {
    bug = std::current_exception();
  } catch (const std::exception& e) {  // no memory, a text that JSON cannot hold
    error = CheckpointError(e.what());
  }
}
/// Runs `f` on the ranks that take part and agrees on the outcome. Collective over `comm`.
template <class F>
void agreed_part(const comm::Comm& comm, const char* part, bool mine, F&& f) {
  std::optional<base::Error> error;
  std::exception_ptr bug;
  if (mine) keep_error(error, bug, std::forward<F>(f));
  if (bug) std::rethrow_exception(bug);
  comm::agree(comm, part, error);
}

/// All ranks' records in manifest order. Every rank computes the same, so that a broken promise is seen by all of them at once.
Json ordered_records(const std::vector<std::string>& by_rank, const std::vector<VectorInfo>& vectors) {
  std::map<std::string, std::size_t> place;
  for (const auto& v : vectors)
    base::expect(place.emplace(v.name, place.size()).second, "vector names of a checkpoint are unique");
  std::vector<Json> records;
  for (const auto& text : by_rank)
    for (auto& r : Json::parse(text)) records.push_back(std::move(r));
  const auto key = [&](const Json& r) {
    const auto it = place.find(r.at("vector").get<std::string>());
    base::expect(it != place.end(), "every chunk belongs to a vector of the checkpoint");
    return std::tuple(it->second, r.at("chunk").get<std::int64_t>());
  };
  std::sort(records.begin(), records.end(), [&](const Json& a, const Json& b) { return key(a) < key(b); });
  std::size_t next = 0;
  for (std::size_t v = 0; v < vectors.size(); ++v)
    for (std::int64_t c = 0; c < chunk_count(vectors[v].bytes); ++c, ++next)
      base::expect(next < records.size() && key(records[next]) == std::tuple(v, c) &&
                       records[next].at("bytes").get<std::int64_t>() == chunk_size(vectors[v].bytes, c),
                   "the ranks hold every chunk of every vector exactly once, whole");
  base::expect(next == records.size(), "the ranks hold no chunk twice and none past a vector's end");
  return Json(std::move(records));
}

Json make_manifest(const SaveRequest& request, Json records) {
  std::map<std::string, std::int64_t> sizes;
  for (const auto& r : records) {
    auto& size = sizes[r.at("file").get<std::string>()];
    size = std::max(size, r.at("offset").get<std::int64_t>() + r.at("bytes").get<std::int64_t>());
  }
  Json vectors = Json::array(), files = Json::array();
  for (const auto& v : request.vectors) vectors.push_back({{"name", v.name}, {"dtype", v.dtype}, {"bytes", v.bytes}});
  for (const auto& [name, bytes] : sizes) files.push_back({{"name", name}, {"bytes", bytes}});
  Json manifest = {{"schema", manifest_schema},    {"version", manifest_version},  {"step", request.step},
                   {"identity", request.identity}, {"position", request.position}, {"vectors", std::move(vectors)},
                   {"chunks", std::move(records)}, {"files", std::move(files)},    {"producer", base::producer()}};
  if (!request.settings.is_null()) manifest["settings"] = request.settings;
  manifest["manifest_hash"] = hash_of_manifest(manifest);
  return manifest;
}

/// A checkpoint of this step that is there already: kept when every byte of it verifies and it is of the same configuration and
/// position (its manifest's hash is returned), renamed to .bad otherwise.
std::string keep_existing(const fs::path& target, const SaveRequest& request) {
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(target, ignored))) return {};
  if (const auto faults = verify(target); !faults.empty()) {
    const auto bad = rename_to_bad(target);
    base::log_warning(fmt::format("{} is damaged ({}), renamed to {}", target.string(), faults.front(), bad.filename().string()));
    return {};
  }
  const auto existing = open(target);
  if (existing.manifest.at("identity") != request.identity || existing.manifest.at("position") != request.position) {
    const auto bad = rename_to_bad(target);
    base::log_warning(
        fmt::format("{} was made by another configuration, renamed to {}", target.string(), bad.filename().string()));
    return {};
  }
  return existing.manifest_hash;
}

void make_temporary(const fs::path& root, const fs::path& tmp) {
  std::error_code error;
  fs::create_directories(root, error);
  if (error) base::throw_errno(error.value(), "create " + root.string());
  for (const auto& entry : list_entries(root))  // only attempts that died leave these
    if (entry.kind == EntryKind::temporary) remove_tree(entry.path);
  if (::mkdir(tmp.c_str(), 0755) != 0) base::throw_errno(errno, "create " + tmp.string());
  pass_fault_point("ckpt.after_tmp_dir");
}

void publish(const fs::path& root, const fs::path& tmp, const fs::path& target, const Json& manifest) {
  base::fsync_directory(tmp);
  base::publish_text(tmp / manifest_name, manifest.dump(1) + "\n");  // temporary name, fsync, rename, fsync of the directory
  pass_fault_point("ckpt.after_manifest");
  pass_fault_point("ckpt.before_rename");
  if (::rename(tmp.c_str(), target.c_str()) != 0)
    base::throw_errno(errno, fmt::format("rename {} to {}", tmp.string(), target.string()));
  pass_fault_point("ckpt.after_rename");
  base::fsync_directory(root);
}

}  // namespace

SaveSteps::SaveSteps(const comm::Comm& comm, SaveRequest request)
    : comm_(comm),
      request_(std::move(request)),
      target_(request_.root / step_name(request_.step)),
      tmp_(request_.root / fmt::format("{}.tmp.{}", step_name(request_.step), request_.attempt)),
      begin_s_(now_s()) {
  base::expect(request_.step >= 0, "a checkpoint's step is not negative");
}

/// Runs a collective part; when it fails the temporary directory goes, and what the world did wrong is exit 74.
template <class F>
void SaveSteps::guarded(F&& f) {
  try {
    f();
  } catch (const std::exception& e) {
    if (comm_.is_root()) {
      std::error_code failed;
      fs::remove_all(tmp_, failed);
      if (failed && failed != std::errc::not_a_directory)
        base::log_warning(fmt::format("{} could not be removed: {}", tmp_.string(), failed.message()));
    }
    const auto* error = dynamic_cast<const base::Error*>(&e);
    if (error && error->code() == base::ExitCode::io)
      throw CheckpointError(error->what(), error->hint().empty() ? "the previous checkpoint is untouched" : error->hint(),
                            error->where());
    throw;
  }
}

bool SaveSteps::begin() {
  guarded([&] {
    agreed_part(comm_, "checkpoint: look", comm_.is_root(), [&] { hash_ = keep_existing(target_, request_); });
    hash_ = comm_.broadcast(hash_);
    if (hash_.empty()) agreed_part(comm_, "checkpoint: create", comm_.is_root(), [&] { make_temporary(request_.root, tmp_); });
  });
  return hash_.empty();
}

/// This rank's chunks one after another in one file, synced and closed. Returns one record per chunk.
Json SaveSteps::write_chunks() {
  Json records = Json::array();
  if (request_.chunks.empty()) return records;
  const auto name = chunk_file_name(comm_.rank());
  auto file = base::open_file(tmp_ / name, O_WRONLY | O_CREAT | O_EXCL);
  std::int64_t offset = 0;
  for (const auto& chunk : request_.chunks) {
    if (cancelled_) throw base::IoError(file.path().string() + ": given up");
    base::pwrite_full(file, chunk.bytes, offset);
    const auto bytes = static_cast<std::int64_t>(chunk.bytes.size());
    records.push_back({{"vector", chunk.vector},
                       {"chunk", chunk.chunk},
                       {"file", name},
                       {"offset", offset},
                       {"bytes", bytes},
                       {"xxh3_128", base::xxh3_128_tagged(chunk.bytes)}});
    offset += bytes;
  }
  pass_fault_point("ckpt.after_data");
  base::fsync_file(file);
  pass_fault_point("ckpt.after_data_fsync");
  file.close();
  return records;
}

void SaveSteps::write() noexcept {
  const double start = now_s();
  keep_error(error_, bug_, [&] { records_ = write_chunks().dump(); });
  work_s_ += now_s() - start;
}

void SaveSteps::agree_written() {
  guarded([&] {
    if (bug_) std::rethrow_exception(bug_);
    comm::agree(comm_, "checkpoint: write", error_);
    agreed_part(comm_, "checkpoint: agreed", true, [] { pass_fault_point("ckpt.after_agree"); });
    all_records_ = ordered_records(comm_.all_gather(records_), request_.vectors);
  });
}

void SaveSteps::publish() noexcept {
  const double start = now_s();
  keep_error(error_, bug_, [&] {
    const Json manifest = make_manifest(request_, std::move(all_records_));
    hash_ = manifest.at("manifest_hash").get<std::string>();
    ckpt::publish(request_.root, tmp_, target_, manifest);
  });
  work_s_ += now_s() - start;
}

Saved SaveSteps::end() {
  guarded([&] {
    if (bug_) std::rethrow_exception(bug_);
    comm::agree(comm_, "checkpoint: publish", error_);
    hash_ = comm_.broadcast(hash_);
  });
  Saved saved{target_, hash_};
  saved.seconds = static_cast<double>(comm_.max(static_cast<std::int64_t>(work_s_ * 1e6))) * 1e-6;
  saved.elapsed_s = now_s() - begin_s_;
  return saved;
}

Saved save(const comm::Comm& comm, const SaveRequest& request) {
  SaveSteps steps(comm, request);
  if (steps.begin()) {
    steps.write();
    steps.agree_written();
    if (comm.is_root()) steps.publish();
  }
  auto saved = steps.end();
  saved.blocked_s = saved.elapsed_s;
  return saved;
}

}  // namespace aerie::ckpt
