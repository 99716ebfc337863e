// f, specialised to M = 1024, K = 1024, N = 1024
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

extern "C" __global__ void __launch_bounds__(256, 2)
f_0(const float *__restrict__ A, const float *__restrict__ B, float *__restrict__ C)
{
  const int thread = threadIdx.x + 32 * threadIdx.y;
  const int t_m = threadIdx.y;
  const int t_n = threadIdx.x;
  __shared__ __align__(16) float A_tile[64][16];
  __shared__ __align__(16) float B_tile[16][128];
  const int b_m = blockIdx.y;
  const int b_n = blockIdx.x;
  float C_acc[8][4];
  // C starts (8 x 32 threads)
  #pragma unroll
  for (int m_part = 0; m_part < 8; ++m_part) {
    #pragma unroll
    for (int n_part = 0; n_part < 4; ++n_part) {
      C_acc[m_part][n_part] = 0.0f;
    }
  }
  for (int k_tile = 0; k_tile < 64; ++k_tile) {  // tiles of steps
    __syncthreads();
    #pragma unroll
    for (int e = 4 * thread; e < 1024; e += 1024) {  // fetch 64 x 16 of A by 4
      const int m = 64 * b_m + e / 16;
      const int k = 16 * k_tile + e % 16;
      tc_fetch16(&A_tile[e / 16][e % 16], 1, &A[1024 * m + k]);
    }
    #pragma unroll
    for (int e = 4 * thread; e < 2048; e += 1024) {  // fetch 16 x 128 of B by 4
      const int k = 16 * k_tile + e / 128;
      const int n = 128 * b_n + e % 128;
      tc_fetch16(&B_tile[e / 128][e % 128], 1, &B[1024 * k + n]);
    }
    __syncthreads();
    // C(m, n) +=! A(m, k) * B(k, n) (8 x 32 threads)
    for (int k_part = 0; k_part < 16; ++k_part) {
      #pragma unroll
      for (int m_part = 0; m_part < 8; ++m_part) {
        #pragma unroll
        for (int n_part = 0; n_part < 4; ++n_part) {
          C_acc[m_part][n_part] += A_tile[t_m + 8 * m_part][k_part] * B_tile[k_part][t_n + 32 * n_part];
        }
      }
    }
  }
  // C is stored (8 x 32 threads)
  #pragma unroll
  for (int m_part = 0; m_part < 8; ++m_part) {
    #pragma unroll
    for (int n_part = 0; n_part < 4; ++n_part) {
      const int m = 64 * b_m + t_m + 8 * m_part;
      const int n = 128 * b_n + t_n + 32 * n_part;
      C[m * 1024 + n] = C_acc[m_part][n_part];
    }
  }
}

// f_0<<<(8, 16, 1), (32, 8, 1), 0>>>(A, B, C)
