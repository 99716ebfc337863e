"""Terms of a sum of products are added up one after another, each by register tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.driver import Compilation, lower
from tcomp.grammar import define
from tcomp.mapping.fusion import distributing
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.registry import backend_of

TWICE = """def f(T(N,K) A, T(N,K) B) -> (C) {
    C(i,j) +=! A(j,k) * B(i,k) + B(j,k) * A(i,k) where i in 0:N, j in 0:N
}"""
COMPLEX = """def f(T(M,K) ar, T(M,K) ai, T(K,N) br, T(K,N) bi) -> (re, im) {
    re(i,j) +=! ar(i,k) * br(k,j) - ai(i,k) * bi(k,j)
    im(i,j) +=! ar(i,k) * bi(k,j) + ai(i,k) * br(k,j)
}"""
SIZES = {"M": 37, "N": 45, "K": 51}


def compiled(text: str, sizes: dict[str, int], plan: str | None = None) -> Compilation:
    return lower(define(text)["f"], Sizes(sizes), tc.MappingOptions(), backend_of("cpu"), True, plan)


def of(text: str, dtype: str) -> str:
    return text.replace("T(", f"{dtype}(")


def numbers(*shape: int, dtype: str) -> np.ndarray[Any, Any]:
    drawn = np.random.default_rng(list(shape)).integers(-4, 5, shape)
    return drawn.astype({"float": "f4", "double": "f8", "int32": "i4"}[dtype])


@pytest.mark.parametrize("dtype", ["float", "double", "int32"])
def test_two_products_are_two_contractions(dtype: str) -> None:
    made = compiled(of(TWICE, dtype), {"N": 45, "K": 51})
    assert made.plan.distributed == ("S0",)
    assert [o.kind for o in made.plan.operations.values()] == ["contract", "contract"]
    A, B = numbers(45, 51, dtype=dtype), numbers(44, 51, dtype=dtype)
    B = np.concatenate([B, B[:1]])
    assert np.array_equal(tc.define(of(TWICE, dtype)).f(A, B), A @ B.T @ np.eye(45, dtype=A.dtype) + B @ A.T)


def test_what_is_subtracted_is_negated_ahead() -> None:
    made = compiled(of(COMPLEX, "double"), SIZES)
    assert made.plan.distributed == ("S0", "S1")
    assert len(made.plan.operations) == 4 and len(made.plan.outlined) == 1
    left = numbers(37, 51, dtype="double"), numbers(37, 51, dtype="double")[::-1].copy()
    right = numbers(51, 45, dtype="double"), numbers(51, 45, dtype="double")[::-1].copy()
    re, im = tc.define(of(COMPLEX, "double")).f(*left, *right)
    product = (left[0] + 1j * left[1]) @ (right[0] + 1j * right[1])
    assert np.array_equal(re, product.real) and np.array_equal(im, product.imag)


def test_a_sum_that_begins_with_its_content_keeps_it() -> None:
    text = of(TWICE, "double").replace("{", "{ C(i,j) = A(i,j)", 1).replace("+=!", "+=")
    A, B = numbers(40, 40, dtype="double"), numbers(40, 40, dtype="double").T.copy()
    assert compiled(text, {"N": 40, "K": 40}).plan.distributed == ("S1",)
    assert np.array_equal(tc.define(text).f(A, B), A + B @ A.T + A @ B.T)


@pytest.mark.parametrize(
    "value",
    ["A(j,k) * B(i,k) + A(i,k)", "A(i,k) * A(i,k) + B(j,k) * B(j,k)", "A(j,k) * B(i,k)", "exp(A(j,k) * B(i,k))"],
    ids=["no product", "rows alone", "one term", "a function"],
)
def test_others_stay_one_statement(value: str) -> None:
    text = f"def f(float(N,K) A, float(N,K) B) -> (C) {{ C(i,j) +=! {value} where i in 0:N, j in 0:N }}"
    assert compiled(text, {"N": 45, "K": 51}).plan.distributed == ()


def test_few_steps_stay_one_statement() -> None:
    assert compiled(of(TWICE, "float"), {"N": 45, "K": 7}).plan.distributed == ()


def test_the_text_of_a_plan_says_so() -> None:
    made = compiled(of(TWICE, "float"), {"N": 45, "K": 51})
    text = made.stages["nest"]
    assert "[[distributed]]" in text
    assert compiled(of(TWICE, "float"), {"N": 45, "K": 51}, text).plan.distributed == ("S0",)
    with pytest.raises(tc.PlanError, match="S9 is no sum of products"):
        compiled(of(TWICE, "float"), {"N": 45, "K": 51}, text.replace('statement = "S0"\n', 'statement = "S9"\n', 1))


def test_terms_that_read_something_else_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    products = distributing.products_of
    monkeypatch.setattr(distributing, "products_of", lambda value: products(value)[:1] * 2 if products(value) else ())
    text = of(COMPLEX, "double")
    with pytest.raises(tc.LegalityError, match="'distribute' lets S0 read other elements"):
        compiled(text, SIZES)
