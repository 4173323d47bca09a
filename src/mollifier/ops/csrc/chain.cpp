// A run of mollified linear layers in one call: product, noisy activation and copy, layer by layer, and all gradients in reverse.
#include "chain.h"
#include "sparse.h"
#include <type_traits>

namespace mollifier {

// Measured: from this level on, the remaining dot products cost less than the dense product, if the weight fits into the second-level cache.
double sparse_from = 0.75;
constexpr int64_t SPARSE_WEIGHT = 1 << 18;

template <class T>
Kind Chain<T>::kind_of(const Link<T>& l) const {
  if (l.copy_level >= 1.0) return COPY;
  const bool sparse = l.copy_level >= sparse_from && !l.residual && !l.signs && !expected && std::is_same_v<T, float>;
  return sparse && l.in * l.out <= SPARSE_WEIGHT ? SPARSE : DENSE;
}

template <class T>
Unit Chain<T>::unit(const Link<T>& l) const {
  return {{rows, l.out, 1, l.signs ? l.out : l.in}, true, l.act, l.level, l.copy_level, l.c, l.odds, l.residual, expected, l.seed};
}

// Calls body(first row, number of rows) with so few rows that 32 bits can count the elements of every matrix, because BLAS may use 32 bits.
template <class T>
template <class Body>
void Chain<T>::stretches(int64_t wide, Body body) const {
  const int64_t most = std::max<int64_t>(1, (int64_t(1) << 30) / wide);
  for (int64_t row = 0; row < rows; row += most) body(row, std::min(most, rows - row));
}

namespace {
struct Kept { int64_t kind; double level, copy_level; uint64_t seed; };

// If the storage type is float, the sparse functions use the data directly.
template <class T> const float* single(const T* at) { return reinterpret_cast<const float*>(at); }
template <class T> float* single(T* at) { return reinterpret_cast<float*>(at); }

// What a narrowing layer copies, y_j = sum of s_k x_k over k = j, j + out, ..., and its gradient.
template <class T>
STAGE void add_signed(const T* RESTRICT s, const T* RESTRICT x, T* RESTRICT y, int n) { for (int k = 0; k < n; ++k) y[k] += s[k] * x[k]; }
template <class T>
STAGE void signed_of(const T* RESTRICT s, const T* RESTRICT g, T* RESTRICT to, int n) { for (int k = 0; k < n; ++k) to[k] = s[k] * g[k]; }

template <class T>
void narrow(const Link<T>& l, int64_t rows, const T* x, T* y, int threads) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && rows > 1)
  for (int64_t row = 0; row < rows; ++row) {
    std::fill_n(y + row * l.out, l.out, T(0));
    for (int64_t k = 0; k < l.in; k += l.out) add_signed<T>(l.signs + k, x + row * l.in + k, y + row * l.out, int(std::min(l.out, l.in - k)));
  }
}
template <class T>
void widen(const Link<T>& l, int64_t rows, const T* grad, T* to) {
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t k = 0; k < l.in; k += l.out) signed_of<T>(l.signs + k, grad + row * l.out, to + row * l.in + k, int(std::min(l.out, l.in - k)));
}
}  // namespace

