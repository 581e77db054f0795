// SPDX-License-Identifier: Apache-2.0
// Commands that people copy from messages.
#pragma once
#include <string>

namespace aerie::apps {
/// `text` as one word of a POSIX shell.
std::string shell_word(const std::string& text);
}  // namespace aerie::apps
