// f, specialised to N = 4, C = 16, H = 30, W = 30, F = 32, KH = 3, KW = 3
#ifdef __CUDACC__
static __device__ __forceinline__ void tc_copy_async8(void *shared, const void *global, const int read) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" :: "r"((unsigned int)__cvta_generic_to_shared(shared)), "l"(global), "r"(read) : "memory");
}
#endif
#ifdef __CUDACC__
static __device__ __forceinline__ void tc_copy_async4(void *shared, const void *global, const int read) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" :: "r"((unsigned int)__cvta_generic_to_shared(shared)), "l"(global), "r"(read) : "memory");
}
#endif
template <class T>
static __device__ __forceinline__ void tc_ask8(T *shared, const T *global, const int read = 8) {
#ifndef TC_ANYWHERE
  tc_copy_async8(shared, global, read);
#else
  if (sizeof(T) == 8) tc_copy_async8(shared, global, read);
  else for (int i = 0; i < (int)(8 / sizeof(T)); i++) {
    if (sizeof(T) == 4) tc_copy_async4(shared + i, global + i, read ? 4 : 0);
    else shared[i] = read ? global[i] : T();
  }
#endif
}
template <class T>
static __device__ __forceinline__ void tc_ask4(T *shared, const T *global, const int read = 4) {
#ifndef TC_ANYWHERE
  tc_copy_async4(shared, global, read);
#else
  if (sizeof(T) == 4) tc_copy_async4(shared, global, read);
  else for (int i = 0; i < (int)(4 / sizeof(T)); i++) {
    if (sizeof(T) == 4) tc_copy_async4(shared + i, global + i, read ? 4 : 0);
    else shared[i] = read ? global[i] : T();
  }
#endif
}
#ifdef __CUDACC__
static __device__ __forceinline__ void tc_copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
#endif
// Waits for all groups of copies of this thread but the newest.
#ifdef __CUDACC__
template <int newest>
static __device__ __forceinline__ void tc_copy_async_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(newest) : "memory"); }
#endif
template <class T>
static __device__ __forceinline__ void tc_get8(T *values, const T *global) {
#ifndef TC_ANYWHERE
  *reinterpret_cast<uint2 *>(values) = *reinterpret_cast<const uint2 *>(global);
#else
  for (int i = 0; i < (int)(8 / sizeof(T)); i++) values[i] = global[i];
#endif
}

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
  __shared__ __align__(16) float I_tile[2][8][3][30];
  __shared__ __align__(16) float K_tile[2][8][3][3][18];
  const int b_n = blockIdx.z;
  const int b_f = blockIdx.y;
  const int b_h = blockIdx.x;
  float O_acc[2];
  // O starts (8 x 28 threads)
  #pragma unroll
  for (int f_part = 0; f_part < 2; ++f_part) {
    O_acc[f_part] = 0.0f;
  }
  #pragma unroll
  for (int ahead = 0; ahead < 1; ++ahead) {  // the first tiles
    #pragma unroll
    for (int r = 0; r < 2; ++r) {  // ask for 1 x 8 x 3 x 30 of I by 2
      const int n = b_n + (2 * thread + 448 * r) / 720;
      const int c = (2 * thread + 448 * r) / 90 % 8;
      const int i2 = b_h + (2 * thread + 448 * r) / 30 % 3;
      const int i3 = (2 * thread + 448 * r) % 30;
      if (2 * thread + 448 * r < 720) tc_ask8(&I_tile[ahead][(2 * thread + 448 * r) / 90 % 8][(2 * thread + 448 * r) / 30 % 3][(2 * thread + 448 * r) % 30], &I[14400 * n + 900 * c + 30 * i2 + i3], n < 4 ? 8 : 0);
    }
    #pragma unroll
    for (int r = 0; r < 6; ++r) {  // ask for 16 x 8 x 3 x 3 of K
      const int f = 16 * b_f + (thread + 224 * r) / 72;
      const int c = (thread + 224 * r) / 9 % 8;
      const int kh = (thread + 224 * r) / 3 % 3;
      const int kw = (thread + 224 * r) % 3;
      if (1 * thread + 224 * r < 1152) tc_ask4(&K_tile[ahead][(thread + 224 * r) / 9 % 8][(thread + 224 * r) / 3 % 3][(thread + 224 * r) % 3][(thread + 224 * r) / 72], &K[144 * f + 9 * c + 3 * kh + kw], f < 32 ? 4 : 0);
    }
    tc_copy_async_commit();
  }
  int stage = 0, next_stage = 1;
  for (int c_tile = 0; c_tile < 2; ++c_tile) {  // tiles of steps
    tc_copy_async_wait<0>();
    __syncthreads();
    if (c_tile < 1) {
      #pragma unroll
      for (int r = 0; r < 2; ++r) {  // ask for 1 x 8 x 3 x 30 of I by 2
        const int n = b_n + (2 * thread + 448 * r) / 720;
        const int c = (2 * thread + 448 * r) / 90 % 8 + 8;
        const int i2 = b_h + (2 * thread + 448 * r) / 30 % 3;
        const int i3 = (2 * thread + 448 * r) % 30;
        if (2 * thread + 448 * r < 720) tc_ask8(&I_tile[next_stage][(2 * thread + 448 * r) / 90 % 8][(2 * thread + 448 * r) / 30 % 3][(2 * thread + 448 * r) % 30], &I[14400 * n + 900 * c + 30 * i2 + i3], n < 4 ? 8 : 0);
      }
      #pragma unroll
      for (int r = 0; r < 6; ++r) {  // ask for 16 x 8 x 3 x 3 of K
        const int f = 16 * b_f + (thread + 224 * r) / 72;
        const int c = (thread + 224 * r) / 9 % 8 + 8;
        const int kh = (thread + 224 * r) / 3 % 3;
        const int kw = (thread + 224 * r) % 3;
        if (1 * thread + 224 * r < 1152) tc_ask4(&K_tile[next_stage][(thread + 224 * r) / 9 % 8][(thread + 224 * r) / 3 % 3][(thread + 224 * r) % 3][(thread + 224 * r) / 72], &K[144 * f + 9 * c + 3 * kh + kw], f < 32 ? 4 : 0);
      }
    }
    tc_copy_async_commit();
    next_stage = next_stage + 1 == 2 ? 0 : next_stage + 1;
    // O(n, f, h, w) +=! I(n, c, h + kh, w + kw) * K(f, c, kh, kw) (8 x 28 threads)
    #pragma unroll 4
    for (int c_part = 0; c_part < 8; ++c_part) {
      #pragma unroll
      for (int kh = 0; kh < 3; ++kh) {
        #pragma unroll
        for (int kw = 0; kw < 3; ++kw) {
          #pragma unroll
          for (int f_part = 0; f_part < 2; ++f_part) {
            O_acc[f_part] += I_tile[stage][c_part][kh][t_w + kw] * K_tile[stage][c_part][kh][kw][2 * t_f + f_part];
          }
        }
      }
    }
    stage = stage + 1 == 2 ? 0 : stage + 1;
  }
  // O(n, f, h, w) = fmax(O(n, f, h, w) + B(f), 0) (8 x 28 threads)
  __align__(8) float B_side_by_side[2];
  tc_get8(B_side_by_side, &B[16 * b_f + 2 * t_f]);
  #pragma unroll
  for (int f_part = 0; f_part < 2; ++f_part) {
    const int f = 16 * b_f + 2 * t_f + f_part;
    O[b_n * 25088 + f * 784 + b_h * 28 + t_w] = fmaxf(O_acc[f_part] + B_side_by_side[f_part], 0.0f);
  }
}

// f_0<<<(28, 2, 4), (28, 8, 1), 0>>>(I, K, B, O)
