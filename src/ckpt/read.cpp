// SPDX-License-Identifier: Apache-2.0
// Opening, choosing, reading and verifying checkpoints. Cheap checks (manifest hash, file list, sizes) decide what is loaded;
// every chunk's hash is checked while it is read.
#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/hash.hpp>
#include <aerie/ckpt/checkpoint.hpp>

#include <algorithm>

#include <fmt/format.h>

#include "manifest.hpp"
#include "names.hpp"

namespace aerie::ckpt {
namespace {
using base::DataError;
using base::Json;
namespace fs = std::filesystem;

Checkpoint read_manifest(const fs::path& dir) {
  Checkpoint out;
  out.path = dir;
  const auto path = dir / manifest_name;
  out.manifest = parse_manifest(base::read_text(path), path.string());
  out.step = out.manifest.at("step").get<std::int64_t>();
  out.manifest_hash = out.manifest.at("manifest_hash").get<std::string>();
  if (const auto entry = classify(dir); entry && entry->step != out.step)
    throw DataError(fmt::format("{}: is of step {}, its directory says {}", path.string(), out.step, entry->step),
                    "the directory was renamed or its manifest replaced");
  return out;
}

/// Reads one chunk; returns the fault instead of throwing it when its bytes are not what the manifest says.
std::string read_record(const fs::path& dir, const Json& record, std::span<std::byte> out) {
  const auto path = dir / record.at("file").get<std::string>();
  const auto what = fmt::format("{}: chunk {} of {}", path.string(), record.at("chunk").get<std::int64_t>(),
                                record.at("vector").get<std::string>());
  try {
    base::pread_full(base::open_read(path), out, record.at("offset").get<std::int64_t>());
  } catch (const DataError& e) {
    return what + ": " + e.what();
  }
  const auto found = base::xxh3_128_tagged(std::span<const std::byte>(out)), expected = record.at("xxh3_128").get<std::string>();
  return found == expected ? std::string{} : fmt::format("{}: hash is {}, the manifest says {}", what, found, expected);
}

/// Index of the vector's first record in `chunks`, and the vector's bytes.
std::pair<std::size_t, std::int64_t> locate(const Checkpoint& checkpoint, const std::string& vector) {
  std::size_t first = 0;
  for (const auto& v : checkpoint.manifest.at("vectors")) {
    const auto bytes = v.at("bytes").get<std::int64_t>();
    if (v.at("name").get_ref<const std::string&>() == vector) return {first, bytes};
    first += static_cast<std::size_t>(chunk_count(bytes));
  }
  throw base::RefusedError(fmt::format("{}: no vector named {}", checkpoint.path.string(), vector),
                           "the checkpoint was made by another program version");
}
}  // namespace

Checkpoint open(const fs::path& dir) {
  Checkpoint out = read_manifest(dir);
  bool some_missing = false;
  const auto faults = missing_or_cut_files(dir, out.manifest, some_missing);
  if (faults.empty()) return out;
  if (some_missing) throw base::MissingInputError(faults.front(), "the checkpoint is not whole");
  throw DataError(faults.front(), "the checkpoint is not whole");
}

std::vector<std::int64_t> list_steps(const fs::path& root) {
  std::vector<std::int64_t> out;
  for (const auto& entry : list_entries(root))
    if (entry.kind == EntryKind::published) out.push_back(entry.step);
  return out;
}

bool ever_had_checkpoint(const fs::path& root) {
  const auto entries = list_entries(root);
  return std::any_of(entries.begin(), entries.end(), [](const Entry& e) { return e.kind != EntryKind::temporary; });
}

std::filesystem::path set_aside(const std::filesystem::path& dir) { return rename_to_bad(dir); }

std::vector<std::string> list_set_aside(const fs::path& root) {
  std::vector<std::string> out;
  for (const auto& entry : list_entries(root))
    if (entry.kind == EntryKind::bad) out.push_back(entry.path.filename().string());
  return out;
}

std::optional<Checkpoint> latest(const fs::path& root, bool rename_bad, const std::function<void(const std::string&)>& log,
                                 const std::set<std::int64_t>& avoid) {
  auto entries = list_entries(root);
  std::stable_partition(entries.begin(), entries.end(), [&](const Entry& e) { return avoid.contains(e.step); });
  for (auto it = entries.rbegin(); it != entries.rend(); ++it) {
    if (it->kind != EntryKind::published) continue;
    try {
      return open(it->path);
    } catch (const base::Error& e) {
      // Damage is passed over; a read error or a newer format is not damage and must not cost the steps since an older
      // checkpoint.
      if (e.code() != base::ExitCode::data && e.code() != base::ExitCode::missing_input) throw;
      auto text = fmt::format("checkpoint {} is damaged: {}", it->path.filename().string(), e.what());
      if (rename_bad) text += fmt::format("; renamed to {}", rename_to_bad(it->path).filename().string());
      if (log) log(text);
    }
  }
  return std::nullopt;
}

void read_chunk(const Checkpoint& checkpoint, const std::string& vector, std::int64_t chunk, std::span<std::byte> out) {
  pass_fault_point("ckpt.read_chunk");
  if (checkpoint.before_chunk) checkpoint.before_chunk();
  const auto [first, bytes] = locate(checkpoint, vector);
  base::expect(chunk >= 0 && chunk < chunk_count(bytes), "the chunk asked for lies inside its vector");
  base::expect(static_cast<std::int64_t>(out.size()) == chunk_size(bytes, chunk), "the buffer has the chunk's size");
  const auto fault = read_record(checkpoint.path, checkpoint.manifest.at("chunks")[first + static_cast<std::size_t>(chunk)], out);
  if (!fault.empty()) throw DataError(fault, "`aerie verify` lists all damage; an older checkpoint is used where there is one");
}

std::vector<std::byte> read_vector(const Checkpoint& checkpoint, const std::string& vector) {
  const auto bytes = locate(checkpoint, vector).second;
  std::vector<std::byte> out(static_cast<std::size_t>(bytes));
  for (std::int64_t c = 0; c < chunk_count(bytes); ++c)
    read_chunk(checkpoint, vector, c,
               std::span(out).subspan(static_cast<std::size_t>(c * chunk_bytes), static_cast<std::size_t>(chunk_size(bytes, c))));
  return out;
}

std::string vector_sha256(const Checkpoint& checkpoint, const std::string& vector) {
  const auto bytes = locate(checkpoint, vector).second;
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(bytes, chunk_bytes)));
  base::Sha256 hash;
  for (std::int64_t c = 0; c < chunk_count(bytes); ++c) {
    const auto piece = std::span(buffer).first(static_cast<std::size_t>(chunk_size(bytes, c)));
    read_chunk(checkpoint, vector, c, piece);
    hash.update(piece);
  }
  return hash.finish_tagged();
}

std::vector<std::string> verify(const fs::path& dir) {
  std::error_code error;
  if (!fs::is_directory(dir, error)) {
    if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
      base::throw_errno(error.value(), "look at " + dir.string());
    throw base::MissingInputError(dir.string() + ": no such checkpoint", "check the path");
  }
  Checkpoint checkpoint;
  try {
    checkpoint = read_manifest(dir);
  } catch (const base::Error& e) {
    if (e.code() != base::ExitCode::data && e.code() != base::ExitCode::missing_input) throw;
    return {e.what()};
  }
  bool some_missing = false;
  auto faults = missing_or_cut_files(dir, checkpoint.manifest, some_missing);
  std::vector<std::byte> buffer(static_cast<std::size_t>(chunk_bytes));
  for (const auto& record : checkpoint.manifest.at("chunks")) {
    try {
      auto fault = read_record(dir, record, std::span(buffer).first(record.at("bytes").get<std::size_t>()));
      if (!fault.empty()) faults.push_back(std::move(fault));
    } catch (const base::MissingInputError&) {  // its file has a line already
    }
  }
  return faults;
}

}  // namespace aerie::ckpt
