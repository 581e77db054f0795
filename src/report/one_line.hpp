// SPDX-License-Identifier: Apache-2.0
// Free-form JSON (evidence, details) as a line that people can read.
#pragma once
#include <string>

#include <aerie/base/json.hpp>

namespace aerie::report {

/// "samples 300, shards 4": hashes are cut to what tells them apart, long lists to their beginning, and it stays one line.
std::string one_line(const base::Json& value);

/// The text of a key; empty when it is not there or no text.
std::string text_of(const base::Json& object, const char* key);

}  // namespace aerie::report
