// SPDX-License-Identifier: Apache-2.0
// Preflight finds each thing that it looks for, on whatever rank it is wrong, and says the same on all.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include <aerie/base/error.hpp>
#include <aerie/base/host.hpp>
#include <aerie/preflight/preflight.hpp>

#include "temp_dir.hpp"

namespace {
using namespace aerie;
namespace fs = std::filesystem;

class Preflight : public testing::Test {
 protected:
  comm::Comm world = comm::Comm::borrow(MPI_COMM_WORLD);
  test::TempDir own;  // rank 0's is the run of all
  preflight::Request request{fs::path(world.broadcast(own.path().string())), "aerie 1", true, 0, std::nullopt, 0};

  void TearDown() override { world.barrier(); }
  std::vector<preflight::Finding> examine() {
    return preflight::examine(world, request, [] {});
  }
  /// The names of the checks that failed; the same on all ranks.
  std::string failed() {
    std::string out;
    for (const auto& f : examine())
      if (!f.ok) out += f.check + " ";
    for (const auto& other : world.all_gather(out)) EXPECT_EQ(other, out);
    return out;
  }
};

TEST_F(Preflight, a_sound_allocation_passes_and_nothing_is_left_behind) {
  request.seconds_left = 1000;
  request.warning_s = 300;
  request.nodes = 1;
  const auto findings = examine();
  EXPECT_TRUE(preflight::all_ok(findings)) << preflight::format_table(findings);
  std::string names;
  for (const auto& f : findings) names += f.check + " ";
  EXPECT_EQ(names, "layout directory locks version time ");
  world.barrier();
  EXPECT_TRUE(fs::is_empty(request.run));
}

TEST_F(Preflight, the_number_of_nodes_must_be_the_jobs) {
  request.nodes = 2;
  EXPECT_EQ(failed(), "layout ");
}

TEST_F(Preflight, another_build_on_the_last_rank) {
  if (world.size() == 1) request.version = "alone, it is its own measure";
  if (world.rank() == world.size() - 1) request.version += " other";
  EXPECT_EQ(failed(), world.size() == 1 ? "" : "version ");
  for (const auto& f : examine())
    if (!f.ok) {
      EXPECT_NE(f.text.find("rank " + std::to_string(world.size() - 1)), std::string::npos) << f.text;
    }
}

TEST_F(Preflight, a_directory_that_the_last_rank_does_not_see) {
  if (world.rank() == world.size() - 1) request.run = own.path() / "nothing/here";
  EXPECT_EQ(failed(), "directory ");
}

TEST_F(Preflight, a_directory_that_is_not_shared) {
  if (world.rank() == world.size() - 1) request.run = own.path();  // writable, but its own
  EXPECT_EQ(failed(), world.size() == 1 ? "" : "directory ");
}

TEST_F(Preflight, too_short_a_time) {
  request.warning_s = 300;
  request.seconds_left = 329;
  EXPECT_EQ(failed(), "time ");
  request.seconds_left = 331;
  EXPECT_EQ(failed(), "");
}

TEST_F(Preflight, locks_that_the_run_does_not_use_are_not_asked_for) {
  request.locks = false;
  for (const auto& f : examine())
    if (f.check == "locks") {
      EXPECT_EQ(f.text, "none, as run.locks says");
    }
}

TEST_F(Preflight, json_says_what_the_table_says) {
  request.nodes = 7;
  const auto findings = examine();
  const auto json = preflight::to_json(findings);
  EXPECT_EQ(json.at("ok"), false);
  EXPECT_EQ(json.at("checks").at(0).at("check"), "layout");
  EXPECT_EQ(json.at("checks").at(0).at("ok"), false);
  EXPECT_NE(preflight::format_table(findings).find("layout     FAILED"), std::string::npos);
}

TEST_F(Preflight, a_stop_between_checks_ends_it) {
  int calls = 0;
  EXPECT_THROW(preflight::examine(world, request,
                                  [&] {
                                    if (++calls == 2) throw base::StopRequested("as asked");
                                  }),
               base::StopRequested);
}
}  // namespace
