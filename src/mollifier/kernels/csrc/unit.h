// What unit.cpp offers to Python and to chain.cpp.
#pragma once
#include "stages.h"

extern "C" {

// As Python packs it. dtype: 0 float, 1 double, 2 bfloat16. Data is (outer, units, inner): inner = 1 for features, pixels for channels.
// The copy is of `in_units` units, the rest zeros. act may be null: a copy without noise.
struct Head {
  int64_t dtype, outer, units, inner, in_units;
  const mollifier::Activation* act;
  double level, strength;
  int64_t line, residual;
  uint64_t seed;
};

// a and grad_a are of the type computed in: double for double, else float. below may be null: no copy. by_x and by_a are both given
// (derivatives kept for the backward pass) or both null (made again there, from x).
void mollifier_unit_forward(const Head* head, const void* x, const void* below, const void* a, int64_t a_count, void* out, void* by_x,
                            void* by_a, int threads);
void mollifier_unit_backward(const Head* head, const void* grad, const void* x, const void* by_x, const void* by_a, const void* a,
                             int64_t a_count, int copies, void* grad_x, void* grad_below, void* grad_a, int threads);
}
