// The mollified unit, x -> noisy activation -> copy of the unit below, forward and backward, in one pass over the data.
#include "common.h"
#include <algorithm>
#include <type_traits>
#include <vector>

using namespace mollifier;

namespace {

// Data as (outer, units, inner): inner = 1 for features, pixels for channels. The copy is of `in_units` units, the rest zeros.
struct Shape { int64_t outer, units, inner, in_units; };

struct Work {
  Activation act;
  double level, strength;
  bool line, noisy, residual;
  Seed seed;
};

// Pieces of the data that one thread works on; they depend on the shape alone, and so does every sum.
int64_t pieces(const Shape& s) {
  const int64_t total = s.outer * s.units * s.inner;
  return std::min<int64_t>(s.outer, std::max<int64_t>(1, std::min<int64_t>(64, total / 16384)));
}

// Calls body(first element, number of elements, unit of the first, below's first element or -1) for rows [begin, end).
// A chunk lies within one unit's pixels, or within one row of units.
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
          const int n = int(std::min<int64_t>(CHUNK, s.inner - pixel));
          body((row * s.units + unit) * s.inner + pixel, n, unit, unit < s.in_units ? (row * s.in_units + unit) * s.inner + pixel : -1);
          pixel += n;
        }
  }
}

// A sum in sixteen lanes, which the compiler vectorises without leave to reorder.
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

// by_x and by_a, where given, take psi's derivatives for the backward pass (0 where the unit is copied).
template <class S, class T = typename compute<S>::type>
void forward(const Shape& shape, const Work& w, const S* x, const S* below, const T* a, int64_t a_count, S* out, S* by_x, S* by_a,
             int threads) {
  const int32_t threshold = below ? copy_threshold(w.level) : 0;
  const Push<T> push{T(w.act.slope), T(w.act.offset), T(w.strength), w.line ? T(1e30) : T(0)};
  const int64_t parts = pieces(shape);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && parts > 1)
  for (int64_t part = 0; part < parts; ++part) {
    T in[CHUNK], value[CHUNK], slope[CHUNK], slope_a[CHUNK], as[CHUNK], zeros[CHUNK] = {};
    float xi[CHUNK];
    int32_t uniform[CHUNK];
    chunks(shape, part * shape.outer / parts, (part + 1) * shape.outer / parts, [&](int64_t i, int n, int64_t unit, int64_t from) {
      const T* xs = input(x + i, in, n);
      T* f = output(out + i, value);
      if (w.noisy) {
        noise_chunk(w.seed, uint32_t(i), n, xi, uniform);
        const T* scale = spread(shape, a, a_count, unit, as, n);
        if (by_x) {
          T *d = output(by_x + i, slope), *ba = output(by_a + i, slope_a);
          activate<T>(w.act, xs, f, d, n);
          psi_both<T>(push, xs, f, d, scale, xi, ba, n);
          if (below) keep_both<T>(uniform, threshold, d, ba, n);
          flush(d, by_x + i, n);
          flush(ba, by_a + i, n);
        } else {
          activate<T>(w.act, xs, f, slope, n);
          psi_values<T>(push, xs, f, scale, xi, n);
        }
      } else {
        uniform_chunk(w.seed, uint32_t(i), n, uniform);
        std::copy(xs, xs + n, f);
      }
      if (below) {
        const T* copied = from >= 0 ? input(below + from, in, n) : zeros;
        if (w.residual) mix<true, T>(uniform, threshold, copied, f, n);
        else mix<false, T>(uniform, threshold, copied, f, n);
      }
      flush(f, out + i, n);
    });
  }
}

