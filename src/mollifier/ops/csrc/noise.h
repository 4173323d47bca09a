// The counter-based noise.
#pragma once
#include "elementary.h"

namespace mollifier {

// A hash of the element's index and a 64-bit seed; 16 bits give |xi|, and 16 bits give the copy's uniform draw.
// It takes three rounds: after two, a chi-square test of ten million neighbours still detects that they are neighbours.
inline uint32_t hash(uint32_t i, uint32_t low, uint32_t high) {
  uint32_t x = i + low;
  x ^= x >> 17; x *= 0xed5ad4bbU; x ^= high;
  x ^= x >> 11; x *= 0xac4c1b51U;
  x ^= x >> 15; x *= 0x31848babU;
  return x ^ (x >> 14);
}
// |xi| = sqrt(2) erfinv(u) at the midpoint u of one of 65536 equal cells, accurate to 4e-5: u P(l) with l = log2(1 - u^2).
inline float half_normal(uint32_t cell) {
  const float u = float(int32_t(cell)) * (1.0f / 65536.0f) + (0.5f / 65536.0f);
  const int32_t b = float_to_bits(1.0f - u * u) - 0x3f3504f3;
  const float m = bits_to_float((b & 0x007fffff) + 0x3f3504f3) - 1.0f;
  const float l = (m * m * (0.51747867f - 0.32961177f * m) + (1.44176224f - 0.72490203f * m)) * m + float(b >> 23);
  const float l2 = l * l, l4 = l2 * l2;
  const float low = (1.25340081f - 2.27094101e-1f * l) + l2 * (8.20288289e-3f + 1.24016904e-3f * l);
  const float high = (-2.71294215e-5f - 1.54076101e-5f * l) + l2 * (-1.30156780e-6f - 4.87788563e-8f * l);
  return u * (low + l4 * (high - 7.14126873e-10f * l4));
}
// A unit is copied where its 16 bits are below this: uniform < p, to the resolution of 16 bits.
inline int32_t copy_threshold(double p) { return int32_t(std::ceil(clamp(p, 0.0, 1.0) * 65536.0)); }

struct Seed { uint32_t low, high; };
// Neighbouring seeds must not give shifted copies of the same noise, so the bits are mixed first (splitmix64).
inline Seed seed_of(uint64_t s) {
  s += 0x9e3779b97f4a7c15ULL;
  s = (s ^ (s >> 30)) * 0xbf58476d1ce4e5b9ULL;
  s = (s ^ (s >> 27)) * 0x94d049bb133111ebULL;
  s ^= s >> 31;
  return {uint32_t(s), uint32_t(s >> 32)};
}

// Two short loops take less time than one with a long dependency chain.
STAGE void hash_chunk(Seed s, uint32_t first, int n, uint32_t* RESTRICT bits) {
  for (int k = 0; k < n; ++k) bits[k] = hash(first + k, s.low, s.high);
}
STAGE void normal_of(const uint32_t* RESTRICT bits, int n, float* RESTRICT xi) {
  for (int k = 0; k < n; ++k) xi[k] = half_normal(bits[k] & 0xffff);
}
inline void normal_chunk(Seed s, uint32_t first, int n, float* xi) {
  uint32_t bits[CHUNK];
  for (int k = 0; k < n; k += CHUNK) {
    const int width = n - k < CHUNK ? n - k : CHUNK;
    hash_chunk(s, first + k, width, bits);
    normal_of(bits, width, xi + k);
  }
}
inline bool is_copied(uint32_t bits, int32_t threshold) { return int32_t(bits >> 16) < threshold; }

}  // namespace mollifier
