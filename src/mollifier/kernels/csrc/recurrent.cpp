// Whole sequences of a mollified LSTM or GRU layer, one direction: the recurrent product step by step, everything else fused.
// Rows of all steps lie one after the other, longest sequence first; step t has sizes[t] rows, never more than the step before.
#include "common.h"
#include <algorithm>
#include <vector>

using namespace mollifier;

namespace {

constexpr double HALF_NORMAL_MEAN = 0.79788456080286535588;
constexpr int PARTS = 4;  // pieces of a step's rows: they depend on the shape alone, and so does every sum

template <class T>
using Gemm = void (*)(const char*, const char*, const int*, const int*, const int*, const T*, const T*, const int*, const T*, const int*,
                      const T*, T*, const int*);

// C (m x n) += A (m x k) B, all row-major; B is (n x k) if transposed, else (k x n).
template <class T>
void product(Gemm<T> gemm, bool transposed, int m, int n, int k, const T* a, const T* b, T* c) {
  const T one = 1;
  const int ldb = transposed ? k : n;
  if (m > 0) gemm(transposed ? "T" : "N", "N", &n, &m, &k, &one, b, &ldb, a, &k, &one, c, &n);
}

struct Options {
  int32_t hard, gates, activations;
  int32_t steps, batch, hidden, reverse;
  double level, strength, extra;
};

// Gates of one row: value over z's copy, and derivative by z. A function for each kind: a choice inside the loop would not vectorise.
template <class T>
STAGE void soft_gate(T pull, T aim, const T* RESTRICT z, const float* RESTRICT xi, T* RESTRICT value, T* RESTRICT slope, int n) {
  for (int k = 0; k < n; ++k) {
    const T weight = pull * T(xi[k]);
    const T s = sigmoid_(z[k] + weight * (aim - z[k]));
    value[k] = s;
    slope[k] = s * (T(1) - s) * (T(1) - weight);
  }
}

template <class T>
STAGE void hard_gate(T pull, T aim, const T* RESTRICT z, const float* RESTRICT xi, T* RESTRICT value, T* RESTRICT slope, int n) {
  for (int k = 0; k < n; ++k) {
    const T weight = pull * T(xi[k]);
    const T line = T(0.25) * (z[k] + weight * (aim - z[k])) + T(0.5);
    value[k] = clamp(line, T(0), T(1));
    slope[k] = (line >= T(0)) & (line <= T(1)) ? T(0.25) * (T(1) - weight) : T(0);
  }
}

template <class T>
void gate(int hard, T pull, T aim, const T* z, const float* xi, T* value, T* slope, int n) {
  if (hard) hard_gate<T>(pull, aim, z, xi, value, slope, n);
  else soft_gate<T>(pull, aim, z, xi, value, slope, n);
}

// Where each step's rows begin, and the state before each step: the rows before it, and the initial state's for the rest.
struct Steps {
  std::vector<int64_t> first;
  const int64_t* sizes;
  int count, batch;
  bool reverse;
  Steps(const Options& o, const int64_t* sizes) : first(o.steps + 1, 0), sizes(sizes), count(o.steps), batch(o.batch), reverse(o.reverse) {
    for (int t = 0; t < count; ++t) first[t + 1] = first[t] + sizes[t];
  }
  int at(int number) const { return reverse ? count - 1 - number : number; }
  // Row of the step before that sequence `row` of step t continues, or -1: it begins here.
  int64_t before(int t, int64_t row) const {
    const int last = reverse ? t + 1 : t - 1;
    if (last < 0 || last >= count || row >= sizes[last]) return -1;
    return first[last] + row;
  }
  int64_t continuing(int t) const {
    const int last = reverse ? t + 1 : t - 1;
    return last < 0 || last >= count ? 0 : std::min(sizes[t], sizes[last]);
  }
};

// Everything about one row of one step, in buffers of the row's thread.
template <class T>
struct Row {
  std::vector<T> buffer;
  std::vector<float> xi;
  int h;
  explicit Row(int h) : buffer(size_t(16) * h), xi(size_t(5) * h), h(h) {}
  T* at(int i) { return buffer.data() + size_t(i) * h; }
  float* noise(int i) { return xi.data() + size_t(i) * h; }
};

template <class T>
T inverse_gate(int hard, T gamma) {
  if (hard) return T(4) * (gamma - T(0.5));
  const T g = clamp(gamma, T(1e-4), T(1.0 - 1e-4));  // rounded as the reference rounds it
  return std::log(g / (T(1) - g));
}

// psi of the tanh: value and, where asked, both derivatives, of a whole row.
template <class T>
void candidate(const Options& o, const T* a, const T* x, const float* xi, T* value, T* by_x, T* by_a) {
  const Activation tanh_{TANH, 1.0, 0.0, 0.0, 0.0};
  activate<T>(tanh_, x, value, by_x, o.hidden);
  if (!o.activations) { std::fill(by_a, by_a + o.hidden, T(0)); return; }
  const Push<T> push{T(1), T(0), T(o.strength), T(o.extra)};
  psi_both<T>(push, x, value, by_x, a, xi, by_a, o.hidden);
}

template <class T>
STAGE void lstm_cell(const T* RESTRICT i, const T* RESTRICT f, const T* RESTRICT g, const T* RESTRICT before, T* RESTRICT c, int n) {
  for (int j = 0; j < n; ++j) c[j] = f[j] * before[j] + i[j] * g[j];
}

// All that the backward pass needs, so that it has no noise and no activation to make again: over z the derivatives of the
// four pre-activations by c (o: by h), and in `kept` those of c and of both a, and f.
template <class T>
void lstm_keep(Row<T>& r, const T* before, T* z, T* kept) {
  const int h = r.h;
  const T *i = r.at(0), *f = r.at(1), *o = r.at(2), *y = r.at(9);
  times<T>(r.at(6), r.at(3), z, h);
  times<T>(before, r.at(4), z + h, h);
  times<T>(i, r.at(7), z + 2 * h, h);
  times<T>(y, r.at(5), z + 3 * h, h);
  times<T>(o, r.at(10), kept, h);
  times<T>(o, r.at(11), kept + h, h);
  times<T>(i, r.at(8), kept + 2 * h, h);
  std::copy(f, f + h, kept + 3 * h);
}

template <class T>
STAGE void lstm_back(const T* RESTRICT z, const T* RESTRICT kept, const T* RESTRICT up, T* RESTRICT gh, T* RESTRICT gc, T* RESTRICT gz,
                     T* RESTRICT sum, int h) {
  for (int j = 0; j < h; ++j) {
    const T dh = gh[j] + up[j];
    const T dc = gc[j] + dh * kept[j];
    gz[j] = dc * z[j];
    gz[h + j] = dc * z[h + j];
    gz[2 * h + j] = dc * z[2 * h + j];
    gz[3 * h + j] = dh * z[3 * h + j];
    sum[j] += dc * kept[2 * h + j];
    sum[h + j] += dh * kept[h + j];
    gc[j] = dc * kept[3 * h + j];
    gh[j] = T(0);
  }
}

// z: in the input's part, out what lstm_keep leaves, as kept: (rows, 4h) each. out, cell: (rows, h).
template <class T>
void lstm_forward(const Options& o, Gemm<T> gemm, const int64_t* sizes, const T* w_hh, const T* inverse_t, const T* a, uint64_t seed,
                  const T* h0, const T* c0, T* z, T* kept, T* out, T* cell, int threads) {
  const Steps steps(o, sizes);
  const int h = o.hidden;
  const Seed key = seed_of(seed);
  const T pull = o.gates ? T(o.level / HALF_NORMAL_MEAN) : T(0);
  for (int number = 0; number < o.steps; ++number) {
    const int t = steps.at(number);
    const int64_t first = steps.first[t], rows = sizes[t], going = steps.continuing(t);
    const int64_t from = going ? steps.before(t, 0) : 0;
    product<T>(gemm, true, int(going), 4 * h, h, out + from * h, w_hh, z + first * 4 * h);
    product<T>(gemm, true, int(rows - going), 4 * h, h, h0 + going * h, w_hh, z + (first + going) * 4 * h);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && rows * h > 2048)
    for (int part = 0; part < PARTS; ++part) {
      static thread_local Row<T> mine(0);
      if (mine.h != h) mine = Row<T>(h);
      Row<T>& r = mine;
      for (int64_t k = part * rows / PARTS; k < (part + 1) * rows / PARTS; ++k) {
        const int64_t row = first + k, before = steps.before(t, k);
        const T* c_before = before >= 0 ? cell + before * h : c0 + k * h;
        T *c = cell + row * h, *zr = z + row * 4 * h;
        if (o.gates || o.activations) normal_chunk(key, uint32_t(row * 5 * h), 5 * h, r.noise(0));
        // i f o (0-2), their slopes (3-5), g (6) by x (7) by a (8), psi(c) (9) by c (10) by a (11)
        gate<T>(o.hard, pull, inverse_gate<T>(o.hard, inverse_t[row]), zr, r.noise(0), r.at(0), r.at(3), h);
        gate<T>(o.hard, pull, inverse_gate<T>(o.hard, T(1) - inverse_t[row]), zr + h, r.noise(1), r.at(1), r.at(4), h);
        gate<T>(o.hard, pull, inverse_gate<T>(o.hard, T(1)), zr + 3 * h, r.noise(2), r.at(2), r.at(5), h);
        candidate<T>(o, a, zr + 2 * h, r.noise(3), r.at(6), r.at(7), r.at(8));
        lstm_cell<T>(r.at(0), r.at(1), r.at(6), c_before, c, h);
        candidate<T>(o, a + h, c, r.noise(4), r.at(9), r.at(10), r.at(11));
        times<T>(r.at(2), r.at(9), out + row * h, h);
        if (kept) lstm_keep<T>(r, c_before, zr, kept + row * 4 * h);
      }
    }
  }
}

