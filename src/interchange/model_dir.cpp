// SPDX-License-Identifier: Apache-2.0
// Opening a model directory and hashing what is in it.
#include <aerie/interchange/model_dir.hpp>

#include <algorithm>

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/hash.hpp>

#include <fmt/format.h>

namespace aerie::interchange {
namespace {
namespace fs = std::filesystem;
using base::DataError;
using base::Json;
using base::MissingInputError;

constexpr std::size_t chunk_bytes = std::size_t{4} << 20;

/// weight_map of the index, turned round: shard -> its tensors.
std::map<std::string, std::vector<std::string>> read_index(const fs::path& path) {
  const Json index = base::read_json(path);
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object() || map->empty())
    throw DataError(path.string() + ": no weight_map");
  std::map<std::string, std::vector<std::string>> shards;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string()) throw DataError(fmt::format("{}: weight_map '{}' is not a file name", path.string(), tensor));
    const auto& name = file.get_ref<const std::string&>();
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
      throw DataError(
          fmt::format("{}: weight_map '{}' names '{}', which is no file beside the index", path.string(), tensor, name));
    shards[name].push_back(tensor);
  }
  return shards;
}

void require_shards(const fs::path& dir, const std::map<std::string, std::vector<std::string>>& shards) {
  std::string first;
  std::size_t missing = 0;
  for (const auto& [name, tensors] : shards) {
    if (fs::exists(dir / name)) continue;
    if (missing++ == 0)
      first = fmt::format("{}: no such file; model.safetensors.index.json says that it holds {} tensors ({}{})",
                          (dir / name).string(), tensors.size(), tensors.front(), tensors.size() > 1 ? ", ..." : "");
  }
  if (missing == 0) return;
  if (missing > 1) first += fmt::format("; {} of {} shards are missing", missing, shards.size());
  throw MissingInputError(first, "download the model again, or wait until the copy is complete");
}

/// Feeds a tensor's bytes to `sink` in pieces.
template <class Sink>
void walk(const SafetensorsFile& file, const std::string& tensor, std::vector<std::byte>& buffer, Sink&& sink) {
  const std::int64_t total = file.info(tensor).bytes();
  for (std::int64_t at = 0; at < total;) {
    const auto n = std::min<std::int64_t>(total - at, static_cast<std::int64_t>(chunk_bytes));
    buffer.resize(static_cast<std::size_t>(n));
    file.read_at(tensor, at, buffer);
    sink(std::span<const std::byte>(buffer));
    at += n;
  }
}

/// The template that a chat is rendered with: chat_template.jinja, or else tokenizer_config.json's, as transformers reads them.
/// Of several named ones the one called "default". Empty when the model has none.
std::string chat_template(const fs::path& dir) {
  if (fs::exists(dir / "chat_template.jinja")) return base::read_text(dir / "chat_template.jinja");
  const auto path = dir / "tokenizer_config.json";
  if (!fs::exists(path)) return {};
  const Json config = base::read_json(path);
  const auto it = config.is_object() ? config.find("chat_template") : config.end();
  if (!config.is_object() || it == config.end() || it->is_null()) return {};
  if (it->is_string()) return it->get<std::string>();
  if (it->is_array())
    for (const auto& entry : *it)
      if (entry.is_object() && entry.value("name", Json()) == "default" && entry.contains("template") &&
          entry["template"].is_string())
        return entry["template"].get<std::string>();
  throw DataError(path.string() + ": chat_template is neither a string nor a list with one called 'default'");
}
}  // namespace

