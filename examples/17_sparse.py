"""Lesson 17: ranges from data: sparse matrices, attention on a graph, batches of unlike lengths.

``e in row(i):row(i+1)`` takes the ends of a range from a tensor.  ``row`` says where the entries of each row begin, as
in CSR, and ``col`` in which column each of them stands.  Ends are checked while the kernel runs, loops run from one end
to the other, and threads share rows by their entries, of which a picture shows the pieces.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import tcomp as tc

PROGRAM = """
def product(int32(R1) row, int32(E) col, float(E) V, float(N,D) X) -> (Y) {
  Y(i,d) +=! V(e) * X(col(e),d) where e in row(i):row(i+1)
}
def attend(int32(R1) row, int32(E) col, float(R,K) Q, float(R,K) Z, float(R,D) X) -> (Y) {
  score(e)    +=! Q(i,k) * Z(col(e),k) where e in row(i):row(i+1)
  largest(i) max=! score(e) where e in row(i):row(i+1)
  weight(e)     =     exp(score(e) - largest(i)) where e in row(i):row(i+1)
  total(i)    +=!     weight(e) where e in row(i):row(i+1)
  Y(i,d)      +=!     weight(e) / total(i) * X(col(e),d) where e in row(i):row(i+1)
}
def last_words(int32(B) length, float(B,T,D) X) -> (mean) {
  sum(b,d)  +=! X(b,t,d) where t in 0:length(b)
  mean(b,d)   = sum(b,d) / length(b)
}
def padded(int32(R) length, int32(R,L) col, float(R,L) V, float(N) x) -> (y) {
  y(i) +=! V(i,j) * x(col(i,j)) where j in 0:length(i)
}
"""

NODES, LINKS, PIECES = 2000, 12_000, 16


def graph(rng: np.random.Generator) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Where the links of each node begin, and where each leads: a few have most of them, each has one to itself."""
    degrees = 1 + rng.multinomial(LINKS - NODES, rng.dirichlet(np.full(NODES, 0.1)))
    row = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int32)
    col = rng.integers(0, NODES, LINKS).astype(np.int32)
    col[row[:-1]] = np.arange(NODES)
    return row, col


def draw(row: np.ndarray[Any, Any], col: np.ndarray[Any, Any], path: Path) -> str:
    """The entries of a matrix, coloured by the pieces of equal work in which threads take its rows."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415  optional
    except ImportError:
        return "no picture: it needs matplotlib"
    path.parent.mkdir(exist_ok=True)
    own = np.repeat(np.arange(NODES), np.diff(row))
    piece = np.minimum((row[own] + 4 * own) * PIECES // (LINKS + 4 * NODES), PIECES - 1)
    figure = Figure((5, 5), layout="constrained")
    axes = figure.add_subplot(xlabel="column", ylabel="row", title=f"{LINKS} entries in {PIECES} pieces")
    axes.scatter(col, own, s=1, c=piece % 8, cmap="Dark2")
    axes.invert_yaxis()
    figure.savefig(path)
    return f"picture: {path}"


def main() -> None:
    ops, rng = tc.define(PROGRAM, "lesson17.tc"), np.random.default_rng(0)
    row, col = graph(rng)
    own = np.repeat(np.arange(NODES), np.diff(row))
    print(f"{NODES} nodes, {LINKS} links; the longest row has {np.diff(row).max()}")
    print(draw(row, col, Path("out/sparse_rows.svg")))

    v, x = rng.standard_normal(LINKS, np.float32), rng.standard_normal((NODES, 8), np.float32)
    expected = np.zeros_like(x)
    np.add.at(expected, own, v[:, None] * x[col])
    assert np.allclose(ops.product(row, col, v, x), expected, atol=1e-4)
    try:
        from scipy import sparse  # noqa: PLC0415  optional

        matrix = sparse.csr_array((v, col, row), (NODES, NODES))
        assert np.allclose(ops.product(matrix, x), matrix @ x, atol=1e-4)
        print("a sparse matrix of SciPy stands for row, col and V")
    except ImportError:
        print("sparse matrices of SciPy, CuPy and torch stand for row, col and V")

    q, z = (rng.standard_normal((NODES, 4), np.float32) for _ in range(2))
    weight = np.exp((q[own] * z[col]).sum(1))
    total = np.zeros(NODES, np.float32)
    np.add.at(total, own, weight)
    expected = np.zeros_like(x)
    np.add.at(expected, own, (weight / total[own])[:, None] * x[col])
    assert np.allclose(ops.attend(row, col, q, z, x), expected, rtol=1e-3, atol=1e-3)
    print("attention over the links of each node: scores of entries know their row")

    # The adjoint of a sum over a range is one over a range, or over entries.
    gradient = ops.product.gradient()
    print(gradient)
    d_y = rng.standard_normal(x.shape, np.float32)
    d_v, d_x = gradient(row, col, v, x, d_y)
    assert np.allclose(d_v, (d_y[own] * x[col]).sum(1), atol=1e-4)
    expected = np.zeros_like(x)
    np.add.at(expected, col, v[:, None] * d_y[own])
    assert np.allclose(d_x, expected, atol=1e-3)

    length = rng.integers(1, 21, 50).astype(np.int32)
    words = rng.standard_normal((50, 20, 8), np.float32)
    means = np.stack([words[b, :n].mean(0) for b, n in enumerate(length)])
    assert np.allclose(ops.last_words(length, words), means, atol=1e-5)
    columns, values = rng.integers(0, 30, (50, 20), np.int32), rng.standard_normal((50, 20), np.float32)
    y = [values[i, :n] @ x[columns[i, :n], 0] for i, n in enumerate(length)]
    assert np.allclose(ops.padded(length, columns, values, x[:30, 0].copy()), y, atol=1e-4)
    print("batches of unlike lengths, and rows that are padded (ELL)")

    row[3] = LINKS + 7
    try:
        ops.product(row, col, v, x)
    except tc.ShapeError as error:
        print(error)


if __name__ == "__main__":
    main()
