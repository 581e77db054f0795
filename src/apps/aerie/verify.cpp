// SPDX-License-Identifier: Apache-2.0
// `aerie verify`: checks a run, a store or a checkpoint without GPU and without starting MPI. Changes nothing.
#include <aerie/base/error.hpp>
#include <aerie/base/log.hpp>
#include <aerie/ckpt/checkpoint.hpp>
#include <aerie/config/config.hpp>
#include <aerie/dataset/dataset.hpp>
#include <aerie/interchange/vocab_map.hpp>
#include <aerie/io/verify.hpp>

#include <array>
#include <cstdio>
#include <optional>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "command_line.hpp"
#include "commands.hpp"
#include "path_kind.hpp"

namespace aerie::apps {
namespace {
namespace fs = std::filesystem;

class Verification {
 public:
  explicit Verification(io::VerifyOptions options) : options_(options) {}

  void store(const fs::path& dir) {
    std::optional<base::Progress> progress;
    options_.progress = [&](std::int64_t done, std::int64_t total) {
      if (!progress) progress.emplace("verify", "tokens", total);
      progress->update(done);
    };
    const auto r = io::verify_store(dir, options_);
    for (const auto& part : r.parts)
      lines_ += fmt::format("{}: {} samples, {} done, {} pending, {} failed, {} faults\n", part.at("file").get<std::string>(),
                            part.at("n").get<std::int64_t>(), part.at("counts").at("done").get<std::int64_t>(),
                            part.at("counts").at("pending").get<std::int64_t>(),
                            part.at("counts").at("failed").get<std::int64_t>(), part.at("findings").get<std::int64_t>());
    for (const auto& f : r.findings) add(f.file, f.sample, f.text, f.code);
    store_damaged_ |= !r.findings.empty();
    const auto& c = r.counts;
    report_["store"] = {{"path", dir.string()}, {"parts", r.parts},   {"total", c.total}, {"done", c.done},
                        {"pending", c.pending}, {"failed", c.failed}, {"torn", c.torn},   {"bytes_hashed", r.bytes_hashed}};
    lines_ +=
        fmt::format("store {}: {} samples, {} done, {} pending ({} torn), {} failed; {} checked by checksum\n", dir.string(),
                    c.total, c.done, c.pending, c.torn, c.failed, base::format_bytes(static_cast<double>(r.bytes_hashed)));
  }
  void checkpoint(const fs::path& dir) {
    bool good = guarded(dir.string(), [&] {
      const auto c = ckpt::open(dir);
      if (options_.full)
        for (const auto& fault : ckpt::verify(dir)) add(dir.string(), -1, fault, base::ExitCode::data);
      report_["checkpoints"].push_back({{"path", dir.string()}, {"step", c.step}, {"manifest_hash", c.manifest_hash}});
    });
    lines_ += fmt::format("checkpoint {}: {}\n", dir.string(),
                          good ? options_.full ? "every chunk read" : "manifest, files and sizes" : "damaged");
  }
  void run(const fs::path& dir) {
    const auto config = config::load(dir);
    if (fs::exists(config.store_dir())) guarded(config.store_dir().string(), [&] { store(config.store_dir()); });
    for (const auto step : ckpt::list_steps(config.checkpoint_dir()))
      checkpoint(config.checkpoint_dir() / fmt::format("step-{:08}", step));
    for (const auto& file : {config.dataset_file(), config.eval_file()})
      if (fs::exists(file)) guarded(file.string(), [&] { this->dataset(file); });
    if (const auto file = dir / "vocab.safetensors"; fs::exists(file))
      guarded(file.string(), [&] { interchange::check_vocab_map(interchange::read_vocab_map(file), file.string()); });
  }
  void dataset(const fs::path& file) {
    const auto data = dataset::Dataset::open(file);
    if (options_.full) data.verify();
    lines_ += fmt::format("dataset {}: {} samples, {} tokens\n", file.string(), data.size(), data.n_tokens());
  }

