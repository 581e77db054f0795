// SPDX-License-Identifier: Apache-2.0
// What Slurm says about nodes that a run has worked on.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>

namespace aerie::apps {

struct NodeNow {
  std::string state;                // "IDLE", "DOWN*" ...
  std::optional<double> boot_unix;  // when it was started
};
/// By host name. One call of scontrol, with a time limit of 5 s; empty where Slurm is not there or does not answer.
std::map<std::string, NodeNow> ask_about_nodes(const std::set<std::string>& hosts);
/// The lines of `scontrol -o show node`.
std::map<std::string, NodeNow> parse_nodes(const std::string& text);

}  // namespace aerie::apps
