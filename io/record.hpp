// SPDX-License-Identifier: Apache-2.0
// The 16-byte state record of a sample. It is valid only if `self` matches, so that a torn record is told from a whole one.
#pragma once
#include <cstdint>

#include <aerie/io/store.hpp>

namespace aerie::io {

struct Record {
  std::uint64_t xxh3 = 0;
  std::uint32_t status = 0;  // kind in bits 0-7, reason in bits 8-31
  std::uint32_t self = 0;    // low 32 bits of XXH3-64 over sample, xxh3, status (three u64), bit 0 set
};
static_assert(sizeof(Record) == 16);

Record done_record(std::int64_t sample, std::uint64_t xxh3);
Record failed_record(std::int64_t sample, FailReason reason);

struct Decoded {
  SampleState state;
  bool torn = false;  // neither all zero nor valid: reads as pending
};
Decoded decode(std::int64_t sample, const Record& record);

/// Reasons that planning gives; such samples have zero rows and never become pending.
constexpr bool is_planning_reason(FailReason r) { return r >= FailReason::empty && r <= FailReason::bad_input; }

}  // namespace aerie::io
