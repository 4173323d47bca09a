// The kernels as torch's operators on the CPU: unpacks the arguments of a call, allocates the results, and calls the kernel. The schemas, the
// meaning of each argument and everything else that torch must know about the operators are in the Python files beside this folder.
#include "chain.h"
#include "recurrent_cells.h"
#include "torch.h"
#include <dlfcn.h>

namespace mollifier {

Torch torch;

namespace {

Activation activation(const double* numbers) { return {int32_t(numbers[0]), numbers[1], numbers[2], numbers[3], numbers[4]}; }

// Calls body with a null pointer of the type that a tensor is stored in.
template <bool half = false, class Body>
void by_type(const Tensor& x, Body body) {
  const int32_t kind = x.dtype();
  if (kind == torch.float32) return body((float*)nullptr);
  if (kind == torch.float64) return body((double*)nullptr);
  if constexpr (half) if (kind == torch.bfloat16) return body((bf16*)nullptr);
  throw std::runtime_error(half ? "mollifier: a tensor of this type; expected float32, float64 or bfloat16"
                                : "mollifier: a chain or a recurrent layer of this type; expected float32 or float64");
}

// What a backward pass must know about its forward pass, because the levels may have changed since. It comes first in what is kept, followed
// by psi's derivatives, if any.
struct alignas(64) Drawn { double level, copy_level; uint64_t seed, rest[5]; };

// The a, or their gradient, in the type used for the computation.
template <class T>
T* scales(const Tensor& a) {
  if (a && a.dtype() != (std::is_same_v<T, double> ? torch.float64 : torch.float32))
    throw std::runtime_error("mollifier: an a of another type than is computed in; expected float64 for float64, else float32");
  return a.data<T>();
}

// The number of threads for one unit: a single one for few elements, as in torch.
int threads_for(const Shape& s) { return s.total() < 32768 ? 1 : threads(); }

Shape split(const std::vector<int64_t>& shape, int64_t unit_dim, bool last, int64_t in_units) {
  const int64_t at = int64_t(shape.size()) + unit_dim;
  if (at < 0 || unit_dim >= 0) throw std::runtime_error("mollifier: a unit of a tensor without a dimension for units");
  Shape s{1, shape[at], 1, in_units};
  for (int64_t d = 0; d < int64_t(shape.size()); ++d)
    if (d != at) (d > at && !last ? s.inner : s.outer) *= shape[d];
  return s;
}

void unit_op(Value* stack, uint64_t, uint64_t) {
  Arguments given(stack);
  Tensor x = given.tensor(), below = given.optional(), a = given.optional();
  const Tensor level = given.tensor(), copy_level = given.tensor(), seed = given.tensor();
  const std::vector<double> act = given.numbers();
  Unit unit{};
  unit.c = given.number(), unit.odds = given.flag();
  const int64_t unit_dim = given.integer();
  unit.residual = given.flag(), unit.expected = given.flag();
  const bool keep = given.flag();

  const bool last = unit_dim == -3 && x.channels_last() && !x.contiguous();
  x = std::move(x).laid_out(last);
  if (below) below = std::move(below).laid_out(last);
  if (a) a = std::move(a).laid_out();
  if ((unit.noisy = !act.empty())) unit.act = activation(act.data());
  const std::vector<int64_t> shape = x.shape();
  unit.shape = split(shape, unit_dim, last, below ? below.size(unit_dim) : 0);
  unit.level = number_in(level), unit.copy_level = number_in(copy_level), unit.seed = seed.numel() ? uint64_t(*seed.data<int64_t>()) : 0;
  const int64_t count = unit.shape.total();
  Tensor out = empty(shape, x.dtype(), last), kept;
  by_type<true>(x, [&](auto* type) {
    using S = std::remove_pointer_t<decltype(type)>;
    kept = empty({int64_t(sizeof(Drawn) / sizeof(S)) + (keep ? 2 * count : 0)}, x.dtype());
    const Drawn values{unit.level, unit.copy_level, unit.seed, {}};
    std::memcpy(kept.address(), &values, sizeof(values));
    S* by_x = keep ? kept.data<S>() + sizeof(Drawn) / sizeof(S) : nullptr;
    const auto* own = scales<typename compute<S>::type>(a);
    unit_forward<S>(unit, x.data<S>(), below.data<S>(), own, a ? a.numel() : 0, out.data<S>(), by_x, keep ? by_x + count : nullptr, threads_for(unit.shape));
  });
  stack[0] = out.release(), stack[1] = kept.release();
}

void unit_backward_op(Value* stack, uint64_t, uint64_t) {
  Arguments given(stack);
  Tensor grad = given.tensor(), x = given.optional();
  const Tensor kept = given.tensor();
  Tensor a = given.optional();
  const std::vector<double> act = given.numbers();
  Unit unit{};
  unit.c = given.number(), unit.odds = given.flag();
  const int64_t unit_dim = given.integer(), in_units = given.integer();
  unit.residual = given.flag(), unit.expected = given.flag();
  const bool last = given.flag(), by_below = given.flag();

  grad = std::move(grad).laid_out(last);
  if (x) x = std::move(x).laid_out(last);
  if (a) a = std::move(a).laid_out();
  if ((unit.noisy = !act.empty())) unit.act = activation(act.data());
  std::vector<int64_t> shape = grad.shape();
  unit.shape = split(shape, unit_dim, last, in_units);
  Drawn values;
  std::memcpy(&values, kept.address(), sizeof(values));
  unit.level = values.level, unit.copy_level = values.copy_level, unit.seed = values.seed;
  Tensor grad_x = empty(shape, grad.dtype(), last);
  shape[shape.size() + unit_dim] = by_below ? in_units : 0;
  Tensor grad_below = empty(shape, grad.dtype(), last);
  Tensor grad_a = empty(a ? a.shape() : std::vector<int64_t>{0}, a ? a.dtype() : grad.dtype());
  by_type<true>(grad, [&](auto* type) {
    using S = std::remove_pointer_t<decltype(type)>;
    const S* by_x = unit.noisy && !x ? kept.data<S>() + sizeof(Drawn) / sizeof(S) : nullptr;
    using T = typename compute<S>::type;
    unit_backward<S>(unit, grad.data<S>(), x.data<S>(), by_x, by_x ? by_x + unit.shape.total() : nullptr, scales<T>(a), a ? a.numel() : 0,
                     grad_x.data<S>(), by_below ? grad_below.data<S>() : nullptr, a ? grad_a.data<T>() : nullptr, threads_for(unit.shape));
  });
  stack[0] = grad_x.release(), stack[1] = grad_below.release(), stack[2] = grad_a.release();
}

constexpr size_t SETTINGS = 8;  // per link: five numbers of its activation, c, odds, residual

// A tensor of biases or signs without elements means that there are none.
template <class T>
std::vector<Link<T>> links_of(const std::vector<Tensor>& weights, const std::vector<Tensor>& a, const std::vector<Tensor>& signs,
                              const std::vector<double>& settings) {
  std::vector<Link<T>> links(weights.size());
  for (size_t i = 0; i < links.size(); ++i) {
    const double* mine = settings.data() + i * SETTINGS;
    Link<T>& l = links[i];
    l = {};
    l.w = weights[i].data<T>(), l.a = a[i].data<T>(), l.a_count = a[i].numel();
    l.in = weights[i].size(1), l.out = weights[i].size(0);
    l.act = activation(mine), l.c = mine[5], l.odds = mine[6] != 0, l.residual = mine[7] != 0;
    if (signs[i].numel()) l.signs = signs[i].data<T>();
  }
  return links;
}

std::vector<Tensor> in_memory_order(std::vector<Tensor> tensors) {
  for (Tensor& each : tensors) each = std::move(each).laid_out();
  return tensors;
}

template <class T> Gemm<T> gemm() { return (Gemm<T>)(std::is_same_v<T, double> ? torch.dgemm : torch.sgemm); }

void chain_op(Value* stack, uint64_t, uint64_t) {
  Arguments given(stack);
  const Tensor x = given.tensor().laid_out();
  const std::vector<Tensor> weights = in_memory_order(given.tensors()), biases = in_memory_order(given.tensors());
  const std::vector<Tensor> a = in_memory_order(given.tensors()), levels = given.tensors(), signs = in_memory_order(given.tensors());
  const Tensor seeds = given.tensor().laid_out();
  const std::vector<double> settings = given.numbers();
  const bool expected = given.flag(), keep = given.flag();
  std::vector<int64_t> shape = x.shape();
  const int64_t rows = x.numel() / std::max<int64_t>(1, shape.back());
  shape.back() = weights.back().size(0);
  Tensor y = empty(shape, x.dtype()), kept;
  by_type(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    std::vector<Link<T>> links = links_of<T>(weights, a, signs, settings);
    for (size_t i = 0; i < links.size(); ++i) {
      if (biases[i].numel()) links[i].bias = biases[i].data<T>();
      links[i].level = number_in(levels[2 * i]), links[i].copy_level = number_in(levels[2 * i + 1]);
      if (!expected) links[i].seed = uint64_t(seeds.data<int64_t>()[i]);
    }
    Chain<T> chain{gemm<T>(), links.data(), int64_t(links.size()), rows, expected, threads()};
    kept = empty({chain.kept_size(keep)}, x.dtype());
    const Tensor scratch = empty({(keep ? 2 : 4) * chain.room()}, x.dtype());
    if (rows) chain.forward(x.data<T>(), kept.data<T>(), keep, scratch.data<T>(), y.data<T>());
  });
  stack[0] = y.release(), stack[1] = kept.release();
}

// Allocates a result or an intermediate result.
template <class T>
T* room(std::vector<Tensor>& place, const std::vector<int64_t>& shape, const Tensor& like) {
  place.push_back(empty(shape, like.dtype()));
  return place.back().data<T>();
}

void chain_backward_op(Value* stack, uint64_t, uint64_t) {
  Arguments given(stack);
  const Tensor grad = given.tensor().laid_out(), x = given.tensor().laid_out(), kept = given.tensor();
  const std::vector<Tensor> weights = in_memory_order(given.tensors()), a = in_memory_order(given.tensors());
  const std::vector<Tensor> signs = in_memory_order(given.tensors());
  const std::vector<double> settings = given.numbers();
  const bool expected = given.flag();
  const std::vector<int64_t> by = given.integers();
  const int64_t rows = x.numel() / std::max<int64_t>(1, x.size(-1));
  std::vector<Tensor> found;
  by_type(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    std::vector<Link<T>> links = links_of<T>(weights, a, signs, settings);
    size_t next = 0;
    const auto wanted = [&](const std::vector<int64_t>& shape) -> T* {
      if (!by[next++]) return nullptr;
      T* to = room<T>(found, shape, x);
      if (!rows) std::fill_n(to, found.back().numel(), T(0));
      return to;
    };
    T* grad_x = wanted(x.shape());
    for (size_t i = 0; i < links.size(); ++i) links[i].grad_w = wanted(weights[i].shape());
    for (Link<T>& l : links) l.grad_bias = wanted({l.out});
    for (size_t i = 0; i < links.size(); ++i) links[i].grad_a = wanted(a[i].shape());
    Chain<T> chain{gemm<T>(), links.data(), int64_t(links.size()), rows, expected, threads()};
    const Tensor scratch = empty({4 * chain.room()}, x.dtype());
    if (rows) chain.backward(x.data<T>(), kept.data<T>(), grad.data<T>(), scratch.data<T>(), grad_x);
  });
  stack[0] = list_of(found);
}

