"""Expected results of operators on sparse matrices, which SciPy is not needed for."""

from __future__ import annotations

import itertools

import numpy as np

from tests.library.case import Array, Cases, Draw, case, exact


class Sparse:
    def csr_mv(self, draw: Draw) -> Cases:
        row, col, values, dense = _matrix(draw)
        X = draw(7)
        yield case(row, col, values, X, expect=dense @ X)
        wide = np.int64
        yield case(row.astype(wide), col.astype(wide), exact(values), exact(X), expect=dense @ X)

    def csr_mm(self, draw: Draw) -> Cases:
        row, col, values, dense = _matrix(draw)
        X = draw(7, 19)
        yield case(row, col, values, X, expect=dense @ exact(X))

    def csr_transposed_mm(self, draw: Draw) -> Cases:
        row, col, values, dense = _matrix(draw)
        X = draw(9, 5)
        yield case(row, col, values, X, 7, expect=dense.T @ exact(X))

    def csr_to_dense(self, draw: Draw) -> Cases:
        row, col, values, dense = _matrix(draw)
        yield case(row, col, values, 7, expect=dense)

    def sddmm(self, draw: Draw) -> Cases:
        row, col, _, _ = _matrix(draw)
        A, B = draw(9, 6), draw(7, 6)
        yield case(row, col, A, B, expect=(exact(A)[_rows(row)] * exact(B)[col]).sum(axis=1))

    def segment_softmax(self, draw: Draw) -> Cases:
        row, _, values, _ = _matrix(draw)
        S = draw(len(values), 3)
        own, powers = _rows(row), np.exp(exact(S))
        total = np.zeros((9, 3))
        np.add.at(total, own, powers)
        yield case(row, S, expect=powers / total[own])

    def neighbour_sum(self, draw: Draw) -> Cases:
        row, col, X, picked = _neighbours(draw)
        yield case(row, col, X, expect=np.stack([p.sum(axis=0) for p in picked]))

    def neighbour_mean(self, draw: Draw) -> Cases:
        row, col, X, picked = _neighbours(draw)
        yield case(row, col, X, expect=np.stack([p.sum(axis=0) / max(len(p), 1) for p in picked]))

    def neighbour_max(self, draw: Draw) -> Cases:
        row, col, X, picked = _neighbours(draw)
        yield case(row, col, X, expect=np.stack([p.max(axis=0, initial=-np.inf) for p in picked]))

    def ell_mm(self, draw: Draw) -> Cases:
        col, values, X = draw.below(7, 6, 4), draw(6, 4), draw(7, 5)
        yield case(col, values, X, expect=(exact(values)[:, :, None] * exact(X)[col]).sum(axis=1))

    def conv2d_pruned(self, draw: Draw) -> Cases:
        row, X = np.array([0, 4, 4, 9], np.int32), draw(2, 3, 6, 8)
        c, kh, kw, K = draw.below(3, 9), draw.below(2, 9), draw.below(3, 9), draw(9)
        Y = np.zeros((2, 3, 5, 6))
        for e, f in enumerate(_rows(row)):
            Y[:, f] += K[e] * exact(X)[:, c[e], kh[e] : kh[e] + 5, kw[e] : kw[e] + 6]
        yield case(X, row, c, kh, kw, K, 2, 3, expect=Y)


def _matrix(draw: Draw) -> tuple[Array, Array, Array, Array]:
    """Nine rows of seven columns, the third one empty: its ends of rows, columns and values, and all of it."""
    row = np.array([0, 3, 5, 5, 9, 10, 16, 21, 22, 26], np.int32)
    col, values = draw.below(7, 26), draw(26)
    dense = np.zeros((9, 7))
    np.add.at(dense, (_rows(row), col), exact(values))
    return row, col, values, dense


def _rows(row: Array) -> Array:
    """The row of each entry."""
    return np.repeat(np.arange(len(row) - 1), np.diff(row))


def _neighbours(draw: Draw) -> tuple[Array, Array, Array, list[Array]]:
    row, col, _, _ = _matrix(draw)
    X = draw(7, 5)
    return row, col, X, [exact(X)[col[a:b]] for a, b in itertools.pairwise(row)]
