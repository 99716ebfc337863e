"""Hand-written kernels whose warpgroups multiply matrices (wgmma), for the tests of the simulator."""

from __future__ import annotations

from tcomp.backends.source import Launch
from tests.cuda.simulated import Array, Example, Tensor, out, whole

_DESCRIPTOR = """
static __device__ __forceinline__ unsigned long long descriptor(const void *start, int leading, int stride) {
  return (tc_shared_address(start) & 0x3ffff) >> 4 | (unsigned long long)(leading >> 4) << 16 |
         (unsigned long long)(stride >> 4) << 32 | 1ull << 62;
}
static __device__ __forceinline__ unsigned swizzled(unsigned place) { return place ^ (place >> 7 & 7) << 4; }
"""


def _product(rows: int, columns: int, steps: int, turned: bool) -> tuple[list[Tensor], list[Array]]:
    a, b = whole((rows, steps), 1), whole((steps, columns), 2)
    second = (b.T if turned else b).astype("float16").copy()
    return [Tensor("A", a.astype("float16")), Tensor("B", second), out("C", (rows, columns))], [a @ b]


IN_STAGES = Example(
    "products of warpgroups in stages",
    _DESCRIPTOR
    + """
extern "C" __global__ void __launch_bounds__(256, 1) product(const unsigned short *__restrict__ A,
                                                             const unsigned short *__restrict__ B,
                                                             float *__restrict__ C) {
  extern __shared__ __align__(1024) unsigned char tc_dynamic[];
  const int thread = threadIdx.x, group = thread / 128, n0 = 64 * blockIdx.x;
  unsigned char *const A_tile = tc_dynamic, *const B_tile = tc_dynamic + 4 * 16384;
  float low[16], high[16];
  for (int i = 0; i < 16; ++i) low[i] = high[i] = 0.0f;
  for (int tile = 0; tile < 2; ++tile) {
    for (int r = 0; r < 4; ++r) {
      const int row = (thread + 256 * r) / 8, chunk = thread % 8;
      tc_copy_async16(A_tile + tile * 16384 + swizzled(128 * row + 16 * chunk), &A[320 * row + 64 * tile + 8 * chunk],
                      row < 100 ? 16 : 0);
    }
    for (int r = 0; r < 2; ++r) {
      const int row = (thread + 256 * r) / 8, chunk = thread % 8;
      tc_copy_async16(B_tile + tile * 8192 + swizzled(128 * row + 16 * chunk),
                      &B[128 * (64 * tile + row) + n0 + 8 * chunk]);
    }
    tc_copy_async_commit();
  }
  for (int tile = 0; tile < 5; ++tile) {
    tc_copy_async_wait<1>();
    tc_proxy_fence();
    __syncthreads();  // the tile is there, and all products but those of the tile before are made
    const int next = tile + 2, stage = next % 4;
    if (next < 5) {
      for (int r = 0; r < 4; ++r) {
        const int row = (thread + 256 * r) / 8, chunk = thread % 8;
        tc_copy_async16(A_tile + stage * 16384 + swizzled(128 * row + 16 * chunk),
                        &A[320 * row + 64 * next + 8 * chunk], row < 100 ? 16 : 0);
      }
      for (int r = 0; r < 2; ++r) {
        const int row = (thread + 256 * r) / 8, chunk = thread % 8;
        tc_copy_async16(B_tile + stage * 8192 + swizzled(128 * row + 16 * chunk),
                        &B[128 * (64 * next + row) + n0 + 8 * chunk]);
      }
    }
    tc_copy_async_commit();
    tc_wgmma_fence();
    for (int step = 0; step < 4; ++step)
      tc_wgmma_f16_n64<0, 1>(low, high, descriptor(A_tile + tile % 4 * 16384 + group * 8192 + 32 * step, 16, 1024),
                             descriptor(B_tile + tile % 4 * 8192 + 2048 * step, 8192, 1024));
    tc_wgmma_commit();
    tc_wgmma_wait<1>();
  }
  tc_wgmma_wait<0>();
  const int lane = thread % 32, row = thread / 32 * 16 + lane / 4;
  for (int i = 0; i < 16; ++i) {
    const int column = n0 + i / 2 * 8 + lane % 4 * 2 + i % 2;
    if (row < 100) C[128 * row + column] = low[i];
    if (row + 8 < 100) C[128 * (row + 8) + column] = high[i];
  }
}
""",
    (Launch("product", (2, 1, 1), (256, 1, 1), 4 * 24576, ("A", "B", "C")),),
    lambda: _product(100, 128, 320, turned=False),
)

STORED = Example(
    "products of a warpgroup, operands stored by threads",
    _DESCRIPTOR
    + """
extern "C" __global__ void __launch_bounds__(128, 1) product(const unsigned short *__restrict__ A,
                                                             const unsigned short *__restrict__ B,
                                                             float *__restrict__ C) {
  extern __shared__ __align__(1024) unsigned char tc_dynamic[];
  const int thread = threadIdx.x;
  unsigned short *const A_tile = (unsigned short *)tc_dynamic, *const B_tile = (unsigned short *)(tc_dynamic + 8192);
  float low[32], high[32];
  for (int tile = 0; tile < 2; ++tile) {
    for (int e = thread; e < 4096; e += 128) A_tile[swizzled(2 * e) / 2] = A[128 * (e / 64) + 64 * tile + e % 64];
    for (int e = thread; e < 8192; e += 128) B_tile[swizzled(2 * e) / 2] = B[128 * (e / 64) + 64 * tile + e % 64];
    tc_proxy_fence();
    __syncthreads();  // operands are there
    tc_wgmma_fence();
    for (int step = 0; step < 4; ++step)
      tc_wgmma_f16_n128<0, 0>(low, high, descriptor(tc_dynamic + 32 * step, 16, 1024),
                              descriptor(tc_dynamic + 8192 + 32 * step, 16, 1024), tile + step);
    tc_wgmma_commit();
    tc_wgmma_wait<0>();
    __syncthreads();  // operands are used
  }
  const int lane = thread % 32, row = thread / 32 * 16 + lane / 4;
  for (int i = 0; i < 32; ++i) {
    const int column = i / 2 * 8 + lane % 4 * 2 + i % 2;
    C[128 * row + column] = low[i];
    C[128 * (row + 8) + column] = high[i];
  }
}
""",
    (Launch("product", (1, 1, 1), (128, 1, 1), 24576, ("A", "B", "C")),),
    lambda: _product(64, 128, 128, turned=True),
)
