// SPDX-License-Identifier: Apache-2.0
// Looks at everything a store promises and lists what does not hold. One bad part does not keep the others from being checked.
#include <aerie/io/verify.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include <aerie/base/bfloat16.hpp>
#include <aerie/base/error.hpp>

#include "complete.hpp"
#include "part.hpp"

namespace aerie::io {
namespace {

namespace fs = std::filesystem;
using base::ExitCode;

struct PartResult {
  Counts counts;
  std::vector<Finding> findings;
  base::Json json;
  std::int64_t bytes_hashed = 0, bytes_done = 0;
};

ExitCode finding_code(const base::Error& e) {
  return e.code() == ExitCode::missing_input || e.code() == ExitCode::io ? e.code() : ExitCode::data;
}

/// The first element that is not as it must be; elements never straddle the pieces that stored_hash() reads.
template <class T, class Bad>
std::optional<T> find_bad(std::span<const std::byte> bytes, Bad&& bad) {
  for (std::size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + i, sizeof(T));
    if (bad(value)) return value;
  }
  return std::nullopt;
}

/// For the bulk of the data: without an early exit, so that the loop is vectorized.
template <class T, class Bad>
bool any_bad(std::span<const std::byte> bytes, Bad&& bad) {
  bool found = false;
  for (std::size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + i, sizeof(T));
    found |= bad(value);
  }
  return found;
}

void check_sample(const base::File& file, const PartLayout& layout, const Manifest& m, std::int64_t j, std::uint64_t expected,
                  std::int64_t vocab, const std::function<void(const std::string&)>& problem) {
  const bool fp8 = m.identity.dtype == StateDtype::fp8_e4m3;
  const auto look = [&](std::size_t dataset, std::span<const std::byte> bytes) {
    if (dataset == id_rows) {
      if (const auto id = find_bad<std::int32_t>(bytes, [&](auto v) { return v < 0 || (vocab > 0 && v >= vocab); }))
        problem(fmt::format("a token is {}, outside the vocabulary of {}", *id, vocab));
    } else if (dataset == mask_rows) {
      if (const auto v = find_bad<std::uint8_t>(bytes, [](auto value) { return value > 1; }))
        problem(fmt::format("its loss mask holds {}, neither 0 nor 1", *v));
    } else if (dataset == aux_scale_rows || dataset == last_scale_rows) {
      if (const auto v = find_bad<float>(bytes, [](auto value) { return !(std::isfinite(value) && value > 0); }))
        problem(fmt::format("a scale is {}, not finite and above zero", *v));
    } else if (fp8 && any_bad<std::uint8_t>(bytes, [](auto code) { return (code & 0x7fU) == 0x7fU; })) {
      problem("a state holds the code of NaN");
    } else if (!fp8 && any_bad<std::uint16_t>(bytes, [](auto v) { return base::bf16_is_nonfinite(v); })) {
      problem("a state is not finite");
    }
  };
  const auto found = stored_hash(file, layout, j, look);
  if (found != expected) problem(fmt::format("checksum is {:016x}, its record says {:016x}", found, expected));
}

void check_contents(const fs::path& dir, const Manifest& m, std::int64_t index, const VerifyOptions& o,
                    const std::function<void(std::int64_t)>& tell, PartResult& r,
                    const std::function<void(std::int64_t, const std::string&)>& problem) {
  const auto& part = m.parts[static_cast<std::size_t>(index)];
  const auto layout = check_part(dir, m, index, [&](const std::string& text) { problem(-1, text); });
  const auto file = base::open_read(dir / part.file);
  if (const auto hash = metadata_hash(file, layout, part.tokens, part.n); hash != part.meta_xxh3)
    problem(-1, fmt::format("its bytes outside the data hash to {}, the manifest says {}", hash, part.meta_xxh3));
  const auto records = read_records(file, layout, part.n);
  const auto vocab = o.vocab_size > 0 ? o.vocab_size : m.identity.vocab_size;
  for (std::int64_t j = 0; j < part.n; ++j) {
    const auto sample = part.first + j;
    const auto d = decode(sample, records[static_cast<std::size_t>(j)]);
    const bool rejected = d.state.kind == StateKind::failed && is_planning_reason(d.state.reason);
    if (d.torn) {
      ++r.counts.torn;
      if (layout.rows(j) == 0)
        problem(-1, fmt::format("the state record of sample {}, which was rejected at planning, is torn", sample));
      else
        r.findings.push_back({part.file, sample, "its state record is torn: it reads as pending", ExitCode::data, true});
    } else if (rejected != (layout.rows(j) == 0)) {
      problem(sample, rejected ? "is rejected but has rows" : "has no rows but is not rejected");
    }
    if (d.state.kind == StateKind::pending) ++r.counts.pending;
    if (d.state.kind == StateKind::failed) ++r.counts.failed, ++r.counts.by_reason[static_cast<std::size_t>(d.state.reason)];
    if (d.state.kind != StateKind::done) continue;
    ++r.counts.done;
    r.counts.done_tokens += layout.rows(j);
    r.bytes_done += layout.rows(j) * bytes_per_token(m.identity);
    if (!o.full) continue;
    if (j + 1 < part.n) read_ahead(file, sample_extents(layout, j + 1));  // while this one is hashed
    if (const auto error = base::capture([&] {
          check_sample(file, layout, m, j, d.state.xxh3, vocab, [&](const std::string& text) { problem(sample, text); });
        }))  // one place that cannot be read does not keep the rest from being checked
      r.findings.push_back({part.file, sample, error->what(), finding_code(*error)});
    r.bytes_hashed += layout.rows(j) * bytes_per_token(m.identity);
    tell(layout.rows(j));
  }
}

