// Whole sequences of a mollified LSTM or GRU layer, both directions at once. Rows of all steps lie one after the other, longest
// sequence first; step t has sizes[t] rows, never more than the step before. Each thread has its own units, for which it computes
// all products, steps and sums. It waits for the others once per step, because the product needs the state of all units.
#include "chain.h"
#include "recurrent_shares.h"
#ifdef _OPENMP
#include <omp.h>
#endif

using namespace mollifier;

namespace {

// One direction of one layer, computed by one of the threads that share it.
template <class T>
struct Layer {
  const Cell<T>& c;
  const Options& o;
  const Direction<T>& d;
  const Share me;
  const Steps steps;
  const Blocks<T> blocks;
  const int h, wide;
  const int64_t rows;
  const int first_block, last_block, first_panel, last_panel;
  static constexpr int W = WIDTH<T>;

  Layer(const Cell<T>& c, const Options& o, const int64_t* sizes, const Direction<T>& d, Share me)
      : c(c), o(o), d(d), me(me), steps(o, sizes, d.reverse), blocks(o.hidden), h(o.hidden), wide(c.parts * h), rows(steps.first[o.steps]),
        first_block(me.first(blocks.count)), last_block(me.last(blocks.count)), first_panel(blocks.panel(first_block)),
        last_panel(blocks.panel(last_block)) {}

  const T* state(const T* now, const T* initial, int64_t t, int64_t k) const {
    const int64_t row = steps.before(t, k);
    return row < 0 ? initial + k * h : now + row * h;
  }

  // Packs this thread's panels of the transpose of w (parts * hidden, depth), with the parts of a panel next to each other.
  void pack_parts(const T* w, int depth, T* out) const {
    for (int p = first_panel; p < last_panel; ++p)
      for (int q = 0; q < c.parts; ++q, out += int64_t(depth) * W)
        pack_transposed<T>(w + (int64_t(q) * h + p * W) * depth, blocks.width(p), depth, out);
  }
  const T* packed(const T* from, int panel, int part, int depth) const {
    return from + (int64_t(panel - first_panel) * c.parts + part) * depth * W;
  }

  // Returns whether this is a single step, for which torch computes each product as a whole.
  bool single() const { return o.gemm && o.steps == 1 && rows * std::max(wide, o.inputs) < int64_t(1) << 30; }
  void step_forward(const T* bias, const T* recurrent_bias) const {
    const auto gemm = (Gemm<T>)o.gemm;
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(bias, wide, d.z + row * wide);
      if (!c.sum) std::copy_n(recurrent_bias, wide, d.kept + row * wide);
    }
    product<T>(gemm, "T", "N", wide, rows, o.inputs, d.w_ih, o.inputs, d.x, o.inputs, T(1), d.z);
    product<T>(gemm, "T", "N", wide, rows, h, d.w_hh, h, d.h0, h, T(1), c.sum ? d.z : d.kept);
    std::vector<float> xi(size_t(c.gates + c.activations) * BLOCK * W, o.expected ? 1.0f : 0.0f);
    for (int b = first_block; b < last_block; ++b)
      for (int64_t k = 0; k < rows; ++k) cell(0, k, b, xi.data());
  }
  void step_backward() const {
    const auto gemm = (Gemm<T>)o.gemm;
    const T* grad_hh = c.sum ? d.grad_z : d.grad_hh;
    if (o.by_states) product<T>(gemm, "N", "N", h, rows, wide, d.w_hh, h, grad_hh, wide, T(1), d.grad_h);
    if (d.grad_x) product<T>(gemm, "N", "N", o.inputs, rows, wide, d.w_ih, o.inputs, d.grad_z, wide, d.copies ? T(1) : T(0), d.grad_x);
    product<T>(gemm, "N", "T", o.inputs, wide, rows, d.x, o.inputs, d.grad_z, wide, T(0), d.grad_w_ih);
    product<T>(gemm, "N", "T", h, wide, rows, d.h0, h, grad_hh, wide, T(0), d.grad_w_hh);
  }

