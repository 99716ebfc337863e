"""NumPy as people write it, into given outputs where a function takes them."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from benchmarks.cpu_case import Array, Case, Convolution, Einsum
from benchmarks.cpu_formulas import THIRD, in_numpy
from benchmarks.cpu_peer import Implementation, returning

Into = Callable[[list[Array], Array], Callable[[], object]]
"""``(inputs, output) -> call``; what a call needs besides is allocated once."""


class NumPy:
    """Matrix products through BLAS; the rest as whole-array operations."""

    version = np.__version__

    def build(self, case: Case, inputs: list[Array]) -> Implementation | None:
        """Every case can be written."""
        maker = _INTO.get(_name(case))
        if maker is None:
            formula = in_numpy(case)
            return returning(lambda: formula(*inputs), np.asarray)
        output = np.empty(case.output, case.output_dtype)
        return Implementation(maker(inputs, output), lambda: output)


def peer() -> NumPy:
    """This process's NumPy."""
    return NumPy()


def _name(case: Case) -> str:
    match case.formula:
        case Einsum(subscripts):
            return f"{subscripts} int8" if case.output_dtype == "int32" else subscripts
        case Convolution(depthwise=True, stride=1, dilation=1):
            return "depthwise"
        case Convolution(stride=1, dilation=1, group_axis=False) if len(case.inputs) == 2 and len(case.output) == 4:
            return "convolution"
        case str(name):
            return name
    return ""


def _int8(inputs: list[Array], output: Array) -> Callable[[], object]:
    """Through float32, which holds sums of 1024 products exactly."""
    a, b = inputs
    halves = np.empty(a.shape, np.float32), np.empty(b.shape, np.float32)
    floats = np.empty(output.shape, np.float32)

    def call() -> None:
        np.copyto(halves[0], a)
        np.copyto(halves[1], b)
        np.matmul(*halves, out=floats)
        np.copyto(output, floats, casting="unsafe")

    return call


