// What unit.cpp offers to the operators and to chain.cpp.
#pragma once
#include "stages.h"

namespace mollifier {

enum Dtype { FLOAT, DOUBLE, BFLOAT16 };

// One call. Data is (outer, units, inner): inner = 1 for features, pixels for channels. The copy is of `in_units` units, the rest zeros; 0 of
// them: there is no copy. noisy: false for a copy without noise. level is that of the noise. expected: both are taken as their mean.
struct Unit {
  Dtype dtype;
  int64_t outer, units, inner, in_units;
  bool noisy;
  Activation act;
  double level, copy_level, c;
  bool odds, residual, expected;
  uint64_t seed;
};

// a and grad_a are of the type computed in: double for double, else float; there are a_count of them, 1 for all units or one for each.
// by_x and by_a are both given (derivatives kept for the backward pass) or both null (made again there, from x). grad_below may be null.
void unit_forward(const Unit& unit, const void* x, const void* below, const void* a, int64_t a_count, void* out, void* by_x, void* by_a,
                  int threads);
void unit_backward(const Unit& unit, const void* grad, const void* x, const void* by_x, const void* by_a, const void* a, int64_t a_count,
                   void* grad_x, void* grad_below, void* grad_a, int threads);

// |xi| and the copy's uniform of so many elements, for tests and for whoever wants to see them.
void noise_of(uint64_t seed, int64_t count, float* xi, float* uniform);

}  // namespace mollifier
