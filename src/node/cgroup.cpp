// SPDX-License-Identifier: Apache-2.0
#include "cgroup.hpp"

#include <array>
#include <utility>
#include <vector>

namespace aerie::node {
namespace {
using View = std::string_view;

std::vector<View> split(View text, char at) {
  std::vector<View> out;
  while (!text.empty()) {
    const auto end = text.find(at);
    if (end != 0) out.push_back(text.substr(0, end));
    if (end == View::npos) break;
    text.remove_prefix(end + 1);
  }
  return out;
}
bool is_hex_id(View name) { return name.size() == 64 && name.find_first_not_of("0123456789abcdef") == View::npos; }

/// systemd writes characters that unit names may not hold as \x2d.
std::string plain(View name) {
  std::string out;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name.substr(i, 2) == "\\x" && i + 3 < name.size()) {
      out += static_cast<char>(std::stoi(std::string(name.substr(i + 2, 2)), nullptr, 16));
      i += 3;
    } else {
      out += name[i];
    }
  }
  return out;
}

/// "docker 0123456789ab" for docker-<64 hex>.scope of systemd and for <64 hex> below a folder of the engine.
std::string container_of(View path, View name) {
  static constexpr std::array<std::pair<View, View>, 5> engines{
      {{"docker-", "docker"}, {"libpod-", "podman"}, {"cri-containerd-", "kubernetes"}, {"crio-", "kubernetes"}, {"", ""}}};
  if (name.ends_with(".scope")) name.remove_suffix(6);
  for (const auto& [prefix, engine] : engines) {
    if (!name.starts_with(prefix) || !is_hex_id(name.substr(prefix.size()))) continue;
    const auto id = std::string(name.substr(prefix.size(), 12));
    if (path.find("kubepods") != View::npos) return "kubernetes " + id;
    if (!engine.empty()) return std::string(engine) + " " + id;
    return (path.find("libpod") != View::npos ? "podman " : "docker ") + id;
  }
  return {};
}
}  // namespace

Cgroup parse_cgroup(View text) {
  Cgroup out;
  View path;
  for (const auto line : split(text, '\n')) {
    const auto controllers = line.substr(std::min(line.find(':'), line.size() - 1) + 1);
    const auto here = controllers.substr(std::min(controllers.find(':'), controllers.size() - 1) + 1);
    // The unified one and systemd's own say most; of the others the longest.
    const bool best = line.starts_with("0::") || controllers.starts_with("name=systemd:");
    if (best ? here.size() >= path.size() || here != "/" : here.size() > path.size()) path = here;
  }
  out.path = std::string(path);
  for (const auto line : split(text, '\n'))  // version 1: Slurm's hierarchies are others than systemd's
    for (const auto name : split(line, '/'))
      if (name.starts_with("job_")) out.job = std::string(name.substr(4));
  for (const auto name : split(path, '/')) {
    if (name.ends_with(".service") || (name.ends_with(".scope") && !name.starts_with("session-") && name != "init.scope"))
      out.unit = plain(name);
    if (auto container = container_of(path, name); !container.empty()) out.container = std::move(container);
  }
  if (out.unit.starts_with("slurmd") || out.unit.starts_with("slurmstepd")) out.unit.clear();  // not what anybody should stop
  return out;
}

}  // namespace aerie::node
