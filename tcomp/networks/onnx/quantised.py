"""Rules for quantised networks: numbers of 8 and 16 bits with a scale and a zero point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tcomp.networks.importing import RULES, rule
from tcomp.networks.network import Definition, Value, retyped
from tcomp.networks.onnx.operands import Constant, OnnxBuilder, OnnxNode, Operand
from tcomp.networks.texts import layers
from tcomp.networks.texts.general import ROUNDED, ROUNDING, pointwise


def _along(b: OnnxBuilder, n: OnnxNode, x: Operand, given: Operand, axis: int, block: int = 0) -> Operand:
    """A scale or a zero point as an operand that is repeated along the other axes."""
    if given.shape in ((), (1,)) and not block:
        return given
    array = n.known(given, "scales or zero points that differ along an axis")
    assert array is not None
    dim = n.axis(axis, len(x.shape))
    if block:
        whole = np.repeat(array, block, dim)
        whole = whole[(slice(None),) * dim + (slice(0, x.shape[dim]),)]
        if whole.shape != tuple(x.shape):
            raise n.refuse(f"has scales of {array.shape} in blocks of {block}")
        return Constant(given.name, whole)
    if array.shape != (x.shape[dim],):
        raise n.refuse(f"has {array.shape} scales for {x.shape[dim]} elements along axis {axis}")
    return Constant(given.name, array.reshape(-1, *(1,) * (len(x.shape) - 1 - dim)))


def _bounds(dtype: str) -> tuple[float, float]:
    limits = np.iinfo(dtype)
    return float(limits.min), float(limits.max)


def _quantised(
    name: str, value: str, zero: str, operands: Sequence[Operand], shape: Sequence[int], dtype: str
) -> Definition:
    """``value`` rounded to the nearest integer, moved by ``zero`` and kept within the type."""
    low, high = _bounds(dtype)
    moved = f"{ROUNDED} + float({zero})" if zero else ROUNDED
    lets = f"exact = {value}, {ROUNDING.format(x='exact')}"
    shapes = [(x.shape, x.dtype) for x in operands]
    return pointwise(name, f"clamp({moved}, {low}, {high})", shapes, shape, dtype, lets=lets)


@rule("onnx.QuantizeLinear")
def quantize(
    b: OnnxBuilder,
    n: OnnxNode,
    *,
    x: Operand,
    y_scale: Operand,
    y_zero_point: Operand | None,
    axis: int = 1,
    block_size: int = 0,
    **_: Any,
) -> Value:
    if n.dtype not in ("int8", "uint8", "int16", "uint16"):
        raise n.refuse(f"gives {n.dtype}")
    if x.dtype not in ("float32", "float16", "int32"):
        raise n.refuse(f"takes {x.dtype}")
    scale = _along(b, n, x, y_scale, axis, block_size)
    operands = [x, scale]
    if y_zero_point is not None:
        operands.append(_along(b, n, x, y_zero_point, axis, block_size))
    zero = "{c}" if y_zero_point is not None else ""
    return b.call(n, _quantised("quantize", "float({a}) / float({b})", zero, operands, n.shape, n.dtype), operands)


@rule("onnx.DequantizeLinear")
def dequantize(
    b: OnnxBuilder,
    n: OnnxNode,
    *,
    x: Operand,
    x_scale: Operand,
    x_zero_point: Operand | None,
    axis: int = 1,
    block_size: int = 0,
    **_: Any,
) -> Value:
    scale = _along(b, n, x, x_scale, axis, block_size)
    operands = [x, scale]
    body = "float({a}) * float({b})"
    if x_zero_point is not None:
        operands.append(_along(b, n, x, x_zero_point, axis, block_size))
        body = "(float({a}) - float({c})) * float({b})"
    shapes = [(operand.shape, operand.dtype) for operand in operands]
    return b.call(n, pointwise("dequantize", body, shapes, n.shape, n.dtype), operands)


def _moved(b: OnnxBuilder, n: OnnxNode, x: Operand, zero: Operand | None, axis: int, side: str) -> Operand:
    """Elements as int32, their zero point taken off."""
    if zero is not None:
        zero = _along(b, n, x, zero, axis)
    if isinstance(x, Constant) and (zero is None or isinstance(zero, Constant)):
        off = 0 if zero is None else zero.array.astype(np.int32)
        return Constant(f"{x.name}_moved", x.array.astype(np.int32) - off)
    inner = replace(n, name=f"{n.name}_{side}", shape=tuple(x.shape), dtype="int32")
    operands = [x] if zero is None else [x, zero]
    body = "int32({a})" if zero is None else "int32({a}) - int32({b})"
    shapes = [(operand.shape, operand.dtype) for operand in operands]
    return b.call(inner, pointwise("less_zero_point", body, shapes, x.shape, "int32"), operands)


def _requantised(
    b: OnnxBuilder,
    n: OnnxNode,
    x: Value,
    scales: Sequence[Operand],
    axis: int,
    zero: Operand | None,
    bias: Operand | None,
) -> Value:
    """A product of int32 as a result with its own scale: of the two operands, and of the result."""
    left, right, after = (np.asarray(n.known(scale, "scales"), np.float64) for scale in scales)
    factor = Constant(f"{n.name}_factor", np.asarray(left * right / after, np.float32))
    operands: list[Operand] = [x, _along(b, n, x, factor, axis)]
    value = "float({a}) * {b}"
    if bias is not None:
        value = "float({a} + {c}) * {b}"
        operands.append(_along(b, n, x, bias, axis))
    point = ""
    if zero is not None:
        point = "{d}" if bias is not None else "{c}"
        operands.append(_along(b, n, x, zero, axis))
    return b.call(n, _quantised("requantize", value, point, operands, n.shape, n.dtype), operands)


def _in_floats(
    b: OnnxBuilder,
    n: OnnxNode,
    operator: str,
    operands: Sequence[tuple[str, Operand, Operand, Operand, int]],
    bias: Operand | None,
    after: tuple[Operand, Operand],
    **how: Any,
) -> Value | None:
    """A layer between a ``DequantizeLinear`` of each operand and a ``QuantizeLinear``: a pass makes integers of that.

    None where that pass would leave it in floats: scales or zero points are not known, or the kernel's is not 0.
    """
    wide, scales = replace(n, dtype="float32"), []
    kernel_zero, kernel = operands[1][3], operands[1][1]
    if not isinstance(kernel_zero, Constant) or kernel_zero.array.any() or not isinstance(kernel, Constant):
        return None
    given: dict[str, Operand | None] = {}
    for label, x, scale, zero, axis in operands:
        if not isinstance(scale, Constant) or scale.dtype != "float32" or not isinstance(zero, Constant):
            return None
        scales.append(scale.array.astype(np.float64))
        inner = replace(wide, name=f"{n.name}_{label}", shape=tuple(x.shape))
        given[label] = dequantize(b, inner, x=x, x_scale=scale, x_zero_point=zero, axis=axis)
    if scales[0].size != 1:
        return None
    if bias is not None:
        array = n.known(bias, "the bias")
        assert array is not None
        given["B"] = Constant(f"{n.name}_bias", (array * scales[0].reshape(()) * scales[1]).astype(np.float32))
    elif operator == "onnx.Conv":
        given["B"] = None
    found = RULES[operator](b, replace(wide, name=f"{n.name}_wide"), **given, **how)
    scale, zero = after
    return quantize(b, n, x=found, y_scale=scale, y_zero_point=zero)


@rule("onnx.MatMulInteger")
def matmul_integer(
    b: OnnxBuilder, n: OnnxNode, *, A: Operand, B: Operand, a_zero_point: Operand | None, b_zero_point: Operand | None
) -> Value:
    if min(len(A.shape), len(B.shape)) < 2:
        raise n.refuse("multiplies by a vector")
    left = _moved(b, n, A, a_zero_point, len(A.shape) - 2, "left")
    right = _moved(b, n, B, b_zero_point, len(B.shape) - 1, "right")
    return b.call(n, retyped(layers.matmul(A.shape, B.shape), "int32"), [left, right])


@rule("onnx.QLinearMatMul")
def qlinear_matmul(
    b: OnnxBuilder,
    n: OnnxNode,
    *,
    a: Operand,
    a_scale: Operand,
    a_zero_point: Operand,
    b_scale: Operand,
    b_zero_point: Operand,
    y_scale: Operand,
    y_zero_point: Operand,
    right: Operand,
) -> Value:
    if min(len(a.shape), len(right.shape)) >= 2:
        both = [("A", a, a_scale, a_zero_point, 0), ("B", right, b_scale, b_zero_point, len(right.shape) - 1)]
        found = _in_floats(b, n, "onnx.MatMul", both, None, (y_scale, y_zero_point))
        if found is not None:
            return found
    wide = replace(n, name=f"{n.name}_wide", dtype="int32")
    found = matmul_integer(b, wide, A=a, B=right, a_zero_point=a_zero_point, b_zero_point=b_zero_point)
    return _requantised(b, n, found, [a_scale, b_scale, y_scale], len(n.shape) - 1, y_zero_point, None)


@rule("onnx.ConvInteger")
def conv_integer(
    b: OnnxBuilder,
    n: OnnxNode,
    *,
    x: Operand,
    w: Operand,
    x_zero_point: Operand | None,
    w_zero_point: Operand | None,
    **how: Any,
) -> Value:
    image = _moved(b, n, x, x_zero_point, 1, "image")
    kernel = _moved(b, n, w, w_zero_point, 0, "kernel")
    return RULES["onnx.Conv"](b, n, X=image, W=kernel, B=None, **how)  # type: ignore[no-any-return]


@rule("onnx.QLinearConv")
def qlinear_conv(
    b: OnnxBuilder,
    n: OnnxNode,
    *,
    x: Operand,
    x_scale: Operand,
    x_zero_point: Operand,
    w: Operand,
    w_scale: Operand,
    w_zero_point: Operand,
    y_scale: Operand,
    y_zero_point: Operand,
    B: Operand | None,
    **how: Any,
) -> Value:
    if len(x.shape) == 4:
        both = [("X", x, x_scale, x_zero_point, 1), ("W", w, w_scale, w_zero_point, 0)]
        found = _in_floats(b, n, "onnx.Conv", both, B, (y_scale, y_zero_point), **how)
        if found is not None:
            return found
    wide = replace(n, name=f"{n.name}_wide", dtype="int32")
    found = conv_integer(b, wide, x=x, w=w, x_zero_point=x_zero_point, w_zero_point=w_zero_point, **how)
    return _requantised(b, n, found, [x_scale, w_scale, y_scale], 1, y_zero_point, B)
