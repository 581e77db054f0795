// SPDX-License-Identifier: Apache-2.0
// extract.write_mode = "mpio": the same files as pwrite makes, by one rank and by two that share parts.
#include <aerie/comm/agree.hpp>
#include <aerie/comm/comm.hpp>
#include <aerie/io/verify.hpp>

#include "store_fixture.hpp"

namespace aerie::test {
namespace {

using io::StateKind;
using io::Store;

TEST(MpioStore, SameBytesAsPosix) {
  const auto world = comm::Comm::borrow(MPI_COMM_WORLD);
  for (const auto dtype : {io::StateDtype::bf16, io::StateDtype::fp8_e4m3})
    for (const std::int64_t part_bytes : {small_part_bytes, std::int64_t{1} << 30}) {
      std::unique_ptr<TempDir> dir;
      if (world.is_root()) dir = std::make_unique<TempDir>();
      const std::filesystem::path root = world.broadcast(world.is_root() ? (*dir / "").string() : "");
      auto identity = small_identity();
      identity.dtype = dtype;
      if (world.is_root())
        for (const char* name : {"mpio", "posix"}) Store::create(root / name, identity, small_plan(), part_bytes);
      world.barrier();
      if (world.is_root()) {
        const auto posix = Store::open(root / "posix");
        write_parts(posix, all_parts(posix), small_policy());
      }
      auto store = Store::open(root / "mpio");
      const std::vector<int> hosts(static_cast<std::size_t>(world.size()), 0);
      const auto mine = io::assign(store, hosts)[static_cast<std::size_t>(world.rank())];
      auto policy = small_policy();
      policy.write_mode = io::WriteMode::mpio;
      io::StoreWriter writer(store, mine, policy);
      world.barrier();
      writer.share();
      world.barrier();
      writer.join();
      for (const auto s : mine.samples) EXPECT_TRUE(writer.put(s, make_sample(s, store.length(s))));
      writer.close();
      world.barrier();
      if (world.is_root()) {
        store.refresh();
        EXPECT_EQ(store.counts().done, 20);
        io::VerifyOptions full;
        full.full = true;
        EXPECT_EQ(io::verify_store(root / "mpio", full).code(), base::ExitCode::done) << "metadata included";
        const auto posix = Store::open(root / "posix");
        io::SampleData a, b;
        for (std::int64_t s = 0; s < store.size(); ++s) {
          EXPECT_EQ(store.state(s).xxh3, posix.state(s).xxh3) << s;
          if (store.state(s).kind != StateKind::done) continue;
          store.read(s, a);
          posix.read(s, b);
          EXPECT_TRUE(equal(a, b)) << s;
        }
      }
      world.barrier();
    }
}

/// crash.points wants a test of "store.mpio_write": an error of a write ends the writer, and what was committed stays.
TEST(MpioStore, AFailingWriteIsFatalAndLosesNothing) {
  const auto world = comm::Comm::borrow(MPI_COMM_WORLD);
  if (world.size() > 1) return;
  const TempDir dir;
  auto store = create_small(dir / "s");
  auto policy = small_policy();
  policy.write_mode = io::WriteMode::mpio;
  io::StoreWriter writer(store, all_parts(store), policy);
  const auto text = error_of<base::IoError>([&] {
    for (std::int64_t s = 0; s < store.size(); ++s)
      if (store.state(s).kind == StateKind::pending) writer.put(s, make_sample(s, store.length(s)));
    writer.close();
  });
  if (!std::getenv("AERIE_FAULT")) {
    EXPECT_EQ(text, "");
    return;
  }
  EXPECT_TRUE(contains(text, "write through MPI-IO")) << text;
  store.refresh();
  EXPECT_LT(store.counts().done, 20);
  EXPECT_EQ(io::verify_store(dir / "s", {}).code(), base::ExitCode::done);
}

}  // namespace
}  // namespace aerie::test