// What the forward and the backward pass of a recurrent layer have in common. levels: the levels of the copies. seeds: for each direction the
// seed of its noise, then that of its copy, as far as they are drawn.
template <class T>
struct Layer {
  Options o{};
  std::vector<Direction<T>> d;

  Layer(const Tensor& x, const std::vector<Tensor>& states, const std::vector<Tensor>& weights, const Tensor& a, const std::vector<double>& levels,
        const Tensor& seeds, const std::vector<int64_t>& sizes, bool lstm, bool hard, bool gates, bool expected, bool reverse)
      : d(states.size() / (lstm ? 2 : 1)) {
    const size_t each = weights.size() / d.size(), parts = lstm ? 2 : 1, drawn = (gates || a) && !expected ? d.size() : 0;
    o.steps = int64_t(sizes.size()), o.batch = sizes[0], o.inputs = int(x.size(1)), o.hidden = int(states[0].size(1));
    o.hard = hard, o.gates = gates, o.activations = bool(a), o.expected = expected;
    o.gemm = (void*)gemm<T>();
    for (size_t k = 0; k < d.size(); ++k) {
      Direction<T>& one = d[k];
      one = {};
      one.reverse = k == 1 || reverse;
      one.x = x.data<T>();
      one.h0 = states[k * parts].data<T>(), one.c0 = lstm ? states[k * parts + 1].data<T>() : nullptr;
      one.w_ih = weights[k * each].data<T>(), one.w_hh = weights[k * each + 1].data<T>();
      if (each == 4) one.b_ih = weights[k * each + 2].data<T>(), one.b_hh = weights[k * each + 3].data<T>();
      if (a) one.a = a.data<T>() + int64_t(k) * parts * o.hidden;  // as many activations as states
      one.copies = !levels.empty();
      if (one.copies) one.copy_level = levels[k];
      if (drawn) one.seed = uint64_t(seeds.data<int64_t>()[k]);
      if (one.copies && !expected) one.copy_seed = uint64_t(seeds.data<int64_t>()[drawn + k]);
    }
  }
};

