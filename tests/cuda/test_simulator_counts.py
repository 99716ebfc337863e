"""What the simulator counts equals what a person counts."""

from __future__ import annotations

import numpy as np
import pytest

from tcomp.backends.simulator.report import AccessCounts, FindingKind, KernelCounts
from tcomp.backends.simulator.simulation import Settings, load
from tcomp.backends.source import Launch
from tests.cuda.simulated import MATMUL, NEEDS_COMPILER, Tensor, out, simulate, source_of, whole

pytestmark = NEEDS_COMPILER

COUNTING = Settings(counting=True)


def count(text: str, launch: Launch, *tensors: Tensor) -> KernelCounts:
    report = simulate(text, [launch], tensors, COUNTING)
    assert not report.findings, str(report)
    return report.kernels[0]


def only(kernel: KernelCounts, buffer: str, access: str = "read") -> AccessCounts:
    found = [a for a in kernel.accesses if a.buffer == buffer and a.access == access]
    assert len(found) == 1, str(kernel)
    return found[0]


@pytest.mark.parametrize(
    ("index", "sectors", "ideal"),
    [
        ("threadIdx.x", 4, 4),
        ("threadIdx.x + 1", 5, 4),
        ("2 * threadIdx.x", 8, 4),
        ("32 * threadIdx.x", 32, 4),
        ("0 * threadIdx.x", 1, 1),
        ("31 - threadIdx.x", 4, 4),
        ("threadIdx.x / 8", 1, 1),
    ],
)
def test_sectors_of_a_warp(index: str, sectors: int, ideal: int) -> None:
    text = f"""
extern "C" __global__ void read(const float *__restrict__ A, float *__restrict__ B) {{
  B[blockIdx.x * 32 + threadIdx.x] = A[{index}];
}}
"""
    kernel = count(
        text, Launch("read", (3, 1, 1), (32, 1, 1), 0, ("A", "B")), Tensor("A", whole((1024,))), out("B", (96,))
    )
    read = only(kernel, "A")
    assert (read.line, read.requests, read.bytes) == (3, 3, 3 * 128)
    assert (read.sectors_per_request, read.ideal_sectors) == (sectors, 3 * ideal)
    assert only(kernel, "B", "write").sectors_per_request == 4
    assert (kernel.global_bytes_read, kernel.global_bytes_written) == (384, 384)


@pytest.mark.parametrize(
    ("dtype", "c_type", "sectors"),
    [("int8", "signed char", 1), ("uint16", "unsigned short", 2), ("float64", "double", 8)],
)  # fmt: skip
def test_sectors_by_element_type(dtype: str, c_type: str, sectors: int) -> None:
    text = f"""
extern "C" __global__ void copy(const {c_type} *__restrict__ A, {c_type} *__restrict__ B) {{
  B[threadIdx.x] = A[threadIdx.x];
}}
"""
    a = np.arange(64).astype(dtype)
    b = out("B", (64,), dtype)
    kernel = count(text, Launch("copy", (1, 1, 1), (64, 1, 1), 0, ("A", "B")), Tensor("A", a), b)
    assert (only(kernel, "A").sectors_per_request, only(kernel, "B", "write").sectors_per_request) == (sectors, sectors)
    np.testing.assert_array_equal(b.array, a)


def test_vector_accesses_are_one_request() -> None:
    text = """
extern "C" __global__ void copy(const float *__restrict__ A, float *__restrict__ B) {
  reinterpret_cast<float4 *>(B)[threadIdx.x] = reinterpret_cast<const float4 *>(A)[threadIdx.x];
}
"""
    kernel = count(
        text, Launch("copy", (1, 1, 1), (64, 1, 1), 0, ("A", "B")), Tensor("A", whole((256,))), out("B", (256,))
    )
    for access in (only(kernel, "A"), only(kernel, "B", "write")):
        assert (access.bytes_per_lane, access.requests, access.bytes, access.sectors_per_request) == (16, 2, 1024, 16)


