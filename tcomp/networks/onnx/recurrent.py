"""Rules for the recurrent layers of ONNX."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tcomp.networks.importing import rule
from tcomp.networks.network import Value, retyped
from tcomp.networks.onnx.operands import Constant, OnnxBuilder, OnnxNode, Operand
from tcomp.networks.pieces import picked, stacked, swapped
from tcomp.networks.recurrent import Cell, Operands
from tcomp.networks.recurrent import direction as one_direction
from tcomp.networks.texts import elements, parts
from tcomp.networks.texts.elements import UNARY

_CELLS = {
    "LSTM": ("lstm", "iofg", "Sigmoid Tanh Tanh"),
    "GRU": ("gru", "zrn", "Sigmoid Tanh"),
    "RNN": ("rnn", "n", "Tanh"),
}
_FUNCTIONS = {
    "Sigmoid": "sigmoid({x})",
    "Tanh": "tanh({x})",
    "Relu": "relu({x})",
    "Softsign": "({x} / (1.0 + abs({x})))",
    "Softplus": f"({UNARY['softplus']})",
    "Affine": "(ALPHA * ({x}) + BETA)",
    "LeakyRelu": "({x} > 0.0 ? {x} : ALPHA * {x})",
    "ThresholdedRelu": "({x} > ALPHA ? {x} : 0.0)",
    "ScaledTanh": "(ALPHA * tanh(BETA * ({x})))",
    "HardSigmoid": "clamp(ALPHA * ({x}) + BETA, 0.0, 1.0)",
    "Elu": "({x} > 0.0 ? {x} : ALPHA * expm1({x}))",
}
_NUMBERS = {
    "Affine": (1.0, 0.0),
    "LeakyRelu": (0.01,),
    "ThresholdedRelu": (1.0,),
    "ScaledTanh": (1.0, 1.0),
    "HardSigmoid": (0.2, 0.5),
    "Elu": (1.0,),
}
"""What numbers functions have, and which they are where a node does not say."""


@rule("onnx.LSTM", "onnx.GRU", "onnx.RNN")
def recurrent(
    b: OnnxBuilder,
    n: OnnxNode,
    *,
    X: Operand,
    W: Operand,
    R: Operand,
    B: Operand | None,
    sequence_lens: Operand | None,
    initial_h: Operand | None,
    direction: str,
    activations: Sequence[str] | None,
    activation_alpha: Sequence[float] | None,
    activation_beta: Sequence[float] | None,
    clip: float | None,
    layout: int = 0,
    initial_c: Operand | None = None,
    P: Operand | None = None,
    input_forget: int = 0,
    linear_before_reset: int = 0,
    **_: Any,
) -> list[Operand]:
    kind, order, usual = _CELLS[n.operator.removeprefix("onnx.")]
    if X.dtype not in ("float32", "float64"):
        raise n.refuse(f"takes {X.dtype}", "floats of 32 and 64 bits are known")
    ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}.get(direction)
    if ways is None or len(ways) != W.shape[0]:
        raise n.refuse(f"has the direction {direction} and weights for {W.shape[0]}")
    each = len(usual.split())
    named = (activations or usual.split() * len(ways))[: each * len(ways)]  # a plain layer has two where none are given
    functions = [*_functions(n, named, activation_alpha or (), activation_beta or ())]
    if len(functions) != each * len(ways):
        raise n.refuse(f"has {len(functions)} functions")
    batch, state = X.shape[0 if layout else 1], R.shape[2]
    zeros = Constant(f"{n.name}_zeros", np.zeros((len(ways), batch, state), X.dtype))
    late = kind == "gru" and bool(linear_before_reset)
    plain = Cell(
        kind,
        order,
        (),
        ragged=sequence_lens is not None,
        peepholes=P is not None,
        coupled=bool(input_forget),
        late=late,
        biased=late and B is not None,
        clip=clip or None,
    )
    made = []
    for at, back in enumerate(ways):
        cell = replace(plain, functions=tuple(functions[at * each : (at + 1) * each]), backwards=back)
        own = replace(n, name=f"{n.name}_{'back' if back else 'there'}")
        states = [
            _part(b, own, given if given is not None else zeros, at, int(layout and given is not None))
            for given in (initial_h, initial_c)
        ]
        bias, late_bias = _biases(b, own, B, at, late)
        operands = Operands(
            _part(b, own, W, at),
            _part(b, own, R, at),
            bias,
            states[0],
            states[1] if kind == "lstm" else None,
            None,
            None if P is None else _part(b, own, P, at),
            late_bias,
            None if sequence_lens is None else b.value(sequence_lens),
        )
        made.append(one_direction(b, own, cell, b.value(X), operands, batch_first=bool(layout)))
    rows = [found[0] for found in made]
    names = [result.name or f"{n.name}_{k}" for k, result in enumerate(n.results)]
    if layout:
        rows = [swapped(b, replace(n, name=x.name), x) for x in rows]
    every: list[Operand] = [stacked(b, replace(n, name=names[0]), rows, 2 if layout else 1)]
    for name, last in zip(names[1:], [*zip(*made, strict=True)][1:], strict=False):
        every.append(stacked(b, replace(n, name=name), last, 1 if layout else 0))
    return every


def _functions(n: OnnxNode, names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]) -> Iterator[str]:
    """Functions as text; each takes the next of the numbers that it needs."""
    known = {name.lower(): name for name in _FUNCTIONS}
    numbers = iter(alphas), iter(betas)
    for given in names:
        name = known.get(given.lower())
        if name is None:
            raise n.refuse(f"has the function {given}", f"known are {', '.join(_FUNCTIONS)}")
        body = _FUNCTIONS[name]
        for word, own, usual in zip(("ALPHA", "BETA"), numbers, _NUMBERS.get(name, ()), strict=False):
            body = body.replace(word, repr(float(next(own, usual))))
        yield body


def _biases(b: OnnxBuilder, n: OnnxNode, B: Operand | None, at: int, late: bool) -> tuple[Value | None, Value | None]:
    """The biases of inputs and of states, which are one where nothing comes between."""
    if B is None:
        return None, None
    if isinstance(B, Constant):
        first, second = np.split(B.array[at], 2)
        if late:
            return _weight(b, n, B, "inputs", first), _weight(b, n, B, "states", second)
        return _weight(b, n, B, "both", first + second), None
    row, half = picked(b, n, B, at), B.shape[1] // 2
    halves = [
        b.make(n, parts.take(1, 0), [row], (half,), f"half{k}", FROM=k * half, COUNT=half, STEP=1) for k in range(2)
    ]
    if late:
        return halves[0], halves[1]
    return b.make(n, retyped(elements.binary("add", (half,), (half,)), B.dtype), halves, (half,), "bias"), None


def _part(b: OnnxBuilder, n: OnnxNode, x: Operand, at: int, axis: int = 0) -> Value:
    """What a tensor has for one direction."""
    if isinstance(x, Constant):
        return _weight(b, n, x, str(at), np.take(x.array, at, axis))
    return picked(b, n, x, at, axis)


def _weight(b: OnnxBuilder, n: OnnxNode, x: Constant, label: str, array: Any) -> Value:
    return b.value(Constant(f"{x.name}_{label}", array))