  void forward() const {
    const int depth = std::max(o.inputs, h);
    T* weights = workspace<T, 0>(size_t(last_panel - first_panel) * c.parts * depth * W);
    std::vector<T> bias(wide, T(0)), recurrent_bias(wide, T(0));
    if (d.b_ih) std::copy_n(d.b_ih, wide, bias.begin());
    if (d.b_hh) std::copy_n(d.b_hh, wide, recurrent_bias.begin());
    if (c.sum) add_to<T>(recurrent_bias.data(), bias.data(), wide);
    if (single()) return step_forward(bias.data(), recurrent_bias.data());

    pack_parts(d.w_ih, o.inputs, weights);
    for (int64_t row = 0; row < rows; row += STRETCH)
      for (int p = first_panel; p < last_panel; ++p)
        for (int q = 0; q < c.parts; ++q)
          panel_product<T>(std::min<int64_t>(STRETCH, rows - row), blocks.width(p), o.inputs, {d.x + row * o.inputs, o.inputs, 1},
                           packed(weights, p, q, o.inputs), {bias.data() + q * h + p * W, 0}, d.z + row * wide + q * h + p * W,
                           wide);

    pack_parts(d.w_hh, h, weights);
    std::vector<float> xi(size_t(c.gates + c.activations) * BLOCK * W, o.expected ? 1.0f : 0.0f);
    const bool idle = c.sum && std::all_of(d.h0, d.h0 + o.batch * h, [](T v) { return v == T(0); });  // the initial state is zero
    for (int64_t number = 0; number < o.steps; ++number) {
      const int64_t t = steps.at(number);
      const int64_t going = steps.going(t);
      for (int b = first_block; b < last_block; ++b) {
        for (int p = blocks.panel(b); p < blocks.panel(b + 1); ++p)
          for (int q = 0; q < c.parts; ++q) {
            const T* w = packed(weights, p, q, h);
            if (going) recur(t, 0, going, state(d.out, d.h0, t, 0), p, q, w, recurrent_bias.data());
            if (going < steps.size(t) && !idle) recur(t, going, steps.size(t), d.h0 + going * h, p, q, w, recurrent_bias.data());
          }
        // neighbours in opposite orders, so that they are rarely at the same row, where some cache lines belong to both
        for (int64_t k = 0, n = steps.size(t); k < n; ++k) cell(t, me.number % 2 ? n - 1 - k : k, b, xi.data());
      }
      me.meet();
    }
  }

  // Computes the recurrent product of rows [from, to) of a step, for one panel and one part.
  void recur(int64_t t, int64_t from, int64_t to, const T* before, int panel, int part, const T* w, const T* bias) const {
    const int at = part * h + panel * W;
    T* out = (c.sum ? d.z + steps.first[t] * wide : d.kept_of(steps.first[t], 0, wide)) + from * wide + at;
    panel_product<T>(to - from, blocks.width(panel), h, {before, h, 1}, w, c.sum ? Start<T>{out, wide} : Start<T>{bias + at, 0}, out, wide);
  }

  // Computes the units of a block in row k of a step.
  void cell(int64_t t, int64_t k, int block, float* xi) const {
    const int64_t row = steps.first[t] + k;
    const int first = blocks.unit(block), count = blocks.unit(block + 1) - first;
    const Seed key = seed_of(d.seed);
    const int from = o.gates ? 0 : c.gates, to = o.activations ? c.gates + c.activations : c.gates;
    for (int part = from; part < to && !o.expected; ++part)
      normal_chunk(key, uint32_t((row * (c.gates + c.activations) + part) * h + first), count, xi + part * count);
    const T* c_before = steps.before(t, k) < 0 ? d.c0 + k * h : d.final_c + k * h;  // it is updated in place
    c.forward(o, d, {row, k, inverse_t(d, steps.position(t, k)), state(d.out, d.h0, t, k), c_before, first, count, xi, nullptr});
    if (d.copies) copy(row, first, count);
    if (steps.ends(t, k)) std::copy_n(d.out + row * h + first, count, d.final_h + k * h + first);
  }

