// Drives every kernel on several threads, for ThreadSanitizer. gcc's OpenMP runtime is not instrumented, and its barriers
// would look like races; so the four of its functions that the kernels use are written here with std::thread, which it understands.
#include "chain.h"
#include "recurrent_cells.h"
#include <cstdint>
#include <cstdio>
#include <pthread.h>
#include <random>
#include <thread>
#include <vector>

namespace {
thread_local int number = 0, team = 1;
thread_local pthread_barrier_t* meeting = nullptr;
}

extern "C" {
int omp_get_thread_num() { return number; }
int omp_get_num_threads() { return team; }
void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned) {
  std::vector<std::thread> pool;
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, nullptr, threads);
  for (unsigned t = 0; t < threads; ++t)
    pool.emplace_back([=, &barrier] { number = int(t); team = int(threads); meeting = &barrier; body(data); });
  for (auto& thread : pool) thread.join();
  pthread_barrier_destroy(&barrier);
}
void GOMP_barrier() { pthread_barrier_wait(meeting); }

using namespace mollifier;

// Column-major, as Fortran has it.
void gemm(const char* ta, const char* tb, const int* m, const int* n, const int* k, const float* alpha, const float* a, const int* lda,
          const float* b, const int* ldb, const float* beta, float* c, const int* ldc) {
  for (int i = 0; i < *m; ++i)
    for (int j = 0; j < *n; ++j) {
      float sum = 0, *at = c + j * *ldc + i;
      for (int l = 0; l < *k; ++l) sum += (*ta == 'T' ? a[i * *lda + l] : a[l * *lda + i]) * (*tb == 'T' ? b[l * *ldb + j] : b[j * *ldb + l]);
      *at = *alpha * sum + (*beta == 0 ? 0 : *beta * *at);
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
    const Unit head{{rows, units, inner, below_units}, true, act, 0.5, 0.5, 20, false, false, false, 7};
    const Numbers x = draw(n), below = draw(rows * below_units * inner), a = draw(units), grad = draw(n);
    Numbers out(n), by_x(n), by_a(n), gx(n), gb(below.size()), ga(units);
    unit_forward<float>(head, x.data(), below.data(), a.data(), units, out.data(), by_x.data(), by_a.data(), threads);
    unit_backward<float>(head, grad.data(), nullptr, by_x.data(), by_a.data(), a.data(), units, gx.data(), gb.data(), ga.data(), threads);
    keep(out), keep(gx), keep(gb), keep(ga);
    unit_backward<float>(head, grad.data(), x.data(), nullptr, nullptr, a.data(), units, gx.data(), gb.data(), ga.data(), threads);
    keep(gx), keep(gb), keep(ga);
  }
  {
    const int64_t rows = 70, widths[] = {33, 50, 50, 61};
    std::vector<Numbers> tensors;
    std::vector<Link<float>> links;
    for (int i = 0; i < 3; ++i) {  // sparse, dense, copied
      const int64_t in = widths[i], out = widths[i + 1];
      for (int64_t size : {in * out, out, out}) tensors.push_back(draw(size));
      for (int64_t size : {in * out, out, out}) tensors.push_back(Numbers(size));
      const double level = i == 0 ? 0.8 : i == 1 ? 0.5 : 1.0;
      links.push_back({nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, in, out, out, act, level, level, 20, false, false, uint64_t(7 + i)});
    }
    for (int i = 0; i < 3; ++i) {
      Link<float>& l = links[i];
      l.w = tensors[6 * i].data(), l.bias = tensors[6 * i + 1].data(), l.a = tensors[6 * i + 2].data();
      l.grad_w = tensors[6 * i + 3].data(), l.grad_bias = tensors[6 * i + 4].data(), l.grad_a = tensors[6 * i + 5].data();
    }
    const Numbers x = draw(rows * 33), grad = draw(rows * 61);
    Chain<float> chain{gemm, links.data(), 3, rows, false, threads};
    Numbers out(rows * 61), gx(rows * 33), kept(chain.kept_size(true)), scratch(4 * chain.room());
    chain.forward(x.data(), kept.data(), true, scratch.data(), out.data());
    chain.backward(x.data(), kept.data(), grad.data(), scratch.data(), gx.data());
    keep(out), keep(gx);
    for (int i = 0; i < 18; ++i)
      if (i % 6 > 2) keep(tensors[i]);
  }
  for (int parts : {4, 3}) {  // LSTM, GRU
    const int64_t sizes[] = {20, 20, 13, 2}, rows = 55, batch = 20, in = 37, h = 150, wide = parts * h;
    const Options o{false, true, true, false, 4, batch, int(in), int(h), 0.5, 20, false, nullptr, true};
    for (int directions : {1, 2}) {
      std::vector<Numbers> made;
      const Numbers x = draw(rows * in);
      const auto given = [&](int64_t size) { return made.push_back(draw(size)), made.back().data(); };
      const auto empty = [&](int64_t size) { return made.push_back(Numbers(size)), made.back().data(); };
      std::vector<Direction<float>> d;
      for (int reverse = 0; reverse < directions; ++reverse) {
        Direction<float> one{reverse == 1, true, reverse == 0, 0, 3, 5, 0.5, 7, 8, x.data(), given(wide * in), given(wide * h), given(wide), given(wide), given(2 * h), given(batch * h)};
        one.c0 = parts == 4 ? given(batch * h) : nullptr;
        one.z = empty(rows * wide), one.kept = empty(rows * wide), one.out = empty(rows * h), one.mixed = empty(rows * h);
        one.final_h = empty(batch * h), one.final_c = empty(batch * h);
        one.grad_out = given(rows * h), one.grad_final_h = given(batch * h), one.grad_final_c = given(batch * h);
        one.grad_z = empty(rows * wide), one.grad_hh = empty(rows * wide), one.grad_x = empty(rows * in);
        one.grad_w_ih = empty(wide * in), one.grad_w_hh = empty(wide * h), one.grad_b_ih = empty(wide), one.grad_b_hh = empty(wide), one.grad_a = empty(2 * h);
        one.grad_h = empty(batch * h), one.grad_c = empty(batch * h);
        d.push_back(one);
      }
      for (bool backward : {false, true}) recurrent<float>(parts == 4, backward, o, sizes, d.data(), directions, threads);
      for (const Numbers& each : made) keep(each);
    }
  }
  return all;
}

int main() {
  const Numbers one = results(1);
  for (int threads : {2, 3, 4})
    if (results(threads) != one) return std::printf("%d threads give another result than one\n", threads), 1;
  std::printf("%zu numbers, the same on 1 to 4 threads\n", one.size());
}
