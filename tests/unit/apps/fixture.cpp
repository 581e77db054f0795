// SPDX-License-Identifier: Apache-2.0
#include "fixture.hpp"

#include <array>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <sys/wait.h>

#include <aerie/ckpt/checkpoint.hpp>
#include <aerie/config/config.hpp>
#include <aerie/dataset/dataset.hpp>
#include <aerie/interchange/safetensors.hpp>
#include <aerie/io/store_writer.hpp>
#include <aerie/report/ledger.hpp>

namespace aerie::test {
namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}
void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}
void flip_byte(const fs::path& path, std::int64_t offset) {
  auto text = read(path);
  auto& byte = text.at(static_cast<std::size_t>(offset < 0 ? offset + static_cast<std::int64_t>(text.size()) : offset));
  byte = static_cast<char>(~byte);
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary)
      .write(text.data(), static_cast<std::streamsize>(text.size()));
}

Ended shell(const std::string& command) {
  TempDir dir;
  const int status = std::system(fmt::format("( {} ) >{} 2>{}", command, (dir / "out").string(), (dir / "err").string()).c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read(dir / "out"), read(dir / "err")};
}
Ended aerie(const std::string& arguments) { return shell(AERIE_BIN " " + arguments); }

fs::path make_target(const fs::path& dir) {
  write(dir / "config.json",
        R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16, "intermediate_size": 32,
    "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 64, "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true, "bos_token_id": 1, "eos_token_id": 2,
    "hidden_act": "silu", "torch_dtype": "float32"})");
  write(dir / "tokenizer.json", "{}");
  write(dir / "tokenizer_config.json", R"({"chat_template": "{{ messages }}"})");
  const std::vector<float> values(64 * 16, 0.5F);
  const auto bytes = std::as_bytes(std::span(values));
  const std::array<interchange::TensorToWrite, 2> tensors{
      {{"model.embed_tokens.weight", interchange::Dtype::f32, {64, 16}, bytes},
       {"model.norm.weight", interchange::Dtype::f32, {16}, bytes.first(64)}}};
  interchange::write_safetensors(dir / "model.safetensors", tensors);
  return dir;
}

Run::Run(const TempDir& dir) : path_(dir / "run") {
  config::Config c;
  c.target.path = make_target(dir / "target");
  c.eval.holdout = 0;
  c.draft.vocab_size = 3;
  write(path_ / "aerie.toml", config::commented_toml(c));
  std::string lines;
  for (int i = 0; i < 6; ++i)
    lines += fmt::format("{{\"id\": \"s{}\", \"input_ids\": [{}, 7, 8, 9], \"loss_mask\": [0, 0, {}, {}]}}\n", i, 10 + i,
                         i == 3 ? 0 : 1, i == 3 ? 0 : 1);
  write(dir / "tokens.jsonl", lines);
  dataset::ImportOptions options;
  options.vocab_size = 64;
  fs::create_directories(path_ / "dataset");
  dataset::import_jsonl(dir / "tokens.jsonl", path_ / "dataset/train.h5", options);
}

void Run::make_store(const std::vector<std::int64_t>& done, const std::vector<std::int64_t>& failed) {
  const auto data = dataset::Dataset::open(path_ / "dataset/train.h5");
  io::StoreIdentity id;
  id.hidden_size = 4;
  id.max_length = 4096;
  id.target_num_layers = 8;
  id.vocab_size = 64;
  id.aux_layer_ids = {2, 4, 5};
  id.final_norm_eps = 1e-5;
  id.final_norm_hash = id.target_config_hash = id.target_weights_hash = id.lm_head_hash = id.embed_hash = id.tokenizer_hash =
      "xxh3-128:0";
  id.target_name = "made-up";
  id.producer = "test";
  id.dataset_hash = data.hash();
  std::vector<io::PlannedSample> plan;
  for (std::int64_t i = 0; i < data.size(); ++i)
    plan.push_back({data.reject(i) == io::FailReason::none ? data.length(i) : 0, data.reject(i)});
  io::Store::create(path_ / "store", id, plan, 4096);
  const auto store = io::Store::open(path_ / "store");
  std::vector<std::int64_t> parts;
  for (std::size_t p = 0; p < store.parts().size(); ++p) parts.push_back(static_cast<std::int64_t>(p));
  io::StoreWriter writer(store, parts, {});
  report::Ledger ledger(path_);
  for (const auto i : done) {
    dataset::Tokens tokens;
    data.read(i, tokens);
    const auto n = tokens.ids.size();
    writer.put(i,
               {std::vector<std::uint16_t>(n * 12, 0x3f80), std::vector<std::uint16_t>(n * 4, 0x4000), tokens.ids, tokens.mask});
  }
  for (const auto i : failed) {
    writer.fail(i, io::FailReason::nonfinite);
    ledger.sample_failed(i, data.id(i), "NONFINITE", "layer 3 holds NaN");
  }
  writer.drain();
  writer.close();
}

fs::path Run::make_checkpoint(std::int64_t step) {
  const std::vector<float> values(100, 1.5F);
  ckpt::SaveRequest request;
  request.root = path_ / "checkpoints";
  fs::create_directories(request.root);
  request.step = step;
  request.attempt = 1;
  request.identity = {{"config", "made up"}};
  request.position = {{"packs", step}};
  request.vectors = {{"masters", "F32", 400}};
  request.chunks = {{"masters", 0, std::as_bytes(std::span(values))}};
  return ckpt::save(comm::Comm::solo(), request).path;
}

std::vector<base::Json> Run::ledger() const { return report::Ledger(path_).read(); }

void Run::mark_extracted() {
  report::Ledger ledger(path_);
  ledger.phase(report::Phase::prepare, report::PhaseState::complete,
               {{"dataset_hash", dataset::Dataset::open(path_ / "dataset/train.h5").hash()}});
  ledger.phase(report::Phase::extract, report::PhaseState::complete, {{"tokens", 20}, {"seconds", 2.0}});
}

}  // namespace aerie::test
