"""What ``tcomp run --check`` makes of a difference, by where the arrays come from."""

from __future__ import annotations

import numpy as np
import pytest

import tcomp
from tcomp.commands.run import compare
from tcomp.model.madeup import Arguments

LENGTH = 10_007
TEXT = "def total(float(K) A) -> (S) { S +=! A(k) }"


@pytest.fixture
def operation() -> tcomp.Operation:
    return tcomp.define(TEXT).total


def arguments(made_up: bool, whole: bool = False) -> Arguments:
    rng = np.random.default_rng(0)
    a = rng.integers(1, 9, LENGTH) if whole else rng.uniform(0.5, 1.5, LENGTH)
    return Arguments((a.astype(np.float32),), {}, made_up)


def off_by(given: Arguments, share: float) -> dict[str, np.ndarray]:
    """A result that is wrong by a part of the sum."""
    return {"S": np.asarray(np.sum(given.values[0], dtype=np.float64) * (1 + share), np.float32)}


def test_made_up_arrays_allow_little(operation: tcomp.Operation) -> None:
    given = arguments(made_up=True)
    (right,) = compare(operation, given, off_by(given, 1e-6), None)
    (wrong,) = compare(operation, given, off_by(given, 5e-5), None)
    assert right.agrees and not right.improbable
    assert not wrong.agrees and wrong.share < 10


def test_loaded_arrays_may_add_up_badly(operation: tcomp.Operation) -> None:
    """Up to n u, 6e-4 here; beyond the probable 6 sqrt(n) u the command says so."""
    given = arguments(made_up=False)
    (likely,) = compare(operation, given, off_by(given, 2e-5), None)
    (unlikely,) = compare(operation, given, off_by(given, 3e-4), None)
    (wrong,) = compare(operation, given, off_by(given, 1e-3), None)
    assert likely.agrees and not likely.improbable
    assert unlikely.agrees and unlikely.improbable
    assert not wrong.agrees


def test_small_integers_allow_nothing(operation: tcomp.Operation) -> None:
    given = arguments(made_up=True, whole=True)
    exact = np.sum(given.values[0], dtype=np.float64)
    (equal,) = compare(operation, given, {"S": np.asarray(exact, np.float32)}, None)
    (wrong,) = compare(operation, given, {"S": np.asarray(exact + 1, np.float32)}, None)
    assert str(equal) == "S: equal to the reference"
    assert not wrong.agrees and str(wrong) == "S: differs from the reference; largest difference 1"


def test_what_rounding_decides_is_told(operation: tcomp.Operation) -> None:
    text = "def f(float(N) X) -> (Y) { s +=! X(i)  Y(i) = s * X(i) >= s * X(i) ? 1.0 : X(i) }"
    x = np.random.default_rng(1).standard_normal(8).astype(np.float32)
    (found,) = compare(tcomp.define(text).f, Arguments((x,), {}, True), {"Y": np.ones(8, np.float32)}, None)
    assert found.agrees and found.undecided == 0
    position = "def f(float(N) X) -> (Y) { s +=! X(i)  t(i) = s * X(i)  m max=! t(i)  Y +=! t(i) >= m ? i : 0 }"
    (found,) = compare(tcomp.define(position).f, Arguments((x,), {}, True), {"Y": np.asarray(3, np.int32)}, None)
    assert found.undecided == 1 and "may have any value" in str(found)
