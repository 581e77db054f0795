// SPDX-License-Identifier: Apache-2.0
// Makes the store of the crash tests (tests/crash/harness.hpp) and writes it; sample 40 fails with NONFINITE.
//   store_maker STORE [--step N | --fp8]
// --step: prints "created", then after every N samples how many are durable and done, and reads a line before each group.
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "harness.hpp"

int main(int argc, char** argv) {
  using namespace aerie;
  const bool fp8 = argc == 3 && std::string(argv[2]) == "--fp8";
  if (argc != 2 && argc != 4 && !fp8) return 2;
  const int step = argc == 4 ? std::stoi(argv[3]) : 0;
  crash::create(argv[1], 5000, fp8 ? io::StateDtype::fp8_e4m3 : io::StateDtype::bf16);
  const auto store = io::Store::open(argv[1]);
  std::vector<std::int64_t> parts;
  for (std::size_t p = 0; p < store.parts().size(); ++p) parts.push_back(static_cast<std::int64_t>(p));
  io::StoreWriter writer(store, parts, {});
  if (step > 0) std::cout << "created" << std::endl;
  std::string line;
  int put = 0, done = 0;
  for (std::int64_t s = 0; s < store.size(); ++s) {
    if (s == crash::rejected_sample) continue;
    if (step > 0 && put % step == 0 && !std::getline(std::cin, line)) return 1;
    if (s == 40)
      writer.fail(s, io::FailReason::nonfinite);
    else
      writer.put(s, crash::make(s, store.length(s))), ++done;
    if (step > 0 && ++put % step == 0) {
      writer.drain();
      std::cout << done << std::endl;
    }
  }
  writer.close();
  if (step > 0) std::cout << done << std::endl;
  return 0;
}
