// f, specialised to N = 4, C = 16, H = 30, W = 30, F = 32, KH = 3, KW = 3

extern "C" __global__ void __launch_bounds__(224, 2)
f_0(
    const float *__restrict__ I,
    const float *__restrict__ K,
    const float *__restrict__ B,
    float *__restrict__ O)
{
  const int thread = threadIdx.x + 28 * threadIdx.y;
  const int t_f = threadIdx.y;
  const int t_w = threadIdx.x;
  __shared__ float I_tile[3][30];
  __shared__ float K_tile[32][3][3];
  const int b_n = blockIdx.y;
  const int b_h = blockIdx.x;
  float O_acc[4];
  // O starts (8 x 28 threads)
  #pragma unroll
  for (int f_part = 0; f_part < 4; ++f_part) {
    O_acc[f_part] = 0.0f;
  }
  for (int c = 0; c < 16; ++c) {  // rounds of elements
    __syncthreads();
    #pragma unroll
    for (int e = thread; e < 90; e += 224) {  // fetch 1 x 1 x 3 x 30 of I
      const int i2 = b_h + e / 30;
      const int i3 = e % 30;
      I_tile[e / 30][e % 30] = I[14400 * b_n + 900 * c + 30 * i2 + i3];
    }
    #pragma unroll
    for (int e = thread; e < 288; e += 224) {  // fetch 32 x 1 x 3 x 3 of K
      const int f = e / 9;
      const int kh = e / 3 % 3;
      const int kw = e % 3;
      K_tile[e / 9][e / 3 % 3][e % 3] = K[144 * f + 9 * c + 3 * kh + kw];
    }
    __syncthreads();
    // O(n, f, h, w) +=! I(n, c, h + kh, w + kw) * K(f, c, kh, kw) (8 x 28 threads)
    #pragma unroll
    for (int kh = 0; kh < 3; ++kh) {
      #pragma unroll
      for (int kw = 0; kw < 3; ++kw) {
        #pragma unroll
        for (int f_part = 0; f_part < 4; ++f_part) {
          O_acc[f_part] += I_tile[kh][t_w + kw] * K_tile[t_f + 8 * f_part][kh][kw];
        }
      }
    }
  }
  // O(n, f, h, w) = fmax(O(n, f, h, w) + B(f), 0) (8 x 28 threads)
  #pragma unroll
  for (int f_part = 0; f_part < 4; ++f_part) {
    const int f = t_f + 8 * f_part;
    O[b_n * 25088 + f * 784 + b_h * 28 + t_w] = fmaxf(O_acc[f_part] + B[f], 0.0f);
  }
}

// f_0<<<(28, 4, 1), (28, 8, 1), 0>>>(I, K, B, O)
