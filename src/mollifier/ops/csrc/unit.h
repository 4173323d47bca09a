// The interface of unit.cpp for the operators and for chain.cpp.
#pragma once
#include "stages.h"

namespace mollifier {

// The shape of the data: inner is 1 for features, the number of pixels for channels. The first `in_units` units have a unit below to copy, the
// rest copy zeros; if it is 0, there is no copy.
struct Shape {
  int64_t outer, units, inner, in_units;
  int64_t total() const { return outer * units * inner; }
};

// The settings of one call. noisy: false for a copy without noise. level is that of the noise. expected: noise and copy are replaced by their
// means.
struct Unit {
  Shape shape;
  bool noisy;
  Activation act;
  double level, copy_level, c;
  bool odds, residual, expected;
  uint64_t seed;
};

// S is the storage type: float, double or bf16. a and grad_a have the type used for the computation: double for double, else float. They have
// a_count elements, 1 for all units or one per unit. by_x and by_a are both given (derivatives kept for the backward pass) or both null
// (computed again there, from x). below and grad_below may be null.
template <class S, class T = typename compute<S>::type>
void unit_forward(const Unit& unit, const S* x, const S* below, const T* a, int64_t a_count, S* out, S* by_x, S* by_a, int threads);
template <class S, class T = typename compute<S>::type>
void unit_backward(const Unit& unit, const S* grad, const S* x, const S* by_x, const S* by_a, const T* a, int64_t a_count, S* grad_x,
                   S* grad_below, T* grad_a, int threads);

}  // namespace mollifier
