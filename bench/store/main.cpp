// SPDX-License-Identifier: Apache-2.0
// bench_store: what the store costs against plain files, on the file system that holds --dir.
//   bench_store --dir DIR [--write] [--read] [--small-samples] [--json]      without a choice: all three
#include <cstdio>
#include <exception>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <aerie/base/error.hpp>

#include "common.hpp"

int main(int argc, char** argv) {
  using namespace aerie;
  bench::Shape shape;
  bool write = false, read = false, small = false, json = false;
  double gib = 2;
  std::string dtype = "bf16";
  std::int64_t samples = 100000, part_mib = 64;
  std::filesystem::path parent = ".";
  CLI::App app("The store against plain files: interleaved rounds, medians, ratios.");
  app.add_option("--dir", parent, "folder on the file system to measure; a folder of its own is made in it and removed");
  app.add_flag("--write", write, "writing with commits against one fdatasync at the end");
  app.add_flag("--read", read, "random samples and verify --full against pread");
  app.add_flag("--small-samples", small, "creation, status and planning of very many small samples");
  app.add_flag("--json", json, "the table as JSON");
  app.add_option("--gib", gib, "GiB a case writes, all writers together");
  app.add_option("--rounds", shape.rounds, "rounds");
  app.add_option("--writers", shape.writers, "numbers of writers");
  app.add_option("--commit-mib", shape.commit_mib, "group sizes");
  app.add_option("--hidden", shape.hidden, "hidden size");
  app.add_option("--tokens", shape.sample_tokens, "tokens of a sample");
  app.add_option("--dtype", dtype, "bf16 or fp8")->check(CLI::IsMember({"bf16", "fp8"}));
  app.add_option("--samples", samples, "of --small-samples");
  app.add_option("--part-mib", part_mib, "size of a part in --small-samples");
  CLI11_PARSE(app, argc, argv);
  shape.bytes = static_cast<std::int64_t>(gib * 1024 * bench::mib);
  shape.dtype = dtype == "bf16" ? io::StateDtype::bf16 : io::StateDtype::fp8_e4m3;
  if (!write && !read && !small) write = read = small = true;
  shape.dir = parent / fmt::format("bench-store.{}", ::getpid());
  int code = 0;
  try {
    std::filesystem::create_directory(shape.dir);
    bench::Table table;
    if (write) bench::bench_write(shape, table);
    if (read) bench::bench_read(shape, table);
    if (small) bench::bench_small(shape, samples, part_mib << 20, table);
    if (json)
      fmt::print(
          "{}\n",
          base::Json{{"bench", "store"}, {"dtype", dtype}, {"gib", gib}, {"hidden", shape.hidden}, {"cases", table.json()}}.dump(
              1));
    else
      table.print();
  } catch (const base::Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    code = static_cast<int>(e.code());
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    code = 70;
  }
  std::error_code ignored;
  std::filesystem::remove_all(shape.dir, ignored);
  return code;
}
