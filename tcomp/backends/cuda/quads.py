"""Device functions by which four lanes exchange results, so that each has 16 bytes side by side."""

from __future__ import annotations

QUADS: dict[str, str] = {
    "tc_turn_words": """// Of four lanes each has a word of four rows; then each has the row of its number.
$D void tc_turn_words(unsigned int (&own)[4], const int lane, const unsigned int mask) {
  #pragma unroll
  for (int apart = 1; apart < 4; apart *= 2)
    #pragma unroll
    for (int j = 0; j < 4; j++)
      if ((j & apart) == 0) {
        const bool second = lane & apart;
        const unsigned int got = __shfl_xor_sync(mask, second ? own[j] : own[j + apart], apart);
        own[j] = second ? got : own[j];
        own[j + apart] = second ? own[j + apart] : got;
      }
}""",
    "tc_turn_quad": """// Of four lanes each has a pair of four rows of pairs; then each has the row of its number.
$D void tc_turn_quad(unsigned short (&own)[8], const int lane, const unsigned int mask) {
  unsigned int pairs[4];
  #pragma unroll
  for (int j = 0; j < 4; j++) pairs[j] = own[2 * j] | (unsigned int)own[2 * j + 1] << 16;
  tc_turn_words(pairs, lane, mask);
  #pragma unroll
  for (int j = 0; j < 4; j++) {
    own[2 * j] = (unsigned short)pairs[j];
    own[2 * j + 1] = (unsigned short)(pairs[j] >> 16);
  }
}""",
    "tc_turn_quad_of_bytes": """// The same of eight rows of pairs of bytes, two of which each has then.
template <class T>
$D void tc_turn_quad_of_bytes(T (&own)[16], const int lane, const unsigned int mask) {
  unsigned int words[4];
  #pragma unroll
  for (int j = 0; j < 4; j++) {
    words[j] = 0;
    #pragma unroll
    for (int n = 0; n < 4; n++) words[j] |= (unsigned int)(unsigned char)own[4 * j + n] << 8 * n;
  }
  tc_turn_words(words, lane, mask);
  #pragma unroll
  for (int j = 0; j < 4; j++)
    #pragma unroll
    for (int n = 0; n < 4; n++) own[n / 2 * 8 + 2 * j + n % 2] = (T)(words[j] >> 8 * n);
}""",
}
"""Definitions by name, as in ``prelude.py``."""
