"""Expected results of softmax, normalisations and losses, mostly from torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.library.case import Array, Cases, Draw, case, exact, functional, tensor

EPS = 1e-3


def _rows(draw: Draw) -> tuple[Array, ...]:
    """Rows that are long, that are one element, and that would overflow exp."""
    return draw(7, 130), draw(5, 1), 300 * draw(4, 9) + 500


class Softmax:
    def softmax(self, draw: Draw) -> Cases:
        for X in _rows(draw):
            yield case(X, expect=functional().softmax(tensor(X), 1))


class LogSoftmax:
    def log_softmax(self, draw: Draw) -> Cases:
        for X in _rows(draw):
            yield case(X, expect=functional().log_softmax(tensor(X), 1))


class LayerNorm:
    def layer_norm(self, draw: Draw) -> Cases:
        X, gamma, beta = draw(7, 65) + 3, draw(65), draw(65)
        yield case(X, gamma, beta, EPS, expect=_layer_norm(X, gamma, beta))

    def layer_norm_residual(self, draw: Draw) -> Cases:
        X, R, gamma, beta = draw(7, 65), draw(7, 65), draw(65), draw(65)
        yield case(X, R, gamma, beta, EPS, expect=(exact(X) + R, _layer_norm(exact(X) + R, gamma, beta)))

    def rms_norm(self, draw: Draw) -> Cases:
        X, gamma = draw(7, 65), draw(65)
        yield case(X, gamma, EPS, expect=functional().rms_norm(tensor(X), (65,), tensor(gamma), EPS))

    def l2_normalize(self, draw: Draw) -> Cases:
        X = draw(7, 65)
        X[2] = 0
        yield case(X, EPS, expect=functional().normalize(tensor(X), eps=EPS))


def _layer_norm(X: Array, gamma: Array, beta: Array) -> Any:
    return functional().layer_norm(tensor(X), X.shape[1:], tensor(gamma), tensor(beta), EPS)


class BatchNorm:
    def batch_norm(self, draw: Draw) -> Cases:
        arrays, expected = self._inference(draw)
        yield case(*arrays, EPS, expect=expected)

    def batch_norm_relu(self, draw: Draw) -> Cases:
        arrays, expected = self._inference(draw)
        yield case(*arrays, EPS, expect=expected.relu())

    def batch_norm_training(self, draw: Draw) -> Cases:
        arrays = draw(4, 3, 5, 6) + 2, draw(3), draw.positive(3), draw(3), draw(3)
        X, mean, var, gamma, beta = map(tensor, arrays)
        expected = functional().batch_norm(X, mean, var, gamma, beta, training=True, momentum=0.3, eps=EPS)
        yield case(*arrays, 0.3, EPS, expect=(expected, mean, var))

    def _inference(self, draw: Draw) -> tuple[tuple[Array, ...], Any]:
        arrays = draw(4, 3, 5, 6), draw(3), draw.positive(3), draw(3), draw(3)
        return arrays, functional().batch_norm(*map(tensor, arrays), eps=EPS)


class GroupNorm:
    def group_norm(self, draw: Draw) -> Cases:
        for groups in (1, 3, 6):
            X, gamma, beta = draw(2, 6, 5, 4) + 1, draw(6), draw(6)
            yield case(X, gamma, beta, EPS, groups, expect=_group_norm(X, gamma, beta, groups))

    def group_norm_axis(self, draw: Draw) -> Cases:
        X, gamma, beta = draw(2, 3, 4, 5, 7), draw(3, 4), draw(3, 4)
        expected = _group_norm(X.reshape(2, 12, 5, 7), gamma.reshape(12), beta.reshape(12), 3)
        yield case(X, gamma, beta, EPS, expect=expected.reshape(X.shape))

    def instance_norm(self, draw: Draw) -> Cases:
        X, gamma, beta = draw(2, 6, 5, 4), draw(6), draw(6)
        yield case(X, gamma, beta, EPS, expect=functional().instance_norm(
            tensor(X), weight=tensor(gamma), bias=tensor(beta), eps=EPS))  # fmt: skip


def _group_norm(X: Array, gamma: Array, beta: Array, groups: int) -> Any:
    return functional().group_norm(tensor(X), groups, tensor(gamma), tensor(beta), EPS)


class Loss:
    def cross_entropy(self, draw: Draw) -> Cases:
        for X in _rows(draw):
            label = draw.below(X.shape[1], X.shape[0]).astype(np.int64)
            yield case(X, label, expect=functional().cross_entropy(tensor(X), tensor(label).long()))

    def cross_entropy_soft(self, draw: Draw) -> Cases:
        for X in _rows(draw):
            P = draw.positive(*X.shape)
            P /= P.sum(axis=1, keepdims=True)
            yield case(X, P, expect=functional().cross_entropy(tensor(X), tensor(P), reduction="none"))

    def nll_loss(self, draw: Draw) -> Cases:
        X, label = draw(7, 5), draw.below(5, 7).astype(np.int64)
        yield case(X, label, expect=functional().nll_loss(tensor(X), tensor(label).long()))

    def mse_loss(self, draw: Draw) -> Cases:
        yield from self._of_pairs(draw, functional().mse_loss)

    def l1_loss(self, draw: Draw) -> Cases:
        yield from self._of_pairs(draw, functional().l1_loss)

    def huber_loss(self, draw: Draw) -> Cases:
        X, Y = draw(37), draw(37)
        yield case(X, Y, 0.7, expect=functional().huber_loss(tensor(X), tensor(Y), delta=0.7))

    def binary_cross_entropy(self, draw: Draw) -> Cases:
        X, Y = 100 * draw(37), (draw(37) > 0).astype(np.float32)
        yield case(X, Y, expect=functional().binary_cross_entropy_with_logits(tensor(X), tensor(Y)))

    def _of_pairs(self, draw: Draw, loss: Callable[..., Any]) -> Cases:
        X, Y = draw(37), draw(37)
        yield case(X, Y, expect=loss(tensor(X), tensor(Y)))
