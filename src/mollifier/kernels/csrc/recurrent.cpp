// Whole sequences of a mollified LSTM or GRU layer, both directions at once. Rows of all steps lie one after the other, longest
// sequence first; step t has sizes[t] rows, never more than the step before. Each thread has units of its own: for them it makes all
// products, all steps and all sums, and it meets the others once a step, because the product needs the state of all units.
#include "recurrent_cells.h"
#include "recurrent_product.h"
#include <vector>
#ifdef _OPENMP
#include <omp.h>
#endif

using namespace mollifier;

namespace {

constexpr int BLOCK = 8;  // panels at most that are worked on together: products, then cells, while the cache holds them

// A thread among those that share a direction.
struct Share {
  int number, count;
  bool meets;
  int first(int total) const { return int(int64_t(total) * number / count); }
  int last(int total) const { return int(int64_t(total) * (number + 1) / count); }
  void meet() const {
    if (meets) {
#pragma omp barrier
    }
  }
};

// The units in blocks of whole panels. They depend on the number of units alone, and so do all results.
template <class T>
struct Blocks {
  int units, panels, count;
  explicit Blocks(int units) : units(units), panels(pieces(units, WIDTH<T>)) {
    count = pieces(panels, BLOCK);
    if (panels > 1) count += count % 2;  // so that two threads have the same
  }
  int panel(int block) const { return int(int64_t(panels) * block / count); }
  int unit(int block) const { return std::min(units, panel(block) * WIDTH<T>); }
  int width(int panel) const { return std::min(WIDTH<T>, units - panel * WIDTH<T>); }
};

// Where each step's rows begin, and which row of the step before each row goes on from.
struct Steps {
  std::vector<int64_t> first, sizes;
  int count, ahead;
  Steps(const Options& o, const int64_t* given, bool reverse) : first(o.steps + 1, 0), sizes(given, given + o.steps), count(o.steps) {
    for (int t = 0; t < count; ++t) first[t + 1] = first[t] + sizes[t];
    ahead = reverse ? -1 : 1;
  }
  int at(int number) const { return ahead < 0 ? count - 1 - number : number; }
  int64_t size(int t) const { return t < 0 || t >= count ? 0 : sizes[t]; }
  int64_t going(int t) const { return std::min(size(t), size(t - ahead)); }                 // rows that have a row before them
  int64_t before(int t, int64_t k) const { return k < going(t) ? first[t - ahead] + k : -1; }  // that row, or -1: it begins here
  bool ends(int t, int64_t k) const { return k >= size(t + ahead); }
};

// One direction of one layer, by one thread of its share.
template <class T>
struct Layer {
  const Cell<T>& c;
  const Options& o;
  const Direction<T>& d;
  const Share me;
  const Steps steps;
  const Blocks<T> blocks;
  const int h, wide, rows, first_block, last_block, first_panel, last_panel;
  static constexpr int W = WIDTH<T>;

  Layer(const Cell<T>& c, const Options& o, const int64_t* sizes, const Direction<T>& d, Share me)
      : c(c), o(o), d(d), me(me), steps(o, sizes, d.reverse), blocks(o.hidden), h(o.hidden), wide(c.parts * h), rows(int(steps.first[o.steps])),
        first_block(me.first(blocks.count)), last_block(me.last(blocks.count)), first_panel(blocks.panel(first_block)),
        last_panel(blocks.panel(last_block)) {}

  const T* state(const T* now, const T* initial, int t, int64_t k) const {
    const int64_t row = steps.before(t, k);
    return row < 0 ? initial + k * h : now + row * h;
  }

  // My panels of the transpose of w (parts * hidden, depth), the parts of a panel beside each other.
  void pack_parts(const T* w, int depth, T* out) const {
    for (int p = first_panel; p < last_panel; ++p)
      for (int q = 0; q < c.parts; ++q, out += int64_t(depth) * W)
        pack_transposed<T>(w + (int64_t(q) * h + p * W) * depth, blocks.width(p), depth, out);
  }
  const T* packed(const T* from, int panel, int part, int depth) const {
    return from + (int64_t(panel - first_panel) * c.parts + part) * depth * W;
  }

