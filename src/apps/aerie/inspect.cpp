// SPDX-License-Identifier: Apache-2.0
// `aerie inspect`: what a path holds, as lines of `key: value` or as JSON.
#include <aerie/base/error.hpp>
#include <aerie/ckpt/checkpoint.hpp>
#include <aerie/config/config.hpp>
#include <aerie/dataset/dataset.hpp>
#include <aerie/interchange/model_dir.hpp>
#include <aerie/interchange/safetensors.hpp>
#include <aerie/interchange/target_config.hpp>
#include <aerie/io/contiguous_file.hpp>
#include <aerie/io/store.hpp>

#include <map>
#include <variant>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "command_line.hpp"
#include "commands.hpp"
#include "path_kind.hpp"

namespace aerie::apps {
namespace {
namespace fs = std::filesystem;
using base::Json;

Json reasons(const std::array<std::int64_t, 8>& by_reason) {
  Json out = Json::object();
  for (std::size_t r = 1; r < by_reason.size(); ++r)
    if (by_reason[r] > 0) out[std::string(io::reason_name(static_cast<io::FailReason>(r)))] = by_reason[r];
  return out;
}
Json of_store(const fs::path& dir) {
  const auto store = io::Store::open(dir);
  const auto c = store.counts();
  const auto& id = store.identity();
  std::int64_t bytes = 0;
  for (const auto& p : store.parts()) bytes += p.bytes;
  return {{"uuid", store.uuid()},
          {"parts", store.parts().size()},
          {"bytes", bytes},
          {"samples", c.total},
          {"done", c.done},
          {"pending", c.pending},
          {"failed", c.failed},
          {"failed_by_reason", reasons(c.by_reason)},
          {"tokens", c.total_tokens},
          {"done_tokens", c.done_tokens},
          {"hidden_size", id.hidden_size},
          {"aux_layer_ids", id.aux_layer_ids},
          {"target_num_layers", id.target_num_layers},
          {"last_hidden_norm", id.last_hidden_norm},
          {"dtype", id.dtype == io::StateDtype::bf16 ? "bf16" : "fp8_e4m3"},
          {"target_name", id.target_name},
          {"dataset_hash", id.dataset_hash},
          {"tokenizer_hash", id.tokenizer_hash},
          {"lm_head_hash", id.lm_head_hash},
          {"producer", id.producer},
          {"complete", io::complete_marker_holds(store)}};
}
Json of_checkpoint(const fs::path& dir) {
  const auto c = ckpt::open(dir);
  auto vectors = c.manifest.value("vectors", Json::array());
  for (auto& v : vectors)
    v["sha256"] = ckpt::vector_sha256(c, v.at("name").get<std::string>());  // independent of rank count and files
  return {{"step", c.step},
          {"manifest_hash", c.manifest_hash},
          {"identity", c.manifest.value("identity", Json::object())},
          {"position", c.manifest.value("position", Json::object())},
          {"vectors", vectors}};
}
Json attribute(const io::AttributeValue& value) {
  return std::visit([](const auto& v) { return Json(v); }, value);
}
Json of_hdf5(const fs::path& path) {
  const auto file = io::ContiguousFile::open(path);
  Json out = {{"attributes", Json::object()}, {"datasets", Json::object()}};
  for (const auto& [name, value] : file.attributes()) out["attributes"][name] = attribute(value);
  for (const auto& [name, d] : file.datasets()) out["datasets"][name] = {{"shape", d.shape}, {"bytes", d.bytes()}};
  if (out["attributes"].value("schema", "") == "aerie-dataset") {
    const auto data = dataset::Dataset::open(path);
    std::array<std::int64_t, 8> by_reason{};
    for (std::int64_t i = 0; i < data.size(); ++i) ++by_reason.at(static_cast<std::size_t>(data.reject(i)));
    out["samples"] = data.size();
    out["tokens"] = data.n_tokens();
    out["truncated"] = data.n_truncated();
    out["usable"] = by_reason[0];
    out["rejected"] = reasons(by_reason);
  }
  return out;
}
Json of_safetensors(const fs::path& path) {
  const auto file = interchange::SafetensorsFile::open(path);
  Json out = {{"metadata", file.metadata()}, {"tensors", Json::object()}};
  for (const auto& [name, t] : file.tensors())
    out["tensors"][name] = {{"dtype", interchange::dtype_name(t.dtype)}, {"shape", t.shape}, {"bytes", t.bytes()}};
  return out;
}
Json of_model(const fs::path& dir) {
  const auto model = interchange::ModelDirectory::open(dir);
  const auto names = model.tensor_names();
  std::int64_t bytes = 0;
  std::map<std::string, std::int64_t> dtypes;
  for (const auto& n : names) {
    bytes += model.info(n).bytes();
    ++dtypes[std::string(interchange::dtype_name(model.info(n).dtype))];
  }
  Json out = {{"tensors", names.size()},
              {"bytes", bytes},
              {"dtypes", dtypes},
              {"config_hash", model.config_hash()},
              {"config", model.config()}};
  if (fs::exists(dir / "tokenizer.json")) {
    out["tokenizer_hash"] = model.tokenizer_hash();
    const auto t = interchange::read_target_config(model);
    out["target"] = {{"model_type", t.model_type},        {"layers", t.num_layers},
                     {"hidden_size", t.hidden_size},      {"heads", t.num_heads},
                     {"kv_heads", t.num_kv_heads},        {"head_dim", t.head_dim},
                     {"vocab_size", t.vocab_size},        {"max_position_embeddings", t.max_position_embeddings},
                     {"lm_head_tensor", t.lm_head_tensor}};
  }
  return out;
}
Json of_run(const fs::path& dir) {
  const auto c = config::load(dir);
  Json out = {{"config_hash", config::config_hash(c)}, {"config", config::to_json(c)}};
  if (io::Store::exists(c.store_dir())) out["store"] = of_store(c.store_dir());
  if (fs::exists(c.dataset_file())) out["dataset"] = of_hdf5(c.dataset_file());
  out["checkpoints"] = ckpt::list_steps(c.checkpoint_dir());
  return out;
}

void write_lines(const Json& value, const std::string& prefix, std::string& out) {
  for (const auto& [key, v] : value.items()) {
    if (v.is_object() && !v.empty())
      write_lines(v, prefix + key + ".", out);
    else
      out += fmt::format("{}{}: {}\n", prefix, key, v.is_string() ? v.get<std::string>() : v.dump());
  }
}
}  // namespace

int command_inspect(int argc, char** argv) {
  CLI::App app("What a run, store, checkpoint, dataset, safetensors file or model directory holds.", "aerie inspect");
  std::string path;
  bool json = false;
  app.add_option("PATH", path, "what to look at")->required();
  app.add_flag("--json", json, "print JSON");
  if (!parse_command_line(app, argc, argv)) return 0;
  const auto kind = recognise(path);
  Json out;
  switch (kind) {
    case PathKind::run:
      out = of_run(path);
      break;
    case PathKind::store:
      out = of_store(path);
      break;
    case PathKind::checkpoint:
      out = of_checkpoint(path);
      break;
    case PathKind::model:
      out = of_model(path);
      break;
    case PathKind::hdf5:
      out = of_hdf5(path);
      break;
    case PathKind::safetensors:
      out = of_safetensors(path);
      break;
  }
  out["path"] = path;
  out["kind"] = kind_name(kind);
  if (json) return print(out.dump(1)), 0;
  std::string lines;
  write_lines(out, "", lines);
  print(lines);
  return 0;
}

}  // namespace aerie::apps
