"""How simulations are called: arguments of any layout, status and report, errors, lines and statements."""

from __future__ import annotations

import ctypes
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tcomp.backends.simulator import compiler
from tcomp.backends.simulator.arena import REPORT_WORDS
from tcomp.backends.simulator.report import FindingKind, SimulationError
from tcomp.backends.simulator.simulation import Settings, load
from tcomp.backends.source import REPORT, Launch
from tcomp.errors import TargetError
from tcomp.storage.memo import Memo
from tests.cuda.simulated import (
    BLOCK_SUM,
    MATMUL,
    NEEDS_COMPILER,
    VECTOR_ADD,
    WARP_SUM,
    Array,
    Tensor,
    out,
    simulate,
    source_of,
    whole,
)

pytestmark = NEEDS_COMPILER

COPY = """
extern "C" __global__ void copy(const float *__restrict__ A, float *__restrict__ B) {
  const int j = threadIdx.x;
  for (int i = threadIdx.y; i < 5; i += 2) B[i * 7 + j] = A[i * STEP + j * STRIDE];
}
"""


def strided(a: Array, row: int, column: int, text: str = COPY) -> tuple[str, Launch, list[Tensor]]:
    launch = Launch("copy", (1, 1, 1), (7, 2, 1), 0, ("A", "B"))
    return text.replace("STEP", str(row)).replace("STRIDE", str(column)), launch, [Tensor("A", a), out("B", (5, 7))]


