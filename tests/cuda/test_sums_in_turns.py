"""The backward pass of attention: sums over keys and over queries in a kernel each, which store no score."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import islpy as isl
import numpy as np
import pytest

import tcomp as tc
from tcomp.driver import Compilation, lower
from tcomp.errors import LegalityError, PlanError
from tcomp.grammar import define
from tcomp.mapping.rescaling import building
from tcomp.mapping.rescaling.summing import summed, summed_of
from tcomp.mapping.text.writer import plan_text
from tcomp.model.build import build
from tcomp.model.scop import Sizes
from tests.cuda.compiled import BACKEND, compiled
from tests.cuda.machine_code import loops_of
from tests.cuda.mutations import mutants
from tests.cuda.simulated import NEEDS_COMPILER
from tests.cuda.test_turns import ATTENTION, CAUSAL, GROUPED, MASKED, refused

pytestmark = pytest.mark.sweep(3)

SIMULATOR = "simulator:sm_90"


@functools.cache
def backward(text: str) -> str:
    """The gradient of an attention, with what was saved of it."""
    return tc.define(text).f.gradient(["Q", "K", "V"]).text


@functools.cache
def made(text: str, **sizes: int) -> Compilation:
    return compiled(define(backward(text))["f_grad"], sizes)


def arguments(text: str, shapes: dict[str, tuple[int, ...]]) -> list[np.ndarray[Any, Any]]:
    """What a backward pass takes: inputs, what was saved, and cotangents."""
    rng = np.random.default_rng(3)
    given = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    saving, grad = (tc.define(backward(text))[name] for name in ("f_saving", "f_grad"))
    outputs = [t.name for t in saving.function.outputs]
    given |= dict(zip(outputs, saving.reference(*given.values()), strict=True))
    given["d_O"] = rng.standard_normal(given["O"].shape).astype(np.float32)
    return [np.asarray(given[t.name], np.float32) for t in grad.function.inputs]


@NEEDS_COMPILER
@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (ATTENTION, (1, 128, 192, 16, 32)),
        (ATTENTION, (2, 131, 150, 9, 20)),
        (CAUSAL, (1, 133, 140, 8, 8)),
        (MASKED, (1, 130, 129, 8, 12)),
    ],
    ids=["whole", "odd", "causal", "masked"],
)
def test_results_are_those_of_the_interpreter(text: str, sizes: tuple[int, ...]) -> None:
    b, rows, s, d, e = sizes
    shapes = {"Q": (b, rows, d), "K": (b, s, d), "V": (b, s, e)} | ({"M": (rows, s)} if text is MASKED else {})
    grad, given = tc.define(backward(text)).f_grad, arguments(text, shapes)
    found, expected = grad(*given, target=SIMULATOR), grad.reference(*given)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    kernel = grad.compile(*given, target=SIMULATOR)
    assert "d_K_so_far" in kernel.source and kernel.compilation.plan.rescaled


LARGE = {"B": 2, "L": 1024, "S": 1024, "D": 64, "E": 64}


def test_nothing_of_a_query_and_a_key_is_in_global_memory() -> None:
    compilation = made(ATTENTION, **LARGE)
    stored = {n for n, b in compilation.plan.buffers.items() if b.space == "global"}
    assert stored == {"d_O_1_1", "d_z_acc3"}
    assert [group.turns != () for group in compilation.plan.groups] == [False, False, True, True]
    loops = [x for of in loops_of(compilation.source).values() for x in of if x.count("FFMA") > 64]
    assert len(loops) == 7 and all(x.share("FFMA") > 0.75 and x.count("STG", "LDL", "STL") == 0 for x in loops)


def test_a_plan_says_that_sums_run_in_turn() -> None:
    sizes = {"B": 1, "L": 128, "S": 128, "D": 16, "E": 16}
    first = made(ATTENTION, **sizes)
    text = plan_text(first.plan, "barriers")

    def again(changed: str) -> Compilation:
        return lower(define(backward(ATTENTION))["f_grad"], Sizes(sizes), tc.MappingOptions(), BACKEND, True, changed)

    assert again(text).source == first.source
    for before, after in (("steps = 64", "steps = 63"), ('statement = "S7"', 'statement = "S8"')):
        assert before in text
        with pytest.raises((PlanError, LegalityError)):
            again(text.replace(before, after))


NO_HEADS = """def f_grad(float(L,D) X, float(L,E) G, float(D,S) W, float(E,S) U) -> (A, C) {
  s(i,j) +=! X(i,d) * W(d,j)
  t(i,j) +=! G(i,e) * U(e,j)
  p(i,j) = s(i,j) * t(i,j)
  A(i,d) +=! p(i,j) * W(d,j)
  C(d,j) +=! p(i,j) * X(i,d)
}"""
ONE_PRODUCT = """def f_grad(float(B,L,D) Q, float(B,S,D) K, float(B,S,E) V) -> (O) {
  s(b,i,j) +=! Q(b,i,d) * K(b,j,d)
  p(b,i,j) = s(b,i,j) * s(b,i,j)
  O(b,i,e) +=! p(b,i,j) * V(b,j,e)
}"""


@pytest.mark.parametrize("case", ["sums over two indices", "an output", "one product", "no heads"])
def test_what_does_not_run_in_turns(case: str) -> None:
    """Scores are stored anyway for a sum over queries and heads, or as an output; one product is no reason, and without
    heads blocks are few."""
    text = NO_HEADS if case == "no heads" else ONE_PRODUCT
    if case not in ("one product", "no heads"):
        text = backward(GROUPED) if case == "sums over two indices" else backward(ATTENTION)
        text = text if case == "sums over two indices" else text.replace("d_V)", "d_V, float(B, L, S) d_s)")
    function = define(text)["f_grad"]
    sizes = {name: {"H": 4, "G": 2}.get(name, 128 if name in ("L", "S") else 16) for name in function.sizes}
    assert not compiled(function, sizes).plan.rescaled


def small() -> Compilation:
    return made(ATTENTION, B=1, L=64, S=128, D=16, E=16)


def test_mutants_are_refused() -> None:
    """Barriers, copies, buffers and deals of the kernels, one of each kind wrong in one way."""
    chosen = {m.kind: m for m in mutants(small().plan)}
    assert len(chosen) >= 10
    for mutant in chosen.values():
        assert refused(mutant.plan), str(mutant)


@pytest.mark.parametrize(("name", "instance"), [("S0", "0,0,7,3"), ("S1", "0,0,7"), ("S5", "0,0,7"), ("S6", "0,0,0,7")])
def test_the_proof_finds_steps_left_out(monkeypatch: pytest.MonkeyPatch, name: str, instance: str) -> None:
    scop = build(define(backward(ATTENTION))["f_grad"], Sizes({"B": 1, "L": 20, "S": 130, "D": 8, "E": 5}))
    found, whole = summed_of(scop, "S6"), building.Instances.whole.fget
    assert found is not None and whole is not None
    assert summed(scop, found, 64).carried == {"d_Q_so_far": 2}

    def changed(own: building.Instances) -> isl.Map:
        left_out = isl.Set(f"{{ {name}[{instance}] }}")
        return whole(own).subtract_range(left_out) if own.statement.name == name else whole(own)

    monkeypatch.setattr(building.Instances, "whole", property(changed))
    with pytest.raises(LegalityError, match="does not take every step"):
        summed(scop, replace(found), 64)
