"""Rules for reductions: sums and other results along axes, places of extrema, running sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tcomp.networks.importing import rule
from tcomp.networks.network import Value, retyped
from tcomp.networks.onnx.operands import FLOATS, OnnxBuilder, OnnxNode, Operand
from tcomp.networks.texts.general import LOG_SUM_EXP, conversion, places, reduction, running

REDUCTIONS = {
    "Sum": ("+=!", "{x}", "", ""),
    "Mean": ("+=!", "{x}", "{y} / ({count})", ""),
    "Max": ("max=!", "{x}", "", ""),
    "Min": ("min=!", "{x}", "", ""),
    "Prod": ("*=!", "{x}", "", ""),
    "L1": ("+=!", "abs({x})", "", ""),
    "L2": ("+=!", "{x} * {x}", "sqrt({y})", ""),
    "SumSquare": ("+=!", "{x} * {x}", "", ""),
    "LogSum": ("+=!", "{x}", "log({y})", ""),
    "LogSumExp": LOG_SUM_EXP,
}
"""How elements are combined, what of each, what is done to the result, and what is reduced before."""

Axes = Operand | Sequence[int] | None


@rule(*(f"onnx.Reduce{name}" for name in REDUCTIONS))
def reduce(
    b: OnnxBuilder, n: OnnxNode, *, data: Operand, axes: Axes = None, keepdims: int, noop_with_empty_axes: int = 0
) -> Value | list[Operand]:
    what = n.operator.removeprefix("onnx.Reduce")
    rank = len(data.shape)
    given = n.integers(axes, "axes")
    if not given and noop_with_empty_axes:
        return NotImplemented if what in ("L1", "L2", "SumSquare", "LogSum", "LogSumExp") else [data]
    dims = sorted({n.axis(k, rank) for k in given} if given else range(rank))
    if 0 in data.shape:
        raise n.refuse("takes a tensor without elements")
    if not dims:
        return [data]
    symbol, body, after, first = REDUCTIONS[what]
    name = {"LogSumExp": "log_sum_exp", "LogSum": "log_sum", "SumSquare": "sum_square"}.get(what, what.lower())
    made = reduction(name, symbol, body, after, rank, dims, bool(keepdims), "float32", first)
    if data.dtype in FLOATS:
        return b.floats(n, made, [data])
    if what not in ("Sum", "Max", "Min", "Prod", "L1", "SumSquare") or (data.dtype.startswith("uint") and what == "L1"):
        raise n.refuse(f"takes {data.dtype}")
    if data.dtype == "bool":
        inner = replace(n, name=f"{n.name}_bytes", shape=data.shape, dtype="uint8")
        wide = b.call(inner, conversion(rank, "bool", "uint8"), [data])
        found = b.call(replace(n, name=f"{n.name}_found", dtype="uint8"), retyped(made, "uint8"), [wide])
        return b.call(n, conversion(len(n.shape), "uint8", "bool"), [found])
    return b.call(n, retyped(made, data.dtype), [data])


@rule("onnx.ArgMax", "onnx.ArgMin")
def place(b: OnnxBuilder, n: OnnxNode, *, data: Operand, axis: int, keepdims: int, select_last_index: int) -> Value:
    rank = len(data.shape)
    what = n.operator.removeprefix("onnx.").lower()
    made = places(what, rank, n.axis(axis, rank), bool(keepdims), bool(select_last_index), data.dtype)
    return b.call(n, made, [data])


@rule("onnx.CumSum", "onnx.CumProd")
def cumulative(b: OnnxBuilder, n: OnnxNode, *, x: Operand, axis: Operand, exclusive: int, reverse: int) -> Value:
    found = n.known(axis, "an axis")
    rank = len(x.shape)
    dim = n.axis(int(np.ravel(found)[0]) if found is not None else 0, rank)
    symbol = "+" if n.operator == "onnx.CumSum" else "*"
    return b.call(n, running(rank, dim, symbol, bool(exclusive), bool(reverse), x.dtype), [x])
