"""Rows that threads reduce together are read once, in whole vectors, and stay in registers from then on."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.simulator.report import KernelCounts
from tcomp.backends.simulator.simulation import Settings, load
from tcomp.driver import Compilation
from tcomp.errors import PlanError
from tcomp.grammar import define
from tcomp.mapping.text.writer import plan_text
from tests.cuda.compiled import UNSET, compiled
from tests.cuda.machine_code import instructions_of
from tests.cuda.simulated import NEEDS_COMPILER

pytestmark = pytest.mark.sweep(3)

SOFTMAX = """def f(float(N,D) X) -> (Y) {
  M(n) max=! X(n,d)
  E(n,d) = exp(X(n,d) - M(n))
  S(n) +=! E(n,d)
  Y(n,d) = E(n,d) / S(n)
}"""
LOG_SOFTMAX = """def f(float(N,D) X) -> (Y) {
  M(n) max=! X(n,d)
  S(n) +=! exp(X(n,d) - M(n))
  Y(n,d) = X(n,d) - M(n) - log(S(n))
}"""
LAYER_NORM = """def f(float(N,D) X, float(D) g, float(D) b) -> (Y) {
  s(n) +=! X(n,d)
  m(n) = s(n) / D
  v(n) +=! (X(n,d) - m(n)) * (X(n,d) - m(n))
  r(n) = rsqrt(v(n) / D + 0.00001)
  Y(n,d) = (X(n,d) - m(n)) * r(n) * g(d) + b(d)
}"""
RMS_NORM = """def f(float(N,D) X, float(D) g) -> (Y) {
  v(n) +=! X(n,d) * X(n,d)
  Y(n,d) = X(n,d) * rsqrt(v(n) / D + 0.00001) * g(d)
}"""
WITH_STATISTICS = """def f(float(N,D) X) -> (Y, M, S) {
  M(n) max=! X(n,d)
  S(n) +=! exp(X(n,d) - M(n))
  Y(n,d) = X(n,d) - M(n) - log(S(n))
}"""
HALVES = """def f(float16(N,D) X) -> (float16(N,D) Y) {
  M(n) max=! float(X(n,d))
  E(n,d) = exp(float(X(n,d)) - M(n))
  S(n) +=! E(n,d)
  Y(n,d) = float16(E(n,d) / S(n))
}"""
HALVES_TO_FLOATS = HALVES.replace("float16(N,D) Y", "float(N,D) Y").replace(
    "= float16(E(n,d) / S(n))", "= E(n,d) / S(n)"
)
TEXTS = {
    "softmax": SOFTMAX,
    "log-softmax": LOG_SOFTMAX,
    "layer norm": LAYER_NORM,
    "rms norm": RMS_NORM,
    "with statistics": WITH_STATISTICS,
    "halves": HALVES,
    "halves to floats": HALVES_TO_FLOATS,
}


@functools.cache
def made(text: str, n: int, d: int) -> Compilation:
    return compiled(define(text)["f"], {"N": n, "D": d})


def inputs_of(compilation: Compilation) -> dict[str, np.ndarray[Any, Any]]:
    rng, kinds = np.random.default_rng(3), {"float16": np.float16, "float32": np.float32}
    return {
        a.name: rng.standard_normal(a.shape).astype(kinds[a.dtype.name])
        for a in compilation.source.arguments
        if a.role == "input"
    }


def simulated(text: str, n: int, d: int, moved: int = 0) -> KernelCounts:
    """What the kernel does; its results are right.  Arrays begin ``moved`` elements behind a multiple of 16 bytes."""
    compilation = made(text, n, d)
    inputs = inputs_of(compilation)
    expected = tc.define(text).f.reference(*inputs.values())
    source = compilation.source.anywhere if moved else compilation.source
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for a in source.arguments:
        kind = inputs[a.name].dtype if a.name in inputs else np.float16 if a.dtype.name == "float16" else np.float32
        room = np.full(int(np.prod(a.shape)) + moved + 64, UNSET, kind)
        start = -(room.__array_interface__["data"][0] // room.itemsize) % (16 // room.itemsize) + moved
        arrays[a.name] = room[start:][: int(np.prod(a.shape))].reshape(a.shape)
        if a.name in inputs:
            arrays[a.name][...] = inputs[a.name]
    addresses = [arrays[a.name].__array_interface__["data"][0] for a in source.arguments]
    report = load(source).run(addresses, None, Settings(counting=True))
    assert not report.findings, str(report)
    outputs = [a.name for a in source.arguments if a.role == "output"]
    for name, wanted in zip(outputs, expected if len(outputs) > 1 else (expected,), strict=True):
        half = arrays[name].dtype == np.float16
        np.testing.assert_allclose(arrays[name], wanted, rtol=2e-3 if half else 2e-5, atol=1e-4 if half else 2e-5)
    (kernel,) = report.kernels
    return kernel


@NEEDS_COMPILER
class TestMemory:
    """Counts of the simulator."""

    @pytest.mark.parametrize("text", [SOFTMAX, LOG_SOFTMAX, RMS_NORM, LAYER_NORM])
    @pytest.mark.parametrize("d", [1000, 2048, 12672])
    def test_every_sector_is_moved_once(self, text: str, d: int) -> None:
        kernel = simulated(text, 8, d)
        own = [a for a in kernel.select("global") if a.buffer in ("X", "Y")]
        assert sum(a.sectors for a in own) == 2 * 8 * d * 4 // 32
        assert {a.bytes_per_lane for a in own} == {16}
        assert kernel.barriers == (1 if text is RMS_NORM else 2)
        assert kernel.conflicts == 0

    @pytest.mark.parametrize(("d", "width"), [(1002, 8), (1001, 4), (4099, 4)])
    def test_rows_of_other_lengths_are_read_once_in_narrower_vectors(self, d: int, width: int) -> None:
        kernel = simulated(SOFTMAX, 8, d)
        own = list(kernel.select("global"))
        assert sum(a.bytes for a in own) == 2 * 8 * d * 4
        assert {a.bytes_per_lane for a in own} == {width}

    @pytest.mark.parametrize("d", [1000, 1002])
    def test_arrays_that_begin_elsewhere_are_read_once(self, d: int) -> None:
        kernel = simulated(SOFTMAX, 8, d, moved=1)
        own = list(kernel.select("global"))
        assert sum(a.bytes for a in own) == 2 * 8 * d * 4
        assert {a.bytes_per_lane for a in own} == {4}

    @pytest.mark.parametrize(("text", "width"), [(HALVES, {16}), (HALVES_TO_FLOATS, {16})])
    def test_halves_come_eight_at_a_time(self, text: str, width: set[int]) -> None:
        kernel = simulated(text, 8, 4096)
        assert {a.bytes_per_lane for a in kernel.select("global")} == width
        assert sum(a.sectors for a in kernel.select("global", "read")) == 8 * 4096 * 2 // 32

    @pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
    @pytest.mark.parametrize(("n", "d"), [(1111, 128), (530, 96), (600, 260), (3, 37)])
    def test_tiles_of_several_rows(self, text: str, n: int, d: int) -> None:
        compilation = made(text, n, d)
        inputs = inputs_of(compilation)
        f = tc.define(text).f
        found, wanted = f(*inputs.values(), target="simulator"), f.reference(*inputs.values())
        pairs = zip(found, wanted, strict=True) if isinstance(found, tuple) else ((found, wanted),)
        for a, b in pairs:
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-4)


class TestPlans:
    """What the passes decide."""

    def test_rows_and_results_are_in_registers(self) -> None:
        plan = made(SOFTMAX, 4096, 12672).plan
        assert plan.kept == (("X", ("S0", "S1")),)
        assert {b.space for b in plan.buffers.values()} == {"private"}
        assert sum(p.everywhere for p in plan.phases.values()) == 4

    def test_rows_that_do_not_fit_are_read_again(self) -> None:
        plan = made(SOFTMAX, 4096, 40000).plan
        assert plan.kept == () and plan.buffers["E_1"].space != "private"

    def test_what_one_statement_reads_needs_no_copy(self) -> None:
        plan = made("def f(float(N,D) X) -> (S) { S(n) +=! X(n,d) }", 4096, 4096).plan
        assert plan.kept == () and plan.dealt[0].shares[0].vector == 4

    @pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
    def test_a_plan_reads_back(self, text: str) -> None:
        f = tc.define(text).f
        kernel = f.compile(sizes={"N": 64, "D": 1000}, target="cuda:sm_90")
        again = f.compile(
            sizes={"N": 64, "D": 1000}, target="cuda:sm_90", plan=plan_text(kernel.compilation.plan, "barriers")
        )
        assert again.compilation.source.text == kernel.compilation.source.text

    def test_a_plan_cannot_keep_what_is_written(self) -> None:
        f = tc.define(SOFTMAX).f
        sizes = {"N": 64, "D": 1000}
        text = plan_text(f.compile(sizes=sizes, target="cuda:sm_90").compilation.plan, "barriers")
        with pytest.raises(PlanError, match="cannot read E_1 from a temporary"):
            f.compile(
                sizes=sizes,
                target="cuda:sm_90",
                plan=text.replace('storage = "X"\nstatements', 'storage = "E_1"\nstatements'),
            )


class TestMachineCode:
    """What NVIDIA's compiler makes of it."""

    @pytest.mark.parametrize(
        ("text", "d", "loads", "stores"),
        [
            (SOFTMAX, 12672, 7, 7),
            (SOFTMAX, 1000, 1, 1),
            (SOFTMAX, 4096, 4, 4),
            (LAYER_NORM, 4096, 12, 4),
            (HALVES, 4096, 2, 2),
        ],
    )
    def test_vectors_and_barriers(self, text: str, d: int, loads: int, stores: int) -> None:
        source = made(text, 4096, d).source
        code = instructions_of(source)
        assert code.count("LDG") == code.count("LDG.E.128") == loads
        assert code.count("STG") == code.count("STG.E.128") == stores
        assert code.count("BAR") == 2 and code.count("LDL", "STL") == 0


@NEEDS_COMPILER
def test_an_update_that_sums_nothing_beside_a_row_that_is_summed() -> None:
    """``O(n) += O0(n)`` has no index of its own: it is pointwise, in whatever thread has the row."""
    text = """def f(float(N,K) I, float(N) O0) -> (O) {
        O(n) = 0.0 where n in 0:N
        O(n) += O0(n)
        O(n) += I(n, r_n)
        O(n) = O(n) / K
    }"""
    values = np.random.default_rng(0)
    rows, first = values.random((5, 300), np.float32), values.random(5, np.float32)
    found = tc.define(text).f(rows, first, target="simulator")
    np.testing.assert_allclose(found, (first + rows.sum(1)) / 300, rtol=1e-5)
