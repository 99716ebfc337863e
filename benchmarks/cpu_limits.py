"""What the machine can do at most: a C program, compiled on the spot, that multiplies and adds, and copies."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cpu_case import Bound, Case

_SOURCE = r"""
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#include <immintrin.h>
#endif

typedef float lanes __attribute__((vector_size(VECTOR)));
enum { CHAINS = 12, STEPS = 10000000 };
#ifdef __x86_64__
#define REGISTER "v"
#else
#define REGISTER "w"
#endif

/* Time that this thread has worked: others on its processor do not count. */
static double worked(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

static double multiply_add(void) {
  double rate = 0;
#pragma omp parallel reduction(+ : rate)
  {
    double start = worked();
    lanes sum[CHAINS], x = {0}, y = {0};
    for (int k = 0; k < CHAINS; k++) sum[k] = x + (float)k;
    x += 0.5f, y += 0.25f;
    __asm__ volatile("" : "+" REGISTER(x), "+" REGISTER(y));
    for (int step = 0; step < STEPS; step++)
#pragma GCC unroll 12
      for (int k = 0; k < CHAINS; k++) sum[k] = sum[k] * x + y;
    for (int k = 0; k < CHAINS; k++) __asm__ volatile("" ::REGISTER(sum[k]));
    rate = 2.0 * CHAINS * STEPS * (VECTOR / 4) / (worked() - start);
  }
  return rate;
}

static double dot_product(void) {
  double rate = 0;
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#pragma omp parallel reduction(+ : rate)
  {
    double start = worked();
#ifdef __AVX512VNNI__
    __m512i sum[CHAINS], x = _mm512_set1_epi8(1), y = x;
#define DOT _mm512_dpbusd_epi32
#else
    __m256i sum[CHAINS], x = _mm256_set1_epi8(1), y = x;
#define DOT _mm256_dpbusd_avx_epi32
#endif
    for (int k = 0; k < CHAINS; k++) sum[k] = x;
    __asm__ volatile("" : "+" REGISTER(x), "+" REGISTER(y));
    for (int step = 0; step < STEPS; step++)
#pragma GCC unroll 12
      for (int k = 0; k < CHAINS; k++) sum[k] = DOT(sum[k], x, y);
    for (int k = 0; k < CHAINS; k++) __asm__ volatile("" ::REGISTER(sum[k]));
    rate = 2.0 * CHAINS * STEPS * sizeof x / (worked() - start);
  }
#endif
  return rate;
}

static double copy(char *to, const char *from, size_t bytes) {
  double start = omp_get_wtime();
#pragma omp parallel
  {
    size_t part = bytes / omp_get_num_threads(), at = part * omp_get_thread_num();
    memcpy(to + at, from + at, part);
  }
  return 2.0 * bytes / (omp_get_wtime() - start);
}

static double most(double a, double b) { return a > b ? a : b; }

int main(void) {
  size_t bytes = (size_t)256 << 20;
  char *from = malloc(bytes), *to = malloc(bytes);
  double flops = 0, dots = 0, moved = 0;
  if (!from || !to) return 1;
  memset(from, 1, bytes), memset(to, 2, bytes);
  for (int round = 0; round < 10; round++) {
    flops = most(flops, multiply_add());
    dots = most(dots, dot_product());
    moved = most(moved, copy(to, from, bytes));
  }
  printf("{\"flops\": %.6g, \"int8_ops\": %.6g, \"bandwidth\": %.6g}\n", flops, dots, moved);
  return 0;
}
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """Per second: fp32 operations, int8 operations (0 without instructions for dot products), bytes copied in DRAM.

    A byte that is read and written counts twice.
    """

    flops: float
    int8_ops: float
    bandwidth: float

    def limit(self, bound: Bound) -> float:
        """The limit of a kind."""
        return {"fp32": self.flops, "int8": self.int8_ops, "memory": self.bandwidth}[bound]

    def share(self, case: Case, milliseconds: float) -> float | None:
        """The share of the limit that bounds the case; above 1 where caches give more than DRAM."""
        limit = self.limit(case.bound)
        amount = case.least_bytes if case.bound == "memory" else case.flops
        return amount / limit / (milliseconds / 1e3) if limit else None


def measure(threads: int, compiler: str = "gcc") -> Limits:
    """The limits of this process's first ``threads`` processors: the best of ten rounds each, a second in all.

    Arithmetic is counted against the time that its threads have worked, copies against the clock on the wall.

    Raises OSError if there is no compiler, CalledProcessError if it cannot compile for this machine.
    """
    with tempfile.TemporaryDirectory(prefix="tcomp-limits-") as folder:
        source, program = Path(folder, "limits.c"), Path(folder, "limits")
        source.write_text(_SOURCE, encoding="ascii")
        macros = subprocess.run(
            [compiler, "-march=native", "-dM", "-E", "-"], input="", capture_output=True, text=True, check=True
        ).stdout
        vector = 64 if "__AVX512F__" in macros else 32 if "__AVX__" in macros else 16
        flags = ["-O2", "-march=native", "-ffp-contract=fast", "-fopenmp", f"-DVECTOR={vector}"]
        subprocess.run([compiler, *flags, str(source), "-o", str(program)], capture_output=True, text=True, check=True)
        processors = sorted(os.sched_getaffinity(0))[:threads]
        run = subprocess.run(
            [str(program)], capture_output=True, text=True, check=True,
            env=os.environ | {"OMP_NUM_THREADS": str(threads), "OMP_PROC_BIND": "close",
                              "OMP_PLACES": ",".join(f"{{{p}}}" for p in processors)},
        )  # fmt: skip
        return Limits(**json.loads(run.stdout))
