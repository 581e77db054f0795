// SPDX-License-Identifier: Apache-2.0
#include "record.hpp"

#include <array>

#include <aerie/base/hash.hpp>

namespace aerie::io {
namespace {

std::uint32_t self_of(std::int64_t sample, std::uint64_t xxh3, std::uint32_t status) {
  const std::array<std::uint64_t, 3> words{static_cast<std::uint64_t>(sample), xxh3, status};
  return static_cast<std::uint32_t>(base::xxh3_64(std::as_bytes(std::span(words)))) | 1U;
}
Record make(std::int64_t sample, StateKind kind, FailReason reason, std::uint64_t xxh3) {
  const auto status = static_cast<std::uint32_t>(kind) | static_cast<std::uint32_t>(reason) << 8;
  return {xxh3, status, self_of(sample, xxh3, status)};
}

}  // namespace

std::string_view reason_name(FailReason reason) {
  switch (reason) {
    case FailReason::none:
      return "NONE";
    case FailReason::empty:
      return "EMPTY";
    case FailReason::too_long:
      return "TOO_LONG";
    case FailReason::no_loss:
      return "NO_LOSS";
    case FailReason::bad_token:
      return "BAD_TOKEN";
    case FailReason::bad_input:
      return "BAD_INPUT";
    case FailReason::nonfinite:
      return "NONFINITE";
    case FailReason::target:
      return "TARGET";
  }
  return "UNKNOWN";
}

Record done_record(std::int64_t sample, std::uint64_t xxh3) { return make(sample, StateKind::done, FailReason::none, xxh3); }
Record failed_record(std::int64_t sample, FailReason reason) { return make(sample, StateKind::failed, reason, 0); }

Decoded decode(std::int64_t sample, const Record& r) {
  if (r.xxh3 == 0 && r.status == 0 && r.self == 0) return {};
  if (r.self != self_of(sample, r.xxh3, r.status)) return {{}, true};
  const auto kind = r.status & 0xffU, reason = r.status >> 8;
  if (kind == 1 && reason == 0) return {{StateKind::done, FailReason::none, r.xxh3}, false};
  if (kind == 2 && reason >= 1 && reason <= 7 && r.xxh3 == 0)
    return {{StateKind::failed, static_cast<FailReason>(reason), 0}, false};
  if (kind == 0 && reason == 0 && r.xxh3 == 0) return {};
  return {{}, true};  // no version of this program writes it
}

}  // namespace aerie::io
