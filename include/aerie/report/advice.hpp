// SPDX-License-Identifier: Apache-2.0
// Commands that messages tell people to type: quoted so that they can be pasted as they are.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace aerie::report {

/// A word for the shell: quoted unless it is plain.
std::string shell_word(const std::string& text);

/// `aerie accept-missing RUN ... --reason TEXT` for these samples; an id of "" stands for one that cannot be named. Many, or one
/// that has no name, become --all-failed.
std::string accept_missing_command(const std::filesystem::path& run, const std::vector<std::string>& ids);

}  // namespace aerie::report
