// f, specialised to N = 256, D = 1024
#ifndef __HIPCC_RTC__
#include <hip/hip_runtime.h>
#endif
static __device__ __forceinline__ float tc_max_float32(float a, float b) { return a > b || a != a ? a : b; }

extern "C" __global__ void __launch_bounds__(256)
f_0(const float *__restrict__ I, float *__restrict__ O)
{
  const int thread = threadIdx.x;
  const int t_d = threadIdx.x;
  __shared__ float m_acc_tile;
  __shared__ float s_acc_tile;
  __shared__ float m_acc_of_warp[4];
  __shared__ float s_acc_of_warp[4];
  const int b_n = blockIdx.x;
  float e_1[4];
  // m starts (256 threads)
  if (threadIdx.x == 0) {
    m_acc_tile = -__int_as_float(0x7f800000);
  }
  // m(n) max=! I(n, d) (256 threads, 256 to an element)
  float m_acc_part = -__int_as_float(0x7f800000);
  #pragma unroll
  for (int d_part = 0; d_part < 4; ++d_part) {
    const int d = t_d + 256 * d_part;
    m_acc_part = tc_max_float32(m_acc_part, I[b_n * 1024 + d]);
  }
  for (int lane = 32; lane > 0; lane /= 2) m_acc_part = tc_max_float32(m_acc_part, __shfl_xor(m_acc_part, lane, 64));
  if (thread % 64 == 0) m_acc_of_warp[thread / 64] = m_acc_part;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < 4; ++warp) m_acc_part = tc_max_float32(m_acc_part, m_acc_of_warp[warp]);
    m_acc_tile = tc_max_float32(m_acc_tile, m_acc_part);
  }
  __syncthreads();
  // e(n, d) = exp(I(n, d) - m(n)) (256 threads)
  #pragma unroll
  for (int d_part = 0; d_part < 4; ++d_part) {
    const int d = t_d + 256 * d_part;
    e_1[d_part] = expf(I[b_n * 1024 + d] - m_acc_tile);
  }
  // s starts (256 threads)
  if (threadIdx.x == 0) {
    s_acc_tile = 0.0f;
  }
  // s(n) +=! e(n, d) (256 threads, 256 to an element)
  float s_acc_part = 0.0f;
  #pragma unroll
  for (int d_part = 0; d_part < 4; ++d_part) {
    s_acc_part += e_1[d_part];
  }
  for (int lane = 32; lane > 0; lane /= 2) s_acc_part += __shfl_xor(s_acc_part, lane, 64);
  if (thread % 64 == 0) s_acc_of_warp[thread / 64] = s_acc_part;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < 4; ++warp) s_acc_part += s_acc_of_warp[warp];
    s_acc_tile += s_acc_part;
  }
  __syncthreads();
  // O(n, d) = e(n, d) / s(n) (256 threads)
  #pragma unroll
  for (int d_part = 0; d_part < 4; ++d_part) {
    const int d = t_d + 256 * d_part;
    O[b_n * 1024 + d] = e_1[d_part] / s_acc_tile;
  }
}

// f_0: (256, 1, 1) blocks of (256, 1, 1): I, O
