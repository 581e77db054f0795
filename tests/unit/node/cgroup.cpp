// SPDX-License-Identifier: Apache-2.0
#include "cgroup.hpp"

#include <string>

#include <gtest/gtest.h>

namespace {
using aerie::node::parse_cgroup;
const std::string id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

TEST(Cgroup, UnitOfAService) {
  const auto g = parse_cgroup("0::/system.slice/vllm.service\n");
  EXPECT_EQ(g.path, "/system.slice/vllm.service");
  EXPECT_EQ(g.unit, "vllm.service");
  EXPECT_EQ(g.container + g.job, "");
}
TEST(Cgroup, EscapedUnit) { EXPECT_EQ(parse_cgroup("0::/system.slice/my\\x2dserver.service").unit, "my-server.service"); }
TEST(Cgroup, UnitOfAUser) {
  EXPECT_EQ(parse_cgroup("0::/user.slice/user-1000.slice/user@1000.service/app.slice/serve.service").unit, "serve.service");
}
TEST(Cgroup, SessionIsNoUnit) {
  EXPECT_EQ(parse_cgroup("0::/user.slice/user-1000.slice/session-3.scope").unit, "");
  EXPECT_EQ(parse_cgroup("0::/init.scope").unit, "");
}
TEST(Cgroup, Version1TakesSystemd) {
  const auto g =
      parse_cgroup("12:devices:/user.slice/a/long/path/that/says/little\n1:name=systemd:/system.slice/triton.service\n0::/\n");
  EXPECT_EQ(g.unit, "triton.service");
}
TEST(Cgroup, Version1WithoutSystemdTakesTheLongest) {
  EXPECT_EQ(parse_cgroup("3:cpu:/\n2:memory:/slurm/uid_7/job_99/step_0\n").job, "99");
}
TEST(Cgroup, Version1JobBesideSlurmsOwnUnit) {
  const auto g = parse_cgroup("4:freezer:/slurm/uid_7/job_99/step_0\n1:name=systemd:/system.slice/slurmd.service\n0::/\n");
  EXPECT_EQ(g.job, "99");
  EXPECT_EQ(g.unit, "") << "nobody is to be told to stop slurmd";
}
TEST(Cgroup, Containers) {
  EXPECT_EQ(parse_cgroup("0::/system.slice/docker-" + id + ".scope").container, "docker 0123456789ab");
  EXPECT_EQ(parse_cgroup("1:name=systemd:/docker/" + id).container, "docker 0123456789ab");
  EXPECT_EQ(parse_cgroup("0::/machine.slice/libpod-" + id + ".scope/container").container, "podman 0123456789ab");
  EXPECT_EQ(parse_cgroup("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + id + ".scope").container,
            "kubernetes 0123456789ab");
  EXPECT_EQ(parse_cgroup("4:memory:/kubepods/besteffort/pod1/" + id).container, "kubernetes 0123456789ab");
}
TEST(Cgroup, SlurmJob) { EXPECT_EQ(parse_cgroup("0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0").job, "123"); }
TEST(Cgroup, NothingToTell) {
  for (const auto* text : {"", "\n", "0::/", "garbage", ":", "0::", "a:b"}) {
    const auto g = parse_cgroup(text);
    EXPECT_EQ(g.unit + g.container + g.job, "") << text;
  }
}
}  // namespace