void recurrent_op(Value* stack, uint64_t, uint64_t) {
  Arguments given(stack);
  const Tensor x = given.tensor().laid_out();
  const std::vector<Tensor> states = in_memory_order(given.tensors()), weights = in_memory_order(given.tensors());
  Tensor a = given.optional();
  if (a) a = std::move(a).laid_out();
  const Tensor level = given.optional();
  const std::vector<Tensor> copies = given.tensors();
  const Tensor time = given.optional(), seeds = given.tensor();
  const std::vector<int64_t> sizes = given.integers();
  const bool lstm = given.flag(), hard = given.flag(), gates = given.flag(), expected = given.flag();
  const double c = given.number();
  const bool odds = given.flag(), reverse = given.flag(), fixed = given.flag();
  const int64_t cap = given.integer();
  const bool keep = given.flag();
  std::vector<double> levels;
  for (const Tensor& each : copies) levels.push_back(number_in(each));
  std::vector<Tensor> found;
  by_type(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Layer<T> layer(x, states, weights, a, levels, seeds, sizes, lstm, hard, gates, expected, reverse);
    Options& o = layer.o;
    o.c = c, o.odds = odds, o.level = level ? number_in(level) : 0.0;
    const int64_t rows = x.size(0), wide = (lstm ? 4 : 3) * int64_t(o.hidden), now = time ? int64_t(number_in(time)) : 0;
    const std::vector<int64_t> tall{rows, o.hidden}, state{o.batch, o.hidden};
    for (Direction<T>& d : layer.d) {
      d.keep = keep;
      d.time = fixed ? std::max<int64_t>(1, now) : 0, d.time_before = fixed || d.reverse ? 0 : now, d.time_cap = cap;
      T* y = room<T>(found, tall, x);
      d.final_h = room<T>(found, state, x);
      if (lstm) d.final_c = room<T>(found, state, x);
      d.z = room<T>(found, {rows, wide}, x);
      d.kept = room<T>(found, {keep ? rows : o.batch, wide}, x);
      d.out = d.copies ? room<T>(found, tall, x) : y;
      d.mixed = d.copies ? y : nullptr;
    }
    recurrent<T>(lstm, false, o, sizes.data(), layer.d.data(), int(layer.d.size()), threads());
  });
  found.push_back(empty({int64_t(levels.size())}, torch.float64));
  std::copy(levels.begin(), levels.end(), found.back().data<double>());
  stack[0] = list_of(found);
}

