// SPDX-License-Identifier: Apache-2.0
// Reading and writing whole safetensors files.
#include <aerie/interchange/safetensors.hpp>

#include <array>
#include <set>

#include <aerie/base/error.hpp>
#include <aerie/base/json.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace aerie::interchange {
namespace {
constexpr std::size_t data_alignment = 64;

std::uint64_t header_length(std::span<const std::byte> eight) {
  std::uint64_t n = 0;
  for (int i = 7; i >= 0; --i) n = n << 8 | std::to_integer<std::uint64_t>(eight[static_cast<std::size_t>(i)]);
  return n;
}

/// Length prefix and header, padded with spaces so that the data start at a multiple of 64.
std::string make_head(std::span<const TensorToWrite> tensors, const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();  // keeps the given order
  if (!metadata.empty()) json["__metadata__"] = metadata;
  std::int64_t at = 0;
  std::set<std::string> names;
  for (const auto& t : tensors) {
    if (t.name == "__metadata__" || !names.insert(t.name).second) throw base::Bug("write_safetensors: name taken: " + t.name);
    auto size = static_cast<std::int64_t>(dtype_size(t.dtype));
    for (const auto d : t.shape)
      if (d < 0 || __builtin_mul_overflow(size, d, &size)) throw base::Bug("write_safetensors: impossible shape: " + t.name);
    if (size != static_cast<std::int64_t>(t.bytes.size()))
      throw base::Bug(fmt::format("write_safetensors: {} has {} bytes, its shape needs {}", t.name, t.bytes.size(), size));
    json[t.name] = {{"dtype", dtype_name(t.dtype)}, {"shape", t.shape}, {"data_offsets", {at, at + size}}};
    at += size;
  }
  std::string text = json.dump();
  text.append((data_alignment - (8 + text.size()) % data_alignment) % data_alignment, ' ');
  std::string head(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) head[i] = static_cast<char>(text.size() >> (8 * i) & 0xffU);
  return head + text;
}
}  // namespace

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile out;
  out.file_ = base::open_read(path);
  const auto size = base::file_size(out.file_);
  std::vector<std::byte> head(static_cast<std::size_t>(std::min<std::int64_t>(size, 8)));
  base::pread_full(out.file_, head, 0);
  if (head.size() == 8) {
    // A wrong length stays at 8 bytes here; the parser says what is wrong with it.
    const auto length = header_length(head);
    if (length <= static_cast<std::uint64_t>(size - 8) && length <= 100'000'000) {
      head.resize(8 + length);
      base::pread_full(out.file_, std::span(head).subspan(8), 8);
    }
  }
  out.header_ = parse_safetensors_header(head, size, path.string());
  return out;
}

const TensorInfo& SafetensorsFile::info(const std::string& name) const {
  const auto it = header_.tensors.find(name);
  if (it == header_.tensors.end()) throw base::DataError(fmt::format("{}: no tensor '{}'", path().string(), name));
  return it->second;
}

void SafetensorsFile::read(const std::string& name, std::span<std::byte> out) const {
  base::expect(static_cast<std::int64_t>(out.size()) == info(name).bytes(), "SafetensorsFile::read: out has the tensor's size");
  read_at(name, 0, out);
}

std::vector<std::byte> SafetensorsFile::read(const std::string& name) const {
  std::vector<std::byte> out(static_cast<std::size_t>(info(name).bytes()));
  read_at(name, 0, out);
  return out;
}

void SafetensorsFile::read_at(const std::string& name, std::int64_t offset, std::span<std::byte> out) const {
  const auto& t = info(name);
  base::expect(offset >= 0 && offset <= t.bytes() && static_cast<std::int64_t>(out.size()) <= t.bytes() - offset,
               "SafetensorsFile::read_at: the range lies inside the tensor");
  base::pread_full(file_, out, t.begin + offset);
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata) {
  const std::string head = make_head(tensors, metadata);
  const auto tmp = std::filesystem::path(path.string() + fmt::format(".tmp.{}", ::getpid()));
  try {
    auto file = base::open_file(tmp, O_WRONLY | O_CREAT | O_TRUNC);
    base::write_full(file, std::as_bytes(std::span(head)));
    for (const auto& t : tensors) base::write_full(file, t.bytes);
    base::fsync_file(file);
    file.close();
    base::rename_durable(tmp, path);
  } catch (...) {
    ::unlink(tmp.c_str());
    throw;
  }
}

}  // namespace aerie::interchange
