// SPDX-License-Identifier: Apache-2.0
#include <aerie/base/host.hpp>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace base = aerie::base;

TEST(Host, ThisProcessNamesItsPidNamespace) {
  const auto self = base::this_process();
  EXPECT_EQ(self.pid, ::getpid());
  EXPECT_EQ(self.pid_namespace, base::own_pid_namespace());
  struct stat st {};
  if (::stat("/proc/self/ns/pid", &st) == 0) {
    EXPECT_GT(self.pid_namespace, 0);
  }
}

TEST(Host, APidIsTheMachinesUnlessSaidOtherwise) {
  base::ProcessIdentity p;
  p.pid = 7;
  EXPECT_EQ(base::pid_text(p), "pid 7");
  p.pid_namespace = base::initial_pid_namespace;
  EXPECT_EQ(base::pid_text(p), "pid 7");
  p.pid_namespace = 4026532501;
  EXPECT_EQ(base::pid_text(p), "pid 7 in PID namespace 4026532501");
}
