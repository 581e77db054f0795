// SPDX-License-Identifier: Apache-2.0
#include "phase_inputs.hpp"

namespace aerie::apps {

std::string phase_inputs(const config::Config& config, report::Phase phase) {
  using enum report::Phase;
  // How often and how long to keep checkpoints, or how large parts are, changes no result: such keys alone redo nothing.
  config::Config c = config;
  const config::Config defaults;
  c.train.save_every_steps = defaults.train.save_every_steps;
  c.train.save_every_seconds = defaults.train.save_every_seconds;
  c.train.keep = defaults.train.keep;
  c.train.keep_every = defaults.train.keep_every;
  c.train.transport = defaults.train.transport;
  c.extract.part_bytes = defaults.extract.part_bytes;
  c.extract.write_mode = defaults.extract.write_mode;
  c.extract.commit_bytes = defaults.extract.commit_bytes;
  c.extract.commit_seconds = defaults.extract.commit_seconds;
  c.extract.batch_tokens = defaults.extract.batch_tokens;
  if (phase != eval && phase != bench) c.eval.every_steps = defaults.eval.every_steps, c.eval.chain = defaults.eval.chain;
  switch (phase) {
    case prepare:
      return config::sections_hash(c, {"target", "dataset", "eval"});
    case extract:
    case verify:
      return config::sections_hash(c, {"target", "dataset", "extract"});
    case vocab:
      c.draft = {};
      c.draft.vocab_size = config.draft.vocab_size;
      return config::sections_hash(c, {"dataset", "draft", "eval"});
    case train:
      return config::sections_hash(c, {"target", "dataset", "extract", "draft", "train"});
    case export_:
      return config::sections_hash(c, {"target", "dataset", "extract", "draft", "train", "export"});
    case eval:
    case bench:
      return config::sections_hash(c, {"target", "dataset", "extract", "draft", "train", "eval"});
    case preflight:
      break;
  }
  return config::config_hash(c);
}

}  // namespace aerie::apps
