"""Kernels for processors by name: those of this machine's kind run here, others in QEMU."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp import grammar
from tcomp.backends.host import emulated
from tcomp.errors import TargetError
from tcomp.mapping.machines.processors import ARM, PROCESSORS, processor_of
from tcomp.runtime.registry import check_available, runs_emulated
from tests import corpus
from tests.corpus import EXPECTED_ERRORS, Program

Array = np.ndarray[Any, np.dtype[Any]]

TEXT = """
def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
def softmax(float(N,D) X) -> (Y) {
  m(n) max=! X(n,d)
  e(n,d) = exp(X(n,d) - m(n))
  s(n) +=! e(n,d)
  Y(n,d) = e(n,d) / s(n)
}
def rows(float(N,D) T, int32(L) I) -> (O) { O(l,d) = T(I(l),d) }
def scaled(float(N) X) -> (float(N) Y) { Y(n) = Y(n) + 2.0 * X(n) }
def halves(float16(M,K) A, bfloat16(K,N) B) -> (C) { C(m,n) +=! float(A(m,k)) * float(B(k,n)) }
def bytes_(int8(M,K) A, int8(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
"""
OPS = tc.define(TEXT)
ROWS, STEPS, COLUMNS = 37, 53, 45

ONE_EACH = (
    "x86-64-v2",
    "neoverse-v1",
    pytest.param("x86-64", marks=pytest.mark.long),
    pytest.param("cortex-a72", marks=pytest.mark.long),
)
"""Without vectors of AVX, and of each kind of Arm."""


def target_of(name: str) -> str:
    target = f"cpu:{name}"
    try:
        check_available(target)
    except TargetError as error:
        pytest.skip(str(error))
    return target


def integers(*shape: int) -> Array:
    return np.random.default_rng(shape).integers(-3, 4, shape)


@pytest.mark.parametrize("name", ONE_EACH)
def test_kernels_compute_the_same_on_every_processor(name: str) -> None:
    target = target_of(name)
    A, B = integers(ROWS, STEPS), integers(STEPS, COLUMNS)
    left, right = A.astype(np.float32), B.astype(np.float32)
    assert (OPS.mm(left, right, target=target) == A @ B).all()
    assert (OPS.mm(left[::-1, ::-1], right[::-1], target=target) == (A @ B)[::-1]).all()
    assert (OPS.bytes_(A.astype(np.int8), B.astype(np.int8), target=target) == A @ B).all()
    found = OPS.softmax(left[:, ::-1], target=target)
    weights = np.exp(left[:, ::-1].astype(np.float64) - left.max(1, keepdims=True))
    np.testing.assert_allclose(found, weights / weights.sum(1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize("name", ONE_EACH)
def test_narrow_floats_are_converted_as_everywhere(name: str) -> None:
    torch = pytest.importorskip("torch")
    target = target_of(name)
    A, B = integers(9, 21), integers(21, 17)
    found = OPS.halves(torch.tensor(A).half(), torch.tensor(B).bfloat16(), target=target)
    assert (np.asarray(found) == A @ B).all()


@pytest.mark.parametrize("name", ["x86-64-v2", "neoverse-n1"])
def test_what_a_call_reads_and_writes_besides_is_there(name: str) -> None:
    """Content of outputs, arrays that overlap, an error that the kernel finds."""
    target = target_of(name)
    X = np.arange(40, dtype=np.float32)
    Y = np.ones(40, np.float32)
    OPS.scaled(X, out=Y, target=target)
    assert (Y == 1 + 2 * X).all()
    both = np.arange(60, dtype=np.float32)
    assert (OPS.mm(both[:36].reshape(6, 6), both[24:].reshape(6, 6), target=target)
            == both[:36].reshape(6, 6) @ both[24:].reshape(6, 6)).all()  # fmt: skip
    table, places = integers(5, 3).astype(np.float32), np.array([4, 0, 5], np.int32)
    with pytest.raises(tc.TcompError, match="5"):
        OPS.rows(table, places, target=target)
    assert (OPS.rows(table, places[:2], target=target) == table[[4, 0]]).all()


def test_panels_of_bound_arrays_are_packed_there() -> None:
    target = target_of("neoverse-v1")
    A, B = integers(64, 300).astype(np.float32), integers(300, 96).astype(np.float32)
    bound = OPS.mm.bind(B=B)
    assert (bound(A, target=target) == A @ B).all()


PROGRAMS = [p for p in corpus.programs() if p.family not in EXPECTED_ERRORS][::7]


@pytest.mark.sweep(8)
@pytest.mark.filterwarnings("ignore::tcomp.ProgramWarning")
@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_programs_of_the_catalogue(program: Program) -> None:
    """Each on one of the processors with ``aarch64``."""
    names = sorted(name for name, processor in PROCESSORS.items() if processor.instructions == ARM)
    target = target_of(names[PROGRAMS.index(program) % len(names)])
    corpus.check_call(corpus.make_case(program, grammar.define(program.text)[program.name]), target)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", PROCESSORS)
def test_texts_are_for_the_registers_of_the_processor(name: str) -> None:
    processor = processor_of(name)
    kernel = OPS.mm.compile(sizes={"M": 64, "K": 64, "N": 64}, target=f"cpu:{name}")
    source = kernel.compilation.source
    assert source.flags[-len(processor.flags) :] == processor.flags
    assert f"vector_size({processor.machine.vector_bytes})" in source.text
    assert "immintrin" not in source.text or processor.instructions != ARM


def test_a_name_that_is_none_is_refused() -> None:
    with pytest.raises(TargetError, match="neoverse-v1"):
        OPS.mm.compile(sizes={"M": 4, "K": 4, "N": 4}, target="cpu:neoverse")


def test_nothing_is_tuned_by_the_times_of_an_emulator() -> None:
    target = target_of("cortex-a72")
    if not runs_emulated(target):
        pytest.skip("this machine is no other than that")
    with pytest.raises(TargetError, match="emulat"):
        OPS.mm.tune(sizes={"M": 4, "K": 4, "N": 4}, target=target, budget=1)


def test_an_exported_kernel_runs_on_the_processor_that_it_is_for(tmp_path: Path) -> None:
    target_of("cortex-a72")
    tools = emulated.find(processor_of("cortex-a72"))
    kernel = OPS.mm.compile(sizes={"M": 21, "K": 30, "N": 17}, target="cpu:cortex-a72")
    kernel.export(tmp_path)
    program = tmp_path / "example"
    texts = [str(path) for path in tmp_path.glob("*.c")]
    flags = ("-static", "-fopenmp", "-O2", *processor_of("cortex-a72").flags)
    subprocess.run((tools.compiler, *flags, *texts, "-lm", "-lpthread", "-o", str(program)), check=True)
    A, B = integers(21, 30).astype(np.float32), integers(30, 17).astype(np.float32)
    A.tofile(tmp_path / "A.raw")
    B.tofile(tmp_path / "B.raw")
    command = (tools.emulator, str(program), str(tmp_path / "A.raw"), str(tmp_path / "B.raw"))
    subprocess.run(command, check=True, cwd=tmp_path, capture_output=True)
    assert (np.fromfile(tmp_path / "C.raw", np.float32).reshape(21, 17) == A @ B).all()
    header = (tmp_path / "libmm.so").read_bytes()[:20]
    assert int.from_bytes(header[18:], "little") == 183  # EM_AARCH64
