"""Passes over one matrix share strips of its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.driver import lower
from tcomp.grammar import define
from tcomp.mapping.machines.fitted.cpusharing import STRIPS
from tcomp.model.terms.sizes import Sizes
from tests.targets import CPU

DEF = "def f(TYPE(M,N) A, TYPE(N) x, TYPE(N) z) -> (y) { t(i) +=! A(i,j) * x(j)\n REST }"


@pytest.fixture
def all_matrices(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if no cache kept any matrix."""
    monkeypatch.setenv("TCOMP_CACHE", "0")
    before = STRIPS.least
    object.__setattr__(STRIPS, "least", 0.0)
    yield
    object.__setattr__(STRIPS, "least", before)


def marks(kernel: Any) -> str:
    return str(kernel.compilation.plan.tree.to_str())


@pytest.mark.parametrize(("rows", "columns"), [(385, 37), (405, 130)])
@pytest.mark.parametrize("dtype", ["float", "double"])
def test_products_with_a_matrix_and_its_transpose(all_matrices: None, dtype: str, rows: int, columns: int) -> None:
    f = tc.define(DEF.replace("TYPE", dtype).replace("REST", "y(j) = z(j)\n y(j) += A(i,j) * t(i)")).f
    random, kind = np.random.default_rng(rows), np.float32 if dtype == "float" else np.float64
    shapes: list[tuple[int, ...]] = [(rows, columns), (columns,), (columns,)]
    a, x, z = (random.standard_normal(s).astype(kind) for s in shapes)
    kernel = f.compile(a, x, z)
    assert "strips" in marks(kernel)
    wide: Any = a.astype(np.float64)
    scale = 1e-4 if dtype == "float" else 1e-12
    np.testing.assert_allclose(kernel(a, x, z), z + wide.T @ (wide @ x), rtol=scale, atol=scale * rows * columns)


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ("y(j) max=! A(i,j) * t(i)", lambda a, t: (a * t[:, None]).max(0)),
        ("y(j) +=! t(i) > 0.0 ? A(i,j) * t(i) : 0.0", lambda a, t: np.where(t[:, None] > 0, a * t[:, None], 0).sum(0)),
    ],
)
def test_other_reductions_keep_nan(all_matrices: None, rest: str, expected: Any) -> None:
    f = tc.define(DEF.replace("TYPE", "double").replace("REST", rest)).f
    random = np.random.default_rng(1)
    a, x, z = random.standard_normal((400, 33)), random.standard_normal(33), np.zeros(33)
    a[77, 5] = np.nan
    kernel = f.compile(a, x, z)
    assert "strips" in marks(kernel)
    np.testing.assert_allclose(kernel(a, x, z), expected(a, a @ x), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("rest", ["y(j) +=! A(i,N-1-j) * t(i)", "y(j) max=! A(i,N-1-j) * t(i)"])
def test_columns_from_behind_have_the_same_values(all_matrices: None, rest: str) -> None:
    f = tc.define(DEF.replace("TYPE", "double").replace("REST", rest)).f
    random = np.random.default_rng(1)
    a, x, z = random.standard_normal((400, 37)), random.standard_normal(37), np.zeros(37)
    np.testing.assert_allclose(f.compile(a, x, z)(a, x, z), f.reference(a, x, z), rtol=1e-11, atol=1e-11)


def plan(rest: str, rows: int = 1900, columns: int = 1100, **options: Any) -> str:
    f = define(DEF.replace("TYPE", "double").replace("REST", rest))["f"]
    found = lower(f, Sizes({"M": rows, "N": columns}), tc.MappingOptions(**options), CPU)
    return str(found.plan.tree.to_str())


def test_a_matrix_is_read_once() -> None:
    assert "strips" in plan("y(j) +=! A(i,j) * t(i)")


@pytest.mark.parametrize(
    "rest",
    [
        "y(j) +=! A(i,j) * t(1899-i)",
        "y(j) +=! A(i,j) * t(i/24*24)",
        "u(j) +=! A(i,j) * t(i)\n y(j) +=! A(i,j) * u(j)",
    ],
)
def test_rows_that_need_others_wait_for_them(rest: str) -> None:
    assert "strips" not in plan(rest)


def test_small_matrices_and_wide_rows_are_read_twice() -> None:
    assert "strips" not in plan("y(j) +=! A(i,j) * t(i)", 300, 300)
    assert "strips" not in plan("y(j) +=! A(i,j) * t(i)", 300, 20000)
    assert "strips" not in plan("y(j) +=! A(i,j) * t(i)", 150, 8000)
    assert "strips" not in plan("y(j) +=! A(i,j) * t(i)", 383, 1500)
    assert "strips" in plan("y(j) +=! A(i,j) * t(i)", 384, 1500)


def test_tiles_of_given_sizes_stay() -> None:
    assert "strips" not in plan("y(j) +=! A(i,j) * t(i)", tile_sizes=(64,))


BESIDE = "def f(TYPE(M,N) A, TYPE(N) x, TYPE(M) r) -> (RESULTS) { BODY }"
DOWN, ACROSS = "s(j) +=! r(i) * A(i,j)", "q(i) +=! A(i,j) * x(j)"


def beside(results: str, *body: str, dtype: str = "double") -> tc.Operation:
    text = BESIDE.replace("TYPE", dtype).replace("RESULTS", results).replace("BODY", "\n ".join(body))
    return tc.define(text).f


@pytest.mark.parametrize(
    ("results", "body", "together"),
    [
        ("s, q", [DOWN, ACROSS], 2),
        ("q, s", [ACROSS, DOWN], 2),
        ("s, q", ["s(j) = x(j)", "s(j) += r(i) * A(i,j)", "q(i) = r(i)", "q(i) += A(i,j) * x(j)"], 3),
        ("s, m", [DOWN, "m(i) max=! A(i,j)"], 2),
        ("s, n", [DOWN, "n(j) min=! A(i,j) * r(i)"], 2),
        ("s, n, q, m", [DOWN, "n(j) +=! A(i,j)", ACROSS, "m(i) +=! A(i,j)"], 4),
        ("t, s, q", ["t(i) +=! A(i,j)", "s(j) +=! A(i,j) * t(i)", ACROSS], 3),
        ("y", ["t(i) +=! A(i,j)", "u(j) +=! A(i,j) * t(i)", "y(j) +=! t(i) + u(j)"], 2),
        ("w, s", [DOWN, ACROSS, "u +=! q(i)", "w(i) = q(i) * u"], 2),
        ("s, q", [DOWN, "q(i) +=! A(i,j) * x(j) where j in 0:min(i+1,N)"], 2),
        ("s, q", ["b(i) = 2 * r(i)", "s(j) +=! b(i) * A(i,j)", ACROSS], 3),
        ("B, s", ["B(i,j) = A(i,j) * r(i)", "s(j) +=! B(i,j)"], 2),
        ("B, s, q", ["B(i,j) = A(i,j) - x(j)", "s(j) +=! r(i) * B(i,j)", "q(i) +=! B(i,j) * s(j)"], 2),
        ("B, s, q", ["q(i) +=! A(i,j)", "B(i,j) = A(i,j) - q(i)", "s(j) +=! B(i,j)"], 3),
    ],
)
def test_products_that_hand_nothing_on_share_a_pass(
    all_matrices: None, results: str, body: list[str], together: int
) -> None:
    f = beside(results, *body)
    random = np.random.default_rng(2)
    args = [random.integers(-4, 5, shape).astype(np.float64) for shape in [(389, 37), (37,), (389,)]]
    kernel = f.compile(*args)
    assert marks(kernel).count("strips") == 1
    assert max(len(group.clusters) for group in kernel.compilation.plan.groups) == together
    results_of = [r if isinstance(r, tuple) else (r,) for r in (kernel(*args), f.reference(*args))]
    for found, expected in zip(*results_of, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("dtype", "layout"), [("float", "columns"), ("int32", "apart")])
def test_rows_lie_as_the_caller_has_them(all_matrices: None, dtype: str, layout: str) -> None:
    f = beside("s, q", DOWN, ACROSS, dtype=dtype)
    random, kind = np.random.default_rng(3), np.float32 if dtype == "float" else np.int32
    a, x, r = (random.integers(-4, 5, shape).astype(kind) for shape in [(400, 386), (386,), (400,)])
    a = np.asfortranarray(a) if layout == "columns" else np.concatenate([a, a], axis=1)[:, :386]
    kernel = f.compile(a, x, r)
    assert "strips" in marks(kernel)
    for found, expected in zip(kernel(a, x, r), (a.T @ r, a @ x), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("results", "body"),
    [
        ("q", ["s(j) +=! A(i,j)", "q(i) +=! A(i,j) * s(j)"]),
        ("s", ["q(i) +=! A(i,j)", "u +=! q(i)", "s(j) +=! A(i,j) * u"]),
        ("s, q", ["s(j) +=! r(i) * A(i,j) where i in 5:M", ACROSS]),
        ("s, q", ["s(j) +=! r(i) * A(M-1-i,j)", ACROSS]),
        ("B, s, q", ["B(i,j) = 2 * A(i,j)", "s(j) +=! B(M-1-i,j)", "q(i) +=! B(i,j)"]),
    ],
)
def test_what_waits_or_has_other_rows_keeps_its_pass(results: str, body: list[str]) -> None:
    text = BESIDE.replace("TYPE", "double").replace("RESULTS", results).replace("BODY", "\n ".join(body))
    found = lower(define(text)["f"], Sizes({"M": 1900, "N": 1100}), tc.MappingOptions(), CPU).plan
    assert "strips" not in str(found.tree.to_str())
