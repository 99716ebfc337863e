"""Reductions into elements that data choose, stretch by stretch of these: the values, their bits, and the proof."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.arrays.devices import Memory
from tcomp.backends.c.target import CpuBackend
from tcomp.backends.host import native
from tcomp.backends.host.runtime import HostRuntime
from tcomp.driver import Compilation, lower
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cputext import THREADS
from tcomp.mapping.machines.fitted.sweeps import SWEEPS
from tcomp.mapping.text.writer import plan_text
from tcomp.runtime.binding import Binding
from tcomp.runtime.calls import check_call
from tcomp.runtime.given import sizes_of
from tests.cuda.simulated import NEEDS_COMPILER

Array = np.ndarray[Any, np.dtype[Any]]

FEW = Machine(vector_bytes=32, registers=16, datapath_bytes=32, threads=3)
PROGRAMS = {
    "one place": "def f(TYPE(N) V, int32(N) I, int32(M) J) -> (TYPE(70) O) { O(I(i)) OP! V(i) }",
    "short rows": "def f(TYPE(N) V, int32(N) I, int32(M) J) -> (TYPE(70,5) O) { O(I(i),d) OP! V(i) where d in 0:5 }",
    "two places": """def f(TYPE(N) V, int32(N) I, int32(M) J) -> (TYPE(5,70) O) {
        O(J(m) % 5, I(i)) OP! V(i) where m in 0:20 }""",
    "sums": "def f(TYPE(N) V, int32(N) I, int32(M) J) -> (TYPE(70) O) { O(I(i)) OP! V(i) + V(m) where m in 0:3 }",
    "beyond what is there": """def f(TYPE(N) V, int32(N) I, int32(M) J) -> (TYPE(70) O) {
        O(e) = V(e) where e in 0:70
        O(I(i)) OP V(i) where i in 1:N }""",
    "read afterwards": """def f(TYPE(N) V, int32(N) I, int32(M) J) -> (O) {
        H(e) = V(e) where e in 0:70
        H(I(J(m))) OP V(m)
        O(e) = H(e) + H(69 - e) }""",
}


def given(dtype: Any) -> tuple[Array, Array, Array]:
    generator = np.random.default_rng(0)
    values = generator.integers(1, 4, 900).astype(dtype)
    return values, generator.integers(0, 70, 900).astype(np.int32), generator.integers(0, 900, 400).astype(np.int32)


def compiled(f: tc.Operation, *arguments: Any, machine: Machine = FEW, options: Any = None) -> Compilation:
    call = check_call(f.function, arguments, None, memory=Memory.MAIN)
    return lower(f.function, sizes_of(call), options or tc.MappingOptions(), CpuBackend(machine))


def run(f: tc.Operation, compilation: Compilation, *arguments: Any) -> Any:
    """What a kernel computes that was made for another processor."""
    call = check_call(f.function, arguments, None, memory=Memory.MAIN)
    source = compilation.source
    found = Binding(source, HostRuntime(native.load).load(source), call).run(call.arrays, call.outputs)
    return call.finish(tuple(found))


@pytest.fixture
def sweeping() -> Any:
    """As if small tensors were large."""
    before = SWEEPS.least_bytes, THREADS.parallel_instances
    object.__setattr__(SWEEPS, "least_bytes", 1)
    object.__setattr__(THREADS, "parallel_instances", 1)
    yield
    object.__setattr__(SWEEPS, "least_bytes", before[0])
    object.__setattr__(THREADS, "parallel_instances", before[1])


@pytest.mark.usefixtures("sweeping")
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("dtype", "reduction"), [("float", "+="), ("int32", "max="), ("double", "*=")])
def test_values_on_a_processor(name: str, dtype: str, reduction: str) -> None:
    f = tc.define(PROGRAMS[name].replace("TYPE", dtype).replace("OP", reduction)).f
    v, i, j = given(np.dtype("float32" if dtype == "float" else dtype))
    v = np.where(np.arange(900) % 90, 1, v).astype(v.dtype) if reduction == "*=" else v
    made = compiled(f, v, i, j)
    assert [s.count for s in made.plan.swept] == [3]
    assert ("tc_own" if name == "one place" else "tc_place") in made.source.text
    np.testing.assert_array_equal(run(f, made, v, i, j), f.reference(v, i, j))


@NEEDS_COMPILER
@pytest.mark.parametrize("target", ["simulator", "simulator:sm_75"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_on_a_gpu(name: str, target: str) -> None:
    f = tc.define(PROGRAMS[name].replace("TYPE", "float").replace("OP", "+=")).f
    v, i, j = given(np.float32)
    kernel = f.compile(v, i, j, target=target)
    assert kernel.compilation.plan.swept
    np.testing.assert_array_equal(kernel(v, i, j), f.reference(v, i, j))


@pytest.mark.usefixtures("sweeping")
def test_bits_are_those_of_one_thread() -> None:
    f = tc.define(PROGRAMS["one place"].replace("TYPE", "float").replace("OP", "+=")).f
    _, i, j = given(np.float32)
    v = np.random.default_rng(1).standard_normal(900).astype(np.float32)
    one = run(f, compiled(f, v, i, j, machine=replace(FEW, threads=1)), v, i, j)
    for threads in (2, 5, 64):
        made = compiled(f, v, i, j, machine=replace(FEW, threads=threads))
        assert [s.count for s in made.plan.swept] == [min(threads, 24)]
        assert run(f, made, v, i, j).tobytes() == one.tobytes()


@pytest.mark.usefixtures("sweeping")
def test_a_place_outside_is_told_by_the_indices_of_the_program() -> None:
    f = tc.define(PROGRAMS["one place"].replace("TYPE", "float").replace("OP", "+=")).f
    v, i, j = given(np.float32)
    made = compiled(f, v, i, j)
    for wrong in (70, -1, 1 << 30):
        i[411] = wrong
        message = rf"indirect subscript I\(i\) of O in dimension 0 is {wrong} at i = 411, but must lie in 0..69"
        with pytest.raises(tc.ShapeError, match=message):
            run(f, made, v, i, j)


@pytest.mark.usefixtures("sweeping")
def test_one_thread_does_not_look() -> None:
    f = tc.define(PROGRAMS["one place"].replace("TYPE", "float").replace("OP", "+=")).f
    assert not compiled(f, *given(np.float32), options=tc.MappingOptions(parallel=False)).plan.swept


def test_few_instances_and_long_rows_stay_as_they_were() -> None:
    f = tc.define("def f(float(N,D) V, int32(N) I, const int E) -> (float(E,D) O) { O(I(i),d) +=! V(i,d) }").f
    for n, d, e in ((40_000, 1, 30_000), (40_000, 64, 30_000)):
        v, i = np.ones((n, d), np.float32), np.zeros(n, np.int32)
        assert not compiled(f, v, i, e).plan.swept


@NEEDS_COMPILER
def test_a_plan_keeps_them_and_is_refused_without() -> None:
    f = tc.define(PROGRAMS["one place"].replace("TYPE", "float").replace("OP", "+=")).f
    v, i, j = given(np.float32)
    kernel = f.compile(v, i, j, target="simulator")
    plan = plan_text(kernel.compilation.plan, [*kernel.compilation.plans][-1])
    row = '[[swept]]\nstatement = "S0"\ncount = 70\n'
    assert row in plan
    again = f.compile(v, i, j, target="simulator", plan=plan)
    np.testing.assert_array_equal(again(v, i, j), f.reference(v, i, j))
    with pytest.raises(tc.PlanError, match="S0 is no reduction whose elements data choose, or is swept already"):
        f.compile(v, i, j, target="simulator", plan=plan.replace(row, f"{row}\n{row}"))
    with pytest.raises(tc.PlanError, match="the elements of S0 make no 69 stretches of one width"):
        f.compile(v, i, j, target="simulator", plan=plan.replace("count = 70", "count = 69"))
    with pytest.raises((tc.LegalityError, tc.PlanError)):
        f.compile(v, i, j, target="simulator", plan=plan.replace(row, ""))


def test_a_long_histogram_has_a_short_text() -> None:
    f = tc.define("def f(int32(N) I, float(N) V, const int E) -> (float(E) O) { O(I(i)) +=! V(i) }").f
    compilation = f.compile(sizes={"N": 1_000_000, "E": 1_000_000}, target="cuda:sm_90").compilation
    assert len(compilation.source.text) < 20_000
