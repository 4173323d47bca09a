// Matrix products for few rows. The right factor is packed into panels of columns, once for a whole sequence, and the inner loop
// reads it in order. Every element is one sum in a fixed order, which does not depend on how rows and panels are divided.
#pragma once
#include "elementary.h"
#include <algorithm>
#include <initializer_list>
#include <memory>
#include <utility>

namespace mollifier {

#ifdef __AVX512F__
constexpr int VECTOR_BYTES = 64;
#else
constexpr int VECTOR_BYTES = 32;
#endif
template <class T> constexpr int LANES = VECTOR_BYTES / int(sizeof(T));
template <class T> constexpr int WIDTH = 2 * LANES<T>;  // the number of columns of a panel
constexpr int TALL = VECTOR_BYTES == 64 ? 12 : 6;  // rows of a tile: its 24 or 12 sums, a row of the panel and a factor fill the registers
constexpr int DEPTH = VECTOR_BYTES == 64 ? 800 : 384;  // depth of a tile: low tiles need their part of a panel in the first-level cache
constexpr int STRETCH = 96;                            // rows that are multiplied with a panel in turn: they stay in the second-level cache

inline int pieces(int total, int size) { return (total + size - 1) / size; }
inline int evenly(int total, int most) { return pieces(total, pieces(total, most)); }  // no small piece is left over at the end

// Memory that a thread keeps for its next call: returning it to the system and requesting it again costs more than the packing.
template <class T, int place>
T* workspace(size_t count) {
  static thread_local std::unique_ptr<T[]> kept;
  static thread_local size_t size = 0;
  if (size < count) kept.reset(new T[count]), size = count;
  return kept.get();
}

// Element (row, depth) is at row * by_row + depth * by_depth. Passed by reference, because copying it costs more than the call.
template <class T> struct Left { const T* data; int64_t by_row, by_depth; };
template <class T> struct Start { const T* data; int64_t by_row; };  // what the product is added to

// Computes c = start + a b for R rows and the first N columns of a panel: two vectors, one vector or half of one.
template <class T, int R, int N>
void tile(int depth, const Left<T>& a, const T* b, const Start<T>& start, T* c, int64_t c_row) {
  constexpr int LANE = std::min(N, LANES<T>), PARTS = N / LANE;
  typedef T Vector __attribute__((vector_size(LANE * sizeof(T))));
  typedef T Loose __attribute__((vector_size(LANE * sizeof(T)), aligned(sizeof(T)), may_alias));  // for unaligned loads and stores
  Vector sum[R][PARTS], right[PARTS];  // in registers, if the loops over them are unrolled
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int p = 0; p < PARTS; ++p) sum[r][p] = *(const Loose*)(start.data + r * start.by_row + p * LANE);
  const T* x = a.data;
  for (int l = 0; l < depth; ++l, x += a.by_depth, b += WIDTH<T>) {
#pragma GCC unroll 2
    for (int p = 0; p < PARTS; ++p) right[p] = *(const Loose*)(b + p * LANE);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int p = 0; p < PARTS; ++p) sum[r][p] += x[r * a.by_row] * right[p];
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int p = 0; p < PARTS; ++p) *(Loose*)(c + r * c_row + p * LANE) = sum[r][p];
}

// Does the same for up to TALL rows, and for the last panel, which may have fewer columns than a whole one.
template <class T, int N, int... R>
void tile_of(std::integer_sequence<int, R...>, int rows, int width, int depth, const Left<T>& a, const T* b, const Start<T>& start, T* c, int64_t c_row) {
  static constexpr void (*tiles[])(int, const Left<T>&, const T*, const Start<T>&, T*, int64_t) = {tile<T, R + 1, N>...};
  if (width == N) return tiles[rows - 1](depth, a, b, start, c, c_row);
  T whole[TALL * N];
  for (int r = 0; r < rows; ++r) std::fill(std::copy_n(start.data + r * start.by_row, width, whole + r * N), whole + (r + 1) * N, T(0));
  tiles[rows - 1](depth, a, b, {whole, N}, whole, N);
  for (int r = 0; r < rows; ++r) std::copy_n(whole + r * N, width, c + r * c_row);
}
template <class T>
STAGE void any_tile(int rows, int width, int depth, const Left<T>& a, const T* b, const Start<T>& start, T* c, int64_t c_row) {
  constexpr int L = LANES<T>;
  constexpr std::make_integer_sequence<int, TALL> heights;
  if (width > L) return tile_of<T, 2 * L>(heights, rows, width, depth, a, b, start, c, c_row);
  if (width > L / 2) return tile_of<T, L>(heights, rows, width, depth, a, b, start, c, c_row);
  tile_of<T, L / 2>(heights, rows, width, depth, a, b, start, c, c_row);
}

