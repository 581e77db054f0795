// SPDX-License-Identifier: Apache-2.0
// A save beside training. At the step boundary the chunks are copied to host memory; writing, hashing, syncing and publishing
// then happen in a thread. The thread never calls MPI: it finishes a stage, "all ranks are ready" rides on a collective that the
// caller makes anyway, and advance() agrees and opens the next stage. Nothing is forked.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include <aerie/ckpt/checkpoint.hpp>

namespace aerie::ckpt {

/// Copies chunk bytes to host memory; std::memcpy unless given. For chunks that lie in device memory.
using CopyBytes = std::function<void(std::span<const std::byte> from, std::span<std::byte> to)>;

class BackgroundSave {
 public:
  /// Copies this rank's chunks into `staging` (at least their bytes; untouched by others until the end) and starts writing. The
  /// request's own bytes may change as soon as this returns. Throws as save(). Collective over `comm`.
  BackgroundSave(const comm::Comm& comm, SaveRequest request, std::span<std::byte> staging, const CopyBytes& copy = {});
  /// An unfinished save is given up: its temporary directory stays for the next save or start to remove.
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  std::int64_t step() const;
  /// This rank has nothing more to do in the present stage. Local, never waits.
  bool ready() const;
  /// Goes to the next stage, waiting for this rank's thread if need be. Returns the result once published; throws as save() when
  /// any rank failed. Call it when every rank is ready, or to wait. Collective over `comm`.
  std::optional<Saved> advance();
  /// Waits until it is published. Collective over `comm`.
  Saved wait();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace aerie::ckpt
