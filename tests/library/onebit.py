"""Expected results of products of signs, packed in bits."""

from __future__ import annotations

import numpy as np

from tests.library.case import Array, Cases, Draw, case


def _signs(X: Array) -> Array:
    return np.where(X >= 0, 1, -1).astype(np.int32)


def _packed(X: Array) -> Array:
    """The signs along the last axis in words."""
    padding = [(0, 0)] * (X.ndim - 1) + [(0, -X.shape[-1] % 64)]
    bits = np.packbits(np.pad(X >= 0, padding), axis=-1, bitorder="little")
    return np.ascontiguousarray(bits).view(np.uint64)


class Onebit:
    def pack_signs(self, draw: Draw) -> Cases:
        for X in (draw(3, 64), draw(5, 130), draw(2, 7)):
            yield case(X, expect=_packed(X))

    def matmul_onebit(self, draw: Draw) -> Cases:
        for D in (64, 200):
            A, B = draw(9, D), draw(11, D)
            yield case(_packed(A), _packed(B), D, expect=_signs(A) @ _signs(B).T)

    def pack_channels(self, draw: Draw) -> Cases:
        for X in (draw(2, 70, 3, 4), draw(1, 3, 2, 5)):
            yield case(X, expect=_packed(X.transpose(0, 2, 3, 1)))

    def conv2d_onebit(self, draw: Draw) -> Cases:
        X, K = draw(2, 70, 6, 5), draw(4, 70, 3, 2)
        windows = np.lib.stride_tricks.sliding_window_view(_signs(X), (3, 2), axis=(2, 3))
        expected = np.einsum("nchwkl,fckl->nfhw", windows, _signs(K))
        packed = (_packed(T.transpose(0, 2, 3, 1)) for T in (X, K))
        yield case(*packed, 70, expect=expected)
