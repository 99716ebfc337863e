// f, specialised to N = 256, D = 1024
#ifndef __HIPCC_RTC__
#include <hip/hip_runtime.h>
#endif
template <class T>
static __device__ __forceinline__ void tc_get16(T *values, const T *global) {
#ifndef TC_ANYWHERE
  *reinterpret_cast<uint4 *>(values) = *reinterpret_cast<const uint4 *>(global);
#else
  for (int i = 0; i < (int)(16 / sizeof(T)); i++) values[i] = global[i];
#endif
}
static __device__ __forceinline__ float tc_max_float32(float a, float b) { return a > b || a != a ? a : b; }
template <class T>
static __device__ __forceinline__ void tc_put16(T *global, const T *values) {
#ifndef TC_ANYWHERE
  *reinterpret_cast<uint4 *>(global) = *reinterpret_cast<const uint4 *>(values);
#else
  for (int i = 0; i < (int)(16 / sizeof(T)); i++) global[i] = values[i];
#endif
}

extern "C" __global__ void __launch_bounds__(256)
f_0(const float *__restrict__ I, float *__restrict__ O)
{
  const int thread = threadIdx.x;
  const int t_d = threadIdx.x;
  __shared__ float m_acc_of_warp[4];
  __shared__ float s_acc_of_warp[4];
  const int b_n = blockIdx.x;
  float m_acc;
  float e_1[4];
  float s_acc;
  float I_row[4];
  // rows of I are kept (256 threads)
  __align__(16) float I_side_by_side[4];
  tc_get16(I_side_by_side, &I[1024 * b_n + 4 * t_d]);
  #pragma unroll
  for (int d_part = 0; d_part < 4; ++d_part) {
    I_row[d_part] = I_side_by_side[d_part];
  }
  // m starts (256 threads)
  {
    m_acc = -__int_as_float(0x7f800000);
  }
  // m(n) max=! I(n, d) (256 threads, 256 to an element)
  float m_acc_part = -__int_as_float(0x7f800000);
  #pragma unroll
  for (int d_part = 0; d_part < 4; ++d_part) {
    m_acc_part = tc_max_float32(m_acc_part, I_row[d_part]);
  }
  for (int lane = 32; lane > 0; lane /= 2) m_acc_part = tc_max_float32(m_acc_part, __shfl_xor(m_acc_part, lane, 64));
  if (thread % 64 == 0) m_acc_of_warp[thread / 64] = m_acc_part;
  __syncthreads();
  m_acc_part = m_acc_of_warp[thread % 4];
  for (int lane = 2; lane > 0; lane /= 2) m_acc_part = tc_max_float32(m_acc_part, __shfl_xor(m_acc_part, lane, 4));
  {
    m_acc = tc_max_float32(m_acc, m_acc_part);
  }
  // e(n, d) = exp(I(n, d) - m(n)) (256 threads)
  #pragma unroll
  for (int d_part = 0; d_part < 4; ++d_part) {
    e_1[d_part] = expf(I_row[d_part] - m_acc);
  }
  // s starts (256 threads)
  {
    s_acc = 0.0f;
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
  s_acc_part = s_acc_of_warp[thread % 4];
  for (int lane = 2; lane > 0; lane /= 2) s_acc_part += __shfl_xor(s_acc_part, lane, 4);
  {
    s_acc += s_acc_part;
  }
  // O(n, d) = e(n, d) / s(n) (256 threads)
  __align__(16) float O_side_by_side[4];
  #pragma unroll
  for (int d_part = 0; d_part < 4; ++d_part) {
    O_side_by_side[d_part] = e_1[d_part] / s_acc;
  }
  tc_put16(&O[1024 * b_n + 4 * t_d], O_side_by_side);
}

// f_0: (256, 1, 1) blocks of (256, 1, 1): I, O
