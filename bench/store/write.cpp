// SPDX-License-Identifier: Apache-2.0
// The store's writer with commits on, against the same number of threads that write as many bytes into preallocated files of
// their own with one fdatasync at the end. The cases of a round follow each other, each time in another order.
#include <algorithm>
#include <random>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>

#include "common.hpp"

namespace aerie::bench {
namespace {

constexpr std::size_t piece = std::size_t{4} << 20;

double raw(const Shape& shape, int writers) {
  const auto bytes = samples_per_writer(shape, writers) * shape.sample_tokens * token_bytes(shape);
  std::vector<base::File> files;
  for (int t = 0; t < writers; ++t) {
    files.push_back(base::open_file(shape.dir / fmt::format("raw-{}", t), O_RDWR | O_CREAT | O_TRUNC));
    if (::fallocate(files.back().fd(), 0, 0, bytes) != 0) base::throw_errno(errno, "fallocate");
    base::fsync_file(files.back());
  }
  std::vector<std::byte> source(piece);
  std::mt19937 random(1);
  for (auto& b : source) b = static_cast<std::byte>(random());
  settle(shape.dir);
  const double s = seconds([&] {
    in_threads(writers, [&](int t) {
      const auto& file = files[static_cast<std::size_t>(t)];
      for (std::int64_t at = 0; at < bytes; at += static_cast<std::int64_t>(piece))
        base::pwrite_full(file, std::span(source).first(static_cast<std::size_t>(std::min<std::int64_t>(piece, bytes - at))), at);
      base::fdatasync_file(file);
    });
  });
  for (const auto& f : files) std::filesystem::remove(f.path());
  return static_cast<double>(bytes) * writers / mib / s;
}

double store(const Shape& shape, int writers, std::int64_t commit_mib) {
  const auto dir = shape.dir / "written";
  const auto s = new_store(shape, dir, writers);
  settle(shape.dir);
  const double t = write_store(shape, s, commit_mib << 20);
  const auto bytes = samples_per_writer(shape, writers) * writers * shape.sample_tokens * token_bytes(shape);
  std::filesystem::remove_all(dir);
  return static_cast<double>(bytes) / mib / t;
}

}  // namespace

void bench_write(const Shape& shape, Table& table) {
  for (const int writers : shape.writers) {
    const auto ceiling = fmt::format("write, {} writers, raw", writers);
    for (int round = 0; round < shape.rounds; ++round) {
      const auto cases = static_cast<int>(shape.commit_mib.size()) + 1;
      for (int k = 0; k < cases; ++k) {
        const int which = (k + round) % cases;
        if (which == 0) {
          table.add(ceiling, "MiB/s", "", raw(shape, writers));
        } else {
          const auto commit = shape.commit_mib[static_cast<std::size_t>(which - 1)];
          table.add(fmt::format("write, {} writers, commit every {} MiB", writers, commit), "MiB/s", ceiling,
                    store(shape, writers, commit));
        }
      }
    }
  }
}

}  // namespace aerie::bench
