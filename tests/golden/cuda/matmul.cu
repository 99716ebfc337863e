// f, specialised to M = 1024, K = 1024, N = 1024
#ifdef __CUDACC__
static __device__ __forceinline__ void tc_copy_async16(void *shared, const void *global, const int read) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"((unsigned int)__cvta_generic_to_shared(shared)), "l"(global), "r"(read) : "memory");
}
#endif
#ifdef __CUDACC__
static __device__ __forceinline__ void tc_copy_async4(void *shared, const void *global, const int read) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" :: "r"((unsigned int)__cvta_generic_to_shared(shared)), "l"(global), "r"(read) : "memory");
}
#endif
template <class T>
static __device__ __forceinline__ void tc_ask16(T *shared, const T *global, const int read = 16) {
#ifndef TC_ANYWHERE
  tc_copy_async16(shared, global, read);
#else
  for (int i = 0; i < (int)(16 / sizeof(T)); i++) {
    if (sizeof(T) == 4) tc_copy_async4(shared + i, global + i, read ? 4 : 0);
    else shared[i] = read ? global[i] : T();
  }
#endif
}
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
static __device__ __forceinline__ void tc_put16(T *global, const T *values) {
#ifndef TC_ANYWHERE
  *reinterpret_cast<uint4 *>(global) = *reinterpret_cast<const uint4 *>(values);
#else
  for (int i = 0; i < (int)(16 / sizeof(T)); i++) global[i] = values[i];
#endif
}

extern "C" __global__ void __launch_bounds__(128, 1)
f_0(const float *__restrict__ A, const float *__restrict__ B, float *__restrict__ C_acc0_parts)
{
  const int thread = threadIdx.x + 16 * threadIdx.y;
  const int t_m = threadIdx.y;
  const int t_n = threadIdx.x;
  extern __shared__ __align__(16) unsigned char tc_dynamic[];
  float (&B_tile)[3][16][128] = *reinterpret_cast<float (*)[3][16][128]>(tc_dynamic + 0);
  float (&A_tile)[3][16][132] = *reinterpret_cast<float (*)[3][16][132]>(tc_dynamic + 24576);
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
  const float *B_next = B + 262144 * b_part + 1024 * (4 * thread / 128) + 128 * b_n + 4 * thread % 128;
  const float *A_next = A + 131072 * b_m + 1024 * (thread / 16) + 256 * b_part + thread % 16;
  #pragma unroll
  for (int ahead = 0; ahead < 2; ++ahead) {  // the first tiles
    #pragma unroll
    for (int r = 0; r < 4; ++r) {  // ask for 16 x 128 of B by 4
      tc_ask16(&B_tile[ahead][4 * r + 4 * thread / 128][4 * thread % 128], B_next + 4096 * r);
    }
    B_next += 16384;
    #pragma unroll
    for (int r = 0; r < 16; ++r) {  // ask for 128 x 16 of A
      tc_ask4(&A_tile[ahead][thread % 16][8 * r + thread / 16], A_next + 8192 * r);
    }
    A_next += 16;
    tc_copy_async_commit();
  }
  int stage = 0, next_stage = 2;
  for (int k_tile = 0; k_tile < 16; ++k_tile) {  // tiles of steps
    tc_copy_async_wait<1>();
    __syncthreads();
    if (k_tile < 14) {
      #pragma unroll
      for (int r = 0; r < 4; ++r) {  // ask for 16 x 128 of B by 4
        tc_ask16(&B_tile[next_stage][4 * r + 4 * thread / 128][4 * thread % 128], B_next + 4096 * r);
      }
      B_next += 16384;
      #pragma unroll
      for (int r = 0; r < 16; ++r) {  // ask for 128 x 16 of A
        tc_ask4(&A_tile[next_stage][thread % 16][8 * r + thread / 16], A_next + 8192 * r);
      }
      A_next += 16;
    }
    tc_copy_async_commit();
    next_stage = next_stage + 1 == 3 ? 0 : next_stage + 1;
    // C(m, n) +=! A(m, k) * B(k, n) (8 x 16 threads)
    #pragma unroll 8
    for (int k_part = 0; k_part < 16; ++k_part) {
      #pragma unroll
      for (int m_part = 0; m_part < 4; ++m_part) {
        #pragma unroll
        for (int m_part_1 = 0; m_part_1 < 4; ++m_part_1) {
          #pragma unroll
          for (int n_part = 0; n_part < 2; ++n_part) {
            #pragma unroll
            for (int n_part_1 = 0; n_part_1 < 4; ++n_part_1) {
              C_acc0_parts_acc[4 * m_part + m_part_1][4 * n_part + n_part_1] += A_tile[stage][k_part][4 * t_m + 32 * m_part + m_part_1] * B_tile[stage][k_part][4 * t_n + 64 * n_part + n_part_1];
            }
          }
        }
      }
    }
    stage = stage + 1 == 3 ? 0 : stage + 1;
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

// f_0<<<(8, 8, 4), (16, 8, 1), 49920>>>(A, B, C_acc0_parts)
// f_1<<<(1024, 1, 1), (256, 1, 1), 0>>>(C, C_acc0_parts)
// temporary C_acc0_parts: float32[4, 1024, 1024]
