// f, specialised to N = 256, D = 1024
template <class T>
static __device__ __forceinline__ void tc_get16(T *values, const T *global) {
#ifndef TC_ANYWHERE
  *reinterpret_cast<uint4 *>(values) = *reinterpret_cast<const uint4 *>(global);
#else
  for (int i = 0; i < (int)(16 / sizeof(T)); i++) values[i] = global[i];
#endif
}
template <class T>
static __device__ __forceinline__ void tc_put16(T *global, const T *values) {
#ifndef TC_ANYWHERE
  *reinterpret_cast<uint4 *>(global) = *reinterpret_cast<const uint4 *>(values);
#else
  for (int i = 0; i < (int)(16 / sizeof(T)); i++) global[i] = values[i];
#endif
}

extern "C" __global__ void __launch_bounds__(256, 2)
f_0(
    const float *__restrict__ I,
    const float *__restrict__ G,
    const float *__restrict__ B,
    float *__restrict__ O)
{
  const int thread = threadIdx.x;
  const int t_d = threadIdx.x;
  __shared__ float mu_acc_of_warp[8];
  __shared__ float v_acc_of_warp[8];
  const int b_n = blockIdx.x;
  float mu_2;
  float v_2;
  float I_row[4];
  // rows of I are kept (256 threads)
  __align__(16) float I_side_by_side[4];
  tc_get16(I_side_by_side, &I[1024 * b_n + 4 * t_d]);
  #pragma unroll
  for (int d_part = 0; d_part < 4; ++d_part) {
    I_row[d_part] = I_side_by_side[d_part];
  }
  float mu_acc;
  // mu starts (256 threads)
  {
    mu_acc = 0.0f;
  }
  // mu(n) +=! I(n, d) (256 threads, 256 to an element)
  float mu_acc_part = 0.0f;
  #pragma unroll
  for (int d_part = 0; d_part < 4; ++d_part) {
    mu_acc_part += I_row[d_part];
  }
  for (int lane = 16; lane > 0; lane /= 2) mu_acc_part += __shfl_xor_sync(0xffffffffu, mu_acc_part, lane);
  if (thread % 32 == 0) mu_acc_of_warp[thread / 32] = mu_acc_part;
  __syncthreads();
  mu_acc_part = mu_acc_of_warp[thread % 8];
  for (int lane = 4; lane > 0; lane /= 2) mu_acc_part += __shfl_xor_sync(0xffffffffu, mu_acc_part, lane);
  {
    mu_acc += mu_acc_part;
  }
  // mu(n) = mu(n) / D (256 threads)
  {
    mu_2 = mu_acc / 1024.0f;
  }
  float v_acc;
  // v starts (256 threads)
  {
    v_acc = 0.0f;
  }
  // v(n) +=! (I(n, d) - mu(n)) * (I(n, d) - mu(n)) (256 threads, 256 to an element)
  float v_acc_part = 0.0f;
  #pragma unroll
  for (int d_part = 0; d_part < 4; ++d_part) {
    v_acc_part += (I_row[d_part] - mu_2) * (I_row[d_part] - mu_2);
  }
  for (int lane = 16; lane > 0; lane /= 2) v_acc_part += __shfl_xor_sync(0xffffffffu, v_acc_part, lane);
  if (thread % 32 == 0) v_acc_of_warp[thread / 32] = v_acc_part;
  __syncthreads();
  v_acc_part = v_acc_of_warp[thread % 8];
  for (int lane = 4; lane > 0; lane /= 2) v_acc_part += __shfl_xor_sync(0xffffffffu, v_acc_part, lane);
  {
    v_acc += v_acc_part;
  }
  // v(n) = v(n) / D (256 threads)
  {
    v_2 = v_acc / 1024.0f;
  }
  // O(n, d) = (I(n, d) - mu(n)) * rsqrt(v(n) + 1e-5) * G(d) + B(d) (256 threads)
  __align__(16) float G_side_by_side[4];
  tc_get16(G_side_by_side, &G[4 * t_d]);
  __align__(16) float B_side_by_side[4];
  tc_get16(B_side_by_side, &B[4 * t_d]);
  __align__(16) float O_side_by_side[4];
  #pragma unroll
  for (int d_part = 0; d_part < 4; ++d_part) {
    O_side_by_side[d_part] = (((I_row[d_part] - mu_2) * rsqrtf(v_2 + 1e-05f)) * G_side_by_side[d_part]) + B_side_by_side[d_part];
  }
  tc_put16(&O[1024 * b_n + 4 * t_d], O_side_by_side);
}

// f_0<<<(256, 1, 1), (256, 1, 1), 0>>>(I, G, B, O)