// grad_h, grad_c: (batch, h), in the gradients of the final states, out those of the initial ones. grad_z: (rows, 4h), zeros or not.
template <class T>
void lstm_backward(const Options& o, Gemm<T> gemm, const int64_t* sizes, const T* w_hh, const T* z, const T* kept, const T* grad_out,
                   T* grad_h, T* grad_c, T* grad_z, T* grad_a, int threads) {
  const Steps steps(o, sizes);
  const int h = o.hidden;
  std::vector<T> sums(size_t(PARTS) * 2 * h, T(0));
  for (int number = o.steps - 1; number >= 0; --number) {
    const int t = steps.at(number);
    const int64_t first = steps.first[t], rows = sizes[t];
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && rows * h > 8192)
    for (int part = 0; part < PARTS; ++part)
      for (int64_t k = part * rows / PARTS; k < (part + 1) * rows / PARTS; ++k) {
        const int64_t row = first + k;
        lstm_back<T>(z + row * 4 * h, kept + row * 4 * h, grad_out + row * h, grad_h + k * h, grad_c + k * h, grad_z + row * 4 * h,
                     sums.data() + size_t(part) * 2 * h, h);
      }
    product<T>(gemm, false, int(rows), h, 4 * h, grad_z + first * 4 * h, w_hh, grad_h);
  }
  // the first a's sums came with dc, the second's with dh
  for (int j = 0; j < 2 * h; ++j)
    for (int part = 0; part < PARTS; ++part) grad_a[j] += sums[size_t(part) * 2 * h + j];
}

