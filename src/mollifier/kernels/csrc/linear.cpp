// A linear layer and its mollified unit where most units are copied: only those that are not are computed, exactly.
#include "common.h"
#include <algorithm>
#include <vector>

using namespace mollifier;

namespace {

typedef float Lanes __attribute__((vector_size(32), aligned(4), may_alias));

float dot(const float* a, const float* b, int n) {
  Lanes s0 = {}, s1 = {}, s2 = {}, s3 = {};
  int k = 0;
  for (; k + 32 <= n; k += 32) {
    s0 += *(const Lanes*)(a + k) * *(const Lanes*)(b + k);
    s1 += *(const Lanes*)(a + k + 8) * *(const Lanes*)(b + k + 8);
    s2 += *(const Lanes*)(a + k + 16) * *(const Lanes*)(b + k + 16);
    s3 += *(const Lanes*)(a + k + 24) * *(const Lanes*)(b + k + 24);
  }
  for (; k + 8 <= n; k += 8) s0 += *(const Lanes*)(a + k) * *(const Lanes*)(b + k);
  s0 += s1 + s2 + s3;
  float sum = ((s0[0] + s0[4]) + (s0[1] + s0[5])) + ((s0[2] + s0[6]) + (s0[3] + s0[7]));
  for (; k < n; ++k) sum += a[k] * b[k];
  return sum;
}

void axpy(float v, const float* RESTRICT x, float* RESTRICT y, int n) { for (int k = 0; k < n; ++k) y[k] += v * x[k]; }

struct Sizes { int64_t rows, in, out; };
constexpr int PIECES = 8;  // of the rows: fixed, so that sums do not depend on the threads

}  // namespace

extern "C" {

// x: (rows, in). y: (rows, out), out >= in: x is copied, padded with zeros. For the units that are not copied, row by row:
// index, and psi's derivatives by_x and by_a, each with room for `out` a row; count a row.
void mollifier_linear_forward(const int64_t* sizes, const Activation* act, double level, double strength, uint64_t seed, const float* x,
                              const float* w, const float* bias, const float* a, int64_t a_count, float* y, int32_t* count, int32_t* index,
                              float* by_x, float* by_a, int threads) {
  const Sizes s{sizes[0], sizes[1], sizes[2]};
  const int32_t threshold = copy_threshold(level);
  const Push<float> push{float(act->slope), float(act->offset), float(strength), 0.0f};
  const Seed key = seed_of(seed);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int piece = 0; piece < PIECES; ++piece) {
    std::vector<float> buffer(size_t(4) * s.out);
    float *xs = buffer.data(), *as = xs + s.out, *xi = as + s.out, *f = xi + s.out;
    int32_t uniform[CHUNK];
    for (int64_t row = piece * s.rows / PIECES; row < (piece + 1) * s.rows / PIECES; ++row) {
      const float* below = x + row * s.in;
      float* to = y + row * s.out;
      int32_t* list = index + row * s.out;
      int n = 0;
      for (int64_t unit = 0; unit < s.out; unit += CHUNK) {
        const int width = int(std::min<int64_t>(CHUNK, s.out - unit));
        uniform_chunk(key, uint32_t(row * s.out + unit), width, uniform);
        for (int k = 0; k < width; ++k) {
          list[n] = int32_t(unit) + k;
          n += uniform[k] >= threshold;
        }
      }
      count[row] = n;
      std::copy(below, below + s.in, to);
      std::fill(to + s.in, to + s.out, 0.0f);
      for (int k = 0; k < n; ++k) {
        const int32_t j = list[k];
        xs[k] = dot(w + j * s.in, below, int(s.in)) + (bias ? bias[j] : 0.0f);
        as[k] = a[a_count == 1 ? 0 : j];
        xi[k] = half_normal(hash(uint32_t(row * s.out + j), key.low, key.high) & 0xffff);
      }
      activate<float>(*act, xs, f, by_x + row * s.out, n);
      psi_both<float>(push, xs, f, by_x + row * s.out, as, xi, by_a + row * s.out, n);
      for (int k = 0; k < n; ++k) to[list[k]] = f[k];
    }
  }
}

// by_x is overwritten by the gradient at the pre-activations. grad_x may be null. grad_w, grad_bias, grad_a: zeros.
void mollifier_linear_backward(const int64_t* sizes, const float* grad, const float* x, const float* w, int64_t a_count,
                               const int32_t* count, const int32_t* index, float* by_x, const float* by_a, float* grad_x, float* grad_w,
                               float* grad_bias, float* grad_a, int threads) {
  const Sizes s{sizes[0], sizes[1], sizes[2]};
  std::vector<float> sums(size_t(PIECES) * s.out, 0.0f);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int piece = 0; piece < PIECES; ++piece) {
    float* sum = sums.data() + size_t(piece) * s.out;
    for (int64_t row = piece * s.rows / PIECES; row < (piece + 1) * s.rows / PIECES; ++row) {
      const int32_t* list = index + row * s.out;
      const float *g = grad + row * s.out, *da = by_a + row * s.out;
      float* dx = by_x + row * s.out;
      const int n = count[row];
      float* to = grad_x ? grad_x + row * s.in : nullptr;
      if (to) std::copy(g, g + s.in, to);
      for (int k = 0; k < n; ++k) {
        const int32_t j = list[k];
        sum[j] += g[j] * da[k];
        dx[k] *= g[j];
        if (to && j < s.in) to[j] -= g[j];
      }
      if (to)
        for (int k = 0; k < n; ++k) axpy(dx[k], w + list[k] * s.in, to, int(s.in));
    }
  }
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int piece = 0; piece < PIECES; ++piece) {  // of the units, now: each weight's gradient is summed by one thread, in order
    const int32_t low = int32_t(piece * s.out / PIECES), high = int32_t((piece + 1) * s.out / PIECES);
    for (int64_t row = 0; row < s.rows; ++row) {
      const int32_t* list = index + row * s.out;
      const int32_t* end = list + count[row];
      for (const int32_t* at = std::lower_bound(list, end, low); at < end && *at < high; ++at) {
        const float v = by_x[row * s.out + (at - list)];
        axpy(v, x + row * s.in, grad_w + *at * s.in, int(s.in));
        if (grad_bias) grad_bias[*at] += v;
      }
    }
  }
  for (int64_t j = 0; j < s.out; ++j)
    for (int piece = 0; piece < PIECES; ++piece) grad_a[a_count == 1 ? 0 : j] += sums[size_t(piece) * s.out + j];
}
}
