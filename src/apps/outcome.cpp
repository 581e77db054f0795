// SPDX-License-Identifier: Apache-2.0
#include "outcome.hpp"

#include <aerie/base/error.hpp>
#include <aerie/base/json.hpp>

#include <algorithm>
#include <filesystem>
#include <new>

#include <fmt/format.h>

namespace aerie::apps {
namespace {
std::string one_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}
}  // namespace

Outcome outcome_of(const std::function<int()>& f) {
  constexpr int bug = static_cast<int>(base::ExitCode::bug);
  try {
    return {f(), {}, {}};
  } catch (const base::Error& e) {
    return {static_cast<int>(e.code()), e.what(), e.hint()};
  } catch (const base::Json::exception& e) {
    return {static_cast<int>(base::ExitCode::data),
            fmt::format("a record holds a value that does not belong there: {}", e.what()),
            "ledger.jsonl, status.json or another JSON file of the run was edited or damaged"};
  } catch (const std::filesystem::filesystem_error& e) {
    return {static_cast<int>(base::ExitCode::io), e.what(), "check owner and permissions"};
  } catch (const std::bad_alloc&) {
    return {bug, "out of memory", "ask for more memory, or for fewer ranks a node"};
  } catch (const std::exception& e) {
    return {bug, e.what(), "report this message with the log"};
  } catch (...) {
    return {bug, "unknown exception", "report this message with the log"};
  }
}

std::string error_line(const Outcome& o, int rank, const std::string& host) {
  return fmt::format("error: {}{}{}", rank < 0 ? "" : fmt::format("rank {} {}: ", rank, host), one_line(o.what),
                     o.hint.empty() ? "" : fmt::format(" ({})", one_line(o.hint)));
}

}  // namespace aerie::apps
