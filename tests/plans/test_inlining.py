"""What is cheap is computed where it is read, where the tensors of a call do not fit the caches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tcomp as tc
from tcomp.driver import Compilation, lower
from tcomp.grammar import define
from tcomp.mapping.machines.cpu import this_machine
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime import registry
from tcomp.runtime.registry import backend_of

BLUR = """def f(float(H,W) I) -> (O) {
  T(h,w) = I(h,w) + I(h,w+1) + 2 * I(h,w+2)
  O(h,w) = T(h,w) - T(h+1,w) * 3 + T(h+2,w)
}"""
SIZES = {"H": 21, "W": 70}


@pytest.fixture(autouse=True)
def _small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(this_machine(), last_cache=1)
    monkeypatch.setattr(registry, "this_machine", lambda: small)
    monkeypatch.setenv("TCOMP_CACHE", "0")


def compiled(text: str, options: tc.MappingOptions | None = None, plan: str | None = None) -> Compilation:
    return lower(define(text)["f"], Sizes(SIZES), options or tc.MappingOptions(), backend_of("cpu"), True, plan)


def put_in(text: str, options: tc.MappingOptions | None = None) -> tuple[str, ...]:
    return compiled(text, options).plan.inlined


def integers(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(-9, 9, shape).astype(np.float32)


def test_a_stencil_of_a_stencil_is_one_statement() -> None:
    made = compiled(BLUR)
    assert made.plan.inlined == ("S0",)
    assert [s.name for s in made.plan.scop.statements] == ["S1"]
    assert not made.plan.buffers
    image = integers(21, 70)
    T = image[:, :-2] + image[:, 1:-1] + 2 * image[:, 2:]
    np.testing.assert_array_equal(tc.define(BLUR).f(image), T[:-2] - 3 * T[1:-1] + T[2:])


def test_chains_go_into_one_statement_as_long_as_it_is_cheap() -> None:
    text = """def f(float(N) A) -> (O) {
      B(i) = A(i+1) - A(i)
      C(i) = B(i+1) - B(i)
      D(i) = C(i+1) - C(i)
      O(i) = D(i+1) - D(i)
    }"""
    made = lower(define(text)["f"], Sizes({"N": 3000}), tc.MappingOptions(), backend_of("cpu"))
    assert made.plan.inlined == ("S0", "S1")
    A = integers(3000)
    np.testing.assert_array_equal(tc.define(text).f(A), np.diff(A, 4))


def test_indices_that_are_values_are_those_of_the_element_read() -> None:
    text = "def f(float(H,W) I) -> (O) { T(h,w) = I(h,w) * (w - 2 * h)  O(h,w) = T(h,w+3) - T(h+1,w) }"
    assert put_in(text) == ("S0",)
    image = integers(21, 70)
    T = image * (np.arange(70) - 2 * np.arange(21)[:, None])
    np.testing.assert_array_equal(tc.define(text).f(image), T[:-1, 3:] - T[1:, :-3])


def test_all_that_read_compute_it() -> None:
    text = """def f(float(H,W) I) -> (O, P) {
      T(h,w) = I(h,w) - I(h,w+1)
      O(h,w) = T(h,w) + T(h+1,w)
      P(h,w) = fmax(T(h,w), I(h,w))
    }"""
    assert put_in(text) == ("S0",)
    image = integers(21, 70)
    T = image[:, :-1] - image[:, 1:]
    total, larger = tc.define(text).f(image)
    np.testing.assert_array_equal(total, T[:-1] + T[1:])
    np.testing.assert_array_equal(larger, np.maximum(T, image[:, :-1]))


@pytest.mark.parametrize(
    "text",
    [
        "T(h,w) = I(h,w) + I(h,w+1)  O(h,w) = T(h,w) * 2",
        "T(h,w) = exp(I(h,w))  O(h,w) = T(h,w) + T(h+1,w)",
        "T(h,w) = I(h,w) / I(h,w+1) / I(h,w+2)  O(h,w) = T(h,w) + T(h+1,w)",
        "T(h,w) = I(h,w) + 1  O(h) +=! T(h,w) * T(h,w+1)",
        "T(h,w) +=! I(h,w+k) where k in 0:3  O(h,w) = T(h,w) + T(h+1,w)",
        "T(h,w) = I(h,w) + 1  O(h,w) = T(h,w) + constant_exterior(T, 0)(h+1,w)",
        "T(h,w) = constant_exterior(I, 0)(h,w+1) where h in 0:H, w in 0:W  O(h,w) = T(h,w) + T(h+1,w)",
        "T(h,w) = I(h,w) > 0 ? I(h,w) : 2  O(h,w) = T(h,w) + T(h+1,w)",
        "T(w,h) = I(h,w) + 1  O(h,w) = T(w,h) + T(w+1,h)",
        "T(h,w) = I(h,w) + 1  O(h,w) = T(h,2*w) + T(h,2*w+1)",
        "T(h,w) = float16(I(h,w)) * float16(2)  O(h,w) = T(h,w) + T(h+1,w)",
        "T(h,w) = I(h,w) + 1  T(0,w) = 3 where w in 0:W  O(h,w) = T(h,w) + T(h+1,w)",
    ],
    ids=[
        "read once", "a function", "divisions", "read by a reduction", "a reduction", "a boundary", "of a boundary",
        "a choice", "turned", "every other", "narrow", "written in parts",
    ],
)  # fmt: skip
def test_other_intermediates_are_kept(text: str) -> None:
    assert put_in(f"def f(float(H,W) I) -> (O) {{ {text} }}") == ()


def test_what_changes_meanwhile_is_read_before() -> None:
    text = """def f(float(H,W) I) -> (X, O) {
      X(h,w) = I(h,w) * 2
      T(h,w) = X(h,w) + 1
      X(0,w) = 7 where w in 0:W
      O(h,w) = T(h,w) + T(h+1,w)
    }"""
    assert put_in(text) == ()
    image = integers(21, 70)
    T = image * 2 + 1
    np.testing.assert_array_equal(tc.define(text).f(image)[1], T[:-1] + T[1:])


@pytest.mark.parametrize("options", [tc.MappingOptions(recompute_limit=1), tc.MappingOptions(fusion_strategy="min")])
def test_options_that_forbid_it(options: tc.MappingOptions) -> None:
    assert put_in(BLUR, options) == ()


def test_caches_that_hold_everything_make_it_needless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "this_machine", this_machine)
    assert put_in(BLUR) == ()


@pytest.mark.parametrize("stage", ["nest", "place", "pack"])
def test_the_plan_reads_back(stage: str) -> None:
    made = compiled(BLUR)
    assert '[[inlined]]\nstatement = "S0"' in made.stages[stage]
    again = compiled(BLUR, plan=made.stages[stage])
    assert again.source == made.source
    assert again.plan.inlined == ("S0",)


@pytest.mark.parametrize("name", ["S1", "S7"])
def test_a_plan_that_puts_in_what_cannot_be(name: str) -> None:
    text = compiled(BLUR).stages["nest"].replace('statement = "S0"', f'statement = "{name}"')
    with pytest.raises(tc.PlanError, match=f"{name} cannot be computed where it is read"):
        compiled(BLUR, plan=text)
