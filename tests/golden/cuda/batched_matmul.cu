// f, specialised to B = 64, M = 72, K = 26, N = 26
template <class T>
static __device__ __forceinline__ void tc_store16(T *shared, const uint4 whole) {
  *reinterpret_cast<uint4 *>(shared) = whole;
}
template <class T>
static __device__ __forceinline__ uint4 tc_load16(const T *global) {
#ifndef TC_ANYWHERE
  return *reinterpret_cast<const uint4 *>(global);
#else
  uint4 whole;
  for (int i = 0; i < (int)(16 / sizeof(T)); i++) reinterpret_cast<T *>(&whole)[i] = global[i];
  return whole;
#endif
}
template <class T>
static __device__ __forceinline__ void tc_put8(T *global, const T *values) {
#ifndef TC_ANYWHERE
  *reinterpret_cast<uint2 *>(global) = *reinterpret_cast<const uint2 *>(values);
#else
  for (int i = 0; i < (int)(8 / sizeof(T)); i++) global[i] = values[i];
#endif
}

extern "C" __global__ void __launch_bounds__(208, 2)
f_0(const float *__restrict__ X, const float *__restrict__ Y, float *__restrict__ Z)
{
  const int thread = threadIdx.x + 13 * threadIdx.y;
  const int t_m = threadIdx.y;
  const int t_n = threadIdx.x;
  __shared__ __align__(16) float Y_tile[26][26];
  __shared__ float X_tile[26][68];
  const int b_b = blockIdx.y;
  const int b_m = blockIdx.x;
  float Z_acc[4][2];
  // Z starts (16 x 13 threads, whole tiles)
  #pragma unroll
  for (int m_part = 0; m_part < 4; ++m_part) {
    #pragma unroll
    for (int n_part = 0; n_part < 2; ++n_part) {
      Z_acc[m_part][n_part] = 0.0f;
    }
  }
  #pragma unroll
  for (int e = 4 * thread; e < 676; e += 832) {  // fetch 1 x 26 x 26 of Y by 4
    const int k = e / 26;
    const int n = e % 26;
    tc_store16(&Y_tile[e / 26][e % 26], tc_load16(&Y[676 * b_b + 26 * k + n]));
  }
  #pragma unroll
  for (int e = thread; e < 1664; e += 208) {  // fetch 1 x 64 x 26 of X
    const int m = 64 * b_m + e / 26;
    const int k = e % 26;
    if (m < 72) X_tile[e % 26][e / 26] = X[1872 * b_b + 26 * m + k];
    else X_tile[e % 26][e / 26] = 0;
  }
  __syncthreads();
  // Z(b, m, n) +=! X(b, m, k) * Y(b, k, n) (16 x 13 threads, whole tiles)
  #pragma unroll 13
  for (int k = 0; k < 26; ++k) {
    #pragma unroll
    for (int m_part = 0; m_part < 4; ++m_part) {
      #pragma unroll
      for (int n_part = 0; n_part < 2; ++n_part) {
        Z_acc[m_part][n_part] += X_tile[k][4 * t_m + m_part] * Y_tile[k][2 * t_n + n_part];
      }
    }
  }
  // Z is stored (16 x 13 threads)
  if (t_m + 16 * b_m < 18) {
    #pragma unroll
    for (int m_part = 0; m_part < 4; ++m_part) {
      __align__(8) float Z_side_by_side[2];
      #pragma unroll
      for (int n_part = 0; n_part < 2; ++n_part) {
        Z_side_by_side[n_part] = Z_acc[m_part][n_part];
      }
      tc_put8(&Z[1872 * b_b + 1664 * b_m + 104 * t_m + 26 * m_part + 2 * t_n], Z_side_by_side);
    }
  }
}

// f_0<<<(2, 64, 1), (13, 16, 1), 0>>>(X, Y, Z)
