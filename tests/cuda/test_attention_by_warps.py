"""Attention of halves in one kernel, whose warps multiply matrices and keep scores and weights in registers."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.driver import Compilation, lower
from tcomp.errors import LegalityError, PlanError
from tcomp.grammar import define
from tcomp.mapping.plan.values import Buffer, Pipeline, Plan
from tcomp.mapping.proof.legality import prove, prove_complete
from tcomp.mapping.text.writer import plan_text
from tcomp.model.evaluation import numpy_dtype
from tcomp.model.reference import interpret
from tcomp.model.terms.sizes import Sizes
from tcomp.values.accuracy import Arithmetic
from tests.cuda.compiled import BACKEND, UNSET, Data, compiled, run
from tests.cuda.machine_code import counted
from tests.cuda.mutations import mutants
from tests.cuda.simulated import NEEDS_COMPILER

pytestmark = pytest.mark.sweep(3)

ROUNDED = """def f(half(B,L,D) Q, half(B,S,D) K, half(B,S,E) V) -> (half(B,L,E) O) {
  s(b,i,j) +=! Q(b,i,d) * K(b,j,d)
  m(b,i) max=! s(b,i,j)
  p(b,i,j) = half(exp((s(b,i,j) - m(b,i)) * rsqrt(float(D))))
  z(b,i) +=! float(p(b,i,j))
  O(b,i,e) +=! p(b,i,j) * V(b,j,e)
  O(b,i,e) = half(O(b,i,e) / z(b,i))
}"""
"""Scores and weights are halves, as those of torch are without a kernel for attention."""

FLASH = """def f(half(B,L,D) Q, half(B,S,D) K, half(B,S,E) V) -> (half(B,L,E) O) {
  s(b,i,j) +=! float(Q(b,i,d)) * float(K(b,j,d))
  m(b,i) max=! s(b,i,j)
  p(b,i,j) = exp((s(b,i,j) - m(b,i)) * rsqrt(float(D)))
  z(b,i) +=! p(b,i,j)
  o(b,i,e) +=! float(half(p(b,i,j))) * float(V(b,j,e))
  O(b,i,e) = half(o(b,i,e) / z(b,i))
}"""
"""Only what multiplies values is rounded, as in FlashAttention."""

CAUSAL = FLASH.replace("max=! s(b,i,j)", "max=! j <= i + 40 ? s(b,i,j) : -3.4e38").replace(
    "exp((s(b,i,j) - m(b,i)) * rsqrt(float(D)))", "j <= i + 40 ? exp(s(b,i,j) - m(b,i)) : 0.0"
)
MASKED = FLASH.replace("half(B,S,E) V", "half(B,S,E) V, float(L,S) M").replace(
    "max=! s(b,i,j)", "max=! s(b,i,j) + M(i,j)"
).replace("(s(b,i,j) - m(b,i)) * rsqrt(float(D))", "s(b,i,j) + M(i,j) - m(b,i)")  # fmt: skip
GROUPED = FLASH.replace("half(B,S", "half(G,S").replace("K(b,", "K(b/2,").replace("V(b,", "V(b/2,")

SMALL = {"B": 1, "L": 64, "S": 128, "D": 16, "E": 32}


@functools.cache
def made(text: str, **sizes: int) -> Compilation:
    return compiled(define(text)["f"], sizes)


def products(plan: Plan) -> list[str]:
    return [o.atom for o in plan.operations.values() if o.kind == "contract"]


def data_of(made_of: Compilation) -> Data:
    rng = np.random.default_rng(5)
    arguments = [a for a in made_of.source.arguments if a.role == "input"]
    inputs = {a.name: rng.standard_normal(a.shape).astype(numpy_dtype(a.dtype)) for a in arguments}
    return Data(inputs, {}, interpret(made_of.function, inputs))


def differences(text: str, **sizes: int) -> tuple[Any, Any]:
    """What the simulator finds, and the interpreter."""
    made_of = made(text, **sizes)
    assert len(made_of.source.launches) == 1
    assert len(products(made_of.plan)) == 2
    data = data_of(made_of)
    expected = data.expected
    unset = {name: np.full(a.shape, UNSET, a.dtype) for name, a in expected.items()}
    report, found = run(made_of.source, Data(data.inputs, {}, unset))
    assert not report.findings
    return found["O"].astype(np.float64), expected["O"].astype(np.float64)


@NEEDS_COMPILER
@pytest.mark.parametrize(
    "sizes",
    [
        (1, 128, 256, 64, 64),
        (2, 77, 150, 32, 48),
        (1, 37, 331, 72, 32),
        (1, 20, 129, 144, 112),
        (1, 33, 140, 40, 40),
        (1, 20, 131, 88, 100),
        (1, 17, 150, 20, 27),
    ],
    ids=["whole", "odd", "odd channels", "many channels", "40 columns", "100 columns", "27 columns"],
)
@pytest.mark.parametrize("text", [ROUNDED, FLASH], ids=["rounded", "flash"])
def test_results_are_those_of_the_interpreter(text: str, sizes: tuple[int, ...]) -> None:
    found, expected = differences(text, **dict(zip("BLSDE", sizes, strict=True)))
    np.testing.assert_allclose(found, expected, rtol=3e-3, atol=1e-3)


@pytest.mark.parametrize(("columns", "products_of_a_turn"), [(40, 44), (88, 92), (100, 108)])
def test_columns_that_fill_no_atoms_are_filled_with_zeros(columns: int, products_of_a_turn: int) -> None:
    """Channels and columns are filled up to 16; the compiler leaves out columns that nobody stores."""
    made_of = made(FLASH, B=4, L=128, S=256, D=columns, E=columns)
    (values,) = [c for c in made_of.plan.copies if c.storage == "V"]
    assert values.shape == (1, 64, -(-columns // 16) * 16)
    turns = counted(made_of.source, "f_0", "HMMA")
    assert turns.count("HMMA") == products_of_a_turn
    assert (turns.count("LDL", "STL"), turns.count("LDG")) == (0, 0)


@NEEDS_COMPILER
@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (CAUSAL, {"B": 1, "L": 150, "S": 150, "D": 16, "E": 16}),
        (MASKED, {"B": 1, "L": 70, "S": 140, "D": 16, "E": 16}),
        (GROUPED, {"B": 4, "G": 2, "L": 33, "S": 130, "D": 16, "E": 32}),
    ],
    ids=["causal", "masked", "grouped"],
)
def test_conditions_masks_and_heads_that_share_keys(text: str, sizes: dict[str, int]) -> None:
    found, expected = differences(text, **sizes)
    np.testing.assert_allclose(found, expected, rtol=3e-3, atol=1e-3)
    (group,) = made(text, **sizes).plan.groups
    assert (group.seen is not None) == (text is CAUSAL)


def test_heads_that_share_keys_fetch_those_of_one() -> None:
    made_of = made(GROUPED.replace("b/2", "b/4"), B=32, G=8, L=64, S=128, D=64, E=64)
    assert {c.storage: c.shape for c in made_of.plan.copies} == dict.fromkeys("QKV", (1, 64, 64))
    text = plan_text(made_of.plan, "barriers")
    sizes = Sizes({"B": 32, "G": 8, "L": 64, "S": 128, "D": 64, "E": 64})
    function = define(GROUPED.replace("b/2", "b/4"))["f"]
    assert lower(function, sizes, tc.MappingOptions(), BACKEND, True, text).source == made_of.source
    wrong = text.replace("floor((i0)/4)", "floor((i0)/8)")
    assert wrong != text
    with pytest.raises((PlanError, LegalityError)):
        lower(function, sizes, tc.MappingOptions(), BACKEND, True, wrong)


@NEEDS_COMPILER
def test_bfloat16() -> None:
    pytest.importorskip("ml_dtypes")
    found, expected = differences(FLASH.replace("half", "bfloat16"), B=1, L=40, S=140, D=32, E=32)
    np.testing.assert_allclose(found, expected, rtol=2e-2, atol=1e-2)


def test_keys_and_values_arrive_in_stages_and_queries_once() -> None:
    plan = made(FLASH, B=2, L=1024, S=1024, D=64, E=64).plan
    marks = {copy.storage: copy.mark for copy in plan.copies}
    assert marks["Q"] == "group0"
    assert plan.pipelines == {marks["K"]: Pipeline(2, 1), marks["V"]: Pipeline(2, 1)}
    assert plan.barriers["group0:copied"] == "block"


@NEEDS_COMPILER
def test_the_simulator_sees_waits_that_are_too_short_and_stages_in_use() -> None:
    made_of = made(FLASH, B=1, L=64, S=256, D=16, E=32)
    data, text = data_of(made_of), made_of.source.text
    faults = [(r"async_wait<3>", "async_wait<4>"), (r"tile\[next_stage\]", "tile[stage]")]
    planted = 0
    for pattern, instead in faults:
        for match in re.finditer(pattern, text):
            wrong = replace(made_of.source, text=f"{text[: match.start()]}{instead}{text[match.end() :]}")
            report, found = run(wrong, data)
            assert report.findings or not np.allclose(found["O"], data.expected["O"], atol=1e-2), instead
            planted += 1
    assert planted == 4


def test_scores_and_weights_are_in_registers() -> None:
    plan = made(FLASH, B=2, L=1024, S=1024, D=64, E=64).plan
    spaces = {b.storage: b.space for b in plan.buffers.values()}
    assert set(spaces.values()) == {"private", "register"}
    assert set(plan.barriers.values()) == {"block"}
    assert products(plan) == ["mma.m16n8k16.f16"] * 2


@pytest.mark.parametrize(
    "text",
    [
        FLASH.replace("float(half(p(b,i,j)))", "p(b,i,j)"),
        FLASH.replace("float(half(p(b,i,j)))", "float(bfloat16(p(b,i,j)))"),
        FLASH.replace("float(V", "float(bfloat16(V").replace("(b,j,e))", "(b,j,e)))"),
    ],
    ids=["weights as they are", "rounded to others", "values rounded"],
)
def test_what_an_instruction_would_round_otherwise_is_multiplied_one_by_one(text: str) -> None:
    made_of = made(text, **SMALL)
    assert made_of.plan.rescaled
    assert not products(made_of.plan)


def refused(plan: Plan) -> bool:
    try:
        prove(plan, "mutation")
        prove_complete(plan, "mutation")
    except LegalityError:
        return True
    return False


@pytest.mark.parametrize("third", range(3))
def test_mutants_are_refused(third: int) -> None:
    """Of each kind one in three storages, or phases, or copies."""
    plan = made(FLASH, **SMALL).plan
    assert not refused(plan)
    by_kind: dict[str, list[Any]] = {}
    for mutant in mutants(plan):
        by_kind.setdefault(mutant.kind, []).append(mutant)
    assert len(by_kind) >= 12
    for own in by_kind.values():
        for mutant in own[:: max(1, len(own) // 3)][third::3]:
            assert refused(mutant.plan), str(mutant)


def test_weights_in_other_lanes_or_registers_are_refused() -> None:
    plan = made(FLASH, **SMALL).plan
    weights = plan.buffers["p_parts"]
    rows, steps = (n for n, d in enumerate(weights.deals) if d.dimension is not None)
    assert weights.lower is not None

    def with_deal(position: int, **changed: Any) -> Buffer:
        deals = [*weights.deals]
        deals[position] = replace(deals[position], **changed)
        shape = [*weights.shape]
        shape[position] = deals[position].elements
        return replace(weights, deals=tuple(deals), shape=tuple(shape))

    wrong = [
        with_deal(steps, vector=1),
        with_deal(steps, vector=4),
        with_deal(steps, threads=8),
        with_deal(rows, vector=2),
        with_deal(rows, dimension=1),
        replace(weights, lower=weights.lower.set_at(steps, weights.lower.get_at(steps) + 2)),
        replace(weights, lower=weights.lower.set_at(rows, weights.lower.get_at(rows) + 8)),
    ]
    for buffer in wrong:
        assert refused(replace(plan, buffers={**plan.buffers, "p_parts": buffer}))


def test_weights_that_are_rounded_take_one_instruction_each_and_others_do_not() -> None:
    text = made(FLASH, **SMALL).source.text
    assert len(re.findall(r"p_(?:parts|scale)\[.* = (?:tc_choose\(part > 0, )?tc_power_of_two\(", text)) == 2
    assert "expf(" not in text
    floats = made(FLASH.replace("float(half(p(b,i,j)))", "p(b,i,j)"), **SMALL).source.text
    assert "tc_power_of_two" not in floats and "expf(" in floats


def test_the_bound_of_such_weights_holds() -> None:
    """What the kernel computes, with 2 ulps for the instruction, against the exponential in doubles."""
    rng = np.random.default_rng(3)
    differences, scale = -rng.uniform(0, 87, 200_000).astype(np.float32), np.float32(1.0)
    power = differences * (scale * np.float32(np.log2(np.e)))
    exact = np.exp(differences.astype(np.float64))
    found = np.exp2(power.astype(np.float64)) * (1 + 2.0**-22)
    ulps = np.abs(found - exact) / np.spacing(exact.astype(np.float32))
    assert 20 < ulps.max() < Arithmetic(rounded_weights=True).function("exp").float32


def test_it_is_text() -> None:
    first = made(FLASH, **SMALL)
    text = plan_text(first.plan, "barriers")

    def again(changed: str) -> Compilation:
        return lower(define(FLASH)["f"], Sizes(SMALL), tc.MappingOptions(), BACKEND, True, changed)

    assert again(text).source == first.source
    for old, new in (('atom = "mma.m16n8k16.f16"', 'atom = "mma.m16n8k16.bf16"'), ("steps = 64", "steps = 63")):
        assert old in text
        with pytest.raises((PlanError, LegalityError)):
            again(text.replace(old, new))


@pytest.mark.parametrize(("text", "most"), [(ROUNDED, 530), (FLASH, 400)], ids=["rounded", "flash"])
def test_a_turn_has_64_products_of_matrices(text: str, most: int) -> None:
    """Of 64 queries and keys, 64 channels and columns, in each warp; nothing is spilled, and no score in memory."""
    turns = counted(made(text, B=16, L=1024, S=1024, D=64, E=64).source, "f_0", "HMMA")
    assert turns.count("HMMA") == 64
    assert turns.count("MUFU.EX2") <= 36
    assert turns.count("LDL", "STL", "CS2R") == 0, "no sum is cleared in the loop"
    assert (turns.count("LDGSTS"), turns.count("LDG"), turns.count("BAR")) == (8, 0, 2)
    assert turns.total <= most
