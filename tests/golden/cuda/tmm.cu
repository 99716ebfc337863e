// f, specialised to M = 128, K = 256, N = 1024

extern "C" __global__ void __launch_bounds__(256, 2)
f_0(const float *__restrict__ A, const float *__restrict__ B, float *__restrict__ C)
{
  const int thread = threadIdx.x + 16 * threadIdx.y;
  const int t_m = threadIdx.y;
  const int t_n = threadIdx.x;
  __shared__ float A_tile[32][16];
  __shared__ float B_tile[16][34];
  const int b_m = blockIdx.y;
  const int b_n = blockIdx.x;
  float C_acc[2][2];
  // C starts (16 x 16 threads)
  #pragma unroll
  for (int m_part = 0; m_part < 2; ++m_part) {
    #pragma unroll
    for (int n_part = 0; n_part < 2; ++n_part) {
      C_acc[m_part][n_part] = 0.0f;
    }
  }
  for (int k_tile = 0; k_tile < 16; ++k_tile) {  // tiles of steps
    __syncthreads();
    #pragma unroll
    for (int e = thread; e < 512; e += 256) {  // fetch 32 x 16 of A
      const int m = 32 * b_m + e / 16;
      const int k = 16 * k_tile + e % 16;
      A_tile[e / 16][e % 16] = A[256 * m + k];
    }
    #pragma unroll
    for (int e = thread; e < 512; e += 256) {  // fetch 32 x 16 of B
      const int n = 32 * b_n + e / 16;
      const int k = 16 * k_tile + e % 16;
      B_tile[e % 16][e / 16] = B[256 * n + k];
    }
    __syncthreads();
    // C(m, n) +=! A(m, k) * B(n, k) (16 x 16 threads)
    #pragma unroll
    for (int k_part = 0; k_part < 16; ++k_part) {
      #pragma unroll
      for (int m_part = 0; m_part < 2; ++m_part) {
        #pragma unroll
        for (int n_part = 0; n_part < 2; ++n_part) {
          C_acc[m_part][n_part] += A_tile[t_m + 16 * m_part][k_part] * B_tile[k_part][t_n + 16 * n_part];
        }
      }
    }
  }
  // C is stored (16 x 16 threads)
  #pragma unroll
  for (int m_part = 0; m_part < 2; ++m_part) {
    #pragma unroll
    for (int n_part = 0; n_part < 2; ++n_part) {
      const int m = 32 * b_m + t_m + 16 * m_part;
      const int n = 32 * b_n + t_n + 16 * n_part;
      C[m * 1024 + n] = C_acc[m_part][n_part];
    }
  }
}

// f_0<<<(32, 4, 1), (16, 16, 1), 0>>>(A, B, C)
