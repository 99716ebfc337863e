// f, specialised to B = 4, Q = 64, K = 96, D = 64
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
static __device__ __forceinline__ float tc_max_float32(float a, float b) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return a > b || a != a ? a : b;
#endif
}
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
static __device__ __forceinline__ void tc_put8(T *global, const T *values) {
#ifndef TC_ANYWHERE
  *reinterpret_cast<uint2 *>(global) = *reinterpret_cast<const uint2 *>(values);
#else
  for (int i = 0; i < (int)(8 / sizeof(T)); i++) global[i] = values[i];
#endif
}

extern "C" __global__ void __launch_bounds__(256, 2)
f_0(
    const float *__restrict__ q,
    const float *__restrict__ k,
    const float *__restrict__ v,
    float *__restrict__ O)
{
  const int thread = threadIdx.x + 32 * threadIdx.y;
  const int t_i = thread / 48;
  const int t_j = thread % 48;
  const int t_d = threadIdx.x;
  __shared__ float s_acc_tile[16][96];
  __shared__ float m_acc_tile[16];
  __shared__ float e_1_tile[16][96];
  __shared__ float l_acc_tile[16];
  __shared__ __align__(16) float q_tile[3][16][20];
  __shared__ __align__(16) float k_tile[3][16][98];
  __shared__ __align__(16) float v_tile[48][64];
  const int b_b = blockIdx.y;
  const int b_i = blockIdx.x;
  float a_acc[2][2];
  // s starts (4 x 48 threads)
  if (thread < 192) {
    #pragma unroll
    for (int i_part = 0; i_part < 4; ++i_part) {
      #pragma unroll
      for (int j_part = 0; j_part < 2; ++j_part) {
        s_acc_tile[4 * t_i + i_part][2 * t_j + j_part] = 0.0f;
      }
    }
  }
  const float *q_next = q + 4096 * b_b + 1024 * b_i + 64 * (thread / 16) + thread % 16;
  const float *k_next = k + 6144 * b_b + 64 * (thread / 16) + thread % 16;
  #pragma unroll
  for (int ahead = 0; ahead < 2; ++ahead) {  // the first tiles
    {  // ask for 1 x 16 x 16 of q
      tc_ask4(&q_tile[ahead][thread % 16][thread / 16], q_next);
    }
    q_next += 16;
    #pragma unroll
    for (int r = 0; r < 6; ++r) {  // ask for 1 x 96 x 16 of k
      tc_ask4(&k_tile[ahead][thread % 16][16 * r + thread / 16], k_next + 1024 * r);
    }
    k_next += 16;
    tc_copy_async_commit();
  }
  int stage = 0, next_stage = 2;
  for (int d_tile = 0; d_tile < 4; ++d_tile) {  // tiles of steps
    tc_copy_async_wait<1>();
    __syncthreads();
    if (d_tile < 2) {
      {  // ask for 1 x 16 x 16 of q
        tc_ask4(&q_tile[next_stage][thread % 16][thread / 16], q_next);
      }
      q_next += 16;
      #pragma unroll
      for (int r = 0; r < 6; ++r) {  // ask for 1 x 96 x 16 of k
        tc_ask4(&k_tile[next_stage][thread % 16][16 * r + thread / 16], k_next + 1024 * r);
      }
      k_next += 16;
    }
    tc_copy_async_commit();
    next_stage = next_stage + 1 == 3 ? 0 : next_stage + 1;
    // s(b, i, j) +=! q(b, i, d) * k(b, j, d) (4 x 48 threads)
    if (thread < 192) {
      #pragma unroll
      for (int d_part = 0; d_part < 16; ++d_part) {
        #pragma unroll
        for (int i_part = 0; i_part < 4; ++i_part) {
          #pragma unroll
          for (int j_part = 0; j_part < 2; ++j_part) {
            s_acc_tile[4 * t_i + i_part][2 * t_j + j_part] += q_tile[stage][d_part][4 * t_i + i_part] * k_tile[stage][d_part][2 * t_j + j_part];
          }
        }
      }
    }
    stage = stage + 1 == 3 ? 0 : stage + 1;
  }
  for (int i_part = 0; i_part < 2; ++i_part) {  // rounds of elements, 2 phases in each
    // m starts (8 x 32 threads)
    {
      const int t_i = threadIdx.y;
      if (threadIdx.x == 0) {
        m_acc_tile[8 * i_part + t_i] = -__int_as_float(0x7f800000);
      }
    }
    __syncthreads();
    // m(b, i) max=! s(b, i, j) (8 x 32 threads, 32 to an element)
    float m_acc_part = -__int_as_float(0x7f800000);
    {
      const int t_i = threadIdx.y;
      const int t_j = threadIdx.x;
      #pragma unroll
      for (int j_part = 0; j_part < 3; ++j_part) {
        m_acc_part = tc_max_float32(m_acc_part, s_acc_tile[8 * i_part + t_i][t_j + 32 * j_part]);
      }
    }
    for (int lane = 16; lane > 0; lane /= 2) m_acc_part = tc_max_float32(m_acc_part, __shfl_xor_sync(0xffffffffu, m_acc_part, lane));
    {
      const int t_i = threadIdx.y;
      if (threadIdx.x == 0) {
        m_acc_tile[8 * i_part + t_i] = tc_max_float32(m_acc_tile[8 * i_part + t_i], m_acc_part);
      }
    }
  }
  __syncthreads();
  // e(b, i, j) = exp((s(b, i, j) - m(b, i)) * 0.125) (2 x 96 threads)
  {
    const int t_i = thread / 96;
    const int t_j = thread % 96;
    if (thread < 192) {
      #pragma unroll
      for (int i_part = 0; i_part < 8; ++i_part) {
        e_1_tile[t_i + 2 * i_part][t_j] = expf((s_acc_tile[t_i + 2 * i_part][t_j] - m_acc_tile[t_i + 2 * i_part]) * 0.125f);
      }
    }
  }
  for (int i_part = 0; i_part < 2; ++i_part) {  // rounds of elements, 2 phases in each
    // l starts (8 x 32 threads)
    {
      const int t_i = threadIdx.y;
      if (threadIdx.x == 0) {
        l_acc_tile[8 * i_part + t_i] = 0.0f;
      }
    }
    __syncthreads();
    // l(b, i) +=! e(b, i, j) (8 x 32 threads, 32 to an element)
    float l_acc_part = 0.0f;
    {
      const int t_i = threadIdx.y;
      const int t_j = threadIdx.x;
      #pragma unroll
      for (int j_part = 0; j_part < 3; ++j_part) {
        l_acc_part += e_1_tile[8 * i_part + t_i][t_j + 32 * j_part];
      }
    }
    for (int lane = 16; lane > 0; lane /= 2) l_acc_part += __shfl_xor_sync(0xffffffffu, l_acc_part, lane);
    {
      const int t_i = threadIdx.y;
      if (threadIdx.x == 0) {
        l_acc_tile[8 * i_part + t_i] += l_acc_part;
      }
    }
  }
  // a starts (8 x 32 threads)
  {
    const int t_i = threadIdx.y;
    #pragma unroll
    for (int i_part = 0; i_part < 2; ++i_part) {
      #pragma unroll
      for (int d_part = 0; d_part < 2; ++d_part) {
        a_acc[i_part][d_part] = 0.0f;
      }
    }
  }
  uint4 v_next[3];
  #pragma unroll
  for (int r = 0; r < 3; ++r) {  // ask for 1 x 48 x 64 of v by 4
    const int e = 4 * thread + 1024 * r;
    const int j = e / 64;
    const int d = e % 64;
    v_next[r] = tc_load16(&v[6144 * b_b + 64 * j + d]);
  }
  for (int j_tile = 0; j_tile < 2; ++j_tile) {  // tiles of steps
    __syncthreads();
    #pragma unroll
    for (int r = 0; r < 3; ++r) {  // store 1 x 48 x 64 of v by 4
      const int e = 4 * thread + 1024 * r;
      tc_store16(&v_tile[e / 64][e % 64], v_next[r]);
    }
    __syncthreads();
    if (j_tile < 1) {
      #pragma unroll
      for (int r = 0; r < 3; ++r) {  // ask for 1 x 48 x 64 of v by 4
        const int e = 4 * thread + 1024 * r;
        const int j = e / 64 + 48;
        const int d = e % 64;
        v_next[r] = tc_load16(&v[6144 * b_b + 64 * j + d]);
      }
    }
    // a(b, i, d) +=! e(b, i, j) * v(b, j, d) (8 x 32 threads)
    {
      const int t_i = threadIdx.y;
      #pragma unroll 24
      for (int j_part = 0; j_part < 48; ++j_part) {
        #pragma unroll
        for (int i_part = 0; i_part < 2; ++i_part) {
          #pragma unroll
          for (int d_part = 0; d_part < 2; ++d_part) {
            a_acc[i_part][d_part] += e_1_tile[2 * t_i + i_part][48 * j_tile + j_part] * v_tile[j_part][2 * t_d + d_part];
          }
        }
      }
    }
  }
  // O(b, i, d) = a(b, i, d) / l(b, i) (8 x 32 threads)
  {
    const int t_i = threadIdx.y;
    #pragma unroll
    for (int i_part = 0; i_part < 2; ++i_part) {
      __align__(8) float O_side_by_side[2];
      #pragma unroll
      for (int d_part = 0; d_part < 2; ++d_part) {
        O_side_by_side[d_part] = a_acc[i_part][d_part] / l_acc_tile[2 * t_i + i_part];
      }
      tc_put8(&O[4096 * b_b + 1024 * b_i + 128 * t_i + 64 * i_part + 2 * t_d], O_side_by_side);
    }
  }
}

// f_0<<<(4, 4, 1), (32, 8, 1), 0>>>(q, k, v, O)