@pytest.mark.parametrize(
    ("index", "conflicts"),
    [
        ("threadIdx.x", 0),
        ("2 * threadIdx.x", 1),
        ("32 * threadIdx.x", 31),
        ("33 * threadIdx.x", 0),
        ("0 * threadIdx.x", 0),
        ("threadIdx.x / 4", 0),
        ("4 * threadIdx.x", 3),
    ],
)
def test_bank_conflicts_of_a_warp(index: str, conflicts: int) -> None:
    text = f"""
extern "C" __global__ void banks(float *__restrict__ B) {{
  __shared__ float tile[1056];
  for (int i = threadIdx.x; i < 1056; i += 32) tile[i] = i;
  __syncthreads();
  B[threadIdx.x] = tile[{index}];
}}
"""
    b = out("B", (32,))
    kernel = count(text, Launch("banks", (1, 1, 1), (32, 1, 1), 0, ("B",)), b)
    read = only(kernel, "tile")
    assert (read.requests, read.ideal_wavefronts, read.conflicts) == (1, 1, conflicts)
    assert only(kernel, "tile", "write").conflicts == 0
    assert (kernel.barriers, kernel.conflicts) == (1, conflicts)
    expected = [eval(index.replace("threadIdx.x", str(t)).replace("/", "//")) for t in range(32)]
    np.testing.assert_array_equal(b.array, np.array(expected, np.float32))


def test_wide_shared_accesses_are_served_in_parts() -> None:
    text = """
extern "C" __global__ void wide(float *__restrict__ B) {
  __shared__ float4 tile[32];
  tile[threadIdx.x] = make_float4(1.0f, 2.0f, 3.0f, 4.0f);
  __syncthreads();
  const float4 v = tile[31 - threadIdx.x];
  B[threadIdx.x] = v.x + v.y + v.z + v.w;
}
"""
    kernel = count(text, Launch("wide", (1, 1, 1), (32, 1, 1), 0, ("B",)), out("B", (32,)))
    read = only(kernel, "tile")
    assert (read.requests, read.bytes, read.wavefronts, read.ideal_wavefronts) == (1, 512, 4, 4)


def test_padding_removes_conflicts() -> None:
    text = """
extern "C" __global__ void columns(const float *__restrict__ A, float *__restrict__ B) {
  __shared__ float tile[32][PADDED];
  tile[threadIdx.y][threadIdx.x] = A[threadIdx.y * 32 + threadIdx.x];
  __syncthreads();
  B[threadIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
"""
    launch = Launch("columns", (1, 1, 1), (32, 32, 1), 0, ("A", "B"))
    for padded, conflicts in (("32", 31 * 32), ("33", 0)):
        kernel = count(text.replace("PADDED", padded), launch, Tensor("A", whole((32, 32))), out("B", (32, 32)))
        assert only(kernel, "tile").conflicts == conflicts


def test_tiled_matmul_moves_what_theory_says() -> None:
    text = MATMUL.text.replace("48", "256").replace("* 32 +", "* 256 +")
    tensors = [Tensor("A", whole((256, 256))), Tensor("B", whole((256, 256))), out("C", (256, 256))]
    launch = Launch("matmul", (16, 16, 1), (16, 16, 1), 0, ("A", "B", "C"))
    report = simulate(text, [launch], tensors, Settings(counting=True, counted_blocks=16))
    assert not report.findings, str(report)
    kernel = report.kernels[0]
    assert kernel.counted_blocks == 16
    assert kernel.global_bytes_read == 2 * 256**3 * 4 // 16
    assert kernel.global_bytes_written == 256 * 256 * 4
    assert kernel.global_sectors == kernel.ideal_sectors
    assert kernel.barriers == 2 * 256 / 16
    # Each lane pair of rows in a warp reads two words of A_tile, both broadcast, and one row of B_tile.
    assert sum(a.conflicts for a in kernel.select("shared", "read")) == 0


