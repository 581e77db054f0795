// SPDX-License-Identifier: Apache-2.0
#include "preflight_needs.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/log.hpp>
#include <aerie/ckpt/checkpoint.hpp>
#include <aerie/dataset/dataset.hpp>
#include <aerie/interchange/drafter_layout.hpp>
#include <aerie/interchange/model_dir.hpp>
#include <aerie/interchange/target_config.hpp>
#include <aerie/io/store.hpp>

#include "model_inputs.hpp"

extern char** environ;  // NOLINT(readability-redundant-declaration)

namespace aerie::apps {
namespace {
namespace fs = std::filesystem;
using interchange::ModelDirectory;

std::string bytes(std::int64_t n) { return base::format_bytes(static_cast<double>(n)); }

std::int64_t parameters(const interchange::DrafterShape& shape) {
  std::int64_t n = 0;
  for (const auto& t : interchange::drafter_tensors(shape)) n += t.elements();
  return n;
}

/// Parts that the manifest names and that are not there: their space is still to be reserved. That of the others is taken.
void store_needs(const fs::path& store, preflight::Needs& out) {
  std::int64_t missing = 0;
  const auto manifest = base::read_json(store / "manifest.json");
  for (const auto& part : manifest.at("parts")) {
    if (fs::exists(store / part.at("file").get<std::string>())) continue;
    out.disk_bytes += part.at("bytes").get<std::int64_t>();
    ++missing;
  }
  out.disk_what = fmt::format("{} parts of the store", missing);
}

/// No store yet: four states and what goes with each token.
void planned_store_needs(const config::Config& c, preflight::Needs& out) {
  const auto dir = ModelDirectory::open(c.target.path);
  const auto target = interchange::read_target_config(dir);
  const auto data = dataset::Dataset::open(c.dataset_file());
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < data.size(); ++i)
    if (data.reject(i) == io::FailReason::none) tokens += std::min(data.length(i), c.dataset.max_length);
  const std::int64_t values = 4 * target.hidden_size;                                     // three layers and the last
  const std::int64_t per_token = c.extract.dtype == "fp8" ? values + 4 * 4 : 2 * values;  // fp8: a scale for each state
  out.disk_bytes = tokens * (per_token + 4 + 1);                                          // id and mask
  out.disk_what = fmt::format("a store of {} tokens", base::format_count(static_cast<double>(tokens)));
}

void train_needs(const config::Config& c, preflight::Needs& out) {
  const auto target = interchange::read_target_config(ModelDirectory::open(c.target.path));
  const std::int64_t one = 12 * parameters(drafter_shape(c, target));  // masters and two moments in fp32
  const auto there = static_cast<std::int64_t>(ckpt::list_steps(c.checkpoint_dir()).size());
  // One more than is kept, while the newest is being written.
  const std::int64_t more = std::max(std::int64_t{1}, std::max(std::int64_t{2}, c.train.keep) + 1 - there);
  out.disk_bytes = more * one;
  out.disk_what = fmt::format("{} checkpoint{} of {}", more, more == 1 ? "" : "s", bytes(one));
}

void export_needs(const config::Config& c, preflight::Needs& out) {
  const auto target = interchange::read_target_config(ModelDirectory::open(c.target.path));
  std::int64_t one = 2 * parameters(drafter_shape(c, target));
  if (c.export_.with_embedding) one += 2 * target.vocab_size * target.hidden_size;
  const auto n = static_cast<std::int64_t>(c.export_.formats.size());
  out.disk_bytes = n * one;
  out.disk_what = fmt::format("{} export{} of {}", n, n == 1 ? "" : "s", bytes(one));
}

/// Host memory of a rank that holds the target's weights, or reads them layer by layer.
void weight_needs(const config::Config& c, bool on_gpu, preflight::Needs& out) {
  const auto dir = ModelDirectory::open(c.target.path);
  std::int64_t in_files = 0, elements = 0;
  for (const auto& name : dir.tensor_names()) {
    const auto& t = dir.info(name);
    in_files += t.bytes();
    std::int64_t n = 1;
    for (const auto d : t.shape) n *= d;
    elements += n;
  }
  if (c.target.stream == "layers")
    out.cached_bytes = in_files;
  else if (!on_gpu)
    out.memory_bytes = elements * (c.target.dtype == "bf16" || c.target.dtype == "fp16" ? 2 : 4);
}

struct Spawned {
  int code = -1;
  std::string out;
};
/// `program` under the dynamic loader's tracing, as ldd does it: it prints what it would load, and runs nothing.
Spawned trace(const fs::path& program) {
  Spawned result;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return result;
  const base::File from(ends[0]);
  base::File to(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, to.fd(), 1);
  std::vector<std::string> kept{"LD_TRACE_LOADED_OBJECTS=1"};
  for (const char* name : {"LD_LIBRARY_PATH", "PATH"})
    if (const char* value = std::getenv(name)) kept.push_back(fmt::format("{}={}", name, value));
  std::vector<char*> environment;
  for (auto& e : kept) environment.push_back(e.data());
  environment.push_back(nullptr);
  std::string name = program.string();
  std::array<char*, 2> argv{name.data(), nullptr};
  pid_t pid = 0;
  const int error = ::posix_spawn(&pid, name.c_str(), &actions, nullptr, argv.data(), environment.data());
  ::posix_spawn_file_actions_destroy(&actions);
  to = {};
  if (error != 0) return result;
  std::array<char, 4096> buffer{};
  for (ssize_t n = 0; (n = ::read(from.fd(), buffer.data(), buffer.size())) > 0;)
    result.out.append(buffer.data(), static_cast<std::size_t>(n));
  int status = 0;
  if (::waitpid(pid, &status, 0) == pid && WIFEXITED(status)) result.code = WEXITSTATUS(status);
  return result;
}
}  // namespace

