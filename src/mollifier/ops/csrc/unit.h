// What unit.cpp offers to the operators and to chain.cpp.
#pragma once
#include "stages.h"

namespace mollifier {

// Of the data: inner = 1 for features, pixels for channels. The copy is of `in_units` units, the rest zeros; 0 of them: there is no copy.
struct Shape {
  int64_t outer, units, inner, in_units;
  int64_t total() const { return outer * units * inner; }
};

// One call. noisy: false for a copy without noise. level is that of the noise. expected: both are taken as their mean.
struct Unit {
  Shape shape;
  bool noisy;
  Activation act;
  double level, copy_level, c;
  bool odds, residual, expected;
  uint64_t seed;
};

// S is stored, float, double or bf16. a and grad_a are of the type computed in: double for double, else float; there are a_count of them, 1
// for all units or one for each. by_x and by_a are both given (derivatives kept for the backward pass) or both null (made again there, from
// x). below and grad_below may be null.
template <class S, class T = typename compute<S>::type>
void unit_forward(const Unit& unit, const S* x, const S* below, const T* a, int64_t a_count, S* out, S* by_x, S* by_a, int threads);
template <class S, class T = typename compute<S>::type>
void unit_backward(const Unit& unit, const S* grad, const S* x, const S* by_x, const S* by_a, const T* a, int64_t a_count, S* grad_x,
                   S* grad_below, T* grad_a, int threads);

}  // namespace mollifier