  void forward() const {
    const int depth = std::max(o.inputs, h);
    const auto weights = numbers<T>(size_t(last_panel - first_panel) * c.parts * depth * W);
    std::vector<T> bias(wide, T(0)), recurrent_bias(wide, T(0));
    if (d.b_ih) std::copy_n(d.b_ih, wide, bias.begin());
    if (d.b_hh) std::copy_n(d.b_hh, wide, recurrent_bias.begin());
    if (c.sum) add_to<T>(recurrent_bias.data(), bias.data(), wide);

    pack_parts(d.w_ih, o.inputs, weights.get());
    for (int row = 0; row < rows; row += STRETCH)
      for (int p = first_panel; p < last_panel; ++p)
        for (int q = 0; q < c.parts; ++q)
          panel_product<T>(std::min(STRETCH, rows - row), blocks.width(p), o.inputs, {d.x + int64_t(row) * o.inputs, o.inputs, 1},
                           packed(weights.get(), p, q, o.inputs), {bias.data() + q * h + p * W, 0}, d.z + int64_t(row) * wide + q * h + p * W,
                           wide);

    pack_parts(d.w_hh, h, weights.get());
    std::vector<float> xi(size_t(c.gates + c.activations) * BLOCK * W, 0.0f);
    for (int number = 0; number < o.steps; ++number) {
      const int t = steps.at(number);
      const int64_t going = steps.going(t);
      for (int b = first_block; b < last_block; ++b) {
        for (int p = blocks.panel(b); p < blocks.panel(b + 1); ++p)
          for (int q = 0; q < c.parts; ++q) {
            const T* w = packed(weights.get(), p, q, h);
            if (going) recur(t, 0, going, state(d.out, d.h0, t, 0), p, q, w, recurrent_bias.data());
            if (going < steps.size(t)) recur(t, going, steps.size(t), d.h0 + going * h, p, q, w, recurrent_bias.data());
          }
        for (int64_t k = 0; k < steps.size(t); ++k) cell(t, k, b, xi.data());
      }
      me.meet();
    }
  }

  // The recurrent product of rows [from, to) of a step, one panel and part of it.
  void recur(int t, int64_t from, int64_t to, const T* before, int panel, int part, const T* w, const T* bias) const {
    const int at = part * h + panel * W;
    T* out = (c.sum ? d.z + steps.first[t] * wide : d.kept_of(steps.first[t], 0, wide)) + from * wide + at;
    panel_product<T>(int(to - from), blocks.width(panel), h, {before, h, 1}, w, c.sum ? Start<T>{out, wide} : Start<T>{bias + at, 0}, out, wide);
  }

  // The units of a block in row k of a step.
  void cell(int t, int64_t k, int block, float* xi) const {
    const int64_t row = steps.first[t] + k;
    const int first = blocks.unit(block), count = blocks.unit(block + 1) - first;
    const Seed key = seed_of(d.seed);
    const int from = o.gates ? 0 : c.gates, to = o.activations ? c.gates + c.activations : c.gates;
    for (int part = from; part < to; ++part)
      normal_chunk(key, uint32_t((row * (c.gates + c.activations) + part) * h + first), count, xi + part * count);
    c.forward(o, d, {row, k, state(d.out, d.h0, t, k), d.c0 ? state(d.cell, d.c0, t, k) : nullptr, first, count, xi});
    if (steps.ends(t, k)) {
      std::copy_n(d.out + row * h + first, count, d.final_h + k * h + first);
      if (d.c0) std::copy_n(d.cell + row * h + first, count, d.final_c + k * h + first);
    }
  }

