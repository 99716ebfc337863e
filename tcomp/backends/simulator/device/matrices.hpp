// What the lanes of a warp do with matrices together: fragments fetched for each other, and products.
#pragma once

#include "state.hpp"

extern "C" float tc_from_float16(u16 bits);

struct Parts {  // as TcParts in cuda.hpp: what a lane has of each matrix
  void *result;
  const void *first;
  const void *second;
};

static const u32 ATOM_ROWS = 16, ATOM_COLUMNS = 8, MOST_STEPS = 32, QUARTER = 8;

enum MatrixKind : u32 {
  HALVES, BRAIN_HALVES, SHORT_FLOATS, SIGNED_BYTES, UNSIGNED_BYTES, DOUBLES, E4M3, E5M2,
  SIGNED_BY_UNSIGNED, UNSIGNED_BY_SIGNED, E4M3_BY_E5M2, E5M2_BY_E4M3  // rows of the one, columns of the other
};

static MatrixKind kind_of_rows(MatrixKind kind) {
  switch (kind) {
    case SIGNED_BY_UNSIGNED: return SIGNED_BYTES;
    case UNSIGNED_BY_SIGNED: return UNSIGNED_BYTES;
    case E4M3_BY_E5M2: return E4M3;
    case E5M2_BY_E4M3: return E5M2;
    default: return kind;
  }
}

static MatrixKind kind_of_columns(MatrixKind kind) {
  switch (kind) {
    case SIGNED_BY_UNSIGNED: return UNSIGNED_BYTES;
    case UNSIGNED_BY_SIGNED: return SIGNED_BYTES;
    case E4M3_BY_E5M2: return E5M2;
    case E5M2_BY_E4M3: return E4M3;
    default: return kind;
  }
}

static float from_bfloat16(u16 bits) {
  u32 word = (u32)bits << 16;
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
}

// A float of 8 bits with so many bits of a fraction; without infinities all its exponents but one pattern are numbers.
static double eighth(u8 bits, u32 fraction, int bias, bool infinities) {
  u32 size = bits & 0x7f, exponent = size >> fraction, rest = size & ((1u << fraction) - 1);
  u32 digits = exponent ? rest | 1u << fraction : rest;
  double value = __builtin_ldexp(digits, (int)(exponent ? exponent : 1) - bias - (int)fraction);
  if (infinities && size == 0x7c) value = __builtin_inf();
  if (size > (infinities ? 0x7cu : 0x7eu)) value = __builtin_nan("");
  return bits & 0x80 ? -value : value;
}

// The PTX manual's ldmatrix: lane 8 q + r has row r of matrix q, and gets two elements of each matrix.
static void fetch_matrices(const Parts (&of)[LANES], bool turned) {
  for (u32 lane = 0; lane < LANES; lane++)
    for (u32 matrix = 0; matrix < 4; matrix++)
      for (u32 half = 0; half < 2; half++) {
        u32 across = lane / 4, along = 2 * (lane % 4) + half;
        u32 row = turned ? along : across, column = turned ? across : along;
        const u16 *from = (const u16 *)of[QUARTER * matrix + row].first;
        ((u16 *)of[lane].result)[2 * matrix + half] = from[column];
      }
}

// A device adds the products of an instruction exactly enough, and cuts off what a float does not hold.
static float cut_off(double value) {
  float near = (float)value;
  double distance = near < 0 ? (double)-near : (double)near, exact = value < 0 ? -value : value;
  if (!(near - near == 0) || distance <= exact) return near;
  u32 word;
  memcpy(&word, &near, sizeof word);
  word--;
  memcpy(&near, &word, sizeof near);
  return near;
}

static bool is_of_eighths(MatrixKind kind) { return kind_of_rows(kind) == E4M3 || kind_of_rows(kind) == E5M2; }

static bool is_of_bytes(MatrixKind kind) {
  return is_of_eighths(kind) || kind_of_rows(kind) == SIGNED_BYTES || kind_of_rows(kind) == UNSIGNED_BYTES;
}

