// Drives every exported kernel on several threads, for ThreadSanitizer. gcc's OpenMP runtime is not instrumented, and its barriers
// would look like races; so the three of its functions that the kernels use are written here with std::thread, which it understands.
#include <cstdint>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

namespace {
thread_local int number = 0, team = 1;
}

extern "C" {
int omp_get_thread_num() { return number; }
int omp_get_num_threads() { return team; }
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned) {
  std::vector<std::thread> pool;
  for (unsigned t = 0; t < threads; ++t)
    pool.emplace_back([=] { number = int(t); team = int(threads); body(data); });
  for (auto& thread : pool) thread.join();
}

struct Activation { int32_t kind; double slope, offset, first, second; };
struct Options { int32_t hard, gates, activations, steps, batch, hidden, reverse; double level, strength, extra; };
void mollifier_unit_forward(int, const int64_t*, const Activation*, double, double, int, int, uint64_t, const void*, const void*, const void*,
                            int64_t, void*, void*, void*, int);
void mollifier_unit_backward(int, const int64_t*, const Activation*, double, double, int, int, uint64_t, const void*, const void*,
                             const void*, const void*, const void*, int64_t, int, void*, void*, void*, int);
void mollifier_linear_forward(const int64_t*, const Activation*, double, double, uint64_t, const float*, const float*, const float*,
                              const float*, int64_t, float*, int32_t*, int32_t*, float*, float*, int);
void mollifier_linear_backward(const int64_t*, const float*, const float*, const float*, int64_t, const int32_t*, const int32_t*, float*,
                               const float*, float*, float*, float*, float*, int);
void mollifier_lstm_forward_float(const Options*, void*, const int64_t*, const float*, const float*, const float*, uint64_t, const float*,
                                  const float*, float*, float*, float*, float*, int);
void mollifier_lstm_backward_float(const Options*, void*, const int64_t*, const float*, const float*, const float*, const float*, float*,
                                   float*, float*, float*, int);
void mollifier_gru_forward_float(const Options*, void*, const int64_t*, const float*, const float*, const float*, uint64_t, const float*,
                                 float*, float*, float*, int);
void mollifier_gru_backward_float(const Options*, void*, const int64_t*, const float*, const float*, const float*, const float*, float*,
                                  float*, float*, float*, int);

// Column-major, as Fortran has it.
void gemm(const char* ta, const char*, const int* m, const int* n, const int* k, const float* alpha, const float* a, const int* lda,
          const float* b, const int* ldb, const float* beta, float* c, const int* ldc) {
  for (int i = 0; i < *m; ++i)
    for (int j = 0; j < *n; ++j) {
      float sum = 0;
      for (int l = 0; l < *k; ++l) sum += (*ta == 'T' ? a[i * *lda + l] : a[l * *lda + i]) * b[j * *ldb + l];
      c[j * *ldc + i] = *alpha * sum + *beta * c[j * *ldc + i];
    }
}
}

using Numbers = std::vector<float>;

std::mt19937 source;

Numbers draw(size_t n) {
  std::normal_distribution<float> normal;
  Numbers v(n);
  for (auto& x : v) x = normal(source);
  return v;
}