@pytest.mark.parametrize("view", ["plain", "reversed", "transposed", "sparse", "broadcast"])
def test_arguments_of_any_layout(view: str) -> None:
    whole_array = whole((20, 30))
    a: Array = {
        "plain": whole((5, 7)),
        "reversed": whole((5, 7))[::-1, ::-1],
        "transposed": whole((7, 5)).T,
        "sparse": whole_array[2:12:2, 1:22:3],
        "broadcast": np.broadcast_to(whole((7,)), (5, 7)),
    }[view]
    row, column = (s // 4 for s in a.strides)
    text, launch, tensors = strided(a, row, column)
    report = simulate(text, [launch], tensors)
    assert not report.findings, str(report)
    np.testing.assert_array_equal(tensors[1].array, a)


def test_outputs_of_any_layout_leave_what_lies_between() -> None:
    home = np.full((10, 14), 55, np.float32)
    view = home[::2, ::2][::-1]
    text, launch, tensors = strided(whole((5, 7)), 7, 1, COPY.replace("B[i * 7 + j]", "B[-28 * i + 2 * j]"))
    tensors[1] = Tensor("B", view, "output")
    report = simulate(text, [launch], tensors)
    assert not report.findings, str(report)
    np.testing.assert_array_equal(view, tensors[0].array)
    assert np.all(home[1::2] == 55) and np.all(home[:, 1::2] == 55)


def test_what_lies_between_elements_is_out_of_bounds() -> None:
    a = whole((20, 30))[2:12:2, 1:22:3]
    text, launch, tensors = strided(a, 60, 2)
    report = simulate(text, [launch], tensors)
    assert [(f.kind, f.buffer, f.line) for f in report.findings] == [(FindingKind.OUT_OF_BOUNDS, "A", 4)]
    assert report.findings[0].element == "what lies 8 bytes behind A[0, 0]"


def test_alignment_is_that_of_the_callers_memory() -> None:
    text = """
extern "C" __global__ void copy(const float *__restrict__ A, float *__restrict__ B) {
  *reinterpret_cast<float4 *>(B) = *reinterpret_cast<const float4 *>(A);
}
"""
    launch = Launch("copy", (1, 1, 1), (1, 1, 1), 0, ("A", "B"))
    home = np.zeros(64, np.float32)
    start = -home.ctypes.data % 16 // 4
    for offset, kinds in ((0, []), (1, [FindingKind.MISALIGNED]), (4, [])):
        report = simulate(text, [launch], [Tensor("A", home[start + offset :][:4]), out("B", (4,))])
        assert [f.kind for f in report.findings] == kinds


def test_empty_arguments() -> None:
    text = 'extern "C" __global__ void nothing(const float *A, float *B) { if (threadIdx.x > 1) B[0] = A[0]; }'
    launch = Launch("nothing", (1, 1, 1), (2, 1, 1), 0, ("A", "B"))
    tensors = [Tensor("A", np.zeros((0, 4), np.float32)), out("B", (3, 0))]
    assert not simulate(text, [launch], tensors).findings
    wrong = simulate(text.replace("> 1", "> 0"), [launch], tensors)
    assert [f.buffer for f in wrong.findings] == ["A"]


CHECKED = """
extern "C" __global__ void check(const int *__restrict__ I, float *__restrict__ B, long long *__restrict__ report) {
  const int i = I[threadIdx.x];
  if (i >= 8 && atomicExch((unsigned long long *)&report[2], 1ULL) == 0) {
    report[0] = 0;
    report[1] = i;
    report[3] = threadIdx.x;
  }
  B[threadIdx.x] = i < 8 ? 1.0f : 0.0f;
}
"""


def test_entry_reports_failed_checks_as_cpu_kernels_do() -> None:
    launch = Launch("check", (1, 1, 1), (32, 1, 1), 0, ("I", "B", REPORT))
    indices, b = np.arange(32, dtype=np.int32) % 8, out("B", (32,))
    simulation = load(source_of(CHECKED, [launch], [Tensor("I", indices), b]))
    report = (ctypes.c_int64 * REPORT_WORDS)()
    addresses = (indices.ctypes.data, b.array.ctypes.data, None, ctypes.addressof(report))
    assert simulation.entry(*addresses) == 0
    assert report[2] == 0 and np.all(b.array == 1)
    indices[19] = 11
    assert simulation.entry(*addresses) == 1
    assert (report[0], report[1], report[3]) == (0, 11, 19)


def test_entry_raises_what_it_finds() -> None:
    tensors, _ = VECTOR_ADD.make()
    broken = VECTOR_ADD.but("if (i >= 1000) return;", "")
    simulation = load(source_of(broken.text, broken.launches, tensors))
    with pytest.raises(SimulationError, match="access out of bounds") as caught:
        simulation.entry_with(Settings("reverse"))(*(t.array.ctypes.data for t in tensors), None, None)
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.report == caught.value.report
    assert f"at line {broken.line('C[i] =')}" in str(again)


def test_findings_name_statements_and_look_through_functions() -> None:
    text = """
static __device__ __forceinline__ float fetch(const float *p, int i) {
  return p[i];
}
extern "C" __global__ void shift(const float *__restrict__ A, float *__restrict__ B) {
  const int i = threadIdx.x;
  B[i] = fetch(A, i + 1);
}
"""
    tensors = [Tensor("A", whole((64,))), out("B", (64,))]
    for lines, expected in (((), (3, None)), (((7, "S3"),), (7, "S3"))):
        launch = Launch("shift", (1, 1, 1), (64, 1, 1), 0, ("A", "B"), lines)
        finding = simulate(text, [launch], tensors).findings[0]
        assert (finding.line, finding.statement) == expected
        assert finding.party is not None
        assert (finding.party.block, finding.party.thread) == ((0, 0, 0), (63, 0, 0))
        assert finding.element == "what lies 0 bytes behind the end of A[64]"


def test_threads_of_a_block_in_three_dimensions() -> None:
    text = """
extern "C" __global__ void place(int *__restrict__ B) {
  const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  B[block * (blockDim.x * blockDim.y * blockDim.z) + thread] = 100 * block + thread;
}
"""
    b = out("B", (24, 30), "int32")
    report = simulate(text, [Launch("place", (2, 3, 4), (5, 3, 2), 0, ("B",))], [b], Settings("random", 7))
    assert not report.findings, str(report)
    np.testing.assert_array_equal(b.array, 100 * np.arange(24)[:, None] + np.arange(30))


def test_warp_operations() -> None:
    text = """
extern "C" __global__ void warp(int *__restrict__ B) {
  const int t = threadIdx.x, lane = t % 32;
  const unsigned half = 0xffffu << (lane / 16 * 16);
  B[0 * 64 + t] = __shfl_up_sync(0xffffffffu, t, 3);
  B[1 * 64 + t] = __shfl_down_sync(0xffffffffu, t, 3, 8);
  B[2 * 64 + t] = __shfl_xor_sync(half, t, 5, 16);
  B[3 * 64 + t] = (int)__shfl_sync(0xffffffffu, (long long)t, 33);
  B[4 * 64 + t] = (int)__ballot_sync(0xffffffffu, lane % 3 == 0);
  B[5 * 64 + t] = __any_sync(0xffffffffu, t == 40) + 2 * __all_sync(0xffffffffu, t < 32);
  int active = 0;
  if (lane % 2) active = __popc(__activemask());
  B[6 * 64 + t] = active;
  B[7 * 64 + t] = (int)__shfl_xor_sync(0xffffffffu, (double)t, 1);
}
"""
    b = out("B", (8, 64), "int32")
    report = simulate(text, [Launch("warp", (1, 1, 1), (64, 1, 1), 0, ("B",))], [b], Settings("random", 3))
    assert not report.findings, str(report)
    t = np.arange(64)
    lane = t % 32
    thirds = sum(1 << n for n in range(0, 32, 3))
    expected = [
        np.where(lane < 3, t, t - 3),
        np.where(t % 8 + 3 > 7, t, t + 3),
        t ^ 5,
        t - lane + 1,
        np.full(64, np.uint32(thirds).astype(np.int32)),
        np.where(t < 32, 2, 1),
        np.where(t % 2, 16, 0),
        t ^ 1,
    ]
    np.testing.assert_array_equal(b.array, np.array(expected))


def test_runs_of_one_simulation_at_a_time_from_many_threads() -> None:
    tensors, expected = MATMUL.make()
    simulation = load(source_of(MATMUL.text, MATMUL.launches, tensors))

    def run(_: int) -> bool:
        result = np.zeros((64, 32), np.float32)
        report = simulation.run([tensors[0].array.ctypes.data, tensors[1].array.ctypes.data, result.ctypes.data])
        return not report.findings and bool(np.array_equal(result, expected[0]))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(16)))


