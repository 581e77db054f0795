// SPDX-License-Identifier: Apache-2.0
// Samples in random order through Store::read, checksums included, against plain pread of the same ranges; verify --full against
// plain pread of the same files. Cold: the files' pages were dropped before.
#include <algorithm>
#include <numeric>
#include <random>

#include <fmt/format.h>

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/io/contiguous_file.hpp>
#include <aerie/io/verify.hpp>

#include "common.hpp"

namespace aerie::bench {
namespace {

struct Range {
  std::size_t part;
  std::int64_t offset, bytes;
};

/// The byte ranges of every sample, found without the store's own reader.
std::vector<std::vector<Range>> sample_ranges(const io::Store& store) {
  std::vector<std::vector<Range>> out;
  for (std::size_t p = 0; p < store.parts().size(); ++p) {
    const auto file = io::ContiguousFile::open(store.path() / store.parts()[p].file);
    const auto rows = file.read_all<std::int64_t>("row_offset");
    for (std::size_t j = 0; j + 1 < rows.size(); ++j) {
      std::vector<Range> ranges;
      for (const char* name : {"aux", "last", "input_ids", "loss_mask", "aux_scale", "last_scale"}) {
        const auto it = file.datasets().find(name);
        if (it == file.datasets().end()) continue;
        const auto row = it->second.bytes() / it->second.shape[0];
        ranges.push_back({p, it->second.offset + rows[j] * row, (rows[j + 1] - rows[j]) * row});
      }
      out.push_back(std::move(ranges));
    }
  }
  return out;
}

void forget_all(const io::Store& store) {
  for (const auto& p : store.parts()) forget(store.path() / p.file);
}

void read_samples(const io::Store& store, int rounds, Table& table) {
  const auto ranges = sample_ranges(store);
  std::vector<std::size_t> order(ranges.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<base::File> files;
  for (const auto& p : store.parts()) files.push_back(base::open_read(store.path() / p.file));
  double bytes = 0;
  for (const auto& sample : ranges)
    for (const auto& r : sample) bytes += static_cast<double>(r.bytes);
  std::mt19937 random(1);
  std::vector<std::vector<std::byte>> buffers(6);
  io::SampleData data;
  const auto plain = [&] {
    for (const auto i : order)
      for (std::size_t k = 0; k < ranges[i].size(); ++k) {
        const auto& r = ranges[i][k];
        buffers[k].resize(static_cast<std::size_t>(r.bytes));
        base::pread_full(files[r.part], buffers[k], r.offset);
      }
  };
  const auto through_store = [&] {
    for (const auto i : order) store.read(static_cast<std::int64_t>(i), data);
  };
  for (const bool cold : {true, false})
    for (int round = 0; round < rounds; ++round) {
      std::shuffle(order.begin(), order.end(), random);
      const std::string how = cold ? "cold" : "warm";
      const auto ceiling = fmt::format("random samples, {}, pread", how);
      for (int k = 0; k < 2; ++k) {
        if (cold) forget_all(store);
        if ((k + round) % 2 == 0)
          table.add(ceiling, "MiB/s", "", bytes / mib / seconds(plain));
        else
          table.add(fmt::format("random samples, {}, Store::read", how), "MiB/s", ceiling, bytes / mib / seconds(through_store));
      }
    }
}

void verify_files(const io::Store& store, int rounds, Table& table) {
  double bytes = 0;
  for (const auto& p : store.parts()) bytes += static_cast<double>(p.bytes);
  for (const int threads : {1, 2})
    for (int round = 0; round < rounds; ++round) {
      const auto ceiling = fmt::format("whole files, cold, {} threads, pread", threads);
      const auto plain = [&] {
        in_threads(threads, [&](int t) {
          std::vector<std::byte> buffer(std::size_t{4} << 20);
          for (auto p = static_cast<std::size_t>(t); p < store.parts().size(); p += static_cast<std::size_t>(threads)) {
            const auto file = base::open_read(store.path() / store.parts()[p].file);
            const auto size = store.parts()[p].bytes, piece = static_cast<std::int64_t>(buffer.size());
            for (std::int64_t at = 0; at < size; at += piece)
              base::pread_full(file, std::span(buffer).first(static_cast<std::size_t>(std::min(piece, size - at))), at);
          }
        });
      };
      const auto verify = [&] {
        io::VerifyOptions options;
        options.full = true;
        options.threads = threads;
        base::expect(io::verify_store(store.path(), options).findings.empty(), "the store of the benchmark verifies");
      };
      for (int k = 0; k < 2; ++k) {
        forget_all(store);
        if ((k + round) % 2 == 0)
          table.add(ceiling, "MiB/s", "", bytes / mib / seconds(plain));
        else
          table.add(fmt::format("whole files, cold, {} threads, verify --full", threads), "MiB/s", ceiling,
                    bytes / mib / seconds(verify));
      }
    }
}

}  // namespace

void bench_read(const Shape& shape, Table& table) {
  const auto dir = shape.dir / "read";
  {
    auto store = new_store(shape, dir, 4);
    write_store(shape, store, std::int64_t{256} << 20);
  }
  settle(shape.dir);
  const auto store = io::Store::open(dir);
  read_samples(store, shape.rounds, table);
  verify_files(store, shape.rounds, table);
  std::filesystem::remove_all(dir);
}

}  // namespace aerie::bench
