// SPDX-License-Identifier: Apache-2.0
// The known key nearest to a misspelt one.
#include <algorithm>
#include <numeric>

#include "keys.hpp"
#include "nearest.hpp"

namespace aerie::config {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

std::string nearest_of(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t best_distance = std::string::npos;
  for (const auto& k : known) {
    const auto d = edit_distance(word, k);
    if (d < best_distance) {
      best_distance = d;
      best = k;
    }
  }
  return best;
}

std::string nearest_key(const std::string& key) {
  static const std::vector<std::string> names = [] {
    Config c;
    std::vector<std::string> out;
    for (const auto& k : keys(c)) out.push_back(k.name);
    return out;
  }();
  if (key.find('.') != std::string::npos) return nearest_of(key, names);
  // Without a section the last part alone is compared: `steps` means train.steps.
  std::vector<std::string> last;
  for (const auto& n : names) last.push_back(n.substr(n.find('.') + 1));
  const auto best = nearest_of(key, last);
  return names[static_cast<std::size_t>(std::find(last.begin(), last.end(), best) - last.begin())];
}

}  // namespace aerie::config