// Computes c = start + a b for any number of rows and one panel. start may be c.
template <class T>
void panel_product(int64_t rows, int width, int depth, const Left<T>& a, const T* b, Start<T> start, T* c, int64_t c_row) {
  const int deep = evenly(depth, DEPTH);
  const int64_t tiles = (rows + TALL - 1) / TALL;
  for (int l = 0; l < depth; l += deep, start = {c, c_row})
    for (int64_t k = 0; k < tiles; ++k) {
      // all tiles have nearly the same height, because a low tile takes as long as a tall one
      const int64_t r = rows * k / tiles, end = rows * (k + 1) / tiles;
      any_tile<T>(int(end - r), width, std::min(deep, depth - l), {a.data + r * a.by_row + l * a.by_depth, a.by_row, a.by_depth},
                  b + int64_t(l) * WIDTH<T>, {start.data + r * start.by_row, start.by_row}, c + r * c_row, c_row);
    }
}

// Packs a panel of the transpose of w (columns x depth): its columns are rows of w, transposed in 4 x 4 squares while the next rows are
// prefetched.
template <class T>
void pack_transposed(const T* w, int width, int depth, T* out) {
  constexpr int W = WIDTH<T>;
  typedef T Four __attribute__((vector_size(4 * sizeof(T))));
  typedef T Loose __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));
  if (width < W) std::fill_n(out, int64_t(depth) * W, T(0));
  const int whole = width & ~3, deep = depth & ~3;
  for (int j = 0; j < whole; j += 4)
    for (int l = 0; l < deep; l += 4) {
      const T* from = w + int64_t(j) * depth + l;
      Four v[4];
      for (int i = 0; i < 4; ++i) v[i] = *(const Loose*)(from + int64_t(i) * depth), __builtin_prefetch(from + int64_t(8 + i) * depth);
      for (int i = 0; i < 4; ++i) *(Loose*)(out + (l + i) * W + j) = Four{v[0][i], v[1][i], v[2][i], v[3][i]};
    }
  for (int j = 0; j < width; ++j)
    for (int l = j < whole ? deep : 0; l < depth; ++l) out[l * W + j] = w[int64_t(j) * depth + l];
}

// Packs the panels of a matrix; `row` returns the address of each row, and each row is read in order.
template <class T, class Row>
void pack(const Row& row, int columns, int depth, T* out) {
  constexpr int W = WIDTH<T>;
  for (int l = 0; l < depth; ++l) {
    const T* from = row(l);
    T* to = out + int64_t(l) * W;
    int j = 0;
    for (; j + W <= columns; j += W, to += int64_t(depth) * W) std::memcpy(to, from + j, W * sizeof(T));  // a fixed size avoids a function call
    if (j < columns) std::fill(std::copy(from + j, from + columns, to), to + W, T(0));
  }
}

// The right factor and the result: c (columns of a, n) = the transpose of a times the matrix of these rows.
template <class T> struct Right { const T* const* rows; int n; T* c; };

// Computes rows [first, last) of such products; a is (depth, columns).
template <class T>
void transposed_products(int first, int last, int64_t depth, const T* a, int64_t columns, std::initializer_list<Right<T>> rights) {
  constexpr int W = WIDTH<T>;
  static const T zeros[W] = {};
  int panels = 0;
  for (const auto& right : rights) panels += pieces(right.n, W);
  T *packed = workspace<T, 0>(size_t(DEPTH) * panels * W), *left = workspace<T, 1>(size_t(DEPTH) * STRETCH);
  const int64_t parts = (depth + DEPTH - 1) / DEPTH, most = (depth + parts - 1) / parts;  // no small part is left over at the end
  for (int64_t l = 0; l < depth; l += most) {
    const int deep = int(std::min(most, depth - l));
    T* b = packed;
    for (const auto& right : rights) {
      pack<T>([&](int m) { return right.rows[l + m]; }, right.n, deep, b);
      b += int64_t(pieces(right.n, W)) * deep * W;
    }
    for (int i = first; i < last; i += STRETCH) {
      const int end = std::min(i + STRETCH, last);
      for (int m = 0; m < deep; ++m) {
        const T* from = a + (l + m) * columns;
        T* to = left + m * TALL;
        int r = i;
        for (; r + TALL <= end; r += TALL, to += deep * TALL) std::memcpy(to, from + r, TALL * sizeof(T));
        std::copy(from + r, from + end, to);
      }
      b = packed;
      for (const auto& right : rights)
        for (int j = 0; j < right.n; j += W, b += int64_t(deep) * W)
          for (int r = i; r < end; r += TALL) {
            T* to = right.c + int64_t(r) * right.n + j;
            any_tile<T>(std::min(TALL, end - r), std::min(W, right.n - j), deep, {left + (r - i) * deep, 1, TALL}, b,
                        l ? Start<T>{to, right.n} : Start<T>{zeros, 0}, to, right.n);
          }
    }
  }
}

}  // namespace mollifier
