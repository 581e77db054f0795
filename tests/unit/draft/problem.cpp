// SPDX-License-Identifier: Apache-2.0
#include "problem.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include <ATen/ATen.h>

#include <aerie/base/error.hpp>
#include <aerie/interchange/safetensors.hpp>

namespace aerie::test {
namespace {

using interchange::Dtype;

c10::ScalarType scalar_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::boolean:
      return at::kBool;
    case Dtype::u8:
      return at::kByte;
    case Dtype::i32:
      return at::kInt;
    case Dtype::i64:
      return at::kLong;
    case Dtype::f32:
      return at::kFloat;
    case Dtype::f64:
      return at::kDouble;
    default:
      throw base::Bug("a golden file holds an element type that these tests do not use");
  }
}

template <class T>
std::vector<T> values(const at::Tensor& t) {
  const auto c = t.contiguous();
  return {c.data_ptr<T>(), c.data_ptr<T>() + c.numel()};
}

/// Uniform in [-1, 1) from the generator's raw 64 bits: the same on every standard library.
at::Tensor uniform(std::mt19937_64& generator, at::IntArrayRef size, double scale = 1) {
  auto t = at::empty(size, at::kDouble);
  for (std::int64_t i = 0; i < t.numel(); ++i)
    t.data_ptr<double>()[i] = scale * (std::ldexp(static_cast<double>(generator() >> 11), -52) - 1);
  return t;
}

}  // namespace

std::filesystem::path golden(const std::string& name) { return std::filesystem::path("tests/golden/draft/data") / name; }

at::Tensor read_tensor(const std::filesystem::path& file, const std::string& name, c10::ScalarType dtype) {
  const auto source = interchange::SafetensorsFile::open(file);
  const auto& info = source.info(name);
  auto t = at::empty(info.shape, at::TensorOptions(scalar_type(info.dtype)));
  source.read(name, {static_cast<std::byte*>(t.data_ptr()), static_cast<std::size_t>(info.bytes())});
  return dtype == c10::ScalarType::Undefined ? t : t.to(dtype);
}

Problem read_problem(const base::Json& record, c10::ScalarType dtype) {
  Problem p;
  const auto& s = record.at("shape");
  p.shape.target_hidden_size = s.at("target_hidden_size");
  p.shape.hidden_size = s.at("hidden_size");
  p.shape.intermediate_size = s.at("intermediate_size");
  p.shape.num_heads = s.at("num_heads");
  p.shape.num_kv_heads = s.at("num_kv_heads");
  p.shape.head_dim = s.at("head_dim");
  p.shape.vocab_size = s.at("vocab_size");
  p.shape.draft_vocab_size = s.at("draft_vocab_size");
  p.shape.max_position_embeddings = 64;
  p.shape.rms_norm_eps = s.at("rms_norm_eps");
  p.shape.rope.theta = s.at("rope_theta");
  p.ttt_steps = record.at("ttt_steps");

  const auto file = golden(record.at("inputs"));
  std::vector<at::Tensor> parts;
  for (const auto& tensor : interchange::drafter_tensors(p.shape)) {
    parts.push_back(read_tensor(file, "weights." + tensor.name, dtype));
    if (parts.back().sizes().vec() != tensor.shape)
      throw base::Bug("drafter_tensors gives a tensor another shape than the golden file");
    parts.back() = parts.back().flatten();
  }
  p.flat = at::cat(parts);
  p.target.embedding = read_tensor(file, "target.embedding", dtype);
  p.target.lm_head = read_tensor(file, "target.lm_head", dtype);
  p.target.final_norm = at::ones({p.shape.target_hidden_size}, at::TensorOptions(dtype));
  p.target.final_norm_eps = p.shape.rms_norm_eps;
  p.vocab.d2t = values<std::int64_t>(read_tensor(file, "d2t"));
  p.vocab.t2d = values<std::uint8_t>(read_tensor(file, "t2d", at::kByte));
  p.pack.lengths = values<std::int64_t>(read_tensor(file, "lengths"));
  p.pack.ids = values<std::int32_t>(read_tensor(file, "ids"));
  p.pack.mask = values<std::uint8_t>(read_tensor(file, "mask"));
  p.pack.aux = read_tensor(file, "aux", dtype);
  p.pack.last = read_tensor(file, "last", dtype);
  return p;
}

