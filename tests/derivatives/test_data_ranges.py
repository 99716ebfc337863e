"""Gradients of sums over ranges whose ends data give: right, and themselves no sums over pairs of rows and entries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tests.cuda.simulated import NEEDS_COMPILER

pytestmark = pytest.mark.sweep(3)

torch: Any = pytest.importorskip("torch")

Array = np.ndarray[Any, np.dtype[Any]]
HEAD = "def f(int32(R1) row, int32(E) col, "

PROGRAMS = {
    "vector": "float(E) V, float(N) X) -> (Y) { Y(i) +=! V(e) * X(col(e)) where e in row(i):row(i+1) }",
    "dense": "float(E) V, float(N,D) X) -> (Y) { Y(i,d) +=! V(e) * X(col(e),d) where e in row(i):row(i+1) }",
    "weights of rows": """float(E) V, float(R) W, float(N,D) X) -> (Y) {
        Y(i,d) +=! W(i) * V(e) * X(col(e),d) where e in row(i):row(i+1) }""",
    "twice": """float(E) V, float(N,D) X) -> (Y) {
        H(i,d) +=! V(e) * X(col(e),d) where e in row(i):row(i+1)
        Y(i,d) +=! V(e) * relu(H(i,d)) * X(col(e),d) where e in row(i):row(i+1) }""",
    "attention": """float(R,K) Q, float(N,K) Z, float(N,D) X) -> (Y) {
        score(e)   +=! Q(i,k) * Z(col(e),k) where e in row(i):row(i+1)
        weight(e)    =     exp(score(e)) where e in 0:E
        total(i)   +=!     weight(e) where e in row(i):row(i+1)
        Y(i,d)     +=!     weight(e) / total(i) * X(col(e),d) where e in row(i):row(i+1) }""",
    "softmax": """float(E) V, float(N,D) X) -> (Y) {
        most(i)  max=! V(e) where e in row(i):row(i+1)
        total(i) +=!   exp(V(e) - most(i)) where e in row(i):row(i+1)
        Y(i,d)   +=!   exp(V(e) - most(i)) / total(i) * X(col(e),d) where e in row(i):row(i+1) }""",
    "largest": "float(N,D) X) -> (Y) { Y(i,d) max=! X(col(e),d) where e in row(i):row(i+1) }",
    "means": """float(N,D) X) -> (Y) {
        count(i) +=! 1.0 where e in row(i):row(i+1), exists col(e)
        total(i,d) +=! X(col(e),d) where e in row(i):row(i+1)
        Y(i,d) = total(i,d) / max(count(i), 1.0) }""",
}
SIZES = {"R": 6, "R1": 7, "E": 20, "N": 5, "D": 3, "K": 2}


def given(f: tc.Operation, full: bool) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    found: dict[str, Array] = {}
    for p in f.function.definition.inputs:
        shape = [SIZES[str(d)] for d in p.dims or ()]
        found[p.name.name] = rng.standard_normal(shape).astype(np.float32)
    inner = np.sort(rng.integers(0, 18, SIZES["R"] - 1))
    found["row"] = np.array([0, *inner, 20 if full else 17], np.int32)
    found["col"] = rng.integers(0, SIZES["N"], SIZES["E"]).astype(np.int32)
    return found


def by_torch(name: str, arrays: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
    """The result, and gradients of its sum times itself, row by row."""
    tensors = {n: torch.tensor(a, requires_grad=a.dtype == np.float32) for n, a in arrays.items()}
    row, col, x = arrays["row"], tensors["col"].long(), tensors["X"]
    v = tensors.get("V")

    def product(weight: Any) -> Any:
        parts = [weight(i, slice(row[i], row[i + 1])) for i in range(SIZES["R"])]
        return torch.stack([(w[:, None] * x[col[s]] if x.ndim > 1 else w * x[col[s]]).sum(0) for w, s in parts])

    match name:
        case "vector" | "dense":
            y = product(lambda i, s: (v[s], s))
        case "weights of rows":
            y = product(lambda i, s: (tensors["W"][i] * v[s], s))
        case "twice":
            y = product(lambda i, s: (v[s], s)) ** 1
            y = torch.relu(y) * y
        case "softmax":
            y = product(lambda i, s: (torch.softmax(v[s], 0), s))
        case "largest":
            rows = [x[col[slice(row[i], row[i + 1])]] for i in range(SIZES["R"])]
            y = torch.stack([r.amax(0) if len(r) else torch.full((SIZES["D"],), -torch.inf) for r in rows])
        case "attention":

            def weight(i: int, s: slice) -> Any:
                score = torch.exp(tensors["Z"][col[s]] @ tensors["Q"][i])
                return score / score.sum(), s

            y = product(weight)
        case _:
            y = product(lambda i, s: (torch.full((s.stop - s.start,), 1 / max(1, s.stop - s.start)), s))
    (y * y).where(y > -torch.inf, 0.0).sum().backward()
    return y.detach().numpy(), {n: t.grad.numpy() for n, t in tensors.items() if t.grad is not None}


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_torch(name: str, full: bool) -> None:
    """Entries behind the last row have a gradient of 0."""
    f = tc.define(HEAD + PROGRAMS[name]).f
    arrays = given(f, full or name == "attention")  # there entries know their row in the def, too
    y, wanted = by_torch(name, arrays)
    np.testing.assert_allclose(f(**arrays), y, rtol=1e-4, atol=1e-5)
    gradient = f.gradient()
    found = gradient(*(arrays[t.name] for t in f.function.inputs), np.where(y > -np.inf, 2 * y, 0.0).astype(np.float32))
    for name, own in zip(gradient.wrt, found if isinstance(found, tuple) else (found,), strict=True):
        np.testing.assert_allclose(own, wanted[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", PROGRAMS)
def test_tangents_agree_with_gradients(name: str) -> None:
    f, rng = tc.define(HEAD + PROGRAMS[name]).f, np.random.default_rng(3)
    arrays = [given(f, full=True)[t.name] for t in f.function.inputs]
    y = f(*arrays)
    w = np.where(np.isfinite(y), rng.standard_normal(y.shape), 0).astype(np.float32)
    gradient = f.gradient()
    found = gradient(*arrays, w)
    moved = [rng.standard_normal(a.shape).astype(np.float32) for a in arrays if a.dtype == np.float32]
    t_y = np.where(np.isfinite(y), f.tangent()(*arrays, *moved), 0)
    backward = sum(
        float((d * m).sum()) for d, m in zip(found if isinstance(found, tuple) else (found,), moved, strict=True)
    )
    assert float((w * t_y).sum()) == pytest.approx(backward, rel=1e-3, abs=1e-3)
    assert "row(i) <= e" not in str(f.tangent())


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_pairs_of_rows_and_entries_are_gone_through(name: str) -> None:
    text = str(tc.define(HEAD + PROGRAMS[name]).f.gradient())
    assert "row(i) <= e" not in text
    assert "col(e) ==" not in text or name == "largest", "what one of several adds to is compared"


def test_ends_of_64_bits_are_ends_as_well() -> None:
    """An index is compared with them in their type."""
    f = tc.define(HEAD.replace("int32", "int64") + PROGRAMS["dense"]).f
    arrays = given(f, full=False)
    arrays |= {n: arrays[n].astype(np.int64) for n in ("row", "col")}
    y, wanted = by_torch("dense", arrays)
    d_v, d_x = f.gradient()(*arrays.values(), 2 * y)
    np.testing.assert_allclose(d_v, wanted["V"], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(d_x, wanted["X"], rtol=1e-3, atol=1e-4)
    forward = tc.define(HEAD.replace("int32", "int64") + PROGRAMS["softmax"]).f.gradient(save=())
    assert str(forward).count("where e in row(i):row(i + 1)") >= 3, "what is computed again keeps to its ranges"


@pytest.mark.parametrize("target", ["cpu", pytest.param("simulator", marks=NEEDS_COMPILER)])
def test_ragged_batches(target: str) -> None:
    text = (
        "def f(int32(B) length, float(B,T,D) X, float(D) W) -> (Y) { Y(b) +=! X(b,t,d) * W(d) where t in 0:length(b) }"
    )
    f, rng = tc.define(text).f, np.random.default_rng(0)
    length, x, w = (
        np.array([3, 0, 5, 1], np.int32),
        *(rng.standard_normal(s).astype(np.float32) for s in ((4, 5, 6), 6)),
    )
    d_y = rng.standard_normal(4).astype(np.float32)
    d_x, d_w = f.gradient()(length, x, w, d_y, target=target)
    mask = np.arange(5) < length[:, None]
    np.testing.assert_allclose(d_x, mask[:, :, None] * d_y[:, None, None] * w, rtol=1e-5)
    np.testing.assert_allclose(d_w, np.einsum("bt,btd,b->d", mask, x, d_y), rtol=1e-4, atol=1e-5)


def test_ranges_that_may_overlap_are_no_rows() -> None:
    """Of ``row(2*i):row(2*i+1)`` none is backward here, and entry 1 belongs to both."""
    text = """def f(float(E) V, int32(P) row, float(R) s) -> (Y) {
        Y(i) +=! V(e) * s(i) where i in 0:R, e in row(2*i):row(2*i+1)
    }"""
    f = tc.define(text).f
    V, row, s = np.ones(5, np.float32), np.array([0, 3, 1, 5], np.int32), np.array([10, 1], np.float32)
    d_V = f.gradient(wrt=["V"])(V, row, s, np.ones(2, np.float32))
    np.testing.assert_array_equal(d_V, [10, 11, 11, 1, 1])


def test_what_a_range_leaves_stays_as_it_was() -> None:
    """A version that `=` writes in a range from data has the content before it elsewhere: gradients read that, too."""
    f = tc.define("""def f(double(N) X, double(N) Y, int32(1) r) -> (O) {
        T(i) = X(i) * X(i)
        Q(i) = sin(T(i))
        T(i) = Y(i) * T(i) where i in 0:N, i in 1:r(0)
        O(i) = T(i) * Q(i)
    }""").f
    X, Y, w = np.linspace(0.1, 1, 6), np.linspace(2, 3, 6), np.linspace(1, 2, 6)
    inside = np.array([0, 1, 1, 1, 0, 0], bool)
    named = {"X": X, "Y": Y, "r": np.array([4], "i4"), "d_O": w}
    backward = f.gradient(save=()).backward
    d_X, d_Y = backward.reference(*(named[t.name] for t in backward.function.inputs))
    by_square = np.where(inside, Y, 1) * (np.sin(X * X) + X * X * np.cos(X * X))
    np.testing.assert_allclose(d_X, w * 2 * X * by_square)
    np.testing.assert_allclose(d_Y, np.where(inside, w * X * X * np.sin(X * X), 0))
