// SPDX-License-Identifier: Apache-2.0
// Writing and reading drafter directories. Engines skip tensors whose names they do not know without a word, so an export is read
// back and compared with the list before it is published.
#include <aerie/interchange/drafter_layout.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/interchange/model_dir.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <unistd.h>

#include "drafter_config.hpp"

namespace aerie::interchange {
namespace {
namespace fs = std::filesystem;
using base::DataError;

constexpr std::string_view llama_prefix = "midlayer.", speculators_prefix = "layers.0.";

std::string exported_name(const std::string& name, ExportFormat format) {
  if (format != ExportFormat::speculators || !name.starts_with(llama_prefix)) return name;
  return std::string(speculators_prefix) + name.substr(llama_prefix.size());
}

Dtype dtype_of(const std::string& torch_dtype) {
  if (torch_dtype == "bfloat16") return Dtype::bf16;
  if (torch_dtype == "float16") return Dtype::f16;
  if (torch_dtype == "float32") return Dtype::f32;
  throw base::ConfigError(fmt::format("export dtype '{}' is not one of bfloat16, float16, float32", torch_dtype));
}

/// Everything that goes into model.safetensors, in order.
std::vector<TensorToWrite> export_list(ExportFormat format, const ExportRequest& r, std::span<const TensorToWrite> weights,
                                       const VocabMap& vocab) {
  const auto expected = drafter_tensors(r.shape);
  const auto dtype = dtype_of(r.torch_dtype);
  base::expect(weights.size() == expected.size(), "write_export: the weights are drafter_tensors(shape)");
  std::vector<TensorToWrite> list;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& w = weights[i];
    if (w.name != expected[i].name || w.shape != expected[i].shape || w.dtype != dtype)
      throw base::Bug(
          fmt::format("write_export: weight {} is '{}', not '{}' of the expected shape and dtype", i, w.name, expected[i].name));
    list.push_back(w);
    list.back().name = exported_name(w.name, format);
  }
  if (!r.embedding.empty())
    list.push_back({"embed_tokens.weight", dtype, {r.shape.vocab_size, r.shape.target_hidden_size}, r.embedding});
  list.push_back({"d2t", Dtype::i64, {vocab.draft_size()}, std::as_bytes(std::span(vocab.d2t))});
  list.push_back({"t2d", Dtype::boolean, {vocab.target_size()}, std::as_bytes(std::span(vocab.t2d))});
  return list;
}

bool same_bytes(const SafetensorsFile& file, const TensorToWrite& t) {
  std::vector<std::byte> buffer(std::min<std::size_t>(t.bytes.size(), std::size_t{4} << 20));
  for (std::size_t at = 0; at < t.bytes.size();) {
    const auto n = std::min(buffer.size(), t.bytes.size() - at);
    file.read_at(t.name, static_cast<std::int64_t>(at), std::span(buffer).first(n));
    if (std::memcmp(buffer.data(), t.bytes.data() + at, n) != 0) return false;
    at += n;
  }
  return true;
}

void verify_export(const fs::path& dir, ExportFormat format, const ExportRequest& r, std::span<const TensorToWrite> list) {
  const auto fail = [&](const std::string& why) {
    return DataError(fmt::format("{}: {}", dir.string(), why), "the export was not published");
  };
  const auto file = SafetensorsFile::open(dir / "model.safetensors");
  if (file.tensors().size() != list.size())
    throw fail(fmt::format("{} tensors were written, {} are there", list.size(), file.tensors().size()));
  for (const auto& t : list) {
    const auto& info = file.info(t.name);
    if (info.dtype != t.dtype || info.shape != t.shape)
      throw fail(fmt::format("tensor '{}' came back with another dtype or shape", t.name));
    if (!same_bytes(file, t)) throw fail(fmt::format("tensor '{}' came back with other bytes", t.name));
  }
  const auto config = base::read_json(dir / "config.json");
  const auto parsed = parse_drafter_config(config, format, (dir / "config.json").string());
  if (config != export_config(format, r) || parsed.aux_layers != r.aux_layers) throw fail("config.json came back different");
}

/// Replacing deletes what was there, so only something that looks like an export may be there.
void require_replaceable(const fs::path& dir) {
  if (!fs::exists(dir)) return;
  if (!fs::is_directory(dir)) throw base::RefusedError(dir.string() + ": is not a directory", "give another export directory");
  for (const auto& entry : fs::directory_iterator(dir))
    if (const auto name = entry.path().filename(); name != "config.json" && name != "model.safetensors")
      throw base::RefusedError(
          fmt::format("{}: holds '{}', so it is more than an older export and is not replaced", dir.string(), name.string()),
          "give another export directory, or move its files away");
}

/// Puts `tmp` in the place of `dir` in one step where the file system can exchange two names, else in two.
void publish_directory(const fs::path& tmp, const fs::path& dir) {
  if (!fs::exists(dir)) return base::rename_durable(tmp, dir);
  if (::renameat2(AT_FDCWD, tmp.c_str(), AT_FDCWD, dir.c_str(), RENAME_EXCHANGE) == 0) {
    base::fsync_directory(dir.parent_path());
    fs::remove_all(tmp);  // now the older export
    return;
  }
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP)
    base::throw_errno(errno, fmt::format("exchange {} and {}", tmp.string(), dir.string()));
  const fs::path old = dir.string() + ".old";
  fs::remove_all(old);
  base::rename_durable(dir, old);
  base::rename_durable(tmp, dir);
  fs::remove_all(old);
}

