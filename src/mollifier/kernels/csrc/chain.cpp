// A run of mollified linear layers in one call: product, noisy activation and copy, layer by layer, and all gradients in reverse.
#include "sparse.h"
#include "unit.h"
#include <type_traits>

using namespace mollifier;

namespace {

enum Kind { DENSE, SPARSE, COPY };

// As Python packs it. w: (out, in), out >= in: the input is copied, padded with zeros. bias may be null, and so may the gradients.
struct Layer {
  const void *w, *bias, *a;
  void *grad_w, *grad_bias, *grad_a;
  const Activation* act;
  int64_t in, out, a_count;
  uint64_t seed;
  double level, strength;
  int64_t kind, line, residual;
};

template <class T>
using Gemm = void (*)(const char*, const char*, const int*, const int*, const int*, const T*, const T*, const int*, const T*, const int*,
                      const T*, T*, const int*);

template <class T>
struct Chain {
  Gemm<T> gemm;
  const Layer* layers;
  int64_t count, rows;
  int threads;

  // In `kept`: how each layer was computed, then for each its output (but for the last, which is returned) and, if a backward pass
  // is to come, psi's derivatives. All begin at multiples of 16 numbers, as tensors do: a product's rounding may depend on it.
  static int64_t whole(int64_t n) { return (n + 15) / 16 * 16; }
  int64_t kept_of(int64_t i, bool keep) const {
    const int64_t size = rows * layers[i].out;
    return (i + 1 < count ? whole(size) : 0) + (keep ? whole(2 * size) : 0);
  }

  void product(const char* ta, const char* tb, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb, T beta, T* c) {
    const int mi = int(m), ni = int(n), ki = int(k), la = int(lda), lb = int(ldb);
    const T one = 1;
    gemm(ta, tb, &mi, &ni, &ki, &one, a, &la, b, &lb, &beta, c, &mi);
  }

  Head unit(const Layer& l) const {
    return {std::is_same_v<T, double>, rows, l.out, 1, l.in, l.act, l.level, l.strength, l.line, l.residual, l.seed};
  }

  bool sparse(const Layer& l, T* slots) {
    return std::is_same_v<T, float> && l.kind == SPARSE &&
           sparse_list({rows, l.in, l.out}, l.level, seed_of(l.seed), (float*)slots, threads);
  }

  // z: room for rows x the widest output. spare: twice that, where nothing is kept.
  void forward(const T* x, T* kept, bool keep, T* z, T* spare, T* out) {
    T* at = kept + whole(count);
    for (int64_t i = 0; i < count; ++i) {
      const Layer& l = layers[i];
      T* y = i + 1 < count ? at : out;
      T* slopes = keep ? at + kept_of(i, false) : spare;
      const Kind kind = l.kind == COPY ? COPY : sparse(l, slopes) ? SPARSE : DENSE;
      kept[i] = T(kind);
      if (kind == COPY) {
        for (int64_t row = 0; row < rows; ++row) {
          std::copy(x + row * l.in, x + (row + 1) * l.in, y + row * l.out);
          std::fill(y + row * l.out + l.in, y + (row + 1) * l.out, T(0));
        }
      } else if (kind == SPARSE) {
        const Push<float> push{float(l.act->slope), float(l.act->offset), float(l.strength), l.line ? 1e30f : 0.0f};
        sparse_forward({rows, l.in, l.out}, *l.act, push, seed_of(l.seed), (const float*)x, (const float*)l.w, (const float*)l.bias,
                       (const float*)l.a, l.a_count, (float*)slopes, (float*)y, threads);
      } else {
        const T* bias = (const T*)l.bias;
        for (int64_t row = 0; bias && row < rows; ++row) std::copy(bias, bias + l.out, z + row * l.out);
        product("T", "N", l.out, rows, l.in, (const T*)l.w, l.in, x, l.in, bias ? T(1) : T(0), z);
        const Head head = unit(l);
        mollifier_unit_forward(&head, z, x, l.a, l.a_count, y, keep ? slopes : nullptr, keep ? slopes + rows * l.out : nullptr, threads);
      }
      at += kept_of(i, keep);
      x = y;
    }
  }

