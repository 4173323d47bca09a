// Elementary functions that the compiler vectorises, the counter-based noise, and the activations of the table.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace mollifier {

// Work is done in stages over a chunk. A stage is a function of its own, so that the compiler vectorises its loop.
#define RESTRICT __restrict__
#define STAGE __attribute__((noinline)) inline
constexpr int CHUNK = 256;  // elements worked on at a time: all buffers stay in the first-level cache

// bf16 is only stored, never computed with.
struct bf16 { uint16_t bits; };
inline float load(float v) { return v; }
inline double load(double v) { return v; }
inline float load(bf16 v) { uint32_t b = uint32_t(v.bits) << 16; float f; std::memcpy(&f, &b, 4); return f; }
inline void store(float& to, float v) { to = v; }
inline void store(double& to, double v) { to = v; }
inline void store(bf16& to, float v) {
  uint32_t b; std::memcpy(&b, &v, 4);
  to.bits = uint16_t(v != v ? 0x7fc0 : (b + 0x7fff + ((b >> 16) & 1)) >> 16);  // round to nearest even, NaN kept
}
template <class S> struct compute { using type = float; };
template <> struct compute<double> { using type = double; };

inline float bits_to_float(int32_t b) { float f; std::memcpy(&f, &b, 4); return f; }
inline int32_t float_to_bits(float f) { int32_t b; std::memcpy(&b, &f, 4); return b; }
template <class T> inline T clamp(T v, T low, T high) { v = v < low ? low : v; return v > high ? high : v; }

// float: polynomials, about 2 ulp, in Estrin's order: a loop is held up by its longest chain. double: the C library.
inline float exp_(float x) {
  x = clamp(x, -87.0f, 88.0f);
  float n = x * 1.44269504089f + 12582912.0f;  // rounds to the nearest integer, which the lowest bits now hold
  const uint32_t scale = uint32_t(float_to_bits(n)) << 23;
  n -= 12582912.0f;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f, r2 = r * r;
  const float high = (4.1665795894e-2f + 8.3334519073e-3f * r) + r2 * (1.3981999507e-3f + 1.9875691500e-4f * r);
  const float p = (1.0f + r) + r2 * ((5.0000001201e-1f + 1.6666665459e-1f * r) + r2 * high);
  return bits_to_float(int32_t(uint32_t(float_to_bits(p)) + scale));
}
inline double exp_(double x) { return std::exp(x); }
inline float sigmoid_(float x) { return 1.0f / (1.0f + exp_(-x)); }
inline double sigmoid_(double x) { return 1.0 / (1.0 + std::exp(-x)); }
inline float tanh_(float x) {
  float s = x * x;
  float small = x * (1.0f + s * (-0.333333333f + s * (0.133333333f + s * (-0.053968254f + s * 0.021869489f))));
  float big = 1.0f - 2.0f / (exp_(2.0f * x) + 1.0f);
  return s < 0.04f ? small : big;
}
inline double tanh_(double x) { return std::tanh(x); }
inline double log1p_exp(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }

// ---- noise: a hash of the element's number and a 64-bit seed; 16 bits make |xi|, 16 bits make the copy's uniform ----
// Three rounds: after two, a chi-square of ten million neighbours still sees that they are neighbours.
inline uint32_t hash(uint32_t i, uint32_t low, uint32_t high) {
  uint32_t x = i + low;
  x ^= x >> 17; x *= 0xed5ad4bbU; x ^= high;
  x ^= x >> 11; x *= 0xac4c1b51U;
  x ^= x >> 15; x *= 0x31848babU;
  return x ^ (x >> 14);
}
// |xi| = sqrt(2) erfinv(u) in the middle u of one of 65536 equal cells, to 4e-5: u P(l) with l = log2(1 - u^2).
inline float half_normal(uint32_t cell) {
  const float u = float(int32_t(cell)) * (1.0f / 65536.0f) + (0.5f / 65536.0f);
  const int32_t b = float_to_bits(1.0f - u * u) - 0x3f3504f3;
  const float m = bits_to_float((b & 0x007fffff) + 0x3f3504f3) - 1.0f;
  const float l = (m * m * (0.51747867f - 0.32961177f * m) + (1.44176224f - 0.72490203f * m)) * m + float(b >> 23);
  const float l2 = l * l, l4 = l2 * l2;
  const float low = (1.25340081f - 2.27094101e-1f * l) + l2 * (8.20288289e-3f + 1.24016904e-3f * l);
  const float high = (-2.71294215e-5f - 1.54076101e-5f * l) + l2 * (-1.30156780e-6f - 4.87788563e-8f * l);
  return u * (low + l4 * (high - 7.14126873e-10f * l4));
}
// A unit is copied where its 16 bits are below this: uniform < p, to the resolution of 16 bits.
inline int32_t copy_threshold(double p) { return int32_t(std::ceil(clamp(p, 0.0, 1.0) * 65536.0)); }

