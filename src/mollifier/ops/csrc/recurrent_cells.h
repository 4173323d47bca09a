// One row of one step of an LSTM or a GRU, forward and backward. The forward pass stores all derivatives, so that the
// backward pass need not compute any noise or activation again.
#pragma once
#include "stages.h"
#include <algorithm>

namespace mollifier {

// Tells the compiler that the parts of a row do not overlap, which it cannot know.
#ifdef __clang__
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

// hard: whether the gates are hard sigmoids. expected: whether the noise is replaced by its mean. gemm: torch's matrix product, for a single
// step, whose weights are not worth packing; null if there is none. by_states: whether the gradients of the initial states are wanted.
struct Options {
  bool hard, gates, activations, expected;
  int64_t steps, batch;
  int inputs, hidden;
  double level, c;
  bool odds;
  void* gemm;
  bool by_states;
};

// One direction of a layer: what it reads (b_ih, b_hh, a, grad_final_h and grad_final_c may be missing) and what it fills (grad_x and
// grad_a may be missing). With n rows in total and the cell's 4 (LSTM) or 3 (GRU) parts, the shapes are: z, kept, grad_z, grad_hh
// (n, parts * hidden); x, grad_x (n, inputs); out, mixed, grad_out (n, hidden); states and their gradients (batch, hidden). If no backward
// pass will follow, keep is 0 and kept has as many rows as the batch. copies: whether x, of at most `hidden` columns, is copied into out; then
// mixed receives the result, and grad_out is its gradient. The gates' t is time or, if that is 0, the row's position in its sequence, counted
// from 1, plus time_before; it never exceeds time_cap, unless that is 0.
template <class T>
struct Direction {
  bool reverse, keep, copies;
  int64_t time, time_before, time_cap;
  double copy_level;
  uint64_t seed, copy_seed;
  const T *x, *w_ih, *w_hh, *b_ih, *b_hh, *a, *h0, *c0;
  T *z, *kept, *out, *mixed, *final_h, *final_c;
  const T *grad_out, *grad_final_h, *grad_final_c;
  T *grad_z, *grad_hh, *grad_x, *grad_w_ih, *grad_w_hh, *grad_b_ih, *grad_b_hh, *grad_a, *grad_h, *grad_c;

  T* kept_of(int64_t row, int64_t sequence, int64_t width) const { return kept + (keep ? row : sequence) * width; }
};

// Runs the forward or the backward pass and fills the results of each direction. sizes: the rows of each step. Defined in recurrent.cpp.
template <class T>
void recurrent(bool lstm, bool backward, const Options& o, const int64_t* sizes, const Direction<T>* d, int directions, int threads);

// Some units of one row: the row, the sequence it belongs to, 1/t, the states before it, the first unit and the number of units, their noise
// and, in the backward pass, the gradient that comes from above.
template <class T>
struct Row {
  int64_t row, sequence;
  T inverse_t;
  const T *h_before, *c_before;
  int first, count;
  const float* xi;
  const T* up;
};

template <class T> T* from(T* data, int first) { return data ? data + first : nullptr; }

// aim: what a gate's input is pulled to, the gate function's inverse at the target. The result is live * gate + held: the gate itself or,
// for expected values at level 1, the target.
template <class T> struct Target { T aim, live, held; };

template <bool hard, class T>
inline Slope<T> gate(T z, T weight, const Target<T>& to) {
  const T at = z + weight * (to.aim - z), rest = T(1) - weight;
  if (hard) {
    const T line = T(0.25) * at + T(0.5);
    return {to.live * clamp(line, T(0), T(1)) + to.held, (line >= T(0)) & (line <= T(1)) ? T(0.25) * rest : T(0)};
  }
  const Slope<T> s = sigmoid_both(at);
  return {to.live * s.value + to.held, s.slope * rest};
}

// psi of the tanh, whose tangent is x itself.
template <bool noisy, class T>
inline Psi<T> candidate(T x, T a, T quarter_xi, T extra) {
  const T f = tanh_(x), d = T(1) - f * f;
  if (!noisy) return {f, d, T(0)};
  return psi(f, d, x - f, T(1), a, quarter_xi, extra);
}

template <bool hard, class T>
Target<T> target_of(const Options& o, T gamma) {
  const bool held = o.gates && o.expected && o.level >= 1.0;
  const T g = clamp(gamma, T(1e-4), T(1.0 - 1e-4));  // rounded in the same way as in the reference
  return {hard ? T(4) * (gamma - T(0.5)) : std::log(g / (T(1) - g)), T(held ? 0 : 1), held ? gamma : T(0)};
}

template <class T> Push<T> push_of(const Options& o) { return push_of<T>(Activation{TANH, 1.0, 0.0, 0.0, 0.0}, o.level, o.c, o.odds, o.expected); }
template <class T> T pull_of(const Options& o) { return o.gates ? T(o.expected ? o.level : o.level / HALF_NORMAL_MEAN) : T(0); }
template <class T>
T inverse_t(const Direction<T>& d, int64_t position) {
  const int64_t t = d.time ? d.time : d.time_before + position;
  return T(1.0 / double(d.time_cap ? std::min(t, d.time_cap) : t));
}

// What the loop over the steps must know about a cell.
template <class T>
struct Cell {
  int parts, gates, activations;  // the parts of z; the noisy gates and activations
  bool sum;                       // whether the recurrent product is added to the input's part in z; otherwise it is stored in kept
  int same;                       // the number of parts whose two biases have the same gradient
  void (*forward)(const Options&, const Direction<T>&, const Row<T>&);
  void (*backward)(const Options&, const Direction<T>&, const Row<T>&);
};

template <class T, bool hard, bool noisy>
struct LSTM {
  static constexpr int PARTS = 4;
  static Cell<T> cell() { return {PARTS, 3, 2, true, PARTS, forward, backward}; }

