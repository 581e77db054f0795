// SPDX-License-Identifier: Apache-2.0
#include "manifest.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <sys/random.h>

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/hash.hpp>
#include <aerie/base/host.hpp>

#include "record.hpp"
#include "row_data.hpp"

namespace aerie::io {
namespace {

using base::DataError;
using base::Json;

constexpr const char* convention = "input_of_layer";
constexpr const char* seal = "manifest_xxh3";  // over the canonical text of everything else

Json identity_json(const StoreIdentity& d) {
  return Json{{"hidden_size", d.hidden_size},
              {"max_length", d.max_length},
              {"vocab_size", d.vocab_size},
              {"target_num_layers", d.target_num_layers},
              {"aux_layer_ids", d.aux_layer_ids},
              {"aux_layer_convention", convention},
              {"last_hidden_norm", d.last_hidden_norm},
              {"row_invariant", d.row_invariant},
              {"gemm_rows", d.gemm_rows},
              {"final_norm_eps", d.final_norm_eps},
              {"final_norm_hash", d.final_norm_hash},
              {"target_name", d.target_name},
              {"target_revision", d.target_revision},
              {"target_config_hash", d.target_config_hash},
              {"target_weights_hash", d.target_weights_hash},
              {"lm_head_hash", d.lm_head_hash},
              {"embed_hash", d.embed_hash},
              {"tokenizer_hash", d.tokenizer_hash},
              {"dataset_hash", d.dataset_hash},
              {"logical_dtype", dtype_name(d.dtype)},
              {"producer", d.producer}};
}

StoreIdentity identity_of(const Json& j) {
  StoreIdentity d;
  j.at("hidden_size").get_to(d.hidden_size);
  j.at("max_length").get_to(d.max_length);
  j.at("vocab_size").get_to(d.vocab_size);
  j.at("target_num_layers").get_to(d.target_num_layers);
  j.at("aux_layer_ids").get_to(d.aux_layer_ids);
  if (j.at("aux_layer_convention") != convention)
    throw DataError("aux_layer_convention is not input_of_layer", "convert the layer ids on import");
  j.at("last_hidden_norm").get_to(d.last_hidden_norm);
  j.at("row_invariant").get_to(d.row_invariant);
  j.at("gemm_rows").get_to(d.gemm_rows);
  j.at("final_norm_eps").get_to(d.final_norm_eps);
  j.at("final_norm_hash").get_to(d.final_norm_hash);
  j.at("target_name").get_to(d.target_name);
  j.at("target_revision").get_to(d.target_revision);
  j.at("target_config_hash").get_to(d.target_config_hash);
  j.at("target_weights_hash").get_to(d.target_weights_hash);
  j.at("lm_head_hash").get_to(d.lm_head_hash);
  j.at("embed_hash").get_to(d.embed_hash);
  j.at("tokenizer_hash").get_to(d.tokenizer_hash);
  j.at("dataset_hash").get_to(d.dataset_hash);
  j.at("producer").get_to(d.producer);
  const auto dtype = j.at("logical_dtype").get<std::string>();
  if (dtype == dtype_name(StateDtype::fp8_e4m3))
    d.dtype = StateDtype::fp8_e4m3;
  else if (dtype != dtype_name(StateDtype::bf16))
    throw DataError("unknown logical_dtype " + dtype);
  return d;
}

void check_geometry(const Manifest& m) {
  const auto require = [](bool ok, const std::string& what) {
    if (!ok) throw DataError(what);
  };
  require(m.identity.hidden_size > 0 && m.identity.hidden_size <= (1 << 24), "hidden_size is out of range");
  require(!m.parts.empty(), "it lists no parts");
  std::int64_t first = 0, tokens = 0;
  for (std::size_t i = 0; i < m.parts.size(); ++i) {
    const auto& p = m.parts[i];
    require(p.file == part_file(static_cast<std::int64_t>(i)), fmt::format("part {} has the file name '{}'", i, p.file));
    require(p.first == first && p.n > 0 && p.n <= m.n_samples - first,
            fmt::format("part {}: its samples do not follow those of the part before", i));
    require(p.tokens >= 0 && p.tokens <= m.n_tokens - tokens && p.bytes > 0,
            fmt::format("part {}: its token count is out of range", i));
    first += p.n;
    tokens += p.tokens;
  }
  require(first == m.n_samples && tokens == m.n_tokens, "the parts do not add up to n_samples and n_tokens");
}

}  // namespace

std::filesystem::path manifest_path(const std::filesystem::path& store) { return store / "manifest.json"; }
std::string dtype_name(StateDtype dtype) { return dtype == StateDtype::bf16 ? "bfloat16" : "float8_e4m3fn"; }
std::int64_t bytes_per_token(const StoreIdentity& d) {
  std::int64_t n = 0;
  for (const auto& r : row_datasets(d)) n += r.row_bytes();
  return n;
}
std::string part_file(std::int64_t index) { return fmt::format("parts/part-{:05d}.h5", index); }
std::filesystem::path set_aside_path(const std::filesystem::path& store, std::int64_t part) {
  return store / (part_file(part) + ".bad");
}
std::filesystem::path lock_path(const std::filesystem::path& store, std::int64_t part) {
  return store / "locks" / fmt::format("part-{:05d}.lock", part);
}

std::string random_uuid() {
  std::array<std::byte, 16> b{};
  if (::getrandom(b.data(), b.size(), 0) != static_cast<ssize_t>(b.size())) base::throw_errno(errno, "getrandom");
  b[6] = (b[6] & std::byte{0x0f}) | std::byte{0x40};
  b[8] = (b[8] & std::byte{0x3f}) | std::byte{0x80};
  const auto hex = base::to_hex(b);
  const std::string_view h = hex;
  return fmt::format("{}-{}-{}-{}-{}", h.substr(0, 8), h.substr(8, 4), h.substr(12, 4), h.substr(16, 4), h.substr(20));
}

Manifest load_manifest(const std::filesystem::path& store) {
  const auto path = manifest_path(store);
  if (!std::filesystem::exists(path))
    throw base::MissingInputError(path.string() + ": no such file: the store was never created to its end",
                                  "run aerie-extract to create it");
  const auto text = base::read_text(path);
  Manifest m;
  m.json = base::parse_json(text, path.string());
  m.hash = base::xxh3_128_tagged(text);
  try {
    if (m.json.at("schema") != schema_name) throw DataError("is not the manifest of a store");
    if (const auto v = m.json.at("schema_version").get<std::int64_t>(); v != schema_version)
      throw DataError(fmt::format("schema_version is {}, this program knows {}", v, schema_version),
                      "use the version of aerie that wrote it");
    Json body = m.json;
    body.erase(seal);
    if (m.json.at(seal) != base::xxh3_128_tagged(base::canonical(body)))
      throw DataError("its content does not hash to its manifest_xxh3: it was damaged or edited");
    m.identity = identity_of(m.json);
    m.json.at("store_uuid").get_to(m.uuid);
    m.json.at("plan_hash").get_to(m.plan_hash);
    m.json.at("part_bytes").get_to(m.part_bytes);
    m.json.at("n_samples").get_to(m.n_samples);
    m.json.at("n_tokens").get_to(m.n_tokens);
    for (const auto& p : m.json.at("parts"))
      m.parts.push_back({p.at("file"), p.at("first"), p.at("n"), p.at("tokens"), p.at("bytes"), p.at("uuid"), p.at("meta_xxh3")});
    check_geometry(m);
  } catch (const Json::exception& e) {
    throw DataError(fmt::format("{}: {}", path.string(), e.what()), "the manifest is damaged");
  } catch (const DataError& e) {
    throw DataError(fmt::format("{}: {}", path.string(), e.what()), e.hint());
  }
  return m;
}

std::string manifest_text(const Manifest& m) {
  Json j = identity_json(m.identity);
  j["schema"] = schema_name;
  j["schema_version"] = schema_version;
  j["store_uuid"] = m.uuid;
  j["plan_hash"] = m.plan_hash;
  j["part_bytes"] = m.part_bytes;
  j["n_samples"] = m.n_samples;
  j["n_tokens"] = m.n_tokens;
  j["created"] = base::utc_now();
  auto& parts = j["parts"] = Json::array();
  for (const auto& p : m.parts)
    parts.push_back({{"file", p.file},
                     {"first", p.first},
                     {"n", p.n},
                     {"tokens", p.tokens},
                     {"bytes", p.bytes},
                     {"uuid", p.uuid},
                     {"meta_xxh3", p.meta_xxh3}});
  j[seal] = base::xxh3_128_tagged(base::canonical(j));
  return j.dump(1) + "\n";
}

std::vector<std::pair<std::string, AttributeValue>> part_attributes(const Manifest& m, std::int64_t index) {
  const auto& d = m.identity;
  const auto& p = m.parts.at(static_cast<std::size_t>(index));
  return {{"schema", std::string(schema_name)},
          {"schema_version", schema_version},
          {"store_uuid", m.uuid},
          {"part_uuid", p.uuid},
          {"part_index", index},
          {"part_count", static_cast<std::int64_t>(m.parts.size())},
          {"first_sample", p.first},
          {"n_samples", p.n},
          {"n_tokens", p.tokens},
          {"hidden_size", d.hidden_size},
          {"max_length", d.max_length},
          {"vocab_size", d.vocab_size},
          {"aux_layer_ids", std::vector<std::int64_t>(d.aux_layer_ids.begin(), d.aux_layer_ids.end())},
          {"aux_layer_convention", std::string(convention)},
          {"target_num_layers", d.target_num_layers},
          {"last_hidden_norm", d.last_hidden_norm},
          {"row_invariant", std::int64_t{d.row_invariant}},
          {"gemm_rows", d.gemm_rows},
          {"final_norm_eps", d.final_norm_eps},
          {"final_norm_hash", d.final_norm_hash},
          {"target_name", d.target_name},
          {"target_revision", d.target_revision},
          {"target_config_hash", d.target_config_hash},
          {"target_weights_hash", d.target_weights_hash},
          {"lm_head_hash", d.lm_head_hash},
          {"embed_hash", d.embed_hash},
          {"tokenizer_hash", d.tokenizer_hash},
          {"dataset_hash", d.dataset_hash},
          {"plan_hash", m.plan_hash},
          {"logical_dtype", dtype_name(d.dtype)},
          {"producer", d.producer}};
}

std::vector<PartInfo> plan_parts(const StoreIdentity& d, std::span<const PlannedSample> samples, std::int64_t part_bytes) {
  if (samples.empty()) throw DataError("the plan has no samples", "the dataset is empty");
  if (part_bytes <= 0) throw base::ConfigError("part_bytes must be above zero");
  if (d.hidden_size <= 0 || d.hidden_size > (1 << 24))
    throw base::ConfigError(fmt::format("hidden_size {} is out of range", d.hidden_size));
  const auto per_token = bytes_per_token(d);
  std::vector<PartInfo> parts;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto& s = samples[i];
    const bool rejected = s.reject != FailReason::none;
    if (rejected && (s.n_tokens != 0 || !is_planning_reason(s.reject)))
      throw DataError(
          fmt::format("sample {}: a rejected sample needs zero rows and a reason of planning, but has {} rows and reason {}", i,
                      s.n_tokens, reason_name(s.reject)));
    if (!rejected && s.n_tokens <= 0) throw DataError(fmt::format("sample {}: has no tokens and is not rejected", i));
    if (d.max_length > 0 && s.n_tokens > d.max_length)
      throw DataError(fmt::format("sample {}: {} tokens, but max_length is {}", i, s.n_tokens, d.max_length),
                      "truncate or reject it when the dataset is made");
    if (s.n_tokens > (std::int64_t{1} << 60) / per_token)
      throw DataError(fmt::format("sample {}: {} tokens cannot be true", i, s.n_tokens));
    if (parts.empty() || (parts.back().tokens + s.n_tokens) * per_token > part_bytes) {
      PartInfo p;
      p.file = part_file(static_cast<std::int64_t>(parts.size()));
      p.first = static_cast<std::int64_t>(i);
      parts.push_back(p);
    }
    parts.back().n += 1;
    parts.back().tokens += s.n_tokens;
  }
  return parts;
}

std::string plan_hash(std::span<const PlannedSample> samples, std::span<const PartInfo> parts) {
  std::vector<std::int64_t> words;
  words.reserve(2 * samples.size() + parts.size() + 1);
  words.push_back(static_cast<std::int64_t>(samples.size()));
  for (const auto& s : samples) {
    words.push_back(s.n_tokens);
    words.push_back(static_cast<std::int64_t>(s.reject));
  }
  for (const auto& p : parts) words.push_back(p.n);
  return base::xxh3_128_tagged(std::as_bytes(std::span<const std::int64_t>(words)));
}

}  // namespace aerie::io