Problem random_problem(std::uint64_t seed, const std::vector<std::vector<std::uint8_t>>& masks, std::int64_t ttt_steps) {
  std::mt19937_64 generator(seed);
  Problem p;
  p.ttt_steps = ttt_steps;
  auto& s = p.shape;
  s.target_hidden_size = 6;
  s.hidden_size = 8;
  s.intermediate_size = 10;
  s.num_heads = 2;
  s.num_kv_heads = 1;
  s.head_dim = 4;
  s.vocab_size = 20;
  s.draft_vocab_size = 7;
  s.max_position_embeddings = 64;
  s.rms_norm_eps = 1e-5;
  s.rope.theta = 256;
  std::vector<at::Tensor> parts;
  for (const auto& tensor : interchange::drafter_tensors(s))
    parts.push_back(tensor.shape.size() == 1 ? uniform(generator, tensor.shape, 0.3).add_(1)
                                             : uniform(generator, tensor.shape).flatten());
  p.flat = at::cat(parts);
  p.target.embedding = uniform(generator, {s.vocab_size, s.hidden_size});
  p.target.lm_head = uniform(generator, {s.vocab_size, s.target_hidden_size}, 2);
  p.target.final_norm = at::ones({s.target_hidden_size}, at::kDouble);
  p.vocab.t2d.assign(static_cast<std::size_t>(s.vocab_size), 0);
  for (const std::int64_t id : {1, 2, 3, 8, 11, 12, 19}) {
    p.vocab.d2t.push_back(id - p.vocab.draft_size());
    p.vocab.t2d[static_cast<std::size_t>(id)] = 1;
  }
  for (const auto& mask : masks) {
    p.pack.lengths.push_back(static_cast<std::int64_t>(mask.size()));
    p.pack.mask.insert(p.pack.mask.end(), mask.begin(), mask.end());
  }
  const auto T = static_cast<std::int64_t>(p.pack.mask.size());
  for (std::int64_t t = 0; t < T; ++t) p.pack.ids.push_back(static_cast<std::int32_t>(generator() % 20));
  p.pack.aux = uniform(generator, {T, 3 * s.target_hidden_size});
  p.pack.last = uniform(generator, {T, s.target_hidden_size});
  return p;
}

draft::PackBatch select(const draft::PackBatch& pack, const std::vector<std::size_t>& documents) {
  draft::PackBatch out;
  std::vector<at::Tensor> aux, last;
  for (const auto d : documents) {
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < d; ++i) begin += pack.lengths[i];
    const auto n = pack.lengths[d];
    out.lengths.push_back(n);
    out.ids.insert(out.ids.end(), pack.ids.begin() + begin, pack.ids.begin() + begin + n);
    out.mask.insert(out.mask.end(), pack.mask.begin() + begin, pack.mask.begin() + begin + n);
    aux.push_back(pack.aux.narrow(0, begin, n));
    last.push_back(pack.last.narrow(0, begin, n));
  }
  out.aux = at::cat(aux);
  out.last = at::cat(last);
  return out;
}

Run run(const Problem& problem, const draft::PackBatch& pack, const draft::UnrollOptions& options,
        const std::vector<double>& coefficients) {
  const auto weights = draft::view_weights(problem.shape, problem.flat);
  const auto flat_grad = at::zeros_like(problem.flat);
  auto grads = draft::view_weights(problem.shape, flat_grad);
  Run out;
  out.result = draft::unroll(problem.shape, weights, problem.target, problem.vocab, pack, options, coefficients, &grads);
  std::int64_t at_value = 0;
  for (const auto& tensor : interchange::drafter_tensors(problem.shape)) {
    out.names.push_back(tensor.name);
    out.grads.push_back(flat_grad.narrow(0, at_value, tensor.elements()).view(tensor.shape));
    at_value += tensor.elements();
  }
  return out;
}

double loss_of(const Problem& problem, const at::Tensor& flat, const draft::UnrollOptions& options,
               const std::vector<double>& coefficients) {
  const auto weights = draft::view_weights(problem.shape, flat);
  return draft::unroll(problem.shape, weights, problem.target, problem.vocab, problem.pack, options, coefficients, nullptr)
      .weighted_loss;
}

double relative_difference(const at::Tensor& a, const at::Tensor& b) {
  const auto x = a.to(at::kDouble), y = b.to(at::kDouble);
  if (!at::isfinite(x).all().item<bool>()) return std::numeric_limits<double>::infinity();
  return (x - y).abs().max().item<double>() / y.abs().max().item<double>();
}

}  // namespace aerie::test
