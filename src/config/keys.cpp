// SPDX-License-Identifier: Apache-2.0
#include "keys.hpp"

namespace aerie::config {
namespace {
constexpr double infinite = std::numeric_limits<double>::infinity();
Rule any() { return {}; }
Rule at_least(double min) { return {min, infinite, false, {}}; }
Rule above(double min) { return {min, infinite, true, {}}; }
Rule between(double min, double max) { return {min, max, false, {}}; }
Rule one_of(std::vector<std::string> choices) { return {-infinite, infinite, false, std::move(choices)}; }
constexpr bool result = true;                           // a change of this key alters the trained bits
constexpr double largest_integer = 9007199254740992.0;  // 2^53: exact in every reader of the JSON form
}  // namespace

const std::vector<SectionInfo>& sections() {
  static const std::vector<SectionInfo> all{
      {"target", "The model that the drafter will speak for."},
      {"dataset", "Conversations, and the token ids made of them."},
      {"extract", "Hidden states of the target, written into RUN/store."},
      {"draft", "Shape of the drafter; 0 or empty: as the target has it."},
      {"train", "Training of the drafter."},
      {"eval", "Acceptance on samples that are not trained on."},
      {"export", "Directories for serving engines, under RUN/export."},
      {"slurm", "Job scripts."},
      {"run", "How the programs run."},
  };
  return all;
}

std::vector<Key> keys(Config& c) {
  // Paths are no result keys: what lies there is compared by hash (dataset, tokenizer, target tensors), so that a run may move.
  return {
      {"target.path", &c.target.path, "directory with config.json and safetensors", any(), false},
      {"target.dtype", &c.target.dtype, "auto (fp32 on CPU, bf16 on GPU) | fp32 | bf16", one_of({"auto", "fp32", "bf16"}),
       result},
      {"target.device", &c.target.device, "auto | cpu | cuda", one_of({"auto", "cpu", "cuda"}), result},
      {"target.stream", &c.target.stream, "auto | resident | layers: one layer in memory at a time",
       one_of({"auto", "resident", "layers"}), result},
      {"target.gemm_rows", &c.target.gemm_rows, "rows of every dense GEMM; 0: 256 on CPU, 4096 on GPU", at_least(0), result},

      {"dataset.conversations", &c.dataset.conversations, "JSON lines that aerie-prepare reads", any(), false},
      {"dataset.path", &c.dataset.path, "tokenised dataset; empty: RUN/dataset/train.h5", any(), false},
      {"dataset.max_length", &c.dataset.max_length, "tokens a sample may have", at_least(2), result},
      {"dataset.overlength", &c.dataset.overlength, "truncate | skip | fail: what longer samples get",
       one_of({"truncate", "skip", "fail"}), result},
      {"dataset.chat_template", &c.dataset.chat_template, "Jinja file; empty: the target's own", any(), false},
      {"dataset.limit", &c.dataset.limit, "samples to take; 0: all", at_least(0), result},

      {"extract.layers", &c.extract.layers, "three layers whose input is kept; empty: [2, N/2, N-3]", at_least(0), result},
      {"extract.dtype", &c.extract.dtype, "bf16 | fp8: form of the stored states", one_of({"bf16", "fp8"}), result},
      {"extract.part_bytes", &c.extract.part_bytes, "size of a part file; plan for 4 parts a rank", between(4096, 68719476736.0),
       false},
      {"extract.commit_bytes", &c.extract.commit_bytes, "a group of samples is committed at this size", at_least(1), false},
      {"extract.commit_seconds", &c.extract.commit_seconds, "or at this age", above(0), false},
      {"extract.write_mode", &c.extract.write_mode,
       "posix | mpio: mpio writes rows through parallel HDF5; the files are the same", one_of({"posix", "mpio"}), false},
      {"extract.batch_tokens", &c.extract.batch_tokens, "tokens a forward pass; 0: 4096 on CPU, 32768 on GPU", at_least(0),
       false},

      {"draft.hidden_size", &c.draft.hidden_size, "width", at_least(0), result},
      {"draft.intermediate_size", &c.draft.intermediate_size, "width of the MLP", at_least(0), result},
      {"draft.heads", &c.draft.heads, "attention heads", at_least(0), result},
      {"draft.kv_heads", &c.draft.kv_heads, "key and value heads; divides heads", at_least(0), result},
      {"draft.head_dim", &c.draft.head_dim, "width of a head", at_least(0), result},
      {"draft.vocab_size", &c.draft.vocab_size, "tokens the drafter can say, at most the target's vocabulary", at_least(1),
       result},
      {"draft.rope_theta", &c.draft.rope_theta, "base of the rotary embedding; 0: the target's, as it is", at_least(0), result},
      {"draft.rms_norm_eps", &c.draft.rms_norm_eps, "0: the target's", at_least(0), result},
      {"draft.init_from", &c.draft.init_from, "exported drafter to start from; empty: random weights", any(), result},
      {"draft.init_format", &c.draft.init_format, "sglang | vllm | speculators: its layout",
       one_of({"sglang", "vllm", "speculators"}), result},

      {"train.ttt_steps", &c.train.ttt_steps, "unroll steps", between(1, 16), result},
      {"train.step_weights", &c.train.step_weights, "one weight an unroll step; empty: 0.8^k", at_least(0), result},
      {"train.pack_tokens", &c.train.pack_tokens, "tokens of a pack of samples", at_least(1), result},
      {"train.packs_per_step", &c.train.packs_per_step, "packs of an optimizer step, over all ranks", at_least(1), result},
      {"train.lr", &c.train.lr, "peak learning rate", above(0), result},
      {"train.weight_decay", &c.train.weight_decay, "AdamW", at_least(0), result},
      {"train.clip", &c.train.clip, "largest gradient norm; 0: no clipping", at_least(0), result},
      {"train.warmup", &c.train.warmup, "share of the steps with rising learning rate", between(0, 1), result},
      {"train.eps", &c.train.eps, "AdamW", above(0), result},
      {"train.betas", &c.train.betas, "AdamW", between(0, 1), result},
      {"train.min_lr", &c.train.min_lr, "learning rate at the end of the cosine", at_least(0), result},
      {"train.steps", &c.train.steps, "optimizer steps; 0: from epochs", at_least(0), result},
      {"train.epochs", &c.train.epochs, "passes over the samples when steps is 0", above(0), result},
      {"train.seed", &c.train.seed, "of sample order and first weights", between(0, largest_integer), result},
      {"train.mask_alignment", &c.train.mask_alignment, "predicted | input | hidden: which token's mask counts",
       one_of({"predicted", "input", "hidden"}), result},
      {"train.oov", &c.train.oov, "mask | keep: slots whose likeliest token is outside the draft vocabulary",
       one_of({"mask", "keep"}), result},
      {"train.normalize", &c.train.normalize, "loss | all: slots that the loss is divided by", one_of({"loss", "all"}), result},
      {"train.reduce", &c.train.reduce, "exact (same bits at any rank count) | fast", one_of({"exact", "fast"}), result},
      {"train.dtype", &c.train.dtype, "auto (fp32 on CPU, bf16 on GPU) | fp32 | bf16", one_of({"auto", "fp32", "bf16"}), result},
      {"train.transport", &c.train.transport, "auto | mpi | nccl", one_of({"auto", "mpi", "nccl"}), false},
      {"train.save_every_steps", &c.train.save_every_steps, "steps between checkpoints; 0: by time only", at_least(0), false},
      {"train.keep", &c.train.keep, "newest checkpoints to keep", at_least(2), false},
      {"train.keep_every", &c.train.keep_every, "keep multiples of this step for good; 0: none", at_least(0), false},
      {"train.save_every_seconds", &c.train.save_every_seconds, "seconds between checkpoints; 0: by steps only", at_least(0),
       false},
      {"train.bad_step", &c.train.bad_step, "stop | skip: when a loss or gradient is not finite, or the loss jumps",
       one_of({"stop", "skip"}), result},
      {"train.spike_factor", &c.train.spike_factor, "a loss this many deviations above the median has jumped; 0: none has",
       at_least(0), result},

      {"eval.conversations", &c.eval.conversations, "conversations for evaluation; empty: a held-out share", any(), false},
      {"eval.path", &c.eval.path, "tokenised; empty: RUN/dataset/eval.h5", any(), false},
      {"eval.holdout", &c.eval.holdout, "share held out of training when there is no evaluation file", between(0, 0.5), result},
      {"eval.every_steps", &c.eval.every_steps, "validation during training; 0: never", at_least(0), false},
      {"eval.chain", &c.eval.chain, "chain lengths that tau is given for", between(1, 64), false},

      {"export.formats", &c.export_.formats, "sglang | vllm | speculators", one_of({"sglang", "vllm", "speculators"}), false},
      {"export.with_embedding", &c.export_.with_embedding, "put the target's embedding into the export", any(), false},

      {"slurm.site", &c.slurm.site, "site.env with modules, GPUS_PER_NODE, LAUNCHER", any(), false},
      {"slurm.lead_seconds", &c.slurm.lead_seconds, "from warning signal to end; 0: AERIE_LEAD_SECONDS of the job script",
       at_least(0), false},

      {"run.threads", &c.run.threads, "compute threads of a rank; never derived from the rank count", between(1, 1024), result},
      {"run.locks", &c.run.locks, "fcntl | none: for file systems whose locks do not work", one_of({"fcntl", "none"}), false},
      {"run.launcher", &c.run.launcher, "what `aerie run` starts ranks with", any(), false},
  };
}

}  // namespace aerie::config