PartResult verify_part(const fs::path& dir, const Manifest& m, std::int64_t index, const VerifyOptions& o,
                       const std::function<void(std::int64_t)>& tell) {
  const auto& part = m.parts[static_cast<std::size_t>(index)];
  PartResult r;
  r.counts.total = part.n;
  r.counts.total_tokens = part.tokens;
  try {
    check_contents(dir, m, index, o, tell, r, [&](std::int64_t sample, const std::string& text) {
      r.findings.push_back({part.file, sample, text, ExitCode::data});
    });
  } catch (const base::Error& e) {
    r.findings.push_back({part.file, -1, e.what(), finding_code(e)});
  }
  r.json = {{"file", part.file},
            {"first", part.first},
            {"n", part.n},
            {"tokens", part.tokens},
            {"counts", counts_json(r.counts)},
            {"findings", r.findings.size()},
            {"bytes_hashed", r.bytes_hashed}};
  return r;
}

void add(Counts& a, const Counts& b) {
  a.total += b.total, a.pending += b.pending, a.done += b.done, a.failed += b.failed, a.torn += b.torn;
  a.done_tokens += b.done_tokens, a.total_tokens += b.total_tokens;
  for (std::size_t i = 0; i < a.by_reason.size(); ++i) a.by_reason[i] += b.by_reason[i];
}

/// Temporary files that a killed process left, and parts that the manifest does not know.
void check_directory(const fs::path& dir, const Manifest& m, std::vector<Finding>& findings) {
  for (const auto& folder : {dir, dir / "parts"}) {
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      const auto name = it->path().lexically_relative(dir).string();
      if (name.find(".tmp") != std::string::npos)
        findings.push_back({name, -1, "is a temporary file that was left behind", ExitCode::data});
      else if (folder != dir && it->path().extension() == ".h5" &&
               std::none_of(m.parts.begin(), m.parts.end(), [&](const PartInfo& p) { return p.file == name; }))
        findings.push_back({name, -1, "is not in the manifest", ExitCode::data});
    }
    if (error && fs::exists(folder))
      findings.push_back({folder.string(), -1, "cannot be listed: " + error.message(), ExitCode::io});
  }
}

}  // namespace

ExitCode VerifyReport::code() const {
  for (const auto c : {ExitCode::io, ExitCode::missing_input})
    if (std::any_of(findings.begin(), findings.end(), [&](const Finding& f) { return f.code == c; })) return c;
  return findings.empty() ? ExitCode::done : ExitCode::data;
}

VerifyReport verify_store(const fs::path& dir, const VerifyOptions& options) {
  base::expect(options.shards > 0 && options.shard >= 0 && options.shard < options.shards, "the shard is one of the shards");
  VerifyReport report;
  Manifest m;
  try {
    m = load_manifest(dir);
  } catch (const base::MissingInputError&) {
    throw;
  } catch (const base::Error& e) {
    report.findings.push_back({"manifest.json", -1, e.what(), finding_code(e)});
    return report;
  }
  if (options.shard == 0) check_directory(dir, m, report.findings);

  std::vector<std::int64_t> mine;
  for (std::int64_t i = options.shard; i < static_cast<std::int64_t>(m.parts.size()); i += options.shards) mine.push_back(i);
  std::vector<PartResult> results(mine.size());
  std::atomic<std::size_t> next{0};
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(std::max(1, options.threads)));
  std::atomic<std::int64_t> tokens{0};
  std::int64_t all_tokens = 0;
  for (const auto i : mine) all_tokens += m.parts[static_cast<std::size_t>(i)].tokens;
  const auto work = [&](std::size_t thread) {
    const auto tell = [&](std::int64_t n) {
      const auto now = tokens += n;
      if (thread == 0 && options.progress) options.progress(now, all_tokens);
    };
    try {
      for (std::size_t k; (k = next++) < mine.size();) results[k] = verify_part(dir, m, mine[k], options, tell);
    } catch (...) {
      errors[thread] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t t = 1; t < errors.size(); ++t) threads.emplace_back(work, t);
  work(0);
  for (auto& t : threads) t.join();
  for (const auto& e : errors)
    if (e) std::rethrow_exception(e);

  for (auto& r : results) {
    add(report.counts, r.counts);
    report.findings.insert(report.findings.end(), r.findings.begin(), r.findings.end());
    report.parts.push_back(std::move(r.json));
    report.bytes_hashed += r.bytes_hashed;
    report.bytes_done += r.bytes_done;
  }
  if (fs::exists(complete_path(dir)))
    if (const auto error = base::capture([&] {
          if (const auto problem = complete_marker_problem(dir, m.hash, options.shards == 1 ? &report.counts : nullptr))
            report.findings.push_back({"COMPLETE", -1, *problem, ExitCode::data});
        }))
      report.findings.push_back({"COMPLETE", -1, error->what(), finding_code(*error)});
  return report;
}

}  // namespace aerie::io
