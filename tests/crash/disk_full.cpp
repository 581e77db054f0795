// SPDX-License-Identifier: Apache-2.0
// A store on a small ext4 and on a small tmpfs that are too small, or become full on the way.
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/statvfs.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include <gtest/gtest.h>

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>

#include "harness.hpp"
#include "loop_image.hpp"
#include "temp_dir.hpp"

namespace aerie::crash {
namespace {

/// The plan needs 27 MB.
struct Disk {
  test::TempDir dir;
  std::unique_ptr<LoopImage> image;
  fs::path path;
  Disk(const std::string& type, int megabytes) {
    if (type == "tmpfs") {
      path = dir / "mount";
      fs::create_directory(path);
      const auto size = "size=" + std::to_string(megabytes) + "m";
      if (::mount("tmpfs", path.c_str(), "tmpfs", 0, size.c_str()) != 0) throw std::runtime_error("mount tmpfs");
    } else {
      image = std::make_unique<LoopImage>(type, dir.path(), megabytes);
      path = image->path();
    }
  }
  ~Disk() {
    if (!image && ::umount2(path.c_str(), MNT_DETACH) != 0) std::perror("umount tmpfs");
  }
  /// Takes all but `left` bytes away.
  fs::path fill(std::int64_t left) const {
    const auto file = base::open_file(path / "filler", O_RDWR | O_CREAT);
    struct statvfs v {};
    ::fstatvfs(file.fd(), &v);
    const auto free = static_cast<std::int64_t>(v.f_bavail) * static_cast<std::int64_t>(v.f_frsize);
    EXPECT_EQ(::fallocate(file.fd(), 0, 0, free - left), 0);
    return file.path();
  }
};

class DiskFull : public testing::TestWithParam<const char*> {};

TEST_P(DiskFull, CreationFailsAtOnceAndLeavesRoomForASmallerStore) {
  const Disk disk(GetParam(), 20);
  const auto store = disk.path / "store";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(wait_for(start_creator(store, "")), 74);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  try {
    create(store);
    ADD_FAILURE() << "a store of 27 MB was made on 20 MB";
  } catch (const base::IoError& e) {
    EXPECT_NE(std::string(e.what()).find("No space left on device"), std::string::npos) << e.what();
  }
  EXPECT_FALSE(io::Store::exists(store));
  for (const auto& e : fs::directory_iterator(store / "parts")) ADD_FAILURE() << "left behind: " << e.path();
  auto smaller = plan();
  smaller.resize(40);
  io::Store::create(store, identity(), smaller, 5000 * (8 * hidden + 5));
  EXPECT_EQ(io::Store::open(store).counts().pending, 39);
}

TEST_P(DiskFull, AReservedStoreFillsOnAFullDisk) {
  const Disk disk(GetParam(), 64);
  WriterSetup setup{disk.path / "store", disk.dir / "logs"};
  fs::create_directory(setup.logs);
  create(setup.store);
  fs::create_directories(setup.store / "locks");
  disk.fill(1 << 20);  // lock files and the journal need a little
  EXPECT_EQ(wait_for(start_writers(setup, 1, "all").at(0)), 0);
  EXPECT_FALSE(inspect(setup.store, setup.logs).any());
  EXPECT_EQ(io::Store::open(setup.store).counts().done, samples - 1);
}

/// Where space cannot be reserved the store is sparse, and the disk can become full while writing.
TEST_P(DiskFull, ASparseStoreEndsWith74AndGoesOnWhenThereIsSpaceAgain) {
  const Disk disk(GetParam(), 64);
  WriterSetup setup{disk.path / "store", disk.dir / "logs", "", false, false, true};
  fs::create_directory(setup.logs);
  ASSERT_EQ(wait_for(start_creator(setup.store, "store.reserve:*:1+:eopnotsupp")), 0);
  const auto filler = disk.fill(12 << 20);
  for (int attempt = 0; attempt < 2; ++attempt) {
    EXPECT_EQ(wait_for(start_writers(setup, 1, std::to_string(attempt)).at(0)), 74);
    const auto d = inspect(setup.store, setup.logs);
    EXPECT_EQ(d.lost + d.wrong + d.findings, 0);
    EXPECT_GT(d.acknowledged, 0);
    EXPECT_LT(d.acknowledged, samples - 1);
  }
  fs::remove(filler);
  for (const auto p : start_writers(setup, 2, "last")) EXPECT_EQ(wait_for(p), 0);
  EXPECT_FALSE(inspect(setup.store, setup.logs).any());
  EXPECT_EQ(io::Store::open(setup.store).counts().done, samples - 1);
}

INSTANTIATE_TEST_SUITE_P(On, DiskFull, testing::Values("ext4", "tmpfs"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace aerie::crash

int main(int argc, char** argv) {
  aerie::crash::serve(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  if (const auto why = aerie::crash::loop_images_unavailable("ext4")) return aerie::crash::skip_or_fail(*why);
  return RUN_ALL_TESTS();
}
