"""Binding size symbols to the shapes of arrays."""

from __future__ import annotations

import numpy as np
import pytest

from tcomp.errors import ShapeError
from tcomp.grammar import define
from tcomp.grammar.ranges.ranges import bind_sizes, infer


def bind(parameters: str, shapes: dict[str, tuple[int, ...]], **constants: int) -> dict[str, int]:
    text = f"def f({parameters}) -> (O) {{ O = 1.0 }}"
    return bind_sizes(define(text)["f"], shapes, constants)


def messages(parameters: str, shapes: dict[str, tuple[int, ...]], **constants: int) -> list[str]:
    with pytest.raises(ShapeError) as caught:
        bind(parameters, shapes, **constants)
    return [d.message for d in caught.value.diagnostics]


def test_symbols_literals_and_expressions() -> None:
    shapes = {"A": (3, 4), "B": (4, 8), "C": (5, 2)}
    found = bind("float(N, C1) A, float(C1, 2*C1) B, float(N+2, 2) C, const int S", shapes, S=7)
    assert found == {"N": 3, "C1": 4, "S": 7}


def test_expressions_may_come_before_the_symbols() -> None:
    assert bind("float(N*M + 1) A, float(M, N) B", {"A": (13,), "B": (3, 4)}) == {"N": 4, "M": 3}


@pytest.mark.parametrize(
    ("parameters", "shapes", "expected"),
    [
        (
            "float(N) A, float(N) B",
            {"A": (3,), "B": (4,)},
            ["Mismatched sizes for dimension N: 3 by dimension 0 of A (3,), 4 by dimension 0 of B (4,)"],
        ),
        ("float(3) A", {"A": (4,)}, ["Constant dimension expected size 3 but found 4 (dimension 0 of A)"]),
        ("float(N) A", {"A": (4, 2)}, ["A: expected 1 dimensions but found tensor with 2 dimensions"]),
        (
            "float(N, 2*N) A",
            {"A": (4, 7)},
            ["Mismatched sizes for dimension 2*N: 8 by N = 4 of dimension 0 of A (4, 7), 7 by dimension 1 of A (4, 7)"],
        ),
        ("float(N) A", {}, ["the input A is not given"]),
        ("float(N, M, N / M) A", {"A": (4, 0, 1)}, ["N / M has no value for these sizes (dimension 2 of A)"]),
        ("float(N) A, const int S", {"A": (3,)}, ["the const parameter S is not given"]),
        (
            "float(N, N) A, float(3) B",
            {"A": (3, 4), "B": (1,)},
            [
                "Mismatched sizes for dimension N: 3 by dimension 0 of A (3, 4), 4 by dimension 1 of A (3, 4)",
                "Constant dimension expected size 3 but found 1 (dimension 0 of B)",
            ],
        ),
    ],
)
def test_mismatches(parameters: str, shapes: dict[str, tuple[int, ...]], expected: list[str]) -> None:
    assert messages(parameters, shapes) == expected


@pytest.mark.parametrize("value", [1 << 62, True, 2.0])
def test_constants_that_are_no_sizes(value: int) -> None:
    (message,) = messages("const int S", {}, S=value)
    assert message.startswith("S ")


def test_numpy_integers_are_sizes() -> None:
    found = infer(
        define("def f(float(N) A, const int S) -> (O) { O(i) = A(S * i) }")["f"], {"N": np.int64(7), "S": np.int32(2)}
    )
    assert found.boxes["O"].extent == (4,)
    assert type(found.sizes["N"]) is int