// All results of all kernels on so many threads.
Numbers results(int threads) {
  source.seed(0);
  Numbers all;
  const auto keep = [&](const Numbers& v) { all.insert(all.end(), v.begin(), v.end()); };
  const Activation act{0, 0.25, 0.5, 0, 0};
  for (int64_t inner : {int64_t(1), int64_t(300)}) {
    const int64_t rows = inner == 1 ? 900 : 64, units = 40, below_units = 30, n = rows * units * inner;
    const int64_t shape[] = {rows, units, inner, below_units};
    const Numbers x = draw(n), below = draw(rows * below_units * inner), a = draw(units), grad = draw(n);
    Numbers out(n), by_x(n), by_a(n), gx(n), gb(below.size()), ga(units);
    mollifier_unit_forward(0, shape, &act, 0.5, 10, 0, 0, 7, x.data(), below.data(), a.data(), units, out.data(), by_x.data(), by_a.data(),
                           threads);
    mollifier_unit_backward(0, shape, &act, 0.5, 10, 0, 0, 7, grad.data(), nullptr, by_x.data(), by_a.data(), a.data(), units, 1, gx.data(),
                            gb.data(), ga.data(), threads);
    keep(out), keep(gx), keep(gb), keep(ga);
    mollifier_unit_backward(0, shape, &act, 0.5, 10, 0, 0, 7, grad.data(), x.data(), nullptr, nullptr, a.data(), units, 1, gx.data(),
                            gb.data(), ga.data(), threads);
    keep(gx), keep(gb), keep(ga);
  }
  {
    const int64_t rows = 70, in = 33, out = 50, sizes[] = {rows, in, out};
    const Numbers x = draw(rows * in), w = draw(out * in), bias = draw(out), a = draw(out), grad = draw(rows * out);
    Numbers y(rows * out), by_x(rows * out), by_a(rows * out), gx(rows * in), gw(out * in), gb(out), ga(out);
    std::vector<int32_t> count(rows), index(rows * out);
    mollifier_linear_forward(sizes, &act, 0.8, 16, 7, x.data(), w.data(), bias.data(), a.data(), out, y.data(), count.data(), index.data(),
                             by_x.data(), by_a.data(), threads);
    mollifier_linear_backward(sizes, grad.data(), x.data(), w.data(), out, count.data(), index.data(), by_x.data(), by_a.data(), gx.data(),
                              gw.data(), gb.data(), ga.data(), threads);
    keep(y), keep(gx), keep(gw), keep(gb), keep(ga);
  }
  const std::vector<int64_t> sizes{20, 20, 13, 2};
  const int rows = 55, batch = 20, h = 150;
  for (int reverse : {0, 1}) {
    const Options o{0, 1, 1, int(sizes.size()), batch, h, reverse, 0.5, 10, 0};
    const Numbers w = draw(4 * h * h), time(rows, 0.5f), a = draw(2 * h), h0 = draw(batch * h), c0 = draw(batch * h), grad = draw(rows * h);
    Numbers z = draw(rows * 4 * h), kept(rows * 4 * h), out(rows * h), cell(rows * h), gh(batch * h), gc(batch * h), gz(rows * 4 * h), ga(2 * h);
    mollifier_lstm_forward_float(&o, (void*)gemm, sizes.data(), w.data(), time.data(), a.data(), 7, h0.data(), c0.data(), z.data(),
                                 kept.data(), out.data(), cell.data(), threads);
    mollifier_lstm_backward_float(&o, (void*)gemm, sizes.data(), w.data(), z.data(), kept.data(), grad.data(), gh.data(), gc.data(),
                                  gz.data(), ga.data(), threads);
    keep(out), keep(gh), keep(gc), keep(gz), keep(ga);
    Numbers x = draw(rows * 3 * h), hh(rows * 3 * h), gx(rows * 3 * h), ghh(rows * 3 * h);
    mollifier_gru_forward_float(&o, (void*)gemm, sizes.data(), w.data(), time.data(), a.data(), 7, h0.data(), x.data(), hh.data(), out.data(),
                                threads);
    mollifier_gru_backward_float(&o, (void*)gemm, sizes.data(), w.data(), x.data(), hh.data(), grad.data(), gh.data(), gx.data(),
                                 ghh.data(), ga.data(), threads);
    keep(out), keep(gh), keep(gx), keep(ghh), keep(ga);
  }
  return all;
}

int main() {
  const Numbers one = results(1);
  for (int threads : {2, 4})
    if (results(threads) != one) return std::printf("%d threads give another result than one\n", threads), 1;
  std::printf("%zu numbers, the same on 1, 2 and 4 threads\n", one.size());
}
