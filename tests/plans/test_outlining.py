"""What many instances of a statement would compute alike is computed ahead of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.driver import Backend, Compilation, lower
from tcomp.grammar import define
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.plan.operations import recognise_contraction
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.registry import backend_of
from tests.targets import CPU

pytestmark = pytest.mark.sweep(3)

Array = np.ndarray[Any, np.dtype[Any]]

SIZES = {"M": 40, "N": 33, "K": 27}
K = np.arange(27)
PRODUCT = "def f(float(M,K) A, float(K,N) B, float(K) s) -> (C) {{ C(m,n) +=! {} }}"


SMALL = replace(CPU, machine=Machine(32, 16, 32, 2, 32 << 10, 512 << 10, 32 << 20))
"""Vectors of eight floats and near caches of common size."""


def compiled(
    text: str, sizes: Mapping[str, int], plan: str | None = None, backend: Backend | None = None
) -> Compilation:
    return lower(define(text)["f"], Sizes(sizes), tc.MappingOptions(), backend or backend_of("cpu"), True, plan)


def integers(*shape: int) -> Array:
    return np.random.default_rng(list(shape)).integers(-4, 5, shape).astype(np.float32)


@pytest.mark.parametrize(
    ("value", "expected", "parts"),
    [
        ("fmax(A(m,k), 0) * B(k,n)", lambda A, B, s: np.maximum(A, 0) @ B, 1),
        ("0.5 * A(m,k) * B(k,n)", lambda A, B, s: 0.5 * A @ B, 1),
        ("A(m,k) * (B(k,n) * s(k))", lambda A, B, s: A @ (B * s[:, None]), 1),
        ("(A(m,k) - s(k)) * (B(k,n) + s(k))", lambda A, B, s: (A - s) @ (B + s[:, None]), 2),
        ("-A(m,k) * B(k,n)", lambda A, B, s: -A @ B, 1),
        ("(A(m,k) + m - 2*k) * B(k,n)", lambda A, B, s: (A + np.arange(40)[:, None] - 2 * np.arange(27)) @ B, 1),
        ("(k < 9 ? A(m,k) : m) * B(k,n)", lambda A, B, s: np.where(K < 9, A, np.arange(40)[:, None]) @ B, 1),
        ("(A(m,k) > 0 ? A(m,k) : 1) * B(k,n)", lambda A, B, s: np.where(A > 0, A, 1) @ B, 1),
    ],
)
def test_operands_of_products_are_made_before(
    value: str, expected: Callable[[Array, Array, Array], Array], parts: int
) -> None:
    text = PRODUCT.format(value)
    made = compiled(text, SIZES)
    assert [name for name, _ in made.plan.outlined] == ["S0"] * parts
    assert recognise_contraction(made.plan.scop.by_name["S0"]) is not None
    A, B, s = integers(40, 27), integers(27, 33), integers(27)
    np.testing.assert_array_equal(tc.define(text).f(A, B, s), expected(A, B, s))


def test_windows_share_the_elements_of_what_they_read() -> None:
    """One value for each element of the image, the border included, not for each element of each window."""
    text = """def f(float(C,H,W) I, float(K,C,3,3) F) -> (O) {
      O(k,h,w) +=! fmax(constant_exterior(I, 2)(c,h+r-1,w+s-1), 0) * F(k,c,r,s)
        where h in 0:H, w in 0:W, c in 0:C, r in 0:3, s in 0:3
    }"""
    made = compiled(text, {"C": 5, "H": 9, "W": 11, "K": 8})
    assert made.plan.program.storages["S0_value"].box.extent == (5, 11, 13)
    I, F = integers(5, 9, 11), integers(8, 5, 3, 3)  # noqa: E741 - the name in the program
    padded = np.maximum(np.pad(I, ((0, 0), (1, 1), (1, 1)), constant_values=2), 0)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    np.testing.assert_array_equal(tc.define(text).f(I, F), np.einsum("chwrs,kcrs->khw", windows, F))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Y(n,d) = X(n,d) * exp(v(d) - v(d))", lambda X, v: X),
        ("Y(n,d) = X(n,d) / (v(d) * v(d) / 4 + 1) + v(d) * v(d) / 4", lambda X, v: X / (v * v / 4 + 1) + v * v / 4),
        ("Y(d) max=! X(n,d) * exp(v(d) - v(d))", lambda X, v: X.max(0)),
        ("Y(d) +=! X(n,d+1) * exp(v(d) - v(d))", lambda X, v: X[:, 1:].sum(0)),
    ],
)
def test_expensive_values_are_computed_once(text: str, expected: Callable[[Array, Array], Array]) -> None:
    text = f"def f(float(N,D) X, float(D) v) -> (Y) {{ {text} }}"
    made = compiled(text, {"N": 30, "D": 50})
    assert len(made.plan.outlined) >= 1
    X, v = integers(30, 50), integers(50)
    np.testing.assert_allclose(tc.define(text).f(X, v), expected(X, v), rtol=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "Y(n,d) = X(n,d) * (v(d) + 1)",
        "Y(n,d) = exp(X(n,d) + v(d))",
        "Y(n,d) = X(n,d) * exp(X(n,0))",
        "Y(n,d) = d > 0 ? X(n,d) * exp(v(d-1)) : 0",
        "Y(n,d) = v(d) > 0 && exp(v(d)) > 2 ? X(n,d) : 0",
        "Y(d) +=! X(n,d) * X(n,d) * 2",
        "Y(d) = X(0,d) + exp(v(d))",
        "Y(n,d) = X(n,d) * exp(v(int32(v(d))))",
    ],
    ids=[
        "cheap", "of all elements", "the same along vectors", "on a condition", "behind a short cut", "used once",
        "of few elements", "chosen by data",
    ],
)  # fmt: skip
def test_other_values_stay(text: str) -> None:
    assert compiled(f"def f(float(N,D) X, float(D) v) -> (Y) {{ {text} }}", {"N": 30, "D": 50}).plan.outlined == ()


def test_few_uses_are_not_worth_it() -> None:
    assert compiled(PRODUCT.format("fmax(A(m,k), 0) * B(k,n)"), {"M": 40, "N": 3, "K": 27}).plan.outlined == ()


def test_values_do_not_take_much_more_memory_than_tensors() -> None:
    text = "def f(float(M) x, float(N) y, float(D) w) -> (O) { O(d) +=! exp(x(m) - y(n)) * w(d) }"
    assert compiled(text, {"M": 1000, "N": 1000, "D": 10}).plan.outlined != ()
    assert compiled(text, {"M": 2000, "N": 1000, "D": 10}).plan.outlined == ()


@pytest.mark.parametrize(
    ("a", "b", "is_copied"),
    [
        ("A(k,m)", "B(k,n)", True),
        ("B(k,n)", "A(k,m)", True),
        ("A(k,m)", "A(k,n)", True),
        ("A(m,k)", "B(k,n)", False),
        ("A(k,m)", "B(n,k)", True),
        ("half(k,m)", "B(k,n)", False),
    ],
)
def test_an_operand_whose_steps_lie_apart_is_turned_if_many_columns_share_it(a: str, b: str, is_copied: bool) -> None:
    def outlined(columns: int) -> tuple[tuple[str, int], ...]:
        element = a.replace("half", "float(H") + ")" * ("half" in a)
        text = (
            "def f(float(600,600) A, float(600,600) B, float16(600,600) H) -> (C) "
            f"{{ C(m,n) +=! {element} * {b} where m in 0:600, n in 0:{columns}, k in 0:600 }}"
        )
        return compiled(text, {}, backend=SMALL).plan.outlined

    assert len(outlined(600)) == is_copied
    assert outlined(200) == (), "few columns share what is copied"


def test_small_operands_are_read_where_they_lie() -> None:
    text = "def f(float(K,M) A, float(K,N) B) -> (C) { C(m,n) +=! A(k,m) * B(k,n) }"
    assert compiled(text, {"M": 200, "N": 1000, "K": 200}).plan.outlined == ()


def test_operands_with_batches_innermost_are_turned_for_fewer_columns() -> None:
    """Each element has a line of memory for itself."""
    text = "def f(float(M,K,Z) A, float(Z,K,N) B) -> (C) { C(z,m,n) +=! A(m,k,z) * B(z,k,n) }"
    assert compiled(text, {"M": 90, "N": 40, "K": 70, "Z": 8}).plan.outlined == ()
    made = compiled(text, {"M": 90, "N": 64, "K": 70, "Z": 8})
    assert made.plan.program.storages["S0_value"].box.extent == (8, 90, 70)
    A, B = integers(90, 70, 8), integers(8, 70, 64)
    np.testing.assert_array_equal(tc.define(text).f(A, B), np.einsum("mkz,zkn->zmn", A, B))


def test_operands_of_columns_are_turned_where_only_batches_are_neighbours() -> None:
    text = "def f(float(K,M,Z) A, float(K,N,Z) B) -> (C) { C(z,m,n) +=! A(k,m,z) * B(k,n,z) }"
    made = compiled(text, {"M": 64, "N": 80, "K": 50, "Z": 16})
    assert {s.name for s in made.plan.program.storages.values() if s.role == "temporary"} >= {"S0_value", "S0_value_"}
    A, B = integers(50, 64, 16), integers(50, 80, 16)
    np.testing.assert_array_equal(tc.define(text).f(A, B), np.einsum("kmz,knz->zmn", A, B))


def test_columns_need_not_be_those_of_the_results() -> None:
    """The six values of q are neighbours in the results, but too few for vectors; copied ahead, p and q are one."""
    text = "def f(float(U,Q,P,T,V) A, float(S,V,R,T,U) B) -> (O) { O(s,r,v,p,q) +=! A(u,q,p,t,v) * B(s,v,r,t,u) }"
    sizes = {"P": 16, "Q": 6, "R": 32, "S": 16, "T": 6, "U": 20, "V": 16}
    made = compiled(text, sizes, backend=backend_of("cpu:x86-64-v4"))
    assert made.plan.program.storages["S0_value"].box.extent == (16, 20, 6, 96)
    A, B = integers(20, 6, 16, 6, 16), integers(16, 16, 32, 6, 20)
    np.testing.assert_array_equal(tc.define(text).f(A, B), np.einsum("uqptv,svrtu->srvpq", A, B, optimize=True))


def test_all_steps_of_a_row_become_neighbours() -> None:
    """The two indices of the reduction lie apart, and with other indices between them."""
    text = "def f(float(F,B,E,A) X, float(E,C,F,D) Y) -> (O) { O(d,c,b,a) +=! X(f,b,e,a) * Y(e,c,f,d) }"
    sizes = {"A": 21, "B": 20, "C": 13, "D": 17, "E": 24, "F": 30}
    made = compiled(text, sizes, backend=SMALL)
    assert len(made.plan.outlined) == 1
    assert made.plan.program.storages["S0_value"].box.extent == (17, 13, 30, 24)
    X, Y = integers(30, 20, 24, 21), integers(24, 13, 30, 17)
    np.testing.assert_array_equal(tc.define(text).f(X, Y), np.einsum("fbea,ecfd->dcba", X, Y))


def test_steps_that_only_the_other_operand_has_lie_anywhere() -> None:
    text = "def f(float(K,M) A, float(K,L,N) B) -> (O) { O(m,n) +=! A(k,m) * B(k,l,n) }"
    made = compiled(text, {"M": 400, "N": 400, "K": 400, "L": 3}, backend=SMALL)
    assert made.plan.program.storages["S0_value"].box.extent == (400, 400)


def test_operands_are_turned_by_their_elements_where_indices_meet_in_a_sum() -> None:
    """Taps of one remainder, ``r + 2*u``, lie among the others: at each step every channel has a line for itself."""
    text = (
        "def f(float(N,F,Q) d, float(F,C,3) K) -> (O) { O(n,c,r,q) +=! constant_exterior(d, 0.0)(n,f,q-u) "
        "* K(f,c,r+2*u) where n in 0:N, r in 0:2, q in 0:Q+1, u in 0:(2-r)/2+1 }"
    )
    sizes = {"N": 4, "F": 64, "C": 60, "Q": 15}
    made = compiled(text, sizes, backend=SMALL)
    assert made.plan.program.storages["S0_value"].box.extent == (60, 3, 64)
    d, K = integers(4, 64, 15), integers(64, 60, 3)
    padded = np.pad(d, ((0, 0), (0, 0), (1, 1)))
    expected = np.zeros((4, 60, 2, 16), "f4")
    for r, u in ((0, 0), (0, 1), (1, 0)):
        expected[:, :, r] += np.einsum("nfq,fc->ncq", padded[:, :, 1 - u : 17 - u], K[:, :, r + 2 * u])
    np.testing.assert_array_equal(tc.define(text).f(d, K), expected)


def test_operands_whose_elements_a_step_moves_have_their_order_of_the_indices() -> None:
    """``c + t``: the step is no index of the statement."""
    text = (
        "def f(float(F,D) K, float(T,F,N) X) -> (Y) "
        "{ for t in 0:T { Y(t,c,n) +=! K(f,c+t) * X(t,f,n) where c in 0:D-T+1 } }"
    )
    K, X = integers(300, 130), integers(2, 300, 40)
    expected = [K[:, t : t + 129].T @ X[t] for t in range(2)]
    np.testing.assert_array_equal(tc.define(text, tune="off").f(K, X), expected)


@pytest.mark.parametrize(("columns", "is_turned"), [(400, True), (100, False)])
def test_windows_along_memory_are_turned_for_many_columns(columns: int, is_turned: bool) -> None:
    """What lies between the places of neighbouring rows is read by other steps."""
    text = (
        "def f(float(C,61,61) I, float(C,3,3,F) K) -> (O) "
        "{ O(h,w,f) +=! I(c,2*h+kh,2*w+kw) * K(c,kh,kw,f) where h in 0:30, w in 0:30 }"
    )
    assert bool(compiled(text, {"C": 40, "F": columns}, backend=SMALL).plan.outlined) == is_turned


def test_operands_are_not_made_in_every_tile() -> None:
    made = compiled(PRODUCT.format("exp(A(m,k)) * B(k,n)"), {"M": 300, "N": 300, "K": 300})
    assert [group.clusters for group in made.plan.groups] == [(0,), (1,)]
    assert "once for all tiles" in made.stages["fuse"]


def test_operands_are_not_made_in_tiles_of_what_reads_the_product() -> None:
    text = (
        "def f(float(F,C,3) K, float(N,F,20) d) -> (O) "
        "{ P(n,c,r,q) +=! d(n,f,q) * exp(K(f,c,r)) O(n,c,h) = P(n,c,h%3,h/3) where h in 0:60 }"
    )
    made = compiled(text, {"C": 64, "F": 64, "N": 4}, backend=SMALL)
    assert [group.clusters for group in made.plan.groups] == [(0,), (1, 2)]
    assert "once for all tiles" in made.stages["fuse"]


@pytest.mark.parametrize("stage", ["nest", "place", "pack"])
def test_the_plan_reads_back(stage: str) -> None:
    text = PRODUCT.format("(A(m,k) - s(k)) * (B(k,n) + s(k))")
    made = compiled(text, SIZES)
    assert made.stages[stage].count("[[outlined]]") == 2
    again = compiled(text, SIZES, made.stages[stage])
    assert again.source == made.source
    assert again.plan.outlined == made.plan.outlined


@pytest.mark.parametrize(("name", "place"), [("S7", 0), ("S0", 99), ("S0", 3)])
def test_a_plan_that_takes_out_what_cannot_be(name: str, place: int) -> None:
    text = PRODUCT.format("fmax(A(m,k), 0) * B(k,n)")
    plan = (
        compiled(text, SIZES)
        .stages["nest"]
        .replace('statement = "S0"\nplace = 1', f'statement = "{name}"\nplace = {place}')
    )
    with pytest.raises(tc.PlanError, match=f"what {name} computes at {place} cannot be computed ahead of it"):
        compiled(text, SIZES, plan)


WIDE = replace(CPU, machine=Machine(64, 32, 64, 2, 48 << 10, 1 << 20, 32 << 20))
"""Vectors of sixteen floats, as many registers, and a large second cache."""


@pytest.mark.parametrize(("count", "is_turned"), [(5, True), (12, False)])
def test_results_are_not_turned_for_a_panel_that_each_tile_would_fetch_from_afar(count: int, is_turned: bool) -> None:
    """The 48 values of b fill vectors better than the 54 of a, but ``Y`` is packed across its lines for them."""
    text = "def f(float(F,C,E,A) X, float(D,E,B,F) Y) -> (O) { O(d,c,b,a) +=! X(f,c,e,a) * Y(d,e,b,f) }"
    sizes = {"A": 54, "B": 48, "C": 12, "D": count, "E": 20, "F": 50}
    made = compiled(text, sizes, backend=WIDE)
    assert (made.plan.buffers["O_acc0"].order == (0, 1, 3, 2)) == is_turned
    X, Y = integers(50, 12, 20, 54), integers(count, 20, 48, 50)
    np.testing.assert_array_equal(tc.define(text).f(X, Y), np.einsum("fcea,debf->dcba", X, Y, optimize=True))


@pytest.mark.parametrize(("steps", "is_turned"), [(32, True), (112, False)])
def test_few_steps_do_not_pay_for_sums_whose_results_lie_apart(steps: int, is_turned: bool) -> None:
    """Neither rows nor columns of register tiles of sums are neighbours among the results: the batches are."""
    text = "def f(float(P,X,K) A, float(P,T,K) B) -> (C) { C(x,t,p) +=! A(p,x,k) * B(p,t,k) }"
    made = compiled(text, {"P": 8, "X": 37, "T": 28, "K": steps}, backend=WIDE)
    assert bool(made.plan.copies) == is_turned
    A, B = integers(8, 37, steps), integers(8, 28, steps)
    np.testing.assert_array_equal(tc.define(text).f(A, B), np.einsum("pxk,ptk->xtp", A, B, optimize=True))