preflight::Needs phase_needs(const config::Config& c, const std::string& phase, bool on_gpu) {
  constexpr std::array phases{"", "extract", "verify", "train", "eval", "export"};
  if (std::find(phases.begin(), phases.end(), phase) == phases.end())
    throw base::ConfigError(fmt::format("--phase {} is unknown", phase), "known are extract, verify, train, eval, export");
  preflight::Needs out;
  out.phase = phase;
  const auto tell = [&](const std::function<void()>& f) {
    try {
      f();
    } catch (const std::exception& e) {  // the phase itself names what is wrong with its inputs
      base::log_info(fmt::format("what {} needs is not known: {}", phase, e.what()));
    }
  };
  const auto manifest = c.store_dir() / "manifest.json";
  if (phase == "extract") tell([&] { fs::exists(manifest) ? store_needs(c.store_dir(), out) : planned_store_needs(c, out); });
  if (phase == "train") tell([&] { train_needs(c, out); });
  if (phase == "export") tell([&] { export_needs(c, out); });
  if (phase == "extract" || phase == "eval") tell([&] { weight_needs(c, on_gpu, out); });
  return out;
}

std::map<std::string, std::string> libraries_of(const fs::path& program) {
  constexpr std::array wanted{"libtorch_cpu", "libtorch_cuda", "libc10", "libnccl", "libcudart", "libmpi", "libhdf5"};
  std::map<std::string, std::string> out;
  if (!fs::exists(program)) return out;
  std::istringstream lines(trace(program).out);
  for (std::string line; std::getline(lines, line);) {  // "\tlibmpi.so.40 => /usr/lib/libmpi.so.40 (0x...)", "... => not found"
    std::istringstream words(line);
    std::string soname, arrow, path;
    if (!(words >> soname >> arrow >> path) || arrow != "=>") continue;
    const auto name = soname.substr(0, soname.find('.'));
    if (std::none_of(wanted.begin(), wanted.end(),
                     [&](const char* w) { return name == w || name.starts_with(std::string(w) + "_"); }))
      continue;
    std::error_code none;
    const auto real = fs::canonical(path, none);
    const auto size = none ? 0 : fs::file_size(real, none);
    out[name] = none ? "not found" : fmt::format("{} ({} bytes)", real.filename().string(), size);
  }
  return out;
}

}  // namespace aerie::apps