VocabMap read_vocab(const ModelDirectory& dir, const DrafterShape& s) {
  VocabMap map;
  const auto vd = static_cast<std::size_t>(s.draft_vocab_size), v = static_cast<std::size_t>(s.vocab_size);
  const auto wrong = [&](const char* name) {
    return DataError(fmt::format("{}: '{}' has another dtype or shape than expected", dir.path().string(), name));
  };
  map.d2t.assign(vd, 0);
  map.t2d.assign(v, 0);
  if (dir.contains("d2t")) {
    if (dir.info("d2t").dtype != Dtype::i64 || dir.info("d2t").shape != std::vector{s.draft_vocab_size}) throw wrong("d2t");
    dir.read("d2t", std::as_writable_bytes(std::span(map.d2t)));
  } else if (vd != v) {
    throw DataError(fmt::format("{}: no d2t, though the draft vocabulary ({}) is smaller than the target's ({})",
                                dir.path().string(), vd, v));
  }
  if (dir.contains("t2d")) {
    if (dtype_size(dir.info("t2d").dtype) != 1 || dir.info("t2d").shape != std::vector{s.vocab_size}) throw wrong("t2d");
    dir.read("t2d", std::as_writable_bytes(std::span(map.t2d)));
  } else {  // follows from d2t; what lies outside is reported by the check
    for (std::size_t i = 0; i < vd; ++i)
      if (const auto id = static_cast<std::uint64_t>(map.d2t[i]) + i; id < v) map.t2d[id] = 1;
  }
  check_vocab_map(map, dir.path().string());
  return map;
}
}  // namespace

std::int64_t DrafterTensor::elements() const {
  std::int64_t n = 1;
  for (const auto d : shape) n *= d;
  return n;
}

