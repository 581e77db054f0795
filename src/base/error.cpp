// SPDX-License-Identifier: Apache-2.0
#include <aerie/base/error.hpp>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

namespace aerie::base {

ChecksumError::ChecksumError(const std::string& file_, std::int64_t sample_, std::uint64_t expected_, std::uint64_t found_,
                             std::source_location at)
    : DataError(fmt::format("{}: sample {}: checksum is {:016x}, its record says {:016x}", file_, sample_, found_, expected_),
                "run `aerie verify --full` on the store to find all damaged samples, then `aerie recover`", at),
      file(file_),
      sample(sample_),
      expected(expected_),
      found(found_) {}

Bug::Bug(const std::string& claim, std::source_location at)
    : std::logic_error(fmt::format("{}:{}: broken promise: {}", at.file_name(), at.line(), claim)), at_(at) {}

void throw_errno(int errno_value, const std::string& what, std::source_location at) {
  std::string hint;
  switch (errno_value) {
    case ENOSPC:
      hint = "the file system is full: free space, or put the run directory elsewhere";
      break;
    case EDQUOT:
      hint = "the disk quota is used up";
      break;
    case EROFS:
      hint = "the file system is read-only";
      break;
    case EACCES:
    case EPERM:
      hint = "check owner and permissions";
      break;
    default:
      break;
  }
  throw IoError(fmt::format("{}: {}", what, std::strerror(errno_value)), hint, at);
}

}  // namespace aerie::base
