// SPDX-License-Identifier: Apache-2.0
// Packs out of the store: checksummed samples, widened to the compute dtype on the device.
#pragma once
#include <aerie/draft/drafter.hpp>
#include <aerie/io/store.hpp>
#include <aerie/train/trainer.hpp>

namespace aerie::train {

/// Borrows store and head. A store with states before the final norm gets it applied here.
class StoreSource final : public PackSource {
 public:
  StoreSource(const io::Store& store, const draft::TargetHead& head, c10::Device device, c10::ScalarType dtype)
      : store_(store), head_(head), device_(device), dtype_(dtype) {}
  draft::PackBatch load(const dataset::Pack& pack) override;

 private:
  const io::Store& store_;
  const draft::TargetHead& head_;
  c10::Device device_;
  c10::ScalarType dtype_;
};

}  // namespace aerie::train
