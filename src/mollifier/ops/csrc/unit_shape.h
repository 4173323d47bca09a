// How the data of a unit is cut up: pieces for threads, chunks that the caches hold.
#pragma once
#include "elementary.h"
#include <algorithm>

namespace mollifier {

// (outer, units, inner), and how many units there are below.
struct Shape { int64_t outer, units, inner, in_units; };

// Pieces of the data that one thread works on; they depend on the shape alone, and so does every sum.
inline int64_t pieces(const Shape& s) {
  const int64_t total = s.outer * s.units * s.inner;
  return std::min<int64_t>(s.outer, std::max<int64_t>(1, std::min<int64_t>(64, total / 16384)));
}

// Short rows of features are taken several at a time where nothing is padded: longer chunks, and fewer ends of loops.
inline int64_t together(const Shape& s) {
  if (s.inner != 1 || (s.in_units && s.in_units != s.units)) return 1;
  int64_t rows = std::max<int64_t>(1, CHUNK / s.units);
  while (s.outer % rows) --rows;
  return rows;
}

// Calls body(first element, number of elements, unit of the first, below's first element or -1) for rows [begin, end).
// A chunk lies within one unit's pixels, or within one row of units.
template <class Body>
void chunks(const Shape& s, int64_t begin, int64_t end, Body body) {
  if (s.inner == 1) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t unit = 0; unit < s.units;) {
        const int64_t edge = unit < s.in_units ? s.in_units : s.units;
        const int n = int(std::min<int64_t>(CHUNK, edge - unit));
        body(row * s.units + unit, n, unit, unit < s.in_units ? row * s.in_units + unit : -1);
        unit += n;
      }
  } else {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t unit = 0; unit < s.units; ++unit)
        for (int64_t pixel = 0; pixel < s.inner;) {
          const int n = int(std::min<int64_t>(CHUNK, s.inner - pixel));
          body((row * s.units + unit) * s.inner + pixel, n, unit, unit < s.in_units ? (row * s.in_units + unit) * s.inner + pixel : -1);
          pixel += n;
        }
  }
}

// A sum in sixteen lanes, which the compiler vectorises without leave to reorder.
template <class T>
STAGE T total(const T* RESTRICT v, int n) {
  T lanes[16] = {};
  int k = 0;
  for (; k + 16 <= n; k += 16)
    for (int l = 0; l < 16; ++l) lanes[l] += v[k + l];
  for (; k < n; ++k) lanes[k % 16] += v[k];
  T sum = 0;
  for (int l = 0; l < 16; ++l) sum += lanes[l];
  return sum;
}

}  // namespace mollifier
