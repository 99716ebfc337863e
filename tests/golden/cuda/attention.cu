// f, specialised to B = 4, Q = 64, K = 96, D = 64
// 16 bytes at a time where the tensor begins at a multiple of that, else element by element.
template <class T>
static __device__ __forceinline__ void tc_fetch16(T *shared, const int apart, const T *global) {
  constexpr int count = 16 / sizeof(T);
  if ((unsigned long long)global % 16 == 0) {
    const uint4 whole = *reinterpret_cast<const uint4 *>(global);
    if (apart == 1 && (unsigned long long)shared % 16 == 0) {
      *reinterpret_cast<uint4 *>(shared) = whole;
    } else {
      for (int i = 0; i < count; i++) shared[i * apart] = reinterpret_cast<const T *>(&whole)[i];
    }
  } else {
    for (int i = 0; i < count; i++) shared[i * apart] = global[i];
  }
}
static __device__ __forceinline__ float tc_max_float32(float a, float b) { return a > b || a != a ? a : b; }

extern "C" __global__ void __launch_bounds__(256, 2)
f_0(
    const float *__restrict__ q,
    const float *__restrict__ k,
    const float *__restrict__ v,
    float *__restrict__ O)
{
  const int thread = threadIdx.x + 64 * threadIdx.y;
  const int t_i = threadIdx.y;
  const int t_j = threadIdx.x;
  const int t_d = thread % 32;
  __shared__ float s_acc_tile[16][96];
  __shared__ float m_acc_tile[16];
  __shared__ float e_1_tile[16][96];
  __shared__ float l_acc_tile[16];
  __shared__ __align__(16) float q_tile[16][16];
  __shared__ __align__(16) float k_tile[16][98];
  __shared__ float m_acc_of_warp[8];
  __shared__ float l_acc_of_warp[8];
  __shared__ __align__(16) float v_tile[16][64];
  const int b_b = blockIdx.y;
  const int b_i = blockIdx.x;
  float a_acc[2][2];
  // s starts (4 x 64 threads)
  for (int i_part = 0; i_part < 4; ++i_part) {
    #pragma unroll
    for (int j_part = 0; j_part < 2; ++j_part) {
      if (t_j + 64 * j_part < 96) {
        s_acc_tile[t_i + 4 * i_part][t_j + 64 * j_part] = 0.0f;
      }
    }
  }
  for (int d_tile = 0; d_tile < 4; ++d_tile) {  // tiles of steps
    __syncthreads();
    #pragma unroll
    for (int e = 4 * thread; e < 256; e += 1024) {  // fetch 1 x 16 x 16 of q by 4
      const int i = 16 * b_i + e / 16;
      const int d = 16 * d_tile + e % 16;
      tc_fetch16(&q_tile[e / 16][e % 16], 1, &q[4096 * b_b + 64 * i + d]);
    }
    #pragma unroll
    for (int e = 4 * thread; e < 1536; e += 1024) {  // fetch 1 x 96 x 16 of k by 4
      const int j = e / 16;
      const int d = 16 * d_tile + e % 16;
      tc_fetch16(&k_tile[e % 16][e / 16], 98, &k[6144 * b_b + 64 * j + d]);
    }
    __syncthreads();
    // s(b, i, j) +=! q(b, i, d) * k(b, j, d) (4 x 64 threads)
    for (int d_part = 0; d_part < 16; ++d_part) {
      for (int i_part = 0; i_part < 4; ++i_part) {
        #pragma unroll
        for (int j_part = 0; j_part < 2; ++j_part) {
          if (t_j + 64 * j_part < 96) {
            s_acc_tile[t_i + 4 * i_part][t_j + 64 * j_part] += q_tile[t_i + 4 * i_part][d_part] * k_tile[d_part][t_j + 64 * j_part];
          }
        }
      }
    }
  }
  for (int i_part = 0; i_part < 4; ++i_part) {  // rounds of elements, 2 phases in each
    // m starts (4 x 64 threads)
    if (threadIdx.x == 0) {
      m_acc_tile[4 * i_part + t_i] = -__int_as_float(0x7f800000);
    }
    __syncthreads();
    // m(b, i) max=! s(b, i, j) (4 x 64 threads, 64 to an element)
    float m_acc_part = -__int_as_float(0x7f800000);
    #pragma unroll
    for (int j_part = 0; j_part < 2; ++j_part) {
      if (t_j + 64 * j_part < 96) {
        m_acc_part = tc_max_float32(m_acc_part, s_acc_tile[4 * i_part + t_i][t_j + 64 * j_part]);
      }
    }
    for (int lane = 16; lane > 0; lane /= 2) m_acc_part = tc_max_float32(m_acc_part, __shfl_xor_sync(0xffffffffu, m_acc_part, lane));
    if (thread % 32 == 0) m_acc_of_warp[thread / 32] = m_acc_part;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int warp = 1; warp < 2; ++warp) m_acc_part = tc_max_float32(m_acc_part, m_acc_of_warp[thread / 32 + warp]);
      m_acc_tile[4 * i_part + t_i] = tc_max_float32(m_acc_tile[4 * i_part + t_i], m_acc_part);
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
  for (int i_part = 0; i_part < 4; ++i_part) {  // rounds of elements, 2 phases in each
    // l starts (4 x 64 threads)
    if (threadIdx.x == 0) {
      l_acc_tile[4 * i_part + t_i] = 0.0f;
    }
    __syncthreads();
    // l(b, i) +=! e(b, i, j) (4 x 64 threads, 64 to an element)
    float l_acc_part = 0.0f;
    #pragma unroll
    for (int j_part = 0; j_part < 2; ++j_part) {
      if (t_j + 64 * j_part < 96) {
        l_acc_part += e_1_tile[4 * i_part + t_i][t_j + 64 * j_part];
      }
    }
    for (int lane = 16; lane > 0; lane /= 2) l_acc_part += __shfl_xor_sync(0xffffffffu, l_acc_part, lane);
    if (thread % 32 == 0) l_acc_of_warp[thread / 32] = l_acc_part;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int warp = 1; warp < 2; ++warp) l_acc_part += l_acc_of_warp[thread / 32 + warp];
      l_acc_tile[4 * i_part + t_i] += l_acc_part;
    }
  }
  // a starts (8 x 32 threads)
  {
    const int t_i = thread / 32;
    #pragma unroll
    for (int i_part = 0; i_part < 2; ++i_part) {
      #pragma unroll
      for (int d_part = 0; d_part < 2; ++d_part) {
        a_acc[i_part][d_part] = 0.0f;
      }
    }
  }
  for (int j_tile = 0; j_tile < 6; ++j_tile) {  // tiles of steps
    __syncthreads();
    #pragma unroll
    for (int e = 4 * thread; e < 1024; e += 1024) {  // fetch 1 x 16 x 64 of v by 4
      const int j = 16 * j_tile + e / 64;
      const int d = e % 64;
      tc_fetch16(&v_tile[e / 64][e % 64], 1, &v[6144 * b_b + 64 * j + d]);
    }
    __syncthreads();
    // a(b, i, d) +=! e(b, i, j) * v(b, j, d) (8 x 32 threads)
    {
      const int t_i = thread / 32;
      #pragma unroll
      for (int j_part = 0; j_part < 16; ++j_part) {
        #pragma unroll
        for (int i_part = 0; i_part < 2; ++i_part) {
          #pragma unroll
          for (int d_part = 0; d_part < 2; ++d_part) {
            a_acc[i_part][d_part] += e_1_tile[t_i + 8 * i_part][16 * j_tile + j_part] * v_tile[j_part][t_d + 32 * d_part];
          }
        }
      }
    }
  }
  // O(b, i, d) = a(b, i, d) / l(b, i) (8 x 32 threads)
  {
    const int t_i = thread / 32;
    #pragma unroll
    for (int i_part = 0; i_part < 2; ++i_part) {
      #pragma unroll
      for (int d_part = 0; d_part < 2; ++d_part) {
        const int i = 16 * b_i + t_i + 8 * i_part;
        const int d = t_d + 32 * d_part;
        O[b_b * 4096 + i * 64 + d] = a_acc[i_part][d_part] / l_acc_tile[t_i + 8 * i_part];
      }
    }
  }
}

// f_0<<<(4, 4, 1), (64, 4, 1), 0>>>(q, k, v, O)