std::vector<DrafterTensor> drafter_tensors(const DrafterShape& s) {
  const auto h = s.hidden_size, q = s.num_heads * s.head_dim, kv = s.num_kv_heads * s.head_dim;
  return {{"fc.weight", {h, 3 * s.target_hidden_size}},
          {"midlayer.input_layernorm.weight", {h}},
          {"midlayer.hidden_norm.weight", {h}},
          {"midlayer.self_attn.q_proj.weight", {q, 2 * h}},
          {"midlayer.self_attn.k_proj.weight", {kv, 2 * h}},
          {"midlayer.self_attn.v_proj.weight", {kv, 2 * h}},
          {"midlayer.self_attn.o_proj.weight", {h, q}},
          {"midlayer.post_attention_layernorm.weight", {h}},
          {"midlayer.mlp.gate_proj.weight", {s.intermediate_size, h}},
          {"midlayer.mlp.up_proj.weight", {s.intermediate_size, h}},
          {"midlayer.mlp.down_proj.weight", {h, s.intermediate_size}},
          {"norm.weight", {h}},
          {"lm_head.weight", {s.draft_vocab_size, h}}};
}

void write_export(const fs::path& dir, ExportFormat format, const ExportRequest& request, std::span<const TensorToWrite> weights,
                  const VocabMap& vocab) {
  check_vocab_map(vocab, "draft vocabulary");
  base::expect(vocab.draft_size() == request.shape.draft_vocab_size && vocab.target_size() == request.shape.vocab_size,
               "write_export: the vocabulary map has the drafter's sizes");
  auto place = fs::absolute(dir).lexically_normal();
  if (!place.has_filename()) place = place.parent_path();  // a trailing slash
  require_replaceable(place);
  const auto config = export_config(format, request);
  const auto list = export_list(format, request, weights, vocab);

  const fs::path tmp = place.string() + ".tmp";
  fs::remove_all(tmp);
  fs::create_directories(tmp);
  try {
    base::publish_text(tmp / "config.json", config.dump(2) + "\n");
    write_safetensors(tmp / "model.safetensors", list, {{"format", "pt"}});
    verify_export(tmp, format, request, list);
    publish_directory(tmp, place);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(tmp, ignored);
    throw;
  }
}

ImportedDrafter read_drafter(const fs::path& path, ExportFormat format) {
  const auto dir = ModelDirectory::open(path);
  const auto config = parse_drafter_config(dir.config(), format, (path / "config.json").string());
  ImportedDrafter out;
  out.shape = config.shape;
  out.aux_layers = config.aux_layers;
  if (out.shape.target_hidden_size == 0) {  // published drafters leave it out when it follows from fc
    const auto& fc = dir.info("fc.weight");
    if (fc.shape.size() != 2 || fc.shape[1] % 3 != 0) throw DataError(path.string() + ": fc.weight does not take three states");
    out.shape.target_hidden_size = fc.shape[1] / 3;
  }

  std::set<std::string> known{"d2t", "t2d", "embed_tokens.weight"};
  for (const auto& t : drafter_tensors(out.shape)) {
    // Both spellings of the layer occur in all formats: vLLM renames midlayer. to layers.0. itself.
    auto name = t.name;
    if (!dir.contains(name)) name = exported_name(name, ExportFormat::speculators);
    if (!dir.contains(name)) throw DataError(fmt::format("{}: no tensor '{}' (nor '{}')", path.string(), t.name, name));
    const auto& info = dir.info(name);
    if (info.shape != t.shape)
      throw DataError(fmt::format("{}: tensor '{}' is {}, config.json implies {}", path.string(), name,
                                  base::Json(info.shape).dump(), base::Json(t.shape).dump()));
    if (info.dtype != Dtype::bf16 && info.dtype != Dtype::f16 && info.dtype != Dtype::f32)
      throw DataError(
          fmt::format("{}: tensor '{}' is {}; BF16, F16 and F32 can be read", path.string(), name, dtype_name(info.dtype)));
    known.insert(name);
    out.tensors.push_back(dir.read(name));
    out.dtypes.push_back(info.dtype);
  }
  for (const auto& name : dir.tensor_names())
    if (!known.contains(name))
      throw DataError(fmt::format("{}: tensor '{}' does not belong to a classic EAGLE-3 drafter", path.string(), name),
                      "this drafter computes another network and can't be continued here");
  out.vocab = read_vocab(dir, out.shape);
  return out;
}

}  // namespace aerie::interchange