def _convolution(inputs: list[Array], output: Array) -> Callable[[], object]:
    """Windows copied into a matrix, and one product."""
    image, kernel = inputs
    batch, channels = image.shape[:2]
    reach = kernel.shape[2:]
    flat = kernel.reshape(kernel.shape[0], -1)
    columns = np.empty((batch, channels, *reach, *output.shape[2:]), np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(image, reach, (2, 3)).transpose(0, 1, 4, 5, 2, 3)
    matrices = columns.reshape(batch, flat.shape[1], -1)
    products = output.reshape(batch, output.shape[1], -1)

    def call() -> None:
        np.copyto(columns, windows)
        np.matmul(flat, matrices, out=products)

    return call


def _depthwise(inputs: list[Array], output: Array) -> Callable[[], object]:
    """One multiplication and one addition of whole arrays for each element of a filter."""
    image, kernel = inputs
    height, width = output.shape[2:]
    term = np.empty_like(output)
    offsets = list(np.ndindex(*kernel.shape[1:]))

    def call() -> None:
        for number, (down, right) in enumerate(offsets):
            shifted = image[:, :, down : down + height, right : right + width]
            np.multiply(shifted, kernel[:, down, right][None, :, None, None], out=term if number else output)
            if number:
                np.add(output, term, out=output)

    return call


def _layer(inputs: list[Array], output: Array) -> Callable[[], object]:
    x, w, b = inputs

    def call() -> None:
        np.matmul(x, w, out=output)
        np.add(output, b, out=output)
        np.maximum(output, 0, out=output)

    return call


def _mlp3(inputs: list[Array], output: Array) -> Callable[[], object]:
    x, *layers = inputs
    pairs = list(zip(layers[::2], layers[1::2], strict=True))
    results = [np.empty((x.shape[0], weights.shape[0]), np.float32) for weights, _ in pairs[:-1]] + [output]

    def call() -> None:
        current = x
        for (weights, bias), result in zip(pairs, results, strict=True):
            np.matmul(current, weights.T, out=result)
            np.add(result, bias, out=result)
            np.maximum(result, 0, out=result)
            current = result

    return call


def _softmax(inputs: list[Array], output: Array) -> Callable[[], object]:
    (x,) = inputs

    def call() -> None:
        np.subtract(x, x.max(-1, keepdims=True), out=output)
        np.exp(output, out=output)
        np.divide(output, output.sum(-1, keepdims=True), out=output)

    return call


def _layer_norm(inputs: list[Array], output: Array) -> Callable[[], object]:
    x, gamma, beta = inputs
    squares = np.empty_like(output)

    def call() -> None:
        np.subtract(x, x.mean(-1, keepdims=True), out=output)
        np.multiply(output, output, out=squares)
        np.multiply(output, 1 / np.sqrt(squares.mean(-1, keepdims=True) + np.float32(1e-5)), out=output)
        np.multiply(output, gamma, out=output)
        np.add(output, beta, out=output)

    return call


def _blur(inputs: list[Array], output: Array) -> Callable[[], object]:
    (image,) = inputs
    rows = np.empty((image.shape[0], output.shape[1]), np.float32)

    def call() -> None:
        np.add(image[:, :-2], image[:, 1:-1], out=rows)
        np.add(rows, image[:, 2:], out=rows)
        np.multiply(rows, THIRD, out=rows)
        np.add(rows[:-2], rows[1:-1], out=output)
        np.add(output, rows[2:], out=output)
        np.multiply(output, THIRD, out=output)

    return call


def _relu_tanh(inputs: list[Array], output: Array) -> Callable[[], object]:
    a, b, c, d = inputs
    factor = np.empty_like(output)

    def call() -> None:
        np.multiply(a, b, out=output)
        np.add(output, c, out=output)
        np.maximum(output, 0, out=output)
        np.tanh(d, out=factor)
        np.multiply(output, factor, out=output)

    return call


def _attention(inputs: list[Array], output: Array) -> Callable[[], object]:
    q, k, v = inputs
    scores = np.empty((*q.shape[:2], k.shape[1]), np.float32)

    def call() -> None:
        np.matmul(q, k.swapaxes(1, 2), out=scores)
        np.multiply(scores, 0.125, out=scores)
        np.subtract(scores, scores.max(-1, keepdims=True), out=scores)
        np.exp(scores, out=scores)
        np.divide(scores, scores.sum(-1, keepdims=True), out=scores)
        np.matmul(scores, v, out=output)

    return call


def _lut(inputs: list[Array], output: Array) -> Callable[[], object]:
    table, index = inputs
    rows = np.empty((*index.shape, table.shape[1]), np.float32)

    def call() -> None:
        np.take(table, index, axis=0, out=rows, mode="clip")
        np.sum(rows, axis=1, out=output)

    return call


_INTO: dict[str, Into] = {
    "mk,kn->mn": lambda inputs, output: functools.partial(np.matmul, *inputs, out=output),
    "mk,nk->mn": lambda inputs, output: functools.partial(np.matmul, inputs[0], inputs[1].T, out=output),
    "km,kn->mn": lambda inputs, output: functools.partial(np.matmul, inputs[0].T, inputs[1], out=output),
    "km,nk->mn": lambda inputs, output: functools.partial(np.matmul, inputs[0].T, inputs[1].T, out=output),
    "bnk,bkm->bnm": lambda inputs, output: functools.partial(np.matmul, *inputs, out=output),
    "mk,kn->mn int8": _int8,
    "convolution": _convolution,
    "depthwise": _depthwise,
    "layer": _layer,
    "mlp3": _mlp3,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "blur": _blur,
    "relu_tanh": _relu_tanh,
    "attention": _attention,
    "lut": _lut,
    "transpose": lambda inputs, output: functools.partial(np.copyto, output, inputs[0].T),
    "row_sums": lambda inputs, output: functools.partial(np.sum, inputs[0], axis=1, out=output),
    "column_means": lambda inputs, output: functools.partial(np.mean, inputs[0], axis=0, out=output),
}
