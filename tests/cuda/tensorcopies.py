"""A hand-written kernel with a warp that fetches by tensor copies, for the tests of the simulator."""

from __future__ import annotations

from tcomp.backends.source import Launch, TensorMap
from tcomp.values.operators import DTYPES
from tests.cuda.simulated import Array, Example, Tensor, out, whole

_HALF = DTYPES["float16"]


def _product() -> tuple[list[Tensor], list[Array]]:
    a, b = whole((100, 328), 1), whole((328, 120), 2)
    return [Tensor("A", a.astype("float16")), Tensor("B", b.astype("float16")), out("C", (100, 120))], [a @ b]


PRODUCED = Example(
    "products of warpgroups fed by a warp",
    """
static __device__ __forceinline__ unsigned long long descriptor(const void *start, int leading, int stride) {
  return (tc_shared_address(start) & 0x3ffff) >> 4 | (unsigned long long)(leading >> 4) << 16 |
         (unsigned long long)(stride >> 4) << 32 | 1ull << 62;
}

extern "C" __global__ void __launch_bounds__(384, 1) product(float *__restrict__ C,
                                                             const __grid_constant__ tc_tensor_map A_map,
                                                             const __grid_constant__ tc_tensor_map B_map) {
  extern __shared__ __align__(1024) unsigned char tc_dynamic[];
  const int thread = threadIdx.x, group = thread / 128;
  unsigned char *const A_tile = tc_dynamic, *const B_tile = tc_dynamic + 3 * 16384;
  unsigned long long *const full = (unsigned long long *)(tc_dynamic + 3 * 24576), *const empty = full + 3;
  if (thread == 0) {
    for (int stage = 0; stage < 3; ++stage) {
      tc_barrier_init(&full[stage], 1);
      tc_barrier_init(&empty[stage], 8);
    }
    tc_barriers_visible();
  }
  __syncthreads();
  if (group == 2) {
    tc_registers_down<40>();
    if (thread == 256) {
      int stage = 0, parity = 1;
      for (int block = blockIdx.x; block < 2; block += gridDim.x)
        for (int tile = 0; tile < 6; ++tile) {
          tc_barrier_wait(&empty[stage], parity);
          tc_barrier_expect(&full[stage], 24576);
          tc_tensor_copy2(A_tile + stage * 16384, A_map, &full[stage], 64 * tile, 0);
          tc_tensor_copy2(B_tile + stage * 8192, B_map, &full[stage], 64 * block, 64 * tile);
          stage = stage == 2 ? 0 : stage + 1;
          parity ^= stage == 0;
        }
    }
  } else {
    tc_registers_up<232>();
    int stage = 0, parity = 0;
    for (int block = blockIdx.x; block < 2; block += gridDim.x) {
      float low[16], high[16];
      for (int i = 0; i < 16; ++i) low[i] = high[i] = 0.0f;
      for (int tile = 0; tile < 6; ++tile) {
        tc_barrier_wait(&full[stage], parity);
        tc_wgmma_fence();
        for (int step = 0; step < 4; ++step)
          tc_wgmma_f16_n64<0, 1>(low, high, descriptor(A_tile + stage * 16384 + group * 8192 + 32 * step, 16, 1024),
                                 descriptor(B_tile + stage * 8192 + 2048 * step, 8192, 1024));
        tc_wgmma_commit();
        tc_wgmma_wait<1>();
        if (tile > 0 && thread % 32 == 0) tc_barrier_arrive(&empty[stage == 0 ? 2 : stage - 1]);
        stage = stage == 2 ? 0 : stage + 1;
        parity ^= stage == 0;
      }
      tc_wgmma_wait<0>();
      if (thread % 32 == 0) tc_barrier_arrive(&empty[stage == 0 ? 2 : stage - 1]);  // the last tile
      const int lane = thread % 32, row = thread / 32 * 16 + lane / 4;
      for (int i = 0; i < 16; ++i) {
        const int column = 64 * block + i / 2 * 8 + lane % 4 * 2 + i % 2;
        if (row < 100 && column < 120) C[120 * row + column] = low[i];
        if (row + 8 < 100 && column < 120) C[120 * (row + 8) + column] = high[i];
      }
    }
  }
}
""",
    (
        Launch(
            "product", (1, 1, 1), (384, 1, 1), 3 * 24576 + 48, ("C",),
            maps=(
                TensorMap("A", _HALF, (328, 100), (1, 328), (64, 128)),
                TensorMap("B", _HALF, (120, 328), (1, 120), (64, 64)),
            ),
        ),
    ),
    _product,
)  # fmt: skip
