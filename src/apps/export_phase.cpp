// SPDX-License-Identifier: Apache-2.0
#include "export_phase.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <aerie/base/host.hpp>
#include <aerie/base/log.hpp>
#include <aerie/base/version.hpp>
#include <aerie/comm/agree.hpp>
#include <aerie/device/device.hpp>
#include <aerie/draft/unroll.hpp>
#include <aerie/train/store_source.hpp>

#include "drafter_checkpoint.hpp"
#include "model_inputs.hpp"
#include "phase_inputs.hpp"
#include "store_view.hpp"

namespace aerie::apps {
namespace {
namespace ic = interchange;

constexpr std::int64_t check_samples = 4;

ic::ExportFormat format_from_name(const std::string& name) {
  for (const auto f : {ic::ExportFormat::sglang, ic::ExportFormat::vllm, ic::ExportFormat::speculators})
    if (ic::format_name(f) == name) return f;
  throw base::ConfigError(fmt::format("export.formats: unknown format \"{}\"", name), "known: sglang, vllm, speculators");
}

/// What a serving engine would load: the directory read back, its weights widened to fp32, its shape as its config.json says.
struct ReadBack {
  at::Tensor flat;
  draft::DrafterShape shape;
};
ReadBack read_back(const std::filesystem::path& dir, ic::ExportFormat format, const ic::VocabMap& vocab,
                   const std::array<std::int32_t, 3>& layers) {
  const auto drafter = ic::read_drafter(dir, format);
  if (drafter.vocab.d2t != vocab.d2t || drafter.vocab.t2d != vocab.t2d)
    throw base::DataError(fmt::format("{}: the vocabulary map differs from vocab.safetensors", dir.string()));
  if (drafter.aux_layers != layers)
    throw base::DataError(fmt::format("{}: layer ids [{}] do not stand for [{}]", dir.string(),
                                      fmt::join(drafter.aux_layers, ", "), fmt::join(layers, ", ")));
  auto flat = at::empty({draft::parameter_count(drafter.shape)}, at::kBFloat16);
  auto* out = static_cast<std::byte*>(flat.mutable_data_ptr());
  for (std::size_t i = 0; i < drafter.tensors.size(); ++i) {
    if (drafter.dtypes[i] != ic::Dtype::bf16)
      throw base::DataError(fmt::format("{}: tensor {} is {}, not BF16", dir.string(), i, ic::dtype_name(drafter.dtypes[i])));
    std::memcpy(out, drafter.tensors[i].data(), drafter.tensors[i].size());
    out += drafter.tensors[i].size();
  }
  return {flat.to(at::kFloat), drafter.shape};
}

/// Runs the exported drafter and the checkpoint (rounded to bf16, as exported) on a few samples of the store: the choices must be
/// equal. Returns the share of slots at which both equal the unrounded checkpoint's choice.
double compare(const draft::DrafterShape& shape, const ReadBack& exported, const at::Tensor& masters,
               const draft::TargetHead& head, const ic::VocabMap& vocab, train::StoreSource& source, const io::Store& store,
               const std::vector<std::int64_t>& samples, std::int64_t K, const std::filesystem::path& dir) {
  const auto rounded = masters.to(at::kBFloat16).to(at::kFloat);
  std::int64_t slots = 0, same = 0;
  for (const auto s : samples) {
    const auto pack = source.load({{s}, store.length(s)});
    const auto choose = [&](const draft::DrafterShape& as, const at::Tensor& flat) {
      return draft::draft_choices(as, draft::view_weights(as, flat), head, vocab, pack, K);
    };
    const auto a = choose(exported.shape, exported.flat), b = choose(shape, rounded), full = choose(shape, masters);
    if (!a.draft_ids.equal(b.draft_ids))
      throw base::DataError(
          fmt::format("{}: the exported drafter chooses other tokens than the checkpoint on sample {}", dir.string(), s),
          "the export is not usable");
    slots += (a.draft_ids >= 0).sum().item<std::int64_t>();
    same += ((a.draft_ids >= 0) & (a.draft_ids == full.draft_ids)).sum().item<std::int64_t>();
  }
  return slots > 0 ? static_cast<double>(same) / static_cast<double>(slots) : 1.0;
}

void write_all(const ProgramContext& context, const ExportFlags& flags) {
  const auto start = base::unix_now();
  const auto& c = context.config;
  const auto dir = ic::ModelDirectory::open(c.target.path);
  const auto target = ic::read_target_config(dir);
  const auto shape = drafter_shape(c, target);
  const auto vocab = ic::read_vocab_map(c.run_dir / "vocab.safetensors");
  const auto checkpoint = find_checkpoint(c, flags.checkpoint);
  const auto masters = masters_of(checkpoint, shape);
  const auto weights = masters.to(at::kBFloat16).contiguous();

  ic::ExportRequest request;
  request.shape = shape;
  request.aux_layers = aux_layers(c, target);
  request.target_num_layers = target.num_layers;
  request.target_name = std::filesystem::weakly_canonical(c.target.path).string();
  request.bos_token_ids = target.bos_token_ids;
  request.eos_token_ids = target.eos_token_ids;
  request.speculative_tokens = c.train.ttt_steps;
  request.provenance = {{"producer", base::producer()},
                        {"step", checkpoint.step},
                        {"weights_sha256", ckpt::vector_sha256(checkpoint, "masters")},
                        {"target_config_hash", dir.config_hash()}};
  const auto head = draft::load_target_head(dir, target, c10::Device(c10::DeviceType::CPU), c10::ScalarType::Float);
  at::Tensor embedding;
  if (c.export_.with_embedding) {
    embedding = head.embedding.to(at::kBFloat16).contiguous();
    request.embedding = {static_cast<const std::byte*>(embedding.const_data_ptr()), embedding.nbytes()};
  }
  std::vector<ic::TensorToWrite> tensors;
  const auto* bytes = static_cast<const std::byte*>(weights.const_data_ptr());
  for (const auto& t : ic::drafter_tensors(shape)) {
    const auto n = static_cast<std::size_t>(t.elements()) * 2;
    tensors.push_back({t.name, ic::Dtype::bf16, t.shape, {bytes, n}});
    bytes += n;
  }

  const auto data = dataset::Dataset::open(c.dataset_file());
  const auto store = io::Store::open(c.store_dir());
  train::StoreSource source(store, head, c10::Device(c10::DeviceType::CPU), c10::ScalarType::Float);
  auto samples = training_samples(c, data, store);
  samples.resize(std::min<std::size_t>(samples.size(), check_samples));
  base::Json written = base::Json::array();
  for (const auto& name : c.export_.formats) {
    context.stop.throw_if_stopped();
    const auto format = format_from_name(name);
    const auto out = c.run_dir / "export" / name;
    std::filesystem::create_directories(out.parent_path());
    ic::write_export(out, format, request, tensors, vocab);
    const auto same = compare(shape, read_back(out, format, vocab, request.aux_layers), masters, head, vocab, source, store,
                              samples, c.train.ttt_steps, out);
    base::log_info(fmt::format("{}: {} tensors; same choices as the checkpoint on {} samples ({:.2f} % equal to fp32)",
                               out.string(), tensors.size() + 2, samples.size(), 100 * same));
    written.push_back({{"format", name}, {"path", out.string()}, {"same_as_fp32", same}});
  }
  context.end_details["progress"] = true;
  context.ledger.phase(report::Phase::export_, report::PhaseState::complete,
                       {{"checkpoint", checkpoint.path.filename().string()},
                        {"exports", written},
                        {"checked_samples", samples.size()},
                        {"seconds", base::unix_now() - start},
                        {"inputs", phase_inputs(c, report::Phase::export_)}});
}

}  // namespace

int export_phase(const ProgramContext& context, const ExportFlags& flags) {
  comm::agree_after(context.world, "export", [&] {  // collective over world
    if (context.world.is_root()) {
      if (const auto view = view_store(context.config)) demand_settled(context.config, *view);
      device::setup_compute(context.config.run.threads);
      context.ledger.phase(report::Phase::export_, report::PhaseState::running);
      write_all(context, flags);
    }
  });
  return 0;
}

}  // namespace aerie::apps
