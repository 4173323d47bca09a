// A linear layer and its mollified unit where most units are copied: only the other units are computed, and exactly. float32 only.
#pragma once
#include "stages.h"
#include <algorithm>
#include <vector>

namespace mollifier {

typedef float Lanes __attribute__((vector_size(32), aligned(4), may_alias));
inline Lanes lanes(const float* at) { return *(const Lanes*)at; }
inline float sum_of(Lanes s) { return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7])); }

// Computes the products of four rows of w with x; x is read once for all four.
inline void dot4(const float* const* w, const float* x, int n, float* out) {
  const float *w0 = w[0], *w1 = w[1], *w2 = w[2], *w3 = w[3];
  Lanes s0 = {}, s1 = {}, s2 = {}, s3 = {};
  int k = 0;
  for (; k + 8 <= n; k += 8) {
    const Lanes v = lanes(x + k);
    s0 += lanes(w0 + k) * v;
    s1 += lanes(w1 + k) * v;
    s2 += lanes(w2 + k) * v;
    s3 += lanes(w3 + k) * v;
  }
  float sums[4] = {sum_of(s0), sum_of(s1), sum_of(s2), sum_of(s3)};
  for (int r = 0; r < 4; ++r) {
    for (int l = k; l < n; ++l) sums[r] += w[r][l] * x[l];
    out[r] = sums[r];
  }
}

// y += v0 x0 + v1 x1 + v2 x2 + v3 x3
inline void axpy4(const float* v, const float* const* x, float* y, int n) {
  const float *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];
  const float v0 = v[0], v1 = v[1], v2 = v[2], v3 = v[3];
  int k = 0;
  for (; k + 8 <= n; k += 8) *(Lanes*)(y + k) += (v0 * lanes(x0 + k) + v1 * lanes(x1 + k)) + (v2 * lanes(x2 + k) + v3 * lanes(x3 + k));
  for (; k < n; ++k) y[k] += (v0 * x0[k] + v1 * x1[k]) + (v2 * x2[k] + v3 * x3[k]);
}

inline void axpy(float v, const float* RESTRICT x, float* RESTRICT y, int n) { for (int k = 0; k < n; ++k) y[k] += v * x[k]; }

// y += the sum of v[k] row(k)
template <class Row>
inline void weighted_sum(const float* v, int64_t count, Row row, float* y, int n) {
  int64_t k = 0;
  for (; k + 4 <= count; k += 4) {
    const float* rows[4] = {row(k), row(k + 1), row(k + 2), row(k + 3)};
    axpy4(v + k, rows, y, n);
  }
  for (; k < count; ++k) axpy(v[k], row(k), y, n);
}

struct Sizes {
  int64_t rows, in, out;
  // Rows are grouped into blocks, and blocks into pieces for the threads. Both groupings are fixed, so that no sum depends on the threads.
  static constexpr int64_t TALL = 16;
  int64_t blocks() const { return (rows + TALL - 1) / TALL; }
  int pieces() const { return int(std::min<int64_t>(8, blocks())); }
};

// What is kept for the backward pass of a block of rows, in room for 2 numbers per unit: the number of units computed in each row and, for
// each of these units, its index and psi's derivatives with respect to x and to a.
struct Block {
  int64_t first, rows;
  int32_t* counts;
  Block(const Sizes& s, float* slots, int64_t number)
      : first(number * Sizes::TALL), rows(std::min(Sizes::TALL, s.rows - first)), counts((int32_t*)(slots + 2 * first * s.out)) {}
  int total() const {
    int sum = 0;
    for (int64_t row = 0; row < rows; ++row) sum += counts[row];
    return sum;
  }
  int32_t* index() const { return counts + rows; }
  float* by_x(int total) const { return (float*)(index() + total); }
  float* by_a(int total) const { return by_x(total) + total; }
};

