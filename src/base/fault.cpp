// SPDX-License-Identifier: Apache-2.0
#include <aerie/base/fault.hpp>

#ifdef AERIE_FAULTS
#include <aerie/base/error.hpp>
#include <aerie/base/philox.hpp>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <string>
#include <string_view>
#include <thread>

#include <unistd.h>

namespace aerie::base {
namespace {

enum class When { once, from, every, random };
struct Fault {
  std::string_view name, rank, action;
  When when = When::once;
  std::uint64_t n = 0, seed = 0;
  std::atomic<std::uint64_t> passed{0};
};

[[noreturn]] void malformed(std::string_view spec) {
  throw Bug("AERIE_FAULT: '" + std::string(spec) + "' is not name:rank:count:action (aerie/base/fault.hpp)");
}

/// The text up to the next `separator`, which is taken off `text`.
std::string_view cut(std::string_view& text, char separator) {
  const auto at = text.find(separator);
  const auto head = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view{} : text.substr(at + 1);
  return head;
}

bool to_number(std::string_view text, std::uint64_t& out) {
  const auto end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, out);
  return !text.empty() && result.ec == std::errc{} && result.ptr == end;
}

void parse(std::string_view spec, std::list<Fault>& out) {
  auto rest = spec;
  auto& f = out.emplace_back();
  f.name = cut(rest, ':'), f.rank = cut(rest, ':');
  auto count = cut(rest, ':');
  f.action = rest;
  bool good = true;
  if (count.starts_with("every-")) {
    f.when = When::every;
    good = to_number(count.substr(6), f.n);
  } else if (count.starts_with("random-")) {
    f.when = When::random;
    count.remove_prefix(7);
    good = to_number(cut(count, '-'), f.n) && to_number(count, f.seed);
  } else if (count == "*") {
    f.when = When::from, f.n = 1;
  } else {
    if (count.ends_with('+')) f.when = When::from, count.remove_suffix(1);
    good = to_number(count, f.n);
  }
  if (!good || f.n == 0 || f.name.empty() || f.rank.empty() || f.action.empty() || f.action.find(':') != std::string_view::npos)
    malformed(spec);
}

const char* environment_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"})
    if (const char* v = std::getenv(name)) return v;
  return "0";
}

/// Read once; what concerns other ranks is left out, so that it counts nothing.
std::list<Fault>& chosen() {
  static const std::string text = std::getenv("AERIE_FAULT") ? std::getenv("AERIE_FAULT") : "";
  static std::list<Fault> faults = [] {
    std::list<Fault> list;
    for (std::string_view rest = text; !rest.empty();) parse(cut(rest, ','), list);
    const std::string_view own = environment_rank();
    list.remove_if([&](const Fault& f) { return f.rank != "*" && f.rank != own; });
    return list;
  }();
  return faults;
}

bool strikes(Fault& f) {
  static const auto rank = std::strtoull(environment_rank(), nullptr, 10);
  const auto pass = ++f.passed;
  switch (f.when) {
    case When::once:
      return pass == f.n;
    case When::from:
      return pass >= f.n;
    case When::every:
      return pass % f.n == 0;
    case When::random:
      return random_u64(f.seed, Purpose::test, rank, pass) % f.n == 0;
  }
  return false;
}

FaultOutcome act(const Fault& f, std::size_t bytes) {
  if (f.action == "kill") ::kill(::getpid(), SIGKILL);
  if (f.action == "exit") ::_exit(1);
  if (f.action == "stall") {
    std::fprintf(stderr, "fault point %s: stalls\n", std::string(f.name).c_str());
    return ::sleep(3600), FaultOutcome{};  // a signal ends it
  }
  if (f.action == "slow") return std::this_thread::sleep_for(std::chrono::seconds(2)), FaultOutcome{};  // no signal does
  if (f.action == "throw") throw IoError("fault point " + std::string(f.name), "set by AERIE_FAULT");
  if (f.action == "eio") return {EIO};
  if (f.action == "enospc") return {ENOSPC};
  if (f.action == "eintr") return {EINTR};
  if (f.action == "eopnotsupp") return {EOPNOTSUPP};
  if (f.action == "skip") return {0, true};
  expect(bytes > 0, "AERIE_FAULT: one, half and zero need a point that moves bytes, and other actions are not known");
  if (f.action == "one") return {0, false, 1};
  if (f.action == "half") return {0, false, (bytes + 1) / 2};
  if (f.action == "zero") return {0, false, 0};
  malformed(f.action);
}

}  // namespace

FaultOutcome fault_call(const char* name, std::size_t bytes) {
  const Fault* first = nullptr;
  for (auto& f : chosen())  // each counts its passes, also while another acts
    if (f.name == name && strikes(f) && !first) first = &f;
  return first ? act(*first, bytes) : FaultOutcome{};
}

int fault_point(const char* name) {
  const auto outcome = fault_call(name);
  expect(!outcome.skip, "AERIE_FAULT: this point wraps no call that could be left out");
  return outcome.error;
}

}  // namespace aerie::base
#endif
