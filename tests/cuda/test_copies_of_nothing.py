"""Copies to shared memory may bring what nobody wrote: whoever reads it there is accused, not the copy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tcomp import MappingOptions, define
from tcomp.backends.simulator.report import FindingKind
from tcomp.backends.simulator.simulation import Order, Settings, load
from tcomp.backends.source import Launch, Temporary, TensorMap
from tcomp.values.operators import DTYPES
from tests.cuda.simulated import NEEDS_COMPILER, Array, Example, Tensor, out, whole

pytestmark = NEEDS_COMPILER

ORDERS: tuple[Order, ...] = ("forward", "reverse", "random")


def _rows() -> tuple[list[Tensor], list[Array]]:
    a = whole((16, 8), 3)
    return [Tensor("A", a), out("S", (16,))], [np.array([a[i, : i % 8 + 1].sum() for i in range(16)], "float32")]


RAGGED = Example(
    "rows of different lengths, copied whole",
    """
extern "C" __global__ void make(const float *__restrict__ A, float *__restrict__ R) {
  const int i = threadIdx.x / 8, j = threadIdx.x % 8;
  if (j <= i % 8) R[8 * i + j] = A[8 * i + j];
}
extern "C" __global__ void sums(const float *__restrict__ R, float *__restrict__ S) {
  __shared__ __align__(16) float row[128];
  const int t = threadIdx.x;
  tc_copy_async16(&row[4 * t], &R[4 * t]);
  tc_copy_async_commit();
  tc_copy_async_wait<0>();
  __syncthreads();  // rows are there
  if (t < 16) {
    float sum = 0.0f;
    for (int j = 0; j <= t % 8; ++j) sum += row[8 * t + j];
    S[t] = sum;
  }
}
""",
    (
        Launch("make", (1, 1, 1), (128, 1, 1), 0, ("A", "R")),
        Launch("sums", (1, 1, 1), (32, 1, 1), 0, ("R", "S")),
    ),
    _rows,
    (Temporary("R", DTYPES["float32"], (16, 8), 0),),
)

READ = "sum += row["


@pytest.mark.parametrize("order", ORDERS)
def test_a_copy_that_nobody_reads_is_not_accused(order: Order) -> None:
    report, found, expected = RAGGED.run(Settings(order))
    assert not report.findings, str(report)
    np.testing.assert_array_equal(found[0], expected[0])


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("j <= t % 8; ++j", "j <= (t + 1) % 8; ++j", READ),
        ("if (j <= i % 8)", "if (j <= i % 8 && threadIdx.x != 99)", READ),
        ("float sum = 0.0f;", "atomicAdd(&row[8 * t + 7], 0.0f); float sum = 0.0f;", "atomicAdd"),
        ("    S[t] = sum;", "    S[t] = sum; *(float4 *)&row[8 * t] = *(float4 *)&row[8 * t + 4];", "(float4"),
    ],
    ids=["a row too long", "an element left out", "an atomic operation", "a vector"],
)
@pytest.mark.parametrize("order", ORDERS)
def test_whoever_reads_it_is_accused(old: str, new: str, line: str, order: Order) -> None:
    changed = RAGGED.but(old, new)
    report, _, _ = changed.run(Settings(order))
    wrong = [f for f in report.findings if f.kind is FindingKind.UNINITIALISED]
    assert [(f.buffer, f.line) for f in wrong] == [("row", changed.line(line))], str(report)
    assert wrong[0].other is not None and wrong[0].other.line == changed.line("tc_copy_async16")
    assert "brought from where nobody wrote" in str(wrong[0])


def test_what_was_stored_over_it_may_be_read() -> None:
    stored = RAGGED.but("float sum = 0.0f;", "for (int j = 0; j < 8; ++j) row[8 * t + j] = 1.0f; float sum = 0.0f;")
    report, found, _ = stored.but("j <= t % 8; ++j", "j < 8; ++j").run()
    assert not report.findings, str(report)
    assert (found[0] == 8).all()


def _boxes() -> tuple[list[Tensor], list[Array]]:
    a = whole((8, 64), 5).astype("float16")
    return [Tensor("A", a), out("S", (8,))], [a[:, :40].astype("float32").sum(1)]


BOX = Example(
    "a box of which columns are missing",
    """