template <class Body>
void each_block(const Sizes& s, float* slots, int threads, Body body) {
  const int pieces = s.pieces();
  const int64_t blocks = s.blocks();
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int piece = 0; piece < pieces; ++piece)
    for (int64_t number = piece * blocks / pieces; number < (piece + 1) * blocks / pieces; ++number) body(piece, Block(s, slots, number));
}

STAGE void computed(const uint32_t* RESTRICT bits, int32_t threshold, uint8_t* RESTRICT flags, int n) {
  for (int k = 0; k < n; ++k) flags[k] = !is_copied(bits[k], threshold);
}

// Lists the units to compute. Returns false if some block has too many of them; then the whole layer must be computed.
inline bool sparse_list(const Sizes& s, double level, Seed key, float* slots, int threads) {
  const int32_t threshold = copy_threshold(level);
  std::vector<uint8_t> fits(s.pieces(), 1);
  each_block(s, slots, threads, [&](int piece, const Block& block) {
    uint32_t bits[CHUNK];
    uint8_t flags[CHUNK] = {};
    const int64_t most = (2 * block.rows * s.out - block.rows) / 3;
    int64_t n = 0;
    for (int64_t row = 0; row < block.rows; ++row) {
      const int64_t before = n;
      for (int64_t unit = 0; unit < s.out && fits[piece]; unit += CHUNK) {
        const int width = int(std::min<int64_t>(CHUNK, s.out - unit));
        hash_chunk(key, uint32_t((block.first + row) * s.out + unit), width, bits);
        computed(bits, threshold, flags, width);
        for (int k = 0; k < width; k += 8) {
          if (n + 8 > most) {
            fits[piece] = 0;
            break;
          }
          const int last = std::min(8, width - k);
          uint64_t eight = 0;
          std::memcpy(&eight, flags + k, last);
          if (!eight) continue;
          for (int l = 0; l < last; ++l) {
            block.index()[n] = int32_t(unit) + k + l;
            n += flags[k + l];
          }
        }
      }
      block.counts[row] = int32_t(n - before);
    }
  });
  return std::all_of(fits.begin(), fits.end(), [](uint8_t each) { return each; });
}

STAGE void hash_each(Seed s, const uint32_t* RESTRICT places, int n, uint32_t* RESTRICT bits) {
  for (int k = 0; k < n; ++k) bits[k] = hash(places[k], s.low, s.high);
}

// x: (rows, in). y: (rows, out), out >= in. x is copied, padded with zeros, except in the listed units.
inline void sparse_forward(const Sizes& s, const Activation& act, const Push<float>& push, Seed key, const float* x, const float* w,
                           const float* bias, const float* a, int64_t a_count, float* slots, float* y, int threads) {
  each_block(s, slots, threads, [&](int, const Block& block) {
    const int total = block.total();
    const int32_t* list = block.index();
    std::vector<float> buffer(size_t(4) * (total + 4));
    float *xs = buffer.data(), *as = xs + total + 4, *xi = as + total, *f = xi + total;
    std::vector<uint32_t> places(total), bits(total);
    for (int64_t row = 0, k = 0; row < block.rows; ++row) {
      const int64_t at = block.first + row, end = k + block.counts[row];
      const float* below = x + at * s.in;
      std::copy(below, below + s.in, y + at * s.out);
      std::fill(y + at * s.out + s.in, y + (at + 1) * s.out, 0.0f);
      for (int64_t first = k; first < end; first += 4) {
        const float* rows[4];
        for (int r = 0; r < 4; ++r) rows[r] = w + int64_t(list[std::min(first + r, end - 1)]) * s.in;
        dot4(rows, below, int(s.in), xs + first);
      }
      for (; k < end; ++k) {
        const int32_t j = list[k];
        if (bias) xs[k] += bias[j];
        as[k] = a[a_count == 1 ? 0 : j];
        places[k] = uint32_t(at * s.out) + j;
      }
    }
    hash_each(key, places.data(), total, bits.data());
    normal_of(bits.data(), total, xi);
    activate<float>(act, xs, f, block.by_x(total), total);
    psi_both<float>(push, xs, f, block.by_x(total), as, xi, block.by_a(total), total);
    for (int64_t row = 0, k = 0; row < block.rows; ++row)
      for (const int64_t end = k + block.counts[row]; k < end; ++k) y[(block.first + row) * s.out + list[k]] = f[k];
  });
}

