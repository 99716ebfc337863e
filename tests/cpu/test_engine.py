"""The public interface on the CPU: arrays of any kind and layout in, the same kind out, clear errors."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.host import toolchain
from tcomp.runtime.kernel import Kernel

pytestmark = pytest.mark.sweep(2)

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
PAIR = "def pair(float(N) A) -> (S, D) { S(i) = A(i) + A(i) D(i) = A(i) - 1 }"
SCALE = "def scale(float(N) A, float s) -> (B) { B(i) = s * A(i) }"
SHIFT = "def shift(float(N) A, const int S) -> (B) { B(i) = A(S * i) }"
ADD = "def add(float(N) A) -> (B) { B(i) += A(i) }"
LOOKUP = "def lookup(float(V) T, int32(N) I) -> (B) { B(n) = T(I(n)) }"
SUM = "def total(float(N) A) -> (s) { s +=! A(i) }"


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> object:
    patch = pytest.MonkeyPatch()
    patch.setenv("TCOMP_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture(scope="module")
def ops() -> tc.Module:
    with pytest.warns(tc.ProgramWarning, match="without initialization|not initiali"):
        return tc.define("\n".join((MM, PAIR, SCALE, SHIFT, ADD, LOOKUP, SUM)))


def integers(*shape: int, seed: int = 0) -> np.ndarray:
    """Small integers, so that sums are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


A, B = integers(10, 12), integers(12, 14, seed=1)


def test_numpy_in_numpy_out(ops: tc.Module) -> None:
    result = ops.mm(A, B)
    assert type(result) is np.ndarray and result.dtype == np.float32 and result.flags.c_contiguous
    np.testing.assert_array_equal(result, A @ B)
    np.testing.assert_array_equal(ops.mm.reference(A, B), A @ B)


def _reordered(a: np.ndarray, order: str) -> np.ndarray:
    wide = np.zeros((2 * a.shape[0], 3 * a.shape[1]), np.float32)
    match order:
        case "transposed":
            return np.asfortranarray(a)
        case "reversed":
            return np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1]
        case "spread":
            wide[::2, 1::3] = a
            return wide[::2, 1::3]
        case _:
            return a


@pytest.mark.parametrize("order", ["transposed", "reversed", "spread"])
@pytest.mark.parametrize("other", ["plain", "transposed", "spread"])
def test_any_strides_are_read_and_written(ops: tc.Module, order: str, other: str) -> None:
    a, b = _reordered(A, order), _reordered(B, other)
    np.testing.assert_array_equal(ops.mm(a, b), A @ B)
    out = _reordered(np.zeros((10, 14), np.float32), order)
    assert ops.mm(a, b, out=out) is out
    np.testing.assert_array_equal(out, A @ B)


def test_broadcast_inputs(ops: tc.Module) -> None:
    ones = np.broadcast_to(np.float32(1), (10, 12))
    assert ones.strides == (0, 0)
    np.testing.assert_array_equal(ops.mm(ones, B), ones @ B)


def test_spread_outputs_leave_their_gaps_alone(ops: tc.Module) -> None:
    wide = np.full((20, 42), 7, np.float32)
    ops.mm(A, B, out=wide[::2, 1::3])
    np.testing.assert_array_equal(wide[::2, 1::3], A @ B)
    wide[::2, 1::3] = 7
    assert (wide == 7).all()


def test_torch_in_torch_out(ops: tc.Module) -> None:
    torch = pytest.importorskip("torch")
    a, b = torch.from_numpy(A), torch.from_numpy(B)
    result = ops.mm(a, b)
    assert isinstance(result, torch.Tensor) and torch.equal(result, a @ b)
    assert torch.equal(ops.mm(a.T.contiguous().T, b.flip(0).contiguous().flip(0)), a @ b)
    out = torch.empty(14, 10).T
    assert ops.mm(a, b, out=out) is out and torch.equal(out, a @ b)
    assert torch.equal(ops.mm.reference(a, b), a @ b)


def test_the_first_array_decides_the_kind(ops: tc.Module) -> None:
    torch = pytest.importorskip("torch")
    assert isinstance(ops.mm(torch.from_numpy(A), B), torch.Tensor)
    assert isinstance(ops.mm(A, torch.from_numpy(B)), np.ndarray)
    assert isinstance(ops.scale(torch.ones(3), 2), torch.Tensor)