struct Seed { uint32_t low, high; };
// Neighbouring seeds must not give shifted copies of the same noise, so the bits are mixed first (splitmix64).
inline Seed seed_of(uint64_t s) {
  s += 0x9e3779b97f4a7c15ULL;
  s = (s ^ (s >> 30)) * 0xbf58476d1ce4e5b9ULL;
  s = (s ^ (s >> 27)) * 0x94d049bb133111ebULL;
  s ^= s >> 31;
  return {uint32_t(s), uint32_t(s >> 32)};
}

// Two short loops take less time than one with a long chain in it.
STAGE void hash_chunk(Seed s, uint32_t first, int n, uint32_t* RESTRICT bits) {
  for (int k = 0; k < n; ++k) bits[k] = hash(first + k, s.low, s.high);
}
STAGE void normal_of(const uint32_t* RESTRICT bits, int n, float* RESTRICT xi) {
  for (int k = 0; k < n; ++k) xi[k] = half_normal(bits[k] & 0xffff);
}
inline void normal_chunk(Seed s, uint32_t first, int n, float* xi) {
  uint32_t bits[CHUNK];
  for (int k = 0; k < n; k += CHUNK) {
    const int width = n - k < CHUNK ? n - k : CHUNK;
    hash_chunk(s, first + k, width, bits);
    normal_of(bits, width, xi + k);
  }
}
inline bool is_copied(uint32_t bits, int32_t threshold) { return int32_t(bits >> 16) < threshold; }

// ---- activations: value and derivative of a chunk ----
enum Act { SIGMOID, HARD_SIGMOID, HARDSIGMOID, TANH, HARDTANH, RELU, LEAKY_RELU, ELU, SELU, SILU, GELU, GELU_TANH, SOFTPLUS, SOFTSIGN, MISH, RELU_OUTPUT };

struct Activation { int32_t kind; double slope, offset, first, second; };

template <class T>
STAGE void activate(const Activation& act, const T* RESTRICT x, T* RESTRICT f, T* RESTRICT d, int n) {
  const T A = T(act.first), B = T(act.second);
#define EACH(...) for (int k = 0; k < n; ++k) { const T v = x[k]; __VA_ARGS__ } break;
  switch (act.kind) {
    case SIGMOID: EACH(T y = sigmoid_(v); f[k] = y; d[k] = y * (T(1) - y);)
    case HARD_SIGMOID: EACH(T y = T(0.25) * v + T(0.5); f[k] = clamp(y, T(0), T(1)); d[k] = (y >= T(0)) & (y <= T(1)) ? T(0.25) : T(0);)
    case HARDSIGMOID: EACH(T y = v + T(3); f[k] = clamp(y, T(0), T(6)) / T(6); d[k] = (y >= T(0)) & (y <= T(6)) ? T(1.0 / 6.0) : T(0);)
    case TANH: EACH(T y = tanh_(v); f[k] = y; d[k] = T(1) - y * y;)
    case HARDTANH: EACH(f[k] = clamp(v, A, B); d[k] = (v > A) & (v < B) ? T(1) : T(0);)
    case RELU: EACH(f[k] = v > T(0) ? v : T(0); d[k] = v > T(0) ? T(1) : T(0);)
    case LEAKY_RELU: EACH(f[k] = v > T(0) ? v : A * v; d[k] = v > T(0) ? T(1) : A;)
    case ELU: EACH(T e = exp_(v < T(0) ? v : T(0)); f[k] = v > T(0) ? v : A * (e - T(1)); d[k] = v > T(0) ? T(1) : A * e;)
    case SELU: {
      const T scale = T(1.0507009873554804934193349852946), alpha = T(1.6732632423543772848170429916717);
      EACH(T e = exp_(v < T(0) ? v : T(0)); f[k] = scale * (v > T(0) ? v : alpha * (e - T(1))); d[k] = scale * (v > T(0) ? T(1) : alpha * e);)
    }
    case SILU: EACH(T y = sigmoid_(v); f[k] = v * y; d[k] = y * (T(1) + v * (T(1) - y));)
    case GELU: EACH(T c = T(0.5) * T(std::erfc(double(-v) * 0.70710678118654752)); f[k] = v * c;
                    d[k] = c + v * T(0.39894228040143268) * exp_(T(-0.5) * v * v);)
    case GELU_TANH: EACH(const T b = T(0.79788456080286536); T t = tanh_(b * (v + T(0.044715) * v * v * v)); f[k] = T(0.5) * v * (T(1) + t);
                         d[k] = T(0.5) * (T(1) + t) + T(0.5) * v * (T(1) - t * t) * b * (T(1) + T(0.134145) * v * v);)
    case SOFTPLUS: EACH(bool line = A * v > B; f[k] = line ? v : T(log1p_exp(double(A) * double(v)) / double(A)); d[k] = line ? T(1) : sigmoid_(A * v);)
    case SOFTSIGN: EACH(T y = T(1) / (T(1) + std::abs(v)); f[k] = v * y; d[k] = y * y;)
    case MISH: EACH(T t = T(std::tanh(log1p_exp(double(v)))); f[k] = v * t; d[k] = t + v * (T(1) - t * t) * sigmoid_(v);)
  }
#undef EACH
}

