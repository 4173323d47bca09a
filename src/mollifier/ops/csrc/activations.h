// The activations of the table: their values and derivatives for a chunk.
#pragma once
#include "elementary.h"

namespace mollifier {

enum Act { SIGMOID, HARD_SIGMOID, HARDSIGMOID, TANH, HARDTANH, RELU, LEAKY_RELU, ELU, SELU, SILU, GELU, GELU_TANH, SOFTPLUS, SOFTSIGN, MISH, RELU_OUTPUT };

struct Activation { int32_t kind; double slope, offset, first, second; };

template <class T>
STAGE void activate(const Activation& act, const T* RESTRICT x, T* RESTRICT f, T* RESTRICT d, int n) {
  const T A = T(act.first), B = T(act.second);
#define EACH(...) for (int k = 0; k < n; ++k) { const T v = x[k]; __VA_ARGS__ } break;
  switch (act.kind) {
    case SIGMOID: EACH(const Slope<T> y = sigmoid_both(v); f[k] = y.value; d[k] = y.slope;)
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
    case GELU: EACH(const T e = exp_(T(-0.5) * v * v), tail = upper_tail(magnitude(v), e), c = v < T(0) ? tail : T(1) - tail; f[k] = v * c;
                    d[k] = c + v * T(0.39894228040143268) * e;)
    case GELU_TANH: EACH(const T b = T(0.79788456080286536); T t = tanh_(b * (v + T(0.044715) * v * v * v)); f[k] = T(0.5) * v * (T(1) + t);
                         d[k] = T(0.5) * (T(1) + t) + T(0.5) * v * (T(1) - t * t) * b * (T(1) + T(0.134145) * v * v);)
    case SOFTPLUS: EACH(bool line = A * v > B; f[k] = line ? v : T(log1p_exp(double(A) * double(v)) / double(A)); d[k] = line ? T(1) : sigmoid_(A * v);)
    case SOFTSIGN: EACH(T y = T(1) / (T(1) + std::abs(v)); f[k] = v * y; d[k] = y * y;)
    case MISH: EACH(const T e = exp_(v < T(20) ? v : T(20)), w = e * (e + T(2)), t = w / (w + T(2)); f[k] = v * t;
                    d[k] = t + v * (T(1) - t * t) * sigmoid_(v);)
  }
#undef EACH
}

}  // namespace mollifier
