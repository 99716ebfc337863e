// Products of matrices by warps and by warpgroups, as kernels' texts call them.
#pragma once

// Matrices of a warp: each lane leaves where its parts are, and the last to come multiplies.
struct TcParts { void *result; const void *first; const void *second; };

static __forceinline__ void tc_sim_ldmatrix(int kind, unsigned (&part)[4], const void *row, int site) {
  struct __attribute__((aligned(16))) Row { unsigned words[4]; } own = *(const Row *)row;
  TcParts parts = {part, &own, nullptr};
  tc_sim_collective(kind, 0xffffffffu, (unsigned long long)&parts, 0, 32, site);
}
static __forceinline__ void tc_ldmatrix(unsigned (&part)[4], const void *row, int site = __builtin_LINE()) {
  tc_sim_ldmatrix(TC_LDMATRIX, part, row, site);
}
static __forceinline__ void tc_ldmatrix_turned(unsigned (&part)[4], const void *row, int site = __builtin_LINE()) {
  tc_sim_ldmatrix(TC_LDMATRIX_TURNED, part, row, site);
}
#define TC_MULTIPLY(name, T, kind)                                                                          \
  static __forceinline__ void name(T &c0, T &c1, T &c2, T &c3, const unsigned (&a)[4], unsigned b0, unsigned b1, \
                                   int site = __builtin_LINE()) {                                           \
    T sums[4] = {c0, c1, c2, c3};                                                                           \
    const unsigned second[2] = {b0, b1};                                                                    \
    TcParts parts = {sums, a, second};                                                                      \
    tc_sim_collective(kind, 0xffffffffu, (unsigned long long)&parts, 0, 32, site);                          \
    c0 = sums[0], c1 = sums[1], c2 = sums[2], c3 = sums[3];                                                 \
  }
TC_MULTIPLY(tc_mma_f16, float, TC_MMA_F16)
TC_MULTIPLY(tc_mma_bf16, float, TC_MMA_BF16)
TC_MULTIPLY(tc_mma_tf32, float, TC_MMA_TF32)
TC_MULTIPLY(tc_mma_e4m3, float, TC_MMA_E4M3)
TC_MULTIPLY(tc_mma_e5m2, float, TC_MMA_E5M2)
TC_MULTIPLY(tc_mma_s8, int, TC_MMA_S8)
TC_MULTIPLY(tc_mma_u8, int, TC_MMA_U8)
TC_MULTIPLY(tc_mma_e4m3_e5m2, float, TC_MMA_E4M3_E5M2)
TC_MULTIPLY(tc_mma_e5m2_e4m3, float, TC_MMA_E5M2_E4M3)
TC_MULTIPLY(tc_mma_s8_u8, int, TC_MMA_S8_U8)
TC_MULTIPLY(tc_mma_u8_s8, int, TC_MMA_U8_S8)
static __forceinline__ void tc_mma_f64(double &c0, double &c1, double &c2, double &c3, const double (&a)[8],
                                       const double (&b)[4], int site = __builtin_LINE()) {
  double sums[4] = {c0, c1, c2, c3};
  TcParts parts = {sums, a, b};
  tc_sim_collective(TC_MMA_F64, 0xffffffffu, (unsigned long long)&parts, 0, 32, site);
  c0 = sums[0], c1 = sums[1], c2 = sums[2], c3 = sums[3];
}
#undef TC_MULTIPLY
static __forceinline__ unsigned tc_to_tf32(float value) {
  union { float f; unsigned u; } bits = {value};
  if ((bits.u & 0x7f800000u) != 0x7f800000u) bits.u += 0x1000u;
  return bits.u & 0xffffe000u;
}

// Products of matrices by four warps, of operands in shared memory: rows of 128 bytes, whose chunks are swizzled.
struct TcWarpgroup { void *low, *high; unsigned long long a, b; unsigned kind, columns, turned_a, turned_b, add; };

static __forceinline__ unsigned tc_shared_address(const void *at) { return tc_sim_shared_address(at); }
static __forceinline__ void tc_wgmma_fence() { tc_sim_fence_registers(); }
static __forceinline__ void tc_proxy_fence() { tc_sim_fence_proxy(); }
static __forceinline__ void tc_wgmma_commit() { tc_sim_close_products(); }
template <int newest>
static __forceinline__ void tc_wgmma_wait() { tc_sim_wait_products(newest); }
template <class T, int rows, int columns>
static __forceinline__ void tc_wgmma_fence(T (&)[rows][columns]) { tc_sim_fence_registers(); }
template <int newest, class T, int rows, int columns>
static __forceinline__ void tc_wgmma_wait(T (&)[rows][columns]) { tc_sim_wait_products(newest); }
#define TC_WARPGROUP(name, T, kind, columns)                                                                 \
  template <int turned_a = 0, int turned_b = 0>                                                              \
  static __forceinline__ void name##columns(T (&low)[columns / 4], T (&high)[columns / 4],                   \
                                            unsigned long long a, unsigned long long b, int add = 1,         \
                                            int site = __builtin_LINE()) {                                   \
    TcWarpgroup own = {low, high, a, b, kind - TC_MMA_F16, columns, turned_a, turned_b, (unsigned)(add != 0)}; \
    tc_sim_begin_product(&own, site);                                                                        \
  }
#define TC_WARPGROUPS(name, T, kind)                                      \
  TC_WARPGROUP(name, T, kind, 64) TC_WARPGROUP(name, T, kind, 128)        \
  TC_WARPGROUP(name, T, kind, 192) TC_WARPGROUP(name, T, kind, 256)
TC_WARPGROUPS(tc_wgmma_f16_n, float, TC_MMA_F16)
TC_WARPGROUPS(tc_wgmma_bf16_n, float, TC_MMA_BF16)
TC_WARPGROUPS(tc_wgmma_s8_n, int, TC_MMA_S8)
TC_WARPGROUPS(tc_wgmma_u8_n, int, TC_MMA_U8)
TC_WARPGROUPS(tc_wgmma_s8_u8_n, int, TC_MMA_S8_U8)
TC_WARPGROUPS(tc_wgmma_u8_s8_n, int, TC_MMA_U8_S8)
TC_WARPGROUPS(tc_wgmma_e4m3_n, float, TC_MMA_E4M3)
TC_WARPGROUPS(tc_wgmma_e5m2_n, float, TC_MMA_E5M2)
TC_WARPGROUPS(tc_wgmma_e4m3_e5m2_n, float, TC_MMA_E4M3_E5M2)
TC_WARPGROUPS(tc_wgmma_e5m2_e4m3_n, float, TC_MMA_E5M2_E4M3)
#undef TC_WARPGROUPS
#undef TC_WARPGROUP
