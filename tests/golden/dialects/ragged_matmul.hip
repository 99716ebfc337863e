// f, specialised to M = 250, K = 77, N = 201
#ifndef __HIPCC_RTC__
#include <hip/hip_runtime.h>
#endif

extern "C" __global__ void __launch_bounds__(256)
f_0(const float *__restrict__ A, const float *__restrict__ B, float *__restrict__ C)
{
  const int thread = threadIdx.x + 16 * threadIdx.y;
  const int t_m = threadIdx.y;
  const int t_n = threadIdx.x;
  __shared__ float A_tile[16][77];
  __shared__ float B_tile[77][16];
  const int b_m = blockIdx.y;
  const int b_n = blockIdx.x;
  float C_acc;
  // C starts (16 x 16 threads)
  if (t_m + 16 * b_m < 250 && t_n + 16 * b_n < 201) {
    C_acc = 0.0f;
  }
  #pragma unroll
  for (int e = thread; e < 1232; e += 256) {  // fetch 16 x 77 of A
    const int m = 16 * b_m + e / 77;
    const int k = e % 77;
    if (m < 250) A_tile[e / 77][e % 77] = A[77 * m + k];
  }
  #pragma unroll
  for (int e = thread; e < 1232; e += 256) {  // fetch 77 x 16 of B
    const int k = e / 16;
    const int n = 16 * b_n + e % 16;
    if (n < 201) B_tile[e / 16][e % 16] = B[201 * k + n];
  }
  __syncthreads();
  // C(m, n) +=! A(m, k) * B(k, n) (16 x 16 threads)
  if (t_m + 16 * b_m < 250 && t_n + 16 * b_n < 201) {
    #pragma unroll
    for (int k = 0; k < 77; ++k) {
      C_acc += A_tile[t_m][k] * B_tile[k][t_n];
    }
  }
  // C is stored (16 x 16 threads)
  if (t_m + 16 * b_m < 250 && t_n + 16 * b_n < 201) {
    const int m = 16 * b_m + t_m;
    const int n = 16 * b_n + t_n;
    C[m * 201 + n] = C_acc;
  }
}

// f_0: (13, 16, 1) blocks of (16, 16, 1): A, B, C