template <class T>
STAGE void mix_state(const T* RESTRICT u, const T* RESTRICT n, const T* RESTRICT before, T* RESTRICT out, int h) {
  for (int j = 0; j < h; ++j) out[j] = (T(1) - u[j]) * n[j] + u[j] * before[j];
}

template <class T>
STAGE void add_product(const T* RESTRICT a, const T* RESTRICT b, T* RESTRICT out, int n) { for (int j = 0; j < n; ++j) out[j] += a[j] * b[j]; }

// Over x the derivatives of the three pre-activations by the new h, over hh that of a, the reset gate and the update gate.
template <class T>
STAGE void gru_keep(const T* RESTRICT r, const T* RESTRICT u, const T* RESTRICT dr, const T* RESTRICT du, const T* RESTRICT n,
                    const T* RESTRICT nx, const T* RESTRICT na, const T* RESTRICT before, T* RESTRICT x, T* RESTRICT hh, int h) {
  for (int j = 0; j < h; ++j) {
    const T rest = T(1) - u[j];
    const T v = rest * nx[j];
    x[j] = v * hh[2 * h + j] * dr[j];
    x[h + j] = (before[j] - n[j]) * du[j];
    x[2 * h + j] = v;
    hh[j] = rest * na[j];
    hh[h + j] = r[j];
    hh[2 * h + j] = u[j];
  }
}