def test_several_outputs_are_a_tuple(ops: tc.Module) -> None:
    a = integers(9)
    for _ in range(2):
        total, difference = ops.pair(a)
        np.testing.assert_array_equal(total, 2 * a)
        np.testing.assert_array_equal(difference, a - 1)
    mine = np.empty(9, np.float32)
    for out in [(mine, None), {"S": mine}, [mine, None]]:
        given, made = ops.pair(a, out=out)
        assert given is mine
        np.testing.assert_array_equal(made, a - 1)


def test_scalars(ops: tc.Module) -> None:
    a = integers(9)
    for s in (3, 3.0, np.float32(3), np.float64(3), np.asarray(3, np.float32), np.full((1,), 3, np.float32)[0]):
        np.testing.assert_array_equal(ops.scale(a, s), 3 * a)
    result = ops.total(a)
    assert result.shape == () and result == a.sum()
    with pytest.raises(tc.ShapeError, match="input s: expected type float32 but found"):
        ops.scale(a, np.asarray(3.0))
    with pytest.raises(tc.ShapeError, match="input s: expected a tensor with no dimensions"):
        ops.scale(a, a)


def test_constants_are_part_of_the_kernel(ops: tc.Module) -> None:
    a = integers(12)
    for step in (1, 2, np.int64(3), 2):
        np.testing.assert_array_equal(ops.shift(a, step), a[:: int(step)])
    with pytest.raises(tc.ShapeError, match="S is a compile-time constant"):
        ops.shift(a, 2.0)


def test_accumulating_needs_out(ops: tc.Module) -> None:
    a, b = integers(9), integers(9, seed=2)
    with pytest.raises(tc.ShapeError, match="reads the previous content of B"):
        ops.add(a)
    expected = a + b
    reference = b.copy()
    ops.add.reference(a, out=reference)
    ops.add(a, out=b)
    np.testing.assert_array_equal(b, expected)
    np.testing.assert_array_equal(reference, expected)


def test_sizes_zero_and_one(ops: tc.Module) -> None:
    for m, k, n in [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0), (1, 1, 1)]:
        a, b = integers(m, k), integers(k, n)
        np.testing.assert_array_equal(ops.mm(a, b), a @ b)
        np.testing.assert_array_equal(ops.mm(a, b, out=np.full((m, n), 9, np.float32)), a @ b)


def test_subscripts_are_checked(ops: tc.Module) -> None:
    table = integers(10)
    np.testing.assert_array_equal(ops.lookup(table, np.array([0, 9, 3], np.int32)), table[[0, 9, 3]])
    for bad in (10, -1):
        with pytest.raises(tc.ShapeError, match=rf"subscript .*of T in dimension 0 is {bad}.*, but must lie in 0\.\.9"):
            ops.lookup(table, np.array([0, bad, 3], np.int32))
    inside = np.array([9, 0, 3], np.int32)
    np.testing.assert_array_equal(ops.lookup(table, inside, unchecked=True), table[inside])
    assert not ops.lookup.compile(table, inside, unchecked=True).compilation.source.checks


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda mm: mm(A), "mm: expected 2 inputs but found 1"),
        (lambda mm: mm(A, B, B), "mm: expected 2 inputs but found 3"),
        (lambda mm: mm(A, B.astype(np.float64)), "input B: expected type float32 but found float64"),
        (lambda mm: mm(A.astype(np.int32), B), "input A: expected type float32 but found int32"),
        (lambda mm: mm(A[0], B), "input A: expected a tensor with 2 dimensions but found a tensor with 1 dimension"),
        (lambda mm: mm(A, A), "Mismatched sizes for dimension K: 12 by dimension 1 of A"),
        (lambda mm: mm(A, B, out=np.empty((10, 13), np.float32)), r"output C: expected shape \(10, 14\) but found"),
        (lambda mm: mm(A, B, out=np.empty((14, 10), np.float32).T[:5]), r"output C: expected shape \(10, 14\)"),
        (lambda mm: mm(A, B, out=np.empty((10, 14))), "output C: expected type float32 but found float64"),
        (lambda mm: mm(A, B, out=(None, None)), "out= has 2 arrays for 1 outputs"),
        (lambda mm: mm(A, B, out={"D": None}), "out= names D, but its outputs are C"),
        (lambda mm: mm(A, B, out=np.broadcast_to(A[:1, :1], (10, 14))), "read-only"),
        (lambda mm: mm(A, B, out="C"), "output C: expected type float32 but found str"),
        (lambda mm: mm(A.tolist(), B), "found list"),
        (lambda mm: mm.compile(sizes={"M": 3, "K": 4}), "the size N is not given"),
        (lambda mm: mm.compile(sizes={"M": 3, "K": 4, "N": 5, "L": 3}), "mm has no size L"),
        (lambda mm: mm.compile(sizes={"M": 3, "K": 4, "N": -1}), "N is negative"),
        (lambda mm: mm.compile(sizes={"M": 3, "K": 4, "N": 2.5}), "N must be an integer"),
        (lambda mm: mm.compile(A, sizes={"M": 3}), "either arrays or sizes="),
    ],
)
def test_shape_errors(ops: tc.Module, call: Callable[[tc.Operation], object], message: str) -> None:
    with pytest.raises(tc.ShapeError, match=message):
        call(ops.mm)


