// The stages of a unit: push, copy, and their derivatives.
#pragma once
#include "activations.h"
#include "noise.h"
#include <algorithm>
#include <limits>

namespace mollifier {

constexpr double HALF_NORMAL_MEAN = 0.79788456080286535588;

// What the push needs. `extra` is added to s: it is 0, or so large that psi is the tangent (p = 1 by the odds).
template <class T> struct Push { T slope, offset, quarter, extra; };

// s = c p sigma |xi|, or c p / (1 - p) sigma |xi| by the odds. For expected values |xi| is replaced by its mean, and xi is passed as 1.
template <class T>
Push<T> push_of(const Activation& act, double level, double c, bool odds, bool expected) {
  const double strength = odds ? c * level / std::max(1.0 - level, 1e-6) : c * level;
  return {T(act.slope), T(act.offset), T(0.25 * strength * (expected ? HALF_NORMAL_MEAN : 1.0)), odds && level >= 1.0 ? T(1e30) : T(0)};
}

// Algorithm 1 for one element, implemented only here: psi = f + clip(u - f, -s, s), s = strength tanh^2(a (u - f) / 2) / 4 |xi|, and its
// derivatives with respect to x and to a. f: the activation, d: its derivative, gap: u - f.
template <class T> struct Psi { T value, by_x, by_a; };
template <class T>
inline Psi<T> psi(T f, T d, T gap, T slope, T a, T quarter_xi, T extra) {
  const T t = tanh_magnitude(T(0.5) * a * gap), half = quarter_xi * t, most = half * t, s = most + extra;
  const T rate = half - most * t;  // |d s / d(a gap)|
  const bool whole = magnitude(gap) < s;
  const T by_scale = signed_as(rate, a);
  return {f + clamp(gap, -s, s), whole ? slope : d + by_scale * a * (slope - d), whole ? T(0) : by_scale * gap};
}

// Computes psi for a chunk and overwrites f with it.
template <class T>
STAGE void psi_values(const Push<T> p, const T* RESTRICT x, T* RESTRICT f, const T* RESTRICT a, const float* RESTRICT xi, int n) {
  for (int k = 0; k < n; ++k) f[k] = psi(f[k], T(0), p.slope * x[k] + p.offset - f[k], p.slope, a[k], p.quarter * T(xi[k]), p.extra).value;
}

// Does the same, and also computes psi's derivatives with respect to x (overwriting d) and to a.
template <class T>
STAGE void psi_both(const Push<T> p, const T* RESTRICT x, T* RESTRICT f, T* RESTRICT d, const T* RESTRICT a,
                    const float* RESTRICT xi, T* RESTRICT by_a, int n) {
  for (int k = 0; k < n; ++k) {
    const Psi<T> found = psi(f[k], d[k], p.slope * x[k] + p.offset - f[k], p.slope, a[k], p.quarter * T(xi[k]), p.extra);
    f[k] = found.value, d[k] = found.by_x, by_a[k] = found.by_a;
  }
}

template <class T> constexpr T TINY = T(1e-37);

// Computes the derivatives of a noisy ReLU from its output (RELU_OUTPUT), so that its input need not be kept. The output is x where x > 0.
// Below 0 it is -s if the push ends before it reaches x, with s = strength t^2 and |a x| = log((1 + t) / (1 - t)); otherwise the push takes
// it to x. by_a is |a| times the derivative, which saves one division per element.
template <class T>
STAGE void relu_back(const Push<T> p, const T* RESTRICT out, const T* RESTRICT a, const float* RESTRICT xi, T* RESTRICT by_x,
                     T* RESTRICT by_a, int n) {
  const T most = std::is_same_v<T, double> ? T(1 - 1e-15) : T(1 - 6e-8);
  for (int k = 0; k < n; ++k) {
    const T depth = out[k] < T(0) ? -out[k] : T(0), size = magnitude(a[k]), strength = p.quarter * T(xi[k]) + TINY<T>;
    const T ratio = depth / strength, squared = ratio < most ? ratio : most, t = std::sqrt(squared);
    const T far = log_((T(1) + t) / (T(1) - t)), rate = strength * (t - t * squared);
    const bool whole = (out[k] > T(0)) | (far < (depth + p.extra) * (size + TINY<T>));
    by_x[k] = whole ? T(1) : rate * size;
    by_a[k] = whole ? T(0) : signed_as(rate * far, -a[k]);
  }
}

// phi: below where the unit is copied, otherwise the value already there (with below added, if residual). The value that is not taken is
// discarded rather than multiplied by 0, because it may be infinite.
template <bool residual, class T>
STAGE void mix(const uint32_t* RESTRICT bits, int32_t threshold, const T* RESTRICT below, T* RESTRICT f, int n) {
  for (int k = 0; k < n; ++k) f[k] = is_copied(bits[k], threshold) ? below[k] : (residual ? f[k] + below[k] : f[k]);
}

template <class T>
STAGE void choose(const uint32_t* RESTRICT bits, int32_t threshold, const T* RESTRICT below, const T* RESTRICT f, T* RESTRICT out, int n) {
  for (int k = 0; k < n; ++k) out[k] = is_copied(bits[k], threshold) ? below[k] : f[k];
}

// Marks the units that are copied, by a derivative with respect to a that no other unit has: s and its derivatives are finite. A backward pass
// for which derivatives are kept therefore needs no noise.
template <class T> constexpr T COPIED = std::numeric_limits<T>::infinity();
template <class T>
STAGE void mark(const uint32_t* RESTRICT bits, int32_t threshold, T* RESTRICT by_a, int n) {
  for (int k = 0; k < n; ++k) by_a[k] = is_copied(bits[k], threshold) ? COPIED<T> : by_a[k];
}

// The gradient with respect to the unit's input and, summed, with respect to a; both are 0 where the unit is copied.
template <class T>
STAGE void back(const T* RESTRICT grad, const T* RESTRICT by_x, const T* RESTRICT by_a, T* RESTRICT out, T* RESTRICT out_a, int n) {
  for (int k = 0; k < n; ++k) {
    const bool copied = by_a[k] == COPIED<T>;
    out[k] = copied ? T(0) : grad[k] * by_x[k];
    out_a[k] += copied ? T(0) : grad[k] * by_a[k];
  }
}
// The gradient that goes to below. In one loop with the others, their last bits would depend on whether it is wanted.
template <class T>
STAGE void pass_marked(const T* RESTRICT grad, const T* RESTRICT by_a, T* RESTRICT out, int n) {
  for (int k = 0; k < n; ++k) out[k] = by_a[k] == COPIED<T> ? grad[k] : T(0);
}

// For a copy without noise: the gradient of the units that are not copied, and the gradient that goes to below.
template <class T>
STAGE void keep(const uint32_t* RESTRICT bits, int32_t threshold, const T* RESTRICT grad, T* RESTRICT out, int n) {
  for (int k = 0; k < n; ++k) out[k] = is_copied(bits[k], threshold) ? T(0) : grad[k];
}
template <class T>
STAGE void pass(const uint32_t* RESTRICT bits, int32_t threshold, const T* RESTRICT grad, T* RESTRICT out, int n) {
  for (int k = 0; k < n; ++k) out[k] = is_copied(bits[k], threshold) ? grad[k] : T(0);
}

// The same for expected values: of each unit, the fraction p is copied and 1 - p is not.
template <bool residual, class T>
STAGE void mix_mean(T p, const T* RESTRICT below, T* RESTRICT f, int n) {
  for (int k = 0; k < n; ++k) f[k] = p * below[k] + (T(1) - p) * (residual ? f[k] + below[k] : f[k]);
}
template <class T>
STAGE void back_mean(T p, const T* RESTRICT grad, const T* RESTRICT by_x, const T* RESTRICT by_a, T* RESTRICT out, T* RESTRICT out_a, int n) {
  for (int k = 0; k < n; ++k) {
    const T mine = (T(1) - p) * grad[k];
    out[k] = mine * by_x[k];
    out_a[k] += mine * by_a[k];
  }
}
template <class T>
STAGE void scaled(T factor, const T* RESTRICT v, T* RESTRICT out, int n) { for (int k = 0; k < n; ++k) out[k] = factor * v[k]; }

template <class S, class T>
STAGE void read_in(const S* RESTRICT from, T* RESTRICT to, int n) { for (int k = 0; k < n; ++k) to[k] = load(from[k]); }
template <class S, class T>
STAGE void write_out(const T* RESTRICT from, S* RESTRICT to, int n) { for (int k = 0; k < n; ++k) store(to[k], from[k]); }

}  // namespace mollifier
