"""Halide with the Adams2019 autoscheduler: algorithms as its users write them, schedules by the search."""

from __future__ import annotations

import importlib.metadata
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import halide as hl
import numpy as np

from benchmarks.cpu_case import Array, Case, Convolution, Einsum, letters_of
from benchmarks.cpu_peer import Implementation

Buffers = list[Any]
Variables = list[Any]
"""Variables of an output, innermost first, as Halide has them: the reverse of the axes of an array."""

Algorithm = Callable[[Case, Buffers, Variables], Any]
"""Gives the function whose values are the output."""


def _reduction(names: str, extents: list[int]) -> dict[str, Any]:
    """The variables of one reduction domain, by name."""
    domain = hl.RDom([(0, extent) for extent in extents])
    return {name: domain[k] for k, name in enumerate(names)}


def _einsum(case: Case, buffers: Buffers, variables: Variables) -> Any:
    assert isinstance(case.formula, Einsum)
    factors, result = letters_of(case.formula.subscripts)
    shapes = [i.shape for i in case.inputs]
    extent = dict(zip("".join(factors), itertools.chain(*shapes), strict=True))
    summed = "".join(letter for letter in extent if letter not in result)
    at = dict(zip(reversed(result), variables, strict=True)) | _reduction(summed, [extent[s] for s in summed])
    sums = hl.Int(32) if case.output_dtype == "int32" else hl.Float(32)
    term: Any = None
    for buffer, factor in zip(buffers, factors, strict=True):
        value = hl.cast(sums, buffer[[at[letter] for letter in reversed(factor)]])
        term = value if term is None else term * value
    output = hl.Func("contraction")
    output[variables] = hl.cast(sums, 0)
    output[variables] += term
    return output


def _convolution(case: Case, buffers: Buffers, variables: Variables) -> Any:
    assert isinstance(case.formula, Convolution)
    image, kernel, *bias = buffers
    output = hl.Func("convolution")
    w, h, f, *batch = variables
    shape = case.inputs[1].shape
    if case.formula.depthwise:
        r = _reduction("kl", [shape[2], shape[1]])
        term = image[[w + r["k"], h + r["l"], f, *batch]] * kernel[[r["k"], r["l"], f]]
    else:
        r = _reduction("klc", [shape[-1], shape[-2], shape[-3]])
        groups = batch[:-1]
        term = image[[w + r["k"], h + r["l"], r["c"], *batch]] * kernel[[r["k"], r["l"], r["c"], f, *groups]]
    output[variables] = bias[0][[f, *batch[:-1]]] if bias else hl.f32(0)
    output[variables] += term
    return output


def _layer(case: Case, buffers: Buffers, variables: Variables) -> Any:
    x, weights, bias = buffers
    n, m = variables
    k = _reduction("k", [case.inputs[0].shape[1]])["k"]
    product, output = hl.Func("product"), hl.Func("layer")
    product[n, m] = bias[n]
    product[n, m] += x[k, m] * weights[n, k]
    output[n, m] = hl.max(product[n, m], hl.f32(0))
    return output


def _mlp3(case: Case, buffers: Buffers, variables: Variables) -> Any:
    current, *layers = buffers
    n, m = variables
    for weights, bias, spec in zip(layers[::2], layers[1::2], case.inputs[1::2], strict=True):
        k = _reduction("k", [spec.shape[1]])["k"]
        product, output = hl.Func(), hl.Func()
        product[n, m] = bias[n]
        product[n, m] += current[k, m] * weights[k, n]
        output[n, m] = hl.max(product[n, m], hl.f32(0))
        current = output
    return current


def _softmax_of(x: Any, columns: int, column: Any, rest: Variables) -> Any:
    r = _reduction("d", [columns])["d"]
    largest, weight, total, output = (hl.Func() for _ in range(4))
    largest[rest] = hl.maximum(x[[r, *rest]])
    weight[[column, *rest]] = hl.exp(x[[column, *rest]] - largest[rest])
    total[rest] = hl.f32(0)
    total[rest] += weight[[r, *rest]]
    output[[column, *rest]] = weight[[column, *rest]] / total[rest]
    return output


def _softmax(case: Case, buffers: Buffers, variables: Variables) -> Any:
    return _softmax_of(buffers[0], case.output[1], variables[0], variables[1:])