  int finish(bool json) {
    constexpr std::array order{base::ExitCode::io, base::ExitCode::missing_input, base::ExitCode::data};  // worst first
    int code = 0;
    for (auto it = order.rbegin(); it != order.rend(); ++it)
      for (const auto& f : findings_)
        if (f.at("code") == static_cast<int>(*it)) code = static_cast<int>(*it);
    report_["findings"] = findings_;
    report_["exit_code"] = code;
    report_["full"] = options_.full;
    if (json) return print(report_.dump(1)), code;
    for (const auto& f : findings_) lines_ += fmt::format("FAULT {}\n", f.at("text").get<std::string>());
    if (store_damaged_)
      lines_ += fmt::format("to mend the store: `aerie recover RUN` sets what is damaged back to be done again\n");
    print(lines_ + (code == 0 ? (options_.full ? "clean" : "clean (checksums of the data are read with --full)")
                              : fmt::format("{} {}", findings_.size(), findings_.size() == 1 ? "fault" : "faults")));
    return code;
  }

 private:
  void add(const std::string& file, std::int64_t sample, const std::string& text, base::ExitCode code) {
    const auto named = text.find(file) != std::string::npos ? text : fmt::format("{}: {}", file, text);
    findings_.push_back({{"file", file}, {"sample", sample}, {"text", named}, {"code", static_cast<int>(code)}});
  }
  template <class F>
  bool guarded(const std::string& file, F&& f) {
    const auto before = findings_.size();
    if (const auto error = base::capture(std::forward<F>(f))) add(file, -1, error->what(), error->code());
    return findings_.size() == before;
  }
  io::VerifyOptions options_;
  base::Json report_ = base::Json::object(), findings_ = base::Json::array();
  std::string lines_;
  bool store_damaged_ = false;
};

void parse_shard(const std::string& text, io::VerifyOptions& o) {
  int end = 0;
  if (std::sscanf(text.c_str(), "%d/%d%n", &o.shard, &o.shards, &end) != 2 || end != static_cast<int>(text.size()) ||
      o.shards < 1 || o.shard < 0 || o.shard >= o.shards)
    throw base::ConfigError(fmt::format("--shard {} is not I/N with 0 <= I < N", text), "for example --shard 0/4");
}
}  // namespace

int command_verify(int argc, char** argv) {
  CLI::App app("Checks a run, store or checkpoint. Exit 0 clean, 65 mismatch, 66 something is missing, 74 read error.",
               "aerie verify");
  std::string path, shard;
  bool fast = false, full = false, json = false;
  io::VerifyOptions options;
  app.add_option("PATH,--run", path, "run, store or checkpoint")->required();
  app.add_flag("--fast", fast, "manifest, attributes, index and records (default)");
  app.add_flag("--full", full, "every checksum too");
  app.add_option("--threads", options.threads, "threads of --full");
  app.add_option("--shard", shard, "I/N: every N-th part of a store, from I on");
  app.add_flag("--json", json, "print the report as JSON");
  if (!parse_command_line(app, argc, argv)) return 0;
  if (fast && full) throw base::ConfigError("--fast and --full exclude each other");
  if (options.threads < 1 || options.threads > 1024) throw base::ConfigError("--threads must be 1 to 1024");
  if (!shard.empty()) parse_shard(shard, options);
  options.full = full;
  Verification v(options);
  switch (recognise(path)) {
    case PathKind::run:
      v.run(path);
      break;
    case PathKind::store:
      v.store(path);
      break;
    case PathKind::checkpoint:
      v.checkpoint(path);
      break;
    case PathKind::hdf5:
      v.dataset(path);
      break;
    default:
      throw base::ConfigError(path + ": is no run, store or checkpoint", "`aerie inspect` reads it");
  }
  return v.finish(json);
}

}  // namespace aerie::apps
