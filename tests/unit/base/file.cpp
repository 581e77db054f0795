// SPDX-License-Identifier: Apache-2.0
// Files: full transfers, publication, appending beside torn lines, locks between processes.
#include <aerie/base/file.hpp>

#include <csignal>
#include <fstream>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <aerie/base/error.hpp>
#include "temp_dir.hpp"

namespace base = aerie::base;
namespace fs = std::filesystem;

namespace {
void put(const fs::path& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }
int entries(const fs::path& dir) {
  return static_cast<int>(std::distance(fs::directory_iterator(dir), fs::directory_iterator()));
}
}  // namespace

TEST(File, MissingAndOtherErrorsAreTold) {
  aerie::test::TempDir dir;
  EXPECT_THROW(base::open_read(dir / "none"), base::MissingInputError);
  put(dir / "file", "x");
  EXPECT_THROW(base::open_read(dir / "file" / "below"), base::MissingInputError);
  EXPECT_THROW(base::open_file(dir / "no" / "such", O_WRONLY | O_CREAT), base::IoError);
  EXPECT_THROW(base::read_text(dir.path()), base::IoError);
}

TEST(File, ReadingPastTheEndNamesFileAndSize) {
  aerie::test::TempDir dir;
  put(dir / "f", "12345");
  const auto f = base::open_read(dir / "f");
  std::vector<std::byte> buffer(4);
  base::pread_full(f, buffer, 1);
  EXPECT_EQ(static_cast<char>(buffer[0]), '2');
  try {
    base::pread_full(f, buffer, 2);
    FAIL() << "reading past the end passed";
  } catch (const base::DataError& e) {
    EXPECT_NE(std::string(e.what()).find((dir / "f").string()), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("ends at 5"), std::string::npos);
  }
}

TEST(File, MovedFromOwnsNothing) {
  aerie::test::TempDir dir;
  auto a = base::open_file(dir / "f", O_WRONLY | O_CREAT);
  const int fd = a.fd();
  base::File b = std::move(a);
  EXPECT_FALSE(a);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(b.fd(), fd);
  b.close();
  EXPECT_EQ(::fcntl(fd, F_GETFD), -1);
}

TEST(File, PublishReplacesWholeAndLeavesNothingBeside) {
  aerie::test::TempDir dir;
  for (const bool durable : {true, false}) {
    base::publish_text(dir / "f", "old", durable);
    base::publish_text(dir / "f", "new content", durable);
    EXPECT_EQ(base::read_text(dir / "f"), "new content");
    EXPECT_EQ(entries(dir.path()), 1);
  }
  fs::create_directory(dir / "occupied");
  put(dir / "occupied" / "x", "");
  EXPECT_THROW(base::publish_text(dir / "occupied", "text"), base::IoError);  // the rename fails
  EXPECT_EQ(entries(dir.path()), 2);
  EXPECT_THROW(base::publish_text(dir / "none" / "f", "text"), base::IoError);
}

TEST(File, AppendedLinesStandAlone) {
  aerie::test::TempDir dir;
  base::append_line(dir / "l", "one");
  base::append_line(dir / "l", "two");
  EXPECT_EQ(base::read_text(dir / "l"), "one\ntwo\n");
  put(dir / "torn", "one\ntw");
  base::append_line(dir / "torn", "three");
  EXPECT_EQ(base::read_text(dir / "torn"), "one\ntw\nthree\n");
}

TEST(File, AppendsOfTwoProcessesDoNotMix) {
  aerie::test::TempDir dir;
  const std::string a(300, 'a'), b(300, 'b');
  const pid_t child = ::fork();
  if (child == 0) {
    for (int i = 0; i < 100; ++i) base::append_line(dir / "l", a);
    ::_exit(0);
  }
  for (int i = 0; i < 100; ++i) base::append_line(dir / "l", b);
  int status = 0;
  ::waitpid(child, &status, 0);
  std::ifstream in(dir / "l");
  int n_a = 0, n_b = 0;
  for (std::string line; std::getline(in, line);) {
    // A process that looks while the other's write is half visible closes it off: an empty line, which readers pass over.
    if (line.empty()) continue;
    EXPECT_TRUE(line == a || line == b) << "lines are mixed: " << line;
    ++(line == a ? n_a : n_b);
  }
  EXPECT_EQ(n_a, 100);
  EXPECT_EQ(n_b, 100);
}

TEST(FileLock, ExcludesAnotherProcessAndEndsWithItsHolder) {
  using Mode = base::FileLock::Mode;
  aerie::test::TempDir dir;
  const auto path = dir / "lock";
  int ready[2], go[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(go), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto lock = base::FileLock::try_acquire(path, Mode::exclusive, "job 7 on node3");
    { auto second_descriptor = base::open_read(path); }  // closing another descriptor must not drop the lock
    char c = lock ? 'y' : 'n';
    if (::write(ready[1], &c, 1) != 1 || ::read(go[0], &c, 1) != 1) ::_exit(2);
    ::raise(SIGKILL);  // a killed holder holds nothing
  }
  char c = 0;
  ASSERT_EQ(::read(ready[0], &c, 1), 1);
  EXPECT_EQ(c, 'y');
  EXPECT_FALSE(base::FileLock::try_acquire(path, Mode::exclusive, "me"));
  EXPECT_FALSE(base::FileLock::try_acquire(path, Mode::shared, "me"));
  EXPECT_EQ(base::FileLock::holder(path), "job 7 on node3");
  ASSERT_EQ(::write(go[1], &c, 1), 1);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  auto mine = base::FileLock::try_acquire(path, Mode::exclusive, "me");
  EXPECT_TRUE(mine);
  EXPECT_EQ(base::FileLock::holder(path), "me");
  mine.reset();
  auto one = base::FileLock::try_acquire(path, Mode::shared, ""), two = base::FileLock::try_acquire(path, Mode::shared, "");
  EXPECT_TRUE(one && two);
  EXPECT_FALSE(base::FileLock::try_acquire(path, Mode::exclusive, ""));
  for (const int fd : {ready[0], ready[1], go[0], go[1]}) ::close(fd);
}
