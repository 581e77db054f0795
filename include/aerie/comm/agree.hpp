// SPDX-License-Identifier: Apache-2.0
// Agreement before collectives: a phase that can fail on one rank alone (open, validate, allocate) ends here, so that all
// ranks throw the same error or none does.
#pragma once
#include <optional>
#include <string_view>

#include <aerie/base/error.hpp>
#include <aerie/comm/comm.hpp>

namespace aerie::comm {

/// Collective over `comm`. If any rank brings an error, every rank throws an Error with the lowest failing rank's text,
/// hint and exit code, prefixed by phase, rank and host. One all-reduce when all is well.
void agree(const Comm& comm, std::string_view phase, const std::optional<base::Error>& mine);

/// Runs `f` and agrees on its outcome. Collective over `comm`; `f` itself must not be.
template <class F>
void agree_after(const Comm& comm, std::string_view phase, F&& f) {
  agree(comm, phase, base::capture(std::forward<F>(f)));
}

}  // namespace aerie::comm
