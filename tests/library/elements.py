"""Expected results of operators that map, reduce, pick, compare or move elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.library.case import Array, Cases, Draw, case, exact, functional, tensor


def _each(draw: Draw, function: Callable[..., Any], *scalars: float) -> Cases:
    """A function of each element, on ordinary values, large ones and zero."""
    X = np.concatenate([draw(33), 40 * draw(9), np.zeros(1, np.float32)])
    yield case(X, *scalars, expect=function(tensor(X), *scalars))


class Pointwise:
    def relu(self, draw: Draw) -> Cases:
        yield from _each(draw, functional().relu)

    def leaky_relu(self, draw: Draw) -> Cases:
        yield from _each(draw, functional().leaky_relu, 0.125)

    def elu(self, draw: Draw) -> Cases:
        yield from _each(draw, functional().elu, 0.75)

    def sigmoid(self, draw: Draw) -> Cases:
        yield from _each(draw, functional().sigmoid)

    def tanh(self, draw: Draw) -> Cases:
        yield from _each(draw, functional().tanh)

    def gelu(self, draw: Draw) -> Cases:
        yield from _each(draw, functional().gelu)

    def gelu_tanh(self, draw: Draw) -> Cases:
        gelu = functional().gelu
        yield from _each(draw, lambda x: gelu(x, approximate="tanh"))

    def silu(self, draw: Draw) -> Cases:
        yield from _each(draw, functional().silu)

    def softplus(self, draw: Draw) -> Cases:
        softplus = functional().softplus
        yield from _each(draw, lambda x: softplus(x, threshold=1000))

    def mish(self, draw: Draw) -> Cases:
        yield from _each(draw, functional().mish)

    def hardswish(self, draw: Draw) -> Cases:
        yield from _each(draw, functional().hardswish)

    def clip(self, draw: Draw) -> Cases:
        yield from _each(draw, lambda x, lo, hi: x.clamp(lo, hi), -0.5, 1.25)

    def add(self, draw: Draw) -> Cases:
        X, Y = draw(37), draw(37)
        yield case(X, Y, expect=exact(X) + Y)

    def multiply(self, draw: Draw) -> Cases:
        X, Y = draw(37), draw(37)
        yield case(X, Y, expect=exact(X) * Y)

    def multiply_add(self, draw: Draw) -> Cases:
        X, Y, Z = draw(37), draw(37), draw(37)
        yield case(X, Y, Z, expect=exact(X) * Y + Z)

    def lerp(self, draw: Draw) -> Cases:
        X, Y = draw(37), draw(37)
        yield case(X, Y, 0.25, expect=tensor(X).lerp(tensor(Y), 0.25))


def _reduced(draw: Draw, function: Callable[[Array], Any]) -> Cases:
    for shape in ((6, 35), (1, 1), (40, 3)):
        X = draw(*shape)
        yield case(X, expect=function(exact(X)))


class Reduction:
    def sum(self, draw: Draw) -> Cases:
        yield from _reduced(draw, np.sum)

    def mean(self, draw: Draw) -> Cases:
        yield from _reduced(draw, np.mean)

    def sum_rows(self, draw: Draw) -> Cases:
        yield from _reduced(draw, lambda X: X.sum(axis=1))

    def sum_columns(self, draw: Draw) -> Cases:
        yield from _reduced(draw, lambda X: X.sum(axis=0))

    def mean_rows(self, draw: Draw) -> Cases:
        yield from _reduced(draw, lambda X: X.mean(axis=1))

    def product_rows(self, draw: Draw) -> Cases:
        yield from _reduced(draw, lambda X: X.prod(axis=1))

    def max_rows(self, draw: Draw) -> Cases:
        yield from _reduced(draw, lambda X: X.max(axis=1))

    def min_rows(self, draw: Draw) -> Cases:
        yield from _reduced(draw, lambda X: X.min(axis=1))

    def argmax_rows(self, draw: Draw) -> Cases:
        yield from self._first_places(draw, np.argmax)

    def argmax_columns(self, draw: Draw) -> Cases:
        for X in (draw(7, 65), draw.below(3, 9, 20, dtype=np.float32)):
            yield case(X, expect=np.argmax(X, axis=0).astype(np.int32))

    def top2_rows(self, draw: Draw) -> Cases:
        for X in (draw(7, 65), draw.below(3, 9, 20, dtype=np.float32)):
            order = np.argsort(-X, axis=1, kind="stable")[:, :2]
            values = np.take_along_axis(X, order, axis=1)
            yield case(X, expect=(*values.T, *order.T.astype(np.int32)))

    def argmin_rows(self, draw: Draw) -> Cases:
        yield from self._first_places(draw, np.argmin)

    def logsumexp_rows(self, draw: Draw) -> Cases:
        for X in (draw(7, 65), 300 * draw(4, 9) + 500):
            yield case(X, expect=tensor(X).logsumexp(1))

    def moments(self, draw: Draw) -> Cases:
        yield from _reduced(draw, lambda X: (X.mean(axis=1), X.var(axis=1)))

    def norm_rows(self, draw: Draw) -> Cases:
        yield from _reduced(draw, lambda X: np.linalg.norm(X, axis=1))

    def cumulative_sum(self, draw: Draw) -> Cases:
        yield from _reduced(draw, lambda X: X.cumsum(axis=1))

    def _first_places(self, draw: Draw, place: Callable[..., Array]) -> Cases:
        for X in (draw(7, 65), draw.below(3, 9, 20, dtype=np.float32)):
            yield case(X, expect=place(X, axis=1).astype(np.int32))


class Embedding:
    def embedding(self, draw: Draw) -> Cases:
        table, index = draw(20, 7), draw.below(20, 13)
        yield case(table, index, expect=table[index])

    def embedding_bag(self, draw: Draw) -> Cases:
        yield from self._bags(draw, "sum")

    def embedding_bag_mean(self, draw: Draw) -> Cases:
        yield from self._bags(draw, "mean")

    def embedding_bag_weighted(self, draw: Draw) -> Cases:
        table, index, weight = draw(20, 7), draw.below(20, 6, 5), draw(6, 5)
        expected = functional().embedding_bag(
            tensor(index).long(), tensor(table), mode="sum", per_sample_weights=tensor(weight)
        )
        yield case(table, index, weight, expect=expected)

    def gather(self, draw: Draw) -> Cases:
        X, index = draw(6, 9), draw.below(9, 6, 4)
        yield case(X, index, expect=np.take_along_axis(X, index, axis=1))

    def one_hot(self, draw: Draw) -> Cases:
        index = draw.below(6, 13)
        yield case(index, 6, expect=np.eye(6, dtype=np.float32)[index])

    def _bags(self, draw: Draw, mode: str) -> Cases:
        table, index = draw(20, 7), draw.below(20, 6, 5)
        yield case(table, index, expect=functional().embedding_bag(tensor(index).long(), tensor(table), mode=mode))


class Scatter:
    def bincount(self, draw: Draw) -> Cases:
        index = draw.below(6, 50)
        yield case(index, 6, expect=np.bincount(index, minlength=6).astype(np.int32))

    def histogram(self, draw: Draw) -> Cases:
        X = draw(40)
        low, high = np.float32(-2), np.float32(2)
        place = np.clip(np.floor((X - low) / (high - low) * 8).astype(np.int32), 0, 7)
        yield case(X, low, high, 8, expect=np.bincount(place, minlength=8).astype(np.int32))

    def segment_sum(self, draw: Draw) -> Cases:
        yield from self._added(draw)

    def embedding_backward(self, draw: Draw) -> Cases:
        yield from self._added(draw)

    def segment_max(self, draw: Draw) -> Cases:
        X, segment = draw(30, 5), np.arange(30, dtype=np.int32) % 4
        yield case(X, segment, 4, expect=np.stack([X[segment == s].max(axis=0) for s in range(4)]))

    def index_add(self, draw: Draw) -> Cases:
        X, Y, index = draw(6, 5), draw(13, 5), draw.below(6, 13)
        expected = exact(X)
        np.add.at(expected, index, exact(Y))
        yield case(X, Y, index, expect=expected)

    def scatter_max(self, draw: Draw) -> Cases:
        X, Y, index = draw(6, 5), draw(13, 5), draw.below(6, 13)
        expected = X.copy()
        np.maximum.at(expected, index, Y)
        yield case(X, Y, index, expect=expected)

    def scatter_add(self, draw: Draw) -> Cases:
        X, index = draw(6, 9), draw.below(7, 6, 9)
        expected = np.zeros((6, 7))
        np.add.at(expected, (np.arange(6)[:, None], index), exact(X))
        yield case(X, index, 7, expect=expected)

    def voxelise(self, draw: Draw) -> Cases:
        place, feature = draw.below(3, 20, 3), draw(20, 4)
        count, total = np.zeros((3, 3, 3)), np.zeros((3, 3, 3, 4))
        np.add.at(count, tuple(place.T), 1)
        np.add.at(total, tuple(place.T), exact(feature))
        mean = total / np.maximum(count, 1)[..., None]
        yield case((place + np.float32(0.25)).astype(np.float32), feature, 3, 3, 3, expect=(mean, count))

    def _added(self, draw: Draw) -> Cases:
        X, index = draw(30, 5), draw.below(7, 30)
        expected = np.zeros((7, 5))
        np.add.at(expected, index, exact(X))
        yield case(X, index, 7, expect=expected)


def _differences(X: Array, Y: Array) -> Array:
    return exact(X)[:, None] - exact(Y)[None]


class Distance:
    def pairwise_distance(self, draw: Draw) -> Cases:
        X, Y = draw(12, 19), draw(7, 19)
        yield case(X, Y, expect=(_differences(X, Y) ** 2).sum(axis=2))

    def pairwise_distance_matmul(self, draw: Draw) -> Cases:
        yield from self.pairwise_distance(draw)

    def pairwise_distance_l1(self, draw: Draw) -> Cases:
        X, Y = draw(12, 19), draw(7, 19)
        yield case(X, Y, expect=np.abs(_differences(X, Y)).sum(axis=2))

    def nearest(self, draw: Draw) -> Cases:
        for X, Y in ((draw(12, 19), draw(7, 19)), (draw.below(2, 30, 3), draw.below(2, 9, 3))):
            S = (_differences(X, Y) ** 2).sum(axis=2)
            rows, table = X.astype(np.float32), Y.astype(np.float32)
            yield case(rows, table, expect=(S.argmin(axis=1).astype(np.int32), S.min(axis=1)))

    def cosine_similarity(self, draw: Draw) -> Cases:
        X, Y = draw(12, 19), draw(12, 19)
        X[4] = 0
        yield case(X, Y, 1e-6, expect=functional().cosine_similarity(tensor(X), tensor(Y), eps=1e-6))

    def pairwise_cosine_similarity(self, draw: Draw) -> Cases:
        X, Y = draw(12, 19), draw(7, 19)
        expected = functional().cosine_similarity(tensor(X)[:, None], tensor(Y)[None], dim=2, eps=1e-6)
        yield case(X, Y, 1e-6, expect=expected)


class Layout:
    def copy(self, draw: Draw) -> Cases:
        X = draw(9, 14)
        yield case(X, expect=X)

    def transpose(self, draw: Draw) -> Cases:
        X = draw(9, 14)
        yield case(X, expect=X.T)

    def nchw_to_nhwc(self, draw: Draw) -> Cases:
        X = draw(2, 3, 4, 5)
        yield case(X, expect=X.transpose(0, 2, 3, 1))

    def nhwc_to_nchw(self, draw: Draw) -> Cases:
        X = draw(2, 3, 4, 5)
        yield case(X, expect=X.transpose(0, 3, 1, 2))

    def concat_columns(self, draw: Draw) -> Cases:
        X, Y = draw(6, 4), draw(6, 9)
        yield case(X, Y, expect=np.hstack([X, Y]))

    def concat_rows(self, draw: Draw) -> Cases:
        X, Y = draw(4, 6), draw(9, 6)
        yield case(X, Y, expect=np.vstack([X, Y]))

    def stack(self, draw: Draw) -> Cases:
        X, Y = draw(11), draw(11)
        yield case(X, Y, expect=np.stack([X, Y]))

    def interleave(self, draw: Draw) -> Cases:
        X, Y = draw(11), draw(11)
        yield case(X, Y, expect=np.stack([X, Y], axis=1).ravel())

    def flip_rows(self, draw: Draw) -> Cases:
        X = draw(6, 4)
        yield case(X, expect=X[::-1])

    def pad(self, draw: Draw) -> Cases:
        for width in (0, 3):
            X = draw(6, 4)
            yield case(X, width, expect=np.pad(X, width))

    def lower_triangle(self, draw: Draw) -> Cases:
        for shape in ((7, 7), (4, 9)):
            X = draw(*shape)
            yield case(X, expect=np.tril(X))

    def diagonal(self, draw: Draw) -> Cases:
        X = draw(7, 7)
        yield case(X, expect=np.diagonal(X))

    def space_to_depth(self, draw: Draw) -> Cases:
        X = draw(2, 3, 6, 4)
        yield case(X, 2, expect=functional().pixel_unshuffle(tensor(X), 2))

    def depth_to_space(self, draw: Draw) -> Cases:
        X = draw(2, 18, 2, 4)
        yield case(X, 3, expect=functional().pixel_shuffle(tensor(X), 3))

    def upsample_nearest(self, draw: Draw) -> Cases:
        X = draw(2, 3, 4, 5)
        yield case(X, 3, expect=X.repeat(3, axis=2).repeat(3, axis=3))

    def im2col(self, draw: Draw) -> Cases:
        X = draw(3, 7, 6)
        yield case(X, 3, 2, expect=functional().unfold(tensor(X)[None], (3, 2))[0].T)


class Image:
    def blur3(self, draw: Draw) -> Cases:
        X = draw(20, 33)
        expected = sum(_shifted(X, i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)) / 9
        yield case(X, expect=expected)

    def separable_filter(self, draw: Draw) -> Cases:
        for taps in (1, 5):
            X, weight = draw(20, 33, 3), draw(taps)
            half = taps // 2
            Y = sum(_shifted(X, 0, k - half) * float(weight[k]) for k in range(taps))
            yield case(X, weight, expect=sum(_shifted(Y, k - half, 0) * float(weight[k]) for k in range(taps)))

    def sobel(self, draw: Draw) -> Cases:
        X, weight = draw(20, 33), {-1: 1, 0: 2, 1: 1}
        across = sum(weight[i] * j * _shifted(X, i, j) for i in (-1, 0, 1) for j in (-1, 0, 1))
        down = sum(weight[j] * i * _shifted(X, i, j) for i in (-1, 0, 1) for j in (-1, 0, 1))
        yield case(X, expect=(across, down, np.hypot(across, down)))

    def grayscale(self, draw: Draw) -> Cases:
        X = draw(9, 14, 3)
        yield case(X, expect=exact(X) @ [0.299, 0.587, 0.114])

    def dilate3(self, draw: Draw) -> Cases:
        X = draw(9, 14)
        yield case(X, expect=np.max([_shifted(X, i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)], axis=0))

    def histogram(self, draw: Draw) -> Cases:
        X = draw.below(10, 9, 14, dtype=np.uint8)
        yield case(X, 12, expect=np.bincount(X.ravel(), minlength=12).astype(np.int32))


def _shifted(image: Any, down: int, across: int) -> Any:
    """The pixel that lies so far down and across, the nearest one beyond the edges."""
    rows = np.clip(np.arange(image.shape[0]) + down, 0, image.shape[0] - 1)
    columns = np.clip(np.arange(image.shape[1]) + across, 0, image.shape[1] - 1)
    return exact(image)[rows][:, columns]
