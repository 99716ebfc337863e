// f, specialised to M = 128, K = 256, N = 1024
template <class T>
static __device__ __forceinline__ uint4 tc_load16(const T *global) {
#ifndef TC_ANYWHERE
  return *reinterpret_cast<const uint4 *>(global);
#else
  uint4 whole;
  for (int i = 0; i < (int)(16 / sizeof(T)); i++) reinterpret_cast<T *>(&whole)[i] = global[i];
  return whole;
#endif
}
template <class T>
static __device__ __forceinline__ void tc_store_column(T *shared, const int apart, const uint4 whole) {
  for (int i = 0; i < (int)(16 / sizeof(T)); i++) shared[i * apart] = reinterpret_cast<const T *>(&whole)[i];
}
template <class T, int count>
static __device__ __forceinline__ void tc_put8(T *global, const T (&values)[count]) {
#ifndef TC_ANYWHERE
  *reinterpret_cast<uint2 *>(global) = *reinterpret_cast<const uint2 *>(values);
#else
  for (int i = 0; i < count; i++) global[i] = values[i];
#endif
}

extern "C" __global__ void __launch_bounds__(256, 2)
f_0(const float *__restrict__ A, const float *__restrict__ B, float *__restrict__ C)
{
  const int thread = threadIdx.x + 16 * threadIdx.y;
  const int t_m = threadIdx.y;
  const int t_n = threadIdx.x;
  __shared__ __align__(16) float A_tile[64][34];
  __shared__ __align__(16) float B_tile[64][34];
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
  uint4 A_next[2];
  uint4 B_next[2];
  #pragma unroll
  for (int r = 0; r < 2; ++r) {  // ask for 32 x 64 of A by 4
    const int e = 4 * thread + 1024 * r;
    const int m = 32 * b_m + e / 64;
    const int k = e % 64;
    A_next[r] = tc_load16(&A[256 * m + k]);
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {  // ask for 32 x 64 of B by 4
    const int e = 4 * thread + 1024 * r;
    const int n = 32 * b_n + e / 64;
    const int k = e % 64;
    B_next[r] = tc_load16(&B[256 * n + k]);
  }
  for (int k_tile = 0; k_tile < 4; ++k_tile) {  // tiles of steps
    __syncthreads();
    #pragma unroll
    for (int r = 0; r < 2; ++r) {  // store 32 x 64 of A by 4
      const int e = 4 * thread + 1024 * r;
      tc_store_column(&A_tile[e % 64][e / 64], 34, A_next[r]);
    }
    #pragma unroll
    for (int r = 0; r < 2; ++r) {  // store 32 x 64 of B by 4
      const int e = 4 * thread + 1024 * r;
      tc_store_column(&B_tile[e % 64][e / 64], 34, B_next[r]);
    }
    __syncthreads();
    if (k_tile < 3) {
      #pragma unroll
      for (int r = 0; r < 2; ++r) {  // ask for 32 x 64 of A by 4
        const int e = 4 * thread + 1024 * r;
        const int m = 32 * b_m + e / 64;
        const int k = 64 * k_tile + e % 64 + 64;
        A_next[r] = tc_load16(&A[256 * m + k]);
      }
      #pragma unroll
      for (int r = 0; r < 2; ++r) {  // ask for 32 x 64 of B by 4
        const int e = 4 * thread + 1024 * r;
        const int n = 32 * b_n + e / 64;
        const int k = 64 * k_tile + e % 64 + 64;
        B_next[r] = tc_load16(&B[256 * n + k]);
      }
    }
    // C(m, n) +=! A(m, k) * B(n, k) (16 x 16 threads)
    #pragma unroll 32
    for (int k_part = 0; k_part < 64; ++k_part) {
      #pragma unroll
      for (int m_part = 0; m_part < 2; ++m_part) {
        #pragma unroll
        for (int n_part = 0; n_part < 2; ++n_part) {
          C_acc[m_part][n_part] += A_tile[k_part][2 * t_m + m_part] * B_tile[k_part][2 * t_n + n_part];
        }
      }
    }
  }
  // C is stored (16 x 16 threads)
  #pragma unroll
  for (int m_part = 0; m_part < 2; ++m_part) {
    __align__(8) float C_side_by_side[2];
    #pragma unroll
    for (int n_part = 0; n_part < 2; ++n_part) {
      C_side_by_side[n_part] = C_acc[m_part][n_part];
    }
    tc_put8(&C[32768 * b_m + 2048 * t_m + 1024 * m_part + 32 * b_n + 2 * t_n], C_side_by_side);
  }
}

// f_0<<<(32, 4, 1), (16, 16, 1), 0>>>(A, B, C)
