// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <aerie/report/advice.hpp>

namespace aerie::apps {
using report::shell_word;
}  // namespace aerie::apps
