"""Products of bytes and of floats of 8 bits by warpgroups (sm_90a): results, plans, proofs, faults, machine code."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.cuda.tools.images import compile_image
from tcomp.backends.simulator.report import FindingKind
from tcomp.backends.simulator.simulation import Settings
from tcomp.driver import Compilation
from tcomp.errors import LegalityError
from tcomp.grammar import define
from tcomp.mapping.plan.layouts import Swizzle
from tcomp.mapping.plan.values import Pipeline
from tcomp.mapping.proof.legality import prove_complete
from tests.agreement import assert_agrees
from tests.cuda.compiled import compiled, data_for, run
from tests.cuda.feedings import wrong_feedings
from tests.cuda.machine_code import busiest_loop, loops_of
from tests.cuda.simulated import NEEDS_COMPILER
from tests.cuda.test_matrices import plan_of
from tests.cuda.test_thread_proof import refused
from tests.cuda.texts import Text

pytestmark = pytest.mark.sweep(3)

SIMULATOR, DEVICE = "simulator:sm_90", "cuda:sm_90"
FED = tc.MappingOptions(split_reduction=1, route="tensor")
TYPES = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "s8": "int8", "u8": "uint8"}
KINDS = [*itertools.product(("e4m3", "e5m2"), repeat=2), *itertools.product(("s8", "u8"), repeat=2)]


def text_of(rows: str, columns: str) -> str:
    sums = "int32" if rows in ("s8", "u8") else "float"
    return f"""def f({TYPES[rows]}(M,K) A, {TYPES[columns]}(N,K) B) -> ({sums}(M,N) C) {{
        C(m,n) +=! {sums}(A(m,k)) * {sums}(B(n,k)) }}"""


def letters(rows: str, columns: str) -> str:
    return rows if rows == columns else f"{rows}_{columns}"


def arrays_for(rows: str, columns: str, m: int, n: int, k: int) -> list[np.ndarray[Any, Any]]:
    """Small whole numbers, of whose products no sum loses a bit."""
    types, rng = pytest.importorskip("ml_dtypes"), np.random.default_rng(0)

    def drawn(kind: str, *shape: int) -> np.ndarray[Any, Any]:
        storage = getattr(types, TYPES[kind], TYPES[kind])
        return rng.integers(0 if kind == "u8" else -4, 5, shape).astype(storage)

    return [drawn(rows, m, k), drawn(columns, n, k)]


@NEEDS_COMPILER
@pytest.mark.parametrize(
    ("route", "sizes"), [("async", (97, 131, 211)), ("tensor", (130, 72, 400)), ("tensor", (128, 128, 512))], ids=str
)
@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_results_are_those_of_the_interpreter(kinds: tuple[str, str], route: str, sizes: tuple[int, int, int]) -> None:
    operation, arrays = tc.define(text_of(*kinds)).f, arrays_for(*kinds, *sizes)
    options = replace(FED, route=route)
    source = operation.compile(*arrays, target=SIMULATOR, options=options).source
    assert f"tc_wgmma_{letters(*kinds)}_n" in source and ("tc_tensor_copy" in source) == (route == "tensor")
    found = operation(*arrays, target=SIMULATOR, options=options)
    np.testing.assert_array_equal(found, operation.reference(*arrays))


@NEEDS_COMPILER
@pytest.mark.parametrize("kinds", [("e4m3", "e5m2"), ("u8", "s8")], ids="-".join)
def test_single_warps_multiply_two_types_too(kinds: tuple[str, str]) -> None:
    operation, arrays = tc.define(text_of(*kinds)).f, arrays_for(*kinds, 70, 50, 96)
    assert f"tc_mma_{letters(*kinds)}" in operation.compile(*arrays, target="simulator:sm_89").source
    np.testing.assert_array_equal(operation(*arrays, target="simulator:sm_89"), operation.reference(*arrays))


@NEEDS_COMPILER
@pytest.mark.parametrize(
    "options",
    [
        tc.MappingOptions(stages=1, split_reduction=1),
        tc.MappingOptions(prefetch=False, split_reduction=1),
        tc.MappingOptions(split_reduction=2),
        replace(FED, stages=2, reduction_tile=256, tile_sizes=(64, 64)),
        replace(FED, blocks=(1, 1), tile_sizes=(64, 64)),
    ],
    ids=lambda o: o.to_text(),
)
def test_every_option_gives_the_same(options: tc.MappingOptions) -> None:
    operation, arrays = tc.define(text_of("e4m3", "e4m3")).f, arrays_for("e4m3", "e4m3", 264, 136, 512)
    assert "tc_wgmma" in operation.compile(*arrays, target=SIMULATOR, options=options).source
    found = operation(*arrays, target=SIMULATOR, options=options)
    np.testing.assert_array_equal(found, operation.reference(*arrays))


@NEEDS_COMPILER
def test_sums_leave_after_each_tile() -> None:
    """In one instruction after another 14 bits of a sum of 2,048 terms would be left: 2^-10 would be lost."""
    storage, rng = pytest.importorskip("ml_dtypes").float8_e4m3fn, np.random.default_rng(0)
    a, b = (rng.random((64, 2048)).astype(storage) for _ in range(2))
    operation = tc.define(text_of("e4m3", "e4m3")).f
    found = operation(a, b, target=SIMULATOR, options=FED)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    assert_agrees(operation.function, {"A": a, "B": b}, {"C": found}, matrix_units=True)
    assert 2.0**-14 < (np.abs(found - exact) / exact).max() < 2.0**-12
    plan = plan_of(text_of("e4m3", "e4m3"), replace(FED, reduction_tile=256), DEVICE, M=64, N=64, K=2048)
    assert {c.shape[1] for c in plan.copies} == {128}


def test_bytes_have_places_in_rows_of_128() -> None:
    plan = plan_of(text_of("s8", "s8"), FED, DEVICE, M=256, N=256, K=512)
    assert [(c.shape[1], c.swizzle) for c in plan.copies] == [(128, Swizzle(0, 1, 8)), (128, Swizzle(0, 1))]
    for copy in plan.copies:
        assert copy.swizzle is not None
        places = [copy.swizzle.place(s, k, copy.shape, False, 1) for s in range(copy.shape[0]) for k in range(128)]
        assert sorted(places) == list(range(128 * copy.shape[0]))


class TestPlan:
    @pytest.mark.parametrize(
        ("kinds", "old", "new", "atom"),
        [
            (("e4m3", "e4m3"), "B(n,k)", "B(k,n)", None),
            (("s8", "u8"), "A(m,k)", "A(k,m)", None),
            (("e4m3", "e5m2"), "K)", "96)", "mma.m16n8k32.e4m3.e5m2"),
            (("e4m3", "e5m2"), "K)", "128)", "wgmma.m64k32.e4m3.e5m2"),
        ],
        ids=["columns turned", "rows turned", "few steps", "a row of steps"],
    )
    def test_what_lies_otherwise_is_left_to_others(
        self, kinds: tuple[str, str], old: str, new: str, atom: str | None
    ) -> None:
        text = text_of(*kinds).replace(old, new)
        if atom is None:
            text = text.replace("(N,K)", "(K,N)") if old[0] == "B" else text.replace("(M,K)", "(K,M)")
        sizes = {"M": 128, "N": 128} | ({"K": 256} if "K" in text else {})
        plan = plan_of(text, FED, DEVICE, **sizes)
        assert {o.atom for o in plan.operations.values() if o.atom} == ({atom} if atom else set())

    def test_only_those_whose_sums_stay_run_on(self) -> None:
        """Behind each tile sums of floats of 8 bits are added up: no product may be under way then."""
        for kind, flight in (("e4m3", 0), ("s8", 1)):
            for route in ("async", "tensor"):
                plan = plan_of(text_of(kind, kind), replace(FED, route=route), DEVICE, M=256, N=256, K=1024)
                ((mark, own),) = plan.pipelines.items()
                assert (own.stages, own.distance, own.flight) == (4, 3 - flight, flight)
                changed = replace(plan, pipelines={mark: replace(own, distance=2, flight=1)})
                if kind == "e4m3":
                    with pytest.raises(LegalityError, match="under way"):
                        prove_complete(changed, "test")

    def test_wrong_pipelines_and_deals_are_refused(self) -> None:
        plan = plan_of(text_of("e4m3", "e5m2"), FED, DEVICE, M=256, N=256, K=512)
        assert list(plan.pipelines.values()) == [Pipeline(4, 3, 0, "barriers")]
        mutants = list(wrong_feedings(plan))
        assert len(mutants) > 50
        for mutant in mutants:
            assert refused(mutant.plan), str(mutant)


def _compilation(kind: str, route: str, **sizes: int) -> Compilation:
    return compiled(define(text_of(kind, kind))["f"], sizes, replace(FED, route=route), architecture="sm_90a")


_FAULTS = [
    ("e4m3", "async", "tc_wgmma_wait<0>(tile_sums);", "tc_wgmma_wait<1>(tile_sums);", FindingKind.REGISTERS_IN_FLIGHT),
    ("e4m3", "async", "tc_wgmma_fence(tile_sums);", "", FindingKind.UNFENCED_REGISTERS),
    ("e4m3", "async", ", step > 0);", ", 1);", None),
    ("e4m3", "async", "return place ^ ((place >> 7 & 7) << 4);", "return place;", None),
    ("e4m3", "async", "+ 32 * step], 128, 1024), tc_", "+ 16 * step], 128, 1024), tc_", None),
    ("e4m3", "tensor", "tc_barrier_wait(&full[stage], parity);", "", FindingKind.UNINITIALISED),
    ("e4m3", "tensor", "tc_wgmma_wait<0>(tile_sums);", "tc_wgmma_wait<1>(tile_sums);", FindingKind.RACE),
    ("s8", "tensor", "tc_wgmma_wait<1>(C_acc);", "tc_wgmma_wait<2>(C_acc);", FindingKind.RACE),
    ("s8", "tensor", "128 * k_tile, 8 * box", "64 * k_tile, 8 * box", None),
    ("s8", "tensor", "tc_wgmma_s8_n", "tc_wgmma_u8_n", None),
]
"""What is changed in a text, and what is found: None where the results differ."""


@NEEDS_COMPILER
@pytest.mark.parametrize("fault", _FAULTS, ids=lambda f: f"{f[0]} {f[1]} {f[2][:40]}")
def test_faults_in_texts_are_found(fault: tuple[str, str, str, str, FindingKind | None]) -> None:
    kind, route, old, new, expected = fault
    sizes = {"M": 128, "N": 64, "K": 768}
    compilation = _compilation(kind, route, **sizes)
    source = compilation.source
    assert source.text.count(old) >= 1, source.text[source.text.index("extern") :]
    data = data_for(Text(text_of(kind, kind), sizes), compilation)
    report, results = run(replace(source, text=source.text.replace(old, new)), data, Settings(seed=1))
    found = {f.kind for f in report.findings}
    wrong = any((results[n] != e).any() for n, e in data.expected.items())
    assert expected in found if expected else wrong, str(report)


@pytest.mark.parametrize(
    ("kinds", "instruction", "route", "most"),
    [
        (("e4m3", "e4m3"), "QGMMA", "tensor", 145),
        (("e5m2", "e4m3"), "QGMMA", "async", 185),
        (("s8", "s8"), "IGMMA", "tensor", 90),
        (("u8", "s8"), "IGMMA", "async", 140),
    ],
    ids=str,
)
def test_machine_code(kinds: tuple[str, str], instruction: str, route: str, most: int) -> None:
    """Four instructions for a tile of 128 x 128 floats of 8 bits and 128 steps, or of 128 x 256 bytes."""
    options, eighths = replace(FED, route=route), instruction == "QGMMA"
    sizes = {"M": 1024, "N": 1024, "K": 4096}
    source = compiled(define(text_of(*kinds))["f"], sizes, options, architecture="sm_90").source
    ((_, loops),) = loops_of(source, "sm_90").items()
    loop = busiest_loop(loops, instruction)
    assert loop.count(instruction) == 4 and loop.count("FADD") == (64 if eighths else 0) and loop.total <= most
    image = compile_image(source, "sm_90")
    assert image.architecture == "sm_90a" and "C75" not in image.log
    assert image.kernels[0].spill_stores == 0 and image.kernels[0].registers <= 168