// tanh for the noise's scale, to 4e-7, where such an error is nothing beside 1; the activation's own tanh is better near 0.
inline float tanh_scale(float x) {
  x = clamp(x, -8.0f, 8.0f);
  const float s = x * x, s2 = s * s;
  const float p = (9.999993620e-1f + 1.291362557e-1f * s) + s2 * (2.938810943e-3f + 1.131004402e-5f * s);
  const float q = (1.0f + 4.624672427e-1f * s) + s2 * ((2.376375827e-2f + 2.370261104e-4f * s) + 2.423784061e-7f * s2);
  return x * p / q;
}
inline double tanh_scale(double x) { return std::tanh(x); }
inline float signed_as(float v, float other) { return bits_to_float(float_to_bits(v) ^ (float_to_bits(other) & INT32_MIN)); }
inline double signed_as(double v, double other) { return other > 0 ? v : -v; }

// What the push needs; `extra` is added to s: 0, or so much that psi is the tangent (p = 1 by the odds).
template <class T> struct Push { T slope, offset, strength, extra; };

// psi = f + clip(u - f, -s, s), s = strength tanh^2(a (u - f) / 2) / 4 |xi|; written over f.
template <class T>
STAGE void psi_values(const Push<T> p, const T* RESTRICT x, T* RESTRICT f, const T* RESTRICT a, const float* RESTRICT xi, int n) {
  for (int k = 0; k < n; ++k) {
    const T gap = p.slope * x[k] + p.offset - f[k];
    const T t = tanh_scale(T(0.5) * a[k] * gap);
    const T s = T(0.25) * p.strength * t * t * T(xi[k]) + p.extra;
    f[k] += clamp(gap, -s, s);
  }
}

// The same, with psi's derivatives by x (over d) and by a.
template <class T>
STAGE void psi_both(const Push<T> p, const T* RESTRICT x, T* RESTRICT f, T* RESTRICT d, const T* RESTRICT a,
                      const float* RESTRICT xi, T* RESTRICT by_a, int n) {
  const T quarter = T(0.25) * p.strength;
  for (int k = 0; k < n; ++k) {
    const T gap = p.slope * x[k] + p.offset - f[k], size = std::abs(gap);
    const T t = tanh_scale(T(0.5) * a[k] * gap);
    const T half = quarter * T(xi[k]) * t;
    const T s = half * t + p.extra;
    const T rate = half - half * t * t;  // d s / d(a gap)
    const T by_x = d[k] + signed_as(rate, gap) * a[k] * (p.slope - d[k]);
    d[k] = size < s ? p.slope : by_x;
    by_a[k] = size < s ? T(0) : rate * size;
    f[k] += clamp(gap, -s, s);
  }
}

