// SPDX-License-Identifier: Apache-2.0
// Pre-tokenised JSONL to a dataset file, line by line: memory holds one line at a time.
#include <algorithm>
#include <array>

#include <unistd.h>

#include <aerie/base/error.hpp>
#include <aerie/base/file.hpp>
#include <aerie/base/log.hpp>
#include <aerie/dataset/dataset.hpp>

#include <fmt/format.h>

#include "dataset_writer.hpp"
#include "import_line.hpp"

namespace aerie::dataset {
namespace {
constexpr std::int64_t shown_errors = 10;
constexpr std::string_view blank = " \t\r\n\v\f";

/// Lines of a file, without their end; counts bytes for the progress line.
class LineReader {
 public:
  explicit LineReader(const std::filesystem::path& path) : file_(base::open_read(path)), buffer_(std::size_t{1} << 20) {}
  std::int64_t total() const { return base::file_size(file_); }
  std::int64_t consumed() const { return consumed_; }
  bool next(std::string& line) {
    line.clear();
    for (;;) {
      const auto begin = buffer_.begin() + static_cast<std::ptrdiff_t>(at_),
                 end = buffer_.begin() + static_cast<std::ptrdiff_t>(filled_);
      const auto newline = std::find(begin, end, '\n');
      line.append(begin, newline);
      if (newline != end) {
        at_ = static_cast<std::size_t>(newline - buffer_.begin()) + 1;
        return true;
      }
      if (!fill()) return !line.empty();
    }
  }

 private:
  bool fill() {
    for (;;) {
      const auto n = ::read(file_.fd(), buffer_.data(), buffer_.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) base::throw_errno(errno, "read " + file_.path().string());
      at_ = 0;
      filled_ = static_cast<std::size_t>(n);
      consumed_ += n;
      return n > 0;
    }
  }
  base::File file_;
  std::vector<char> buffer_;
  std::size_t at_ = 0, filled_ = 0;
  std::int64_t consumed_ = 0;
};

std::string_view trimmed(std::string_view line, bool first_line) {
  if (first_line && line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
  const auto begin = line.find_first_not_of(blank);
  if (begin == std::string_view::npos) return {};
  return line.substr(begin, line.find_last_not_of(blank) - begin + 1);
}

std::string_view overlength_name(Overlength o) {
  return o == Overlength::truncate ? "truncate" : o == Overlength::skip ? "skip" : "fail";
}
}  // namespace

Overlength overlength_from_name(std::string_view name) {
  for (const auto o : {Overlength::truncate, Overlength::skip, Overlength::fail})
    if (name == overlength_name(o)) return o;
  throw base::ConfigError(fmt::format("dataset.overlength: '{}' is unknown", name), "truncate, skip or fail");
}

ImportSummary import_jsonl(const std::filesystem::path& jsonl, const std::filesystem::path& out, const ImportOptions& options) {
  LineReader lines(jsonl);
  if (jsonl.extension() == ".gz")
    throw base::DataError(jsonl.string() + ": compressed files are not read here",
                          "gunzip it first, or use aerie-prepare --format tokens");
  DatasetWriter writer(out);
  ImportSummary sum;
  base::Progress progress("import", "bytes", lines.total());
  std::string line;
  std::int64_t accepted = 0, shown = 0;
  for (std::int64_t number = 1; (options.limit == 0 || sum.samples < options.limit) && lines.next(line); ++number) {
    const auto text = trimmed(line, number == 1);
    if (text.empty()) continue;
    const auto sample = import_line(text, fmt::format("{}:{}", jsonl.filename().string(), number), options);
    ++sum.samples;
    sum.truncated += sample.truncated;
    ++sum.rejected[static_cast<std::size_t>(sample.reject)];
    if (sample.reject == io::FailReason::none)
      ++accepted;
    else if (++shown <= shown_errors)
      base::log_warning(fmt::format("sample {}: {}", sample.id, sample.note));
    writer.add(sample.id, number, sample.reject, sample.note, sample.tokens);
    progress.update(lines.consumed(), writer.n_tokens());
  }
  sum.rejected[0] = 0;
  sum.tokens = writer.n_tokens();
  sum.loss_tokens = writer.n_loss_tokens();
  if (shown > shown_errors)
    base::log_warning(fmt::format("... and {} more rejected samples; their notes are in {}", shown - shown_errors, out.string()));
  if (accepted == 0)
    throw base::DataError(fmt::format("{}: no usable sample among {}", jsonl.string(), sum.samples),
                          "nothing was written; the first reasons are above");
  writer.publish({.n_truncated = sum.truncated,
                  .max_length = options.max_length,
                  .vocab_size = options.vocab_size,
                  .overlength = std::string(overlength_name(options.overlength)),
                  .tokenizer_hash = options.tokenizer_hash,
                  .source = jsonl.filename().string()});
  return sum;
}

}  // namespace aerie::dataset
