// f, specialised to M = 250, K = 77, N = 201

__kernel __attribute__((reqd_work_group_size(32, 8, 1))) void
f_0(const __global float *restrict A, const __global float *restrict B, __global float *restrict C)
{
  const int thread = (int)get_local_id(0) + 32 * (int)get_local_id(1);
  const int t_m = (int)get_local_id(1);
  const int t_n = (int)get_local_id(0);
  __local float A_tile[40][36];
  __local float B_tile[40][64];
  const int b_m = (int)get_group_id(1);
  const int b_n = (int)get_group_id(0);
  float C_acc[4][2];
  // C starts (8 x 32 threads, whole tiles)
  #pragma unroll
  for (int m_part = 0; m_part < 4; ++m_part) {
    #pragma unroll
    for (int n_part = 0; n_part < 2; ++n_part) {
      C_acc[m_part][n_part] = 0.0f;
    }
  }
  float A_next[5];
  float B_next[10];
  #pragma unroll
  for (int r = 0; r < 5; ++r) {  // ask for 32 x 40 of A
    const int e = thread + 256 * r;
    const int m = 32 * b_m + e / 40;
    const int k = e % 40;
    A_next[r] = 0;
    if (m < 250) A_next[r] = A[77 * m + k];
  }
  #pragma unroll
  for (int r = 0; r < 10; ++r) {  // ask for 40 x 64 of B
    const int e = thread + 256 * r;
    const int k = e / 64;
    const int n = 64 * b_n + e % 64;
    B_next[r] = 0;
    if (n < 201) B_next[r] = B[201 * k + n];
  }
  for (int k_tile = 0; k_tile < 2; ++k_tile) {  // tiles of steps
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (int r = 0; r < 5; ++r) {  // store 32 x 40 of A
      const int e = thread + 256 * r;
      A_tile[e % 40][e / 40] = A_next[r];
    }
    #pragma unroll
    for (int r = 0; r < 10; ++r) {  // store 40 x 64 of B
      const int e = thread + 256 * r;
      B_tile[e / 64][e % 64] = B_next[r];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (k_tile < 1) {
      #pragma unroll
      for (int r = 0; r < 5; ++r) {  // ask for 32 x 40 of A
        const int e = thread + 256 * r;
        const int m = 32 * b_m + e / 40;
        const int k = e % 40 + 40;
        A_next[r] = 0;
        if (m < 250 && k < 77) A_next[r] = A[77 * m + k];
      }
      #pragma unroll
      for (int r = 0; r < 10; ++r) {  // ask for 40 x 64 of B
        const int e = thread + 256 * r;
        const int k = e / 64 + 40;
        const int n = 64 * b_n + e % 64;
        B_next[r] = 0;
        if (k < 77 && n < 201) B_next[r] = B[201 * k + n];
      }
    }
    // C(m, n) +=! A(m, k) * B(k, n) (8 x 32 threads, whole tiles)
    #pragma unroll 10
    for (int k_part = 0; k_part < 40; ++k_part) {
      #pragma unroll
      for (int m_part = 0; m_part < 4; ++m_part) {
        #pragma unroll
        for (int n_part = 0; n_part < 2; ++n_part) {
          C_acc[m_part][n_part] += A_tile[k_part][4 * t_m + m_part] * B_tile[k_part][2 * t_n + n_part];
        }
      }
    }
  }
  // C is stored (8 x 32 threads)
  if (t_m + 8 * b_m < 63 && t_n + 32 * b_n < 101) {
    #pragma unroll
    for (int m_part = 0; m_part < 4; ++m_part) {
      if (m_part + 32 * b_m + 4 * t_m < 250) {
        #pragma unroll
        for (int n_part = 0; n_part < 2; ++n_part) {
          if (n_part + 64 * b_n + 2 * t_n < 201) {
            const int m = 32 * b_m + 4 * t_m + m_part;
            const int n = 64 * b_n + 2 * t_n + n_part;
            C[m * 201 + n] = C_acc[m_part][n_part];
          }
        }
      }
    }
  }
}

// f_0: (4, 8, 1) blocks of (32, 8, 1): A, B, C