// grad_x and the gradients of the learned parameters may be null. `scratch` has room for rows x out numbers.
inline void sparse_backward(const Sizes& s, const float* grad, const float* x, const float* w, const float* kept, float* scratch,
                            float* grad_x, float* grad_w, float* grad_bias, float* grad_a, int64_t a_count, int threads) {
  float* slots = (float*)kept;  // only read
  std::vector<float> sums(size_t(s.pieces()) * s.out, 0.0f);
  each_block(s, slots, threads, [&](int piece, const Block& block) {
    float *sum = sums.data() + size_t(piece) * s.out, *at = scratch + block.first * s.out;
    const int total = block.total();
    const int32_t* list = block.index();
    const float *dx = block.by_x(total), *da = block.by_a(total);
    for (int64_t row = 0, k = 0; row < block.rows; ++row) {
      const float* g = grad + (block.first + row) * s.out;
      float* to = grad_x ? grad_x + (block.first + row) * s.in : nullptr;
      if (to) std::copy(g, g + s.in, to);
      const int64_t begin = k;
      for (const int64_t end = k + block.counts[row]; k < end; ++k) {
        const int32_t j = list[k];
        sum[j] += g[j] * da[k];
        at[k] = g[j] * dx[k];
        if (to && j < s.in) to[j] = 0.0f;
      }
      if (to) weighted_sum(at + begin, k - begin, [&](int64_t r) { return w + list[begin + r] * s.in; }, to, int(s.in));
    }
  });
  if (grad_a && a_count == 1) grad_a[0] = 0.0f;
  for (int64_t j = 0; grad_a && j < s.out; ++j) {
    float total = 0.0f;
    for (int piece = 0; piece < s.pieces(); ++piece) total += sums[size_t(piece) * s.out + j];
    if (a_count == 1) grad_a[0] += total;
    else grad_a[j] = total;
  }
  if (!grad_w && !grad_bias) return;
  // The same numbers are sorted by unit instead of by row, so that each weight's gradient is summed by one thread, in order.
  std::vector<int64_t> first(s.out + 2, 0);
  for (int64_t number = 0; number < s.blocks(); ++number) {
    const Block block(s, slots, number);
    for (int k = 0, n = block.total(); k < n; ++k) ++first[block.index()[k] + 2];
  }
  for (int64_t j = 0; j < s.out; ++j) first[j + 2] += first[j + 1];
  std::vector<int64_t> from(first[s.out + 1]);
  std::vector<float> values(first[s.out + 1]);
  for (int64_t number = 0; number < s.blocks(); ++number) {
    const Block block(s, slots, number);
    for (int64_t row = 0, k = 0; row < block.rows; ++row)
      for (const int64_t end = k + block.counts[row]; k < end; ++k) {
        const int64_t place = first[block.index()[k] + 1]++;
        from[place] = block.first + row;
        values[place] = scratch[block.first * s.out + k];
      }
  }
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
  for (int64_t j = 0; j < s.out; ++j) {
    const float* v = values.data() + first[j];
    const int64_t* rows = from.data() + first[j];
    const int64_t n = first[j + 1] - first[j];
    if (grad_w) {
      std::fill(grad_w + j * s.in, grad_w + (j + 1) * s.in, 0.0f);
      weighted_sum(v, n, [&](int64_t k) { return x + rows[k] * s.in; }, grad_w + j * s.in, int(s.in));
    }
    if (!grad_bias) continue;
    float sum = 0.0f;
    for (int64_t k = 0; k < n; ++k) sum += v[k];
    grad_bias[j] = sum;
  }
}

}  // namespace mollifier
