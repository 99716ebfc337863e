// f, specialised to M = 250, K = 77, N = 201
static __device__ __forceinline__ int tc_min(int a, int b) { return a < b ? a : b; }

extern "C" __global__ void __launch_bounds__(256, 2)
f_0(const float *__restrict__ A, const float *__restrict__ B, float *__restrict__ C)
{
  const int thread = threadIdx.x + 32 * threadIdx.y;
  const int t_m = threadIdx.y;
  const int t_n = threadIdx.x;
  __shared__ float A_tile[16][16];
  __shared__ float B_tile[16][32];
  const int b_m = blockIdx.y;
  const int b_n = blockIdx.x;
  float C_acc[2];
  // C starts (8 x 32 threads)
  if (t_n + 32 * b_n < 201) {
    #pragma unroll
    for (int m_part = 0; m_part < 2; ++m_part) {
      if (16 * b_m + t_m + 8 * m_part < 250) {
        C_acc[m_part] = 0.0f;
      }
    }
  }
  for (int k_tile = 0; k_tile < 5; ++k_tile) {  // tiles of steps
    __syncthreads();
    #pragma unroll
    for (int e = thread; e < 256; e += 256) {  // fetch 16 x 16 of A
      const int m = 16 * b_m + e / 16;
      const int k = 16 * k_tile + e % 16;
      if (m < 250 && k < 77) A_tile[e / 16][e % 16] = A[77 * m + k];
    }
    #pragma unroll
    for (int e = thread; e < 512; e += 256) {  // fetch 16 x 32 of B
      const int k = 16 * k_tile + e / 32;
      const int n = 32 * b_n + e % 32;
      if (k < 77 && n < 201) B_tile[e / 32][e % 32] = B[201 * k + n];
    }
    __syncthreads();
    // C(m, n) +=! A(m, k) * B(k, n) (8 x 32 threads)
    if (t_n + 32 * b_n < 201) {
      if (16 * b_m + t_m < 242 && 16 * k_tile <= 61) {
        #pragma unroll
        for (int k_part = 0; k_part < 16; ++k_part) {
          #pragma unroll
          for (int m_part = 0; m_part < 2; ++m_part) {
            C_acc[m_part] += A_tile[t_m + 8 * m_part][k_part] * B_tile[k_part][t_n];
          }
        }
      } else {
        for (int k_part = 0; k_part < tc_min(77 - 16 * k_tile, 16); ++k_part) {
          #pragma unroll
          for (int m_part = 0; m_part < 2; ++m_part) {
            if (16 * b_m + t_m + 8 * m_part < 250) {
              C_acc[m_part] += A_tile[t_m + 8 * m_part][k_part] * B_tile[k_part][t_n];
            }
          }
        }
      }
    }
  }
  // C is stored (8 x 32 threads)
  if (t_n + 32 * b_n < 201) {
    #pragma unroll
    for (int m_part = 0; m_part < 2; ++m_part) {
      if (16 * b_m + t_m + 8 * m_part < 250) {
        const int m = 16 * b_m + t_m + 8 * m_part;
        const int n = 32 * b_n + t_n;
        C[m * 201 + n] = C_acc[m_part];
      }
    }
  }
}

// f_0<<<(7, 16, 1), (32, 8, 1), 0>>>(A, B, C)
