// SPDX-License-Identifier: Apache-2.0
#include <aerie/io/store.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <aerie/base/error.hpp>
#include <aerie/base/hash.hpp>

#include "store_impl.hpp"

namespace aerie::io {

using base::DataError;

std::shared_ptr<const base::File> Store::Impl::open_part(std::int64_t part) const {
  const std::lock_guard lock(mutex_);
  const auto it = std::find_if(open_.begin(), open_.end(), [&](const auto& e) { return e.first == part; });
  if (it != open_.end()) {
    open_.splice(open_.begin(), open_, it);
  } else {
    open_.emplace_front(part, std::make_shared<const base::File>(base::open_read(part_path(part))));
    if (open_.size() > max_open) open_.pop_back();
  }
  return open_.front().second;
}

std::int64_t Store::Impl::part_of(std::int64_t sample) const {
  check_sample(sample);
  const auto& parts = manifest.parts;
  const auto it =
      std::upper_bound(parts.begin(), parts.end(), sample, [](std::int64_t s, const PartInfo& p) { return s < p.first; });
  return it - parts.begin() - 1;
}

void Store::Impl::check_sample(std::int64_t sample) const {
  base::expect(sample >= 0 && sample < manifest.n_samples, "the sample index lies inside the store");
}

void Store::Impl::read_states(bool sync) {
  std::vector<SampleState> new_states(static_cast<std::size_t>(manifest.n_samples));
  std::vector<bool> new_torn(new_states.size());
  for (std::size_t i = 0; i < manifest.parts.size(); ++i) {
    const auto& part = manifest.parts[i];
    const auto file = base::open_read(dir / part.file);
    const auto records = read_records(file, layouts[i], part.n);
    if (sync) sync_before_trust(file);  // after reading: what was read is on disk then, also what another job wrote just now
    for (std::int64_t j = 0; j < part.n; ++j) {
      const auto d = decode(part.first + j, records[static_cast<std::size_t>(j)]);
      new_states[static_cast<std::size_t>(part.first + j)] = d.state;
      new_torn[static_cast<std::size_t>(part.first + j)] = d.torn;
    }
  }
  states = std::move(new_states);
  torn = std::move(new_torn);
}

bool Store::exists(const std::filesystem::path& dir) { return std::filesystem::exists(manifest_path(dir)); }

Store Store::open(const std::filesystem::path& dir) {
  auto impl = std::make_shared<Impl>();
  impl->dir = dir;
  impl->manifest = load_manifest(dir);
  const auto& parts = impl->manifest.parts;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto path = dir / parts[i].file;
    impl->layouts.push_back(check_part(dir, impl->manifest, static_cast<std::int64_t>(i), [&](const std::string& text) {
      throw DataError(fmt::format("{}: {}", path.string(), text),
                      "the part is damaged or belongs to another store: run `aerie verify`");
    }));
  }
  impl->read_states(false);
  return Store(std::move(impl));
}

void Store::refresh() { impl_->read_states(true); }
void Store::look_again() { impl_->read_states(false); }

const std::filesystem::path& Store::path() const { return impl_->dir; }
const StoreIdentity& Store::identity() const { return impl_->manifest.identity; }
const std::string& Store::uuid() const { return impl_->manifest.uuid; }
const base::Json& Store::manifest() const { return impl_->manifest.json; }
const std::string& Store::manifest_hash() const { return impl_->manifest.hash; }
const std::vector<PartInfo>& Store::parts() const { return impl_->manifest.parts; }
std::int64_t Store::size() const { return impl_->manifest.n_samples; }
std::int64_t Store::part_of(std::int64_t sample) const { return impl_->part_of(sample); }
std::int64_t Store::length(std::int64_t sample) const {
  const auto p = static_cast<std::size_t>(impl_->part_of(sample));
  return impl_->layouts[p].rows(sample - impl_->manifest.parts[p].first);
}
const SampleState& Store::state(std::int64_t sample) const {
  impl_->check_sample(sample);
  return impl_->states[static_cast<std::size_t>(sample)];
}

