// SPDX-License-Identifier: Apache-2.0
// The export phase: the newest checkpoint as bf16 directories, re-read, checked name by name, and run on a few samples against
// the checkpoint.
#pragma once
#include <string>

#include "run.hpp"

namespace aerie::apps {

struct ExportFlags {
  std::string checkpoint;
};
/// One process (other ranks wait). Exit code 65 when an exported drafter does not choose exactly what the rounded checkpoint
/// chooses.
int export_phase(const ProgramContext& context, const ExportFlags& flags);

}  // namespace aerie::apps
