// Matrix products for few rows. The right factor is packed into panels of columns, once for a whole sequence, and the inner loop
// reads it in order. Every element is one sum in one order: it does not depend on how rows and panels are shared out.
#pragma once
#include "elementary.h"
#include <algorithm>
#include <initializer_list>
#include <memory>

namespace mollifier {

#ifdef __AVX512F__
constexpr int VECTOR_BYTES = 64;
#else
constexpr int VECTOR_BYTES = 32;
#endif
template <class T> struct Simd {
  typedef T Vector __attribute__((vector_size(VECTOR_BYTES)));
  typedef T Loose __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(T)), may_alias));  // as it lies in memory, at any place
};
template <class T> constexpr int LANES = VECTOR_BYTES / int(sizeof(T));
template <class T> constexpr int WIDTH = 2 * LANES<T>;  // columns of a panel
constexpr int TALL = 6;      // rows of a tile: its 12 sums, a row of the panel and a factor fill the 16 registers
constexpr int TALLEST = 12;  // of a tile of half the columns
constexpr int DEPTH = 384;   // of a tile: that much of a panel stays in the first-level cache
constexpr int STRETCH = 96;  // rows that meet a panel one after the other: they stay in the second-level cache

inline int pieces(int total, int size) { return (total + size - 1) / size; }
inline int evenly(int total, int most) { return pieces(total, pieces(total, most)); }  // no small piece is left over at the end

// Memory that a thread keeps for its next call: to give it back to the system and ask anew costs more than the packing.
template <class T, int place>
T* workspace(size_t count) {
  static thread_local std::unique_ptr<T[]> kept;
  static thread_local size_t size = 0;
  if (size < count) kept.reset(new T[count]), size = count;
  return kept.get();
}

// Element (row, depth) is at row * by_row + depth * by_depth. Given by reference: to copy it costs more than the call.
template <class T> struct Left { const T* data; int64_t by_row, by_depth; };
template <class T> struct Start { const T* data; int64_t by_row; };  // what the product is added to

// c = start + a b, of R rows and one panel, or the first half of its columns.
template <class T, int R, bool half>
void tile(int depth, const Left<T>& a, const T* b, Start<T> start, T* c, int64_t c_row) {
  using Loose = typename Simd<T>::Loose;
  constexpr int L = LANES<T>;
  typename Simd<T>::Vector left[R], right[R];  // in registers, if the loops over them are unrolled
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
    const T* from = start.data + r * start.by_row;
    left[r] = *(const Loose*)from;
    if (!half) right[r] = *(const Loose*)(from + L);
  }
  const T* x = a.data;
  for (int l = 0; l < depth; ++l, x += a.by_depth, b += 2 * L) {
    const typename Simd<T>::Vector b_left = *(const Loose*)b, b_right = *(const Loose*)(b + L);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const T factor = x[r * a.by_row];
      left[r] += factor * b_left;
      if (!half) right[r] += factor * b_right;
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
    *(Loose*)(c + r * c_row) = left[r];
    if (!half) *(Loose*)(c + r * c_row + L) = right[r];
  }
}

template <class T> inline int tallest(int width) { return width <= LANES<T> ? TALLEST : TALL; }

// The same for up to `tallest` rows, and for the last panel, which may have fewer columns than a whole one.
template <class T>
STAGE void any_tile(int rows, int width, int depth, const Left<T>& a, const T* b, Start<T> start, T* c, int64_t c_row) {
  using Tile = void (*)(int, const Left<T>&, const T*, Start<T>, T*, int64_t);
  static constexpr Tile whole_tiles[TALL] = {tile<T, 1, false>, tile<T, 2, false>, tile<T, 3, false>,
                                             tile<T, 4, false>, tile<T, 5, false>, tile<T, 6, false>};
  static constexpr Tile half_tiles[TALLEST] = {tile<T, 1, true>, tile<T, 2, true>, tile<T, 3, true>,  tile<T, 4, true>,
                                               tile<T, 5, true>, tile<T, 6, true>, tile<T, 7, true>,  tile<T, 8, true>,
                                               tile<T, 9, true>, tile<T, 10, true>, tile<T, 11, true>, tile<T, 12, true>};
  const Tile one = width <= LANES<T> ? half_tiles[rows - 1] : whole_tiles[rows - 1];
  if (width == WIDTH<T> || width == LANES<T>) return one(depth, a, b, start, c, c_row);
  T whole[TALLEST * WIDTH<T>] = {};
  for (int r = 0; r < rows; ++r) std::copy_n(start.data + r * start.by_row, width, whole + r * WIDTH<T>);
  one(depth, a, b, {whole, WIDTH<T>}, whole, WIDTH<T>);
  for (int r = 0; r < rows; ++r) std::copy_n(whole + r * WIDTH<T>, width, c + r * c_row);
}

// c = start + a b for any number of rows and one panel. start may be c.
template <class T>
void panel_product(int64_t rows, int width, int depth, const Left<T>& a, const T* b, Start<T> start, T* c, int64_t c_row) {
  const int deep = evenly(depth, DEPTH), tall = tallest<T>(width);
  const int64_t tiles = (rows + tall - 1) / tall;
  for (int l = 0; l < depth; l += deep, start = {c, c_row})
    for (int64_t k = 0; k < tiles; ++k) {
      // all nearly as tall: a low tile takes as long
      const int64_t r = rows * k / tiles, end = rows * (k + 1) / tiles;
      any_tile<T>(int(end - r), width, std::min(deep, depth - l), {a.data + r * a.by_row + l * a.by_depth, a.by_row, a.by_depth},
                  b + int64_t(l) * WIDTH<T>, {start.data + r * start.by_row, start.by_row}, c + r * c_row, c_row);
    }
}

// A panel of the transpose of w (columns x depth): its columns are rows of w.
template <class T>
void pack_transposed(const T* w, int width, int depth, T* out) {
  constexpr int W = WIDTH<T>;
  if (width == W) {
    for (int l = 0; l < depth; ++l)
      for (int j = 0; j < W; ++j) out[l * W + j] = w[int64_t(j) * depth + l];
    return;
  }
  for (int l = 0; l < depth; ++l)
    for (int j = 0; j < W; ++j) out[l * W + j] = j < width ? w[int64_t(j) * depth + l] : T(0);
}

// A panel of a matrix whose rows are where `row` says.
template <class T, class Row>
void pack(const Row& row, int first_column, int width, int depth, T* out) {
  constexpr int W = WIDTH<T>;
  for (int l = 0; l < depth; ++l, out += W) {
    const T* from = row(l) + first_column;
    if (width == W) std::memcpy(out, from, W * sizeof(T));  // of a fixed size: no call
    else std::fill(std::copy_n(from, width, out), out + W, T(0));
  }
}

// c (columns of a, n) = transpose of a, times the matrix of these rows.
template <class T> struct Right { const T* const* rows; int n; T* c; };

// Rows [first, last) of such products; a is (depth, columns).
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
    for (const auto& right : rights)
      for (int j = 0; j < right.n; j += W, b += int64_t(deep) * W)
        pack<T>([&](int m) { return right.rows[l + m]; }, j, std::min(W, right.n - j), deep, b);
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
