// SPDX-License-Identifier: Apache-2.0
// Copies a safetensors file through aerie's reader and writer; the program behind check_safetensors.py.
#include <cstdio>
#include <vector>

#include <aerie/interchange/safetensors.hpp>

int main(int argc, char** argv) {
  using namespace aerie::interchange;
  if (argc != 3) return 2;
  const auto file = SafetensorsFile::open(argv[1]);
  std::vector<std::vector<std::byte>> data;
  std::vector<TensorToWrite> list;
  data.reserve(file.tensors().size());
  for (const auto& [name, info] : file.tensors()) {
    data.push_back(file.read(name));
    list.push_back({name, info.dtype, info.shape, data.back()});
  }
  write_safetensors(argv[2], list, file.metadata());
  std::printf("%zu tensors\n", list.size());
  return 0;
}
