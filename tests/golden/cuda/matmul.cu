// f, specialised to M = 1024, K = 1024, N = 1024
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
static __device__ __forceinline__ void tc_store16(T *shared, const uint4 whole) {
  *reinterpret_cast<uint4 *>(shared) = whole;
}
template <class T>
static __device__ __forceinline__ void tc_store_column(T *shared, const int apart, const uint4 whole) {
  for (int i = 0; i < (int)(16 / sizeof(T)); i++) shared[i * apart] = reinterpret_cast<const T *>(&whole)[i];
}
template <class T, int count>
static __device__ __forceinline__ void tc_put16(T *global, const T (&values)[count]) {
#ifndef TC_ANYWHERE
  *reinterpret_cast<uint4 *>(global) = *reinterpret_cast<const uint4 *>(values);
#else
  for (int i = 0; i < count; i++) global[i] = values[i];
#endif
}

extern "C" __global__ void __launch_bounds__(128, 1)
f_0(const float *__restrict__ A, const float *__restrict__ B, float *__restrict__ C_acc0_parts)
{
  const int thread = threadIdx.x + 16 * threadIdx.y;
  const int t_m = threadIdx.y;
  const int t_n = threadIdx.x;
  __shared__ __align__(16) float B_tile[8][128];
  __shared__ __align__(16) float A_tile[8][132];
  const int b_part = blockIdx.z;
  const int b_m = blockIdx.y;
  const int b_n = blockIdx.x;
  float C_acc0_parts_acc[16][8];
  // C starts (8 x 16 threads)
  #pragma unroll
  for (int m_part = 0; m_part < 4; ++m_part) {
    #pragma unroll
    for (int m_part_1 = 0; m_part_1 < 4; ++m_part_1) {
      #pragma unroll
      for (int n_part = 0; n_part < 2; ++n_part) {
        #pragma unroll
        for (int n_part_1 = 0; n_part_1 < 4; ++n_part_1) {
          C_acc0_parts_acc[4 * m_part + m_part_1][4 * n_part + n_part_1] = 0.0f;
        }
      }
    }
  }
  uint4 B_next[2];
  uint4 A_next[2];
  #pragma unroll
  for (int r = 0; r < 2; ++r) {  // ask for 8 x 128 of B by 4
    const int e = 4 * thread + 512 * r;
    const int i0 = 256 * b_part + e / 128;
    const int n = 128 * b_n + e % 128;
    B_next[r] = tc_load16(&B[1024 * i0 + n]);
  }
  #pragma unroll
  for (int r = 0; r < 2; ++r) {  // ask for 128 x 8 of A by 4
    const int e = 4 * thread + 512 * r;
    const int m = 128 * b_m + e / 8;
    const int i1 = 256 * b_part + e % 8;
    A_next[r] = tc_load16(&A[1024 * m + i1]);
  }
  for (int k_tile = 0; k_tile < 32; ++k_tile) {  // tiles of steps
    __syncthreads();
    #pragma unroll
    for (int r = 0; r < 2; ++r) {  // store 8 x 128 of B by 4
      const int e = 4 * thread + 512 * r;
      tc_store16(&B_tile[e / 128][e % 128], B_next[r]);
    }
    #pragma unroll
    for (int r = 0; r < 2; ++r) {  // store 128 x 8 of A by 4
      const int e = 4 * thread + 512 * r;
      tc_store_column(&A_tile[e % 8][e / 8], 132, A_next[r]);
    }
    __syncthreads();
    if (k_tile < 31) {
      #pragma unroll
      for (int r = 0; r < 2; ++r) {  // ask for 8 x 128 of B by 4
        const int e = 4 * thread + 512 * r;
        const int i0 = 8 * k_tile + 256 * b_part + e / 128 + 8;
        const int n = 128 * b_n + e % 128;
        B_next[r] = tc_load16(&B[1024 * i0 + n]);
      }
      #pragma unroll
      for (int r = 0; r < 2; ++r) {  // ask for 128 x 8 of A by 4
        const int e = 4 * thread + 512 * r;
        const int m = 128 * b_m + e / 8;
        const int i1 = 8 * k_tile + 256 * b_part + e % 8 + 8;
        A_next[r] = tc_load16(&A[1024 * m + i1]);
      }
    }
    // C(m, n) +=! A(m, k) * B(k, n) (8 x 16 threads)
    #pragma unroll
    for (int k_part = 0; k_part < 8; ++k_part) {
      #pragma unroll
      for (int m_part = 0; m_part < 4; ++m_part) {
        #pragma unroll
        for (int m_part_1 = 0; m_part_1 < 4; ++m_part_1) {
          #pragma unroll
          for (int n_part = 0; n_part < 2; ++n_part) {
            #pragma unroll
            for (int n_part_1 = 0; n_part_1 < 4; ++n_part_1) {
              C_acc0_parts_acc[4 * m_part + m_part_1][4 * n_part + n_part_1] += A_tile[k_part][4 * t_m + 32 * m_part + m_part_1] * B_tile[k_part][4 * t_n + 64 * n_part + n_part_1];
            }
          }
        }
      }
    }
  }
  // C is stored (8 x 16 threads)
  #pragma unroll
  for (int m_part = 0; m_part < 4; ++m_part) {
    #pragma unroll
    for (int m_part_1 = 0; m_part_1 < 4; ++m_part_1) {
      #pragma unroll
      for (int n_part = 0; n_part < 2; ++n_part) {
        __align__(16) float C_acc0_parts_side_by_side[4];
        #pragma unroll
        for (int n_part_1 = 0; n_part_1 < 4; ++n_part_1) {
          C_acc0_parts_side_by_side[n_part_1] = C_acc0_parts_acc[4 * m_part + m_part_1][4 * n_part + n_part_1];
        }
        tc_put16(&C_acc0_parts[1048576 * b_part + 131072 * b_m + 4096 * t_m + 32768 * m_part + 1024 * m_part_1 + 128 * b_n + 4 * t_n + 64 * n_part], C_acc0_parts_side_by_side);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(256, 2)
f_1(float *__restrict__ C, const float *__restrict__ C_acc0_parts)
{
  const int t_n = threadIdx.x;
  const int b_m = blockIdx.x;
  float C_acc[4];
  // C starts (256 threads)
  #pragma unroll
  for (int n_part = 0; n_part < 4; ++n_part) {
    C_acc[n_part] = 0.0f;
  }
  // C(m, n) +=! A(m, k) * B(k, n) (256 threads)
  #pragma unroll
  for (int part = 0; part < 4; ++part) {
    #pragma unroll
    for (int n_part = 0; n_part < 4; ++n_part) {
      const int n = t_n + 256 * n_part;
      C_acc[n_part] += C_acc0_parts[part * 1048576 + b_m * 1024 + n];
    }
  }
  // C is stored (256 threads)
  #pragma unroll
  for (int n_part = 0; n_part < 4; ++n_part) {
    const int n = t_n + 256 * n_part;
    C[b_m * 1024 + n] = C_acc[n_part];
  }
}

// f_0<<<(8, 8, 4), (16, 8, 1), 0>>>(A, B, C_acc0_parts)
// f_1<<<(1024, 1, 1), (256, 1, 1), 0>>>(C, C_acc0_parts)
// temporary C_acc0_parts: float32[4, 1024, 1024]
