// f, specialised to B = 4, Q = 256, K = 512, D = 64
template <class T>
static __device__ __forceinline__ void tc_store_column(T *shared, const int apart, const uint4 whole) {
  for (int i = 0; i < (int)(16 / sizeof(T)); i++) shared[i * apart] = reinterpret_cast<const T *>(&whole)[i];
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
static __device__ __forceinline__ void tc_store16(T *shared, const uint4 whole) {
  *reinterpret_cast<uint4 *>(shared) = whole;
}
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
  float (&l_acc_tile)[64] = *reinterpret_cast<float (*)[64]>(tc_dynamic + 0);
  float (&m_so_far_tile)[64] = *reinterpret_cast<float (*)[64]>(tc_dynamic + 256);
  float (&e_scale_tile)[64] = *reinterpret_cast<float (*)[64]>(tc_dynamic + 512);
  float (&e_parts_tile)[64][64] = *reinterpret_cast<float (*)[64][64]>(tc_dynamic + 768);
  float (&k_tile)[64][65] = *reinterpret_cast<float (*)[64][65]>(tc_dynamic + 17152);
  float (&q_tile)[64][68] = *reinterpret_cast<float (*)[64][68]>(tc_dynamic + 33792);
  float (&v_tile)[64][64] = *reinterpret_cast<float (*)[64][64]>(tc_dynamic + 51200);
  const int b_b = blockIdx.y;
  const int b_i = blockIdx.x;
  float l_so_far[8];
  float a_so_far[8][4];
  for (int part = 0; part < 8; ++part) {  // turns, 11 phases in each
    float s_parts[8][4];
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
    #pragma unroll
    for (int e = 4 * thread; e < 4096; e += 512) {  // fetch 1 x 64 x 64 of k by 4
      const int i1 = 64 * part + e / 64;
      const int d = e % 64;
      tc_store_column(&k_tile[e / 64][e % 64], 1, tc_load16(&k[32768 * b_b + 64 * i1 + d]));
    }
    #pragma unroll
    for (int e = 4 * thread; e < 4096; e += 512) {  // fetch 1 x 64 x 64 of q by 4
      const int i = 64 * b_i + e / 64;
      const int d = e % 64;
      tc_store_turned(&q_tile[e % 64][e / 64], 68, e % 64 / 8 % 2, tc_load16(&q[16384 * b_b + 64 * i + d]));
    }
    __syncthreads();
    // s(b, i, j) +=! q(b, i, d) * k(b, j, d) (8 x 16 threads)
    #pragma unroll 4
    for (int d = 0; d < 64; ++d) {
      #pragma unroll
      for (int i_part = 0; i_part < 2; ++i_part) {
        #pragma unroll
        for (int i_part_1 = 0; i_part_1 < 4; ++i_part_1) {
          #pragma unroll
          for (int j_part = 0; j_part < 4; ++j_part) {
            s_parts[4 * i_part + i_part_1][j_part] += q_tile[d][4 * t_i + 32 * i_part + i_part_1] * k_tile[4 * t_j + j_part][d];
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
        if (threadIdx.x == 0) {
          m_before = (part > 0) ? m_so_far_tile[32 * i_part + i_part_1 + 4 * t_i] : (-3.4028235e+38f);
        }
        // m starts (8 x 16 threads)
        if (threadIdx.x == 0) {
          m_so_far_tile[32 * i_part + i_part_1 + 4 * t_i] = m_before;
        }
        // m(b, i) max=! s(b, i, j) (8 x 16 threads, 16 to an element)
        float m_so_far_part = -__int_as_float(0x7f800000);
        #pragma unroll
        for (int j_part = 0; j_part < 4; ++j_part) {
          m_so_far_part = tc_max_float32(m_so_far_part, s_parts[4 * i_part + i_part_1][j_part]);
        }
        for (int lane = 8; lane > 0; lane /= 2) m_so_far_part = tc_max_float32(m_so_far_part, __shfl_xor_sync(0xffffffffu, m_so_far_part, lane));
        if (threadIdx.x == 0) {
          m_so_far_tile[32 * i_part + i_part_1 + 4 * t_i] = tc_max_float32(m_so_far_tile[32 * i_part + i_part_1 + 4 * t_i], m_so_far_part);
        }
        // e(b, i, j) = exp((s(b, i, j) - m(b, i)) * 0.125) (8 x 16 threads)
        if (threadIdx.x == 0) {
          e_scale_tile[32 * i_part + i_part_1 + 4 * t_i] = expf((m_before - m_so_far_tile[32 * i_part + i_part_1 + 4 * t_i]) * 0.125f);
        }
      }
    }
    __syncwarp();
    // e(b, i, j) = exp((s(b, i, j) - m(b, i)) * 0.125) (8 x 16 threads)
    #pragma unroll
    for (int i_part = 0; i_part < 2; ++i_part) {
      #pragma unroll
      for (int i_part_1 = 0; i_part_1 < 4; ++i_part_1) {
        #pragma unroll
        for (int j_part = 0; j_part < 4; ++j_part) {
          e_parts_tile[4 * t_i + 32 * i_part + i_part_1][4 * t_j + j_part] = expf((s_parts[4 * i_part + i_part_1][j_part] - m_so_far_tile[4 * t_i + 32 * i_part + i_part_1]) * 0.125f);
        }
      }
    }
    #pragma unroll
    for (int i_part = 0; i_part < 2; ++i_part) {  // rounds of elements, 2 phases in each
      #pragma unroll
      for (int i_part_1 = 0; i_part_1 < 4; ++i_part_1) {  // rounds of elements, 2 phases in each
        // l starts (8 x 16 threads)
        if (threadIdx.x == 0) {
          l_so_far[4 * i_part + i_part_1] = (part > 0) ? (l_so_far[4 * i_part + i_part_1] * e_scale_tile[32 * i_part + i_part_1 + 4 * t_i]) : 0.0f;
        }
        // l(b, i) +=! e(b, i, j) (8 x 16 threads, 16 to an element)
        float l_so_far_part = 0.0f;
        #pragma unroll
        for (int j_part = 0; j_part < 4; ++j_part) {
          l_so_far_part += e_parts_tile[32 * i_part + i_part_1 + 4 * t_i][4 * t_j + j_part];
        }
        for (int lane = 8; lane > 0; lane /= 2) l_so_far_part += __shfl_xor_sync(0xffffffffu, l_so_far_part, lane);
        if (threadIdx.x == 0) {
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
          a_so_far[4 * i_part + i_part_1][d_part] = (part > 0) ? (a_so_far[4 * i_part + i_part_1][d_part] * e_scale_tile[4 * t_i + 32 * i_part + i_part_1]) : 0.0f;
        }
      }
    }
    #pragma unroll
    for (int e = 4 * thread; e < 4096; e += 512) {  // fetch 1 x 64 x 64 of v by 4
      const int i1 = 64 * part + e / 64;
      const int d = e % 64;
      tc_store16(&v_tile[e / 64][e % 64], tc_load16(&v[32768 * b_b + 64 * i1 + d]));
    }
    __syncthreads();
    // a(b, i, d) +=! e(b, i, j) * v(b, j, d) (8 x 16 threads)
    #pragma unroll 4
    for (int j = 0; j < 64; ++j) {
      #pragma unroll
      for (int i_part = 0; i_part < 2; ++i_part) {
        #pragma unroll
        for (int i_part_1 = 0; i_part_1 < 4; ++i_part_1) {
          #pragma unroll
          for (int d_part = 0; d_part < 4; ++d_part) {
            a_so_far[4 * i_part + i_part_1][d_part] += e_parts_tile[4 * t_i + 32 * i_part + i_part_1][j] * v_tile[j][4 * t_d + d_part];
          }
        }
      }
    }
  }
  // l(b, i) +=! e(b, i, j) (8 x 16 threads)
  if (threadIdx.x == 0) {
    #pragma unroll
    for (int i_part = 0; i_part < 2; ++i_part) {
      #pragma unroll
      for (int i_part_1 = 0; i_part_1 < 4; ++i_part_1) {
        l_acc_tile[4 * t_i + 32 * i_part + i_part_1] = l_so_far[4 * i_part + i_part_1];
      }
    }
  }
  __syncwarp();
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
        O_side_by_side[d_part] = a_acc / l_acc_tile[4 * t_i + 32 * i_part + i_part_1];
      }
      tc_put16(&O[16384 * b_b + 4096 * b_i + 256 * t_i + 2048 * i_part + 64 * i_part_1 + 4 * t_d], O_side_by_side);
    }
  }
}

// f_0<<<(4, 4, 1), (16, 8, 1), 67584>>>(q, k, v, O)
