// SPDX-License-Identifier: Apache-2.0
#include "manifest.hpp"

#include <aerie/base/error.hpp>
#include <aerie/base/hash.hpp>

#include <cerrno>
#include <map>
#include <set>

#include <fmt/format.h>
#include <sys/stat.h>

namespace aerie::ckpt {
namespace {
using base::DataError;
using base::Json;

void demand(bool holds, const std::string& origin, const std::string& what) {
  if (!holds) throw DataError(origin + ": " + what, "the checkpoint is damaged; an older one is used where there is one");
}
std::int64_t whole_number(const Json& object, const char* key, const std::string& origin) {
  const auto it = object.find(key);
  demand(it != object.end() && it->is_number_integer(), origin, fmt::format("\"{}\" is not a whole number", key));
  const auto value = it->get<std::int64_t>();
  demand(value >= 0, origin, fmt::format("\"{}\" is negative", key));
  return value;
}
std::string text_of(const Json& object, const char* key, const std::string& origin) {
  const auto it = object.find(key);
  demand(it != object.end() && it->is_string(), origin, fmt::format("\"{}\" is not a text", key));
  return it->get<std::string>();
}
const Json& list_of(const Json& object, const char* key, const std::string& origin) {
  const auto it = object.find(key);
  demand(it != object.end() && it->is_array(), origin, fmt::format("\"{}\" is not a list", key));
  for (const auto& item : *it) demand(item.is_object(), origin, fmt::format("\"{}\" holds something other than objects", key));
  return *it;
}

std::map<std::string, std::int64_t> check_files(const Json& manifest, const std::string& origin) {
  std::map<std::string, std::int64_t> sizes;
  for (const auto& file : list_of(manifest, "files", origin)) {
    const auto name = text_of(file, "name", origin);
    // A name is one component: a manifest must not reach outside its directory.
    demand(!name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
               name.find('\0') == std::string::npos,
           origin, fmt::format("bad file name \"{}\"", name));
    demand(sizes.emplace(name, whole_number(file, "bytes", origin)).second, origin, "file " + name + " is listed twice");
  }
  return sizes;
}

void check_chunks(const Json& manifest, const std::map<std::string, std::int64_t>& file_bytes, const std::string& origin) {
  const Json& chunks = list_of(manifest, "chunks", origin);
  std::set<std::string> names;
  std::size_t next = 0;
  for (const auto& vector : list_of(manifest, "vectors", origin)) {
    const auto name = text_of(vector, "name", origin);
    text_of(vector, "dtype", origin);
    const auto bytes = whole_number(vector, "bytes", origin);
    demand(names.insert(name).second, origin, "vector " + name + " is listed twice");
    const auto n = bytes / chunk_bytes + (bytes % chunk_bytes != 0 ? 1 : 0);
    demand(n <= static_cast<std::int64_t>(chunks.size() - next), origin, "chunks of vector " + name + " are missing");
    for (std::int64_t c = 0; c < n; ++c, ++next) {
      const Json& record = chunks[next];
      const auto what = fmt::format("chunk {} of {}", c, name);
      demand(text_of(record, "vector", origin) == name && whole_number(record, "chunk", origin) == c, origin,
             what + " is not where it should be listed");
      const auto size = whole_number(record, "bytes", origin), offset = whole_number(record, "offset", origin);
      demand(size == chunk_size(bytes, c), origin, what + " has a wrong size");
      const auto file = file_bytes.find(text_of(record, "file", origin));
      demand(file != file_bytes.end(), origin, what + " is in a file that is not listed");
      demand(offset <= file->second && size <= file->second - offset, origin, what + " reaches past the end of its file");
      text_of(record, "xxh3_128", origin);
    }
  }
  demand(next == chunks.size(), origin, "there are chunks of no vector");
}
}  // namespace

std::string hash_of_manifest(const Json& manifest) {
  Json bare = manifest;
  bare.erase("manifest_hash");
  return base::sha256_tagged(base::canonical(bare));
}

Json parse_manifest(std::string_view text, const std::string& origin) {
  Json manifest = base::parse_json(text, origin);
  demand(manifest.is_object(), origin, "not an object");
  demand(text_of(manifest, "schema", origin) == manifest_schema, origin, "not the manifest of a checkpoint");
  std::string hash;
  try {
    hash = hash_of_manifest(manifest);
  } catch (const Json::exception& e) {  // text that is not UTF-8
    demand(false, origin, e.what());
  }
  demand(text_of(manifest, "manifest_hash", origin) == hash, origin, "does not hash to its own \"manifest_hash\"");
  const auto version = whole_number(manifest, "version", origin);
  if (version != manifest_version)
    throw base::RefusedError(fmt::format("{}: checkpoint format {}, this program knows {}", origin, version, manifest_version),
                             "use the version of aerie that wrote it");
  whole_number(manifest, "step", origin);
  demand(manifest.contains("identity") && manifest.contains("position"), origin, "identity or position is missing");
  check_chunks(manifest, check_files(manifest, origin), origin);
  return manifest;
}

std::vector<std::string> missing_or_cut_files(const std::filesystem::path& dir, const Json& manifest, bool& some_missing) {
  std::vector<std::string> out;
  for (const auto& file : manifest.at("files")) {
    const auto path = dir / file.at("name").get<std::string>();
    struct stat st {};
    if (::stat(path.c_str(), &st) != 0) {
      if (errno != ENOENT && errno != ENOTDIR) base::throw_errno(errno, "stat " + path.string());
      out.push_back(path.string() + ": no such file");
      some_missing = true;
    } else if (const auto wanted = file.at("bytes").get<std::int64_t>(); st.st_size != wanted) {
      out.push_back(fmt::format("{}: {} bytes, its manifest says {}", path.string(), st.st_size, wanted));
    }
  }
  return out;
}

}  // namespace aerie::ckpt
