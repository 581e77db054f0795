// SPDX-License-Identifier: Apache-2.0
// One decision for all ranks. The tests run in this order on purpose: a signal stays with its process, so it comes last.
#include <csignal>
#include <fstream>

#include <gtest/gtest.h>

#include <aerie/stop/stop_token.hpp>
#include "temp_dir.hpp"

using aerie::comm::Comm;
using aerie::stop::Request;
using aerie::stop::StopToken;

namespace {
std::filesystem::path shared(const Comm& world, const std::optional<aerie::test::TempDir>& own) {
  return world.broadcast(own ? own->path().string() : std::string{});
}
}  // namespace

TEST(StopAgree, FilesThatOnlyRankZeroLooksAt) {
  const auto world = Comm::borrow(MPI_COMM_WORLD);
  std::optional<aerie::test::TempDir> own;
  if (world.is_root()) own.emplace();
  const auto run = shared(world, own);
  StopToken token(run, world.is_root(), std::nullopt, 0.0);
  EXPECT_EQ(token.agree(world), Request::none);
  if (world.is_root()) std::ofstream(run / "save-now") << "";
  EXPECT_EQ(token.agree(world), Request::save_now);
  token.save_done();
  world.barrier();
  EXPECT_FALSE(std::filesystem::exists(run / "save-now"));
  EXPECT_EQ(token.agree(world), Request::none);
  EXPECT_EQ(token.poll(), Request::none);
  if (world.is_root()) std::ofstream(run / "stop") << "";
  EXPECT_EQ(token.agree(world), Request::stop);
  EXPECT_EQ(token.reason(), world.is_root() ? "file RUN/stop" : "file RUN/stop (seen by rank 0)");
  EXPECT_EQ(token.poll(), Request::stop);  // every rank knows from now on
  world.barrier();
}

TEST(StopAgree, SignalToTheLastRankOnly) {
  const auto world = Comm::borrow(MPI_COMM_WORLD);
  StopToken::install_handlers();
  StopToken token({}, world.is_root(), std::nullopt);
  EXPECT_EQ(token.agree(world), Request::none);
  const int last = world.size() - 1;
  if (world.rank() == last) ::raise(SIGUSR2);
  EXPECT_EQ(token.agree(world), Request::stop);
  const std::string seen_by = " (seen by rank " + std::to_string(last) + ")";
  EXPECT_EQ(token.reason(), world.rank() == last ? "signal USR2" : "signal USR2" + seen_by);
  EXPECT_EQ(token.agree(world), Request::stop);
  world.barrier();
}