  // scratch: room for 3 times rows x the widest output. grad_x may be null.
  void backward(const T* x, const T* kept, const T* grad, T* scratch, int64_t room, T* grad_x) {
    T *z = scratch, *next = z + room, *other = next + room;
    const T* at = kept + whole(count);
    for (int64_t i = 0; i < count; ++i) at += kept_of(i, true);
    for (int64_t i = count - 1; i >= 0; --i) {
      const Layer& l = layers[i];
      at -= kept_of(i, true);
      const T* slopes = at + kept_of(i, false);
      const T* below = i ? at - kept_of(i - 1, true) : x;
      T* to = i ? next : grad_x;
      switch (Kind(int(kept[i]))) {
        case COPY: copy_back(l, grad, to); break;
        case SPARSE:
          sparse_backward({rows, l.in, l.out}, (const float*)grad, (const float*)below, (const float*)l.w, (const float*)slopes, (float*)z,
                          (float*)to, (float*)l.grad_w, (float*)l.grad_bias, (float*)l.grad_a, l.a_count, threads);
          break;
        case DENSE: dense_back(l, grad, below, slopes, z, to);
      }
      grad = to;
      std::swap(next, other);
    }
  }

  void copy_back(const Layer& l, const T* grad, T* to) {
    for (int64_t row = 0; to && row < rows; ++row) std::copy(grad + row * l.out, grad + row * l.out + l.in, to + row * l.in);
    if (l.grad_w) std::fill_n((T*)l.grad_w, l.in * l.out, T(0));
    if (l.grad_bias) std::fill_n((T*)l.grad_bias, l.out, T(0));
    if (l.grad_a) std::fill_n((T*)l.grad_a, l.a_count, T(0));
  }

  void dense_back(const Layer& l, const T* grad, const T* below, const T* slopes, T* z, T* to) {
    const Head head = unit(l);
    mollifier_unit_backward(&head, grad, nullptr, slopes, slopes + rows * l.out, l.a, l.a_count, 1, z, to, l.grad_a, threads);
    if (to) product("N", "N", l.in, rows, l.out, (const T*)l.w, l.in, z, l.out, T(1), to);
    if (l.grad_w) product("N", "T", l.in, l.out, rows, below, l.in, z, l.out, T(0), (T*)l.grad_w);
    if (T* sum = (T*)l.grad_bias) {
      std::copy(z, z + l.out, sum);
      for (int64_t row = 1; row < rows; ++row) add_to<T>(z + row * l.out, sum, int(l.out));
    }
  }
};

}  // namespace

// Calls body with the chain and a null pointer of its type: 0 float, 1 double.
template <class Body>
void by_dtype(int dtype, void* gemm, const Layer* layers, int64_t count, int64_t rows, int threads, Body body) {
  if (dtype) body(Chain<double>{(Gemm<double>)gemm, layers, count, rows, threads}, (double*)nullptr);
  else body(Chain<float>{(Gemm<float>)gemm, layers, count, rows, threads}, (float*)nullptr);
}

extern "C" {

void mollifier_chain_forward(int dtype, void* gemm, const Layer* layers, int64_t count, int64_t rows, const void* x, void* kept, int keep,
                             void* scratch, int64_t room, void* out, int threads) {
  by_dtype(dtype, gemm, layers, count, rows, threads, [&](auto chain, auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    chain.forward((const T*)x, (T*)kept, keep != 0, (T*)scratch, (T*)scratch + room, (T*)out);
  });
}

void mollifier_chain_backward(int dtype, void* gemm, const Layer* layers, int64_t count, int64_t rows, const void* x, const void* kept,
                              const void* grad, void* scratch, int64_t room, void* grad_x, int threads) {
  by_dtype(dtype, gemm, layers, count, rows, threads, [&](auto chain, auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    chain.backward((const T*)x, (const T*)kept, (const T*)grad, (T*)scratch, room, (T*)grad_x);
  });
}
}
