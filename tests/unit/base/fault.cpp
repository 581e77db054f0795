// SPDX-License-Identifier: Apache-2.0
// Fault points: count, rank and action. Each case runs in a process of its own, since the choice is read once.
#include <aerie/base/fault.hpp>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>

#include "temp_dir.hpp"

namespace base = aerie::base;

#ifdef AERIE_FAULTS
namespace {
/// The exit code tells at which pass the point acted, and how.
[[noreturn]] void passes(const char* fault, const char* rank) {
  ::setenv("AERIE_FAULT", fault, 1);
  ::setenv("OMPI_COMM_WORLD_RANK", rank, 1);
  for (int i = 1; i <= 3; ++i) {
    if (base::fault_point("other") != 0) ::_exit(99);
    try {
      const int e = base::fault_point("here");
      if (e == ENOSPC) ::_exit(10 + i);
      if (e == EIO) ::_exit(20 + i);
    } catch (const base::IoError&) {
      ::_exit(30 + i);
    }
  }
  ::_exit(0);
}

/// Prints the passes, of twelve, at which the point acted.
[[noreturn]] void strikes(const char* fault) {
  ::setenv("AERIE_FAULT", fault, 1);
  for (int i = 1; i <= 12; ++i)
    if (base::fault_point("here") != 0) std::fprintf(stderr, "%d ", i);
  ::_exit(0);
}

/// Prints what a call that moves 1001 bytes is told.
[[noreturn]] void moves(const char* fault) {
  ::setenv("AERIE_FAULT", fault, 1);
  const auto f = base::fault_call("here", 1001);
  std::fprintf(stderr, "%zu %d %d", f.limit, f.error, static_cast<int>(f.skip));
  ::_exit(0);
}

[[noreturn]] void refused(const char* fault) {
  ::setenv("AERIE_FAULT", fault, 1);
  try {
    base::fault_point("here");
  } catch (const base::Bug&) {
    ::_exit(7);
  }
  ::_exit(0);
}

/// Through every full transfer and sync; ends with the code of the error, or 1 when the bytes are not those written.
[[noreturn]] void writes_and_reads(const std::string& fault) {
  ::setenv("AERIE_FAULT", fault.c_str(), 1);
  int code = 0;
  try {
    const aerie::test::TempDir dir;
    std::vector<std::byte> bytes(5000), back(5000);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 / 3);
    {
      const auto f = base::open_file(dir / "a", O_RDWR | O_CREAT);
      base::write_full(f, std::span(bytes).first(1000));
      for (std::size_t at = 1000; at < bytes.size(); at += 500)
        base::pwrite_full(f, std::span(bytes).subspan(at, 500), static_cast<std::int64_t>(at));
      base::fdatasync_file(f);
      base::fsync_file(f);
      base::pread_full(f, back, 0);
      if (back != bytes || base::file_size(f) != 5000) code = 1;
    }
    base::publish_text(dir / "text", "text");
    base::rename_durable(dir / "a", dir / "b");
    base::append_line(dir / "text", "line");
    if (base::read_text(dir / "text") != "text\nline\n") code = 1;
  } catch (const base::Error& e) {
    code = static_cast<int>(e.code());
  }
  ::_exit(code);
}
}  // namespace