ModelDirectory ModelDirectory::open(const fs::path& dir) {
  if (!fs::is_directory(dir)) throw MissingInputError(dir.string() + ": no such model directory", "check the path");
  ModelDirectory out;
  out.dir_ = dir;
  out.config_ = base::read_json(dir / "config.json");
  if (!out.config_.is_object()) throw DataError((dir / "config.json").string() + ": not a JSON object");

  // A single file wins over an index, as in transformers.
  if (fs::exists(dir / "model.safetensors")) {
    out.shards_.push_back(std::make_shared<SafetensorsFile>(SafetensorsFile::open(dir / "model.safetensors")));
    for (const auto& t : out.shards_[0]->tensors()) out.where_.emplace(t.first, 0);
    return out;
  }
  const auto index = dir / "model.safetensors.index.json";
  if (!fs::exists(index))
    throw MissingInputError(dir.string() + ": neither model.safetensors nor model.safetensors.index.json",
                            "aerie reads safetensors only; convert other weight files first");
  const auto shards = read_index(index);
  require_shards(dir, shards);
  for (const auto& [name, tensors] : shards) {
    auto file = std::make_shared<SafetensorsFile>(SafetensorsFile::open(dir / name));
    for (const auto& t : tensors) {
      if (!file->contains(t))
        throw DataError(
            fmt::format("{}: no tensor '{}', though model.safetensors.index.json places it there", file->path().string(), t));
      out.where_.emplace(t, out.shards_.size());
    }
    out.shards_.push_back(std::move(file));
  }
  // Tensors that the index forgot are part of the model too; the same one in two shards would be a guess.
  std::map<std::string, std::size_t> unlisted;
  for (std::size_t s = 0; s < out.shards_.size(); ++s)
    for (const auto& t : out.shards_[s]->tensors()) {
      if (out.where_.contains(t.first)) continue;
      if (!unlisted.emplace(t.first, s).second)
        throw DataError(fmt::format("{}: tensor '{}' is in two shards and not in the index", dir.string(), t.first));
    }
  out.where_.merge(unlisted);
  return out;
}

const TensorInfo& ModelDirectory::info(const std::string& tensor) const {
  const auto it = where_.find(tensor);
  if (it == where_.end()) throw DataError(fmt::format("{}: no tensor '{}' in the model's files", dir_.string(), tensor));
  return shards_[it->second]->info(tensor);
}
void ModelDirectory::read(const std::string& tensor, std::span<std::byte> out) const {
  static_cast<void>(info(tensor));
  shards_[where_.at(tensor)]->read(tensor, out);
}
std::vector<std::byte> ModelDirectory::read(const std::string& tensor) const {
  static_cast<void>(info(tensor));
  return shards_[where_.at(tensor)]->read(tensor);
}
std::vector<std::string> ModelDirectory::tensor_names() const {
  std::vector<std::string> out;
  out.reserve(where_.size());
  for (const auto& t : where_) out.push_back(t.first);
  return out;
}

std::string ModelDirectory::config_hash() const { return base::xxh3_128_tagged(base::canonical(config_)); }

std::string ModelDirectory::tensor_hash(const std::string& tensor) const {
  const auto& t = info(tensor);
  base::Xxh3 hash;
  hash.update(base::canonical(Json::array({dtype_name(t.dtype), t.shape})) + "\n");
  std::vector<std::byte> buffer;
  walk(*shards_[where_.at(tensor)], tensor, buffer, [&](std::span<const std::byte> piece) { hash.update(piece); });
  return hash.digest128();
}

std::string ModelDirectory::bytes_hash(const std::string& tensor) const {
  static_cast<void>(info(tensor));
  base::Xxh3 hash;
  std::vector<std::byte> buffer;
  walk(*shards_[where_.at(tensor)], tensor, buffer, [&](std::span<const std::byte> piece) { hash.update(piece); });
  return hash.digest128();
}

std::string ModelDirectory::weights_hash(const std::map<std::string, std::string>& bytes_hashes) const {
  base::Xxh3 all;
  for (const auto& [name, shard] : where_) {  // sorted by name, whatever the sharding
    const auto& t = shards_[shard]->info(name);
    all.update(base::canonical(Json::array({name, dtype_name(t.dtype), t.shape, bytes_hashes.at(name)})) + "\n");
  }
  return all.digest128();
}

std::string ModelDirectory::weights_hash() const {
  std::map<std::string, std::string> hashes;
  for (const auto& name : tensor_names()) hashes[name] = bytes_hash(name);
  return weights_hash(hashes);
}

std::string ModelDirectory::tokenizer_hash() const {
  base::Sha256 hash;
  hash.update(base::read_text(dir_ / "tokenizer.json"));
  hash.update(std::string_view("\0", 1));
  hash.update(chat_template(dir_));
  return hash.finish_tagged();
}

}  // namespace aerie::interchange
