// f, specialised to B = 64, M = 72, K = 26, N = 26
static __device__ __forceinline__ int tc_min(int a, int b) { return a < b ? a : b; }

extern "C" __global__ void __launch_bounds__(256, 2)
f_0(const float *__restrict__ X, const float *__restrict__ Y, float *__restrict__ Z)
{
  const int thread = threadIdx.x + 16 * threadIdx.y;
  const int t_m = threadIdx.y;
  const int t_n = threadIdx.x;
  __shared__ float Y_tile[16][26];
  __shared__ float X_tile[64][16];
  const int b_b = blockIdx.y;
  const int b_m = blockIdx.x;
  float Z_acc[4][2];
  // Z starts (16 x 16 threads)
  if (t_m + 64 * b_m < 72) {
    #pragma unroll
    for (int m_part = 0; m_part < 4; ++m_part) {
      if (64 * b_m + t_m + 16 * m_part < 72) {
        #pragma unroll
        for (int n_part = 0; n_part < 2; ++n_part) {
          if (t_n + 16 * n_part < 26) {
            Z_acc[m_part][n_part] = 0.0f;
          }
        }
      }
    }
  }
  for (int k_tile = 0; k_tile < 2; ++k_tile) {  // tiles of steps
    __syncthreads();
    #pragma unroll
    for (int e = thread; e < 416; e += 256) {  // fetch 1 x 16 x 26 of Y
      const int k = 16 * k_tile + e / 26;
      const int n = e % 26;
      if (k < 26) Y_tile[e / 26][e % 26] = Y[676 * b_b + 26 * k + n];
    }
    #pragma unroll
    for (int e = thread; e < 1024; e += 256) {  // fetch 1 x 64 x 16 of X
      const int m = 64 * b_m + e / 16;
      const int k = 16 * k_tile + e % 16;
      if (m < 72 && k < 26) X_tile[e / 16][e % 16] = X[1872 * b_b + 26 * m + k];
    }
    __syncthreads();
    // Z(b, m, n) +=! X(b, m, k) * Y(b, k, n) (16 x 16 threads)
    if (t_m + 64 * b_m < 72) {
      if (64 * b_m + t_m < 24 && 16 * k_tile <= 10) {
        for (int k_part = 0; k_part < 16; ++k_part) {
          #pragma unroll
          for (int m_part = 0; m_part < 4; ++m_part) {
            #pragma unroll
            for (int n_part = 0; n_part < 2; ++n_part) {
              if (t_n + 16 * n_part < 26) {
                Z_acc[m_part][n_part] += X_tile[t_m + 16 * m_part][k_part] * Y_tile[k_part][t_n + 16 * n_part];
              }
            }
          }
        }
      } else {
        for (int k_part = 0; k_part < tc_min(26 - 16 * k_tile, 16); ++k_part) {
          #pragma unroll
          for (int m_part = 0; m_part < 4; ++m_part) {
            if (64 * b_m + t_m + 16 * m_part < 72) {
              #pragma unroll
              for (int n_part = 0; n_part < 2; ++n_part) {
                if (t_n + 16 * n_part < 26) {
                  Z_acc[m_part][n_part] += X_tile[t_m + 16 * m_part][k_part] * Y_tile[k_part][t_n + 16 * n_part];
                }
              }
            }
          }
        }
      }
    }
  }
  // Z is stored (16 x 16 threads)
  if (t_m + 64 * b_m < 72) {
    #pragma unroll
    for (int m_part = 0; m_part < 4; ++m_part) {
      if (64 * b_m + t_m + 16 * m_part < 72) {
        #pragma unroll
        for (int n_part = 0; n_part < 2; ++n_part) {
          if (t_n + 16 * n_part < 26) {
            const int m = 64 * b_m + t_m + 16 * m_part;
            const int n = t_n + 16 * n_part;
            Z[b_b * 1872 + m * 26 + n] = Z_acc[m_part][n_part];
          }
        }
      }
    }
  }
}

// f_0<<<(2, 64, 1), (16, 16, 1), 0>>>(X, Y, Z)