TEST(FaultPoint, ActsOnceAtItsCountAndRank) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a fresh process: other tests of this one have passed points already
  EXPECT_EXIT(passes("here:0:2:enospc", "0"), testing::ExitedWithCode(12), "");
  EXPECT_EXIT(passes("here:0:1:eio", "0"), testing::ExitedWithCode(21), "");
  EXPECT_EXIT(passes("here:*:3:throw", "5"), testing::ExitedWithCode(33), "");
  EXPECT_EXIT(passes("here:1:1:exit", "1"), testing::ExitedWithCode(1), "");
  EXPECT_EXIT(passes("here:0:1:kill", "0"), testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(passes("here:1:1:kill", "0"), testing::ExitedWithCode(0), "");  // another rank's
  EXPECT_EXIT(passes("here:0:4:kill", "0"), testing::ExitedWithCode(0), "");  // never reached
  EXPECT_EXIT(passes("", "0"), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(passes("there:0:1:kill,here:0:1:eio", "0"), testing::ExitedWithCode(21), "");
}

TEST(FaultPoint, CountsRepeat) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(strikes("here:*:2:eio"), testing::ExitedWithCode(0), "^2 $");
  EXPECT_EXIT(strikes("here:*:7+:eio"), testing::ExitedWithCode(0), "^7 8 9 10 11 12 $");
  EXPECT_EXIT(strikes("here:*:every-5:eio"), testing::ExitedWithCode(0), "^5 10 $");
  EXPECT_EXIT(strikes("here:*:2:eio,here:*:every-3:eio"), testing::ExitedWithCode(0),
              "^2 3 6 9 12 $");  // each counts for itself
  EXPECT_EXIT(strikes("here:*:random-3-1:eio"), testing::ExitedWithCode(0), "^[0-9]+ ([0-9]+ )+$");
}

TEST(FaultPoint, CallsAreCutShortLeftOutOrFail) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(moves("here:0:1:one"), testing::ExitedWithCode(0), "^1 0 0$");
  EXPECT_EXIT(moves("here:0:1:half"), testing::ExitedWithCode(0), "^501 0 0$");
  EXPECT_EXIT(moves("here:0:1:zero"), testing::ExitedWithCode(0), "^0 0 0$");
  EXPECT_EXIT(moves("here:0:1:skip"), testing::ExitedWithCode(0), "^18446744073709551615 0 1$");
  EXPECT_EXIT(moves("here:0:1:eintr"), testing::ExitedWithCode(0), "^18446744073709551615 4 0$");
}

TEST(FaultPoint, MalformedTextsAreBugs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const char* bad : {"here", "here:0:1", "here:0:x:kill", "here:0:0:kill", "here:0:every-:kill", "here:0:random-3:kill",
                          ":0:1:kill", "here:0:1:kill:more", "here:0:1:bend"})
    EXPECT_EXIT(refused(bad), testing::ExitedWithCode(7), "") << bad;
  EXPECT_EXIT(refused("here:0:1:half"), testing::ExitedWithCode(7), "") << "nothing is moved at this point";
  EXPECT_EXIT(refused("here:0:1:skip"), testing::ExitedWithCode(7), "") << "nothing is wrapped at this point";
}

TEST(FaultPoint, FullTransfersGoOnAfterShortOnes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const std::string call : {"file.pwrite", "file.pread", "file.write"})
    EXPECT_EXIT(writes_and_reads(call + ":*:random-3-1:one," + call + ":*:random-3-2:half," + call + ":*:every-4:eintr"),
                testing::ExitedWithCode(0), "")
        << call;
  for (const std::string call : {"file.pwrite", "file.write"})
    EXPECT_EXIT(writes_and_reads(call + ":*:every-2:zero"), testing::ExitedWithCode(0), "") << call;
  EXPECT_EXIT(writes_and_reads("file.pread:*:1:zero"), testing::ExitedWithCode(65), "") << "the end of the file";
  for (const char* fault : {"file.pwrite:*:1+:zero", "file.pwrite:*:2:enospc", "file.pread:*:1:eio", "file.write:*:1:enospc",
                            "file.fsync:*:1:eintr", "file.fdatasync:*:1:eio", "file.rename:*:1:eio"})
    EXPECT_EXIT(writes_and_reads(fault), testing::ExitedWithCode(74), "") << fault;
}
#else
TEST(FaultPoint, IsNothingWhenNotBuiltIn) {
  ::setenv("AERIE_FAULT", "here:*:1:throw", 1);
  EXPECT_EQ(base::fault_point("here"), 0);
}
#endif
