// SPDX-License-Identifier: Apache-2.0
#include "path_kind.hpp"

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

namespace aerie::apps {
namespace {
namespace fs = std::filesystem;

PathKind recognise_file(const fs::path& path) {
  const auto file = base::open_read(path);
  std::string head(static_cast<std::size_t>(std::min<std::int64_t>(16, base::file_size(file))), '\0');
  base::pread_full(file, std::as_writable_bytes(std::span(head)), 0);
  if (head.starts_with("\x89HDF\r\n\x1a\n")) return PathKind::hdf5;
  if (head.size() > 8 && head[8] == '{') return PathKind::safetensors;
  throw base::DataError(path.string() + ": neither HDF5 nor safetensors",
                        "give a run, store, checkpoint, dataset, safetensors file or model directory");
}
}  // namespace

PathKind recognise(const fs::path& path) {
  if (!fs::exists(path)) throw base::MissingInputError(path.string() + ": no such file or directory", "check the path");
  if (!fs::is_directory(path)) return recognise_file(path);
  if (fs::exists(path / "aerie.toml") || fs::exists(path / "ledger.jsonl")) return PathKind::run;
  if (fs::exists(path / "MANIFEST.json") || path.filename().string().starts_with("step-")) return PathKind::checkpoint;
  if (fs::exists(path / "manifest.json") || fs::exists(path / "parts")) return PathKind::store;
  if (fs::exists(path / "config.json")) return PathKind::model;
  throw base::DataError(path.string() + ": neither run, store, checkpoint nor model directory", "check the path");
}

const char* kind_name(PathKind kind) {
  switch (kind) {
    case PathKind::run:
      return "run";
    case PathKind::store:
      return "store";
    case PathKind::checkpoint:
      return "checkpoint";
    case PathKind::model:
      return "model";
    case PathKind::hdf5:
      return "hdf5";
    case PathKind::safetensors:
      return "safetensors";
  }
  return "";
}

}  // namespace aerie::apps
