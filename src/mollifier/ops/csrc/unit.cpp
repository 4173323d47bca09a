// The mollified unit, x -> noisy activation -> copy of the unit below, forward and backward, in one pass over the data.
#include "unit.h"
#include <algorithm>
#include <type_traits>
#include <vector>

namespace mollifier {

namespace {

// The number of pieces of the data, each processed by one thread. It depends only on the shape, and so does every sum. Usually it is even, so
// that two threads have equal work.
int64_t pieces(const Shape& s) { return std::min<int64_t>(s.outer, std::max<int64_t>(1, std::min<int64_t>(64, s.total() / 16384 * 2))); }

// Where nothing is padded, several short rows of features are processed together, for longer chunks, of whole vectors if possible.
int64_t together(const Shape& s) {
  int64_t found = 1;
  if (s.inner != 1 || (s.in_units && s.in_units != s.units)) return found;
  for (int64_t rows = 2; rows * s.units <= CHUNK && rows <= s.outer; ++rows)
    if (s.outer % rows == 0 && (rows * s.units % 16 == 0 || found * s.units % 16 != 0)) found = rows;
  return found;
}

// Calls body(first element, number of elements, unit of the first, below's first element or -1) for rows [begin, end).
// A chunk lies within one unit's pixels, or within one row of units. A chunk of pixels is half as long, because the backward pass over pixels,
// for which nothing is kept, has twice as many buffers.
template <class Body>
void chunks(const Shape& s, int64_t begin, int64_t end, Body body) {
  if (s.inner == 1) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t unit = 0; unit < s.units;) {
        const int64_t edge = unit < s.in_units ? s.in_units : s.units;
        const int n = int(std::min<int64_t>(CHUNK, edge - unit));
        body(row * s.units + unit, n, unit, unit < s.in_units ? row * s.in_units + unit : -1);
        unit += n;
      }
  } else {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t unit = 0; unit < s.units; ++unit)
        for (int64_t pixel = 0; pixel < s.inner;) {
          const int n = int(std::min<int64_t>(CHUNK / 2, s.inner - pixel));
          body((row * s.units + unit) * s.inner + pixel, n, unit, unit < s.in_units ? (row * s.in_units + unit) * s.inner + pixel : -1);
          pixel += n;
        }
  }
}

// A sum in sixteen lanes, which the compiler can vectorise without permission to reorder additions.
template <class T>
STAGE T total(const T* RESTRICT v, int n) {
  T lanes[16] = {};
  int k = 0;
  for (; k + 16 <= n; k += 16)
    for (int l = 0; l < 16; ++l) lanes[l] += v[k + l];
  for (; k < n; ++k) lanes[k % 16] += v[k];
  T sum = 0;
  for (int l = 0; l < 16; ++l) sum += lanes[l];
  return sum;
}

// What both passes need: the shape with short rows joined, a repeated for the joined rows, and the arguments of the stages.
template <class T>
struct Plan {
  const int64_t tall;
  const Shape shape;
  std::vector<T> repeated;
  const T* a;
  const int32_t threshold;
  const Push<T> push;
  const Seed key;
  const T p;
  const int64_t parts;
  Plan(const Unit& w, const T* given, int64_t a_count)
      : tall(together(w.shape)), shape{w.shape.outer / tall, w.shape.units * tall, w.shape.inner, w.shape.in_units * tall}, a(given),
        threshold(shape.in_units ? copy_threshold(w.copy_level) : 0), push(push_of<T>(w.act, w.level, w.c, w.odds, w.expected)), key(seed_of(w.seed)),
        p(T(w.copy_level)), parts(pieces(shape)) {
    for (int64_t row = 0; a && a_count > 1 && tall > 1 && row < tall; ++row) repeated.insert(repeated.end(), given, given + a_count);
    if (!repeated.empty()) a = repeated.data();
  }
};

// The a of a chunk: one for all units, one per unit along the row, or one for all pixels of a unit.
template <class T>
const T* spread(const Shape& s, const T* a, int64_t count, int64_t unit, T* buffer, int n) {
  if (count != 1 && s.inner == 1) return a + unit;
  std::fill(buffer, buffer + n, a[count == 1 ? 0 : unit]);
  return buffer;
}

// If the storage type is the type used for the computation, the stages read and write in place; otherwise they use a buffer for this chunk.
template <class S, class T>
const T* input(const S* at, T* buffer, int n) {
  if constexpr (std::is_same_v<S, T>) return at;
  else { read_in(at, buffer, n); return buffer; }
}
template <class S, class T>
T* output(S* at, T* buffer) {
  if constexpr (std::is_same_v<S, T>) return at;
  else return buffer;
}
template <class S, class T>
void flush(const T* buffer, S* at, int n) { if constexpr (!std::is_same_v<S, T>) write_out(buffer, at, n); }

}  // namespace

