// SPDX-License-Identifier: Apache-2.0
// Damage and its repair: bad samples are redone alone, a part that is lost is made again as it was.
#include <aerie/io/contiguous_file.hpp>
#include <aerie/io/verify.hpp>

#include "store_fixture.hpp"

namespace aerie::test {
namespace {

using io::StateKind;
using io::Store;

io::VerifyReport full_check(const std::filesystem::path& dir) {
  io::VerifyOptions o;
  o.full = true;
  return io::verify_store(dir, o);
}

TEST(Repair, OnlyBadSamplesAreDoneAgain) {
  const TempDir dir;
  auto store = create_small(dir / "s");
  write_parts(store, all_parts(store), small_policy());
  const auto straight = slurp(dir / "s" / "parts" / "part-00001.h5");
  store.refresh();
  const auto path = dir / "s" / store.parts()[1].file;
  const auto first = store.parts()[1].first;
  const auto at = io::ContiguousFile::open(path).dataset("last").offset;
  flip_bit(path, at);  // the part's first sample
  std::vector<std::int64_t> bad;
  for (const auto& f : full_check(dir / "s").findings) bad.push_back(f.sample);
  ASSERT_EQ(bad, std::vector<std::int64_t>{first});
  EXPECT_EQ(io::set_pending(store, bad, "recover"), bad);
  store.refresh();
  EXPECT_EQ(store.counts().pending, 1);
  write_parts(store, {1}, small_policy());
  EXPECT_EQ(slurp(path), straight);
}

TEST(Repair, APartSetAsideIsMadeAgainAsItWas) {
  for (const bool lost : {false, true}) {
    const TempDir dir;
    auto store = create_small(dir / "s");
    write_parts(store, all_parts(store), small_policy());
    store.refresh();
    io::write_complete_marker(dir / "s", {store.counts(), "", "full"});
    const auto path = dir / "s" / store.parts()[1].file;
    const auto straight = slurp(path);
    if (lost)
      std::filesystem::remove(path);
    else
      flip_bit(path, 0);  // the superblock: HDF5 cannot open it any more
    EXPECT_EQ(full_check(dir / "s").code(), lost ? base::ExitCode::missing_input : base::ExitCode::data);
    if (lost) {
      Store::create(dir / "s", small_identity(), small_plan(), small_part_bytes);
      EXPECT_FALSE(std::filesystem::exists(path)) << "perhaps a file system is not mounted: nobody said it is to be made again";
    }
    const auto bad = io::set_part_aside(dir / "s", 1, "recover");
    EXPECT_TRUE(std::filesystem::exists(bad));
    EXPECT_FALSE(std::filesystem::exists(dir / "s" / "COMPLETE"));
    Store::create(dir / "s", small_identity(), small_plan(), small_part_bytes);
    auto again = Store::open(dir / "s");
    std::int64_t with_rows = 0;
    for (auto s = again.parts()[1].first; s < again.parts()[1].first + again.parts()[1].n; ++s) with_rows += again.length(s) > 0;
    EXPECT_EQ(again.counts().pending, with_rows);
    EXPECT_EQ(full_check(dir / "s").code(), base::ExitCode::done);
    write_parts(again, {1}, small_policy());
    EXPECT_EQ(slurp(path), straight);
  }
}

TEST(Repair, NothingIsTakenFromAnOwner) {
  const TempDir dir;
  auto store = create_small(dir / "s");
  write_parts(store, all_parts(store), small_policy());
  store.refresh();
  const io::StoreWriter owner(store, std::vector<std::int64_t>{1}, small_policy("job 9"));
  EXPECT_TRUE(contains(error_of<base::RefusedError>([&] { io::set_part_aside(dir / "s", 1, "recover"); }), "leased by job 9"));
  const auto first = store.parts()[1].first;
  EXPECT_TRUE(contains(error_of<base::RefusedError>([&] { io::set_pending(store, std::vector<std::int64_t>{first}, "recover"); }),
                       "leased by job 9"));
}

}  // namespace
}  // namespace aerie::test