template <class T>
void Chain<T>::forward(const T* x, T* kept, bool keep, T* z, T* out) {
  T *at = kept + head(), *sums = z + room(), *spare = sums + room();
  const auto pad = [](T* from, int64_t size) { std::fill(from + size, from + whole(size), T(0)); };  // all that is returned is initialised
  pad(kept, count * HEAD);
  for (int64_t i = 0; i < count; ++i) {
    const Link<T>& l = links[i];
    if (i + 1 < count) pad(at, rows * l.out);
    if (keep) pad(at + kept_of(i, false), 2 * rows * l.out);
    T* y = i + 1 < count ? at : out;
    T* slopes = keep ? at + kept_of(i, false) : spare;
    const Sizes sizes{rows, l.in, l.out};
    Kind kind = kind_of(l);
    if (kind == SPARSE && !sparse_list(sizes, l.copy_level, seed_of(l.seed), single(slopes), threads)) kind = DENSE;
    const Kept head{kind, l.level, l.copy_level, l.seed};
    std::memcpy(kept + i * HEAD, &head, sizeof(head));
    const T* below = x;
    if (l.signs) narrow(l, rows, x, kind == COPY ? y : sums, threads), below = sums;
    if (kind == COPY && !l.signs) {
      for (int64_t row = 0; row < rows; ++row) {
        std::copy(x + row * l.in, x + (row + 1) * l.in, y + row * l.out);
        std::fill(y + row * l.out + l.in, y + (row + 1) * l.out, T(0));
      }
    } else if (kind == SPARSE) {
      const Push<float> push = push_of<float>(l.act, l.level, l.c, l.odds, false);
      sparse_forward(sizes, l.act, push, seed_of(l.seed), single(x), single(l.w), single(l.bias), single(l.a), l.a_count, single(slopes), single(y),
                     threads);
    } else if (kind == DENSE) {
      for (int64_t row = 0; l.bias && row < rows; ++row) std::copy(l.bias, l.bias + l.out, z + row * l.out);
      stretches(std::max(l.in, l.out), [&](int64_t row, int64_t n) {
        product(gemm, "T", "N", l.out, n, l.in, l.w, l.in, x + row * l.in, l.in, l.bias ? T(1) : T(0), z + row * l.out);
      });
      unit_forward<T>(unit(l), z, below, l.a, l.a_count, y, keep ? slopes : nullptr, keep ? slopes + rows * l.out : nullptr, threads);
    }
    at += kept_of(i, keep);
    x = y;
  }
}

template <class T>
void Chain<T>::backward(const T* x, const T* kept, const T* grad, T* scratch, T* grad_x) {
  const int64_t wide = room();
  T *z = scratch, *next = z + wide, *other = next + wide;
  const T* at = kept + kept_size(true);
  for (int64_t i = count - 1; i >= 0; --i) {
    Link<T>& l = links[i];
    Kept head;
    std::memcpy(&head, kept + i * HEAD, sizeof(head));
    l.level = head.level, l.copy_level = head.copy_level, l.seed = head.seed;
    at -= kept_of(i, true);
    const T* slopes = at + kept_of(i, false);
    const T* below = i ? at - kept_of(i - 1, true) : x;
    T* to = i ? next : grad_x;
    switch (Kind(head.kind)) {
      case COPY: copy_back(l, grad, to); break;
      case SPARSE:
        sparse_backward({rows, l.in, l.out}, single(grad), single(below), single(l.w), single(slopes), single(z), single(to), single(l.grad_w),
                        single(l.grad_bias), single(l.grad_a), l.a_count, threads);
        break;
      case DENSE: dense_back(l, grad, below, slopes, z, to);
    }
    grad = to;
    std::swap(next, other);
  }
}

template <class T>
void Chain<T>::copy_back(const Link<T>& l, const T* grad, T* to) const {
  if (to && l.signs) widen(l, rows, grad, to);
  for (int64_t row = 0; to && !l.signs && row < rows; ++row) std::copy(grad + row * l.out, grad + row * l.out + l.in, to + row * l.in);
  if (l.grad_w) std::fill_n(l.grad_w, l.in * l.out, T(0));
  if (l.grad_bias) std::fill_n(l.grad_bias, l.out, T(0));
  if (l.grad_a) std::fill_n(l.grad_a, l.a_count, T(0));
}

template <class T>
void Chain<T>::dense_back(const Link<T>& l, const T* grad, const T* below, const T* slopes, T* z, T* to) const {
  T* by_sums = z + 3 * room();
  unit_backward<T>(unit(l), grad, nullptr, slopes, slopes + rows * l.out, l.a, l.a_count, z, to && l.signs ? by_sums : to, l.grad_a, threads);
  if (to && l.signs) widen(l, rows, by_sums, to);
  stretches(std::max(l.in, l.out), [&](int64_t row, int64_t n) {
    const T* mine = z + row * l.out;
    if (to) product(gemm, "N", "N", l.in, n, l.out, l.w, l.in, mine, l.out, T(1), to + row * l.in);
    if (l.grad_w) product(gemm, "N", "T", l.in, l.out, n, below + row * l.in, l.in, mine, l.out, row ? T(1) : T(0), l.grad_w);
  });
  if (!l.grad_bias) return;
  std::copy(z, z + l.out, l.grad_bias);
  for (int64_t row = 1; row < rows; ++row) add_to<T>(z + row * l.out, l.grad_bias, int(l.out));
}

template struct Chain<float>;
template struct Chain<double>;

}  // namespace mollifier
