"""The programs of ``examples/recurrences`` against loops in NumPy, and PyTorch's layers where it is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tests.language import polybench

FOLDER = Path(__file__).parents[2] / "examples" / "recurrences"
TARGETS = ["reference", "cpu", "simulator"]


def call(name: str, target: str, *arguments: Any, file: str = "") -> Any:
    path = FOLDER / f"{file or name}.tc"
    operation = tc.define(path.read_text(encoding="utf-8"), path.name)[name]
    return operation.reference(*arguments) if target == "reference" else operation(*arguments, target=target)


def floats(seed: int, *shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("n", "m", "steps"), [(3, 5, 1), (8, 11, 6), (4, 4, 0)])
def test_game_of_life(n: int, m: int, steps: int, target: str) -> None:
    start = cells = np.random.default_rng(0).integers(0, 2, (n, m)).astype(np.uint8)
    for _ in range(steps):
        moves = [np.roll(cells, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
        near = sum(moves, np.zeros_like(cells))
        cells = ((near == 3) | ((near == 2) & (cells == 1))).astype(np.uint8)
    np.testing.assert_array_equal(call("life", target, start, steps), cells)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["lstm", "gru"])
@pytest.mark.parametrize(("steps", "batch", "width", "depth"), [(4, 3, 5, 7), (1, 1, 1, 1)])
def test_recurrent_layers_equal_those_of_torch(
    name: str, steps: int, batch: int, width: int, depth: int, target: str
) -> None:  # fmt: skip
    torch = pytest.importorskip("torch")
    layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[name](width, depth)
    gates = 4 if name == "lstm" else 3
    X, h, c = floats(0, (steps, batch, width), (batch, depth), (batch, depth))
    W, R, b, d = (p.detach().numpy() for p in layer.parameters())
    weights = W.reshape(gates, depth, width), R.reshape(gates, depth, depth)
    state = [torch.from_numpy(s[None]) for s in (h, c)]
    with torch.no_grad():
        wanted = layer(torch.from_numpy(X), tuple(state) if name == "lstm" else state[0])[0].numpy()
    if name == "lstm":
        found = call(name, target, X, *weights, (b + d).reshape(4, depth), h, c)[0]
    else:
        found = call(name, target, X, *weights, b.reshape(3, depth), d.reshape(3, depth), h)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def alignment(a: Any, b: Any, local: bool) -> Any:
    H = np.zeros((len(a) + 1, len(b) + 1), np.int32)
    if not local:
        H[:, 0], H[0] = np.arange(len(a) + 1), np.arange(len(b) + 1)
    for i, x in enumerate(a, 1):
        for j, y in enumerate(b, 1):
            if local:
                H[i, j] = max(0, H[i - 1, j - 1] + (3 if x == y else -3), H[i - 1, j] - 2, H[i, j - 1] - 2)
            else:
                H[i, j] = min(H[i - 1, j - 1] + (x != y), H[i - 1, j] + 1, H[i, j - 1] + 1)
    return H


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("n", "m"), [(1, 1), (9, 6), (0, 3)])
def test_alignments(n: int, m: int, target: str) -> None:
    rng = np.random.default_rng(n)
    a, b = (rng.integers(0, 4, k).astype(np.uint8) for k in (n, m))
    H = alignment(a, b, local=True)
    table, best = call("smith_waterman", target, a, b)
    np.testing.assert_array_equal(table, H)
    assert best == H.max()
    assert call("edit_distance", target, a, b) == alignment(a, b, local=False)[-1, -1]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("states", "steps"), [(1, 1), (3, 8)])
def test_viterbi(states: int, steps: int, target: str) -> None:
    first, move, emit = floats(1, (states,), (states, states), (states, 5))
    seen = np.random.default_rng(2).integers(0, 5, steps).astype(np.int32)
    paths = np.indices((states,) * steps).reshape(steps, -1)
    scores = first[paths[0]] + emit[paths[0], seen[0]]
    for t in range(1, steps):
        scores = scores + move[paths[t - 1], paths[t]] + emit[paths[t], seen[t]]
    path, score = call("viterbi", target, first, move, emit, seen)
    np.testing.assert_array_equal(path, paths[:, scores.argmax()])
    np.testing.assert_allclose(score, scores.max(), rtol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_shortest_paths_with_no_way_between_some(target: str) -> None:
    rng = np.random.default_rng(3)
    length = np.where(rng.random((9, 9)) < 0.3, rng.random((9, 9)), np.inf).astype(np.float32)
    D = length.copy()
    for k in range(9):
        D = np.minimum(D, D[:, k : k + 1] + D[k : k + 1])
    np.testing.assert_array_equal(call("shortest_paths", target, length), D)


@pytest.mark.parametrize("target", TARGETS)
def test_state_space_models(target: str) -> None:
    x, step, A, B, C = floats(4, (2, 6, 3), (2, 6, 3), (3, 4), (2, 6, 4), (2, 6, 4))
    step, A = np.abs(step), -np.abs(A)
    h, y = np.zeros((2, 3, 4), np.float32), np.zeros_like(x)
    for t in range(6):
        h = np.exp(step[:, t, :, None] * A) * h + (step[:, t] * x[:, t])[..., None] * B[:, t, None]
        y[:, t] = (h * C[:, t, None]).sum(-1)
    np.testing.assert_allclose(call("state_space", target, x, step, A, B, C), y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(3, 7), (1, 1), (2, 0)])
def test_cumulative_products_and_maxima(shape: tuple[int, int], target: str) -> None:
    (A,) = floats(5, shape)
    product = call("cumulative_product", target, A, file="cumulative")
    np.testing.assert_allclose(product, np.cumprod(A, 1), rtol=1e-5)
    maximum = call("cumulative_maximum", target, A, file="cumulative")
    np.testing.assert_array_equal(maximum, np.maximum.accumulate(A, 1))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("n", "block"), [(1, 4), (9, 4), (24, 8), (13, 20)])
def test_factors_in_blocks_of_columns(n: int, block: int, target: str) -> None:
    half = np.random.default_rng(n).random((n, n))
    A = half @ half.T + n * np.eye(n)
    LU = call("lu", target, A, block, file="../polybench/solvers/lu")
    np.testing.assert_allclose((np.tril(LU, -1) + np.eye(n)) @ np.triu(LU), A, rtol=1e-10)
    b = np.arange(n, dtype=float)
    x = call("ludcmp", target, A, b, block, file="../polybench/solvers/ludcmp")
    np.testing.assert_allclose(x, np.linalg.solve(A, b), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        call("cholesky", target, A, block, file="../polybench/solvers/cholesky"),
        np.linalg.cholesky(A),
        rtol=1e-9,
        atol=1e-12,
    )


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("n", "block"), [(1, 4), (9, 4), (24, 8)])
def test_columns_are_made_orthogonal_in_blocks(n: int, block: int, target: str) -> None:
    A = np.random.default_rng(n).random((n + 3, n)) + np.eye(n + 3, n)
    Q, R = call("gramschmidt", target, A, block, file="../polybench/solvers/gramschmidt")
    for found, wanted in zip((Q, R), polybench.gramschmidt(A), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("n", "block"), [(9, 4), (24, 8)])
def test_shortest_paths_in_blocks_of_nodes(n: int, block: int, target: str) -> None:
    paths = np.random.default_rng(n).integers(1, 99, (n, n)).astype(np.int32)
    found = call("floyd_warshall", target, paths, block, file="../polybench/medley/floyd-warshall")
    np.testing.assert_array_equal(found, polybench.floyd_warshall(paths))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("n", "block"), [(4, 4), (11, 3)])
def test_pairs_of_bases_in_blocks(n: int, block: int, target: str) -> None:
    base = np.random.default_rng(n).integers(0, 4, n).astype(np.int32)
    found = call("nussinov", target, base, block, file="../polybench/medley/nussinov")
    np.testing.assert_array_equal(found, polybench.nussinov(base))


def test_bounds_of_blocks_may_divide_and_choose() -> None:
    text = """def f(float(N) A, const int B) -> (S) {
      S(i) = A(i)
      for b in 0:(N+B-1)/B {
        for k in max(b*B, b % 3):(b % 2 == 0 ? min((b+1)*B, N) : min(N, (b+1)*B-1)) { S(k) = S(k) + b + 1 }
      }
    }"""
    f = tc.define(text).f
    A = np.zeros(17, np.float32)
    for size in (1, 3, 5, 20):
        wanted = np.zeros(17, np.float32)
        for b in range(-(-17 // size)):
            last = min((b + 1) * size, 17) if b % 2 == 0 else min(17, (b + 1) * size - 1)
            for k in range(max(b * size, b % 3), last):
                wanted[k] += b + 1
        np.testing.assert_array_equal(f(A, size), wanted)
        np.testing.assert_array_equal(f.reference(A, size), wanted)
