// SPDX-License-Identifier: Apache-2.0
// The numbered steps of publication (docs/reference/checkpoint.md), cut where a thread may take over: what is local runs on any
// thread and keeps its error, what is collective runs on the thread that owns MPI. One failing rank fails the save on all; the
// temporary directory is then removed, and no older checkpoint was touched.
#pragma once
#include <atomic>
#include <exception>
#include <optional>
#include <string>

#include <aerie/base/error.hpp>
#include <aerie/ckpt/checkpoint.hpp>

namespace aerie::ckpt {

class SaveSteps {
 public:
  SaveSteps(const comm::Comm& comm, SaveRequest request);

  /// Steps 2 and 3. False when a whole checkpoint of this step is there already; then only end() is left. Collective.
  bool begin();
  /// Step 4, this rank's file. Local, any thread. What went wrong is kept for agree_written().
  void write() noexcept;
  /// write() gives up before its next chunk. Any thread.
  void cancel() noexcept { cancelled_ = true; }
  /// Step 5. Collective, after write() on every rank.
  void agree_written();
  /// Steps 6 and 7, rank 0's. Local, any thread. What went wrong is kept for end().
  void publish() noexcept;
  /// Collective, after publish() on rank 0.
  Saved end();

 private:
  template <class F>
  void guarded(F&& f);
  base::Json write_chunks();
  comm::Comm comm_;
  SaveRequest request_;
  std::filesystem::path target_, tmp_;
  std::string records_ = "[]", hash_;
  base::Json all_records_;
  std::atomic<bool> cancelled_{false};
  std::optional<base::Error> error_;
  std::exception_ptr bug_;
  double begin_s_ = 0, work_s_ = 0;
};

}  // namespace aerie::ckpt
