"""Hand-written CUDA kernels with arrays to run them on, for the tests of the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from tcomp.backends.simulator.compiler import why_not
from tcomp.backends.simulator.report import Finding, Report
from tcomp.backends.simulator.simulation import Settings, load
from tcomp.backends.source import Argument, Launch, Source, Temporary
from tcomp.values.operators import DTYPES

Array = np.ndarray[Any, np.dtype[Any]]

NEEDS_COMPILER = pytest.mark.skipif(why_not() is not None, reason=why_not() or "")
"""For tests that simulate."""


@dataclass(frozen=True)
class Tensor:
    """An array by the name of the kernel's parameter."""

    name: str
    array: Array
    role: str = "input"

    def argument(self) -> Argument:
        strides = tuple(s // self.array.itemsize for s in self.array.strides)
        return Argument(self.name, DTYPES[str(self.array.dtype)], self.array.shape, strides, self.role)


@dataclass(frozen=True)
class Example:
    """A kernel, or a sequence of them, that computes ``expected`` in its outputs."""

    name: str
    text: str
    launches: tuple[Launch, ...]
    make: Callable[[], tuple[list[Tensor], list[Array]]]
    temporaries: tuple[Temporary, ...] = ()

    def but(self, old: str, new: str) -> Example:
        """The same with one place of the text changed."""
        assert self.text.count(old) == 1, f"{old!r} occurs {self.text.count(old)} times"
        return replace(self, text=self.text.replace(old, new))

    def line(self, part: str) -> int:
        """The number of the only line that holds ``part``."""
        numbers = [n for n, line in enumerate(self.text.split("\n"), 1) if part in line]
        assert len(numbers) == 1, f"{part!r} is on lines {numbers}"
        return numbers[0]

    def run(self, settings: Settings | None = None) -> tuple[Report, list[Array], list[Array]]:
        """The report, the outputs and what they should be."""
        tensors, expected = self.make()
        report = simulate(self.text, self.launches, tensors, settings, self.temporaries)
        return report, [t.array for t in tensors if t.role != "input"], expected

    def only_finding(self, settings: Settings | None = None) -> Finding:
        """The finding of a kernel that has exactly one."""
        report, _, _ = self.run(settings)
        assert len(report.findings) == 1, str(report)
        return report.findings[0]


def source_of(
    text: str, launches: Sequence[Launch], tensors: Sequence[Tensor], temporaries: tuple[Temporary, ...] = ()
) -> Source:
    arguments = tuple(t.argument() for t in tensors)
    scratch = sum(t.bytes for t in temporaries)
    return Source(text, launches[0].kernel, arguments, scratch, (), (), tuple(launches), temporaries)


def simulate(
    text: str,
    launches: Sequence[Launch],
    tensors: Sequence[Tensor],
    settings: Settings | None = None,
    temporaries: tuple[Temporary, ...] = (),
) -> Report:
    """Run kernels on arrays; outputs are written in place."""
    simulation = load(source_of(text, launches, tensors, temporaries))
    return simulation.run([t.array.__array_interface__["data"][0] for t in tensors], None, settings)


def whole(shape: tuple[int, ...], seed: int = 0, dtype: str = "float32") -> Array:
    """Whole numbers, whose sums and products are exact."""
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(dtype)


def out(name: str, shape: tuple[int, ...], dtype: str = "float32") -> Tensor:
    """An output to be made."""
    return Tensor(name, np.full(shape, 77, dtype), "output")


def _vector_add() -> tuple[list[Tensor], list[Array]]:
    a, b = whole((1000,), 1), whole((1000,), 2)
    return [Tensor("A", a), Tensor("B", b), out("C", (1000,))], [a + b]


VECTOR_ADD = Example(
    "vector add",
    """
extern "C" __global__ void __launch_bounds__(128) add(const float *__restrict__ A, const float *__restrict__ B,
                                                      float *__restrict__ C) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 1000) return;
  C[i] = A[i] + B[i];
}
""",
    (Launch("add", (8, 1, 1), (128, 1, 1), 0, ("A", "B", "C")),),
    _vector_add,
)


def _matmul() -> tuple[list[Tensor], list[Array]]:
    a, b = whole((64, 48), 1), whole((48, 32), 2)
    return [Tensor("A", a), Tensor("B", b), out("C", (64, 32))], [a @ b]


MATMUL = Example(
    "tiled matmul",
    """
extern "C" __global__ void __launch_bounds__(256) matmul(const float *__restrict__ A, const float *__restrict__ B,
                                                         float *__restrict__ C) {
  __shared__ float A_tile[16][17];
  __shared__ float B_tile[16][16];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
  float sum = 0.0f;
  for (int k0 = 0; k0 < 48; k0 += 16) {
    A_tile[y][x] = A[row * 48 + k0 + x];
    B_tile[y][x] = B[(k0 + y) * 32 + column];
    __syncthreads();  // tiles are there
#pragma unroll
    for (int k = 0; k < 16; ++k) sum += A_tile[y][k] * B_tile[k][x];
    __syncthreads();  // tiles are used
  }
  C[row * 32 + column] = sum;
}
""",
    (Launch("matmul", (2, 4, 1), (16, 16, 1), 0, ("A", "B", "C")),),
    _matmul,
)


def _transpose() -> tuple[list[Tensor], list[Array]]:
    a = whole((64, 96), 3)
    return [Tensor("A", a), out("T", (96, 64))], [a.T.copy()]


TRANSPOSE = Example(
    "padded transpose",
    """
extern "C" __global__ void transpose(const float *__restrict__ A, float *__restrict__ T) {
  __shared__ float tile[32][33];
  for (int r = threadIdx.y; r < 32; r += 8)
    tile[r][threadIdx.x] = A[(blockIdx.y * 32 + r) * 96 + blockIdx.x * 32 + threadIdx.x];
  __syncthreads();
  for (int r = threadIdx.y; r < 32; r += 8)
    T[(blockIdx.x * 32 + r) * 64 + blockIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][r];
}
""",
    (Launch("transpose", (3, 2, 1), (32, 8, 1), 0, ("A", "T")),),
    _transpose,
)


def _row_sums() -> tuple[list[Tensor], list[Array]]:
    a = whole((24, 100), 4)
    return [Tensor("A", a), out("S", (24,))], [a.sum(1)]


WARP_SUM = Example(
    "sums by warp shuffles",
    """
extern "C" __global__ void row_sums(const float *__restrict__ A, float *__restrict__ S) {
  const int lane = threadIdx.x % 32, row = blockIdx.x * 4 + threadIdx.x / 32;
  float sum = 0.0f;
  for (int k = lane; k < 100; k += 32) sum += A[row * 100 + k];
  for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  if (lane == 0) S[row] = sum;
}
""",
    (Launch("row_sums", (6, 1, 1), (128, 1, 1), 0, ("A", "S")),),
    _row_sums,
)


def _block_sums() -> tuple[list[Tensor], list[Array]]:
    a = whole((6, 500), 5)
    return [Tensor("A", a), out("S", (6,))], [a.sum(1)]


BLOCK_SUM = Example(
    "sums of a block",
    """
extern "C" __global__ void block_sums(const float *__restrict__ A, float *__restrict__ S) {
  __shared__ float part[256];
  const int t = threadIdx.x;
  float sum = 0.0f;
  for (int k = t; k < 500; k += 256) sum += A[blockIdx.x * 500 + k];
  part[t] = sum;
  __syncthreads();  // parts are there
  for (int half = 128; half > 0; half /= 2) {
    if (t < half) part[t] += part[t + half];
    __syncthreads();  // halves are added
  }
  if (t == 0) S[blockIdx.x] = part[0];
}
""",
    (Launch("block_sums", (6, 1, 1), (256, 1, 1), 0, ("A", "S")),),
    _block_sums,
)


def _warp_memory_sums() -> tuple[list[Tensor], list[Array]]:
    a = whole((8, 32), 5)
    return [Tensor("A", a), out("S", (8,))], [a.sum(1)]


WARP_MEMORY_SUM = Example(
    "sums of a warp through shared memory",
    """
extern "C" __global__ void warp_sums(const float *__restrict__ A, float *__restrict__ S) {
  __shared__ float part[4][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  part[warp][lane] = A[(blockIdx.x * 4 + warp) * 32 + lane];
  __syncwarp();  // parts are there
  for (int half = 16; half > 0; half /= 2) {
    const float other = part[warp][lane ^ half];
    __syncwarp();  // others are read
    part[warp][lane] += other;
    __syncwarp();  // halves are added
  }
  if (lane == 0) S[blockIdx.x * 4 + warp] = part[warp][0];
}
""",
    (Launch("warp_sums", (2, 1, 1), (128, 1, 1), 0, ("A", "S")),),
    _warp_memory_sums,
)


def _warp_atomics() -> tuple[list[Tensor], list[Array]]:
    a = np.random.default_rng(16).integers(0, 9, 256).astype(np.int32)
    sums = (a.reshape(4, 64)[:, :48].sum(axis=1) + 2).astype(np.int32)
    return [Tensor("A", a), Tensor("S", np.zeros(4, np.int32), "output")], [sums]


WARP_ATOMICS = Example(
    "atomic sums of a warp and a half, each read behind barriers of warps",
    """
extern "C" __global__ void warp_atomics(const int *__restrict__ A, int *__restrict__ S) {
  __shared__ int part[2];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (lane == 0) part[warp] = 0;
  __syncwarp();  // sums begin
  if (lane < 32 - 16 * warp) atomicAdd(&part[warp], A[blockIdx.x * 64 + threadIdx.x]);
  __syncwarp();  // sums are there
  if (lane == 1) part[warp] += 1;
  __syncthreads();
  if (threadIdx.x == 0) S[blockIdx.x] = part[0] + part[1];
}
""",
    (Launch("warp_atomics", (4, 1, 1), (64, 1, 1), 0, ("A", "S")),),
    _warp_atomics,
)


def _histogram() -> tuple[list[Tensor], list[Array]]:
    a = np.random.default_rng(6).integers(0, 16, 3000).astype(np.int32)
    counts = np.bincount(a, minlength=16).astype(np.int32)
    return [Tensor("A", a), Tensor("H", np.zeros(16, np.int32), "inout")], [counts]


HISTOGRAM = Example(
    "histogram",
    """
extern "C" __global__ void histogram(const int *__restrict__ A, int *__restrict__ H) {
  __shared__ int bins[16];
  if (threadIdx.x < 16) bins[threadIdx.x] = 0;
  __syncthreads();  // bins are empty
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < 3000) atomicAdd(&bins[A[i]], 1);
  __syncthreads();  // bins are full
  if (threadIdx.x < 16) atomicAdd(&H[threadIdx.x], bins[threadIdx.x]);
}
""",
    (Launch("histogram", (12, 1, 1), (256, 1, 1), 0, ("A", "H")),),
    _histogram,
)


def _reversal() -> tuple[list[Tensor], list[Array]]:
    a = whole((4, 300), 7)
    return [Tensor("A", a), out("R", (4, 300))], [a[:, ::-1].copy()]


DYNAMIC = Example(
    "reversal in dynamic shared memory",
    """
extern "C" __global__ void reversal(const float *__restrict__ A, float *__restrict__ R) {
  extern __shared__ __align__(16) unsigned char tc_dynamic[];
  float *row = reinterpret_cast<float *>(tc_dynamic);
  for (int i = threadIdx.x; i < 300; i += 64) row[i] = A[blockIdx.x * 300 + i];
  __syncthreads();
  for (int i = threadIdx.x; i < 300; i += 64) R[blockIdx.x * 300 + i] = row[299 - i];
}
""",
    (Launch("reversal", (4, 1, 1), (64, 1, 1), 1200, ("A", "R")),),
    _reversal,
)


def _running() -> tuple[list[Tensor], list[Array]]:
    a = whole((8, 64), 8)
    return [Tensor("A", a), out("S", (64,))], [a.sum(0)[::-1].copy()]


DOUBLE_BUFFER = Example(
    "double buffer",
    """
extern "C" __global__ void sums(const float *__restrict__ A, float *__restrict__ S) {
  __shared__ float row[2][64];
  const int t = threadIdx.x;
  float sum = 0.0f;
  row[0][t] = A[t];
  for (int k = 0; k < 8; ++k) {
    __syncthreads();
    if (k < 7) row[(k + 1) % 2][t] = A[(k + 1) * 64 + t];
    sum += row[k % 2][63 - t];
  }
  S[t] = sum;
}
""",
    (Launch("sums", (1, 1, 1), (64, 1, 1), 0, ("A", "S")),),
    _running,
)

ASYNC_BUFFER = Example(
    "double buffer with asynchronous copies",
    """
extern "C" __global__ void sums(const float *__restrict__ A, float *__restrict__ S) {
  __shared__ __align__(16) float row[2][64];
  const int t = threadIdx.x;
  float sum = 0.0f;
  if (t < 16) tc_copy_async16(&row[0][4 * t], &A[4 * t]);
  tc_copy_async_commit();
  for (int k = 0; k < 8; ++k) {
    if (k < 7 && t < 16) tc_copy_async16(&row[(k + 1) % 2][4 * t], &A[(k + 1) * 64 + 4 * t]);
    tc_copy_async_commit();
    tc_copy_async_wait<1>();
    __syncthreads();  // the row is there
    sum += row[k % 2][63 - t];
    __syncthreads();  // the row is used
  }
  S[t] = sum;
}
""",
    (Launch("sums", (1, 1, 1), (64, 1, 1), 0, ("A", "S")),),
    _running,
)

STAGES = Example(
    "three stages with one barrier each",
    """
extern "C" __global__ void sums(const float *__restrict__ A, float *__restrict__ S) {
  __shared__ __align__(16) float row[3][64];
  const int t = threadIdx.x;
  float sum = 0.0f;
  for (int k = 0; k < 2; ++k) {
    if (t < 16) tc_copy_async16(&row[k][4 * t], &A[k * 64 + 4 * t]);
    tc_copy_async_commit();
  }
  for (int k = 0; k < 8; ++k) {
    tc_copy_async_wait<1>();
    __syncthreads();  // the row is there, and the one before is used
    if (t < 16) tc_copy_async16(&row[(k + 2) % 3][4 * t], &A[(k + 2) * 64 + 4 * t], k < 6 ? 16 : 0);
    tc_copy_async_commit();
    sum += row[k % 3][63 - t];
  }
  S[t] = sum;
}
""",
    (Launch("sums", (1, 1, 1), (64, 1, 1), 0, ("A", "S")),),
    _running,
)


def _copy() -> tuple[list[Tensor], list[Array]]:
    a = whole((2048,), 9)
    return [Tensor("A", a), out("B", (2048,))], [a + np.float32(1)]


VECTOR_COPY = Example(
    "copies of 16 bytes",
    """
extern "C" __global__ void copy(const float *__restrict__ A, float *__restrict__ B) {
  const int i = 4 * (blockIdx.x * 128 + threadIdx.x);
  float4 v = *reinterpret_cast<const float4 *>(&A[i]);
  v.x += 1.0f; v.y += 1.0f; v.z += 1.0f; v.w += 1.0f;
  *reinterpret_cast<float4 *>(&B[i]) = v;
}
""",
    (Launch("copy", (4, 1, 1), (128, 1, 1), 0, ("A", "B")),),
    _copy,
)


def _scaled() -> tuple[list[Tensor], list[Array]]:
    a = whole((700,), 10)
    return [Tensor("A", a), out("B", (700,))], [a - a.sum()]


TWO_KERNELS = Example(
    "two kernels with a temporary",
    """
extern "C" __global__ void total(const float *__restrict__ A, float *__restrict__ sum) {
  float part = 0.0f;
  for (int i = threadIdx.x; i < 700; i += 32) part += A[i];
  for (int d = 16; d > 0; d /= 2) part += __shfl_down_sync(0xffffffffu, part, d);
  if (threadIdx.x == 0) sum[0] = part;
}
extern "C" __global__ void subtract(const float *__restrict__ A, const float *__restrict__ sum,
                                    float *__restrict__ B) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i < 700) B[i] = A[i] - sum[0];
}
""",
    (
        Launch("total", (1, 1, 1), (32, 1, 1), 0, ("A", "sum")),
        Launch("subtract", (3, 1, 1), (256, 1, 1), 0, ("A", "sum", "B")),
    ),
    _scaled,
    (Temporary("sum", DTYPES["float32"], (1,), 0),),
)

EXAMPLES = (
    VECTOR_ADD,
    MATMUL,
    TRANSPOSE,
    WARP_SUM,
    BLOCK_SUM,
    WARP_MEMORY_SUM,
    WARP_ATOMICS,
    HISTOGRAM,
    DYNAMIC,
    DOUBLE_BUFFER,
    ASYNC_BUFFER,
    STAGES,
    VECTOR_COPY,
    TWO_KERNELS,
)
"""Kernels without fault."""
