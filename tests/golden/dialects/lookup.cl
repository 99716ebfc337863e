// f, specialised to E = 1000, D = 64, B = 128, L = 50
static inline void tc_store16_int(__local int *target, uint4 whole) {
  *(__local int4 *)target = as_int4(whole);
}
static inline uint4 tc_load16_int(const __global int *source) {
#ifndef TC_ANYWHERE
  return as_uint4(*(const __global int4 *)source);
#else
  return as_uint4(vload4(0, (const __global int *)source));
#endif
}
static inline int tc_check3(long i, int origin, int extent, int number, __global long *report, long at0, long at1, long at2) {
  if (i >= origin && i < (long)origin + extent) return (int)i;
  if (atomic_xchg((volatile __global int *)&report[2], 1) == 0) {
    report[0] = number;
    report[1] = i;
    report[3] = at0;
    report[4] = at1;
    report[5] = at2;
  }
  return origin;
}

__kernel __attribute__((reqd_work_group_size(64, 4, 1))) void
f_0(
    const __global float *restrict T,
    const __global int *restrict I,
    __global float *restrict O,
    __global long *restrict report)
{
  const int thread = (int)get_local_id(0) + 64 * (int)get_local_id(1);
  const int t_b = (int)get_local_id(1);
  const int t_d = (int)get_local_id(0);
  __local int I_tile[4][50] __attribute__((aligned(16)));
  const int b_b = (int)get_group_id(0);
  float O_acc;
  // O starts (4 x 64 threads)
  {
    O_acc = 0.0f;
  }
  #pragma unroll
  for (int e = 4 * thread; e < 200; e += 1024) {  // fetch 4 x 50 of I by 4
    const int b = 4 * b_b + e / 50;
    const int l = e % 50;
    tc_store16_int(&I_tile[e / 50][e % 50], tc_load16_int(&I[50 * b + l]));
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  // O(b, d) +=! T(I(b, l), d) (4 x 64 threads)
  #pragma unroll
  for (int l = 0; l < 50; ++l) {
    const int b = 4 * b_b + t_b;
    O_acc += T[tc_check3(I_tile[t_b][l], 0, 1000, 0, report, b, t_d, l) * 64 + t_d];
  }
  // O is stored (4 x 64 threads)
  {
    const int b = 4 * b_b + t_b;
    O[b * 64 + t_d] = O_acc;
  }
}

// f_0: (32, 1, 1) blocks of (64, 4, 1): T, I, O, *report
