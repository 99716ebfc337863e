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
  __shared__ float I_tile[8][3][30];
  __shared__ float K_tile[8][3][3][18];
  const int b_n = blockIdx.z;
  const int b_f = blockIdx.y;
  const int b_h = blockIdx.x;
  float O_acc[2];
  // O starts (8 x 28 threads)
  #pragma unroll
  for (int f_part = 0; f_part < 2; ++f_part) {
    O_acc[f_part] = 0.0f;
  }
  float I_next[4];
  float K_next[6];
  #pragma unroll
  for (int r = 0; r < 4; ++r) {  // ask for 1 x 8 x 3 x 30 of I
    const int e = thread + 224 * r;
    const int c = e / 90;
    const int i2 = b_h + e / 30 % 3;
    const int i3 = e % 30;
    if (e < 720) I_next[r] = I[14400 * b_n + 900 * c + 30 * i2 + i3];
  }
  #pragma unroll
  for (int r = 0; r < 6; ++r) {  // ask for 16 x 8 x 3 x 3 of K
    const int e = thread + 224 * r;
    const int f = 16 * b_f + e / 72;
    const int c = e / 9 % 8;
    const int kh = e / 3 % 3;
    const int kw = e % 3;
    if (e < 1152) K_next[r] = K[144 * f + 9 * c + 3 * kh + kw];
  }
  for (int c_tile = 0; c_tile < 2; ++c_tile) {  // tiles of steps
    __syncthreads();
    #pragma unroll
    for (int r = 0; r < 4; ++r) {  // store 1 x 8 x 3 x 30 of I
      const int e = thread + 224 * r;
      if (e < 720) I_tile[e / 90][e / 30 % 3][e % 30] = I_next[r];
    }
    #pragma unroll
    for (int r = 0; r < 6; ++r) {  // store 16 x 8 x 3 x 3 of K
      const int e = thread + 224 * r;
      if (e < 1152) K_tile[e / 9 % 8][e / 3 % 3][e % 3][e / 72] = K_next[r];
    }
    __syncthreads();
    if (c_tile < 1) {
      #pragma unroll
      for (int r = 0; r < 4; ++r) {  // ask for 1 x 8 x 3 x 30 of I
        const int e = thread + 224 * r;
        const int c = e / 90 + 8;
        const int i2 = b_h + e / 30 % 3;
        const int i3 = e % 30;
        if (e < 720) I_next[r] = I[14400 * b_n + 900 * c + 30 * i2 + i3];
      }
      #pragma unroll
      for (int r = 0; r < 6; ++r) {  // ask for 16 x 8 x 3 x 3 of K
        const int e = thread + 224 * r;
        const int f = 16 * b_f + e / 72;
        const int c = e / 9 % 8 + 8;
        const int kh = e / 3 % 3;
        const int kw = e % 3;
        if (e < 1152) K_next[r] = K[144 * f + 9 * c + 3 * kh + kw];
      }
    }
    // O(n, f, h, w) +=! I(n, c, h + kh, w + kw) * K(f, c, kh, kw) (8 x 28 threads)
    #pragma unroll 4
    for (int c_part = 0; c_part < 8; ++c_part) {
      #pragma unroll
      for (int kh = 0; kh < 3; ++kh) {
        #pragma unroll
        for (int kw = 0; kw < 3; ++kw) {
          #pragma unroll
          for (int f_part = 0; f_part < 2; ++f_part) {
            O_acc[f_part] += I_tile[c_part][kh][t_w + kw] * K_tile[c_part][kh][kw][2 * t_f + f_part];
          }
        }
      }
    }
  }
  // O(n, f, h, w) = fmax(O(n, f, h, w) + B(f), 0) (8 x 28 threads)
  #pragma unroll
  for (int f_part = 0; f_part < 2; ++f_part) {
    const int f = 16 * b_f + 2 * t_f + f_part;
    O[b_n * 25088 + f * 784 + b_h * 28 + t_w] = fmaxf(O_acc[f_part] + B[f], 0.0f);
  }
}

// f_0<<<(28, 2, 4), (28, 8, 1), 0>>>(I, K, B, O)
