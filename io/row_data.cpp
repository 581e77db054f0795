// SPDX-License-Identifier: Apache-2.0
#include "row_data.hpp"

#include <algorithm>
#include <limits>

#include <aerie/base/bfloat16.hpp>
#include <aerie/base/error.hpp>
#include <aerie/base/float8.hpp>
#include <aerie/base/hash.hpp>

namespace aerie::io {
namespace {

bool any_nonfinite(const std::vector<std::uint16_t>& values) {
  bool found = false;
  for (const auto v : values) found |= base::bf16_is_nonfinite(v);  // no early exit: the loop is vectorized
  return found;
}

/// Rows of `width` bf16 values to codes and one scale a row.
void quantize(const std::vector<std::uint16_t>& values, std::int64_t width, std::vector<std::uint8_t>& codes,
              std::vector<float>& scales) {
  codes.resize(values.size());
  scales.resize(values.size() / static_cast<std::size_t>(width));
  for (std::size_t r = 0; r < scales.size(); ++r) {
    const auto row = std::span(values).subspan(r * static_cast<std::size_t>(width), static_cast<std::size_t>(width));
    std::uint32_t largest = 0;  // bits of |x| order as |x| does
    for (const auto v : row) largest = std::max(largest, v & 0x7fffU);
    const float amax = base::bf16_to_float(static_cast<std::uint16_t>(largest));
    // Never subnormal: such a scale has few bits and may be flushed to zero.
    const float scale = amax > 0 ? std::max(amax / base::e4m3_max, std::numeric_limits<float>::min()) : 1.0F;
    auto* out = codes.data() + r * static_cast<std::size_t>(width);
    for (std::size_t i = 0; i < row.size(); ++i) out[i] = base::float_to_e4m3(base::bf16_to_float(row[i]) / scale);
    scales[r] = scale;
  }
}

void widen(const std::vector<std::uint8_t>& codes, const std::vector<float>& scales, std::int64_t width,
           std::vector<std::uint16_t>& out) {
  std::array<float, 256> value{};
  for (std::size_t c = 0; c < value.size(); ++c) value[c] = base::e4m3_to_float(static_cast<std::uint8_t>(c));
  out.resize(codes.size());
  for (std::size_t r = 0; r < scales.size(); ++r)
    for (std::size_t i = r * static_cast<std::size_t>(width); i < (r + 1) * static_cast<std::size_t>(width); ++i)
      out[i] = base::float_to_bf16(value[codes[i]] * scales[r]);
}

template <class Byte, class Sample>
std::vector<std::span<Byte>> pieces_of(Sample& s) {
  const auto bytes = [](auto& v) {
    return std::span<Byte>(reinterpret_cast<Byte*>(v.data()), v.size() * sizeof(v[0]));  // NOLINT: bytes of an array
  };
  if (!s.fp8) return {bytes(s.aux16), bytes(s.last16), bytes(s.ids), bytes(s.mask)};
  return {bytes(s.aux8), bytes(s.last8), bytes(s.ids), bytes(s.mask), bytes(s.aux_scale), bytes(s.last_scale)};
}

}  // namespace

std::vector<RowDataset> row_datasets(const StoreIdentity& d) {
  const bool fp8 = d.dtype == StateDtype::fp8_e4m3;
  const auto type = fp8 ? ElementType::u8 : ElementType::u16;
  const std::int64_t bytes = fp8 ? 1 : 2;
  std::vector<RowDataset> out{{"aux", type, bytes, 3 * d.hidden_size},
                              {"last", type, bytes, d.hidden_size},
                              {"input_ids", ElementType::i32, 4, 0},
                              {"loss_mask", ElementType::u8, 1, 0}};
  if (fp8) {
    out.push_back({"aux_scale", ElementType::f32, 4, 3});
    out.push_back({"last_scale", ElementType::f32, 4, 0});
  }
  return out;
}

void StoredSample::resize(const StoreIdentity& d, std::int64_t tokens) {
  fp8 = d.dtype == StateDtype::fp8_e4m3;
  const auto t = static_cast<std::size_t>(tokens), h = static_cast<std::size_t>(d.hidden_size);
  if (fp8) {
    aux8.resize(t * 3 * h);
    last8.resize(t * h);
    aux_scale.resize(t * 3);
    last_scale.resize(t);
  } else {
    aux16.resize(t * 3 * h);
    last16.resize(t * h);
  }
  ids.resize(t);
  mask.resize(t);
}

std::vector<std::span<std::byte>> StoredSample::pieces() { return pieces_of<std::byte>(*this); }
std::vector<std::span<const std::byte>> StoredSample::pieces() const { return pieces_of<const std::byte>(*this); }

std::int64_t StoredSample::bytes() const {
  std::int64_t n = 0;
  for (const auto& p : pieces()) n += static_cast<std::int64_t>(p.size());
  return n;
}

std::uint64_t StoredSample::xxh3() const {
  base::Xxh3 h;
  for (const auto& p : pieces()) h.update(p);
  return h.digest64();
}

std::optional<StoredSample> encode(SampleData&& data, const StoreIdentity& d) {
  if (any_nonfinite(data.aux) || any_nonfinite(data.last)) return std::nullopt;
  StoredSample s;
  s.fp8 = d.dtype == StateDtype::fp8_e4m3;
  s.ids = std::move(data.input_ids);
  s.mask = std::move(data.loss_mask);
  if (s.fp8) {
    quantize(data.aux, d.hidden_size, s.aux8, s.aux_scale);
    quantize(data.last, d.hidden_size, s.last8, s.last_scale);
  } else {
    s.aux16 = std::move(data.aux);
    s.last16 = std::move(data.last);
  }
  return s;
}

void decode(StoredSample&& s, const StoreIdentity& d, SampleData& out) {
  if (s.fp8) {
    widen(s.aux8, s.aux_scale, d.hidden_size, out.aux);
    widen(s.last8, s.last_scale, d.hidden_size, out.last);
  } else {
    out.aux = std::move(s.aux16);
    out.last = std::move(s.last16);
  }
  out.input_ids = std::move(s.ids);
  out.loss_mask = std::move(s.mask);
}

}  // namespace aerie::io
