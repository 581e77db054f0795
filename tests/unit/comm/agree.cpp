// SPDX-License-Identifier: Apache-2.0
// Agreement: a failure on any rank is the same failure on every rank.
#include <aerie/comm/agree.hpp>

#include <gtest/gtest.h>

#include <aerie/base/host.hpp>

namespace base = aerie::base;
namespace comm = aerie::comm;

TEST(Agree, PassesWhenNobodyFails) {
  EXPECT_NO_THROW(comm::agree_after(comm::Comm::borrow(MPI_COMM_WORLD), "phase", [] {}));
  EXPECT_NO_THROW(comm::agree_after(comm::Comm::solo(), "phase", [] {}));
}

TEST(Agree, FailureOnEachRankInTurn) {
  const auto w = comm::Comm::borrow(MPI_COMM_WORLD);
  for (int failing = 0; failing < w.size(); ++failing) {
    const auto seen = base::capture([&] {
      comm::agree_after(w, "open store", [&] {
        if (w.rank() == failing) throw base::MissingInputError("file of rank " + std::to_string(failing), "look for it");
      });
    });
    ASSERT_TRUE(seen) << "rank " << failing << " failed and this rank did not throw";  // all ranks assert alike
    EXPECT_EQ(seen->code(), base::ExitCode::missing_input);
    EXPECT_EQ(seen->hint(), "look for it");
    const std::string own = "file of rank " + std::to_string(failing);
    EXPECT_EQ(seen->what(),
              w.size() == 1 ? own : "open store: rank " + std::to_string(failing) + " " + base::host_name() + ": " + own);
  }
}

TEST(Agree, LowestRankSpeaksWhenAllFailDifferently) {
  const auto w = comm::Comm::borrow(MPI_COMM_WORLD);
  const auto seen = base::capture([&] {
    comm::agree_after(w, "phase", [&]() -> void {
      if (w.rank() == 0) throw base::DataError("zero");
      throw base::IoError("other");
    });
  });
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->code(), base::ExitCode::data);
  EXPECT_NE(std::string(seen->what()).find("zero"), std::string::npos);
}

TEST(Agree, SoloKeepsTheErrorAsItIs) {
  const auto seen =
      base::capture([] { comm::agree_after(comm::Comm::solo(), "phase", [] { throw base::DataError("what", "hint"); }); });
  ASSERT_TRUE(seen);
  EXPECT_STREQ(seen->what(), "what");
  EXPECT_EQ(seen->hint(), "hint");
  EXPECT_EQ(seen->code(), base::ExitCode::data);
}
