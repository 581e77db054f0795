// SPDX-License-Identifier: Apache-2.0
#include "loop_image.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "harness.hpp"
#include "temp_dir.hpp"

namespace aerie::crash {
namespace {

/// Runs a program with nothing on stdout; its exit code, 127 when it is not there.
int run(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const auto& w : words) argv.push_back(const_cast<char*>(w.c_str()));
  argv.push_back(nullptr);
  const auto pid = ::fork();
  if (pid == 0) {
    ::setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
    const int null = ::open("/dev/null", O_WRONLY);
    ::dup2(null, STDOUT_FILENO);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  return wait_for(pid);
}
void must(const std::vector<std::string>& words) {
  if (const int code = run(words); code != 0)
    throw std::runtime_error(words[0] + " " + words.back() + " ended " + std::to_string(code));
}

}  // namespace

LoopImage::LoopImage(std::string type, const std::filesystem::path& folder, int megabytes)
    : type_(std::move(type)), image_(folder / "image"), mount_(folder / "mount") {
  std::filesystem::create_directories(mount_);
  {
    const int fd = ::open(image_.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 || ::ftruncate(fd, std::int64_t{megabytes} << 20) != 0) throw std::runtime_error("make " + image_.string());
    ::close(fd);
  }
  must({"mkfs." + type_, "-q", image_});
  mount();
}
LoopImage::~LoopImage() {
  if (mounted_ && ::umount2(mount_.c_str(), MNT_DETACH) != 0) std::perror(("umount " + mount_.string()).c_str());
}

void LoopImage::mount() {
  must({"mount", "-t", type_, "-o", "loop", image_, mount_});
  mounted_ = true;
}
void LoopImage::unmount() {
  if (::umount2(mount_.c_str(), 0) != 0) throw std::runtime_error("umount " + mount_.string() + ": " + std::strerror(errno));
  mounted_ = false;
}
void LoopImage::remount() {
  unmount();
  mount();
}
void LoopImage::cut_power() const {
  constexpr unsigned long shutdown_request = 0x8004587DUL;  // FS_IOC_SHUTDOWN
  std::uint32_t no_log_flush = 2;
  const int fd = ::open(mount_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || ::ioctl(fd, shutdown_request, &no_log_flush) != 0)
    throw std::runtime_error(std::string("cut the power: ") + std::strerror(errno));
  ::close(fd);
}

std::optional<std::string> loop_images_unavailable(const std::string& type) {
  if (::geteuid() != 0) return "mounting needs root";
  if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return std::string("no private mount namespace: ") + std::strerror(errno);
  try {
    const test::TempDir dir;
    LoopImage(type, dir.path(), 400).remount();
  } catch (const std::exception& e) {
    return e.what();
  }
  return std::nullopt;
}

int skip_or_fail(const std::string& why) {
  if (is_required("loop")) return std::printf("FAILED: AERIE_REQUIRE names loop, but: %s\n", why.c_str()), 1;
  return std::printf("SKIP: %s\n", why.c_str()), skipped;
}

}  // namespace aerie::crash
