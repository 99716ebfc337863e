"""Expected results of convolutions and pooling, all from torch."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.library.case import Cases, Draw, case, functional, tensor


def _conv2d(draw: Draw, **choices: Any) -> tuple[Any, ...]:
    """Images, kernels, bias, and torch's convolution of them."""
    X, K, bias = draw(2, 3, 13, 12), draw(4, 3, 4, 3), draw(4)
    return X, K, bias, functional().conv2d(*map(tensor, (X, K, bias)), **choices)


class Conv1d:
    def conv1d(self, draw: Draw) -> Cases:
        X, K = draw(2, 3, 20), draw(4, 3, 5)
        yield case(X, K, expect=functional().conv1d(*map(tensor, (X, K))))

    def conv1d_general(self, draw: Draw) -> Cases:
        for stride, padding, dilation in ((1, 0, 1), (2, 1, 1), (3, 4, 2)):
            X, K, bias = draw(2, 3, 20), draw(4, 3, 5), draw(4)
            expected = functional().conv1d(*map(tensor, (X, K, bias)), stride, padding, dilation)
            yield case(X, K, bias, stride, padding, dilation, expect=expected)

    def conv1d_causal(self, draw: Draw) -> Cases:
        for dilation in (1, 4):
            X, K = draw(2, 3, 20), draw(4, 3, 3)
            padded = functional().pad(tensor(X), (2 * dilation, 0))
            yield case(X, K, dilation, expect=functional().conv1d(padded, tensor(K), dilation=dilation))

    def convolve_full(self, draw: Draw) -> Cases:
        A, B = draw(17), draw(5)
        yield case(A, B, expect=np.convolve(A.astype(np.float64), B))


