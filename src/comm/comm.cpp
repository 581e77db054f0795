// SPDX-License-Identifier: Apache-2.0
#include <aerie/comm/comm.hpp>

#include <aerie/base/log.hpp>

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <numeric>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

namespace aerie::comm {

void check(int code, std::source_location at) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int n = 0;
  MPI_Error_string(code, text, &n);
  throw base::PeerError("MPI: " + std::string(text, static_cast<std::size_t>(n)),
                        "a peer may have died; see the first error in the log", at);
}

struct Comm::Handle {
  MPI_Comm comm = MPI_COMM_NULL;
  bool owned = false;
  ~Handle() {
    if (!owned || comm == MPI_COMM_NULL) return;
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (!finalized && std::uncaught_exceptions() == 0) MPI_Comm_free(&comm);
  }
};

Comm Comm::own(MPI_Comm c) {
  Comm out = borrow(c);
  out.handle_->owned = true;
  return out;
}
Comm Comm::borrow(MPI_Comm c) {
  auto handle = std::make_shared<Handle>();
  handle->comm = c;
  check(MPI_Comm_set_errhandler(c, MPI_ERRORS_RETURN));
  int rank = 0, size = 1;
  check(MPI_Comm_rank(c, &rank));
  check(MPI_Comm_size(c, &size));
  return {std::move(handle), rank, size};
}
Comm Comm::solo() { return {nullptr, 0, 1}; }
MPI_Comm Comm::get() const noexcept { return handle_ ? handle_->comm : MPI_COMM_NULL; }

void Comm::barrier() const {
  if (handle_) check(MPI_Barrier(get()));
}
namespace {
std::int64_t reduce_one(MPI_Comm c, std::int64_t value, MPI_Op op) {
  check(MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, op, c));
  return value;
}
constexpr std::size_t chunk = std::size_t{1} << 27;  // elements a call: counts are ints in MPI
/// Sum of the counts of a gather, which goes in one call: it must fit an int. All ranks see the same counts and throw together.
std::size_t gathered(const std::vector<std::int64_t>& counts) {
  const auto all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  base::expect(all <= std::numeric_limits<int>::max(), "an all_gather stays below 2^31 elements");
  return static_cast<std::size_t>(all);
}
}  // namespace
std::int64_t Comm::sum(std::int64_t value) const { return handle_ ? reduce_one(get(), value, MPI_SUM) : value; }
std::int64_t Comm::max(std::int64_t value) const { return handle_ ? reduce_one(get(), value, MPI_MAX) : value; }
std::int64_t Comm::min(std::int64_t value) const { return handle_ ? reduce_one(get(), value, MPI_MIN) : value; }

void Comm::sum(std::span<std::int64_t> values) const {
  if (!handle_) return;
  for (std::size_t at = 0; at < values.size(); at += chunk)
    check(MPI_Allreduce(MPI_IN_PLACE, values.data() + at, static_cast<int>(std::min(chunk, values.size() - at)), MPI_INT64_T,
                        MPI_SUM, get()));
}
void Comm::broadcast(std::span<std::byte> bytes, int root) const {
  if (!handle_) return;
  for (std::size_t at = 0; at < bytes.size(); at += chunk)
    check(MPI_Bcast(bytes.data() + at, static_cast<int>(std::min(chunk, bytes.size() - at)), MPI_BYTE, root, get()));
}
std::int64_t Comm::broadcast(std::int64_t value, int root) const {
  if (handle_) check(MPI_Bcast(&value, 1, MPI_INT64_T, root, get()));
  return value;
}
std::string Comm::broadcast(const std::string& text, int root) const {
  if (!handle_) return text;
  std::string out(static_cast<std::size_t>(broadcast(static_cast<std::int64_t>(text.size()), root)), '\0');
  if (rank_ == root) out = text;
  broadcast(std::as_writable_bytes(std::span(out)), root);
  return out;
}
std::vector<std::int64_t> Comm::all_gather(std::int64_t mine) const {
  std::vector<std::int64_t> out(static_cast<std::size_t>(size_), mine);
  if (handle_) check(MPI_Allgather(&mine, 1, MPI_INT64_T, out.data(), 1, MPI_INT64_T, get()));
  return out;
}
std::vector<std::int64_t> Comm::all_gather(std::span<const std::int64_t> mine) const {
  if (!handle_) return {mine.begin(), mine.end()};
  const auto counts64 = all_gather(static_cast<std::int64_t>(mine.size()));
  std::vector<std::int64_t> out(gathered(counts64));
  std::vector<int> counts(counts64.begin(), counts64.end()), offsets(counts.size(), 0);
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), 0);
  check(MPI_Allgatherv(mine.data(), static_cast<int>(mine.size()), MPI_INT64_T, out.data(), counts.data(), offsets.data(),
                       MPI_INT64_T, get()));
  return out;
}
std::vector<std::string> Comm::all_gather(const std::string& mine) const {
  if (!handle_) return {mine};
  const auto sizes = all_gather(static_cast<std::int64_t>(mine.size()));
  std::string all(gathered(sizes), '\0');
  std::vector<int> counts(sizes.begin(), sizes.end()), offsets(counts.size(), 0);
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), 0);
  check(MPI_Allgatherv(mine.data(), static_cast<int>(mine.size()), MPI_CHAR, all.data(), counts.data(), offsets.data(), MPI_CHAR,
                       get()));
  std::vector<std::string> out;
  for (std::size_t r = 0; r < counts.size(); ++r)
    out.push_back(all.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(counts[r])));
  return out;
}
Comm Comm::split_by_host() const {
  if (!handle_) return solo();
  MPI_Comm c = MPI_COMM_NULL;
  check(MPI_Comm_split_type(get(), MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &c));
  return own(c);
}

Environment::Environment(int& argc, char**& argv) : exceptions_(std::uncaught_exceptions()) {
#ifdef __SANITIZE_ADDRESS__
  __lsan_disable();  // Open MPI leaves thousands of allocations at exit
#endif
  int provided = 0;
  check(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
#ifdef __SANITIZE_ADDRESS__
  __lsan_enable();
#endif
  base::expect(provided >= MPI_THREAD_FUNNELED, "MPI offers MPI_THREAD_FUNNELED");
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
}
Environment::~Environment() {
  if (std::uncaught_exceptions() > exceptions_) return;
  MPI_Finalize();
}
Comm Environment::world() const { return Comm::borrow(MPI_COMM_WORLD); }
void Environment::abort(int code) {
  MPI_Abort(MPI_COMM_WORLD, code);
  std::_Exit(code);
}
std::string Environment::library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int n = 0;
  MPI_Get_library_version(text, &n);
  return std::string(text, static_cast<std::size_t>(std::max(0, n)));
}

}  // namespace aerie::comm
