// f, specialised to B = 4, Q = 256, K = 512, D = 64
// Into a column, its second half first where it is the turn: fewer lanes meet in a bank.
template <class T>
static __device__ __forceinline__ void tc_store_turned(T *shared, const int apart, const int turn, const uint4 whole) {
  T *const first = shared + (turn ? 2 * apart : 0), *const second = shared + (turn ? 0 : 2 * apart);
  const T *const values = reinterpret_cast<const T *>(&whole);
  first[0] = turn ? values[2] : values[0];
  first[apart] = turn ? values[3] : values[1];
  second[0] = turn ? values[0] : values[2];
  second[apart] = turn ? values[1] : values[3];
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
#ifdef __CUDACC__
static __device__ __forceinline__ void tc_copy_async16(void *shared, const void *global, const int read) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"((unsigned int)__cvta_generic_to_shared(shared)), "l"(global), "r"(read) : "memory");
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
#ifdef __CUDACC__
static __device__ __forceinline__ float tc_choose(const bool condition, const float one, const float other) {
  float chosen;
  asm("{ .reg .pred p; setp.ne.s32 p, %1, 0; selp.f32 %0, %2, %3, p; }"
      : "=f"(chosen) : "r"((int)condition), "f"(one), "f"(other));
  return chosen;
}
#else
#define tc_choose(condition, one, other) ((condition) ? (one) : (other))
#endif
template <class T>
static __device__ __forceinline__ void tc_put16(T *global, const T *values) {
#ifndef TC_ANYWHERE
  *reinterpret_cast<uint4 *>(global) = *reinterpret_cast<const uint4 *>(values);
#else
  for (int i = 0; i < (int)(16 / sizeof(T)); i++) global[i] = values[i];
#endif
}

extern "C" __global__ void __launch_bounds__(128, 4)
f_0(
    const float *__restrict__ q,
    const float *__restrict__ k,
    const float *__restrict__ v,
    float *__restrict__ O)
{
  const int thread = threadIdx.x + 16 * threadIdx.y;
  const int t_i = threadIdx.y;
  const int t_j = threadIdx.x;
  const int t_d = threadIdx.x;
  extern __shared__ __align__(16) unsigned char tc_dynamic[];
  float (&q_tile)[64][68] = *reinterpret_cast<float (*)[64][68]>(tc_dynamic + 0);
  float (&k_tile)[2][64][65] = *reinterpret_cast<float (*)[2][64][65]>(tc_dynamic + 17408);
  float (&v_tile)[2][64][64] = *reinterpret_cast<float (*)[2][64][64]>(tc_dynamic + 50688);
  float (&e_parts_tile)[64][64] = *reinterpret_cast<float (*)[64][64]>(tc_dynamic + 83456);
  const int b_b = blockIdx.y;
  const int b_i = blockIdx.x;
  float l_acc[8];
  float m_so_far[8];
  float l_so_far[8];
  float a_so_far[8][4];
  #pragma unroll
  for (int e = 4 * thread; e < 4096; e += 512) {  // fetch 1 x 64 x 64 of q by 4
    const int i = 64 * b_i + e / 64;
    const int d = e % 64;
    tc_store_turned(&q_tile[e % 64][e / 64], 68, e % 64 / 8 % 2, tc_load16(&q[16384 * b_b + 64 * i + d]));
  }
  __syncthreads();
  #pragma unroll
  for (int own = 0; own < 8; ++own) {  // in front of the first turn
    m_so_far[own] = -3.4028235e+38f;
  }
  #pragma unroll
  for (int own = 0; own < 8; ++own) {  // in front of the first turn
    l_so_far[own] = 0.0f;
  }
  #pragma unroll
  for (int own = 0; own < 8; ++own) {  // in front of the first turn
    #pragma unroll
    for (int own_1 = 0; own_1 < 4; ++own_1) {
      a_so_far[own][own_1] = 0.0f;
    }
  }
  const float *k_next = k + 32768 * b_b + 64 * (thread / 64) + thread % 64;
  const float *v_next = v + 32768 * b_b + 64 * (4 * thread / 64) + 4 * thread % 64;
  #pragma unroll
  for (int ahead = 0; ahead < 1; ++ahead) {  // the first tiles
    #pragma unroll
    for (int r = 0; r < 32; ++r) {  // ask for 1 x 64 x 64 of k
      tc_ask4(&k_tile[ahead][2 * r + thread / 64][thread % 64], k_next + 128 * r);
    }
    k_next += 4096;
    tc_copy_async_commit();
    #pragma unroll
    for (int r = 0; r < 8; ++r) {  // ask for 1 x 64 x 64 of v by 4
      tc_ask16(&v_tile[ahead][8 * r + 4 * thread / 64][4 * thread % 64], v_next + 512 * r);
    }
    v_next += 4096;
    tc_copy_async_commit();
  }
  int stage = 0, next_stage = 1;
  for (int part = 0; part < 8; ++part) {  // turns, 11 phases in each
    float s_parts[8][4];
    float e_scale[8];
    // s starts (8 x 16 threads)
    #pragma unroll
    for (int i_part = 0; i_part < 2; ++i_part) {
      #pragma unroll
      for (int i_part_1 = 0; i_part_1 < 4; ++i_part_1) {
        #pragma unroll
        for (int j_part = 0; j_part < 4; ++j_part) {
          s_parts[4 * i_part + i_part_1][j_part] = 0.0f;
        }
      }
    }
    tc_copy_async_wait<1>();
    __syncthreads();
    if (part < 7) {
      #pragma unroll
      for (int r = 0; r < 32; ++r) {  // ask for 1 x 64 x 64 of k
        tc_ask4(&k_tile[next_stage][2 * r + thread / 64][thread % 64], k_next + 128 * r);
      }
      k_next += 4096;
    }
    tc_copy_async_commit();
    // s(b, i, j) +=! q(b, i, d) * k(b, j, d) (8 x 16 threads)
    #pragma unroll 4
    for (int d = 0; d < 64; ++d) {
      #pragma unroll
      for (int i_part = 0; i_part < 2; ++i_part) {
        #pragma unroll
        for (int i_part_1 = 0; i_part_1 < 4; ++i_part_1) {
          #pragma unroll
          for (int j_part = 0; j_part < 4; ++j_part) {
            s_parts[4 * i_part + i_part_1][j_part] += q_tile[d][4 * t_i + 32 * i_part + i_part_1] * k_tile[stage][4 * t_j + j_part][d];
          }
        }
      }
    }
    #pragma unroll
    for (int i_part = 0; i_part < 2; ++i_part) {  // rounds of elements, 4 phases in each
      #pragma unroll
      for (int i_part_1 = 0; i_part_1 < 4; ++i_part_1) {  // rounds of elements, 4 phases in each
        float m_before;
        // m(b, i) max=! s(b, i, j) (8 x 16 threads)
        {
          m_before = m_so_far[4 * i_part + i_part_1];
        }
        // m starts (8 x 16 threads)
        {
          m_so_far[4 * i_part + i_part_1] = m_before;
        }
        // m(b, i) max=! s(b, i, j) (8 x 16 threads, 16 to an element)
        float m_so_far_part = -__int_as_float(0x7f800000);
        #pragma unroll
        for (int j_part = 0; j_part < 4; ++j_part) {
          m_so_far_part = tc_max_float32(m_so_far_part, s_parts[4 * i_part + i_part_1][j_part]);
        }
        for (int lane = 8; lane > 0; lane /= 2) m_so_far_part = tc_max_float32(m_so_far_part, __shfl_xor_sync(0xffffffffu, m_so_far_part, lane));
        {
          m_so_far[4 * i_part + i_part_1] = tc_max_float32(m_so_far[4 * i_part + i_part_1], m_so_far_part);
        }
        // e(b, i, j) = exp((s(b, i, j) - m(b, i)) * 0.125) (8 x 16 threads)
        {
          e_scale[4 * i_part + i_part_1] = tc_choose(part > 0, expf((m_before - m_so_far[4 * i_part + i_part_1]) * 0.125f), 0.0f);
        }
      }
    }
    // e(b, i, j) = exp((s(b, i, j) - m(b, i)) * 0.125) (8 x 16 threads)
    #pragma unroll
    for (int i_part = 0; i_part < 2; ++i_part) {
      #pragma unroll
      for (int i_part_1 = 0; i_part_1 < 4; ++i_part_1) {
        #pragma unroll
        for (int j_part = 0; j_part < 4; ++j_part) {
          e_parts_tile[4 * t_i + 32 * i_part + i_part_1][4 * t_j + j_part] = expf((s_parts[4 * i_part + i_part_1][j_part] - m_so_far[4 * i_part + i_part_1]) * 0.125f);
        }
      }
    }
    #pragma unroll
    for (int i_part = 0; i_part < 2; ++i_part) {  // rounds of elements, 2 phases in each
      #pragma unroll
      for (int i_part_1 = 0; i_part_1 < 4; ++i_part_1) {  // rounds of elements, 2 phases in each
        // l starts (8 x 16 threads)
        {
          l_so_far[4 * i_part + i_part_1] *= e_scale[4 * i_part + i_part_1];
        }
        // l(b, i) +=! e(b, i, j) (8 x 16 threads, 16 to an element)
        float l_so_far_part = 0.0f;
        #pragma unroll
        for (int j_part = 0; j_part < 4; ++j_part) {
          l_so_far_part += e_parts_tile[32 * i_part + i_part_1 + 4 * t_i][4 * t_j + j_part];
        }
        for (int lane = 8; lane > 0; lane /= 2) l_so_far_part += __shfl_xor_sync(0xffffffffu, l_so_far_part, lane);
        {
          l_so_far[4 * i_part + i_part_1] += l_so_far_part;
        }
      }
    }
    // a starts (8 x 16 threads)
    #pragma unroll
    for (int i_part = 0; i_part < 2; ++i_part) {
      #pragma unroll
      for (int i_part_1 = 0; i_part_1 < 4; ++i_part_1) {
        #pragma unroll
        for (int d_part = 0; d_part < 4; ++d_part) {
          a_so_far[4 * i_part + i_part_1][d_part] *= e_scale[4 * i_part + i_part_1];
        }
      }
    }
    tc_copy_async_wait<1>();
    __syncthreads();
    if (part < 7) {
      #pragma unroll
      for (int r = 0; r < 8; ++r) {  // ask for 1 x 64 x 64 of v by 4
        tc_ask16(&v_tile[next_stage][8 * r + 4 * thread / 64][4 * thread % 64], v_next + 512 * r);
      }
      v_next += 4096;
    }
    tc_copy_async_commit();
    next_stage = next_stage + 1 == 2 ? 0 : next_stage + 1;
    // a(b, i, d) +=! e(b, i, j) * v(b, j, d) (8 x 16 threads)
    #pragma unroll 4
    for (int j = 0; j < 64; ++j) {
      #pragma unroll
      for (int i_part = 0; i_part < 2; ++i_part) {
        #pragma unroll
        for (int i_part_1 = 0; i_part_1 < 4; ++i_part_1) {
          #pragma unroll
          for (int d_part = 0; d_part < 4; ++d_part) {
            a_so_far[4 * i_part + i_part_1][d_part] += e_parts_tile[4 * t_i + 32 * i_part + i_part_1][j] * v_tile[stage][j][4 * t_d + d_part];
          }
        }
      }
    }
    stage = stage + 1 == 2 ? 0 : stage + 1;
  }
  // l(b, i) +=! e(b, i, j) (8 x 16 threads)
  #pragma unroll
  for (int i_part = 0; i_part < 2; ++i_part) {
    #pragma unroll
    for (int i_part_1 = 0; i_part_1 < 4; ++i_part_1) {
      l_acc[4 * i_part + i_part_1] = l_so_far[4 * i_part + i_part_1];
    }
  }
  // a(b, i, d) +=! e(b, i, j) * v(b, j, d); O(b, i, d) = a(b, i, d) / l(b, i) (8 x 16 threads)
  #pragma unroll
  for (int i_part = 0; i_part < 2; ++i_part) {
    #pragma unroll
    for (int i_part_1 = 0; i_part_1 < 4; ++i_part_1) {
      __align__(16) float O_side_by_side[4];
      #pragma unroll
      for (int d_part = 0; d_part < 4; ++d_part) {
        float a_acc;
        a_acc = a_so_far[4 * i_part + i_part_1][d_part];
        O_side_by_side[d_part] = a_acc / l_acc[4 * i_part + i_part_1];
      }
      tc_put16(&O[16384 * b_b + 4096 * b_i + 256 * t_i + 2048 * i_part + 64 * i_part_1 + 4 * t_d], O_side_by_side);
    }
  }
}

// f_0<<<(4, 4, 1), (16, 8, 1), 99840>>>(q, k, v, O)
