"""Weights relative to a maximum, and their sums, in parts that have maxima of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import islpy as isl
import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.c.target import CpuBackend
from tcomp.driver import Compilation, lower
from tcomp.errors import LegalityError, PlanError
from tcomp.grammar import define
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted import cpufusion
from tcomp.mapping.rescaling import building, parts
from tcomp.mapping.rescaling.parts import rescaled
from tcomp.mapping.rescaling.weights import weights_of
from tcomp.mapping.text.writer import plan_text
from tcomp.model.build import build
from tcomp.model.islbounds import attempted
from tcomp.model.scop import Scop
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.registry import backend_of

pytestmark = pytest.mark.sweep(3)

ATTENTION = """def f(float(B,L,D) Q, float(B,S,D) K, float(B,S,E) V) -> (O) {
  s(b,i,j) +=! Q(b,i,d) * K(b,j,d)
  m(b,i) max=! s(b,i,j)
  p(b,i,j) = exp((s(b,i,j) - m(b,i)) * rsqrt(float(D)))
  z(b,i) +=! p(b,i,j)
  O(b,i,e) +=! p(b,i,j) * V(b,j,e)
  O(b,i,e) = O(b,i,e) / z(b,i)
}"""
SIZES = {"B": 2, "L": 65, "S": 130, "D": 8, "E": 5}


@pytest.fixture(autouse=True)
def _short_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 32, from rows of 64 on, so that small arrays have several."""
    fitted = replace_fitted(cpufusion.RESCALING, least_steps=64, least_hidden_steps=64, part=32)
    monkeypatch.setattr("tcomp.mapping.cpu.rescaling.RESCALING", fitted)
    monkeypatch.setenv("TCOMP_CACHE", "0")


def replace_fitted(values: Any, **changed: int) -> Any:
    return replace(values, **changed)


def compiled(text: str, plan: str | None = None, **sizes: int) -> Compilation:
    return lower(define(text)["f"], Sizes(SIZES | sizes), tc.MappingOptions(), backend_of("cpu"), True, plan)