template <class S, class T>
void unit_forward(const Unit& w, const S* x, const S* below, const T* a, int64_t a_count, S* out, S* by_x, S* by_a, int threads) {
  const Plan<T> plan(w, a, a_count);
  const Shape& shape = plan.shape;
  const int64_t parts = plan.parts;
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && parts > 1)
  for (int64_t part = 0; part < parts; ++part) {
    T in[CHUNK], value[CHUNK], slope[CHUNK], slope_a[CHUNK], as[CHUNK], zeros[CHUNK] = {};
    float xi[CHUNK];
    uint32_t bits[CHUNK];
    std::fill(xi, xi + CHUNK, 1.0f);
    chunks(shape, part * shape.outer / parts, (part + 1) * shape.outer / parts, [&](int64_t i, int n, int64_t unit, int64_t from) {
      const T* xs = input(x + i, in, n);
      T* f = output(out + i, value);
      if (!w.expected) hash_chunk(plan.key, uint32_t(i), n, bits);
      if (w.noisy) {
        if (!w.expected) normal_of(bits, n, xi);
        const T* scale = spread(shape, plan.a, a_count, unit, as, n);
        if (by_x) {
          T *d = output(by_x + i, slope), *ba = output(by_a + i, slope_a);
          activate<T>(w.act, xs, f, d, n);
          psi_both<T>(plan.push, xs, f, d, scale, xi, ba, n);
          if (below && !w.expected) mark<T>(bits, plan.threshold, ba, n);
          flush(d, by_x + i, n);
          flush(ba, by_a + i, n);
        } else {
          activate<T>(w.act, xs, f, slope, n);
          psi_values<T>(plan.push, xs, f, scale, xi, n);
        }
      } else {
        std::copy(xs, xs + n, f);
      }
      if (below) {
        const T* copied = from >= 0 ? input(below + from, in, n) : zeros;
        if (w.expected) w.residual ? mix_mean<true, T>(plan.p, copied, f, n) : mix_mean<false, T>(plan.p, copied, f, n);
        else w.residual ? mix<true, T>(bits, plan.threshold, copied, f, n) : mix<false, T>(bits, plan.threshold, copied, f, n);
      }
      flush(f, out + i, n);
    });
  }
}

template <class S, class T>
void unit_backward(const Unit& w, const S* grad, const S* x, const S* by_x, const S* by_a, const T* a, int64_t a_count, S* grad_x,
                   S* grad_below, T* grad_a, int threads) {
  const Plan<T> plan(w, a, a_count);
  const Shape& shape = plan.shape;
  const bool copies = shape.in_units > 0;
  const int64_t parts = plan.parts;
  std::vector<T> sums(w.noisy ? parts * shape.units : 0, T(0));  // a's gradient: one row per piece, added up in order
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && parts > 1)
  for (int64_t part = 0; part < parts; ++part) {
    T in[CHUNK], above[CHUNK], value[CHUNK], slope[CHUNK], slope_a[CHUNK], as[CHUNK], kept[CHUNK], to[CHUNK], to_below[CHUNK];
    float xi[CHUNK];
    uint32_t bits[CHUNK];
    T* sum = sums.data() + part * shape.units;
    std::fill(xi, xi + CHUNK, 1.0f);
    chunks(shape, part * shape.outer / parts, (part + 1) * shape.outer / parts, [&](int64_t i, int n, int64_t unit, int64_t from) {
      const T* gs = input(grad + i, above, n);
      T* gx = output(grad_x + i, to);
      T* gb = grad_below && from >= 0 ? output(grad_below + from, to_below) : nullptr;
      if (!w.expected && !by_x) hash_chunk(plan.key, uint32_t(i), n, bits);
      const T *dx = slope, *da = slope_a;
      if (!w.noisy) {
        if (w.expected) scaled<T>(T(1) - plan.p, gs, gx, n);
        else keep<T>(bits, plan.threshold, gs, gx, n);
      } else {
        if (by_x) {
          dx = input(by_x + i, slope, n);
          da = input(by_a + i, slope_a, n);
        } else {
          const T* xs = input(x + i, in, n);
          if (!w.expected) normal_of(bits, n, xi);
          const T* scale = spread(shape, plan.a, a_count, unit, as, n);
          if (w.act.kind == RELU_OUTPUT) {  // x is the output
            relu_back<T>(plan.push, xs, scale, xi, slope, slope_a, n);
          } else {
            activate<T>(w.act, xs, value, slope, n);
            psi_both<T>(plan.push, xs, value, slope, scale, xi, slope_a, n);
          }
          if (copies && !w.expected) mark<T>(bits, plan.threshold, slope_a, n);
        }
        T* sums_of = shape.inner == 1 ? sum + unit : kept;
        if (shape.inner != 1) std::fill(kept, kept + n, T(0));
        if (w.expected) back_mean<T>(copies ? plan.p : T(0), gs, dx, da, gx, sums_of, n);
        else back<T>(gs, dx, da, gx, sums_of, n);
        if (shape.inner != 1) sum[unit] += total(kept, n);
      }
      flush(gx, grad_x + i, n);
      if (gb) {
        if (w.residual || w.expected) scaled<T>(w.residual ? T(1) : plan.p, gs, gb, n);
        else if (w.noisy) pass_marked<T>(gs, da, gb, n);
        else pass<T>(bits, plan.threshold, gs, gb, n);
        flush(gb, grad_below + from, n);
      }
    });
  }
  if (!w.noisy || !grad_a) return;
  std::fill(grad_a, grad_a + a_count, T(0));
  for (size_t row = 0; row < sums.size(); row += w.shape.units) {
    if (a_count == 1) grad_a[0] += total(sums.data() + row, int(w.shape.units));
    else add_to<T>(sums.data() + row, grad_a, int(w.shape.units));
  }
  for (int64_t k = 0; w.act.kind == RELU_OUTPUT && k < a_count; ++k) grad_a[k] /= magnitude(a[k]) + TINY<T>;  // see relu_back
}

#define INSTANCE(S, T)                                                                                                              \
  template void unit_forward<S>(const Unit&, const S*, const S*, const T*, int64_t, S*, S*, S*, int);                               \
  template void unit_backward<S>(const Unit&, const S*, const S*, const S*, const S*, const T*, int64_t, S*, S*, T*, int);
INSTANCE(float, float)
INSTANCE(double, double)
INSTANCE(bf16, float)

}  // namespace mollifier