  void backward() const {
    const int first = blocks.unit(first_block), count = blocks.unit(last_block) - first;
    for (int64_t k = 0; k < o.batch; ++k) {
      std::copy_n(d.grad_final_h + k * h + first, count, d.grad_h + k * h + first);
      if (d.c0) std::copy_n(d.grad_final_c + k * h + first, count, d.grad_c + k * h + first);
    }
    for (int q = 0; q < 2 * c.parts; ++q) std::fill_n(d.grad_b + q * h + first, count, T(0));
    for (int q = 0; d.grad_a && q < c.activations; ++q) std::fill_n(d.grad_a + q * h + first, count, T(0));

    auto weights = numbers<T>(size_t(last_panel - first_panel) * wide * W);
    const auto packed = [&](int p) { return weights.get() + int64_t(p - first_panel) * wide * W; };
    for (int p = first_panel; p < last_panel; ++p)
      pack<T>([&](int l) { return d.w_hh + int64_t(l) * h; }, p * W, blocks.width(p), wide, packed(p));
    const T* grad_hh = c.sum ? d.grad_z : d.grad_hh;
    for (int number = o.steps - 1; number >= 0; --number) {
      const int t = steps.at(number);
      for (int b = first_block; b < last_block; ++b)
        for (int64_t k = 0; k < steps.size(t); ++k)
          c.backward(o, d, {steps.first[t] + k, k, nullptr, nullptr, blocks.unit(b), blocks.unit(b + 1) - blocks.unit(b), nullptr});
      me.meet();
      for (int p = first_panel; p < last_panel; ++p)
        panel_product<T>(int(steps.size(t)), blocks.width(p), wide, {grad_hh + steps.first[t] * wide, wide, 1}, packed(p), {d.grad_h + p * W, h},
                         d.grad_h + p * W, h);
    }
    for (int q = 0; q < c.same; ++q) std::copy_n(d.grad_b + q * h + first, count, d.grad_b + (c.parts + q) * h + first);
    weights.reset();
    if (d.grad_x) input_gradient();
    const int tiles = pieces(wide, TALL), from = me.first(tiles) * TALL, to = std::min(me.last(tiles) * TALL, wide);
    std::vector<const T*> inputs(rows), before(rows);
    for (int t = 0; t < o.steps; ++t)
      for (int64_t k = 0; k < steps.size(t); ++k) {
        const int64_t row = steps.first[t] + k;
        inputs[row] = d.x + row * o.inputs, before[row] = state(d.out, d.h0, t, k);
      }
    const Right<T> by_inputs{inputs.data(), o.inputs, d.grad_w_ih}, by_state{before.data(), h, d.grad_w_hh};
    if (c.sum) return transposed_products<T>(from, to, rows, d.grad_z, wide, {by_inputs, by_state});
    transposed_products<T>(from, to, rows, d.grad_z, wide, {by_inputs});
    transposed_products<T>(from, to, rows, d.grad_hh, wide, {by_state});
  }

  // My columns of the input's gradient.
  void input_gradient() const {
    static const T zeros[W] = {};
    const int panels = pieces(o.inputs, W), first = me.first(panels), last = me.last(panels);
    const auto weights = numbers<T>(size_t(last - first) * wide * W);
    const auto width = [&](int p) { return std::min(W, o.inputs - p * W); };
    const auto packed = [&](int p) { return weights.get() + int64_t(p - first) * wide * W; };
    for (int p = first; p < last; ++p) pack<T>([&](int l) { return d.w_ih + int64_t(l) * o.inputs; }, p * W, width(p), wide, packed(p));
    for (int row = 0; row < rows; row += STRETCH)
      for (int p = first; p < last; ++p)
        panel_product<T>(std::min(STRETCH, rows - row), width(p), wide, {d.grad_z + int64_t(row) * wide, wide, 1}, packed(p), {zeros, 0},
                         d.grad_x + int64_t(row) * o.inputs + p * W, o.inputs);
  }
};

template <class T>
void run(const Cell<T>& cell, bool backward, const Options& o, const int64_t* sizes, const Direction<T>* d, int directions, int threads) {
  const auto one = [&](int direction, Share share) {
    const Layer<T> layer(cell, o, sizes, d[direction], share);
    backward ? layer.backward() : layer.forward();
  };
  threads = std::min(threads, directions * Blocks<T>(o.hidden).count);
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    int number = 0, count = 1;
#ifdef _OPENMP
    number = omp_get_thread_num(), count = omp_get_num_threads();
#endif
    if (count < directions) {
      for (int direction = 0; direction < directions; ++direction) one(direction, {number, count, count > 1});
    } else {
      // Both directions have as many steps, so all threads meet equally often; a direction's only thread has no one to meet.
      const int direction = number % directions, sharing = (count + directions - 1 - direction) / directions;
      one(direction, {number / directions, sharing, count > directions});
    }
  }
}

template <class T, template <class, bool, bool> class C>
Cell<T> cell_of(const Options& o) {
  if (o.hard) return o.activations ? C<T, true, true>::cell() : C<T, true, false>::cell();
  return o.activations ? C<T, false, true>::cell() : C<T, false, false>::cell();
}

}  // namespace

#define EXPORT(name, T, C)                                                                                                          \
  extern "C" void mollifier_##name(int backward, const Options* o, const int64_t* sizes, const Direction<T>* d, int directions,      \
                                   int threads) {                                                                                  \
    run<T>(cell_of<T, C>(*o), backward, *o, sizes, d, directions, threads);                                                        \
  }
EXPORT(lstm_float, float, LSTM)
EXPORT(lstm_double, double, LSTM)
EXPORT(gru_float, float, GRU)
EXPORT(gru_double, double, GRU)