def test_all_problems_of_a_call_are_reported(ops: tc.Module) -> None:
    with pytest.raises(tc.ShapeError) as caught:
        ops.mm(A.astype(np.int8), B[0])
    assert len(caught.value.diagnostics) == 2


def test_overlap_with_out_is_refused_whether_the_layout_is_new_or_known(ops: tc.Module) -> None:
    square, other = integers(8, 8), integers(8, 8, seed=1)
    wide = np.zeros((16, 8), np.float32)
    for _ in range(2):
        ops.mm(square, other, out=np.empty((8, 8), np.float32))
        with pytest.raises(tc.ShapeError, match="output C shares memory with input A"):
            ops.mm(square, other, out=square)
        with pytest.raises(tc.ShapeError, match="shares memory with input B"):
            ops.mm(square, other, out=other)
        with pytest.raises(tc.ShapeError, match="shares memory with input A"):
            ops.mm(wide[:8], other, out=wide[4:12])
        ops.mm(wide[:8], other, out=wide[8:])
    a = integers(9)
    with pytest.raises(tc.ShapeError, match=r"output \w+ shares memory with output \w+"):
        ops.pair(integers(9), out=(a, a))


def test_interleaved_arrays_do_not_overlap(ops: tc.Module) -> None:
    both = np.zeros((9, 2), np.float32)
    both[:, 0] = np.arange(9)
    ops.scale(both[:, 0], 2.0, out=both[:, 1])
    np.testing.assert_array_equal(both[:, 1], 2 * np.arange(9))


def test_read_only_and_misaligned_arrays_are_noticed_on_known_layouts(ops: tc.Module) -> None:
    a, b, out = integers(4, 4), integers(4, 4), np.empty((4, 4), np.float32)
    ops.mm(a, b, out=out)
    ops.mm(a, b)
    out.flags.writeable = False
    with pytest.raises(tc.ShapeError, match="read-only"):
        ops.mm(a, b, out=out)
    a.flags.writeable = False
    ops.mm(a, b)
    odd = np.zeros(65, np.uint8)[1:].view(np.float32).reshape(4, 4)
    odd[...] = a
    kernel = ops.mm.compile(a, b)
    kernel(a, b)
    for call in (ops.mm, kernel):
        np.testing.assert_array_equal(call(odd, b), a @ b)
        out = np.zeros((4, 4), np.float32)
        np.testing.assert_array_equal(call(odd, b, out=out), a @ b)
        call(a, b, out=out)
        with pytest.raises(tc.ShapeError, match=r"output C: .* not aligned"):
            call(a, b, out=odd)
        np.testing.assert_array_equal(odd, a)


def test_inputs_are_never_written(ops: tc.Module) -> None:
    a, b = A.copy(), B.copy()
    ops.mm(a, b)
    np.testing.assert_array_equal(a, A)
    np.testing.assert_array_equal(b, B)


def test_compile_runs_nothing_and_gives_the_kernel_of_a_call(ops: tc.Module) -> None:
    kernel = ops.mm.compile(A, B)
    assert ops.mm.compile(sizes={"M": 10, "K": 12, "N": 14}) is kernel
    np.testing.assert_array_equal(kernel(A, B), A @ B)
    np.testing.assert_array_equal(kernel(A, B), A @ B)
    assert "mm" in kernel.source and next(iter(kernel.stages)) == "input" and kernel.stages["kernel"] == kernel.source
    assert "M = 10" in kernel.explain()
    assert "mm(M=10, K=12, N=14)" in repr(kernel)
    huge = ops.mm.compile(sizes={"M": 10**5, "K": 10**5, "N": 10**5})
    assert isinstance(huge, Kernel)


