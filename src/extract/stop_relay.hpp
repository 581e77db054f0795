// SPDX-License-Identifier: Apache-2.0
// Ranks extract independently, with no collective to carry a stop request. A rank that sees one tells the others by an empty
// message; everybody probes for it between batches.
#pragma once
#include <aerie/comm/comm.hpp>
#include <aerie/stop/stop_token.hpp>

namespace aerie::extract {

class StopRelay {
 public:
  StopRelay(const comm::Comm& world, stop::StopToken& stop);
  /// True once any rank has seen a stop request. Local.
  bool stopped();
  /// As if a stop had been requested here: this rank cannot go on. Local.
  void stop();
  /// Receives what is still on its way. Collective; after the last stopped().
  void finish();

 private:
  void tell_others();
  comm::Comm channel_;  // a duplicate: messages here never meet others
  stop::StopToken& stop_;
  bool stopped_ = false, told_ = false;
  std::int64_t received_ = 0;
};

}  // namespace aerie::extract
