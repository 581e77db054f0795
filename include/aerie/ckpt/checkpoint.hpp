// SPDX-License-Identifier: Apache-2.0
// Checkpoints: named flat vectors cut into fixed chunks, published so that a half-written one is never read (docs/reference/
// checkpoint.md). Deals in bytes; knows no tensor class. `aerie verify` and `aerie inspect` use this on a login node.
//
// RUN/checkpoints/step-00001200/  chunk-0000.bin (one per writing rank)  MANIFEST.json
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <aerie/base/json.hpp>
#include <aerie/comm/comm.hpp>

namespace aerie::ckpt {

/// Bytes of a vector are cut at multiples of this, whatever the rank count: 4 MiB = 2^20 fp32 values, one optimizer block.
constexpr std::int64_t chunk_bytes = std::int64_t{4} << 20;

/// A vector of the checkpoint as the manifest describes it.
struct VectorInfo {
  std::string name;   // "masters", "exp_avg", "exp_avg_sq"
  std::string dtype;  // "F32"
  std::int64_t bytes = 0;
};
/// A chunk that this rank holds: bytes [chunk * chunk_bytes, min(end)) of vector `vector`. Borrowed.
struct ChunkToWrite {
  std::string vector;
  std::int64_t chunk = 0;
  std::span<const std::byte> bytes;
};

struct SaveRequest {
  std::filesystem::path root;  // RUN/checkpoints
  std::int64_t step = 0;
  std::int64_t attempt = 0;
  base::Json identity;  // configuration hash, store uuid, dataset hash, vocabulary hash ...; compared on load
  base::Json position;  // packs consumed, step, state of the loss watch
  base::Json settings;  // the whole configuration, for people and for saying what changed; never compared to refuse
  std::vector<VectorInfo> vectors;
  std::vector<ChunkToWrite> chunks;  // this rank's; over all ranks every chunk exactly once
};
/// Publishes root/step-XXXXXXXX. Collective over `comm`; one failing rank fails all (CheckpointError), leaving the previous
/// checkpoint untouched and no temporary directory. A checkpoint of that step that verifies is kept and returned; a damaged one
/// is renamed to .bad. Returns the final path and the manifest's hash. One save at a time in a run: temporary directories of
/// others are removed.
struct Saved {
  std::filesystem::path path;
  std::string manifest_hash;
  double seconds = 0;    // writing and publishing, of the slowest rank: what a save costs that is waited for
  double elapsed_s = 0;  // from the step boundary to the publication
  double blocked_s = 0;  // that the calling thread spent in it
};
Saved save(const comm::Comm& comm, const SaveRequest& request);

struct Checkpoint {
  std::filesystem::path path;
  std::int64_t step = 0;
  base::Json manifest;  // identity, position, vectors, chunks
  std::string manifest_hash;
  std::function<void()> before_chunk = {};  // read_chunk calls it first; it may throw (a stop)
};
/// Manifest parses, its own hash holds, all files are there with their sizes. Throws DataError or MissingInputError; RefusedError
/// when the format is newer than this program.
Checkpoint open(const std::filesystem::path& dir);
/// Newest checkpoint that open() accepts. Damaged ones are renamed to .bad (`rename_bad`) and reported through `log`; read errors
/// throw IoError, newer formats RefusedError, and rename nothing. Steps to `avoid` come last: an older one is taken before them.
/// Local.
std::optional<Checkpoint> latest(const std::filesystem::path& root, bool rename_bad,
                                 const std::function<void(const std::string&)>& log = {},
                                 const std::set<std::int64_t>& avoid = {});
/// Renames a checkpoint that turned out damaged to .bad, durably, so that latest() finds the one before it. Local, on one rank.
std::filesystem::path set_aside(const std::filesystem::path& dir);
/// True when the run has ever had a checkpoint: step-*, .bad or .old directories. Then a fresh start must be refused.
bool ever_had_checkpoint(const std::filesystem::path& root);
/// Names of the directories that were set aside (.bad), ascending.
std::vector<std::string> list_set_aside(const std::filesystem::path& root);
/// Steps of the published directories, ascending, damaged ones included.
std::vector<std::int64_t> list_steps(const std::filesystem::path& root);

/// Reads one chunk into `out` and checks its XXH3-128. Throws DataError naming file and chunk.
void read_chunk(const Checkpoint& checkpoint, const std::string& vector, std::int64_t chunk, std::span<std::byte> out);
/// A whole vector. Throws as read_chunk, and RefusedError when the checkpoint has none of that name.
std::vector<std::byte> read_vector(const Checkpoint& checkpoint, const std::string& vector);
/// SHA-256 of a vector's bytes: independent of rank counts and files.
std::string vector_sha256(const Checkpoint& checkpoint, const std::string& vector);

/// Full check: every chunk's hash. One line per fault; empty when whole. Throws MissingInputError when `dir` is not there,
/// IoError when it cannot be read, RefusedError for a newer format.
std::vector<std::string> verify(const std::filesystem::path& dir);

/// Keeps the newest `keep` (at least 2) that open and multiples of `keep_every` (0: none); never deletes while fewer than two
/// others open, nor `loaded_step` (pass -1 once two newer ones are published), nor one that does not open. Also removes
/// leftovers. Local, on one rank.
void apply_retention(const std::filesystem::path& root, std::int64_t keep, std::int64_t keep_every, std::int64_t loaded_step);
/// Removes step-*.tmp.* and .old left by dead attempts. Local, on one rank.
void remove_leftovers(const std::filesystem::path& root);

}  // namespace aerie::ckpt