template <class T>
STAGE void gru_back(const T* RESTRICT x, const T* RESTRICT hh, const T* RESTRICT up, T* RESTRICT gh, T* RESTRICT gx, T* RESTRICT ghh,
                    T* RESTRICT sum, int h) {
  for (int j = 0; j < h; ++j) {
    const T dh = gh[j] + up[j];
    const T r = dh * x[j], z = dh * x[h + j], n = dh * x[2 * h + j];
    gx[j] = r;
    gx[h + j] = z;
    gx[2 * h + j] = n;
    ghh[j] = r;
    ghh[h + j] = z;
    ghh[2 * h + j] = n * hh[h + j];
    sum[j] += dh * hh[j];
    gh[j] = dh * hh[2 * h + j];
  }
}

// x: (rows, 3h), the input's part; hh: (rows, 3h), filled with b_hh. Both take what gru_keep leaves.
template <class T>
void gru_forward(const Options& o, Gemm<T> gemm, const int64_t* sizes, const T* w_hh, const T* inverse_t, const T* a, uint64_t seed,
                 const T* h0, T* x, T* hh, T* out, int threads) {
  const Steps steps(o, sizes);
  const int h = o.hidden;
  const Seed key = seed_of(seed);
  const T pull = o.gates ? T(o.level / HALF_NORMAL_MEAN) : T(0);
  for (int number = 0; number < o.steps; ++number) {
    const int t = steps.at(number);
    const int64_t first = steps.first[t], rows = sizes[t], going = steps.continuing(t);
    const int64_t from = going ? steps.before(t, 0) : 0;
    product<T>(gemm, true, int(going), 3 * h, h, out + from * h, w_hh, hh + first * 3 * h);
    product<T>(gemm, true, int(rows - going), 3 * h, h, h0 + going * h, w_hh, hh + (first + going) * 3 * h);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && rows * h > 2048)
    for (int part = 0; part < PARTS; ++part) {
      static thread_local Row<T> mine(0);
      if (mine.h != h) mine = Row<T>(h);
      Row<T>& r = mine;
      for (int64_t k = part * rows / PARTS; k < (part + 1) * rows / PARTS; ++k) {
        const int64_t row = first + k, before = steps.before(t, k);
        const T* h_before = before >= 0 ? out + before * h : h0 + k * h;
        T *xr = x + row * 3 * h, *hr = hh + row * 3 * h;
        if (o.gates || o.activations) normal_chunk(key, uint32_t(row * 3 * h), 3 * h, r.noise(0));
        add_to<T>(hr, xr, 2 * h);
        // r u (0-1), their slopes (2-3), n (5) by x (6) by a (7)
        gate<T>(o.hard, pull, inverse_gate<T>(o.hard, T(1)), xr, r.noise(0), r.at(0), r.at(2), h);
        gate<T>(o.hard, pull, inverse_gate<T>(o.hard, T(1) - inverse_t[row]), xr + h, r.noise(1), r.at(1), r.at(3), h);
        add_product<T>(r.at(0), hr + 2 * h, xr + 2 * h, h);
        candidate<T>(o, a, xr + 2 * h, r.noise(2), r.at(5), r.at(6), r.at(7));
        mix_state<T>(r.at(1), r.at(5), h_before, out + row * h, h);
        gru_keep<T>(r.at(0), r.at(1), r.at(2), r.at(3), r.at(5), r.at(6), r.at(7), h_before, xr, hr, h);
      }
    }
  }
}

