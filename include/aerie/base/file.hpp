// SPDX-License-Identifier: Apache-2.0
// Files: owned descriptors, full reads and writes, and publication that survives a power cut
// (write to a temporary name, fsync, rename, fsync of the directory).
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace aerie::base {

/// Owner of a file descriptor. Move-only; the destructor closes and ignores errors, `close()` reports them.
class File {
 public:
  File() = default;
  explicit File(int fd, std::filesystem::path path = {}) noexcept : fd_(fd), path_(std::move(path)) {}
  ~File();
  File(File&& o) noexcept;
  File& operator=(File&& o) noexcept;
  int fd() const noexcept { return fd_; }
  const std::filesystem::path& path() const noexcept { return path_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  /// Throws IoError.
  void close();

 private:
  int fd_ = -1;
  std::filesystem::path path_;
};

/// Throws MissingInputError when the file is not there, IoError otherwise.
File open_read(const std::filesystem::path& path);
/// `flags` and `mode` as for open(2). Throws IoError.
File open_file(const std::filesystem::path& path, int flags, unsigned mode = 0644);

/// Reads or writes all of `bytes` at `offset`; short transfers and EINTR are continued, at most 1 GiB a call.
/// Throws IoError; reading past the end of the file is a DataError that names the file, the offset and the size.
void pread_full(const File& file, std::span<std::byte> bytes, std::int64_t offset);
void pwrite_full(const File& file, std::span<const std::byte> bytes, std::int64_t offset);
/// Appends all of `bytes` at the descriptor's position.
void write_full(const File& file, std::span<const std::byte> bytes);

std::int64_t file_size(const File& file);
/// Throws IoError. An fsync error is final: the kernel may have dropped the pages, never retry.
void fsync_file(const File& file);
void fdatasync_file(const File& file);
void fsync_directory(const std::filesystem::path& dir);

/// Whole file as text. Throws MissingInputError or IoError.
std::string read_text(const std::filesystem::path& path);

/// Writes `path` so that at every moment it holds either the old or the new content: temporary name in the same
/// directory, fsync, rename, fsync of the directory. `durable = false` leaves out both fsyncs (status files).
void publish_text(const std::filesystem::path& path, std::string_view text, bool durable = true);

/// Removes what publish_text leaves beside `path` when it is killed. For callers that know that nobody else publishes it now.
void remove_temporaries(const std::filesystem::path& path);

/// rename(2) then fsync of the parent directory. Throws IoError.
void rename_durable(const std::filesystem::path& from, const std::filesystem::path& to);

/// Appends one line (a newline is added) with a single write(2) in O_APPEND mode, then fsync. Creates the file.
/// A torn last line left by a power cut is closed off first, so that the new line stands alone. Several processes may append at
/// once; that may leave an empty line between theirs.
void append_line(const std::filesystem::path& path, std::string_view line);

/// An exclusive or shared lock on a side file (open-file-description lock: closing another descriptor does not drop it).
/// The holder's text is written into the file for people. Released by the destructor.
class FileLock {
 public:
  enum class Mode { shared, exclusive };
  /// Nothing when somebody else holds it. Throws IoError. `holder` replaces the file's content (exclusive mode only).
  static std::optional<FileLock> try_acquire(const std::filesystem::path& path, Mode mode, std::string_view holder);
  /// The text of the last holder, empty when there is none.
  static std::string holder(const std::filesystem::path& path);
  /// Exclusive to shared, without a moment in between. Throws IoError.
  void downgrade();
  FileLock(FileLock&&) noexcept = default;
  FileLock& operator=(FileLock&&) noexcept = default;

 private:
  explicit FileLock(File file) : file_(std::move(file)) {}
  File file_;
};

}  // namespace aerie::base
