// SPDX-License-Identifier: Apache-2.0
// The store of hidden states: the only contract between extraction and training. Fixed, preallocated, contiguous HDF5 part
// files; HDF5 creates and reads them, writers use pwrite at known offsets and never touch metadata afterwards. A sample
// counts as done only by a 16-byte state record written after fdatasync covered its data (docs/reference/store.md).
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <aerie/base/json.hpp>

namespace aerie::io {

enum class StateKind : std::uint8_t { pending = 0, done = 1, failed = 2 };
enum class FailReason : std::uint32_t {
  none = 0,
  empty = 1,
  too_long = 2,
  no_loss = 3,
  bad_token = 4,
  bad_input = 5,
  nonfinite = 6,
  target = 7
};
std::string_view reason_name(FailReason reason);  // "EMPTY", "TOO_LONG", ...
enum class StateDtype { bf16, fp8_e4m3 };
/// none: for file systems whose locks do not work; the user promises that one job at a time writes.
enum class Locks { fcntl, none };

/// Status of one sample as its record says it. A torn record reads as pending.
struct SampleState {
  StateKind kind = StateKind::pending;
  FailReason reason = FailReason::none;
  std::uint64_t xxh3 = 0;
};

/// Identities and geometry, written as root attributes of every part and repeated in the manifest.
struct StoreIdentity {
  std::int64_t hidden_size = 0, max_length = 0, target_num_layers = 0, vocab_size = 0;
  std::array<std::int32_t, 3> aux_layer_ids{};       // input-of-layer
  std::string last_hidden_norm = "post_final_norm";  // or pre_final_norm (imports)
  bool row_invariant = true;
  std::int64_t gemm_rows = 0;
  double final_norm_eps = 0;
  std::string final_norm_hash, target_name, target_revision, target_config_hash, target_weights_hash, lm_head_hash, embed_hash,
      tokenizer_hash, dataset_hash, producer;
  StateDtype dtype = StateDtype::bf16;
};
/// One sample of the dataset at planning. A rejected sample has zero rows and is born failed.
struct PlannedSample {
  std::int64_t n_tokens = 0;
  FailReason reject = FailReason::none;
};

struct PartInfo {
  std::string file;               // "parts/part-00000.h5"
  std::int64_t first = 0, n = 0;  // samples
  std::int64_t tokens = 0, bytes = 0;
  std::string uuid, meta_xxh3;
};

struct Counts {
  std::int64_t total = 0, pending = 0, done = 0, failed = 0, torn = 0;  // torn ones are counted in pending too
  std::array<std::int64_t, 8> by_reason{};                              // indexed by FailReason
  std::int64_t done_tokens = 0, total_tokens = 0;
};

/// Buffers of one sample; vectors keep their capacity between reads. States are raw bf16 bits: an fp8 store quantizes them when
/// they are written (e4m3, a scale per token and state) and widens them to bf16 on reading.
struct SampleData {
  std::vector<std::uint16_t> aux;       // [T, 3H]
  std::vector<std::uint16_t> last;      // [T, H]
  std::vector<std::int32_t> input_ids;  // [T]
  std::vector<std::uint8_t> loss_mask;  // [T]
};

class Store {
 public:
  /// Creates all parts and, last, the manifest. When a manifest with the same plan exists already only the parts that
  /// set_part_aside() moved away are made again; `part_bytes` may differ then, the store keeps its own. Throws RefusedError when
  /// it exists for another identity or plan (naming the fields), or when parts without a manifest hold records that are not
  /// pending; IoError on ENOSPC (space is reserved here). Local: call on one rank, then agree.
  static void create(const std::filesystem::path& dir, const StoreIdentity& identity, std::span<const PlannedSample> samples,
                     std::int64_t part_bytes, Locks locks = Locks::fcntl);
  /// Opens an existing store read-only and checks manifest, offsets and attributes. Throws MissingInputError (no manifest, a part
  /// is gone), DataError.
  static Store open(const std::filesystem::path& dir);
  static bool exists(const std::filesystem::path& dir);

  const std::filesystem::path& path() const;
  const StoreIdentity& identity() const;
  const std::string& uuid() const;
  const base::Json& manifest() const;
  const std::string& manifest_hash() const;  // xxh3-128 of manifest.json's bytes
  const std::vector<PartInfo>& parts() const;
  std::int64_t size() const;                       // samples
  std::int64_t length(std::int64_t sample) const;  // tokens
  std::int64_t part_of(std::int64_t sample) const;
  /// As read at open() or the last refresh() or look_again().
  const SampleState& state(std::int64_t sample) const;
  /// Reads all state records again, then fdatasync: what is trusted is on disk. Not while another thread reads.
  void refresh();
  /// The same without fdatasync: for showing progress, not for trusting.
  void look_again();
  Counts counts() const;

  /// Reads one sample and verifies its checksum. Throws ChecksumError, and DataError when the sample is not done: missing
  /// samples cannot be read as zeros. Several threads may read at once.
  void read(std::int64_t sample, SampleData& out) const;

  /// Field by field comparison; one line per difference ("lm_head_hash: store xxh3..., expected xxh3..."). What is for people
  /// only (target_name, target_revision, producer) is not compared, nor is a text that `expected` leaves empty: not known.
  static std::vector<std::string> differences(const StoreIdentity& store, const StoreIdentity& expected);

  struct Impl;  // private to io/

 private:
  friend struct StoreAccess;  // private to io/
  explicit Store(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

/// COMPLETE: what finalize found. Written durably when every record is done, excluded by rule or decided.
struct CompleteMarker {
  Counts counts;
  std::string manifest_hash;  // empty: taken from manifest.json when the marker is written
  std::string verification;   // "full", "fast" or "none"
};
void write_complete_marker(const std::filesystem::path& store, const CompleteMarker& marker);
/// Durably. Nothing to do when it is not there.
void remove_complete_marker(const std::filesystem::path& store);
/// True when COMPLETE is there and its counts and manifest hash still hold.
bool complete_marker_holds(const Store& store);

}  // namespace aerie::io
