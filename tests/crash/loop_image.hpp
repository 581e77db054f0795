// SPDX-License-Identifier: Apache-2.0
// A file system of its own in an image file, whose power can be cut. Mounted in a mount namespace that only this process and its
// children see: whatever happens to them, the kernel takes mount and loop device away with the last of them.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

namespace aerie::crash {

class LoopImage {
 public:
  /// Makes the image of `megabytes` with mkfs.TYPE ("ext4", "xfs") in `folder` and mounts it. Throws std::runtime_error.
  LoopImage(std::string type, const std::filesystem::path& folder, int megabytes);
  ~LoopImage();
  LoopImage(const LoopImage&) = delete;
  LoopImage& operator=(const LoopImage&) = delete;
  const std::filesystem::path& path() const { return mount_; }
  /// Dirty pages and the unflushed journal are gone, and every later write fails.
  void cut_power() const;
  /// Unmounts and mounts again: the journal is replayed. Nobody may have a file open in it.
  void remount();

 private:
  void mount();
  void unmount();
  std::string type_;
  std::filesystem::path image_, mount_;
  bool mounted_ = false;
};

/// Enters a private mount namespace. Returns why images of `type` cannot be mounted here (not root, no mkfs, no loop device), or
/// nothing when they can.
std::optional<std::string> loop_images_unavailable(const std::string& type);
/// Prints SKIP and returns 77, or 1 when AERIE_REQUIRE names "loop".
int skip_or_fail(const std::string& why);

}  // namespace aerie::crash
