"""Extrema of values that compilers may round in two ways: one of the values is found to be the extreme."""

from __future__ import annotations

import numpy as np
import pytest

import tcomp as tc
from tcomp.driver import lower
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.registry import backend_of

BODIES = {
    "a condition beside a product": ("X(i,j) * a(i) + relu(b(j))", lambda X, a, b: X * a[:, None] + b),
    "a product that a loop leaves": ("b(j) * b(j) + X(i,j) * a(i)", lambda X, a, b: b * b + X * a[:, None]),
}


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("ties", ["even", "first"])
def test_all_of_an_adjoint_arrives(body: str, ties: str) -> None:
    text, value = BODIES[body]
    f = tc.define(f"def f(float(N,M) X, float(N) a, float(M) b) -> (Y) {{ Y(j) max=! {text} }}").f
    rng = np.random.default_rng(0)
    X, a, b = (rng.random(shape, "f4") for shape in ((37, 23), (37,), (23,)))
    places = np.argmax(value(X, a, b), 0), np.arange(23)
    expected = np.zeros_like(X)
    expected[places] = a[places[0]]
    found = f.gradient("X", ties=ties)(X, a, b, np.ones(23, "f4"))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("target", ["cpu:x86-64-v3", "cuda:sm_90", "hip:gfx942", "opencl:gpu"])
def test_compilers_are_told(target: str) -> None:
    """Only where a sum of products is compared."""
    f = tc.define("def f(float(N,M) X, float(N) a) -> (Y) { Y(i) max=! X(i,j) * a(i) + X(i,j) }").f
    backend, sizes = backend_of(target), {"N": 4, "M": 5}
    for operation, asks in ((f, False), (f.gradient().backward, True)):
        source = lower(operation.function, Sizes(sizes), MappingOptions(), backend).source
        assert ("-ffp-contract=off" in source.flags or "FP_CONTRACT OFF" in source.text) == asks


def test_products_in_temporaries_count() -> None:
    """A compiler adds to a product that stands in another statement, too, where one loop has both."""
    text = "T(i,j) = X(i,j) * a(i) S(j) +=! T(i,j) * T(i,j) Y(j) max=! T(i,j) + X(i,j)"
    f = tc.define(f"def f(float(N,M) X, float(N) a) -> (S, Y) {{ {text} }}").f
    backward = f.gradient(save=()).backward.function
    assert " == Y(j)" in f.gradient(save=()).text
    source = lower(backward, Sizes({"N": 4, "M": 5}), MappingOptions(), backend_of("cpu:x86-64-v3")).source
    assert "-ffp-contract=off" in source.flags


def test_a_second_derivative_saves_no_extreme_without_its_values() -> None:
    f = tc.define("def f(float(N,M) X, float(N) a) -> (Y) { Y(j) max=! X(i,j) * a(i) }").f
    assert f.gradient().gradient().saved == ()
