"""Forward mode against reverse mode, and batches against one call after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcomp
from tests.derivatives.test_gradients import PROGRAMS, SIZES, made_up


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


OTHERS = {
    "repeated_edge": "def f(double(N) X) -> (O) { O(i) = repeat_edge(X)(i-1)*repeat_edge(X)(i-1) where i in 0:N }",
    "mirrored": "def f(double(N) X) -> (O) { O(i) = mirror_image(X)(i-2)*X(i) where i in 0:N }",
    "no_movement": "def f(double(N) X, int(N) P) -> (O, Q) { O(i) = X(i)*X(i)  Q(i) = double(P(i)) }",
    "begun_with_zeros": "def f(double(N) X) -> (O) { O(i) = double(0) where i in 0:N+1  O(i) += X(i)*X(i) }",
}


@pytest.mark.parametrize("program", [*PROGRAMS.values(), *OTHERS.values()], ids=[*PROGRAMS, *OTHERS])
def test_forward_mode(program: str) -> None:
    """<w, J v> = (<w, f(x + hv)> - <w, f(x - hv)>) / 2h, for all inputs at once."""
    operation = tcomp.define(program).f
    function, tangent = operation.function, operation.tangent()
    known = {n: SIZES.get(n, 3) for n in (*function.sizes, *(t.name for t in function.inputs if t.role == "const"))}
    arguments, rng = made_up(function, known, 3, -1), np.random.default_rng(4)
    moves = {
        t.name: rng.uniform(-1, 1, np.shape(a))
        for t, a in zip(function.inputs, arguments, strict=True)
        if t.role == "input" and t.dtype.is_float
    }
    given = dict(zip([t.name for t in function.inputs], arguments, strict=True))
    found = _tuple(tangent(*arguments, *moves.values()))
    step, sides = 1e-6, []
    for sign in (1, -1):
        moved = [a + sign * step * moves[n] if n in moves else a for n, a in given.items()]
        sides.append(_tuple(operation(*moved)))
    for high, low, got in zip(*sides, found, strict=True):
        np.testing.assert_allclose(got, (high - low) / (2 * step), atol=1e-7, rtol=1e-6)


def test_a_tangent_is_a_def_like_any_other() -> None:
    tangent = tcomp.define("library:matmul").matmul.tangent("A")
    assert tangent.name == "matmul_jvp"
    assert "t_C(m, n) +=! t_A(m, k) * B(k, n)" in str(tangent)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("which", ["all", "first", "last"])
def test_batches(program: str, which: str) -> None:
    operation = tcomp.define(program).f
    function = operation.function
    known = {n: SIZES.get(n, 3) for n in (*function.sizes, *(t.name for t in function.inputs if t.role == "const"))}
    places = [n for n, t in enumerate(function.inputs) if t.role == "input"]
    places = {"all": places, "first": places[:1], "last": places[-1:]}[which]
    one = made_up(function, known, 0, -1)
    many = [made_up(function, known, seed, -1) for seed in range(3)]
    arguments = [np.stack([m[n] for m in many]) if n in places else a for n, a in enumerate(one)]
    batched = operation.batched([0 if n in places else None for n in range(len(one))])
    found = _tuple(batched(*arguments))
    for number in range(3):
        single = _tuple(operation(*(a[number] if n in places else a for n, a in enumerate(arguments))))
        for got, expected in zip(found, single, strict=True):
            part = got[number] if got.ndim > expected.ndim else got
            np.testing.assert_allclose(part, expected, rtol=1e-12, atol=1e-12)


def test_text_of_a_batch() -> None:
    batched = tcomp.define("def f(float(N) X, float a) -> (o) { o +=! X(i)*b where b = a }").f.batched((0, 0))
    assert str(batched).splitlines()[:2] == [
        "def f_batched(float(BATCH, N) X, float(BATCH) a) -> (o) {",
        "    o(batch) +=! X(batch, i) * b where b = a(batch)",
    ]


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)])
def test_batches_of_blocks(axes: tuple[int | None, ...]) -> None:
    text = """def f(double(T,N) X, double w) -> (S, L) {
        h(n) = X(0,n)
        for t in 1:T {
            m +=! h(n) * w  h(n) = h(n) * w + X(t,n) - m
            for i in 1:N { h(i) = h(i-1) * X(t,i) + h(i) }
            S(t,n) = h(n)
        }
        S(0,n) = h(n)  L +=! h(n) * m
    }"""
    f, rng = tcomp.define(text).f, np.random.default_rng(0)
    arguments = [
        rng.random((3, *shape)) if axis == 0 else rng.random(shape)
        for axis, shape in zip(axes, ((4, 2), ()), strict=True)
    ]
    found = f.batched(axes).reference(*arguments)
    for number in range(3):
        single = f.reference(*(a[number] if axis == 0 else a for a, axis in zip(arguments, axes, strict=True)))
        for got, expected in zip(found, single, strict=True):
            np.testing.assert_allclose(got[number], expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("axes", "message"),
    [((0,), "one entry for each input"), ((None, None), "no input has a batch"), ((1, None), "dimension 0"),
     ((None, 0), "compile-time constant")],
)  # fmt: skip
def test_batches_that_do_not_fit(axes: tuple[int | None, ...], message: str) -> None:
    with pytest.raises(tcomp.ShapeError, match=message):
        tcomp.define("def f(float(N) X, const int S) -> (O) { O(i) = X(S*i) }").f.batched(axes)