def arrays(dtype: Any = np.float32, **sizes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n = SIZES | sizes
    rng = np.random.default_rng(3)
    shapes = (n["B"], n["L"], n["D"]), (n["B"], n["S"], n["D"]), (n["B"], n["S"], n["E"])
    q, k, v = (rng.standard_normal(s).astype(dtype) for s in shapes)
    return q, k, v


def scores(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    return np.einsum("bid,bjd->bij", q.astype(np.float64), k.astype(np.float64))


def attention(s: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        p = np.exp((s - s.max(2, keepdims=True)) * scale)
        return (p @ v.astype(np.float64)) / p.sum(2, keepdims=True)


def test_no_row_of_weights_is_in_memory() -> None:
    made = compiled(ATTENTION)
    assert [(r.weights, r.steps) for r in made.plan.rescaled] == [("S2", 32)]
    weights = made.plan.buffers["p_1_parts"]
    assert weights.space == "tile"
    assert weights.shape[-1] == 32
    q, k, v = arrays()
    np.testing.assert_allclose(
        tc.define(ATTENTION).f(q, k, v), attention(scores(q, k), v, 8**-0.5), rtol=2e-5, atol=1e-6
    )


@pytest.mark.parametrize("steps", [64, 95, 96, 97, 129, 1301])
def test_parts_need_not_be_whole(steps: int) -> None:
    q, k, v = arrays(S=steps)
    expected = attention(scores(q, k), v, 8**-0.5)
    np.testing.assert_allclose(tc.define(ATTENTION).f(q, k, v), expected, rtol=2e-5, atol=1e-6)


def test_what_parts_leave_is_combined_at_the_same_point() -> None:
    """However many parts there are: of each row they leave more than a tile of what combines them would take."""
    machine = Machine(32, 16, 32, 2, nearest_cache=32 << 10, middle_cache=512 << 10, last_cache=32 << 20)
    sizes = Sizes({"B": 2, "L": 1280, "S": 1280, "D": 64, "E": 64})
    plan = lower(define(ATTENTION)["f"], sizes, tc.MappingOptions(), CpuBackend(machine), False, None).plan
    assert [group.sizes[1] for group in plan.groups] == [plan.groups[0].sizes[1]] * 2
    assert plan.groups[1].shared == 2
    assert plan.buffers["O_acc4_parts"].space == "tile"


def test_small_second_caches_hold_shorter_rows() -> None:
    machine = Machine(32, 16, 32, 2, nearest_cache=16 << 10, middle_cache=32 << 10, last_cache=32 << 20)
    sizes = Sizes(SIZES | {"S": 63})
    assert lower(define(ATTENTION)["f"], sizes, tc.MappingOptions(), CpuBackend(machine), False, None).plan.rescaled
    assert not compiled(ATTENTION, S=63).plan.rescaled


def test_doubles_are_rescaled_in_doubles() -> None:
    text = ATTENTION.replace("float(", "double(").replace("rsqrt(double(D))", "0.25")
    assert compiled(text).plan.rescaled
    q, k, v = arrays(np.float64)
    np.testing.assert_allclose(tc.define(text).f(q, k, v), attention(scores(q, k), v, 0.25), rtol=1e-13, atol=1e-15)


VARIANTS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray], float]] = {
    "scaled scores": (
        ATTENTION.replace("max=! s(b,i,j)", "max=! 0.5 * s(b,i,j)").replace(
            "(s(b,i,j) - m(b,i)) * rsqrt(float(D))", "0.5 * s(b,i,j) - m(b,i)"
        ),
        lambda s: s, 0.5,
    ),
    "divided": (ATTENTION.replace("* rsqrt(float(D))", "/ 3"), lambda s: s, 1 / 3),
    "causal": (
        ATTENTION.replace("max=! s(b,i,j)", "max=! j <= i + 65 ? s(b,i,j) : -3.4e38").replace(
            "(s(b,i,j) - m(b,i)) * rsqrt(float(D))", "(j <= i + 65 ? s(b,i,j) : -3.4e38) - m(b,i)"
        ),
        lambda s: np.where(np.arange(130) <= np.arange(65)[:, None] + 65, s, -np.inf), 1.0,
    ),
    "a triangle": (
        ATTENTION.replace("K(b,j,d)", "K(b,j,d) where j in 0:i+66")
        .replace("max=! s(b,i,j)", "max=! s(b,i,j) where j in 0:i+66")
        .replace("* rsqrt(float(D)))", ") where j in 0:i+66")
        .replace("+=! p(b,i,j)\n", "+=! p(b,i,j) where j in 0:i+66\n")
        .replace("V(b,j,e)", "V(b,j,e) where j in 0:i+66"),
        lambda s: np.where(np.arange(130) <= np.arange(65)[:, None] + 65, s, -np.inf), 1.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_other_texts(name: str) -> None:
    text, changed, scale = VARIANTS[name]
    assert compiled(text).plan.rescaled
    q, k, v = arrays()
    expected = attention(changed(scores(q, k)), v, scale)
    np.testing.assert_allclose(tc.define(text).f(q, k, v), expected, rtol=5e-5, atol=2e-6)


MASKED = ATTENTION.replace("float(B,S,E) V", "float(B,S,E) V, float(L,S) M").replace(
    "max=! s(b,i,j)", "max=! s(b,i,j) + M(i,j)"
).replace("(s(b,i,j) - m(b,i)) * rsqrt(float(D))", "s(b,i,j) + M(i,j) - m(b,i)")  # fmt: skip


def test_masks_may_hide_whole_parts_and_whole_rows() -> None:
    assert compiled(MASKED).plan.rescaled
    q, k, v = arrays()
    mask = np.zeros((65, 130), np.float32)
    mask[3, :64] = mask[4, 32:] = mask[5, :129] = -np.inf
    mask[7] = -np.inf
    expected = attention(scores(q, k) + mask, v, 1.0)
    result = tc.define(MASKED).f(q, k, v, mask)
    assert np.isnan(expected[:, 7]).all()
    np.testing.assert_allclose(result, expected, rtol=5e-5, atol=2e-6)


@pytest.mark.parametrize("condition", ["j <= i + 60", "j <= i + 65 && j + 40 > i + 65"], ids=["causal", "window"])
def test_weights_may_be_zero_under_a_condition(condition: str) -> None:
    """Then it is relative to no maximum; the sums of the others are."""
    text = ATTENTION.replace("max=! s(b,i,j)", f"max=! {condition} ? s(b,i,j) : -3.4e38").replace(
        "exp((s(b,i,j) - m(b,i)) * rsqrt(float(D)))", f"{condition} ? exp((s(b,i,j) - m(b,i)) * rsqrt(float(D))) : 0.0"
    )
    assert compiled(text).plan.rescaled
    q, k, v = arrays()
    i, j = np.arange(65)[:, None], np.arange(130)
    seen = (j <= i + 60) if "60" in condition else (j <= i + 65) & (j + 40 > i + 65)
    expected = attention(np.where(seen, scores(q, k), -np.inf), v, 8**-0.5)
    np.testing.assert_allclose(tc.define(text).f(q, k, v), expected, rtol=2e-5, atol=2e-6)


def test_the_largest_score_of_a_part_may_have_weight_0() -> None:
    """Where the maximum is that of all scores, all weights of a part may be small, and their sum below 1."""
    plain, seen = "exp((s(b,i,j) - m(b,i)) * rsqrt(float(D)))", np.arange(130) <= np.arange(65)[:, None]
    text = ATTENTION.replace(plain, f"j <= i ? {plain} : 0.0")
    assert compiled(text).plan.rescaled
    q, k, v = arrays()
    k[:, 66:] *= 3
    result = tc.define(text).f(q, k, v)
    s = scores(q, k).astype(np.float64)
    p = np.where(seen, np.exp((s - s.max(-1, keepdims=True)) * 8**-0.5), 0)
    np.testing.assert_allclose(result, p @ v / p.sum(-1, keepdims=True), rtol=1e-4, atol=1e-5)


def hidden(condition: str) -> str:
    """Attention with weights that are 0 but where a condition holds."""
    return ATTENTION.replace("max=! s(b,i,j)", f"max=! {condition} ? s(b,i,j) : -3.4e38").replace(
        "exp((s(b,i,j) - m(b,i)) * rsqrt(float(D)))", f"{condition} ? exp((s(b,i,j) - m(b,i)) * rsqrt(float(D))) : 0.0"
    )


SEEN = {
    "j <= i": lambda i, j: j <= i,
    "j >= 2 * i": lambda i, j: j >= 2 * i,
    "j <= i + 65 && j + 20 > i + 65": lambda i, j: (j <= i + 65) & (j + 20 > i + 65),
    "j <= 3 * i && i % 3 == 0": lambda i, j: (j <= 3 * i) & (i % 3 == 0),
    "j / 40 == i / 20": lambda i, j: j // 40 == i // 20,
}


@pytest.mark.parametrize("condition", SEEN)
def test_parts_of_which_a_row_sees_nothing_are_left_out(condition: str) -> None:
    made = compiled(hidden(condition))
    i, j = np.arange(65)[:, None], np.arange(130)
    seen = np.broadcast_to(SEEN[condition](i, j), (65, 130))
    count = sum(seen[:, first : first + 32].any(1).sum() for first in range(0, 130, 32))
    assert made.plan.rescaled and 0 < count < 65 * 5
    domains = [made.plan.scop.by_name[name].domain.count_val().to_python() for name in ("S1t", "S3", "S2s")]
    affine = not {"/", "%"} & {*condition}
    assert all(2 * count <= found < 2 * 65 * 5 and (found == 2 * count or not affine) for found in domains)
    steps = [made.plan.scop.by_name[name].domain.count_val().to_python() for name in ("S1r", "S2r", "S3r", "S4r")]
    assert all((found == 2 * seen.sum() * times) == affine for found, times in zip(steps, (1, 1, 1, 5), strict=True))
    q, k, v = arrays()
    expected = attention(np.where(seen, scores(q, k), -np.inf), v, 8**-0.5)
    np.testing.assert_allclose(tc.define(hidden(condition)).f(q, k, v), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("score", "quick"), [("s(b,i,j)", True), ("(j <= i ? s(b,i,j) : -3.4e38)", True), ("(s(b,i,j) * 3.0)", False)]
)
def test_exponentials_know_that_weights_are_at_most_1(score: str, quick: bool) -> None:
    """Not where a compiler may fuse a product with the subtraction, so that a score is above its maximum."""
    text = ATTENTION.replace("max=! s(b,i,j)", f"max=! {score}").replace("(s(b,i,j) - m(b,i))", f"({score} - m(b,i))")
    made = compiled(text)
    assert made.plan.rescaled
    assert ("= tc_exp_of_scaled_weight_float(" in made.source.text) == quick
    fast = lower(define(text)["f"], Sizes(SIZES), tc.MappingOptions(fast_math=True), backend_of("cpu"))
    assert "tc_exp_of" not in fast.source.text


@pytest.mark.parametrize(
    ("exponent", "scaled"),
    [
        ("(s(b,i,j) - m(b,i)) / sqrt(float(D))", True),
        ("rsqrt(float(D)) * (s(b,i,j) - m(b,i))", True),
        ("s(b,i,j) - m(b,i)", False),
        ("2.0 * (s(b,i,j) - m(b,i)) * 0.25", False),
        ("(s(b,i,j) - m(b,i)) * 1e30", False),
    ],
)
def test_a_known_factor_goes_into_the_exponential(exponent: str, scaled: bool) -> None:
    """Factors so large that they would overflow with log2(e) do not."""
    made = compiled(ATTENTION.replace("(s(b,i,j) - m(b,i)) * rsqrt(float(D))", exponent))
    assert made.plan.rescaled
    assert ("= tc_exp_of_scaled_weight_float(" in made.source.text) == scaled
    assert ("= tc_exp_of_weight_float(" in made.source.text) != scaled


def test_rows_that_see_a_union_take_isl_no_longer() -> None:
    """Of maps with quotients, or not coalesced, the proof takes ten million operations."""
    scop = lower(
        define(hidden("(i < 29 || j < 29)"))["f"],
        Sizes(SIZES | {"L": 600, "S": 60}),
        tc.MappingOptions(),
        backend_of("cpu"),
    ).plan.program
    weights = weights_of(scop, "S2")
    assert weights is not None
    assert attempted(lambda: rescaled(scop, weights, 20), 300_000) is not None


@pytest.mark.parametrize("condition", ["j <= i", "j < i"])
def test_low_scores_are_left_out_where_each_row_has_others(condition: str) -> None:
    score = f"({condition} ? s(b,i,j) : -3.4e38)"
    text = ATTENTION.replace("max=! s(b,i,j)", f"max=! {score}").replace("(s(b,i,j) - m(b,i))", f"({score} - m(b,i))")
    made = compiled(text)
    assert made.plan.rescaled
    assert (made.plan.scop.by_name["S1t"].domain.count_val().to_python() < 2 * 65 * 5) == (condition == "j <= i")
    q, k, v = arrays()
    np.testing.assert_allclose(tc.define(text).f(q, k, v), tc.define(text).f.reference(q, k, v), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(("factor", "is_hidden"), [("1e-36", False), ("1e-3 * 1e-25", False), ("1e-20", True)])
def test_a_small_factor_gives_low_scores_a_weight(factor: str, is_hidden: bool) -> None:
    """``exp(-1e30 * 1e-36)`` is no 0."""
    score = "(j <= i ? s(b,i,j) : -1e30)"
    text = ATTENTION.replace("max=! s(b,i,j)", f"max=! {score}").replace("(s(b,i,j) - m(b,i))", f"({score} - m(b,i))")
    text = text.replace("rsqrt(float(D))", factor)
    made = compiled(text)
    assert made.plan.rescaled
    assert (made.plan.scop.by_name["S1t"].domain.count_val().to_python() < 2 * 65 * 5) == is_hidden
    q, k, v = arrays()
    np.testing.assert_allclose(tc.define(text).f(q, k, v), tc.define(text).f.reference(q, k, v), rtol=2e-5, atol=2e-6)


def test_rows_that_see_low_numbers_alone_see_all_steps() -> None:
    score = "(j <= i ? (j >= 20 ? s(b,i,j) : -3.4e38) : -3.4e38)"
    text = ATTENTION.replace("max=! s(b,i,j)", f"max=! {score}").replace("(s(b,i,j) - m(b,i))", f"({score} - m(b,i))")
    q, k, v = arrays()
    np.testing.assert_allclose(tc.define(text).f(q, k, v), tc.define(text).f.reference(q, k, v), rtol=2e-5, atol=2e-6)


def test_scores_that_read_nothing_where_they_are_seen_stay() -> None:
    score = "(j <= i + 65 ? (j < 60 ? s(b,i,j) : 1.0) : -3.4e38)"
    text = ATTENTION.replace("max=! s(b,i,j)", f"max=! {score}").replace("(s(b,i,j) - m(b,i))", f"({score} - m(b,i))")
    q, k, v = arrays()
    np.testing.assert_allclose(tc.define(text).f(q, k, v), tc.define(text).f.reference(q, k, v), rtol=2e-5, atol=2e-6)


def test_a_maximum_that_is_handed_out_is_that_of_hidden_scores_too() -> None:
    """Where a row sees nothing; else it is the same."""
    q, k, v = arrays()
    for condition in ("j <= i", "j < i"):
        text = hidden(condition).replace("-> (O)", "-> (O, m)")
        count = compiled(text).plan.scop.by_name["S1t"].domain.count_val().to_python()
        assert (count == 2 * 65 * 5) == (condition == "j < i")
        operation = tc.define(text).f
        for one, other in zip(operation(q, k, v), operation.reference(q, k, v), strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


def test_only_weights_that_are_0_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    scop = scop_of(hidden("j <= i"))
    weights = weights_of(scop, "S2")
    assert weights is not None
    assert weights.hides
    seen = parts.Rescaling.seen_parts
    fewer = isl.Set("{ [b, i, part] : i != 50 or part != 1 }")
    monkeypatch.setattr(parts.Rescaling, "seen_parts", lambda self: seen(self).intersect(fewer))
    with pytest.raises(LegalityError, match="does not take every step"):
        rescaled(scop, weights, 16)


STORED = ATTENTION.replace("  m(b,i)", "  s(b,i,j) = s(b,i,j) * 0.5 + M(i,j)\n  m(b,i)").replace(
    "* rsqrt(float(D)))", ")").replace("float(B,S,E) V", "float(B,S,E) V, float(L,S) M")  # fmt: skip


def test_scores_may_be_stored_before() -> None:
    assert [r.weights for r in compiled(STORED).plan.rescaled] == ["S3"]
    q, k, v = arrays()
    mask = np.random.default_rng(5).standard_normal((65, 130)).astype(np.float32)
    expected = attention(0.5 * scores(q, k) + mask, v, 1.0)
    np.testing.assert_allclose(tc.define(STORED).f(q, k, v, mask), expected, rtol=2e-5, atol=2e-6)


def test_infinities_and_nan_are_those_of_whole_rows() -> None:
    q, k, v = arrays()
    mask = np.zeros((65, 130), np.float32)
    mask[1, 40], mask[2, 70], mask[3, 100] = np.nan, np.inf, 3e38
    result, expected = tc.define(MASKED).f(q, k, v, mask), attention(scores(q, k) + mask, v, 1.0)
    assert np.isnan(expected[:, 1:3]).all()
    np.testing.assert_allclose(result, expected, rtol=5e-5, atol=2e-6)


def test_the_maximum_may_be_handed_out() -> None:
    text = ATTENTION.replace("-> (O)", "-> (O, m, z)")
    assert compiled(text).plan.rescaled
    q, k, v = arrays()
    out, m, z = tc.define(text).f(q, k, v)
    s = scores(q, k)
    np.testing.assert_allclose(m, s.max(2), rtol=1e-5)
    np.testing.assert_allclose(z, np.exp((s - s.max(2, keepdims=True)) * 8**-0.5).sum(2), rtol=2e-5)
    np.testing.assert_allclose(out, attention(s, v, 8**-0.5), rtol=2e-5, atol=1e-6)


def test_several_sums_and_none_of_the_weights_alone() -> None:
    text = """def f(float(B,L,D) Q, float(B,S,D) K, float(B,S,E) V) -> (O, P) {
      s(b,i,j) +=! Q(b,i,d) * K(b,j,d)
      m(b,i) max=! s(b,i,j)
      p(b,i,j) = exp(s(b,i,j) - m(b,i))
      O(b,i,e) +=! p(b,i,j) * V(b,j,e)
      P(b,i) +=! V(b,j,0) * V(b,j,1) * p(b,i,j)
    }"""
    assert compiled(text).plan.rescaled
    q, k, v = arrays()
    s = scores(q, k)
    p = np.exp(s - s.max(2, keepdims=True))
    out, other = tc.define(text).f(q, k, v)
    np.testing.assert_allclose(out, p @ v.astype(np.float64), rtol=5e-5, atol=5e-6)
    np.testing.assert_allclose(other, np.einsum("bij,bj->bi", p, v[..., 0] * v[..., 1]), rtol=5e-5, atol=5e-6)


@pytest.mark.parametrize(
    "text",
    [
        ATTENTION.replace("-> (O)", "-> (O, p)"),
        ATTENTION.replace("-> (O)", "-> (O, s)"),
        ATTENTION.replace("rsqrt(float(D))", "(0 - 0.5)"),
        ATTENTION.replace("rsqrt(float(D))", "V(b,0,0)"),
        ATTENTION.replace("max=!", "min=!"),
        ATTENTION.replace("p(b,i,j) * V", "p(b,i,j) * p(b,i,j) * V"),
        ATTENTION.replace("+=! p(b,i,j) * V", "max=! p(b,i,j) * V"),
        ATTENTION.replace("max=! s(b,i,j)", "max=! s(b,i,j) where j in 0:S-1"),
        ATTENTION.replace("m(b,i) max=! s(b,i,j)", "m(b,i) max=! s(b,i,j) * 2"),
    ],
    ids=["weights", "scores", "negative", "data", "minimum", "squares", "maxima", "others", "of others"],
)
def test_what_is_not_rescaled(text: str) -> None:
    assert not compiled(text).plan.rescaled


def test_rows_that_a_cache_holds_stay_whole() -> None:
    assert not compiled(ATTENTION, S=63).plan.rescaled
    made = lower(define(ATTENTION)["f"], Sizes(SIZES), tc.MappingOptions().tile(1, 16), backend_of("cpu"), True, None)
    assert not made.plan.rescaled


def test_a_plan_says_how_it_was_rescaled() -> None:
    made = compiled(ATTENTION)
    text = plan_text(made.plan, [*made.plans][-1])
    assert "rescaled" in text
    again = compiled(ATTENTION, plan=text)
    assert again.source == made.source
    for before, after in (("steps = 32", "steps = 0"), ('statement = "S2"', 'statement = "S1"')):
        assert before in text
        with pytest.raises(PlanError, match="no weights that can be computed in parts"):
            compiled(ATTENTION, plan=text.replace(before, after, 1))


def scop_of(text: str) -> Scop:
    """The program as it is before any pass."""
    return build(define(text)["f"], Sizes(SIZES | {"S": 40}))


def test_the_proof_finds_steps_left_out_and_taken_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    scop = scop_of(ATTENTION)
    weights = weights_of(scop, "S2")
    assert weights is not None
    made, storages = rescaled(scop, weights, 16)
    assert {"O_acc4_parts", "z_acc3_parts"} <= storages
    assert made.by_name["S4r"].reduction == "+"
    whole = building.Instances.whole.fget
    assert whole is not None

    def changed(change: Callable[..., isl.Map]) -> None:
        monkeypatch.setattr(building.Instances, "whole", property(lambda own: change(whole(own), own.statement.name)))
        with pytest.raises(LegalityError, match="does not take every step"):
            rescaled(scop, weights, 16)

    for name, instance in (("S2", "0,0,7"), ("S3", "0,0,7"), ("S4", "0,0,0,7")):
        left_out = isl.Set(f"{{ {name}[{instance}] }}")
        changed(lambda m, own, name=name, left_out=left_out: m.subtract_range(left_out) if own == name else m)
