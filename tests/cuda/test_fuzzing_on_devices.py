"""Random programs on a CUDA device: how arrays get there and back, and what a fault ends.  A module stands for CuPy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcomp import cli
from tcomp.arrays.addresses import data_address
from tcomp.backends.host.runtime import HostProgram
from tcomp.fuzzing.cases import Case
from tcomp.fuzzing.deviceruns import SpoiledError, placed
from tcomp.fuzzing.draws import Draw, draw
from tcomp.fuzzing.execution import Outcome, Verdict, execute
from tcomp.fuzzing.options import MOST_ON_DEVICE, MOST_THREADS
from tcomp.fuzzing.programs.programs import Program
from tcomp.fuzzing.workers import Worker
from tcomp.grammar import parse
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.evaluation import numpy_dtype
from tcomp.runtime import registry
from tcomp.values.operators import BFLOAT16
from tests.cuda.fake_cupy import FakeCupy
from tests.cuda.fake_devices import forget_devices
from tests.cuda.simulated import NEEDS_COMPILER
from tests.cuda.simulated_device import FAULT, TARGET, failing

NUMBERS = np.arange(120, dtype=np.int32).reshape(4, 5, 6)

LAYOUTS = {
    "in C order": NUMBERS,
    "transposed": NUMBERS.transpose(2, 0, 1),
    "reversed": NUMBERS[::-1, :, ::-1],
    "with gaps": NUMBERS[1:, ::2, 1:4],
    "one row again and again": np.broadcast_to(NUMBERS[0, 1], (7, 6)),
    "misaligned": np.arange(41, dtype=np.uint8)[1:].view(np.int32),
    "a number": np.asarray(7.5),
    "empty": np.zeros((3, 0, 2), np.float32),
    "empty in the middle": NUMBERS[2:2, 1:],
    "booleans": NUMBERS[0] % 3 == 1,
    "bfloat16": NUMBERS[:, ::-1].astype(numpy_dtype(BFLOAT16)),
}


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCupy]:
    """A device whose kernels the simulator runs."""
    cupy = FakeCupy()
    forget_devices()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(registry.TARGETS, "cuda", TARGET)
    yield cupy
    forget_devices()


def case_of(text: str, **sizes: int) -> Case:
    return Case(Program(parse(text)[0], sizes), "cuda", MappingOptions())


ONE = case_of("def f(float(N) A) -> (B) { B(i) = A(i) + 1 }", N=3)
TWO = case_of("def f(float(N) A) -> (C) { B(i) = A(i)  C(i) = B(i) }", N=3)


@pytest.mark.parametrize("name", LAYOUTS)
def test_arrays_lie_there_as_they_do_here(name: str, device: FakeCupy) -> None:
    array = LAYOUTS[name]
    found = placed(array)
    there = found.array
    assert (there.shape, there.dtype, there.strides) == (array.shape, array.dtype, array.strides)
    assert there.data.ptr % 16 == data_address(array) % 16
    np.testing.assert_array_equal(there.host, array)
    np.testing.assert_array_equal(found.content(), array)
    found.check()
    assert set(found.memory.host[:1024]) == set(found.memory.host[-1024:]) == {255}


def test_what_is_written_beside_the_elements_is_noticed(device: FakeCupy) -> None:
    output, given = placed(NUMBERS[:, ::2]), placed(NUMBERS)
    output.array.host[...] = 3
    assert (output.content() == 3).all()
    for place in (0, output.offset - 1, output.offset + 4 * 6, output.memory.host.size - 1):
        before = output.memory.host[place]
        output.memory.host[place] = 4
        with pytest.raises(SpoiledError, match=f"1 bytes .* from {place - output.offset} "):
            output.content()
        output.memory.host[place] = before
    given.array.host[1, 2, 3] = 4
    with pytest.raises(SpoiledError, match=r"bytes beside elements were written, from 180 "):
        given.check()


def test_blocks_may_be_larger_than_simulated_ones() -> None:
    sizes = {
        target: [int(np.prod(c.options.threads or 1)) for n in range(16) for c in draw(Draw(1, n, (target,))).cases]
        for target in ("simulator", "cuda")
    }
    assert max(sizes["simulator"]) <= MOST_THREADS < max(sizes["cuda"]) <= MOST_ON_DEVICE


@NEEDS_COMPILER
@pytest.mark.parametrize("relation", ["same", "strided"])
@pytest.mark.parametrize(
    "text",
    [
        "def f(float(N,M) A, bfloat16(M) B) -> (C, D) { C(i,j) = A(i,j) + B(j)  D(j) max=! A(i,j) }",
        "def f(int(N) A) -> (B) { B(i) += A(i) }",
        "def f(const int N, const int M) -> (B) { B(i,j) = i - j where i in 0:N, j in 0:M }",
        "def f(float(N,0) A, float s) -> (B, C) { B(i,j) = A(i,j)  C(i) +=! A(i,j) + s }",
    ],
)
def test_programs_give_what_the_interpreter_gives(text: str, relation: str, device: FakeCupy) -> None:
    case = case_of(text, **{name: size for name, size in {"N": 5, "M": 7}.items() if name in text})
    for variation in range(1 + 2 * (relation == "strided")):
        varied = Case(case.program, "cuda", case.options, relation, variation)
        outcome = execute(varied)
        assert outcome == Outcome(Verdict.PASSED), outcome.detail
    assert device.pool.limit == 128 << 20


@NEEDS_COMPILER
def test_what_no_kernel_has_written_is_no_result(device: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostProgram, "__call__", lambda self, addresses: None)
    outcome = execute(ONE)
    assert outcome.kind == "wrong value" and "B(0,) is nan" in outcome.detail and not outcome.spent


@NEEDS_COMPILER
def test_inputs_are_not_written(device: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    run: Any = HostProgram.__call__
    monkeypatch.setattr(HostProgram, "__call__", lambda self, addresses: run(self, addresses[::-1]))
    outcome = execute(case_of("def f(int(N) A) -> (B) { B(i) += A(i) where i in 0:N }", N=3))
    assert (outcome.verdict, outcome.kind) == (Verdict.FAILED, "written where it must not be")


@pytest.mark.long
def test_a_fault_ends_the_process_and_nothing_else() -> None:
    with Worker(60.0, failing) as worker:
        first, failed, following, last = (worker.run(case).outcome for case in (ONE, TWO, ONE, ONE))
    assert (failed.verdict, failed.kind) == (Verdict.FAILED, "CUDA: cudaErrorIllegalAddress")
    assert first.detail == failed.detail != following.detail == last.detail
    assert {o.verdict for o in (first, following, last)} == {Verdict.PASSED}


def test_only_a_device_that_works_no_more_ends_it(device: FakeCupy) -> None:
    device.failures["upload"] = FAULT
    outcome = execute(ONE)
    assert (outcome.kind, outcome.spent) == ("CUDA: cudaErrorIllegalAddress", False)
    device.failures["device synchronize"] = FAULT
    assert execute(ONE).spent


def test_without_a_device_the_command_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    path = tmp_path / "case.tc"
    path.write_text(ONE.text(), encoding="utf-8")
    for arguments in (["--target", "cuda"], ["--replay", str(path)]):
        assert cli.main(["fuzz", *arguments]) == 3
        assert "the target cuda is not here: the target cuda needs CuPy" in capsys.readouterr().err