Counts Store::counts() const {
  Counts c;
  const auto& m = impl_->manifest;
  c.total = m.n_samples;
  c.total_tokens = m.n_tokens;
  for (std::size_t p = 0; p < m.parts.size(); ++p)
    for (std::int64_t j = 0; j < m.parts[p].n; ++j) {
      const auto sample = static_cast<std::size_t>(m.parts[p].first + j);
      const auto& s = impl_->states[sample];
      if (s.kind == StateKind::pending) ++c.pending;
      if (s.kind == StateKind::failed) ++c.failed, ++c.by_reason[static_cast<std::size_t>(s.reason)];
      if (s.kind == StateKind::done) ++c.done, c.done_tokens += impl_->layouts[p].rows(j);
      if (impl_->torn[sample]) ++c.torn;
    }
  return c;
}

void Store::read(std::int64_t sample, SampleData& out) const {
  const auto p = impl_->part_of(sample);
  const auto& part = impl_->manifest.parts[static_cast<std::size_t>(p)];
  const auto& state = impl_->states[static_cast<std::size_t>(sample)];
  const auto path = impl_->part_path(p).string();
  if (state.kind == StateKind::pending)
    throw DataError(fmt::format("{}: sample {} is pending: its states are not there", path, sample),
                    "run aerie-extract to its end");
  if (state.kind == StateKind::failed)
    throw DataError(fmt::format("{}: sample {} failed ({}): it has no states", path, sample, reason_name(state.reason)),
                    "leave it out");
  const auto file = impl_->open_part(p);
  const auto& layout = impl_->layouts[static_cast<std::size_t>(p)];
  const auto extents = sample_extents(layout, sample - part.first);
  StoredSample stored;
  stored.aux16.swap(out.aux);  // their capacity is used again
  stored.last16.swap(out.last);
  stored.ids.swap(out.input_ids);
  stored.mask.swap(out.loss_mask);
  stored.resize(impl_->manifest.identity, layout.rows(sample - part.first));
  const auto pieces = stored.pieces();
  read_ahead(*file, extents);
  base::Xxh3 hash;
  for (std::size_t i = 0; i < pieces.size(); ++i) read_and_hash(*file, extents[i], pieces[i].data(), hash);
  if (const auto found = hash.digest64(); found != state.xxh3) throw base::ChecksumError(path, sample, state.xxh3, found);
  if (stored.fp8) {
    out.aux.swap(stored.aux16);
    out.last.swap(stored.last16);
  }
  decode(std::move(stored), impl_->manifest.identity, out);
}

std::vector<std::string> Store::differences(const StoreIdentity& store, const StoreIdentity& expected) {
  std::vector<std::string> out;
  const auto number = [&](const char* name, auto a, auto b) {
    if (a != b) out.push_back(fmt::format("{}: store {}, expected {}", name, a, b));
  };
  const auto hash = [&](const char* name, const std::string& a, const std::string& b) {
    if (!b.empty() && a != b) out.push_back(fmt::format("{}: store {}, expected {}", name, a.empty() ? "(none)" : a, b));
  };
  number("hidden_size", store.hidden_size, expected.hidden_size);
  number("max_length", store.max_length, expected.max_length);
  number("vocab_size", store.vocab_size, expected.vocab_size);
  number("target_num_layers", store.target_num_layers, expected.target_num_layers);
  if (store.aux_layer_ids != expected.aux_layer_ids)
    out.push_back(fmt::format("aux_layer_ids: store [{}], expected [{}]", fmt::join(store.aux_layer_ids, ", "),
                              fmt::join(expected.aux_layer_ids, ", ")));
  hash("last_hidden_norm", store.last_hidden_norm, expected.last_hidden_norm);
  number("row_invariant", store.row_invariant, expected.row_invariant);
  number("gemm_rows", store.gemm_rows, expected.gemm_rows);
  number("final_norm_eps", store.final_norm_eps, expected.final_norm_eps);
  hash("final_norm_hash", store.final_norm_hash, expected.final_norm_hash);
  hash("target_config_hash", store.target_config_hash, expected.target_config_hash);
  hash("target_weights_hash", store.target_weights_hash, expected.target_weights_hash);
  hash("lm_head_hash", store.lm_head_hash, expected.lm_head_hash);
  hash("embed_hash", store.embed_hash, expected.embed_hash);
  hash("tokenizer_hash", store.tokenizer_hash, expected.tokenizer_hash);
  hash("dataset_hash", store.dataset_hash, expected.dataset_hash);
  hash("logical_dtype", dtype_name(store.dtype), dtype_name(expected.dtype));
  return out;
}

}  // namespace aerie::io