template <class S, class T = typename compute<S>::type>
void backward(const Shape& shape, const Work& w, const S* grad, const S* x, const S* by_x, const S* by_a, const T* a, int64_t a_count,
              bool copies, S* grad_x, S* grad_below, T* grad_a, int threads) {
  const int32_t threshold = copies ? copy_threshold(w.level) : 0;
  const Push<T> push{T(w.act.slope), T(w.act.offset), T(w.strength), w.line ? T(1e30) : T(0)};
  const int64_t parts = pieces(shape);
  std::vector<T> sums(w.noisy ? parts * shape.units : 0, T(0));  // a's gradient: one row a piece, added up in order
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && parts > 1)
  for (int64_t part = 0; part < parts; ++part) {
    T in[CHUNK], given[CHUNK], value[CHUNK], slope[CHUNK], slope_a[CHUNK], as[CHUNK], kept[CHUNK], to[CHUNK], to_below[CHUNK];
    float xi[CHUNK];
    int32_t uniform[CHUNK];
    T* sum = sums.data() + part * shape.units;
    chunks(shape, part * shape.outer / parts, (part + 1) * shape.outer / parts, [&](int64_t i, int n, int64_t unit, int64_t from) {
      const T* gs = input(grad + i, given, n);
      T* gx = output(grad_x + i, to);
      const bool passes = grad_below && from >= 0;
      if (w.noisy && !by_x) noise_chunk(w.seed, uint32_t(i), n, xi, uniform);
      else if (passes || !w.noisy) uniform_chunk(w.seed, uint32_t(i), n, uniform);
      if (!w.noisy) {
        keep<T>(uniform, threshold, gs, gx, n);
      } else if (by_x) {
        times<T>(gs, input(by_a + i, slope_a, n), kept, n);
        times<T>(gs, input(by_x + i, slope, n), gx, n);
      } else {
        const T* xs = input(x + i, in, n);
        activate<T>(w.act, xs, value, slope, n);
        psi_both<T>(push, xs, value, slope, spread(shape, a, a_count, unit, as, n), xi, slope_a, n);
        if (copies) keep_both<T>(uniform, threshold, slope, slope_a, n);
        times<T>(gs, slope_a, kept, n);
        times<T>(gs, slope, gx, n);
      }
      if (w.noisy && shape.inner == 1) add_to<T>(kept, sum + unit, n);
      else if (w.noisy) sum[unit] += total(kept, n);
      flush(gx, grad_x + i, n);
      if (passes) {
        T* gb = output(grad_below + from, to_below);
        pass<T>(uniform, w.residual ? 65536 : threshold, gs, gb, n);
        flush(gb, grad_below + from, n);
      }
    });
  }
  if (w.noisy && grad_a && a_count == 1) grad_a[0] = T(0);
  if (w.noisy && grad_a)
    for (int64_t unit = 0; unit < shape.units; ++unit) {
      T s = 0;
      for (int64_t part = 0; part < parts; ++part) s += sums[part * shape.units + unit];
      if (a_count == 1) grad_a[0] += s;
      else grad_a[unit] = s;
    }
}

Work work(const Activation* act, double level, double strength, int line, int residual, uint64_t seed) {
  return {act ? *act : Activation{}, level, strength, line != 0, act != nullptr, residual != 0, seed_of(seed)};
}

}  // namespace

// Calls body with a null pointer of the storage type: 0 float, 1 double, 2 bfloat16.
template <class Body>
void by_dtype(int dtype, Body body) {
  if (dtype == 0) body((float*)nullptr);
  if (dtype == 1) body((double*)nullptr);
  if (dtype == 2) body((bf16*)nullptr);
}

extern "C" {

// a and grad_a are of the type computed in: double for double, else float. below may be null (no copy), act too (copy only);
// by_x and by_a are both given (derivatives kept for the backward pass) or both null (made again there, from x).
void mollifier_unit_forward(int dtype, const int64_t* shape, const Activation* act, double level, double strength, int line, int residual,
                            uint64_t seed, const void* x, const void* below, const void* a, int64_t a_count, void* out, void* by_x,
                            void* by_a, int threads) {
  const Shape s{shape[0], shape[1], shape[2], below ? shape[3] : 0};
  const Work w = work(act, level, strength, line, residual, seed);
  by_dtype(dtype, [&](auto* type) {
    using S = std::remove_pointer_t<decltype(type)>;
    using T = typename compute<S>::type;
    forward<S>(s, w, (const S*)x, (const S*)below, (const T*)a, a_count, (S*)out, (S*)by_x, (S*)by_a, threads);
  });
}

void mollifier_unit_backward(int dtype, const int64_t* shape, const Activation* act, double level, double strength, int line, int residual,
                             uint64_t seed, const void* grad, const void* x, const void* by_x, const void* by_a, const void* a,
                             int64_t a_count, int copies, void* grad_x, void* grad_below, void* grad_a, int threads) {
  const Shape s{shape[0], shape[1], shape[2], copies ? shape[3] : 0};
  const Work w = work(act, level, strength, line, residual, seed);
  by_dtype(dtype, [&](auto* type) {
    using S = std::remove_pointer_t<decltype(type)>;
    using T = typename compute<S>::type;
    backward<S>(s, w, (const S*)grad, (const S*)x, (const S*)by_x, (const S*)by_a, (const T*)a, a_count, copies, (S*)grad_x,
                (S*)grad_below, (T*)grad_a, threads);
  });
}

// The noise itself, for tests and for whoever wants to see it: |xi| and the copy's uniform of `count` elements.
void mollifier_noise(uint64_t seed, int64_t count, float* xi, float* uniform) {
  const Seed s = seed_of(seed);
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t h = hash(uint32_t(i), s.low, s.high);
    xi[i] = half_normal(h & 0xffff);
    uniform[i] = float(h >> 16) * (1.0f / 65536.0f);
  }
}

int mollifier_version() { return 1; }
}
