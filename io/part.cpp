// SPDX-License-Identifier: Apache-2.0
// Looking at a part: nothing in here writes.
#include "part.hpp"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <aerie/base/error.hpp>
#include <aerie/base/fault.hpp>
#include <aerie/base/hash.hpp>

namespace aerie::io {
namespace {

using base::DataError;
constexpr std::int64_t piece = std::int64_t{256} << 10;  // is hashed while it is in the processor's cache
constexpr std::int64_t ahead = std::int64_t{32} << 20;   // the kernel reads that far ahead, in steps of a quarter

void will_need(const base::File& file, std::int64_t offset, std::int64_t bytes) {
  if (bytes > 0) ::posix_fadvise(file.fd(), offset, bytes, POSIX_FADV_WILLNEED);  // advice: an error costs time only
}

/// Calls use(bytes read) for the range, piece by piece, each read to where `place(position)` points.
template <class Place, class Use>
void read_pieces(const base::File& file, const Extent& range, Place&& place, Use&& use) {
  constexpr auto step = ahead / 4;
  for (std::int64_t at = 0; at < range.bytes; at += piece) {
    if (at % step == 0 && at + ahead < range.bytes)
      will_need(file, range.offset + at + ahead, std::min(step, range.bytes - at - ahead));
    const std::span<std::byte> view(place(at), static_cast<std::size_t>(std::min(piece, range.bytes - at)));
    base::pread_full(file, view, range.offset + at);
    use(view);
  }
}

template <class Look>
void hash_range(const base::File& file, const Extent& range, base::Xxh3& hash, std::vector<std::byte>& buffer, Look&& look) {
  buffer.resize(static_cast<std::size_t>(piece));
  read_pieces(
      file, range, [&](std::int64_t) { return buffer.data(); },
      [&](std::span<const std::byte> bytes) {
        hash.update(bytes);
        look(bytes);
      });
}

std::string show(const AttributeValue& value) {
  if (const auto* i = std::get_if<std::int64_t>(&value)) return std::to_string(*i);
  if (const auto* d = std::get_if<double>(&value)) return fmt::format("{}", *d);
  if (const auto* s = std::get_if<std::string>(&value)) return "'" + *s + "'";
  return fmt::format("[{}]", fmt::join(std::get<std::vector<std::int64_t>>(value), ", "));
}

}  // namespace

std::vector<Extent> sample_extents(const PartLayout& layout, std::int64_t j) {
  const auto row = layout.row_offset[static_cast<std::size_t>(j)], rows = layout.rows(j);
  std::vector<Extent> out;
  out.reserve(layout.data.size());
  for (const auto& d : layout.data) out.push_back({d.offset + row * d.row_bytes, rows * d.row_bytes});
  return out;
}

PartLayout check_part(const std::filesystem::path& store, const Manifest& m, std::int64_t index,
                      const std::function<void(const std::string&)>& problem) {
  const auto& part = m.parts.at(static_cast<std::size_t>(index));
  auto path = store / part.file;
  if (part.meta_xxh3.empty()) path += ".tmp";  // being created
  const auto file = ContiguousFile::open(path);
  if (const auto size = base::file_size(file.file()); size != part.bytes)
    problem(fmt::format("is {} bytes long, the manifest says {}", size, part.bytes));
  for (const auto& [name, expected] : part_attributes(m, index)) {
    const auto it = file.attributes().find(name);
    if (it == file.attributes().end())
      problem(fmt::format("attribute {} is missing", name));
    else if (it->second != expected)
      problem(fmt::format("attribute {} is {}, the manifest says {}", name, show(it->second), show(expected)));
  }

  PartLayout layout;
  const auto locate = [&](const char* name, ElementType type, std::int64_t element_bytes,
                          const std::vector<std::int64_t>& shape) {
    const auto& d = file.dataset(name);
    if (d.type != type || d.element_bytes != element_bytes)
      throw DataError(fmt::format("{}: {}: wrong element type", path.string(), name));
    if (d.shape != shape)
      throw DataError(fmt::format("{}: {}: shape is [{}], the manifest says [{}]", path.string(), name, fmt::join(d.shape, ", "),
                                  fmt::join(shape, ", ")));
    if (d.offset % 4096 != 0) problem(fmt::format("{}: starts at {}, which is not a multiple of 4096", name, d.offset));
    return d.offset;
  };
  const auto rows_of = row_datasets(m.identity);
  for (const auto& d : rows_of) {
    std::vector<std::int64_t> shape{part.tokens};
    if (d.width > 0) shape.push_back(d.width);
    layout.data.push_back({locate(d.name, d.type, d.element_bytes, shape), d.row_bytes()});
  }
  layout.state = locate("state", ElementType::record, 16, {part.n});
  locate("row_offset", ElementType::i64, 8, {part.n + 1});
  locate("sample_id", ElementType::i64, 8, {part.n});
  if (file.datasets().size() != rows_of.size() + 3) problem("holds datasets that do not belong there");

  layout.row_offset = file.read_all<std::int64_t>("row_offset");
  const auto& rows = layout.row_offset;
  if (rows.front() != 0 || rows.back() != part.tokens || !std::is_sorted(rows.begin(), rows.end()))
    throw DataError(path.string() + ": row_offset does not rise from 0 to the part's token count", "the index is damaged");
  const auto ids = file.read_all<std::int64_t>("sample_id");
  for (std::int64_t j = 0; j < part.n; ++j)
    if (const auto id = ids[static_cast<std::size_t>(j)]; id != part.first + j) {
      problem(fmt::format("sample_id[{}] is {} in place of {}", j, id, part.first + j));
      break;
    }
  return layout;
}

std::string metadata_hash(const base::File& file, const PartLayout& l, std::int64_t tokens, std::int64_t n) {
  std::vector<Extent> holes{{l.state, n * 16}};
  for (const auto& d : l.data) holes.push_back({d.offset, tokens * d.row_bytes});
  std::sort(holes.begin(), holes.end(), [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  base::Xxh3 hash;
  std::vector<std::byte> buffer;
  const auto ignore = [](std::span<const std::byte>) {};
  std::int64_t at = 0;
  for (const auto& hole : holes) {
    if (hole.bytes == 0) continue;
    if (hole.offset < at) throw DataError(file.path().string() + ": datasets overlap", "the file is damaged");
    hash_range(file, {at, hole.offset - at}, hash, buffer, ignore);
    at = hole.offset + hole.bytes;
  }
  hash_range(file, {at, base::file_size(file) - at}, hash, buffer, ignore);
  return hash.digest128();
}

std::vector<Record> read_records(const base::File& file, const PartLayout& layout, std::int64_t n) {
  std::vector<Record> records(static_cast<std::size_t>(n));
  base::pread_full(file, std::as_writable_bytes(std::span(records)), layout.state);
  return records;
}

std::uint64_t stored_hash(const base::File& file, const PartLayout& layout, std::int64_t j,
                          const std::function<void(std::size_t, std::span<const std::byte>)>& look) {
  base::Xxh3 hash;
  std::vector<std::byte> buffer;
  const auto extents = sample_extents(layout, j);
  for (std::size_t d = 0; d < extents.size(); ++d)
    hash_range(file, extents[d], hash, buffer, [&](std::span<const std::byte> bytes) {
      if (look) look(d, bytes);
    });
  return hash.digest64();
}

void read_ahead(const base::File& file, std::span<const Extent> extents) {
  for (const auto& e : extents) will_need(file, e.offset, std::min(e.bytes, ahead));
}

void read_and_hash(const base::File& file, const Extent& range, std::byte* out, base::Xxh3& hash) {
  read_pieces(
      file, range, [&](std::int64_t at) { return out + at; }, [&](std::span<const std::byte> bytes) { hash.update(bytes); });
}

void sync_before_trust(const base::File& file) {
  if (const int e = base::fault_point("store.sync_before_trust")) base::throw_errno(e, "fdatasync " + file.path().string());
  if (::fdatasync(file.fd()) != 0 && errno != EROFS && errno != EINVAL)
    base::throw_errno(errno, "fdatasync " + file.path().string());
}

}  // namespace aerie::io
