"""The backward pass of attention: sums over keys and over queries in a kernel each, which store no score."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import islpy as isl
import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.cuda.tools.images import compile_image
from tcomp.driver import Compilation, lower
from tcomp.errors import LegalityError, PlanError, TargetError
from tcomp.grammar import define
from tcomp.mapping.rescaling import building
from tcomp.mapping.rescaling.summing import summed, summed_of
from tcomp.mapping.text.writer import plan_text
from tcomp.model.build import build
from tcomp.model.terms.sizes import Sizes
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


@NEEDS_COMPILER
def test_reductions_beside_them_may_be_split() -> None:
    """Splitting schedules the program anew, and turns have to be known again."""
    options, shapes = tc.MappingOptions(split_reduction=2), {"Q": (1, 131, 16), "K": (1, 140, 16), "V": (1, 140, 16)}
    grad, given = tc.define(backward(ATTENTION)).f_grad, arguments(ATTENTION, shapes)
    plan = grad.compile(*given, target=SIMULATOR, options=options).compilation.plan
    assert plan.stored and [group.turns != () for group in plan.groups].count(True) == 2
    found, expected = grad(*given, target=SIMULATOR, options=options), grad.reference(*given)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_loops_multiply_and_add() -> None:
    compilation = made(ATTENTION, **LARGE)
    loops = [x for of in loops_of(compilation.source).values() for x in of if x.count("FFMA") > 64]
    assert len(loops) == 7 and all(x.share("FFMA") > 0.75 and x.count("STG", "LDL", "STL") == 0 for x in loops)


HALVES = """def f(half(B,L,D) Q, half(B,S,D) K, half(B,S,E) V, half(B,L,E) G, float(B,L) m, float(B,L) z, float(B,L) r)
    -> (dQ, dK, dV) {
  s(b,i,j) +=! float(Q(b,i,d)) * float(K(b,j,d))
  p(b,i,j) = exp((s(b,i,j) - m(b,i)) * rsqrt(float(D))) * z(b,i)
  t(b,i,j) +=! float(G(b,i,e)) * float(V(b,j,e))
  u(b,i,j) = (t(b,i,j) - r(b,i)) * p(b,i,j) * rsqrt(float(D))
  dQ(b,i,d) +=! float(half(u(b,i,j))) * float(K(b,j,d))
  dK(b,j,d) +=! float(half(u(b,i,j))) * float(Q(b,i,d))
  dV(b,j,e) +=! float(half(p(b,i,j))) * float(G(b,i,e))
}"""
"""By hand, as FlashAttention rounds it: ``z`` is one over the sum of weights, ``r`` the sum of G times the results."""


@NEEDS_COMPILER
@pytest.mark.parametrize("sizes", [(1, 128, 128, 16, 32), (2, 131, 150, 32, 48)], ids=["whole", "odd"])
def test_halves_are_multiplied_by_warps(sizes: tuple[int, ...]) -> None:
    b, rows, s, d, e = sizes
    rng, grad = np.random.default_rng(0), tc.define(HALVES).f
    Q, K, V, G = (rng.standard_normal(x).astype(np.float16) for x in ((b, rows, d), (b, s, d), (b, s, e), (b, rows, e)))
    q, k, v, g = (x.astype(np.float64) for x in (Q, K, V, G))
    scores = np.einsum("bid,bjd->bij", q, k)
    top = scores.max(-1)
    p = np.exp((scores - top[..., None]) * d**-0.5)
    z = 1 / p.sum(-1)
    p *= z[..., None]
    t = np.einsum("bie,bje->bij", g, v)
    r = (t * p).sum(-1)
    u = (t - r[..., None]) * p * d**-0.5
    given = (Q, K, V, G, *(x.astype(np.float32) for x in (top, z, r)))
    kernel = grad.compile(*given, target=SIMULATOR)
    atoms = [o.atom for o in kernel.compilation.plan.operations.values() if o.kind == "contract"]
    assert atoms == ["mma.m16n8k16.f16"] * 7
    expected = np.einsum("bij,bjd->bid", u, k), np.einsum("bij,bid->bjd", u, q), np.einsum("bij,bie->bje", p, g)
    for one, other in zip(grad(*given, target=SIMULATOR), expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-3 * np.abs(other).max())


def test_halves_of_many_channels_find_room() -> None:
    """Weights that warps keep take no shared memory, so both fixed operands and four that pass by lie there."""
    plan = compiled(define(HALVES)["f"], {"B": 16, "L": 1024, "S": 1024, "D": 128, "E": 128}).plan
    assert sum(o.kind == "contract" for o in plan.operations.values()) == 7
    assert all(b.space in ("private", "register") for b in plan.buffers.values())


@pytest.mark.long
def test_halves_are_not_spilled() -> None:
    source = compiled(define(HALVES)["f"], {"B": 16, "L": 1024, "S": 1024, "D": 64, "E": 64}).source
    try:
        image = compile_image(source, "sm_90")
    except TargetError as error:
        pytest.skip(error.message)
    assert all(k.spill_stores == k.spill_loads == 0 for k in image.kernels)
    counts = [max(x.count("HMMA") for x in of) for of in loops_of(source).values()]
    assert sorted(counts) == [96, 128]


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
