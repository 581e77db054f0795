// SPDX-License-Identifier: Apache-2.0
// `aerie import`: tokenised JSON lines to a dataset file.
#include <aerie/base/error.hpp>
#include <aerie/dataset/dataset.hpp>
#include <aerie/interchange/model_dir.hpp>
#include <aerie/interchange/target_config.hpp>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "command_line.hpp"
#include "commands.hpp"

namespace aerie::apps {

int command_import(int argc, char** argv) {
  CLI::App app("Makes a dataset of JSON lines {\"id\", \"input_ids\", \"loss_mask\"}.", "aerie import");
  std::string file, out, target, overlength = "truncate";
  dataset::ImportOptions options;
  bool json = false;
  app.add_option("FILE", file, "JSON lines")->required();
  app.add_option("--out", out, "the dataset file to write")->required();
  app.add_option("--max-length", options.max_length, "tokens a sample may have; 0: any number");
  app.add_option("--overlength", overlength, "truncate | skip | fail: what longer samples get");
  app.add_option("--vocab-size", options.vocab_size, "ids must be below this; 0: the target's, or not checked");
  app.add_option("--target", target, "model directory: its tokenizer's hash is recorded, its vocabulary checked");
  app.add_option("--limit", options.limit, "samples to take; 0: all");
  app.add_flag("--json", json, "print the summary as JSON");
  if (!parse_command_line(app, argc, argv)) return 0;
  options.overlength = dataset::overlength_from_name(overlength);
  if (options.max_length < 0 || options.vocab_size < 0 || options.limit < 0)
    throw base::ConfigError("--max-length, --vocab-size and --limit must not be negative");
  if (!target.empty()) {
    const auto model = interchange::ModelDirectory::open(target);
    options.tokenizer_hash = model.tokenizer_hash();
    if (options.vocab_size == 0) options.vocab_size = interchange::read_target_config(model).vocab_size;
  }
  const auto s = dataset::import_jsonl(file, out, options);
  base::Json rejected = base::Json::object();
  std::string text;
  for (std::size_t r = 1; r < s.rejected.size(); ++r) {
    if (s.rejected[r] == 0) continue;
    const auto name = std::string(io::reason_name(static_cast<io::FailReason>(r)));
    rejected[name] = s.rejected[r];
    text += fmt::format(", {} {}", s.rejected[r], name);
  }
  if (json)
    print(base::Json{{"out", out},
                     {"samples", s.samples},
                     {"tokens", s.tokens},
                     {"loss_tokens", s.loss_tokens},
                     {"truncated", s.truncated},
                     {"rejected", rejected}}
              .dump());
  else
    print(fmt::format("{}: {} samples, {} tokens, {} with loss, {} truncated{}", out, s.samples, s.tokens, s.loss_tokens,
                      s.truncated, text));
  return 0;
}

}  // namespace aerie::apps