inline float log_(float x) {
  const int32_t b = float_to_bits(x) - 0x3f3504f3;
  const float m = bits_to_float((b & 0x007fffff) + 0x3f3504f3) - 1.0f, e = float(b >> 23), z = m * m;
  float p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f; p = p * m + 1.1676998740e-1f; p = p * m - 1.2420140846e-1f; p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f; p = p * m + 2.0000714765e-1f; p = p * m - 2.4999993993e-1f; p = p * m + 3.3333331174e-1f;
  return m + (p * m * z - 0.5f * z - 2.12194440e-4f * e) + 0.693359375f * e;
}
inline double log_(double x) { return std::log(x); }

// The derivatives of a noisy ReLU by its output (RELU_OUTPUT), so that its input need not be kept. The output is x where x > 0; below,
// it is x itself where the push reaches that far, else -s, of which t = tanh(a x / 2) and then x follow.
template <class T>
STAGE void relu_back(const Push<T> p, const T* RESTRICT out, const T* RESTRICT a, const float* RESTRICT xi, T* RESTRICT by_x,
                     T* RESTRICT by_a, int n) {
  const T quarter = T(0.25) * p.strength, most = std::is_same_v<T, double> ? T(1 - 1e-15) : T(1 - 6e-8);
  for (int k = 0; k < n; ++k) {
    const T depth = out[k] < T(0) ? -out[k] : T(0), size = std::abs(a[k]);
    const T reached = tanh_scale(T(0.5) * size * depth);
    const bool whole = (out[k] > T(0)) | (quarter * T(xi[k]) * reached * reached + p.extra > depth);
    const T ratio = depth / (quarter * T(xi[k]) + T(1e-37)), t = std::sqrt(ratio < most ? ratio : most);
    const T rate = quarter * T(xi[k]) * (t - t * t * t);
    by_x[k] = whole ? T(1) : rate * size;
    // |x| |a| = log((1 + t) / (1 - t)); at a = 0 there is no push
    const T push = rate * log_((T(1) + t) / (T(1) - t)) / (size + T(1e-37));
    by_a[k] = whole ? T(0) : (a[k] > T(0) ? -push : push);
  }
}

// phi: below where the unit is copied, else what is there already (with below added, if residual). What is not taken must not
// be multiplied by 0 instead: it may be infinite.
template <bool residual, class T>
STAGE void mix(const uint32_t* RESTRICT bits, int32_t threshold, const T* RESTRICT below, T* RESTRICT f, int n) {
  for (int k = 0; k < n; ++k) f[k] = is_copied(bits[k], threshold) ? below[k] : (residual ? f[k] + below[k] : f[k]);
}

// The gradient by the unit's input and, summed up, by a: 0 where the unit is copied.
template <class T>
STAGE void back(const uint32_t* RESTRICT bits, int32_t threshold, const T* RESTRICT grad, const T* RESTRICT by_x, const T* RESTRICT by_a,
                T* RESTRICT out, T* RESTRICT out_a, int n) {
  for (int k = 0; k < n; ++k) {
    const bool copied = is_copied(bits[k], threshold);
    out[k] = copied ? T(0) : grad[k] * by_x[k];
    out_a[k] += copied ? T(0) : grad[k] * by_a[k];
  }
}

// The gradient by what a copy without noise does not copy, and the one that goes to below.
template <class T>
STAGE void keep(const uint32_t* RESTRICT bits, int32_t threshold, const T* RESTRICT grad, T* RESTRICT out, int n) {
  for (int k = 0; k < n; ++k) out[k] = is_copied(bits[k], threshold) ? T(0) : grad[k];
}
template <class T>
STAGE void pass(const uint32_t* RESTRICT bits, int32_t threshold, const T* RESTRICT grad, T* RESTRICT out, int n) {
  for (int k = 0; k < n; ++k) out[k] = is_copied(bits[k], threshold) ? grad[k] : T(0);
}

template <class T>
STAGE void add_to(const T* RESTRICT v, T* RESTRICT sum, int n) { for (int k = 0; k < n; ++k) sum[k] += v[k]; }

template <class T>
STAGE void times(const T* RESTRICT a, const T* RESTRICT b, T* RESTRICT out, int n) { for (int k = 0; k < n; ++k) out[k] = a[k] * b[k]; }

template <class S, class T>
STAGE void read_in(const S* RESTRICT from, T* RESTRICT to, int n) { for (int k = 0; k < n; ++k) to[k] = load(from[k]); }
template <class S, class T>
STAGE void write_out(const T* RESTRICT from, S* RESTRICT to, int n) { for (int k = 0; k < n; ++k) store(to[k], from[k]); }

}  // namespace mollifier
