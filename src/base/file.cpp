// SPDX-License-Identifier: Apache-2.0
#include <aerie/base/file.hpp>

#include <aerie/base/error.hpp>
#include <aerie/base/fault.hpp>
#include <aerie/base/host.hpp>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace aerie::base {
namespace {
constexpr std::size_t max_call = std::size_t{1} << 30;
constexpr int max_empty_calls = 1000;  // in a row; a disk that takes nothing is not waited for

/// One call of a full transfer behind its fault point; `call` takes the number of bytes to move. Returns what it returned, with
/// errno.
template <class Call>
ssize_t transfer(const char* point, std::size_t bytes, Call&& call) {
  bytes = std::min(bytes, max_call);
  const auto fault = fault_call(point, bytes);
  if (fault.error != 0) {
    errno = fault.error;
    return -1;
  }
  if (fault.skip) return static_cast<ssize_t>(bytes);
  bytes = std::min(bytes, fault.limit);
  return bytes == 0 ? 0 : call(bytes);
}

/// Writes all of `bytes` through `call(pointer, count, done)`.
template <class Call>
void write_all(const File& file, std::span<const std::byte> bytes, const char* point, const std::string& place, Call&& call) {
  std::size_t done = 0;
  int empty = 0;
  while (done < bytes.size()) {
    const auto n =
        transfer(point, bytes.size() - done, [&](std::size_t count) { return call(bytes.data() + done, count, done); });
    if (n < 0) {
      if (errno == EINTR) continue;
      throw_errno(errno, fmt::format("write {}{}", file.path().string(), place));
    }
    empty = n == 0 ? empty + 1 : 0;
    if (empty > max_empty_calls)
      throw IoError(fmt::format("write {}{}: the file takes no more bytes", file.path().string(), place),
                    "check the file system");
    done += static_cast<std::size_t>(n);
  }
}

/// fsync(2) or fdatasync(2). EINTR is an error like any other: what happened to the pages is not known.
void sync_call(const File& file, const char* point, const char* name, int (*call)(int)) {
  const auto fault = fault_call(point);
  if (fault.skip) return;
  if (fault.error != 0) throw_errno(fault.error, fmt::format("{} {}", name, file.path().string()));
  if (call(file.fd()) != 0) throw_errno(errno, fmt::format("{} {}", name, file.path().string()));
}
}  // namespace

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}
File::File(File&& o) noexcept : fd_(std::exchange(o.fd_, -1)), path_(std::move(o.path_)) {}
File& File::operator=(File&& o) noexcept {
  if (this != &o) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = std::exchange(o.fd_, -1);
    path_ = std::move(o.path_);
  }
  return *this;
}
void File::close() {
  if (fd_ < 0) return;
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) throw_errno(errno, "close " + path_.string());
}

File open_file(const std::filesystem::path& path, int flags, unsigned mode) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  if (fd < 0) throw_errno(errno, "open " + path.string());
  return File(fd, path);
}
File open_read(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT || errno == ENOTDIR) throw MissingInputError(path.string() + ": no such file", "check the path");
    throw_errno(errno, "open " + path.string());
  }
  return File(fd, path);
}

void pread_full(const File& file, std::span<std::byte> bytes, std::int64_t offset) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const auto n = transfer("file.pread", bytes.size() - done, [&](std::size_t count) {
      return ::pread(file.fd(), bytes.data() + done, count, offset + static_cast<std::int64_t>(done));
    });
    if (n < 0) {
      if (errno == EINTR) continue;
      throw_errno(errno, fmt::format("read {} at {}", file.path().string(), offset));
    }
    if (n == 0)
      throw DataError(fmt::format("{}: {} bytes wanted at offset {}, but the file ends at {}", file.path().string(), bytes.size(),
                                  offset, file_size(file)),
                      "the file is cut short");
    done += static_cast<std::size_t>(n);
  }
}
void pwrite_full(const File& file, std::span<const std::byte> bytes, std::int64_t offset) {
  write_all(file, bytes, "file.pwrite", fmt::format(" at {}", offset),
            [&](const std::byte* data, std::size_t count, std::size_t done) {
              return ::pwrite(file.fd(), data, count, offset + static_cast<std::int64_t>(done));
            });
}
void write_full(const File& file, std::span<const std::byte> bytes) {
  write_all(file, bytes, "file.write", "",
            [&](const std::byte* data, std::size_t count, std::size_t) { return ::write(file.fd(), data, count); });
}