def _layer_norm(case: Case, buffers: Buffers, variables: Variables) -> Any:
    x, gamma, beta = buffers
    d, n = variables
    columns = case.output[1]
    r = _reduction("d", [columns])["d"]
    mean, spread, scale, output = (hl.Func() for _ in range(4))
    mean[n] = hl.f32(0)
    mean[n] += x[r, n] / columns
    centred = x[r, n] - mean[n]
    spread[n] = hl.f32(0)
    spread[n] += centred * centred / columns
    scale[n] = 1 / hl.sqrt(spread[n] + hl.f32(1e-5))
    output[d, n] = (x[d, n] - mean[n]) * scale[n] * gamma[d] + beta[d]
    return output


def _blur(case: Case, buffers: Buffers, variables: Variables) -> Any:
    (image,) = buffers
    x, y = variables
    third = hl.f32(1 / 3)
    rows, output = hl.Func("rows"), hl.Func("blur")
    rows[x, y] = (image[x, y] + image[x + 1, y] + image[x + 2, y]) * third
    output[x, y] = (rows[x, y] + rows[x, y + 1] + rows[x, y + 2]) * third
    return output


def _lut(case: Case, buffers: Buffers, variables: Variables) -> Any:
    table, index = buffers
    d, b = variables
    r = _reduction("l", [case.inputs[1].shape[1]])["l"]
    row = hl.clamp(index[r, b], 0, case.inputs[0].shape[0] - 1)
    output = hl.Func("lut")
    output[d, b] = hl.f32(0)
    output[d, b] += table[d, row]
    return output


def _relu_tanh(case: Case, buffers: Buffers, variables: Variables) -> Any:
    a, b, c, d = (buffer[variables] for buffer in buffers)
    output = hl.Func("relu_tanh")
    output[variables] = hl.max(a * b + c, hl.f32(0)) * hl.tanh(d)
    return output


def _attention(case: Case, buffers: Buffers, variables: Variables) -> Any:
    q, k, v = buffers
    e, row, b = variables
    s = hl.Var("s")
    length, depth = case.inputs[1].shape[1:]
    over_d, over_s = _reduction("d", [depth])["d"], _reduction("s", [length])["s"]
    score, scaled, output = hl.Func("score"), hl.Func("scaled"), hl.Func("attention")
    score[s, row, b] = hl.f32(0)
    score[s, row, b] += q[over_d, row, b] * k[over_d, s, b]
    scaled[s, row, b] = score[s, row, b] * hl.f32(0.125)
    weight = _softmax_of(scaled, length, s, [row, b])
    output[variables] = hl.f32(0)
    output[variables] += weight[over_s, row, b] * v[e, over_s, b]
    return output


_NAMED: dict[str, Algorithm] = {
    "layer": _layer,
    "mlp3": _mlp3,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "blur": _blur,
    "lut": _lut,
    "relu_tanh": _relu_tanh,
    "attention": _attention,
}


def _algorithm(case: Case) -> Algorithm | None:
    match case.formula:
        case Einsum():
            return _einsum
        case Convolution(stride=1, dilation=1) if len(case.output) >= 4:
            return _convolution
        case str(name):
            return _NAMED.get(name)
    return None


class Halide:
    """Pipelines compiled for this processor; they write into a buffer that is there."""

    version = importlib.metadata.version("halide")

    def __init__(self) -> None:
        plugins = sorted(Path(hl.__file__).parent.glob("lib*/libautoschedule_adams2019.so"))
        hl.load_plugin(str(plugins[0]) if plugins else "autoschedule_adams2019")
        self._target = hl.get_host_target()
        self._parameters = hl.AutoschedulerParams("Adams2019", {"parallelism": str(len(os.sched_getaffinity(0)))})
        self._names = itertools.count()

    def build(self, case: Case, inputs: list[Array]) -> Implementation | None:
        """Scheduled and compiled before the first call."""
        algorithm = _algorithm(case)
        if algorithm is None:
            return None
        arrays = [np.ascontiguousarray(a) for a in inputs]
        buffers = [hl.Buffer(array, name=f"input{next(self._names)}") for array in arrays]
        variables = [hl.Var(f"v{k}") for k in range(len(case.output))]
        function = algorithm(case, buffers, variables)
        extents = list(reversed(case.output))
        function.set_estimates([(0, extent) for extent in extents])
        pipeline = hl.Pipeline(function)
        pipeline.apply_autoscheduler(self._target, self._parameters)
        pipeline.compile_jit(self._target)
        output = np.empty(case.output, case.output_dtype)
        into = hl.Buffer(output)
        return Implementation(lambda: pipeline.realize(into), lambda: output, holds=arrays)


def peer() -> Halide:
    """Halide with its autoscheduler loaded.  Raises ImportError if that is missing."""
    try:
        return Halide()
    except RuntimeError as error:
        raise ImportError(str(error)) from None
