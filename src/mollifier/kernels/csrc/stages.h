// The stages of a unit: push, copy, and their derivatives.
#pragma once
#include "activations.h"
#include "noise.h"

namespace mollifier {

// What the push needs; `extra` is added to s: 0, or so much that psi is the tangent (p = 1 by the odds).
template <class T> struct Push { T slope, offset, strength, extra; };

// psi = f + clip(u - f, -s, s), s = strength tanh^2(a (u - f) / 2) / 4 |xi|; written over f.
template <class T>
STAGE void psi_values(const Push<T> p, const T* RESTRICT x, T* RESTRICT f, const T* RESTRICT a, const float* RESTRICT xi, int n) {
  for (int k = 0; k < n; ++k) {
    const T gap = p.slope * x[k] + p.offset - f[k];
    const T t = tanh_magnitude(T(0.5) * a[k] * gap);
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
    const T gap = p.slope * x[k] + p.offset - f[k];
    const T t = tanh_magnitude(T(0.5) * a[k] * gap);
    const T half = quarter * T(xi[k]) * t, s = half * t + p.extra;
    const T rate = half - half * t * t;  // |d s / d(a gap)|
    const bool whole = magnitude(gap) < s;
    d[k] = whole ? p.slope : d[k] + rate * magnitude(a[k]) * (p.slope - d[k]);
    by_a[k] = whole ? T(0) : signed_as(rate, a[k]) * gap;
    f[k] += clamp(gap, -s, s);
  }
}

// The derivatives of a noisy ReLU by its output (RELU_OUTPUT), so that its input need not be kept. The output is x where x > 0; below,
// it is x itself where the push reaches that far, else -s, of which t = tanh(a x / 2) and then x follow.
template <class T>
STAGE void relu_back(const Push<T> p, const T* RESTRICT out, const T* RESTRICT a, const float* RESTRICT xi, T* RESTRICT by_x,
                     T* RESTRICT by_a, int n) {
  const T quarter = T(0.25) * p.strength, most = std::is_same_v<T, double> ? T(1 - 1e-15) : T(1 - 6e-8);
  for (int k = 0; k < n; ++k) {
    const T depth = out[k] < T(0) ? -out[k] : T(0), size = magnitude(a[k]);
    const T reached = tanh_magnitude(T(0.5) * size * depth);
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
STAGE void times(const T* RESTRICT a, const T* RESTRICT b, T* RESTRICT out, int n) { for (int k = 0; k < n; ++k) out[k] = a[k] * b[k]; }

template <class S, class T>
STAGE void read_in(const S* RESTRICT from, T* RESTRICT to, int n) { for (int k = 0; k < n; ++k) to[k] = load(from[k]); }
template <class S, class T>
STAGE void write_out(const T* RESTRICT from, S* RESTRICT to, int n) { for (int k = 0; k < n; ++k) store(to[k], from[k]); }

}  // namespace mollifier
