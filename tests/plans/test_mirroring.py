"""Of a product of a tensor with itself half is computed, and the other half copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.driver import Compilation, lower
from tcomp.grammar import define
from tcomp.mapping.fusion import mirroring
from tcomp.mapping.fusion.mirroring import can_mirror, mirrored
from tcomp.model.build import build
from tcomp.model.scop import Scop
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.registry import backend_of

Array = np.ndarray[Any, np.dtype[Any]]

LARGE = {"N": 160, "K": 96, "B": 2}
SMALL = {"N": 21, "K": 9, "B": 3}
COLUMNS = "C(i,j) +=! A(k,i) * A(k,j)"
SUMS = COLUMNS.replace("C", "P", 1)


def program(arguments: str, statements: str) -> str:
    return f"def f({arguments}) -> (C) {{ {statements} }}"


def compiled(arguments: str, statements: str, sizes: dict[str, int], plan: str | None = None) -> Compilation:
    known = {k: v for k, v in sizes.items() if k in arguments}
    return lower(
        define(program(arguments, statements))["f"], Sizes(known), tc.MappingOptions(), backend_of("cpu"), True, plan
    )


def modelled(arguments: str, statements: str) -> Scop:
    known = {k: v for k, v in SMALL.items() if k in arguments}
    return build(define(program(arguments, statements))["f"], Sizes(known, {}))


@pytest.mark.parametrize(
    ("arguments", "statements"),
    [
        ("float(K,N) A", COLUMNS),
        ("float(N,K) A", "C(i,j) +=! A(i,k) * A(j,k)"),
        ("double(N,K) A", "C(i,j) +=! A(j,k) * A(i,k)"),
        ("float(N,K,B) A", "C(i,j) +=! A(i,k,b) * A(j,k,b)"),
        ("float(B,K,N) A", "C(b,i,j) +=! A(b,k,i) * A(b,k,j)"),
        ("float(K,N) A", "P(k,i) = A(k,i) - 1  C(i,j) +=! P(k,i) * P(k,j)"),
        ("float(K,N) A", f"{COLUMNS}  C(i,j) = C(i,j) / 2"),
        ("float(K,N) A, float(N) w", f"{SUMS}  C(i,j) = i == j ? 1.0 : P(i,j) / (w(j) * w(i))"),
        ("float(K,N) A", f"{SUMS}  C(i,j) = P(i,j) / (i + 1)"),
    ],
    ids=["columns", "rows", "doubles", "two steps", "batches", "what is computed", "halved", "symmetric", "kept"],
)
def test_large_ones_are_mirrored(arguments: str, statements: str) -> None:
    made = compiled(arguments, statements, LARGE)
    ((_, first, second),) = made.plan.mirrored
    assert {first, second} == {"i", "j"}
    assert compiled(arguments, statements, LARGE, made.stages["nest"]).source == made.source


@pytest.mark.parametrize(
    ("arguments", "statements"),
    [
        ("float(K,N) A, float(K,N) B", "C(i,j) +=! A(k,i) * B(k,j)"),
        ("float(N,N) A", "C(i,j) +=! A(i,k) * A(k,j)"),
        ("float(K,N) A", "C(i,j) +=! A(k,i) * A(k,j) where i in 0:N, j in 0:N/2"),
        ("float(K,N) A", "C(i,j) +=! A(k,i) * A(k,j) where i in 0:N, j in 0:N, k in 0:max(1,i-N+9)"),
        ("float(K,N) A", "C(i,j) +=! A(k,i) * A(k,j+1) where i in 0:N-1, j in 0:N-1"),
        ("float(K,N) A, float(N,N) S", "C(i,j) = S(i,j)  C(i,j) += A(k,i) * A(k,j)"),
        ("float(K,N) A", f"{SUMS}  E(i,j) = exp(P(i,j))  C(i) +=! E(i,j)"),
        ("float(K,N) A", f"{SUMS}  C(i,n) +=! P(i,j) * A(n,j)"),
        ("float(K,N) A", f"{SUMS}  C(i) max=! P(i,j)"),
        ("float(K,N) A", f"{SUMS}  C(i) = P(i,i)"),
        ("float(K,N) A", f"{SUMS}  P(i,j) = P(i,j) + i  C(i,j) = P(i,j)"),
    ],
    ids=[
        "two tensors",
        "a square",
        "other ranges",
        "other steps",
        "shifted",
        "sums that begin with others",
        "sums of what goes on",
        "products of it",
        "their maxima",
        "a diagonal",
        "another version",
    ],
)
def test_others_are_whole(arguments: str, statements: str) -> None:
    scop = modelled(arguments, statements)
    name = next(s.name for s in scop.statements if s.kind == "update")
    assert not can_mirror(scop, name, ("i", "j"))


def test_small_ones_are_whole() -> None:
    assert compiled("float(K,N) A", COLUMNS, {"N": 64, "K": 96}).plan.mirrored == ()
    assert compiled("float(K,N) A", COLUMNS, {"N": 160, "K": 8}).plan.mirrored == ()
    assert compiled("bfloat16(K,N) A", COLUMNS, LARGE).plan.mirrored == ()


@pytest.mark.parametrize("n", [160, 203])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_results_are_those_of_whole_products(n: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = {"f4": "float", "f8": "double"}[dtype]
    A = np.random.default_rng(n).standard_normal((260, n)).astype(dtype)
    f = tc.define(program(f"{name}(K,N) A", COLUMNS), tune="off")["f"]
    C = f(A)
    assert f.compile(A).compilation.plan.mirrored
    np.testing.assert_array_equal(C, C.T)
    np.testing.assert_allclose(C, A.T.astype("f8") @ A, rtol=0, atol=1e-3)
    integers = np.rint(4 * A)
    np.testing.assert_array_equal(f(integers), integers.T @ integers)


@pytest.mark.parametrize(
    ("value", "copied"),
    [
        ("P(i,j) / (N - 1.0)", "C"),
        ("w(j) * w(i) + P(i,j)", "C"),
        ("(i == j ? 1.0 : P(i,j)) * (S(i,i) + S(j,j))", "C"),
        ("fmax(P(i,j), 0.0) * i * j", "P"),
        ("P(i,j) + S(i,j)", "P"),
        ("P(j,i) / (1 + P(i,i))", "P"),
        ("i < j ? P(i,j) : -1.0", "P"),
        ("P(i,j) + C(i,j)", "P"),
    ],
)
def test_half_is_copied_of_what_is_symmetric_and_else_of_sums(value: str, copied: str) -> None:
    rest = f"C(i,j) = {value}"
    if "C(i,j)" in value:
        rest = f"C(i,j) = S(j,i)  {rest}"
    arguments = "float(K,N) A, float(N) w, float(N,N) S"
    scop = modelled(arguments, f"{SUMS}  {rest}")
    name = next(s.name for s in scop.statements if s.kind == "update")
    made = mirrored(scop, name, ("i", "j"))
    (copy,) = (s for s in made.statements if s.name not in scop.by_name and s.name.endswith("m"))
    assert copy.target.startswith(copied)
    A = np.random.default_rng(1).integers(-3, 4, (96, 161)).astype("f4")
    w = np.arange(161, dtype="f4")
    f = tc.define(program(arguments, f"{SUMS}  {rest}"), tune="off").f
    given = (A, w, np.add.outer(w, 2 * w))
    assert f.compile(*given).compilation.plan.mirrored
    np.testing.assert_array_equal(f(*given), f.reference(*given))


def test_a_plan_that_mirrors_what_is_not_symmetric_is_refused() -> None:
    text = compiled("float(K,N) A", COLUMNS, LARGE).stages["nest"]
    with pytest.raises(tc.PlanError, match="with k and j exchanged"):
        compiled("float(K,N) A", COLUMNS, LARGE, text.replace('first = "i"', 'first = "k"'))


def test_the_proof_refuses_halves_that_are_no_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    scop = modelled("float(K,N) A", COLUMNS)
    half = mirroring._half
    monkeypatch.setattr(mirroring, "_half", lambda s, pair, _: half(s, pair, "<"))
    with pytest.raises(tc.LegalityError, match="of its own sum"):
        mirrored(scop, "S0", ("i", "j"))


def test_the_proof_refuses_other_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    scop = modelled("float(K,N) A, float(K,N) B", "C(i,j) +=! A(k,i) * B(k,j)")
    with pytest.raises(tc.LegalityError, match="of its own sum"):
        mirrored(scop, "S0", ("i", "j"))
