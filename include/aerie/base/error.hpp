// SPDX-License-Identifier: Apache-2.0
// Errors. `Error`: the world is not as needed (file, input, peer). `Bug`: our own code broke a promise.
// Every error carries what went wrong, a hint (the next thing to do), where in the source, and the exit code.
#pragma once
#include <cstdint>
#include <optional>
#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>

#include <aerie/base/exit_codes.hpp>

namespace aerie::base {

/// The world is not as needed. `what()` names file, line or sample; `hint()` says what to do.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& what, std::string hint = {}, std::source_location at = std::source_location::current())
      : std::runtime_error(what), code_(code), hint_(std::move(hint)), at_(at) {}
  ExitCode code() const noexcept { return code_; }
  const std::string& hint() const noexcept { return hint_; }
  const std::source_location& where() const noexcept { return at_; }

 private:
  ExitCode code_;
  std::string hint_;
  std::source_location at_;
};

// One class per documented code, so that callers can catch what they can handle.
#define AERIE_DEFINE_ERROR(name, exit_code)                                                                                  \
  struct name : Error {                                                                                                      \
    explicit name(const std::string& what, std::string hint = {}, std::source_location at = std::source_location::current()) \
        : Error(exit_code, what, std::move(hint), at) {}                                                                     \
  }
AERIE_DEFINE_ERROR(ConfigError, ExitCode::usage);
AERIE_DEFINE_ERROR(DataError, ExitCode::data);
AERIE_DEFINE_ERROR(MissingInputError, ExitCode::missing_input);
AERIE_DEFINE_ERROR(IoError, ExitCode::io);
AERIE_DEFINE_ERROR(CheckpointError, ExitCode::io);
AERIE_DEFINE_ERROR(PeerError, ExitCode::peer);
AERIE_DEFINE_ERROR(RefusedError, ExitCode::refused);
AERIE_DEFINE_ERROR(NoProgressError, ExitCode::no_progress);
/// Not a failure: a stop was asked for and everything is safe on disk.
AERIE_DEFINE_ERROR(StopRequested, ExitCode::stopped);
#undef AERIE_DEFINE_ERROR

/// A stored byte range does not hash to what its record says. Exit code 65.
struct ChecksumError : DataError {
  ChecksumError(const std::string& file, std::int64_t sample, std::uint64_t expected, std::uint64_t found,
                std::source_location at = std::source_location::current());
  std::string file;
  std::int64_t sample;
  std::uint64_t expected, found;
};

/// Our own code broke a promise. Exit code 70.
class Bug : public std::logic_error {
 public:
  explicit Bug(const std::string& claim, std::source_location at = std::source_location::current());
  const std::source_location& where() const noexcept { return at_; }

 private:
  std::source_location at_;
};

/// Throws Bug unless `holds`. Always on, in release builds too.
inline void expect(bool holds, const char* claim, std::source_location at = std::source_location::current()) {
  if (!holds) throw Bug(claim, at);
}

/// Throws IoError with the text of `errno_value`, `what` (which should name the operation and the file) in front.
[[noreturn]] void throw_errno(int errno_value, const std::string& what,
                              std::source_location at = std::source_location::current());

/// Runs `f`; returns the Error it threw, or nothing. A Bug or any other exception passes through.
/// For comm::agree: a phase that can fail on one rank alone ends in an agreement before the next collective.
template <class F>
std::optional<Error> capture(F&& f) {
  try {
    std::forward<F>(f)();
  } catch (const Error& e) {
    return e;
  }
  return std::nullopt;
}

}  // namespace aerie::base
