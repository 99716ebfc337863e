// f, specialised to M = 250, K = 77, N = 201

extern "C" __global__ void __launch_bounds__(256, 2)
f_0(const float *__restrict__ A, const float *__restrict__ B, float *__restrict__ C)
{
  const int thread = threadIdx.x + 32 * threadIdx.y;
  const int t_m = threadIdx.y;
  const int t_n = threadIdx.x;
  __shared__ float A_tile[77][18];
  __shared__ float B_tile[77][32];
  const int b_m = blockIdx.y;
  const int b_n = blockIdx.x;
  float C_acc[2];
  // C starts (8 x 32 threads, whole tiles)
  #pragma unroll
  for (int m_part = 0; m_part < 2; ++m_part) {
    C_acc[m_part] = 0.0f;
  }
  #pragma unroll
  for (int e = thread; e < 1232; e += 256) {  // fetch 16 x 77 of A
    const int m = 16 * b_m + e / 77;
    const int k = e % 77;
    if (m < 250) A_tile[e % 77][e / 77] = A[77 * m + k];
    else A_tile[e % 77][e / 77] = 0;
  }
  for (int e = thread; e < 2464; e += 256) {  // fetch 77 x 32 of B
    const int k = e / 32;
    const int n = 32 * b_n + e % 32;
    if (n < 201) B_tile[e / 32][e % 32] = B[201 * k + n];
    else B_tile[e / 32][e % 32] = 0;
  }
  __syncthreads();
  // C(m, n) +=! A(m, k) * B(k, n) (8 x 32 threads, whole tiles)
  #pragma unroll 11
  for (int k = 0; k < 77; ++k) {
    #pragma unroll
    for (int m_part = 0; m_part < 2; ++m_part) {
      C_acc[m_part] += A_tile[k][2 * t_m + m_part] * B_tile[k][t_n];
    }
  }
  // C is stored (8 x 32 threads)
  if (t_m + 8 * b_m < 125 && t_n + 32 * b_n < 201) {
    #pragma unroll
    for (int m_part = 0; m_part < 2; ++m_part) {
      const int m = 16 * b_m + 2 * t_m + m_part;
      const int n = 32 * b_n + t_n;
      C[m * 201 + n] = C_acc[m_part];
    }
  }
}

// f_0<<<(7, 16, 1), (32, 8, 1), 0>>>(A, B, C)