void recurrent_backward_op(Value* stack, uint64_t, uint64_t) {
  Arguments given(stack);
  const std::vector<Tensor> grads = in_memory_order(given.tensors());
  const std::vector<int64_t> which = given.integers();
  const Tensor x = given.tensor().laid_out();
  const std::vector<Tensor> states = in_memory_order(given.tensors()), weights = in_memory_order(given.tensors());
  const Tensor a = given.optional();
  const std::vector<Tensor> kept = given.tensors();
  const Tensor head = given.tensor(), seeds = given.tensor();
  const std::vector<int64_t> sizes = given.integers();
  const bool lstm = given.flag(), hard = given.flag(), gates = given.flag(), expected = given.flag(), reverse = given.flag();
  const bool by_x = given.flag(), by_states = given.flag();
  const std::vector<double> levels(head.data<double>(), head.data<double>() + head.numel());
  std::vector<Tensor> found, spare;
  by_type(x, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Layer<T> layer(x, states, weights, a, levels, seeds, sizes, lstm, hard, gates, expected, reverse);
    const size_t parts = lstm ? 2 : 1, directions = layer.d.size(), each = weights.size() / directions;
    layer.o.by_states = by_states;
    const std::vector<int64_t> state = states[0].shape();
    if (by_x) room<T>(found, x.shape(), x);
    size_t next = 0;
    const auto above = [&](size_t number) -> const T* { return which[number] ? grads[next++].data<T>() : nullptr; };
    Tensor grad_a;
    if (a) grad_a = empty(a.shape(), x.dtype());
    for (size_t k = 0; k < directions; ++k) {
      Direction<T>& d = layer.d[k];
      d.keep = true;
      d.z = kept[3 * k].data<T>(), d.kept = kept[3 * k + 1].data<T>(), d.out = kept[3 * k + 2].data<T>();
      const std::vector<int64_t> wide = kept[3 * k].shape();
      d.grad_out = above(k * (parts + 1)), d.grad_final_h = above(k * (parts + 1) + 1);
      if (lstm) d.grad_final_c = above(k * (parts + 1) + 2);
      if (!d.grad_out) {
        T* zeros = room<T>(spare, kept[3 * k + 2].shape(), x);
        std::fill_n(zeros, spare.back().numel(), T(0));
        d.grad_out = zeros;
      }
      d.grad_z = room<T>(spare, wide, x), d.grad_hh = lstm ? nullptr : room<T>(spare, wide, x);
      if (by_x) d.grad_x = k ? room<T>(spare, x.shape(), x) : found[0].data<T>();
      std::vector<Tensor>& before = by_states ? found : spare;
      d.grad_h = room<T>(before, state, x), d.grad_c = lstm ? room<T>(before, state, x) : nullptr;
      d.grad_w_ih = room<T>(found, weights[k * each].shape(), x), d.grad_w_hh = room<T>(found, weights[k * each + 1].shape(), x);
      std::vector<Tensor>& biases = each == 4 ? found : spare;
      d.grad_b_ih = room<T>(biases, {wide[1]}, x), d.grad_b_hh = room<T>(biases, {wide[1]}, x);
      if (a) d.grad_a = grad_a.data<T>() + int64_t(k) * parts * layer.o.hidden;
    }
    recurrent<T>(lstm, true, layer.o, sizes.data(), layer.d.data(), int(directions), threads());
    for (int64_t k = 0, n = by_x && directions == 2 ? x.numel() : 0; k < n; ++k) layer.d[0].grad_x[k] += layer.d[1].grad_x[k];
    if (a) found.push_back(std::move(grad_a));
  });
  stack[0] = list_of(found);
}