def test_a_kernel_takes_only_what_it_was_compiled_for(ops: tc.Module) -> None:
    kernel = ops.mm.compile(A, B)
    for a, b, message in [
        (A[:5], B, r"input A: expected shape \(10, 12\) but found \(5, 12\)"),
        (np.asfortranarray(A), B, "input A: expected strides"),
        (A.astype(np.float64), B, "expected type float32"),
    ]:
        with pytest.raises(tc.ShapeError, match=message):
            kernel(a, b)
    with pytest.raises(tc.ShapeError, match="output C: expected strides"):
        kernel(A, B, out=np.empty((14, 10), np.float32).T)
    with pytest.raises(tc.ShapeError, match="S is 3, but the kernel was compiled for 2"):
        ops.shift.compile(integers(8), 2)(integers(8), 3)


def test_compiling_a_program_that_accumulates_needs_no_out(ops: tc.Module) -> None:
    kernel = ops.add.compile(integers(9))
    out = integers(9, seed=4)
    expected = out + integers(9)
    kernel(integers(9), out=out)
    np.testing.assert_array_equal(out, expected)


def test_options_change_the_kernel_not_the_result(ops: tc.Module) -> None:
    results = [
        ops.mm(A, B, options=options)
        for options in (
            None,
            tc.MappingOptions(),
            tc.MappingOptions(tile_sizes=(3, 5)),
            tc.MappingOptions(parallel=False),
        )
    ]
    for result in results:
        np.testing.assert_array_equal(result, A @ B)
    assert ops.mm.compile(A, B, options=tc.MappingOptions()) is ops.mm.compile(A, B)
    assert ops.mm.compile(A, B, options=tc.MappingOptions(tile_sizes=(3, 5))) is not ops.mm.compile(A, B)


def test_targets(ops: tc.Module) -> None:
    found = tc.targets()
    assert found["cpu"] and "OpenMP" in str(found["cpu"])
    assert set(found) == {"cpu", "cuda", "hip", "opencl", "simulator"}
    with pytest.raises(tc.TargetError, match="no target 'tpu'"):
        ops.mm(A, B, target="tpu")
    with pytest.raises(tc.TargetError, match="must be a name"):
        ops.mm(A, B, target=["cpu"])


def test_names(ops: tc.Module) -> None:
    assert list(ops) == ["mm", "pair", "scale", "shift", "add", "lookup", "total"]
    assert "mm" in dir(ops) and "mm" in ops and ops["mm"] is ops.mm and len(ops) == 7
    with pytest.raises(tc.TcompError, match=r"there is no def mnm\n.*did you mean `mm`"):
        _ = ops.mnm
    with pytest.raises(tc.TcompError, match="the defs are: mm, pair"):
        _ = ops.something_else
    assert not hasattr(ops, "mn") and not hasattr(ops, "__wrapped__")


def test_programs_come_from_text_or_files(tmp_path: Path) -> None:
    path = tmp_path / "mm.tc"
    path.write_text(MM)
    for source in (path, str(path), MM):
        np.testing.assert_array_equal(tc.define(source).mm(A, B), A @ B)
    with pytest.raises(tc.TcompError, match=r"cannot read .*missing.tc: No such file"):
        tc.define(str(tmp_path / "missing.tc"))
    with pytest.raises(tc.TcompError, match="it is not a file"):
        tc.define(tmp_path)
    with pytest.raises(tc.TcompError, match="not bytes"):
        tc.define(MM.encode())
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(tc.CompileError, match="not UTF-8"):
        tc.define(path)
    with pytest.raises(tc.CompileError) as caught:
        tc.define("def f(float(N) A) -> (B) { B(i) = X(i) }", name="mine.tc")
    assert "mine.tc:1:" in str(caught.value)


def test_execution_engine() -> None:
    engine = tc.ExecutionEngine()
    engine.define(MM)
    engine.define("def define(float(N) A) -> (B) { B(i) = -A(i) }")
    np.testing.assert_array_equal(engine.mm(A, B), A @ B)
    np.testing.assert_array_equal(engine["define"](A[0]), -A[0])
    engine.define("def mm(float(N) A) -> (B) { B(i) = 2 * A(i) }")
    np.testing.assert_array_equal(engine.mm(A[0]), 2 * A[0])


