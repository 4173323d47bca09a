// The mollified unit, x -> noisy activation -> copy of the unit below, forward and backward, in one pass over the data.
#include "unit.h"
#include "unit_shape.h"
#include <algorithm>
#include <type_traits>
#include <vector>

using namespace mollifier;

namespace {

// The a of so many rows.
template <class T>
std::vector<T> repeated(const T* a, int64_t count, int64_t rows) {
  std::vector<T> all;
  for (int64_t row = 0; a && count > 1 && rows > 1 && row < rows; ++row) all.insert(all.end(), a, a + count);
  return all;
}

// The a of a chunk: one for all, one a unit along the row, or one unit's pixels.
template <class T>
const T* spread(const Shape& s, const T* a, int64_t count, int64_t unit, T* buffer, int n) {
  if (count != 1 && s.inner == 1) return a + unit;
  std::fill(buffer, buffer + n, a[count == 1 ? 0 : unit]);
  return buffer;
}

// Where the storage is of the type computed in, stages read and write it in place; else through a buffer of this chunk.
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

// by_x and by_a, where given, take psi's derivatives for the backward pass.
template <class S, class T = typename compute<S>::type>
void forward(const Shape& given, const Unit& w, const S* x, const S* below, const T* a, int64_t a_count, S* out, S* by_x, S* by_a,
             int threads) {
  const int64_t tall = together(given);
  const Shape shape{given.outer / tall, given.units * tall, given.inner, given.in_units * tall};
  const std::vector<T> all = repeated(a, a_count, tall);
  if (!all.empty()) a = all.data();
  const int32_t threshold = below ? copy_threshold(w.copy_level) : 0;
  const Push<T> push = push_of<T>(w.act, w.level, w.c, w.odds, w.expected);
  const Seed key = seed_of(w.seed);
  const T p = T(w.copy_level);
  const int64_t parts = pieces(shape);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && parts > 1)
  for (int64_t part = 0; part < parts; ++part) {
    T in[CHUNK], value[CHUNK], slope[CHUNK], slope_a[CHUNK], as[CHUNK], zeros[CHUNK] = {};
    float xi[CHUNK];
    uint32_t bits[CHUNK];
    std::fill(xi, xi + CHUNK, 1.0f);
    chunks(shape, part * shape.outer / parts, (part + 1) * shape.outer / parts, [&](int64_t i, int n, int64_t unit, int64_t from) {
      const T* xs = input(x + i, in, n);
      T* f = output(out + i, value);
      if (!w.expected) hash_chunk(key, uint32_t(i), n, bits);
      if (w.noisy) {
        if (!w.expected) normal_of(bits, n, xi);
        const T* scale = spread(shape, a, a_count, unit, as, n);
        if (by_x) {
          T *d = output(by_x + i, slope), *ba = output(by_a + i, slope_a);
          activate<T>(w.act, xs, f, d, n);
          psi_both<T>(push, xs, f, d, scale, xi, ba, n);
          flush(d, by_x + i, n);
          flush(ba, by_a + i, n);
        } else {
          activate<T>(w.act, xs, f, slope, n);
          psi_values<T>(push, xs, f, scale, xi, n);
        }
      } else {
        std::copy(xs, xs + n, f);
      }
      if (below) {
        const T* copied = from >= 0 ? input(below + from, in, n) : zeros;
        if (w.expected) w.residual ? mix_mean<true, T>(p, copied, f, n) : mix_mean<false, T>(p, copied, f, n);
        else w.residual ? mix<true, T>(bits, threshold, copied, f, n) : mix<false, T>(bits, threshold, copied, f, n);
      }
      flush(f, out + i, n);
    });
  }
}

