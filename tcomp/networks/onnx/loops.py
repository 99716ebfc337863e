"""The control flow of ONNX: loops whose number of turns is known are unrolled, of two branches one is chosen."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tcomp.networks.onnx.operands import Constant, OnnxBuilder, OnnxNode, Operand
from tcomp.networks.pieces import picked, stacked
from tcomp.networks.texts.general import pointwise

Known = Mapping[str, Operand]
Body = Callable[[Any, Known], list[Operand]]
"""What a graph inside of a node gives, where names stand for these operands."""

_MOST_NODES = 10_000
"""A loop becomes no more nodes than that."""


def loop(
    b: OnnxBuilder, n: OnnxNode, operands: Sequence[Operand | None], attributes: Mapping[str, Any], body: Body
) -> list[Operand]:
    """The last of what a loop carries on, and what each of its turns gives besides, along a new first axis."""
    graph = attributes["body"]
    most, goes_on = (
        n.known(operand, what)
        for operand, what in zip(operands, ("how often it turns", "whether it turns"), strict=False)
    )
    turns = None if most is None else int(np.ravel(most)[0])
    if turns is None and goes_on is None:
        raise n.refuse("has no end")
    carried = [operand for operand in operands[2:] if operand is not None]
    if len(graph.input) != len(carried) + 2 or len(graph.output) <= len(carried):
        raise n.refuse("does not fit its body")
    again: Operand = Constant(f"{n.name}_goes_on", np.array(True if goes_on is None else bool(np.ravel(goes_on)[0])))
    given: list[list[Operand]] = [[] for _ in graph.output[1 + len(carried) :]]
    turn = 0
    while turns is None or turn < turns:
        if not isinstance(again, Constant):
            raise n.refuse("turns as long as an input says", "the number of its turns must be known")
        if goes_on is not None and not np.ravel(again.array)[0]:
            break
        _check_turns(n, graph, turn + 1)
        count = Constant(f"{n.name}_turn_{turn}", np.array(turn, np.int64))
        again, *found = body(
            graph, dict(zip((info.name for info in graph.input), (count, again, *carried), strict=True))
        )
        carried, rest = found[: len(carried)], found[len(carried) :]
        for kept, one in zip(given, rest, strict=True):
            kept.append(one)
        turn += 1
    if not turn and given:
        raise n.refuse("never turns, so what its turns give has no shape")
    return [*carried, *(_together(b, replace(n, name=f"{n.name}_turns_{k}"), one, 0) for k, one in enumerate(given))]


def scan(
    b: OnnxBuilder, n: OnnxNode, operands: Sequence[Operand | None], attributes: Mapping[str, Any], body: Body
) -> list[Operand]:
    """The last of what a scan carries on, and what it gives for each slice of what it goes over."""
    graph, count = attributes["body"], int(attributes["num_scan_inputs"])
    every = [operand for operand in operands if operand is not None]
    carried, over = every[: len(every) - count], every[len(every) - count :]
    outputs = len(graph.output) - len(carried)
    if len(graph.input) != len(every) or outputs < 0 or not over:
        raise n.refuse("does not fit its body")
    axes = [
        n.axis(axis, len(x.shape)) for axis, x in zip(_numbers(attributes, "scan_input_axes", count), over, strict=True)
    ]
    back = _numbers(attributes, "scan_input_directions", count)
    lengths = {x.shape[axis] for x, axis in zip(over, axes, strict=True)}
    if len(lengths) != 1 or lengths == {0}:
        raise n.refuse(f"goes over slices of {sorted(lengths)} steps")
    (length,) = lengths
    _check_turns(n, graph, length)
    given: list[list[Operand]] = [[] for _ in range(outputs)]
    for turn in range(length):
        slices = [
            _slice(b, replace(n, name=f"{n.name}_{turn}"), x, length - 1 - turn if reverse else turn, axis)
            for x, axis, reverse in zip(over, axes, back, strict=True)
        ]
        found = body(graph, dict(zip((info.name for info in graph.input), (*carried, *slices), strict=True)))
        carried, rest = found[: len(carried)], found[len(carried) :]
        for kept, one in zip(given, rest, strict=True):
            kept.append(one)
    results: list[Operand] = [*carried]
    reversed_, places = (_numbers(attributes, f"scan_output_{what}", outputs) for what in ("directions", "axes"))
    for k, (kept, reverse, axis) in enumerate(zip(given, reversed_, places, strict=True)):
        pieces = kept[::-1] if reverse else kept
        at = n.axis(axis, len(pieces[0].shape) + 1)
        results.append(_together(b, replace(n, name=f"{n.name}_steps_{k}"), pieces, at))
    return results


def branches(
    b: OnnxBuilder, n: OnnxNode, condition: Operand, attributes: Mapping[str, Any], body: Body
) -> list[Operand]:
    """What one branch gives; both are computed where only the input says which one is meant."""
    if isinstance(condition, Constant):
        return body(attributes["then_branch" if bool(np.ravel(condition.array)[0]) else "else_branch"], {})
    chosen = []
    pairs = zip(*(body(attributes[f"{side}_branch"], {}) for side in ("then", "else")), strict=True)
    for k, (one, other) in enumerate(pairs):
        if one.shape != other.shape or one.dtype != other.dtype:
            raise n.refuse(f"gives {one.dtype} of {one.shape} or {other.dtype} of {other.shape}, as an input says")
        operands = [(condition.shape, "bool"), (one.shape, one.dtype), (other.shape, other.dtype)]
        if int(np.prod(condition.shape)) != 1 or len(condition.shape) > len(one.shape):
            raise n.refuse(f"has a condition of {condition.shape}")
        inner = replace(n, name=f"{n.name}_chosen_{k}", shape=one.shape, dtype=one.dtype)
        made = pointwise("where", "{a} ? {b} : {c}", operands, one.shape, one.dtype)
        chosen.append(b.call(inner, made, [condition, one, other]))
    return list(chosen)


def _check_turns(n: OnnxNode, graph: Any, turns: int) -> None:
    if turns * max(1, len(graph.node)) > _MOST_NODES:
        raise n.refuse(f"becomes more than {_MOST_NODES} nodes")


def _numbers(attributes: Mapping[str, Any], name: str, count: int) -> list[int]:
    """An axis, or a direction, for each of some tensors."""
    return [int(k) for k in attributes.get(name) or [0] * count]


def _slice(b: OnnxBuilder, n: OnnxNode, x: Operand, at: int, axis: int) -> Operand:
    if isinstance(x, Constant):
        return Constant(f"{x.name}_{at}", np.take(x.array, at, axis))
    return picked(b, n, x, at, axis)


def _together(b: OnnxBuilder, n: OnnxNode, pieces: Sequence[Operand], axis: int) -> Operand:
    """Pieces along a new axis."""
    if len({(piece.shape, piece.dtype) for piece in pieces}) > 1:
        raise n.refuse("gives results of several shapes")
    known = [piece.array for piece in pieces if isinstance(piece, Constant)]
    if len(known) == len(pieces):
        return Constant(n.name, np.stack(known, axis))
    return stacked(b, n, [b.value(piece) for piece in pieces], axis)
