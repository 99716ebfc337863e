// What the lanes of a warp do with matrices together: fragments fetched for each other, and products.
#pragma once

#include "state.hpp"

extern "C" float tc_from_float16(u16 bits);

struct Parts {  // as TcParts in cuda.hpp: what a lane has of each matrix
  void *result;
  const void *first;
  const void *second;
};

static const u32 ATOM_ROWS = 16, ATOM_COLUMNS = 8, ATOM_STEPS = 16, QUARTER = 8;

static float from_bfloat16(u16 bits) {
  u32 word = (u32)bits << 16;
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
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

// mma.sync.m16n8k16: register q of A has two steps of row g + 8 (q mod 2), register q of B two of column g.
static void multiply_matrices(const Parts (&of)[LANES], bool brain) {
  double a[ATOM_ROWS][ATOM_STEPS], b[ATOM_STEPS][ATOM_COLUMNS];
  for (u32 lane = 0; lane < LANES; lane++) {
    const u16 *first = (const u16 *)of[lane].first, *second = (const u16 *)of[lane].second;
    u32 group = lane / 4, step = 2 * (lane % 4);
    for (u32 half = 0; half < 2; half++) {
      for (u32 q = 0; q < 4; q++) {
        u16 bits = first[2 * q + half];
        a[group + 8 * (q % 2)][step + half + 8 * (q / 2)] = brain ? from_bfloat16(bits) : tc_from_float16(bits);
      }
      for (u32 q = 0; q < 2; q++) {
        u16 bits = second[2 * q + half];
        b[step + half + 8 * q][group] = brain ? from_bfloat16(bits) : tc_from_float16(bits);
      }
    }
  }
  for (u32 lane = 0; lane < LANES; lane++)
    for (u32 r = 0; r < 4; r++) {
      float *sum = (float *)of[lane].result + r;
      u32 row = lane / 4 + 8 * (r / 2), column = 2 * (lane % 4) + r % 2;
      double total = *sum;
      for (u32 k = 0; k < ATOM_STEPS; k++) total += a[row][k] * b[k][column];
      *sum = cut_off(total);
    }
}