def test_divergence_says_who_is_missing() -> None:
    finding = BLOCK_SUM.but("part[t] = sum;", "if (t >= 250) return;\n  part[t] = sum;").only_finding()
    assert finding.kind is FindingKind.DIVERGENT_BARRIER
    assert finding.detail == "thread (250, 0, 0) has returned"
    assert finding.other is not None and finding.other.thread == (250, 0, 0)
    assert finding.count == 6


@pytest.mark.long
def test_machines_without_a_switch_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    # pytest's fixtures end the patch, so the runtime that is made here serves nobody else.
    monkeypatch.setattr(compiler, "_RUNTIME_FLAGS", (*compiler._RUNTIME_FLAGS, "-DTC_PORTABLE_SWITCH"))
    monkeypatch.setattr(compiler, "_RUNTIMES", Memo())
    for example in (MATMUL, WARP_SUM, VECTOR_ADD):
        report, results, expected = example.run(Settings("random", 1))
        assert not report.findings, str(report)
        np.testing.assert_array_equal(results[0], expected[0])
    broken = MATMUL.but("__syncthreads();  // tiles are used", "")
    assert {f.kind for f in broken.run()[0].findings} == {FindingKind.RACE}


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tensors, _ = VECTOR_ADD.make()
    source = source_of(VECTOR_ADD.text, VECTOR_ADD.launches, tensors)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(TargetError, match="which is not a program"):
        load(source)
    other = tmp_path / "other++"
    other.write_text("#!/bin/sh\necho other 1.0\n")
    other.chmod(0o755)
    monkeypatch.setenv("CXX", str(other))
    with pytest.raises(TargetError, match="needs GNU's C\\+\\+ compiler"):
        load(source)
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TargetError, match="there is no C\\+\\+ compiler"):
        load(source)


def test_text_that_does_not_compile() -> None:
    tensors, _ = VECTOR_ADD.make()
    broken = VECTOR_ADD.but("C[i] =", "C[j] =")
    with pytest.raises(TargetError, match=f"kernel.cu:{broken.line('C[j]')}:"):
        load(source_of(broken.text, broken.launches, tensors))


def test_frames_beyond_the_stack_are_refused() -> None:
    text = """
extern "C" __global__ void big(float *__restrict__ B) {
  float local[100000];
  for (int i = 0; i < 100000; ++i) local[i] = i * threadIdx.x;
  B[0] = local[(int)B[0]];
}
"""
    with pytest.raises(TargetError, match="frame size"):
        load(source_of(text, [Launch("big", (1, 1, 1), (1, 1, 1), 0, ("B",))], [Tensor("B", whole((1,)), "inout")]))


@pytest.mark.parametrize(
    ("grid", "block", "shared", "message"),
    [
        ((1, 1, 1), (2000, 1, 1), 0, "2000 threads"),
        ((1, 1, 1), (2, 2, 128), 0, "blocks of 2 x 2 x 128 threads"),
        ((1, 65536, 1), (32, 1, 1), 0, "a grid of 1 x 65536 x 1 blocks"),
        ((1, 1, 65536), (32, 1, 1), 0, "a grid of 1 x 1 x 65536 blocks"),
        ((1, 1, 1), (32, 1, 1), 1 << 20, "dynamic shared memory"),
    ],
)
def test_launches_beyond_any_device(
    grid: tuple[int, int, int], block: tuple[int, int, int], shared: int, message: str
) -> None:
    tensors, _ = VECTOR_ADD.make()
    with pytest.raises(TargetError, match=message):
        load(source_of(VECTOR_ADD.text, [Launch("add", grid, block, shared, ("A", "B", "C"))], tensors))