def test_some_blocks_stand_for_all() -> None:
    tensors, _ = MATMUL.make()
    launch = Launch("matmul", (2, 4, 1), (16, 16, 1), 0, ("A", "B", "C"))
    (whole_run,) = simulate(MATMUL.text, [launch], tensors, COUNTING).kernels
    report = simulate(MATMUL.text, [launch], tensors, Settings(counting=True, blocks=2))
    assert not report.findings, str(report)
    (some,) = report.kernels
    assert (some.counted_blocks, whole_run.counted_blocks) == (2, 8)
    assert some.accesses == whole_run.accesses and some.barriers == whole_run.barriers
    assert simulate(MATMUL.text, [launch], tensors, Settings(counting=True, blocks=100)).kernels == (whole_run,)


def test_what_left_out_blocks_would_have_written_is_no_fault() -> None:
    text = """
extern "C" __global__ void first(float *__restrict__ T) { T[blockIdx.x * 32 + threadIdx.x] = 1.0f; }
extern "C" __global__ void second(const float *__restrict__ T, float *__restrict__ C) {
  __shared__ float row[32];
  if (threadIdx.x || !FAULTY) row[threadIdx.x] = T[threadIdx.x * 8 + blockIdx.x];
  __syncthreads();
  C[blockIdx.x * 32 + threadIdx.x] = row[31 - threadIdx.x];
}
"""
    launches = [
        Launch("first", (8, 1, 1), (32, 1, 1), 0, ("T",)),
        Launch("second", (8, 1, 1), (32, 1, 1), 0, ("T", "C")),
    ]
    for faulty, kinds in (("0", set()), ("1", {FindingKind.UNINITIALISED})):
        tensors = [out("T", (256,)), out("C", (256,))]
        report = simulate(text.replace("FAULTY", faulty), launches, tensors, Settings(blocks=1))
        assert {finding.kind for finding in report.findings} == kinds


def test_flops_follow_from_executed_statements() -> None:
    tensors, _ = MATMUL.make()
    text = MATMUL.text
    line = MATMUL.line("sum += A_tile")
    lines = Launch("matmul", (2, 4, 1), (16, 16, 1), 0, ("A", "B", "C"), ((line, "S0"),))
    simulation = load(source_of(text, [lines], tensors), line_flops={line: 2})
    report = simulation.run([t.array.ctypes.data for t in tensors], None, COUNTING)
    assert not report.findings, str(report)
    assert report.kernels[0].flops == 2 * 64 * 48 * 32
    statements = {a.statement for a in report.kernels[0].accesses if a.line == line}
    assert statements == {"S0"}
    assert "flops 196608" in str(report)


def test_guards_and_divergence() -> None:
    text = """
extern "C" __global__ void odd(const float *__restrict__ A, float *__restrict__ B) {
  float sum = 0.0f;
  for (int k = 0; k < threadIdx.x % 3; ++k) sum += A[32 * k + threadIdx.x];
  if (threadIdx.x < 20) B[threadIdx.x] = sum;
}
"""
    kernel = count(
        text, Launch("odd", (1, 1, 1), (32, 1, 1), 0, ("A", "B")), Tensor("A", whole((64,))), out("B", (20,))
    )
    read, write = only(kernel, "A"), only(kernel, "B", "write")
    # The lanes with one step and those with two make the first request together, those with two make the second.
    assert (read.requests, read.lanes) == (2, 21 + 10)
    assert (write.requests, write.lanes, write.sectors) == (1, 20, 3)


def test_atomics_and_collectives_are_counted_apart() -> None:
    text = """
extern "C" __global__ void total(const int *__restrict__ A, int *__restrict__ S) {
  int sum = A[threadIdx.x];
  for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffffu, sum, d);
  if (threadIdx.x % 32 == 0) atomicAdd(S, sum);
}
"""
    a, s = whole((64,), dtype="int32"), Tensor("S", np.zeros(1, np.int32), "inout")
    kernel = count(text, Launch("total", (1, 1, 1), (64, 1, 1), 0, ("A", "S")), Tensor("A", a), s)
    assert s.array[0] == a.sum()
    assert kernel.collectives == 2 * 5
    assert only(kernel, "S", "atomic").requests == 2