template <class T>
void gru_backward(const Options& o, Gemm<T> gemm, const int64_t* sizes, const T* w_hh, const T* x, const T* hh, const T* grad_out, T* grad_h,
                  T* grad_x, T* grad_hh, T* grad_a, int threads) {
  const Steps steps(o, sizes);
  const int h = o.hidden;
  std::vector<T> sums(size_t(PARTS) * h, T(0));
  for (int number = o.steps - 1; number >= 0; --number) {
    const int t = steps.at(number);
    const int64_t first = steps.first[t], rows = sizes[t];
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && rows * h > 8192)
    for (int part = 0; part < PARTS; ++part)
      for (int64_t k = part * rows / PARTS; k < (part + 1) * rows / PARTS; ++k) {
        const int64_t row = first + k;
        gru_back<T>(x + row * 3 * h, hh + row * 3 * h, grad_out + row * h, grad_h + k * h, grad_x + row * 3 * h, grad_hh + row * 3 * h,
                    sums.data() + size_t(part) * h, h);
      }
    product<T>(gemm, false, int(rows), h, 3 * h, grad_hh + first * 3 * h, w_hh, grad_h);
  }
  for (int j = 0; j < h; ++j)
    for (int part = 0; part < PARTS; ++part) grad_a[j] += sums[size_t(part) * h + j];
}

}  // namespace

#define EXPORT(name, T)                                                                                                                   \
  void mollifier_lstm_forward_##name(const Options* o, void* gemm, const int64_t* sizes, const T* w, const T* time, const T* a,           \
                                     uint64_t seed, const T* h0, const T* c0, T* z, T* kept, T* out, T* cell, int threads) {              \
    lstm_forward<T>(*o, (Gemm<T>)gemm, sizes, w, time, a, seed, h0, c0, z, kept, out, cell, threads);                                     \
  }                                                                                                                                       \
  void mollifier_lstm_backward_##name(const Options* o, void* gemm, const int64_t* sizes, const T* w, const T* z, const T* kept,          \
                                      const T* grad_out, T* grad_h, T* grad_c, T* grad_z, T* grad_a, int threads) {                       \
    lstm_backward<T>(*o, (Gemm<T>)gemm, sizes, w, z, kept, grad_out, grad_h, grad_c, grad_z, grad_a, threads);                            \
  }                                                                                                                                       \
  void mollifier_gru_forward_##name(const Options* o, void* gemm, const int64_t* sizes, const T* w, const T* time, const T* a,            \
                                    uint64_t seed, const T* h0, T* x, T* hh, T* out, int threads) {                                       \
    gru_forward<T>(*o, (Gemm<T>)gemm, sizes, w, time, a, seed, h0, x, hh, out, threads);                                                  \
  }                                                                                                                                       \
  void mollifier_gru_backward_##name(const Options* o, void* gemm, const int64_t* sizes, const T* w, const T* x, const T* hh,             \
                                     const T* grad_out, T* grad_h, T* grad_x, T* grad_hh, T* grad_a, int threads) {                       \
    gru_backward<T>(*o, (Gemm<T>)gemm, sizes, w, x, hh, grad_out, grad_h, grad_x, grad_hh, grad_a, threads);                              \
  }

extern "C" {
EXPORT(float, float)
EXPORT(double, double)
}
