// f, specialised to H = 302, W = 1102

extern "C" __global__ void __launch_bounds__(256, 2)
f_0(const float *__restrict__ I, float *__restrict__ O)
{
  const int t_w = threadIdx.x;
  __shared__ float x_1_tile[6][1024];
  const int b_h = blockIdx.y;
  const int b_w = blockIdx.x;
  // x(h, w) = (I(h, w) + I(h, w + 1) + I(h, w + 2)) / 3 (256 threads)
  if (t_w + 1024 * b_w < 1100) {
    #pragma unroll
    for (int h_part = 0; h_part < 6; ++h_part) {
      #pragma unroll
      for (int w_part = 0; w_part < 4; ++w_part) {
        if (1024 * b_w + t_w + 256 * w_part < 1100) {
          const int h = 4 * b_h + h_part;
          const int w = 1024 * b_w + t_w + 256 * w_part;
          x_1_tile[h_part][t_w + 256 * w_part] = ((I[h * 1102 + w] + I[h * 1102 + (w + 1)]) + I[h * 1102 + (w + 2)]) / 3.0f;
        }
      }
    }
  }
  // O(h, w) = (x(h, w) + x(h + 1, w) + x(h + 2, w)) / 3 (256 threads)
  if (t_w + 1024 * b_w < 1100) {
    #pragma unroll
    for (int h_part = 0; h_part < 4; ++h_part) {
      #pragma unroll
      for (int w_part = 0; w_part < 4; ++w_part) {
        if (1024 * b_w + t_w + 256 * w_part < 1100) {
          const int h = 4 * b_h + h_part;
          const int w = 1024 * b_w + t_w + 256 * w_part;
          O[h * 1100 + w] = ((x_1_tile[h_part][t_w + 256 * w_part] + x_1_tile[h_part + 1][t_w + 256 * w_part]) + x_1_tile[h_part + 2][t_w + 256 * w_part]) / 3.0f;
        }
      }
    }
  }
}

// f_0<<<(2, 75, 1), (256, 1, 1), 0>>>(I, O)
