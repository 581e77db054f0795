// SPDX-License-Identifier: Apache-2.0
// The third step of a recovery: reads the whole store and sets what is damaged back to be done again: bad samples alone, parts
// that are lost or damaged beyond their samples as a whole. Nothing that verifies is touched. A dry run is quick: it reads
// records and sizes, and says how long the checksums would take.
#pragma once
#include <aerie/config/config.hpp>
#include <aerie/io/store.hpp>
#include <aerie/report/ledger.hpp>

namespace aerie::apps {

struct MendOptions {
  bool dry_run = false, lost = false;  // lost: parts that are missing are lost for good
  int threads = 1;
};
struct Mended {
  io::Counts counts;          // as they were found
  std::int64_t verified = 0;  // done, and every byte hashes to what its record says; in a dry run: done by its record
  std::int64_t bad = 0;       // done by their records, and damaged: to be done again
  std::int64_t missing = 0;   // to do, the damaged ones included
  std::int64_t bytes_hashed = 0;
  base::Json evidence;
};
/// Prints what it finds. Holds nothing: the caller has the run's lock. Throws what cannot be mended (DataError, IoError,
/// MissingInputError) after everything else was.
Mended mend_store(const config::Config& config, report::Ledger& ledger, const MendOptions& options);

}  // namespace aerie::apps