class Conv2d:
    def conv2d(self, draw: Draw) -> Cases:
        X, K, _, _ = _conv2d(draw)
        yield case(X, K, expect=functional().conv2d(*map(tensor, (X, K))))
        X, K = draw(1, 1, 3, 3), draw(1, 1, 3, 3)
        yield case(X, K, expect=functional().conv2d(*map(tensor, (X, K))))

    def conv2d_bias(self, draw: Draw) -> Cases:
        X, K, bias, expected = _conv2d(draw)
        yield case(X, K, bias, expect=expected)

    def conv2d_bias_relu(self, draw: Draw) -> Cases:
        X, K, bias, expected = _conv2d(draw)
        yield case(X, K, bias, expect=expected.relu())

    def conv2d_bias_relu_pool(self, draw: Draw) -> Cases:
        X, K, bias, expected = _conv2d(draw)
        yield case(X, K, bias, expect=functional().max_pool2d(expected.relu(), 2))

    def conv2d_strided(self, draw: Draw) -> Cases:
        for stride in ((1, 1), (2, 3)):
            X, K, _, _ = _conv2d(draw)
            yield case(X, K, *stride, expect=functional().conv2d(*map(tensor, (X, K)), stride=stride))

    def conv2d_same(self, draw: Draw) -> Cases:
        for kernel in ((5, 3), (1, 7)):
            X, K = draw(2, 3, 9, 8), draw(4, 3, *kernel)
            yield case(X, K, expect=functional().conv2d(*map(tensor, (X, K)), padding="same"))

    def conv2d_general(self, draw: Draw) -> Cases:
        for stride, padding, dilation in (
            ((1, 1), (0, 0), (1, 1)),
            ((2, 2), (1, 1), (1, 1)),
            ((1, 3), (2, 0), (3, 2)),
            ((3, 2), (5, 4), (2, 1)),
        ):
            X, K, bias, expected = _conv2d(draw, stride=stride, padding=padding, dilation=dilation)
            yield case(X, K, bias, *stride, *padding, *dilation, expect=expected)

    def conv2d_grouped(self, draw: Draw) -> Cases:
        for groups, stride, padding, dilation in ((1, 1, 0, 1), (2, 2, 1, 1), (3, 1, 2, 2), (6, 2, 3, 1)):
            X, K = draw(2, 6, 9, 8), draw(12, 6 // groups, 3, 2)
            expected = functional().conv2d(tensor(X), tensor(K), None, stride, padding, dilation, groups)
            yield case(X, K, groups, stride, padding, dilation, expect=expected)

    def conv2d_grouped_axis(self, draw: Draw) -> Cases:
        X, K = draw(2, 3, 4, 9, 8), draw(3, 5, 4, 3, 2)
        expected = functional().conv2d(tensor(X.reshape(2, 12, 9, 8)), tensor(K.reshape(15, 4, 3, 2)), groups=3)
        yield case(X, K, expect=expected.reshape(2, 3, 5, 7, 7))

    def conv2d_depthwise(self, draw: Draw) -> Cases:
        for stride, padding in ((1, 0), (1, 1), (2, 2)):
            X, K = draw(2, 5, 9, 8), draw(5, 3, 4)
            expected = functional().conv2d(tensor(X), tensor(K[:, None]), None, stride, padding, groups=5)
            yield case(X, K, stride, padding, expect=expected)

    def conv2d_separable(self, draw: Draw) -> Cases:
        X, depth, point = draw(2, 5, 9, 8), draw(5, 3, 3), draw(4, 5)
        hidden = functional().conv2d(tensor(X), tensor(depth[:, None]), groups=5).relu()
        yield case(X, depth, point, expect=functional().conv2d(hidden, tensor(point[..., None, None])).relu())

    def conv2d_nhwc(self, draw: Draw) -> Cases:
        X, K, _, _ = _conv2d(draw)
        expected = functional().conv2d(*map(tensor, (X, K)))
        channels_last = np.ascontiguousarray(X.transpose(0, 2, 3, 1)), K.transpose(2, 3, 1, 0)
        yield case(*channels_last, expect=expected.permute(0, 2, 3, 1))

    def conv2d_transposed(self, draw: Draw) -> Cases:
        for stride, padding, kernel in ((1, 0, (3, 3)), (2, 1, (4, 3)), (3, 0, (2, 4)), (3, 2, (5, 5))):
            X, K = draw(2, 3, 5, 6), draw(3, 4, *kernel)
            expected = functional().conv_transpose2d(tensor(X), tensor(K), None, stride, padding)
            yield case(X, K, stride, padding, expect=expected)

    def conv2d_input_gradient(self, draw: Draw) -> Cases:
        X, K, dO = (tensor(x) for x in (draw(2, 3, 9, 8), draw(4, 3, 3, 2), draw(2, 4, 7, 7)))
        functional().conv2d(X.requires_grad_(), K).backward(dO)
        yield case(dO.float(), K.float(), expect=X.grad)

    def conv2d_kernel_gradient(self, draw: Draw) -> Cases:
        X, K, dO = (tensor(x) for x in (draw(2, 3, 9, 8), draw(4, 3, 3, 2), draw(2, 4, 7, 7)))
        functional().conv2d(X, K.requires_grad_()).backward(dO)
        yield case(X.float(), dO.float(), expect=K.grad)


class Conv3d:
    def conv3d(self, draw: Draw) -> Cases:
        X, K = draw(2, 2, 6, 7, 5), draw(3, 2, 2, 3, 2)
        yield case(X, K, expect=functional().conv3d(*map(tensor, (X, K))))

    def conv3d_general(self, draw: Draw) -> Cases:
        for stride, padding in ((1, 1), (2, 2)):
            X, K = draw(2, 2, 6, 7, 5), draw(3, 2, 2, 3, 2)
            yield case(X, K, stride, padding, expect=functional().conv3d(tensor(X), tensor(K), None, stride, padding))


class Pooling:
    WINDOWS = ((2, 2, 0), (3, 2, 1), (3, 1, 0), (2, 1, 1), (2, 3, 1), (5, 4, 2))

    def max_pool2d(self, draw: Draw) -> Cases:
        for window in self.WINDOWS:
            X = draw(2, 3, 9, 8)
            yield case(X, *window, expect=functional().max_pool2d(tensor(X), *window))

    def avg_pool2d(self, draw: Draw) -> Cases:
        for window in self.WINDOWS:
            X = draw(2, 3, 9, 8)
            yield case(X, *window, expect=functional().avg_pool2d(tensor(X), *window))

    def avg_pool2d_inside(self, draw: Draw) -> Cases:
        for window in self.WINDOWS:
            X = draw(2, 3, 9, 8)
            yield case(X, *window, expect=functional().avg_pool2d(tensor(X), *window, count_include_pad=False))

    def max_pool2d_2x2(self, draw: Draw) -> Cases:
        X = draw(2, 3, 9, 8)
        yield case(X, expect=functional().max_pool2d(tensor(X), 2))

    def avg_pool2d_2x2(self, draw: Draw) -> Cases:
        X = draw(2, 3, 9, 8)
        yield case(X, expect=functional().avg_pool2d(tensor(X), 2))

    def global_avg_pool2d(self, draw: Draw) -> Cases:
        X = draw(2, 3, 9, 8)
        yield case(X, expect=functional().adaptive_avg_pool2d(tensor(X), 1)[:, :, 0, 0])

    def global_max_pool2d(self, draw: Draw) -> Cases:
        X = draw(2, 3, 9, 8)
        yield case(X, expect=functional().adaptive_max_pool2d(tensor(X), 1)[:, :, 0, 0])

    def max_pool1d(self, draw: Draw) -> Cases:
        for window in ((3, 1), (3, 2), (2, 5)):
            X = draw(2, 3, 20)
            yield case(X, *window, expect=functional().max_pool1d(tensor(X), *window))