static u32 steps_of(MatrixKind kind) { return is_of_bytes(kind) ? 32 : kind == SHORT_FLOATS ? 8 : 16; }

// What an instruction reads of a float: its 19 leading bits.
static float short_float(u32 word) {
  float value;
  word &= 0xffffe000u;
  memcpy(&value, &word, sizeof value);
  return value;
}

// Word number `word` of a lane's part holds neighbours along the steps; all are numbers that a double holds.
static double element_of(const void *part, u32 word, u32 place, MatrixKind kind) {
  switch (kind) {
    case HALVES: return tc_from_float16(((const u16 *)part)[2 * word + place]);
    case BRAIN_HALVES: return from_bfloat16(((const u16 *)part)[2 * word + place]);
    case SHORT_FLOATS: return short_float(((const u32 *)part)[word]);
    case SIGNED_BYTES: return ((const int8_t *)part)[4 * word + place];
    case UNSIGNED_BYTES: return ((const u8 *)part)[4 * word + place];
    case E4M3: return eighth(((const u8 *)part)[4 * word + place], 3, 7, false);
    case E5M2: return eighth(((const u8 *)part)[4 * word + place], 2, 15, true);
    default: return ((const double *)part)[word];
  }
}

static u32 together_in(MatrixKind kind) { return is_of_bytes(kind) ? 4 : kind <= BRAIN_HALVES ? 2 : 1; }

// Sums of floats of 8 bits have 14 bits in these instructions.
static float cut_short(double value) {
  float near = cut_off(value);
  u32 word;
  memcpy(&word, &near, sizeof word);
  if (near - near == 0) word &= ~0x3ffu;
  memcpy(&near, &word, sizeof near);
  return near;
}

static void add_to(void *sums, u32 which, double product, const double *terms, u32 count, MatrixKind kind) {
  if (kind <= SHORT_FLOATS) {
    ((float *)sums)[which] = cut_off(((float *)sums)[which] + product);
  } else if (is_of_eighths(kind)) {
    ((float *)sums)[which] = cut_short(((float *)sums)[which] + product);
  } else if (kind == DOUBLES) {  // fused multiply-adds, one after another
    double &sum = ((double *)sums)[which];
    for (u32 k = 0; k < count; k++) sum = __builtin_fma(terms[2 * k], terms[2 * k + 1], sum);
  } else {
    ((u32 *)sums)[which] += (u32)(i64)product;
  }
}

// mma.sync.m16n8k*: word q of the first operand is word t + 4 (q / 2) of row g + 8 (q mod 2), of the second that of t + 4 q.
static void multiply_matrices(const Parts (&of)[LANES], MatrixKind kind) {
  static double a[ATOM_ROWS][MOST_STEPS], b[MOST_STEPS][ATOM_COLUMNS];
  u32 steps = steps_of(kind), together = together_in(kind), words = steps / together / 4;
  for (u32 lane = 0; lane < LANES; lane++) {
    u32 group = lane / 4, member = lane % 4;
    for (u32 q = 0; q < words; q++)
      for (u32 place = 0; place < together; place++) {
        u32 step = together * (member + 4 * q) + place;
        for (u32 h = 0; h < 2; h++)
          a[group + 8 * h][step] = element_of(of[lane].first, 2 * q + h, place, kind_of_rows(kind));
        b[step][group] = element_of(of[lane].second, q, place, kind_of_columns(kind));
      }
  }
  for (u32 lane = 0; lane < LANES; lane++)
    for (u32 r = 0; r < 4; r++) {
      u32 row = lane / 4 + 8 * (r / 2), column = 2 * (lane % 4) + r % 2;
      double total = 0, terms[2 * MOST_STEPS];
      for (u32 k = 0; k < steps; k++) {
        terms[2 * k] = a[row][k], terms[2 * k + 1] = b[k][column];
        total += a[row][k] * b[k][column];
      }
      add_to(of[lane].result, r, total, terms, steps, kind);
    }
}
