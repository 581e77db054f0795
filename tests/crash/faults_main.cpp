// SPDX-License-Identifier: Apache-2.0
// Main of the crash tests that are GoogleTests: a child process of theirs is this program again.
#include <gtest/gtest.h>

#include "harness.hpp"

int main(int argc, char** argv) {
  aerie::crash::serve(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
