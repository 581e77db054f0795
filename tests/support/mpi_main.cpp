// SPDX-License-Identifier: Apache-2.0
// main of the MPI tests: rank 0 prints; failures of other ranks are gathered and printed with the rank; every rank ends
// with the same code.
#include <sstream>

#include <gtest/gtest.h>

#include <aerie/comm/comm.hpp>

namespace {
class Collector : public testing::EmptyTestEventListener {
 public:
  void OnTestPartResult(const testing::TestPartResult& r) override {
    if (r.failed()) text << (r.file_name() ? r.file_name() : "?") << ":" << r.line_number() << ": " << r.message() << "\n";
  }
  std::ostringstream text;
};
}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  aerie::comm::Environment env(argc, argv);
  const auto world = env.world();
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  auto* collector = new Collector;  // owned by the listeners
  if (!world.is_root()) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(collector);
  const int mine = RUN_ALL_TESTS();
  const auto texts = world.all_gather(collector->text.str());
  if (world.is_root())
    for (int r = 1; r < world.size(); ++r)
      if (!texts[static_cast<std::size_t>(r)].empty())
        std::fprintf(stderr, "rank %d:\n%s", r, texts[static_cast<std::size_t>(r)].c_str());
  const bool none = testing::UnitTest::GetInstance()->test_to_run_count() == 0;
  return static_cast<int>(world.max(mine != 0 || none ? 1 : 0));
}
