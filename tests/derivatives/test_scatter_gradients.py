"""Gradients of reads that data choose are scatters, and those of scatters are such reads; torch has the same values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.fuzzing import gradients

EMBEDDING = "def embedding(float(E,D) T, int32(B,L) I) -> (bag) { bag(b,d) +=! T(I(b,l), d) }"

PROGRAMS = {
    "bag": EMBEDDING.replace("embedding(", "f("),
    "taken": "def f(float(E,D) T, int32(B) I) -> (O) { O(b,d) = T(I(b), d) }",
    "segment sum": "def f(float(N,D) V, int32(N) I) -> (float(7,D) O) { O(I(i),d) +=! V(i,d) }",
    "product": "def f(float(N,D) V, int32(N) I) -> (float(7,D) O) { O(I(i),d) *=! V(i,d) }",
    "into what is there": """def f(float(E,D) X, float(N,D) V, int32(N) I) -> (float(E,D) O) {
        O(e,d) = X(e,d)
        O(I(i),d) += V(i,d) }""",
    "two rows": "def f(float(E,D) T, int32(B) I, int32(B) J) -> (O) { O(b,d) = T(I(b), d) * T(J(b), d) }",
    "through a temporary": """def f(float(E,D) T, int32(B) I) -> (O) {
        S(e,d) = T(e,d) * T(e,d)
        O(b,d) = S(I(b), d) + S(I(b), 0) }""",
    "kept": """def f(float(N,D) V, int32(N) I) -> (float(7,D) O, P) {
        O(I(i),d) +=! V(i,d) * V(i,d)
        P(i) +=! O(I(i),d) * V(i,d) }""",
    "a mean": """def f(float(N,D) V, int32(N) I) -> (float(7,D) O) {
        count(e) = 0.0 where e in 0:7
        count(I(i)) += 1.0
        s(e,d) = 0.0 where e in 0:7, d in 0:D
        s(I(i),d) += V(i,d) * V(i,d)
        O(e,d) = s(e,d) / max(count(e), 1.0) }""",
    "one element": "def f(float(N) X, int32 k) -> (float(N) O) { O(i) = X(i)  O(int32(k)) += X(i) * X(i) }",
    "an element times all": "def f(float(N) X, int32 k) -> (float(N) O) { O(i) = X(i)  O(int32(k)) *= X(i) }",
    "an element or the largest": "def f(float(N) X, int32 k) -> (float(N) O) { O(i) = X(i)  O(int32(k)) max= X(i) }",
    "the last element": """def f(float(N) X, float(N+1) Y) -> (O) {
        O(i) = Y(i) where i in 0:N+1
        O(int32(N)) *= X(i) * Y(i) where i in 0:N }""",
    "guarded": "def f(float(E,D) T, int32(B) I) -> (O) { O(b,d) = I(b) > 0 ? T(I(b), d) : 0.0 where d in 0:D }",
}


def in_double(text: str) -> str:
    return text.replace("float(", "double(").replace("1.0", "double(1.0)").replace("0.0", "double(0.0)")


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_the_differences(name: str) -> None:
    f = tc.define(in_double(PROGRAMS[name])).f
    verdict = gradients.check(f, {"N": 6, "D": 4, "B": 5, "L": 3, "E": 7}, 0)
    assert verdict.kind == "passed", verdict.detail


def test_the_text_is_a_scatter() -> None:
    assert tc.define(EMBEDDING).embedding.gradient().text == (
        "def embedding_grad(int32(B, L) I, const int E, float(B, D) d_bag) -> (float(E, D) d_T) {\n"
        "    # d_T: the adjoint of T\n"
        "    d_T(I(b, l), d) +=! d_bag(b, d)\n"
        "}\n"
    )
    assert "d_V(i, d) = d_O(I(i), d)" in tc.define(PROGRAMS["segment sum"]).f.gradient().text


def test_sums_of_16_bits_are_added_up_in_32() -> None:
    f = tc.define("def f(half(E) T, int32(B) I) -> (O) { O(b) = T(I(b)) }").f
    ones = np.ones(5000, np.float16)
    (found,) = (f.gradient()(np.zeros(2, np.float16), np.zeros(5000, np.int32), ones),)
    assert found.dtype == np.float16 and found.tolist() == [5000, 0]


@pytest.fixture
def arrays() -> tuple[Any, ...]:
    generator = np.random.default_rng(1)
    v = generator.integers(-3, 4, (40, 5)).astype(np.float32)
    return v, generator.integers(0, 7, 40).astype(np.int32), generator.integers(-3, 4, (7, 5)).astype(np.float32)


def test_torch_has_the_same_gradient_of_an_embedding(arrays: tuple[Any, ...]) -> None:
    torch = pytest.importorskip("torch")
    v, places, table = arrays
    weight = torch.tensor(table, requires_grad=True)
    torch.nn.functional.embedding(torch.tensor(places), weight).backward(torch.tensor(v))
    found = tc.define(PROGRAMS["taken"]).f.gradient()(table, places, v)
    np.testing.assert_array_equal(found, weight.grad.numpy())


def test_torch_has_the_same_index_add(arrays: tuple[Any, ...]) -> None:
    torch = pytest.importorskip("torch")
    v, places, table = arrays
    x, y = torch.tensor(table, requires_grad=True), torch.tensor(v, requires_grad=True)
    result = x.index_add(0, torch.tensor(places), y)
    f = tc.define(PROGRAMS["into what is there"]).f
    np.testing.assert_array_equal(f(table, v, places), result.detach().numpy())
    result.backward(torch.tensor(table))
    d_x, d_v = f.gradient()(table, v, places, table)
    np.testing.assert_array_equal(d_x, x.grad.numpy())
    np.testing.assert_array_equal(d_v, y.grad.numpy())


@pytest.mark.parametrize("reduction", ["max", "min"])
def test_torch_has_the_same_extremes(arrays: tuple[Any, ...], reduction: str) -> None:
    """Equal extremes share what reaches them."""
    torch = pytest.importorskip("torch")
    v, places, table = arrays
    f = tc.define(f"def f(float(N,D) V, int32(N) I) -> (float(7,D) O) {{ O(I(i),d) {reduction}=! V(i,d) }}").f
    y = torch.tensor(v, requires_grad=True)
    index = torch.tensor(places, dtype=torch.int64)[:, None].expand(40, 5)
    result = torch.full((7, 5), 99.0).scatter_reduce(0, index, y, f"a{reduction}", include_self=False)
    np.testing.assert_array_equal(f(v, places), result.detach().numpy())
    result.backward(torch.tensor(table))
    np.testing.assert_allclose(f.gradient()(v, places, table), y.grad.numpy(), rtol=1e-6)


def test_the_first_of_equal_extremes_may_have_all() -> None:
    f = tc.define("def f(float(N) V, int32(N) I) -> (float(2) O) { O(I(i)) max=! V(i) }").f
    v, places = np.array([1, 3, 3, 2, 2], np.float32), np.array([0, 0, 0, 1, 1], np.int32)
    found = f.gradient(ties="first")(v, places, np.array([5, 7], np.float32))
    assert found.tolist() == [0, 5, 0, 7, 0]
