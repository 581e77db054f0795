// SPDX-License-Identifier: Apache-2.0
// The right to write a part, and what its owner does before writing: sync, read the records, check the end of the last commit.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "store_impl.hpp"

namespace aerie::io {

/// Throws RefusedError naming the holder when another process has it. Nothing with Locks::none.
std::optional<base::FileLock> lease_part(const std::filesystem::path& store, std::int64_t part, const std::string& holder,
                                         Locks locks);
/// A share of a lease that its owner has downgraded. Throws RefusedError as above.
std::optional<base::FileLock> join_part(const std::filesystem::path& store, std::int64_t part, Locks locks);
/// "job 7 host n01 pid 42" of this process.
std::string default_holder();

/// Renames a part that was set aside, so that it does not ask for its part to be made again any more. Nothing to do without one.
void use_up_set_aside(const std::filesystem::path& store, std::int64_t part);

struct OwnedPart {
  std::vector<SampleState> states;     // [n], after the check
  std::vector<std::int64_t> reopened;  // samples whose bytes did not hash to their record; pending again, durably
};
/// Syncs the part, reads its records and, at the end of each run of done ones, hashes up to one group of samples again.
OwnedPart take_over(const Store::Impl& store, std::int64_t part, std::int64_t group_bytes, std::int64_t group_samples,
                    const std::function<void(const std::string&)>& log);

}  // namespace aerie::io
