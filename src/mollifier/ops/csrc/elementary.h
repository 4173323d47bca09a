// Number types, and elementary functions that the compiler can vectorise.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace mollifier {

// Work is done in stages over a chunk. A stage is a function of its own, so that the compiler vectorises its loop.
#define RESTRICT __restrict__
#define STAGE __attribute__((noinline)) inline
constexpr int CHUNK = 512;  // elements processed at a time: all buffers stay in the first-level cache

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

// float: polynomials and quotients, accurate to a few ulp, in Estrin's order, because the longest dependency chain limits a loop's speed.
// double: the C library.
inline float magnitude(float x) { return bits_to_float(float_to_bits(x) & INT32_MAX); }
inline double magnitude(double x) { return std::abs(x); }
// Returns v >= 0 with the sign of the other number.
inline float signed_as(float v, float other) { return bits_to_float(float_to_bits(v) ^ (float_to_bits(other) & INT32_MIN)); }
inline double signed_as(double v, double other) { return std::copysign(v, other); }
// NaN stays NaN. The bounds are variables: for a constant, the compiler emits a comparison and a selection instead of one minimum.
inline float at_most(float x, float top) { return top < x ? top : x; }
__attribute__((visibility("hidden"))) inline float EXP_BOUND = 87.0f, TANH_BOUND = 9.0f, TAIL_BOUND = 14.0f, ONE = 1.0f;

inline float exp_within(float x) {  // |x| <= 87
  float n = x * 1.44269504089f + 12582912.0f;  // rounds to the nearest integer, which the lowest bits now hold
  const uint32_t scale = uint32_t(float_to_bits(n)) << 23;
  n -= 12582912.0f;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f, r2 = r * r;
  const float high = (4.1668390798e-2f + 8.3687452569e-3f * r) + r2 * 1.3814539967e-3f;  // error 3e-9
  const float p = (1.0f + r) + r2 * ((4.9999993432e-1f + 1.6666520398e-1f * r) + r2 * high);
  return bits_to_float(int32_t(uint32_t(float_to_bits(p)) + scale));
}
inline float exp_(float x) { return exp_within(signed_as(at_most(magnitude(x), EXP_BOUND), x)); }
inline double exp_(double x) { return std::exp(x); }

// The sigmoid and its derivative, both accurate to the last digits even where they are nearly 0.
template <class T> struct Slope { T value, slope; };
inline Slope<float> sigmoid_both(float x) {
  const float e = exp_within(-at_most(magnitude(x), EXP_BOUND)), most = 1.0f / (1.0f + e), rest = e * most;
  return {x < 0.0f ? rest : most, rest * most};
}
inline Slope<double> sigmoid_both(double x) {
  const double e = std::exp(-std::abs(x)), most = 1.0 / (1.0 + e), rest = e * most;
  return {x < 0.0 ? rest : most, rest * most};
}
template <class T> inline T sigmoid_(T x) { return sigmoid_both(x).value; }

// tanh |x|, by a quotient whose relative error is at most 3.3e-7.
inline float tanh_magnitude(float x) {
  const float m = at_most(magnitude(x), TANH_BOUND), s = m * m, s2 = s * s;
  const float p = (9.9999997946e-1f + 1.3381021037e-1f * s) + s2 * ((3.4955826673e-3f + 2.0608993634e-5f * s) + 1.3354542562e-8f * s2);
  const float q = (1.0f + 4.6714336633e-1f * s) + s2 * ((2.5876961401e-2f + 3.2856259272e-4f * s) + 7.7765087021e-7f * s2);
  return at_most(m * p / q, ONE);
}
inline double tanh_magnitude(double x) { return std::tanh(std::abs(x)); }
template <class T> inline T tanh_(T x) { return signed_as(tanh_magnitude(x), x); }
inline double log1p_exp(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }
inline float log_(float x) {
  const int32_t b = float_to_bits(x) - 0x3f3504f3;
  const float m = bits_to_float((b & 0x007fffff) + 0x3f3504f3) - 1.0f, e = float(b >> 23), z = m * m;
  float p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f; p = p * m + 1.1676998740e-1f; p = p * m - 1.2420140846e-1f; p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f; p = p * m + 2.0000714765e-1f; p = p * m - 2.4999993993e-1f; p = p * m + 3.3333331174e-1f;
  return m + (p * m * z - 0.5f * z - 2.12194440e-4f * e) + 0.693359375f * e;
}
inline double log_(double x) { return std::log(x); }

// The probability that a standard normal variable exceeds z >= 0, where e = exp(-z^2 / 2); float: by a quotient with relative error 6e-9.
inline float upper_tail(float z, float e) {
  const float m = at_most(z, TAIL_BOUND), s = m * m, s2 = s * s;
  const float p = (5.0000000276e-1f + 4.3725084410e-1f * m) + s * (1.8246177909e-1f + 4.0372535841e-2f * m) + s2 * 4.0776070821e-3f;
  const float q = (1.0f + 1.6723866436f * m) + s * (1.1992905218f + 4.6742896425e-1f * m) + s2 * (1.0120574981e-1f + 1.0220916452e-2f * m);
  return e * (p / q);
}
inline double upper_tail(double z, double) { return 0.5 * std::erfc(z * 0.70710678118654752); }

template <class T>
STAGE void add_to(const T* RESTRICT v, T* RESTRICT sum, int n) { for (int k = 0; k < n; ++k) sum[k] += v[k]; }

}  // namespace mollifier