void noise_op(Value* stack, uint64_t, uint64_t) {
  Arguments given(stack);
  const Tensor seed = given.tensor();
  const int64_t count = given.integer();
  Tensor xi = empty({count}, torch.float32), uniform = empty({count}, torch.float32);
const Seed key = seed_of(uint64_t(*seed.data<int64_t>()));
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = hash(uint32_t(i), key.low, key.high);
    xi.data<float>()[i] = half_normal(bits & 0xffff);
    uniform.data<float>()[i] = float(bits >> 16) * (1.0f / 65536.0f);
  }
  stack[0] = xi.release(), stack[1] = uniform.release();
}

}  // namespace

extern double sparse_from;

}  // namespace mollifier

using namespace mollifier;

#define EXPORT extern "C" __attribute__((visibility("default")))
#ifndef MOLLIFIER_SOURCES
#define MOLLIFIER_SOURCES ""
#endif

// Returns the digest of the sources from which this library was built.
EXPORT const char* mollifier_sources() { return MOLLIFIER_SOURCES; }

// Sets the level from which on a chain computes only the units that are not copied; for tests.
EXPORT void mollifier_sparse_from(double level) { sparse_from = level; }

// Registers the operators with the torch whose library is at this path. Returns null on success, otherwise what is missing.
EXPORT const char* mollifier_register(const char* path) {
  void* library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (!library) return "its library does not open";
#define FIND(name, ...)                                             \
  *(void**)&torch.name = dlsym(library, #name);                     \
  if (!torch.name) return "it has no " #name;
  MOLLIFIER_TORCH_CALLS(FIND)
  MOLLIFIER_TORCH_NUMBERS(FIND)
#undef FIND
  torch.sgemm = dlsym(library, "sgemm_"), torch.dgemm = dlsym(library, "dgemm_");
  torch.ask_numbers();
  LibraryHandle handle;
  if (torch.aoti_torch_library_init_impl("mollifier", "CPU", __FILE__, __LINE__, &handle)) return "it takes no operators";
  const std::pair<const char*, Kernel> all[] = {{"unit", unit_op},
                                                {"unit_backward", unit_backward_op},
                                                {"chain", chain_op},
                                                {"chain_backward", chain_backward_op},
                                                {"recurrent", recurrent_op},
                                                {"recurrent_backward", recurrent_backward_op},
                                                {"noise", noise_op}};
  for (const auto& [name, kernel] : all)
    if (torch.torch_library_impl(handle, name, kernel, TORCH_2_10)) return "it does not take the operators";
  return nullptr;
}

// Returns whether there is a matrix product for chains.
EXPORT int mollifier_has_product() { return torch.sgemm && torch.dgemm; }
