// The interface of chain.cpp for the operators: a run of mollified linear layers in one call.
#pragma once
#include "unit.h"

namespace mollifier {

// The BLAS function that torch uses for its own matrix product.
template <class T>
using Gemm = void (*)(const char*, const char*, const int*, const int*, const int*, const T*, const T*, const int*, const T*, const int*,
                      const T*, T*, const int*);
// Computes c (m, n) = a b + beta c in column-major order, as in Fortran; ta, tb: "T" for a factor that is to be transposed.
template <class T>
void product(Gemm<T> gemm, const char* ta, const char* tb, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb, T beta,
             T* c) {
  const int mi = int(m), ni = int(n), ki = int(k), la = int(lda), lb = int(ldb);
  const T one = 1;
  gemm(ta, tb, &mi, &ni, &ki, &one, a, &la, b, &lb, &beta, c, &mi);
}

// One layer. w: (out, in). If signs is null, the input is copied, padded with zeros: out >= in. Otherwise the layer narrows, and the copy
// consists of sums of every out-th input, with signs as the weights of the sums. bias and the gradients may be null. a has the type used for
// the computation; a_count is the number of its elements, 1 or out.
template <class T>
struct Link {
  const T *w, *bias, *a, *signs;
  T *grad_w, *grad_bias, *grad_a;
  int64_t in, out, a_count;
  Activation act;
  double level, copy_level, c;
  bool odds, residual;
  uint64_t seed;
};

enum Kind { DENSE, SPARSE, COPY };

template <class T>
struct Chain {
  Gemm<T> gemm;
  Link<T>* links;
  int64_t count, rows;
  bool expected;
  int threads;

  // `kept` holds, for each layer, how it was computed, its levels and its seed; then its output (except the last, which is returned) and, if
  // a backward pass will follow, psi's derivatives. All begin at multiples of 16 numbers, as tensors do: a product's rounding may depend on it.
  static int64_t whole(int64_t n) { return (n + 15) / 16 * 16; }
  static constexpr int64_t HEAD = 32 / sizeof(T);  // the room for four 64-bit numbers, in elements of T
  int64_t head() const { return whole(count * HEAD); }
  int64_t kept_of(int64_t i, bool keep) const {
    const int64_t size = rows * links[i].out;
    return (i + 1 < count ? whole(size) : 0) + (keep ? whole(2 * size) : 0);
  }
  int64_t kept_size(bool keep) const {
    int64_t size = head();
    for (int64_t i = 0; i < count; ++i) size += kept_of(i, keep);
    return size;
  }
  int64_t room() const {
    int64_t widest = 0;
    for (int64_t i = 0; i < count; ++i) widest = std::max(widest, links[i].out);
    return whole(rows * widest);
  }

  // scratch: twice `room` numbers, or four times if nothing is kept.
  void forward(const T* x, T* kept, bool keep, T* scratch, T* out);
  // scratch: four times `room` numbers. grad_x may be null.
  void backward(const T* x, const T* kept, const T* grad, T* scratch, T* grad_x);

 private:
  Kind kind_of(const Link<T>& l) const;
  Unit unit(const Link<T>& l) const;
  template <class Body> void stretches(int64_t wide, Body body) const;
  void copy_back(const Link<T>& l, const T* grad, T* to) const;
  void dense_back(const Link<T>& l, const T* grad, const T* below, const T* slopes, T* z, T* to) const;
};

}  // namespace mollifier