  // z is overwritten with the derivatives of c (for o: of h) with respect to the four pre-activations. kept receives the derivative of h with
  // respect to c, then f, the derivative of h with respect to the second a, and that of c with respect to the first a. Three short loops take
  // less time than one with a long dependency chain.
  STAGE static void forward(T pull, Target<T> to_i, Target<T> to_f, Target<T> to_o, T strength, T extra, const T* RESTRICT a, int h,
                            const float* RESTRICT xi, int n, const T* before, T* RESTRICT z, T* RESTRICT kept, T* c, T* RESTRICT out) {
    INDEPENDENT for (int j = 0; j < n; ++j) {
      const Slope<T> i = gate<hard>(z[j], pull * T(xi[j]), to_i), f = gate<hard>(z[h + j], pull * T(xi[n + j]), to_f);
      const Slope<T> o = gate<hard>(z[3 * h + j], pull * T(xi[2 * n + j]), to_o);
      kept[j] = i.value, kept[h + j] = f.value, kept[2 * h + j] = o.value;
      z[j] = i.slope, z[h + j] = f.slope, z[3 * h + j] = o.slope;
    }
    INDEPENDENT for (int j = 0; j < n; ++j) {
      const Psi<T> g = candidate<noisy>(z[2 * h + j], noisy ? a[j] : T(0), strength * T(xi[3 * n + j]), extra);
      const T i = kept[j], last = before[j];  // before may be the same memory as c
      c[j] = kept[h + j] * last + i * g.value;
      z[j] *= g.value;
      z[h + j] *= last;
      z[2 * h + j] = i * g.by_x;
      kept[3 * h + j] = i * g.by_a;
    }
    INDEPENDENT for (int j = 0; j < n; ++j) {
      const Psi<T> y = candidate<noisy>(c[j], noisy ? a[h + j] : T(0), strength * T(xi[4 * n + j]), extra);
      const T o = kept[2 * h + j];
      out[j] = o * y.value;
      z[3 * h + j] *= y.value;
      kept[j] = o * y.by_x;
      kept[2 * h + j] = o * y.by_a;
    }
  }
  static void forward(const Options& o, const Direction<T>& d, const Row<T>& r) {
    const int h = o.hidden;
    const int64_t at = r.row * h + r.first, wide = r.row * PARTS * h + r.first;
    const Push<T> push = push_of<T>(o);
    forward(pull_of<T>(o), target_of<hard>(o, r.inverse_t), target_of<hard>(o, T(1) - r.inverse_t), target_of<hard>(o, T(1)), push.quarter,
            push.extra, from(d.a, r.first), h, r.xi, r.count, r.c_before + r.first, d.z + wide, d.kept_of(r.row, r.sequence, PARTS * h) + r.first,
            d.final_c + r.sequence * h + r.first, d.out + at);
  }

