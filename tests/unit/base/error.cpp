// SPDX-License-Identifier: Apache-2.0
// Errors carry code, hint and place; capture lets a Bug through.
#include <aerie/base/error.hpp>

#include <cerrno>

#include <gtest/gtest.h>

namespace base = aerie::base;

TEST(Error, EachClassHasItsCode) {
  EXPECT_EQ(base::ConfigError("x").code(), base::ExitCode::usage);
  EXPECT_EQ(base::DataError("x").code(), base::ExitCode::data);
  EXPECT_EQ(base::MissingInputError("x").code(), base::ExitCode::missing_input);
  EXPECT_EQ(base::IoError("x").code(), base::ExitCode::io);
  EXPECT_EQ(base::CheckpointError("x").code(), base::ExitCode::io);
  EXPECT_EQ(base::PeerError("x").code(), base::ExitCode::peer);
  EXPECT_EQ(base::RefusedError("x").code(), base::ExitCode::refused);
  EXPECT_EQ(base::NoProgressError("x").code(), base::ExitCode::no_progress);
  EXPECT_EQ(base::StopRequested("x").code(), base::ExitCode::stopped);
  const base::ChecksumError checksum("part-3.h5", 17, 0xab, 0xcd);
  EXPECT_EQ(checksum.code(), base::ExitCode::data);
  for (const char* part : {"part-3.h5", "17", "00000000000000ab", "00000000000000cd"})
    EXPECT_NE(std::string(checksum.what()).find(part), std::string::npos) << part;
}

TEST(Error, CaptureTakesErrorsAndNothingElse) {
  const auto caught = base::capture([] { throw base::DataError("what", "hint"); });
  ASSERT_TRUE(caught);
  EXPECT_STREQ(caught->what(), "what");
  EXPECT_EQ(caught->hint(), "hint");
  EXPECT_EQ(caught->code(), base::ExitCode::data);
  EXPECT_FALSE(base::capture([] {}));
  EXPECT_THROW(base::capture([] { base::expect(false, "claim"); }), base::Bug);
  EXPECT_NO_THROW(base::expect(true, "claim"));
}

TEST(Error, ErrnoTextAndHint) {
  try {
    base::throw_errno(ENOSPC, "write file");
    FAIL();
  } catch (const base::IoError& e) {
    EXPECT_EQ(std::string(e.what()), "write file: No space left on device");
    EXPECT_NE(e.hint().find("full"), std::string::npos);
  }
}
