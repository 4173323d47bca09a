// How a recurrent layer is divided: units into blocks, rows into steps, and both among threads.
#pragma once
#include "recurrent_cells.h"
#include "recurrent_product.h"
#include <vector>

namespace mollifier {

constexpr int BLOCK = 8;  // the most panels processed together: first products, then cells, while they are in the cache

// One of the threads that share a direction.
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

// The units in blocks of whole panels. The blocks depend only on the number of units, so the results do not depend on the threads.
template <class T>
struct Blocks {
  int units, panels, count;
  explicit Blocks(int units) : units(units), panels(pieces(units, WIDTH<T>)) {
    count = pieces(panels, BLOCK);
    if (panels > 1) count += count % 2;  // so that two threads have equal work
  }
  int panel(int block) const { return int(int64_t(panels) * block / count); }
  int unit(int block) const { return std::min(units, panel(block) * WIDTH<T>); }
  int width(int panel) const { return std::min(WIDTH<T>, units - panel * WIDTH<T>); }
};

// Where each step's rows begin, and which row of the previous step each row continues.
struct Steps {
  std::vector<int64_t> first, sizes, lengths;
  int64_t count;
  int ahead;
  Steps(const Options& o, const int64_t* given, bool reverse) : first(o.steps + 1, 0), sizes(given, given + o.steps), count(o.steps) {
    for (int64_t t = 0; t < count; ++t) first[t + 1] = first[t] + sizes[t];
    ahead = reverse ? -1 : 1;
    for (int64_t k = 0; k < o.batch; ++k) {
      const auto end = std::partition_point(sizes.begin(), sizes.end(), [&](int64_t size) { return size > k; });
      lengths.push_back(end - sizes.begin());
    }
  }
  int64_t at(int64_t number) const { return ahead < 0 ? count - 1 - number : number; }
  int64_t size(int64_t t) const { return t < 0 || t >= count ? 0 : sizes[t]; }
  int64_t going(int64_t t) const { return std::min(size(t), size(t - ahead)); }                 // rows that continue a previous row
  int64_t before(int64_t t, int64_t k) const { return k < going(t) ? first[t - ahead] + k : -1; }  // that row, or -1 if the sequence begins here
  int64_t position(int64_t t, int64_t k) const { return ahead < 0 ? lengths[k] - t : t + 1; }  // in the direction of reading, from 1
  bool ends(int64_t t, int64_t k) const { return k >= size(t + ahead); }
};

}  // namespace mollifier
