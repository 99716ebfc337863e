"""Attention in one kernel, whose blocks take the keys tile by tile with a maximum that runs on."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import islpy as isl
import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.cuda.tools.images import compile_image
from tcomp.backends.opencl.target import OpenClBackend
from tcomp.driver import Compilation, lower
from tcomp.errors import LegalityError, PlanError, TargetError
from tcomp.grammar import define
from tcomp.mapping.machines.opencl import opencl_device
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.proof.legality import prove, prove_complete
from tcomp.mapping.rescaling import building, running
from tcomp.mapping.rescaling.weights import weights_of
from tcomp.mapping.text.writer import plan_text
from tcomp.model.build import build
from tcomp.model.terms.sizes import Sizes
from tests.cuda.compiled import BACKEND, UNSET, Data, compiled, run
from tests.cuda.machine_code import loops_of
from tests.cuda.mutations import mutants
from tests.cuda.simulated import NEEDS_COMPILER

pytestmark = pytest.mark.sweep(3)

ATTENTION = """def f(float(B,L,D) Q, float(B,S,D) K, float(B,S,E) V) -> (O) {
  s(b,i,j) +=! Q(b,i,d) * K(b,j,d)
  m(b,i) max=! s(b,i,j)
  p(b,i,j) = exp((s(b,i,j) - m(b,i)) * rsqrt(float(D)))
  z(b,i) +=! p(b,i,j)
  O(b,i,e) +=! p(b,i,j) * V(b,j,e)
  O(b,i,e) = O(b,i,e) / z(b,i)
}"""
MASKED = ATTENTION.replace("float(B,S,E) V", "float(B,S,E) V, float(L,S) M").replace(
    "max=! s(b,i,j)", "max=! s(b,i,j) + M(i,j)"
).replace("(s(b,i,j) - m(b,i)) * rsqrt(float(D))", "s(b,i,j) + M(i,j) - m(b,i)")  # fmt: skip
CAUSAL = ATTENTION.replace("max=! s(b,i,j)", "max=! j <= i + 60 ? s(b,i,j) : -3.4e38").replace(
    "exp((s(b,i,j) - m(b,i)) * rsqrt(float(D)))", "j <= i + 60 ? exp(s(b,i,j) - m(b,i)) : 0.0"
)
GROUPED = """def f(float(H,L,D) Q, float(G,S,D) K, float(G,S,E) V) -> (O) {
  s(h,i,j) +=! Q(h,i,d) * K(h/2,j,d)
  t(h,i,j) = s(h,i,j) * 0.25
  m(h,i) max=! t(h,i,j)
  p(h,i,j) = exp(t(h,i,j) - m(h,i))
  z(h,i) +=! p(h,i,j)
  O(h,i,e) +=! p(h,i,j) * V(h/2,j,e)
  O(h,i,e) = O(h,i,e) / z(h,i)
}"""


@functools.cache
def made(text: str, **sizes: int) -> Compilation:
    return compiled(define(text)["f"], sizes)


def simulated(text: str, inputs: dict[str, np.ndarray[Any, Any]], **sizes: int) -> np.ndarray[Any, Any]:
    source = made(text, **sizes).source
    (output,) = [a for a in source.arguments if a.role == "output"]
    expected = {output.name: np.full(output.shape, UNSET, np.float32)}
    report, found = run(source, Data(inputs, {}, expected))
    assert not report.findings
    return found[output.name]


def arrays(**shapes: tuple[int, ...]) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(5)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def attention(s: np.ndarray[Any, Any], v: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    with np.errstate(invalid="ignore"):
        p = np.exp(s - s.max(-1, keepdims=True))
        result: np.ndarray[Any, Any] = (p @ v.astype(np.float64)) / p.sum(-1, keepdims=True)
        return result


def scores(inputs: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    q, k = inputs["Q"].astype(np.float64), inputs["K"].astype(np.float64)
    result: np.ndarray[Any, Any] = np.einsum("bid,bjd->bij", q, k)
    return result


@NEEDS_COMPILER
@pytest.mark.parametrize(
    "sizes",
    [(1, 64, 128, 16, 64), (2, 77, 150, 9, 20), (1, 37, 331, 72, 24), (1, 130, 129, 130, 100)],
    ids=["whole", "odd", "few rows", "wide"],
)
def test_results_are_those_of_attention(sizes: tuple[int, ...]) -> None:
    b, rows, s, d, e = sizes
    inputs = arrays(Q=(b, rows, d), K=(b, s, d), V=(b, s, e))
    found = simulated(ATTENTION, inputs, B=b, L=rows, S=s, D=d, E=e)
    np.testing.assert_allclose(found, attention(scores(inputs) * d**-0.5, inputs["V"]), rtol=2e-5, atol=2e-6)
    source = made(ATTENTION, B=b, L=rows, S=s, D=d, E=e).source
    assert len(source.launches) == 1
    assert source.scratch_bytes == 0


@NEEDS_COMPILER
def test_masks_may_hide_whole_tiles_and_whole_rows() -> None:
    inputs = arrays(Q=(1, 33, 8), K=(1, 140, 8), V=(1, 140, 8), M=(33, 140))
    mask = inputs["M"]
    mask[3, :70] = mask[4, 60:] = mask[5, :139] = mask[7] = -np.inf
    mask[1, 40], mask[2, 70], mask[6, 100] = np.nan, np.inf, 3e38
    expected = attention(scores(inputs) + mask, inputs["V"])
    assert np.isnan(expected[0, [1, 2, 7]]).all()
    found = simulated(MASKED, inputs, B=1, L=33, S=140, D=8, E=8)
    np.testing.assert_allclose(found, expected, rtol=5e-5, atol=5e-6)
    assert len(made(MASKED, B=1, L=33, S=140, D=8, E=8).source.launches) == 1


@NEEDS_COMPILER
def test_weights_may_be_zero_under_a_condition() -> None:
    inputs = arrays(Q=(1, 33, 8), K=(1, 140, 8), V=(1, 140, 8))
    hidden = np.arange(140) > np.arange(33)[:, None] + 60
    expected = attention(np.where(hidden, -np.inf, scores(inputs)), inputs["V"])
    found = simulated(CAUSAL, inputs, B=1, L=33, S=140, D=8, E=8)
    np.testing.assert_allclose(found, expected, rtol=5e-5, atol=5e-6)
    assert len(made(CAUSAL, B=1, L=33, S=140, D=8, E=8).source.launches) == 1


@NEEDS_COMPILER
def test_heads_may_share_keys_and_scores_may_have_steps_between() -> None:
    inputs = arrays(Q=(4, 20, 16), K=(2, 130, 16), V=(2, 130, 16))
    heads = inputs | {"K": inputs["K"].repeat(2, 0), "V": inputs["V"].repeat(2, 0)}
    found = simulated(GROUPED, inputs, H=4, G=2, L=20, S=130, D=16, E=16)
    np.testing.assert_allclose(found, attention(scores(heads) * 0.25, heads["V"]), rtol=2e-5, atol=2e-6)
    assert len(made(GROUPED, H=4, G=2, L=20, S=130, D=16, E=16).source.launches) == 1


LARGE = {"B": 2, "L": 1024, "S": 1024, "D": 64, "E": 64}


def test_scores_and_sums_are_in_registers() -> None:
    buffers = made(ATTENTION, **LARGE).plan.buffers
    assert {n: b.space for n, b in buffers.items() if n in ("s_parts", "O_so_far", "z_so_far")} == dict.fromkeys(
        ("s_parts", "O_so_far", "z_so_far"), "private"
    )
    assert all(b.space != "global" for b in buffers.values())
    loops = [loop for loop in loops_of(made(ATTENTION, **LARGE).source)["f_0"] if loop.count("FFMA") > 64]
    assert len(loops) == 2
    for loop in loops:
        assert loop.count("LDG", "STG", "LDL", "STL", "STS") == 0
        assert loop.share("FFMA") > 0.84


def test_wide_results_are_not_spilled() -> None:
    """128 columns are 64 sums of a thread, beside 32 scores."""
    try:
        image = compile_image(made(ATTENTION, B=1, L=64, S=128, D=128, E=128).source, "sm_90")
    except TargetError as error:
        pytest.skip(error.message)
    assert [(k.spill_stores, k.spill_loads) for k in image.kernels] == [(0, 0)]


def test_a_plan_says_that_its_parts_run_in_turn() -> None:
    first = made(ATTENTION, B=1, L=64, S=128, D=16, E=64)
    text = plan_text(first.plan, "barriers")
    sizes = Sizes({"B": 1, "L": 64, "S": 128, "D": 16, "E": 64})

    def again(changed: str) -> Compilation:
        return lower(define(ATTENTION)["f"], sizes, tc.MappingOptions(), BACKEND, True, changed)

    assert again(text).source == first.source
    for before, after in (
        ("turns = [0, 1, 2, 3, 4]", "turns = [0, 1, 2, 3]"),
        ("turns = [0, 1, 2, 3, 4]", "turns = [1, 0, 2, 3, 4]"),
        ('mark: "turn0"', 'mark: "turn1"'),
        ("steps = 64", "steps = 63"),
        ("folded = [2]", "folded = [1]"),
    ):
        assert before in text
        with pytest.raises((PlanError, LegalityError)):
            again(text.replace(before, after))


@pytest.mark.parametrize(
    "text",
    [
        ATTENTION.replace("-> (O)", "-> (O, m)"),
        ATTENTION.replace("-> (O)", "-> (O, s)"),
        ATTENTION.replace("rsqrt(float(D))", "(0 - 0.5)"),
        ATTENTION.replace("max=! s(b,i,j)", "max=! s(b,i,j) * 2"),
        CAUSAL.replace("-3.4e38", "0.0"),
        ATTENTION.replace("K(b,j,d)", "K(b,j,d) where j in 0:i+66")
        .replace("max=! s(b,i,j)", "max=! s(b,i,j) where j in 0:i+66")
        .replace("* rsqrt(float(D)))", ") where j in 0:i+66")
        .replace("+=! p(b,i,j)\n", "+=! p(b,i,j) where j in 0:i+66\n")
        .replace("V(b,j,e)", "V(b,j,e) where j in 0:i+66"),
    ],
    ids=["the maximum", "scores", "negative", "another maximum", "zeros among scores", "a triangle"],
)
def test_what_does_not_run_in_turns(text: str) -> None:
    assert not made(text, B=1, L=64, S=128, D=16, E=64).plan.rescaled


def test_devices_without_shuffles_have_no_turns() -> None:
    sizes = {"B": 1, "L": 64, "S": 128, "D": 16, "E": 64}
    backend = OpenClBackend(opencl_device("gpu"))
    assert not lower(define(ATTENTION)["f"], Sizes(sizes), tc.MappingOptions(), backend).plan.rescaled


def refused(plan: Plan) -> bool:
    try:
        prove(plan, "mutation")
        prove_complete(plan, "mutation")
    except LegalityError:
        return True
    return False


def small() -> Plan:
    return made(ATTENTION, B=1, L=64, S=128, D=16, E=64).plan


def test_mutants_are_refused() -> None:
    """Barriers, copies, buffers and deals of the kernel, one of each kind wrong in one way."""
    plan = small()
    found = [*mutants(plan)]
    chosen = {m.kind: m for m in found}
    assert len(chosen) >= 12
    for mutant in chosen.values():
        assert refused(mutant.plan), str(mutant)


@pytest.mark.exhaustive
def test_all_mutants_are_refused() -> None:
    for mutant in mutants(small()):
        assert refused(mutant.plan), str(mutant)


def test_what_is_carried_needs_a_place_of_its_own_until_it_was_used() -> None:
    """Weights, of which each turn has its own, cannot have one place for all keys of a turn."""
    plan = small()
    weights = plan.buffers["p_parts"]
    lower = weights.lower
    assert lower is not None
    folded = replace(weights, shape=(*weights.shape[:3], 1), folded=(3,))
    with pytest.raises(LegalityError, match="have one place"):
        prove(replace(plan, buffers={**plan.buffers, "p_parts": folded}), "by hand")


def test_the_proof_finds_steps_left_out_and_what_is_not_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    scop = build(define(ATTENTION)["f"], Sizes({"B": 1, "L": 20, "S": 130, "D": 8, "E": 5}))
    weights = weights_of(scop, "S2")
    assert weights is not None
    assert running.running(scop, weights, 64).carried == {"m_so_far": 2, "z_so_far": 2, "O_so_far": 2}
    whole = building.Instances.whole.fget
    assert whole is not None
    for name, instance in (("S0", "0,0,7,3"), ("S1", "0,0,7"), ("S2", "0,0,7"), ("S3", "0,0,7"), ("S4", "0,0,0,7")):
        left_out = isl.Set(f"{{ {name}[{instance}] }}")

        def changed(own: building.Instances, name: str = name, left_out: isl.Set = left_out) -> isl.Map:
            found = whole(own)
            return found.subtract_range(left_out) if own.statement.name == name else found

        with monkeypatch.context() as patch:
            patch.setattr(building.Instances, "whole", property(changed))
            with pytest.raises(LegalityError, match="does not take every step"):
                running.running(scop, weights, 64)
    scale = running._Running._scale

    def forgotten(own: Any, before: Any, top: Any) -> Any:
        """A scale that is not known for one part."""
        made = scale(own, before, top)
        return replace(made, reads=tuple(r.subtract_domain(isl.Set("{ S2s[b,i,1] }")) for r in made.reads))

    monkeypatch.setattr(running._Running, "_scale", forgotten)
    with pytest.raises(LegalityError, match="relative to the maximum so far"):
        running.running(scop, weights, 64)
