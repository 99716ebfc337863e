// f, specialised to N = 256, D = 1024

extern "C" __global__ void __launch_bounds__(256, 2)
f_0(
    const float *__restrict__ I,
    const float *__restrict__ G,
    const float *__restrict__ B,
    float *__restrict__ O)
{
  const int thread = threadIdx.x;
  const int t_d = threadIdx.x;
  __shared__ float mu_2_tile;
  __shared__ float v_2_tile;
  __shared__ float mu_acc_of_warp[8];
  __shared__ float v_acc_of_warp[8];
  const int b_n = blockIdx.x;
  float mu_acc;
  // mu starts (256 threads)
  if (threadIdx.x == 0) {
    mu_acc = 0.0f;
  }
  // mu(n) +=! I(n, d) (256 threads, 256 to an element)
  float mu_acc_part = 0.0f;
  #pragma unroll
  for (int d_part = 0; d_part < 4; ++d_part) {
    const int d = t_d + 256 * d_part;
    mu_acc_part += I[b_n * 1024 + d];
  }
  for (int lane = 16; lane > 0; lane /= 2) mu_acc_part += __shfl_xor_sync(0xffffffffu, mu_acc_part, lane);
  if (thread % 32 == 0) mu_acc_of_warp[thread / 32] = mu_acc_part;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < 8; ++warp) mu_acc_part += mu_acc_of_warp[warp];
    mu_acc += mu_acc_part;
  }
  // mu(n) = mu(n) / D (256 threads)
  if (threadIdx.x == 0) {
    mu_2_tile = mu_acc / 1024.0f;
  }
  float v_acc;
  // v starts (256 threads)
  if (threadIdx.x == 0) {
    v_acc = 0.0f;
  }
  __syncthreads();
  // v(n) +=! (I(n, d) - mu(n)) * (I(n, d) - mu(n)) (256 threads, 256 to an element)
  float v_acc_part = 0.0f;
  #pragma unroll
  for (int d_part = 0; d_part < 4; ++d_part) {
    const int d = t_d + 256 * d_part;
    v_acc_part += (I[b_n * 1024 + d] - mu_2_tile) * (I[b_n * 1024 + d] - mu_2_tile);
  }
  for (int lane = 16; lane > 0; lane /= 2) v_acc_part += __shfl_xor_sync(0xffffffffu, v_acc_part, lane);
  if (thread % 32 == 0) v_acc_of_warp[thread / 32] = v_acc_part;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int warp = 1; warp < 8; ++warp) v_acc_part += v_acc_of_warp[warp];
    v_acc += v_acc_part;
  }
  // v(n) = v(n) / D (256 threads)
  if (threadIdx.x == 0) {
    v_2_tile = v_acc / 1024.0f;
  }
  __syncthreads();
  // O(n, d) = (I(n, d) - mu(n)) * rsqrt(v(n) + 1e-5) * G(d) + B(d) (256 threads)
  #pragma unroll
  for (int d_part = 0; d_part < 4; ++d_part) {
    const int d = t_d + 256 * d_part;
    O[b_n * 1024 + d] = (((I[b_n * 1024 + d] - mu_2_tile) * rsqrtf(v_2_tile + 1e-05f)) * G[d]) + B[d];
  }
}

// f_0<<<(256, 1, 1), (256, 1, 1), 0>>>(I, G, B, O)