std::int64_t file_size(const File& file) {
  struct stat st {};
  if (::fstat(file.fd(), &st) != 0) throw_errno(errno, "stat " + file.path().string());
  return st.st_size;
}
void fsync_file(const File& file) { sync_call(file, "file.fsync", "fsync", ::fsync); }
void fdatasync_file(const File& file) { sync_call(file, "file.fdatasync", "fdatasync", ::fdatasync); }
void fsync_directory(const std::filesystem::path& dir) {
  const auto d = open_file(dir.empty() ? "." : dir, O_RDONLY | O_DIRECTORY);
  fsync_file(d);
}

std::string read_text(const std::filesystem::path& path) {
  const auto f = open_read(path);
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const auto n = ::read(f.fd(), buffer, sizeof buffer);
    if (n < 0) {
      if (errno == EINTR) continue;
      throw_errno(errno, "read " + path.string());
    }
    if (n == 0) return text;
    text.append(buffer, static_cast<std::size_t>(n));
  }
}

void publish_text(const std::filesystem::path& path, std::string_view text, bool durable) {
  // Two nodes, or two containers of one, that publish the same file (in containers often with the same small pid) must not
  // share the temporary.
  const auto tmp =
      std::filesystem::path(path.string() + fmt::format(".tmp.{}.{}.{}", host_name(), own_pid_namespace(), ::getpid()));
  try {
    auto f = open_file(tmp, O_WRONLY | O_CREAT | O_TRUNC);
    write_full(f, std::as_bytes(std::span(text)));
    if (durable) fsync_file(f);
    f.close();
    if (const int e = fault_point("file.rename")) throw_errno(e, "rename to " + path.string());
    if (::rename(tmp.c_str(), path.c_str()) != 0) throw_errno(errno, "rename to " + path.string());
  } catch (...) {
    ::unlink(tmp.c_str());
    throw;
  }
  if (durable) fsync_directory(path.parent_path());
}

void remove_temporaries(const std::filesystem::path& path) {
  const auto begin = path.filename().string() + ".tmp.";
  const auto folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  std::error_code error;
  std::filesystem::directory_iterator it(folder, error);
  std::vector<std::filesystem::path> found;
  for (const auto end = std::filesystem::directory_iterator(); !error && it != end; it.increment(error))
    if (it->path().filename().string().starts_with(begin)) found.push_back(it->path());
  for (const auto& f : found) std::filesystem::remove(f, error);
}

void rename_durable(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (const int e = fault_point("file.rename")) throw_errno(e, fmt::format("rename {} to {}", from.string(), to.string()));
  if (::rename(from.c_str(), to.c_str()) != 0) throw_errno(errno, fmt::format("rename {} to {}", from.string(), to.string()));
  fsync_directory(to.parent_path());
}

void append_line(const std::filesystem::path& path, std::string_view line) {
  const bool fresh = !std::filesystem::exists(path);
  auto f = open_file(path, O_RDWR | O_CREAT | O_APPEND);
  std::string text;
  if (const auto size = file_size(f); size > 0) {
    std::byte last{};
    pread_full(f, {&last, 1}, size - 1);
    if (last != std::byte{'\n'}) text += '\n';
  }
  text.append(line);
  text += '\n';
  write_full(f, std::as_bytes(std::span<const char>(text)));
  fsync_file(f);
  if (fresh) fsync_directory(path.parent_path());
}

std::optional<FileLock> FileLock::try_acquire(const std::filesystem::path& path, Mode mode, std::string_view holder) {
  auto f = open_file(path, O_RDWR | O_CREAT);
  struct flock lock {};
  lock.l_type = static_cast<short>(mode == Mode::exclusive ? F_WRLCK : F_RDLCK);
  lock.l_whence = SEEK_SET;
  if (::fcntl(f.fd(), F_OFD_SETLK, &lock) != 0) {
    if (errno == EAGAIN || errno == EACCES) return std::nullopt;
    throw_errno(errno, "lock " + path.string());
  }
  if (mode == Mode::exclusive) {
    if (::ftruncate(f.fd(), 0) != 0) throw_errno(errno, "truncate " + path.string());
    pwrite_full(f, std::as_bytes(std::span(holder)), 0);
  }
  return FileLock(std::move(f));
}
void FileLock::downgrade() {
  struct flock lock {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(file_.fd(), F_OFD_SETLK, &lock) != 0) throw_errno(errno, "share the lock " + file_.path().string());
}
std::string FileLock::holder(const std::filesystem::path& path) {
  return std::filesystem::exists(path) ? read_text(path) : std::string{};
}

}  // namespace aerie::base
