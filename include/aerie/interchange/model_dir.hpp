// SPDX-License-Identifier: Apache-2.0
// A target model's directory as Hugging Face lays it out: config.json, safetensors (one file or sharded by an index),
// tokenizer.json. Deals in bytes; knows no tensor class.
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <aerie/base/json.hpp>
#include <aerie/interchange/safetensors.hpp>

namespace aerie::interchange {

class ModelDirectory {
 public:
  /// Reads config.json and every shard's header. Throws MissingInputError (directory, config.json, a shard named by the
  /// index: the message names it and the tensors it should hold) and DataError.
  static ModelDirectory open(const std::filesystem::path& dir);

  const std::filesystem::path& path() const { return dir_; }
  const base::Json& config() const { return config_; }
  bool contains(const std::string& tensor) const { return where_.contains(tensor); }
  /// Throws DataError naming directory and tensor when it is missing.
  const TensorInfo& info(const std::string& tensor) const;
  void read(const std::string& tensor, std::span<std::byte> out) const;
  std::vector<std::byte> read(const std::string& tensor) const;
  std::vector<std::string> tensor_names() const;  // sorted

  /// "xxh3-128:..." of config.json in canonical form.
  std::string config_hash() const;
  /// Of dtype, shape and bytes of one tensor.
  std::string tensor_hash(const std::string& tensor) const;
  /// Of one tensor's bytes alone. Reads them in pieces.
  std::string bytes_hash(const std::string& tensor) const;
  /// Over the sorted list of (name, dtype, shape, hash of the bytes); `bytes_hashes` holds bytes_hash of every tensor, so that
  /// ranks can share the reading of hundreds of gigabytes.
  std::string weights_hash(const std::map<std::string, std::string>& bytes_hashes) const;
  /// The same, reading everything here.
  std::string weights_hash() const;
  /// tokenizer.json and chat template (tokenizer_config.json's "chat_template" or chat_template.jinja); the same value that
  /// aerie-prepare writes: sha256 over the bytes of tokenizer.json, one zero byte, the template's UTF-8 text.
  std::string tokenizer_hash() const;

 private:
  std::filesystem::path dir_;
  base::Json config_;
  std::vector<std::shared_ptr<SafetensorsFile>> shards_;
  std::map<std::string, std::size_t> where_;  // tensor -> shard
};

}  // namespace aerie::interchange
