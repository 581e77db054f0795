// SPDX-License-Identifier: Apache-2.0
#include "slurm_nodes.hpp"

#include <ctime>
#include <sstream>

#include "slurm_queue.hpp"

namespace aerie::apps {
namespace {
/// Slurm writes local time: 2026-01-31T12:00:00; "None" and "Unknown" are no time.
std::optional<double> local_time(const std::string& text) {
  std::tm tm{};
  if (!::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &tm)) return std::nullopt;
  tm.tm_isdst = -1;
  return static_cast<double>(std::mktime(&tm));
}
}  // namespace

std::map<std::string, NodeNow> parse_nodes(const std::string& text) {
  std::map<std::string, NodeNow> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, host;
    NodeNow node;
    for (std::string word; words >> word;) {
      const auto at = word.find('=');
      if (at == std::string::npos) continue;
      const auto key = word.substr(0, at), value = word.substr(at + 1);
      if (key == "NodeName") name = value;
      if (key == "NodeHostName") host = value;
      if (key == "State") node.state = value;
      if (key == "BootTime") node.boot_unix = local_time(value);
    }
    if (!host.empty()) out[host] = node;
    if (!name.empty()) out[name] = node;
  }
  return out;
}

std::map<std::string, NodeNow> ask_about_nodes(const std::set<std::string>& hosts) {
  std::string list;
  for (const auto& h : hosts) list += (list.empty() ? "" : ",") + h.substr(0, h.find('.'));
  if (list.empty()) return {};
  auto found = parse_nodes(capture_output({"timeout", "-k", "1", "5", "scontrol", "-o", "show", "node", list}, true).out);
  for (const auto& h : hosts)
    if (const auto it = found.find(h.substr(0, h.find('.'))); it != found.end()) found[h] = it->second;
  return found;
}

}  // namespace aerie::apps