template <class S, class T = typename compute<S>::type>
void backward(const Shape& given, const Unit& w, const S* grad, const S* x, const S* by_x, const S* by_a, const T* a, int64_t a_count,
              S* grad_x, S* grad_below, T* grad_a, int threads) {
  const int64_t tall = together(given);
  const Shape shape{given.outer / tall, given.units * tall, given.inner, given.in_units * tall};
  const std::vector<T> all = repeated(a, a_count, tall);
  if (!all.empty()) a = all.data();
  const bool copies = w.in_units > 0;
  const int32_t threshold = copies ? copy_threshold(w.copy_level) : 0;
  const Push<T> push = push_of<T>(w.act, w.level, w.c, w.odds, w.expected);
  const Seed key = seed_of(w.seed);
  const T p = T(w.copy_level);
  const int64_t parts = pieces(shape);
  std::vector<T> sums(w.noisy ? parts * shape.units : 0, T(0));  // a's gradient: one row a piece, added up in order
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
      const bool passes = grad_below && from >= 0;
      if (!w.expected) hash_chunk(key, uint32_t(i), n, bits);
      if (!w.noisy) {
        if (w.expected) scaled<T>(T(1) - p, gs, gx, n);
        else keep<T>(bits, threshold, gs, gx, n);
      } else {
        const T *dx = slope, *da = slope_a;
        if (by_x) {
          dx = input(by_x + i, slope, n);
          da = input(by_a + i, slope_a, n);
        } else {
          const T* xs = input(x + i, in, n);
          if (!w.expected) normal_of(bits, n, xi);
          const T* scale = spread(shape, a, a_count, unit, as, n);
          if (w.act.kind == RELU_OUTPUT) {  // x is the output
            relu_back<T>(push, xs, scale, xi, slope, slope_a, n);
          } else {
            activate<T>(w.act, xs, value, slope, n);
            psi_both<T>(push, xs, value, slope, scale, xi, slope_a, n);
          }
        }
        T* sums_of = shape.inner == 1 ? sum + unit : kept;
        if (shape.inner != 1) std::fill(kept, kept + n, T(0));
        if (w.expected) back_mean<T>(copies ? p : T(0), gs, dx, da, gx, sums_of, n);
        else back<T>(bits, threshold, gs, dx, da, gx, sums_of, n);
        if (shape.inner != 1) sum[unit] += total(kept, n);
      }
      flush(gx, grad_x + i, n);
      if (passes) {
        T* gb = output(grad_below + from, to_below);
        if (w.expected) scaled<T>(w.residual ? T(1) : p, gs, gb, n);
        else pass<T>(bits, w.residual ? 65536 : threshold, gs, gb, n);
        flush(gb, grad_below + from, n);
      }
    });
  }
  if (!w.noisy || !grad_a) return;
  std::fill(grad_a, grad_a + a_count, T(0));
  for (size_t row = 0; row < sums.size(); row += given.units) {
    if (a_count == 1) grad_a[0] += total(sums.data() + row, int(given.units));
    else add_to<T>(sums.data() + row, grad_a, int(given.units));
  }
}

// Calls body with a null pointer of the storage type.
template <class Body>
void by_dtype(Dtype dtype, Body body) {
  if (dtype == FLOAT) body((float*)nullptr);
  if (dtype == DOUBLE) body((double*)nullptr);
  if (dtype == BFLOAT16) body((bf16*)nullptr);
}

}  // namespace

namespace mollifier {

void unit_forward(const Unit& unit, const void* x, const void* below, const void* a, int64_t a_count, void* out, void* by_x, void* by_a,
                  int threads) {
  const Shape s{unit.outer, unit.units, unit.inner, below ? unit.in_units : 0};
  by_dtype(unit.dtype, [&](auto* type) {
    using S = std::remove_pointer_t<decltype(type)>;
    using T = typename compute<S>::type;
    forward<S>(s, unit, (const S*)x, (const S*)below, (const T*)a, a_count, (S*)out, (S*)by_x, (S*)by_a, threads);
  });
}

void unit_backward(const Unit& unit, const void* grad, const void* x, const void* by_x, const void* by_a, const void* a, int64_t a_count,
                   void* grad_x, void* grad_below, void* grad_a, int threads) {
  const Shape s{unit.outer, unit.units, unit.inner, unit.in_units};
  by_dtype(unit.dtype, [&](auto* type) {
    using S = std::remove_pointer_t<decltype(type)>;
    using T = typename compute<S>::type;
    backward<S>(s, unit, (const S*)grad, (const S*)x, (const S*)by_x, (const S*)by_a, (const T*)a, a_count, (S*)grad_x, (S*)grad_below,
                (T*)grad_a, threads);
  });
}

void noise_of(uint64_t seed, int64_t count, float* xi, float* uniform) {
  const Seed s = seed_of(seed);
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t h = hash(uint32_t(i), s.low, s.high);
    xi[i] = half_normal(h & 0xffff);
    uniform[i] = float(h >> 16) * (1.0f / 65536.0f);
  }
}

}  // namespace mollifier
