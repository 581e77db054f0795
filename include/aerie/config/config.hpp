// SPDX-License-Identifier: Apache-2.0
// The configuration of a run: one TOML file, every key also a flag (--train.steps 100), flags beat the file, unknown keys are
// errors that name the nearest known key. After parsing a Config is const and passed by reference
// (docs/reference/configuration.md).
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <aerie/base/json.hpp>

namespace CLI {
class App;
}

namespace aerie::config {

struct TargetSection {
  std::filesystem::path path;   // directory with config.json and safetensors
  std::string dtype = "auto";   // auto (fp32 on CPU, bf16 on GPU) | fp32 | bf16
  std::string device = "auto";  // auto | cpu | cuda
  std::string stream = "auto";  // auto | resident | layers
  std::int64_t gemm_rows = 0;   // fixed row count of every dense GEMM; 0: 256 on CPU, 4096 on GPU
};
struct DatasetSection {
  std::filesystem::path conversations;  // what aerie-prepare reads
  std::filesystem::path path;           // tokenised dataset; empty: RUN/dataset/train.h5
  std::int64_t max_length = 4096;
  std::string overlength = "truncate";  // truncate | skip | fail
  std::filesystem::path chat_template;  // empty: the target's own
  std::int64_t limit = 0;               // 0: all
};
struct ExtractSection {
  std::vector<std::int32_t> layers;  // three, input-of-layer; empty: [2, N/2, N-3]
  std::string dtype = "bf16";        // bf16 | fp8
  std::int64_t part_bytes = std::int64_t{16} << 30;
  std::int64_t commit_bytes = std::int64_t{128} << 20;
  double commit_seconds = 10.0;
  std::string write_mode = "posix";  // posix | mpio
  std::int64_t batch_tokens = 0;     // tokens of whole samples per forward; 0: 4096 on CPU, 32768 on GPU
};
struct DraftSection {  // 0 or empty: from the target
  std::int64_t hidden_size = 0, intermediate_size = 0, heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t vocab_size = 32000;  // clipped to the target's vocabulary
  double rope_theta = 0;            // 0: the target's RoPE as it is
  double rms_norm_eps = 0;
  std::filesystem::path init_from;  // an exported drafter as a warm start
  std::string init_format = "sglang";
};
struct TrainSection {
  std::int64_t ttt_steps = 7;
  std::vector<double> step_weights;  // empty: 0.8^k
  std::int64_t pack_tokens = 4096, packs_per_step = 8;
  double lr = 1e-4, weight_decay = 0, clip = 0.5, warmup = 0.015, eps = 1e-8;
  std::array<double, 2> betas{0.9, 0.95};
  double min_lr = 0;       // cosine ends here
  std::int64_t steps = 0;  // 0: from epochs
  double epochs = 1;
  std::uint64_t seed = 1;
  std::string mask_alignment = "predicted", oov = "mask", normalize = "loss", reduce = "exact", dtype = "auto",
              transport = "auto";
  std::int64_t save_every_steps = 500, keep = 3, keep_every = 0;
  double save_every_seconds = 1800;
  std::string bad_step = "stop";  // stop | skip
  double spike_factor = 10;
};
struct EvalSection {
  std::filesystem::path conversations;  // empty: a held-out share
  std::filesystem::path path;           // tokenised; empty: RUN/dataset/eval.h5
  double holdout = 0.01;
  std::int64_t every_steps = 0;
  std::vector<std::int64_t> chain{3, 7};
};
struct ExportSection {
  std::vector<std::string> formats{"sglang", "vllm"};
  bool with_embedding = false;
};
struct SlurmSection {
  std::string site;         // site.env
  double lead_seconds = 0;  // between the warning signal and the end; 0: AERIE_LEAD_SECONDS of the job script
};
struct RunSection {
  std::int64_t threads = 1;         // compute threads per rank; never derived from the rank count
  std::string locks = "fcntl";      // fcntl | none
  std::string launcher = "mpirun";  // what `aerie run` starts ranks with
};

struct Config {
  TargetSection target;
  DatasetSection dataset;
  ExtractSection extract;
  DraftSection draft;
  TrainSection train;
  EvalSection eval;
  ExportSection export_;
  SlurmSection slurm;
  RunSection run;

  std::filesystem::path run_dir;  // --run DIR

  std::filesystem::path dataset_file() const;  // defaults applied
  std::filesystem::path eval_file() const;
  /// Share of the samples held out of training: eval.holdout, or 0 when there is an evaluation file.
  double holdout() const;
  std::filesystem::path store_dir() const { return run_dir / "store"; }
  std::filesystem::path checkpoint_dir() const { return run_dir / "checkpoints"; }
};

/// Sorted-key JSON of every section (not run_dir); stable across runs, hashed by config_hash.
base::Json to_json(const Config& config);
std::string config_hash(const Config& config);
/// The keys whose change alters the trained bits, as "section.key": value; compared on resume. Paths of inputs are not among
/// them: what lies there is compared by hash, so that a run may move. "eval.holdout" is the share in effect.
base::Json result_keys(const Config& config);

/// Adds every key as an option of `app` (bound to `config`), plus --run and --config, and makes the TOML reader the app's
/// reader.
/// The file is RUN/aerie.toml when --run is given and no --config.
/// RUN is also taken as a positional argument.
void add_options(CLI::App& app, Config& config);

/// app.parse() with CLI11's errors turned into ConfigError; an unknown flag names the nearest known one. CLI::CallForHelp passes
/// through.
void parse(CLI::App& app, int argc, const char* const* argv);

/// Applies one "section.key=value", the value as in the file or as behind a flag. Throws ConfigError.
void set_key(Config& config, const std::string& assignment);

/// Range and consistency checks that need no other file. Throws ConfigError naming the key.
void validate(const Config& config);

/// Parses a TOML file alone (no flags). Throws ConfigError naming file, line and nearest known key; MissingInputError.
Config load(const std::filesystem::path& run_dir);

/// The commented aerie.toml that `aerie init` writes for these values.
std::string commented_toml(const Config& config);

/// "--section.key=value" for every key in which `other` differs from `base`: what to give a program so that it sees `other`.
std::vector<std::string> differing_flags(const Config& base, const Config& other);

/// Hash over some sections: tells whether what a phase depends on has changed.
std::string sections_hash(const Config& config, const std::vector<std::string>& names);

/// The known key nearest to `key` by edit distance.
std::string nearest_key(const std::string& key);
/// The same among `known` words; empty when there are none.
std::string nearest_of(std::string_view word, const std::vector<std::string>& known);

}  // namespace aerie::config