def test_operations_can_be_sent_to_other_processes(ops: tc.Module) -> None:
    for copy in (pickle.loads(pickle.dumps(ops)).mm, pickle.loads(pickle.dumps(ops.mm))):
        np.testing.assert_array_equal(copy(A, B), A @ B)


def test_fast_math_stays_inside_the_kernel(ops: tc.Module) -> None:
    np.testing.assert_array_equal(ops.mm(A, B, options=tc.MappingOptions(fast_math=True)), A @ B)
    smallest = np.float64(5e-324)
    assert smallest * 1.0 > 0, "denormals are flushed in this thread now"


def test_interpreting_instead(ops: tc.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCOMP_INTERPRET", "1")
    monkeypatch.setenv("CC", "/no/such/compiler")
    np.testing.assert_array_equal(ops.mm(integers(3, 4), integers(4, 5)), integers(3, 4) @ integers(4, 5))


def test_dumps_can_be_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCOMP_DUMP", str(tmp_path / "dump"))
    kernel = tc.define(MM).mm.compile(A[::-1], B, options=tc.MappingOptions(tile_sizes=(4, 4)))
    monkeypatch.delenv("TCOMP_DUMP")
    (folder,) = (tmp_path / "dump").iterdir()
    done = subprocess.run([sys.executable, str(folder / "repro.py")], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == kernel.source.strip(), done.stderr


def test_many_threads_compile_each_kernel_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    original = toolchain.compiling

    def counting(compiler: toolchain.Toolchain, text: str, *rest: object, **choices: object) -> object:
        compiled.append(text)
        return original(compiler, text, *rest, **choices)

    monkeypatch.setenv("TCOMP_CACHE", "0")
    monkeypatch.setattr(toolchain, "compiling", counting)
    ops = tc.define(MM.replace("* B", "* 3 * B"))
    start = threading.Barrier(64)
    failures: list[object] = []

    def work(number: int) -> None:
        start.wait()
        try:
            for repeat in range(5):
                a, b = integers(6 + number % 4, 5, seed=repeat), integers(5, 7, seed=number)
                if not (ops.mm(a, b) == 3 * (a @ b)).all():
                    failures.append(number)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=work, args=(n,)) for n in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not failures and not any(t.is_alive() for t in threads)
    assert len(compiled) == len(set(compiled)) == 4


def test_a_failed_compilation_is_tried_again(ops: tc.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = integers(3, 11), integers(11, 2)
    with monkeypatch.context() as patch:
        patch.setenv("CC", "/no/such/compiler")
        with pytest.raises(tc.TargetError):
            ops.mm(a, b)
    np.testing.assert_array_equal(ops.mm(a, b), a @ b)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_children_compile_and_run(ops: tc.Module) -> None:
    a, b = integers(150, 160), integers(160, 170)
    expected = a @ b
    np.testing.assert_array_equal(ops.mm(a, b), expected)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        known = (ops.mm(a, b) == expected).all()
        new = (ops.mm(a[:131], b) == expected[:131]).all()
        os._exit(0 if known and new else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_calls_leave_nothing_behind(ops: tc.Module) -> None:
    resource = pytest.importorskip("resource")
    a, b, out = integers(20, 20), integers(20, 20), np.empty((20, 20), np.float32)

    def call(times: int) -> None:
        for _ in range(times):
            ops.mm(a, b)
            ops.mm(a, b, out=out)
            ops.scale(a[0], 2.5)

    call(1000)
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    call(10_000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2048
    assert len(os.listdir("/proc/self/fd")) == descriptors and threading.active_count() == threads


def test_no_room_for_the_result() -> None:
    ops = tc.define("def outer(float(N) A, float(M) B) -> (C) { C(i,j) = A(i) * B(j) }")
    wide = np.broadcast_to(np.float32(1), (1 << 29,))
    with pytest.raises(tc.ShapeError, match="no room for the outputs"):
        ops.outer(wide, wide)


def test_import_is_light() -> None:
    heavy = ("torch", "cupy", "rich", "ml_dtypes", "scipy")
    text = f"import sys, tcomp; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_kernel_can_be_pickled() -> None:
    kernel = tc.define("def f(float(N) A) -> (O) { O(i) = A(i) + 1 }").f.compile(sizes={"N": 5})
    kernel.explain()
    again = pickle.loads(pickle.dumps(kernel))
    np.testing.assert_array_equal(again(np.zeros(5, np.float32)), np.ones(5))
