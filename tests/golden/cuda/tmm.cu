// f, specialised to M = 128, K = 256, N = 1024
#ifdef __CUDACC__
static __device__ __forceinline__ void tc_copy_async4(void *shared, const void *global, const int read) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" :: "r"((unsigned int)__cvta_generic_to_shared(shared)), "l"(global), "r"(read) : "memory");
}
#endif
template <class T>
static __device__ __forceinline__ void tc_ask4(T *shared, const T *global, const int read = 4) {
#ifndef TC_ANYWHERE
  tc_copy_async4(shared, global, read);
#else
  if (sizeof(T) == 4) tc_copy_async4(shared, global, read);
  else for (int i = 0; i < (int)(4 / sizeof(T)); i++) {
    if (sizeof(T) == 4) tc_copy_async4(shared + i, global + i, read ? 4 : 0);
    else shared[i] = read ? global[i] : T();
  }
#endif
}
#ifdef __CUDACC__
static __device__ __forceinline__ void tc_copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
#endif
// Waits for all groups of copies of this thread but the newest.
#ifdef __CUDACC__
template <int newest>
static __device__ __forceinline__ void tc_copy_async_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(newest) : "memory"); }
#endif
template <class T>
static __device__ __forceinline__ void tc_put8(T *global, const T *values) {
#ifndef TC_ANYWHERE
  *reinterpret_cast<uint2 *>(global) = *reinterpret_cast<const uint2 *>(values);
#else
  for (int i = 0; i < (int)(8 / sizeof(T)); i++) global[i] = values[i];
#endif
}

extern "C" __global__ void __launch_bounds__(256, 2)
f_0(const float *__restrict__ A, const float *__restrict__ B, float *__restrict__ C)
{
  const int thread = threadIdx.x + 16 * threadIdx.y;
  const int t_m = threadIdx.y;
  const int t_n = threadIdx.x;
  __shared__ __align__(16) float A_tile[2][64][34];
  __shared__ __align__(16) float B_tile[2][64][34];
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
  const float *A_next = A + 8192 * b_m + 256 * (thread / 64) + thread % 64;
  const float *B_next = B + 8192 * b_n + 256 * (thread / 64) + thread % 64;
  #pragma unroll
  for (int ahead = 0; ahead < 1; ++ahead) {  // the first tiles
    #pragma unroll
    for (int r = 0; r < 8; ++r) {  // ask for 32 x 64 of A
      tc_ask4(&A_tile[ahead][thread % 64][4 * r + thread / 64], A_next + 1024 * r);
    }
    A_next += 64;
    #pragma unroll
    for (int r = 0; r < 8; ++r) {  // ask for 32 x 64 of B
      tc_ask4(&B_tile[ahead][thread % 64][4 * r + thread / 64], B_next + 1024 * r);
    }
    B_next += 64;
    tc_copy_async_commit();
  }
  int stage = 0, next_stage = 1;
  for (int k_tile = 0; k_tile < 4; ++k_tile) {  // tiles of steps
    tc_copy_async_wait<0>();
    __syncthreads();
    if (k_tile < 3) {
      #pragma unroll
      for (int r = 0; r < 8; ++r) {  // ask for 32 x 64 of A
        tc_ask4(&A_tile[next_stage][thread % 64][4 * r + thread / 64], A_next + 1024 * r);
      }
      A_next += 64;
      #pragma unroll
      for (int r = 0; r < 8; ++r) {  // ask for 32 x 64 of B
        tc_ask4(&B_tile[next_stage][thread % 64][4 * r + thread / 64], B_next + 1024 * r);
      }
      B_next += 64;
    }
    tc_copy_async_commit();
    next_stage = next_stage + 1 == 2 ? 0 : next_stage + 1;
    // C(m, n) +=! A(m, k) * B(n, k) (16 x 16 threads)
    #pragma unroll 32
    for (int k_part = 0; k_part < 64; ++k_part) {
      #pragma unroll
      for (int m_part = 0; m_part < 2; ++m_part) {
        #pragma unroll
        for (int n_part = 0; n_part < 2; ++n_part) {
          C_acc[m_part][n_part] += A_tile[stage][k_part][2 * t_m + m_part] * B_tile[stage][k_part][2 * t_n + n_part];
        }
      }
    }
    stage = stage + 1 == 2 ? 0 : stage + 1;
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