  STAGE static void backward(const T* RESTRICT z, const T* RESTRICT kept, const T* RESTRICT up, T* RESTRICT gh, T* RESTRICT gc,
                             T* RESTRICT gz, T* RESTRICT gb, T* RESTRICT ga, int h, int n) {
    INDEPENDENT for (int j = 0; j < n; ++j) {
      const T dh = gh[j] + up[j], dc = gc[j] + dh * kept[j];
      const T i = dc * z[j], f = dc * z[h + j], g = dc * z[2 * h + j], o = dh * z[3 * h + j];
      gz[j] = i, gz[h + j] = f, gz[2 * h + j] = g, gz[3 * h + j] = o;
      gb[j] += i, gb[h + j] += f, gb[2 * h + j] += g, gb[3 * h + j] += o;
      if (noisy) ga[h + j] += dh * kept[2 * h + j], ga[j] += dc * kept[3 * h + j];
      gc[j] = dc * kept[h + j];
      gh[j] = T(0);
    }
  }
  static void backward(const Options& o, const Direction<T>& d, const Row<T>& r) {
    const int h = o.hidden;
    const int64_t at = r.sequence * h + r.first, wide = r.row * PARTS * h + r.first;
    backward(d.z + wide, d.kept + wide, r.up, d.grad_h + at, d.grad_c + at, d.grad_z + wide, d.grad_b_ih + r.first,
             from(d.grad_a, r.first), h, r.count);
  }
};

template <class T, bool hard, bool noisy>
struct GRU {
  static constexpr int PARTS = 3;
  static Cell<T> cell() { return {PARTS, 2, 1, false, 2, forward, backward}; }

  // z, the input's part, is overwritten with the derivatives of the new h with respect to the three pre-activations; kept, the recurrent part,
  // with the derivative of h with respect to a, the value of the reset gate and that of the update gate.
  STAGE static void forward(T pull, Target<T> to_r, Target<T> to_u, T strength, T extra, const T* RESTRICT a, int h, const float* RESTRICT xi, int n,
                            const T* RESTRICT before, T* RESTRICT z, T* RESTRICT kept, T* RESTRICT out) {
    INDEPENDENT for (int j = 0; j < n; ++j) {
      const Slope<T> r = gate<hard>(z[j] + kept[j], pull * T(xi[j]), to_r);
      const Slope<T> u = gate<hard>(z[h + j] + kept[h + j], pull * T(xi[n + j]), to_u);
      const T hidden = kept[2 * h + j];
      const Psi<T> y = candidate<noisy>(z[2 * h + j] + r.value * hidden, noisy ? a[j] : T(0), strength * T(xi[2 * n + j]), extra);
      const T rest = T(1) - u.value, v = rest * y.by_x;
      out[j] = rest * y.value + u.value * before[j];
      z[j] = v * hidden * r.slope;
      z[h + j] = (before[j] - y.value) * u.slope;
      z[2 * h + j] = v;
      kept[j] = rest * y.by_a;
      kept[h + j] = r.value;
      kept[2 * h + j] = u.value;
    }
  }
  static void forward(const Options& o, const Direction<T>& d, const Row<T>& r) {
    const int h = o.hidden;
    const int64_t wide = r.row * PARTS * h + r.first;
    const Push<T> push = push_of<T>(o);
    forward(pull_of<T>(o), target_of<hard>(o, T(1)), target_of<hard>(o, T(1) - r.inverse_t), push.quarter, push.extra, from(d.a, r.first), h,
            r.xi, r.count, r.h_before + r.first, d.z + wide, d.kept_of(r.row, r.sequence, PARTS * h) + r.first, d.out + r.row * h + r.first);
  }

  STAGE static void backward(const T* RESTRICT z, const T* RESTRICT kept, const T* RESTRICT up, T* RESTRICT gh, T* RESTRICT gz,
                             T* RESTRICT ghh, T* RESTRICT gb, T* RESTRICT gb_hh, T* RESTRICT ga, int h, int n) {
    INDEPENDENT for (int j = 0; j < n; ++j) {
      const T dh = gh[j] + up[j], r = dh * z[j], u = dh * z[h + j], y = dh * z[2 * h + j], hidden = y * kept[h + j];
      gz[j] = r, gz[h + j] = u, gz[2 * h + j] = y;
      ghh[j] = r, ghh[h + j] = u, ghh[2 * h + j] = hidden;
      gb[j] += r, gb[h + j] += u, gb[2 * h + j] += y, gb_hh[2 * h + j] += hidden;
      if (noisy) ga[j] += dh * kept[j];
      gh[j] = dh * kept[2 * h + j];
    }
  }
  static void backward(const Options& o, const Direction<T>& d, const Row<T>& r) {
    const int h = o.hidden;
    const int64_t wide = r.row * PARTS * h + r.first;
    backward(d.z + wide, d.kept + wide, r.up, d.grad_h + r.sequence * h + r.first, d.grad_z + wide, d.grad_hh + wide,
             d.grad_b_ih + r.first, d.grad_b_hh + r.first, from(d.grad_a, r.first), h, r.count);
  }
};

}  // namespace mollifier