  // Computes the bits that decide which units are copied, and returns how many of the block's units have a unit below.
  int copied(int64_t row, int first, int count, uint32_t* bits) const {
    hash_chunk(seed_of(d.copy_seed), uint32_t(row * h + first), count, bits);
    return clamp(o.inputs - first, 0, count);
  }
  void copy(int64_t row, int first, int count) const {
    uint32_t bits[BLOCK * W];
    T* to = d.mixed + row * h + first;
    if (o.expected) {
      const T p = T(d.copy_level);
      std::copy_n(d.out + row * h + first, count, to);
      const int have = clamp(o.inputs - first, 0, count);
      mix_mean<false, T>(p, d.x + row * o.inputs + first, to, have);
      return scaled<T>(T(1) - p, d.out + row * h + first + have, to + have, count - have);
    }
    const int have = copied(row, first, count, bits), threshold = copy_threshold(d.copy_level);
    choose<T>(bits, threshold, d.x + row * o.inputs + first, d.out + row * h + first, to, have);
    keep<T>(bits + have, threshold, d.out + row * h + first + have, to + have, count - have);
  }
  // Returns the gradient that goes to the cell; the rest is passed to x.
  const T* copy_back(int64_t row, int first, int count, T* up) const {
    const T* grad = d.grad_out + row * h + first;
    if (!d.copies) return grad;
    if (o.expected) {
      const T p = T(d.copy_level);
      scaled<T>(T(1) - p, grad, up, count);
      if (d.grad_x) scaled<T>(p, grad, d.grad_x + row * o.inputs + first, clamp(o.inputs - first, 0, count));
      return up;
    }
    uint32_t bits[BLOCK * W];
    const int have = copied(row, first, count, bits), threshold = copy_threshold(d.copy_level);
    keep<T>(bits, threshold, grad, up, count);
    if (d.grad_x) pass<T>(bits, threshold, grad, d.grad_x + row * o.inputs + first, have);
    return up;
  }

  static void take(const T* from, int64_t at, int count, T* to) {
    if (from) std::copy_n(from + at, count, to + at);
    else std::fill_n(to + at, count, T(0));
  }

  void backward() const {
    const int first = blocks.unit(first_block), count = blocks.unit(last_block) - first;
    for (int64_t k = 0; k < o.batch; ++k) {
      take(d.grad_final_h, k * h + first, count, d.grad_h);
      if (d.c0) take(d.grad_final_c, k * h + first, count, d.grad_c);
    }
    // Every row adds to these sums. They are this thread's own until the end, because threads that write to the same cache line wait for each other.
    std::vector<T> b_ih(wide, T(0)), b_hh(wide, T(0)), a(c.activations * h, T(0));
    Direction<T> mine = d;
    mine.grad_b_ih = b_ih.data(), mine.grad_b_hh = b_hh.data(), mine.grad_a = d.grad_a ? a.data() : nullptr;

    const bool step = single();
    T* weights = workspace<T, 0>(step ? 0 : size_t(last_panel - first_panel) * wide * W);
    const auto packed = [&](int p) { return weights + int64_t(p - first_panel) * wide * W; };
    if (!step) pack<T>([&](int l) { return d.w_hh + int64_t(l) * h + first; }, count, wide, weights);
    const T* grad_hh = c.sum ? d.grad_z : d.grad_hh;
    for (int64_t number = o.steps - 1; number >= 0; --number) {
      const int64_t t = steps.at(number);
      for (int64_t k = 0; k < steps.size(t); ++k)  // row by row, in memory order
        for (int b = first_block; b < last_block; ++b) {
          const int64_t row = steps.first[t] + k;
          const int begin = blocks.unit(b), width = blocks.unit(b + 1) - begin;
          T up[BLOCK * W];
          c.backward(o, mine, {row, k, T(1), nullptr, nullptr, begin, width, nullptr, copy_back(row, begin, width, up)});
        }
      me.meet();
      if (step || (!number && !o.by_states)) break;
      for (int p = first_panel; p < last_panel; ++p)
        panel_product<T>(steps.size(t), blocks.width(p), wide, {grad_hh + steps.first[t] * wide, wide, 1}, packed(p), {d.grad_h + p * W, h},
                         d.grad_h + p * W, h);
    }
    for (int q = 0; q < c.parts; ++q) {
      const int at = q * h + first;
      std::copy_n(b_ih.data() + at, count, d.grad_b_ih + at);
      std::copy_n(q < c.same ? b_ih.data() + at : b_hh.data() + at, count, d.grad_b_hh + at);
      if (d.grad_a && q < c.activations) std::copy_n(a.data() + at, count, d.grad_a + at);
    }
    if (step) return step_backward();
    if (d.grad_x) input_gradient();
    const int tiles = pieces(wide, TALL), from = me.first(tiles) * TALL, to = std::min(me.last(tiles) * TALL, wide);
    std::vector<const T*> inputs(rows), before(rows);
    for (int64_t t = 0; t < o.steps; ++t)
      for (int64_t k = 0; k < steps.size(t); ++k) {
        const int64_t row = steps.first[t] + k;
        inputs[row] = d.x + row * o.inputs, before[row] = state(d.out, d.h0, t, k);
      }
    const Right<T> by_inputs{inputs.data(), o.inputs, d.grad_w_ih}, by_state{before.data(), h, d.grad_w_hh};
    if (c.sum) return transposed_products<T>(from, to, rows, d.grad_z, wide, {by_inputs, by_state});
    transposed_products<T>(from, to, rows, d.grad_z, wide, {by_inputs});
    transposed_products<T>(from, to, rows, d.grad_hh, wide, {by_state});
  }