extern "C" __global__ void make(const unsigned short *__restrict__ A, unsigned short *__restrict__ R) {
  for (int j = threadIdx.x; j < 40; j += 32) R[64 * blockIdx.x + j] = A[64 * blockIdx.x + j];
}
extern "C" __global__ void sums(float *__restrict__ S, const __grid_constant__ tc_tensor_map R_map) {
  extern __shared__ __align__(1024) unsigned char tc_dynamic[];
  unsigned long long *const full = (unsigned long long *)(tc_dynamic + 1024);
  if (threadIdx.x == 0) {
    tc_barrier_init(full, 1);
    tc_barriers_visible();
    tc_barrier_expect(full, 1024);
    tc_tensor_copy2(tc_dynamic, R_map, full, 0, 0);
  }
  __syncthreads();
  tc_barrier_wait(full, 0);
  if (threadIdx.x < 8) {
    const int t = threadIdx.x;
    float sum = 0.0f;
    for (int j = 0; j < 40; ++j)
      sum += tc_from_float16(*(unsigned short *)&tc_dynamic[128 * t + (2 * j ^ t << 4)]);
    S[t] = sum;
  }
}
""",
    (
        Launch("make", (8, 1, 1), (32, 1, 1), 0, ("A", "R")),
        Launch(
            "sums",
            (1, 1, 1),
            (32, 1, 1),
            1032,
            ("S",),
            maps=(TensorMap("R", DTYPES["float16"], (64, 8), (1, 64), (64, 8)),),
        ),
    ),
    _boxes,
    (Temporary("R", DTYPES["float16"], (8, 64), 0),),
)


@pytest.mark.parametrize("order", ORDERS)
def test_boxes_of_tensors_are_tracked_alike(order: Order) -> None:
    report, found, expected = BOX.run(Settings(order))
    assert not report.findings, str(report)
    np.testing.assert_array_equal(found[0], expected[0])
    longer = BOX.but("j < 40; ++j", "j < 41; ++j")
    finding = longer.only_finding(Settings(order))
    assert (finding.kind, finding.line) == (FindingKind.UNINITIALISED, longer.line("sum += tc_from"))
    assert finding.other is not None and finding.other.line == longer.line("tc_tensor_copy2")


@pytest.mark.parametrize("stages", [2, 1], ids=["asynchronously", "through registers"])
def test_parts_of_the_rows_of_a_triangle(stages: int) -> None:
    triangle = define("def triangle(float(N) A) -> (T) { T(i) +=! A(r) where i in 0:N, r in 0:i }").triangle
    a = whole((40,))
    options = MappingOptions(split_reduction=8, reduction_tile=2, stages=stages)
    kernel = triangle.compile(a, options=options, target="simulator")
    assert ("tc_ask" in kernel.source) == (stages > 1)
    np.testing.assert_array_equal(kernel(a), np.cumsum(a) - a)


def test_whoever_reads_what_came_through_registers_is_accused() -> None:
    triangle = define("def triangle(float(N) A) -> (T) { T(i) +=! A(r) where i in 0:N, r in 0:i }").triangle
    options = MappingOptions(split_reduction=8, reduction_tile=2, stages=1)
    source = triangle.compile(sizes={"N": 40}, options=options, target="simulator").compilation.source
    wrong = source.text.replace("if (2 * part_tile + 2 <= t_part)", "if (2 * part_tile + 1 <= t_part)")
    assert wrong != source.text
    a, t = whole((40,)), np.zeros(40, "float32")
    addresses = [{"A": a, "T": t}[n.name].__array_interface__["data"][0] for n in source.arguments]
    report = load(replace(source, text=wrong)).run(addresses)
    (found,) = report.findings
    assert (found.kind, found.buffer) == (FindingKind.UNINITIALISED, "T_acc0_parts_tile"), str(report)
    assert "copied from where nobody wrote" in str(found) and report.total == found.count
    assert not load(source).run(addresses).findings
