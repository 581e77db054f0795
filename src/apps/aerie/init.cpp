// SPDX-License-Identifier: Apache-2.0
// `aerie init`: checks what is given, then writes a commented aerie.toml with the values that the target implies.
#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/interchange/model_dir.hpp>
#include <aerie/interchange/target_config.hpp>
#include <aerie/report/ledger.hpp>

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "command_line.hpp"
#include "commands.hpp"
#include "inputs.hpp"

namespace aerie::apps {
namespace {
namespace fs = std::filesystem;

bool is_gzip(std::string_view head) { return head.size() >= 2 && head[0] == '\x1f' && head[1] == '\x8b'; }

/// There, a file, not empty, and its first line begins as JSON does. The lines themselves are checked by aerie-prepare.
void check_conversations(const fs::path& path) {
  if (fs::is_directory(path)) throw base::DataError(path.string() + ": is a directory", "give a .jsonl file");
  const auto file = base::open_read(path);
  std::string head(static_cast<std::size_t>(std::min<std::int64_t>(4096, base::file_size(file))), '\0');
  base::pread_full(file, std::as_writable_bytes(std::span(head)), 0);
  if (is_gzip(head)) return;
  const auto first = head.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) throw base::DataError(path.string() + ": is empty", "give a file with one conversation a line");
  if (head[first] != '{' && head[first] != '[') {
    const auto line = 1 + std::count(head.begin(), head.begin() + static_cast<std::ptrdiff_t>(first), '\n');
    throw base::DataError(fmt::format("{}:{}: is not JSON", path.string(), line),
                          "give a file with one conversation, a JSON object, a line");
  }
}

/// Part size for a store whose size is not known yet: a token is about 4 bytes of text (gzip holds about 4 times its size), 4H
/// bf16 values and 5 bytes of store. Aimed at 32 parts, so that 16 remain when the guess is twice too high; 8 MiB to 16 GiB.
std::int64_t guess_part_bytes(const config::Config& c, std::int64_t hidden_size) {
  double text = 0;
  const auto file = base::open_read(c.dataset.conversations);
  std::string head(static_cast<std::size_t>(std::min<std::int64_t>(2, base::file_size(file))), '\0');
  base::pread_full(file, std::as_writable_bytes(std::span(head)), 0);
  text = static_cast<double>(base::file_size(file)) * (is_gzip(head) ? 4 : 1);
  const double store = text / 4 * (4.0 * static_cast<double>(hidden_size) * (c.extract.dtype == "fp8" ? 1 : 2) + 5);
  constexpr std::int64_t mib = std::int64_t{1} << 20;
  return std::clamp(static_cast<std::int64_t>(store / 32) / mib * mib, 8 * mib, std::int64_t{16} << 30);
}

void imply_from_target(config::Config& c, const interchange::TargetConfig& target) {
  const auto layers = interchange::default_aux_layers(target.num_layers);
  c.extract.layers.assign(layers.begin(), layers.end());
  c.draft.hidden_size = target.hidden_size;
  c.draft.intermediate_size = target.intermediate_size;
  c.draft.heads = target.num_heads;
  c.draft.kv_heads = target.num_kv_heads;
  c.draft.head_dim = target.head_dim;
  c.draft.rms_norm_eps = target.rms_norm_eps;
  c.draft.vocab_size = std::min(c.draft.vocab_size, target.vocab_size);
  if (target.max_position_embeddings > 0) c.dataset.max_length = std::min(c.dataset.max_length, target.max_position_embeddings);
}

void refuse_existing(const fs::path& run) {
  for (const char* name : {"aerie.toml", "ledger.jsonl", "store", "checkpoints"})
    if (fs::exists(run / name))
      throw base::RefusedError(fmt::format("{} is a run already: {} exists", run.string(), (run / name).string()),
                               "choose another directory, or edit its aerie.toml");
  if (fs::exists(run) && !fs::is_directory(run))
    throw base::RefusedError(run.string() + " is a file", "choose another directory");
}
}  // namespace

int command_init(int argc, char** argv) {
  CLI::App app("Makes a run directory: checks the inputs and writes a commented aerie.toml.", "aerie init");
  std::string run, target, conversations, eval_conversations;
  std::vector<std::string> settings;
  app.add_option("RUN,--run", run, "the run directory to make")->required();
  app.add_option("--target", target, "the target model's directory")->required();
  app.add_option("--conversations", conversations, "conversations, .jsonl or .jsonl.gz")->required();
  app.add_option("--eval-conversations", eval_conversations,
                 "conversations for evaluation; without: 1 % of the samples is held out");
  app.add_option("--set", settings, "section.key=value, as often as needed")->allow_extra_args(false);
  if (!parse_command_line(app, argc, argv)) return 0;
  refuse_existing(run);

  config::Config c;
  c.run_dir = run;
  const auto model = interchange::ModelDirectory::open(target);
  if (!fs::exists(fs::path(target) / "tokenizer.json"))
    throw base::MissingInputError((fs::path(target) / "tokenizer.json").string() + ": no such file",
                                  "aerie-prepare needs the target's tokenizer");
  const auto shape = interchange::read_target_config(model);
  imply_from_target(c, shape);
  c.target.path = fs::canonical(target);
  check_conversations(conversations);
  c.dataset.conversations = fs::canonical(conversations);
  if (!eval_conversations.empty()) {
    check_conversations(eval_conversations);
    c.eval.conversations = fs::canonical(eval_conversations);
  }
  c.extract.part_bytes = guess_part_bytes(c, shape.hidden_size);
  for (const auto& s : settings) config::set_key(c, s);
  config::validate(c);
  check_paths(c);
  if (c.draft.vocab_size > shape.vocab_size)
    throw base::ConfigError(
        fmt::format("draft.vocab_size is {}, but the target has {} tokens", c.draft.vocab_size, shape.vocab_size));
  for (const auto layer : c.extract.layers)
    if (layer > shape.num_layers)
      throw base::ConfigError(fmt::format("extract.layers holds {}, but the target has {} layers", layer, shape.num_layers));

  std::error_code failed;
  fs::create_directories(run, failed);
  if (failed) throw base::IoError(fmt::format("make {}: {}", run, failed.message()), "check the path and its permissions");
  report::Ledger(c.run_dir).evidence("init", {{"target", c.target.path.string()},
                                              {"target_config_hash", model.config_hash()},
                                              {"conversations", c.dataset.conversations.string()},
                                              {"conversations_bytes", fs::file_size(c.dataset.conversations)}});
  base::publish_text(c.run_dir / "aerie.toml", config::commented_toml(c));  // last: a run is there when this is
  print(fmt::format("{}: target {} ({} layers, width {}), layers {}, draft vocabulary {}\nnext: aerie run {}", run,
                    shape.model_type, shape.num_layers, shape.hidden_size, fmt::join(c.extract.layers, ", "), c.draft.vocab_size,
                    shell_word(run)));
  return 0;
}

}  // namespace aerie::apps