  // Computes this thread's columns of the input's gradient.
  void input_gradient() const {
    static const T zeros[W] = {};
    const int panels = pieces(o.inputs, W), first = me.first(panels), last = me.last(panels);
    T* weights = workspace<T, 0>(size_t(last - first) * wide * W);
    const auto width = [&](int p) { return std::min(W, o.inputs - p * W); };
    const auto packed = [&](int p) { return weights + int64_t(p - first) * wide * W; };
    pack<T>([&](int l) { return d.w_ih + int64_t(l) * o.inputs + first * W; }, std::min(last * W, o.inputs) - first * W, wide, weights);
    for (int64_t row = 0; row < rows; row += STRETCH)
      for (int p = first; p < last; ++p) {
        T* to = d.grad_x + row * o.inputs + p * W;
        panel_product<T>(std::min<int64_t>(STRETCH, rows - row), width(p), wide, {d.grad_z + row * wide, wide, 1}, packed(p),
                         d.copies ? Start<T>{to, o.inputs} : Start<T>{zeros, 0}, to, o.inputs);
      }
  }
};

template <class T>
void run(const Cell<T>& cell, bool backward, const Options& o, const int64_t* sizes, const Direction<T>* d, int directions, int threads) {
  const auto one = [&](int direction, Share share) {
    const Layer<T> layer(cell, o, sizes, d[direction], share);
    backward ? layer.backward() : layer.forward();
  };
  threads = o.gemm && o.steps == 1 ? 1 : std::min(threads, directions * Blocks<T>(o.hidden).count);
  const auto part = [&](int number, int count) {
    if (count < directions) {
      for (int direction = 0; direction < directions; ++direction) one(direction, {number, count, count > 1});
    } else {
      // Both directions have the same number of steps, so all threads meet equally often; if each direction has only one
      // thread, they need not meet.
      const int direction = number % directions, sharing = (count + directions - 1 - direction) / directions;
      one(direction, {number / directions, sharing, count > directions});
    }
  };
#ifdef _OPENMP
  // A single thread opens no parallel region: inside one, torch's product would start its threads again at every call.
  if (threads > 1) {
#pragma omp parallel num_threads(threads)
    part(omp_get_thread_num(), omp_get_num_threads());
    return;
  }
#endif
  part(0, 1);
}

template <class T, template <class, bool, bool> class C>
Cell<T> cell_of(const Options& o) {
  if (o.hard) return o.activations ? C<T, true, true>::cell() : C<T, true, false>::cell();
  return o.activations ? C<T, false, true>::cell() : C<T, false, false>::cell();
}

}  // namespace

namespace mollifier {

template <class T>
void recurrent(bool lstm, bool backward, const Options& o, const int64_t* sizes, const Direction<T>* d, int directions, int threads) {
  run<T>(lstm ? cell_of<T, LSTM>(o) : cell_of<T, GRU>(o), backward, o, sizes, d, directions, threads);
}
template void recurrent<float>(bool, bool, const Options&, const int64_t*, const Direction<float>*, int, int);
template void recurrent<double>(bool, bool, const Options&, const int64_t*, const Direction<double>*, int, int);

}  // namespace mollifier
