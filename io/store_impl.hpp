// SPDX-License-Identifier: Apache-2.0
// What Store and StoreWriter share.
#pragma once
#include <list>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "manifest.hpp"
#include "part.hpp"

namespace aerie::io {

struct Store::Impl {
  std::filesystem::path dir;
  Manifest manifest;
  std::vector<PartLayout> layouts;
  std::vector<SampleState> states;
  std::vector<bool> torn;

  /// A descriptor for reading; the last few parts stay open. Safe for several threads.
  std::shared_ptr<const base::File> open_part(std::int64_t part) const;
  std::filesystem::path part_path(std::int64_t part) const { return dir / manifest.parts[static_cast<std::size_t>(part)].file; }
  std::int64_t part_of(std::int64_t sample) const;
  void check_sample(std::int64_t sample) const;  // throws Bug
  void read_states(bool sync);

 private:
  static constexpr std::size_t max_open = 32;
  mutable std::mutex mutex_;
  mutable std::list<std::pair<std::int64_t, std::shared_ptr<const base::File>>> open_;  // latest use first
};

/// The way in for the rest of the module.
struct StoreAccess {
  static const std::shared_ptr<Store::Impl>& impl(const Store& store) { return store.impl_; }
};

}  // namespace aerie::io
