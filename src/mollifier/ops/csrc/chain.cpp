// A run of mollified linear layers in one call: product, noisy activation and copy, layer by layer, and all gradients in reverse.
#include "chain.h"
#include "sparse.h"
#include <type_traits>

namespace mollifier {

// Measured: from this level on the dots that are left cost less than the dense product, if the weight fits the second-level cache.
double sparse_from = 0.75;
constexpr int64_t SPARSE_WEIGHT = 1 << 18;

template <class T>
Kind Chain<T>::kind_of(const Link<T>& l) const {
  if (l.copy_level >= 1.0) return COPY;
  const bool sparse = l.copy_level >= sparse_from && !l.residual && !expected && std::is_same_v<T, float>;
  return sparse && l.in * l.out <= SPARSE_WEIGHT ? SPARSE : DENSE;
}

template <class T>
Unit Chain<T>::unit(const Link<T>& l) const {
  const Dtype dtype = std::is_same_v<T, double> ? DOUBLE : FLOAT;
  return {dtype, rows, l.out, 1, l.in, true, l.act, l.level, l.copy_level, l.c, l.odds, l.residual, expected, l.seed};
}

template <class T>
void Chain<T>::product(const char* ta, const char* tb, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb, T beta,
                       T* c) const {
  const int mi = int(m), ni = int(n), ki = int(k), la = int(lda), lb = int(ldb);
  const T one = 1;
  gemm(ta, tb, &mi, &ni, &ki, &one, a, &la, b, &lb, &beta, c, &mi);
}

// Calls body(first row, number of rows): so many that no matrix has more elements than 32 bits can count, as BLAS may do.
template <class T>
template <class Body>
void Chain<T>::stretches(int64_t wide, Body body) const {
  const int64_t most = std::max<int64_t>(1, (int64_t(1) << 30) / wide);
  for (int64_t row = 0; row < rows; row += most) body(row, std::min(most, rows - row));
}

namespace {
struct Kept { int64_t kind; double level, copy_level; uint64_t seed; };

// Where the storage is float, the sparse functions take it as it is.
template <class T> const float* single(const T* at) { return reinterpret_cast<const float*>(at); }
template <class T> float* single(T* at) { return reinterpret_cast<float*>(at); }
}  // namespace

template <class T>
void Chain<T>::forward(const T* x, T* kept, bool keep, T* z, T* out) {
  T *at = kept + head(), *spare = z + room();
  const auto pad = [](T* from, int64_t size) { std::fill(from + size, from + whole(size), T(0)); };  // nothing that is returned is left open
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
    if (kind == COPY) {
      for (int64_t row = 0; row < rows; ++row) {
        std::copy(x + row * l.in, x + (row + 1) * l.in, y + row * l.out);
        std::fill(y + row * l.out + l.in, y + (row + 1) * l.out, T(0));
      }
    } else if (kind == SPARSE) {
      const Push<float> push = push_of<float>(l.act, l.level, l.c, l.odds, false);
      sparse_forward(sizes, l.act, push, seed_of(l.seed), single(x), single(l.w), single(l.bias), single(l.a), l.a_count, single(slopes), single(y),
                     threads);
    } else {
      for (int64_t row = 0; l.bias && row < rows; ++row) std::copy(l.bias, l.bias + l.out, z + row * l.out);
      stretches(std::max(l.in, l.out), [&](int64_t row, int64_t n) {
        product("T", "N", l.out, n, l.in, l.w, l.in, x + row * l.in, l.in, l.bias ? T(1) : T(0), z + row * l.out);
      });
      unit_forward(unit(l), z, x, l.a, l.a_count, y, keep ? slopes : nullptr, keep ? slopes + rows * l.out : nullptr, threads);
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
  for (int64_t row = 0; to && row < rows; ++row) std::copy(grad + row * l.out, grad + row * l.out + l.in, to + row * l.in);
  if (l.grad_w) std::fill_n(l.grad_w, l.in * l.out, T(0));
  if (l.grad_bias) std::fill_n(l.grad_bias, l.out, T(0));
  if (l.grad_a) std::fill_n(l.grad_a, l.a_count, T(0));
}

template <class T>
void Chain<T>::dense_back(const Link<T>& l, const T* grad, const T* below, const T* slopes, T* z, T* to) const {
  unit_backward(unit(l), grad, nullptr, slopes, slopes + rows * l.out, l.a, l.a_count, z, to, l.grad_a, threads);
  stretches(std::max(l.in, l.out), [&](int64_t row, int64_t n) {
    const T* mine = z + row * l.out;
    if (to) product("N", "N", l.in, n, l.out, l.w, l.in, mine, l.out, T(1), to + row * l.in);
    if (l.grad_w) product("N", "T", l.in, l.out, n, below + row * l.in, l.in, mine, l.out, row ? T(1) : T(0), l.grad_w);
  });
  if (!l.grad_bias) return;
  std::copy(z, z + l.out, l.grad_bias);
  for (int64_t row = 1; row < rows; ++row) add_to<T>(z + row * l.out, l.grad_bias, int(l.out));
}

template struct Chain<float>;
template struct Chain<double>;

}  // namespace mollifier
