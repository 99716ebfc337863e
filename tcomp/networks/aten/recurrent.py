"""Rules for PyTorch's recurrent layers, of several layers and directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tcomp.networks.importing import Builder, Node, rule
from tcomp.networks.network import Value
from tcomp.networks.pieces import behind, picked, stacked, swapped
from tcomp.networks.recurrent import Cell, Operands, direction
from tcomp.networks.texts import elements
from tcomp.networks.texts.elements import UNARY

_SIGMOID, _TANH = "sigmoid({x})", "tanh({x})"


@rule("aten.lstm.input", "aten.gru.input", "aten.rnn_tanh.input", "aten.rnn_relu.input")
def recurrent(
    b: Builder,
    n: Node,
    *,
    x: Value,
    hx: Sequence[Value] | Value,
    params: Sequence[Value],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> list[Value]:
    """All results, and the last states of all layers; those of an LSTM have their memories behind them."""
    if train and dropout:
        raise n.refuse("drops elements", "call module.eval() before")
    name = n.operator.split(".")[1]
    kind = name.partition("_")[0]
    states = [hx] if isinstance(hx, Value) else list(hx)
    projected = kind == "lstm" and states[0].shape[2] != states[1].shape[2]
    cell = _cell(kind, name.partition("_")[2], has_biases, projected)
    ways = 2 if bidirectional else 1
    each = 2 + 2 * has_biases + cell.projected
    last: list[list[Value]] = [[] for _ in states]
    for layer in range(num_layers):
        found = []
        for way in range(ways):
            at = layer * ways + way
            own = replace(n, name=f"{n.name}_{layer}{'_back' * way}")
            given = _operands(b, own, cell, params[at * each : (at + 1) * each], has_biases, states, at)
            made = direction(b, own, replace(cell, backwards=bool(way)), x, given, batch_first=batch_first)
            found.append(made[0])
            for kept, state in zip(last, made[1:], strict=True):
                kept.append(state)
        x = behind(b, replace(n, name=f"{n.name}_{layer}_both"), found, 2)
        x = swapped(b, replace(n, name=f"{n.name}_{layer}"), x) if batch_first else x
    named = zip(last, ("last", "memory"), strict=False)
    return [x, *(stacked(b, replace(n, name=f"{n.name}_{label}"), kept, 0) for kept, label in named)]


def _cell(kind: str, function: str, biased: bool, projected: bool) -> Cell:
    if kind == "lstm":
        return Cell("lstm", "ifgo", (_SIGMOID, _TANH, _TANH), projected=projected)
    if kind == "gru":
        return Cell("gru", "rzn", (_SIGMOID, _TANH), late=True, biased=biased)
    return Cell("rnn", "n", (UNARY["relu"] if function == "relu" else _TANH,))


def _operands(
    b: Builder, n: Node, cell: Cell, params: Sequence[Value], biased: bool, states: Sequence[Value], at: int
) -> Operands:
    """The operands of one direction of one layer."""
    weight, inner, *rest = params
    bias, late = (rest[0], rest[1] if cell.late else None) if biased else (None, None)
    if biased and not cell.late:
        shape = weight.shape[:1]
        bias = b.call(replace(n, name=f"{n.name}_bias", shape=shape), elements.binary("add", shape, shape), rest[:2])
    state, *memory = (picked(b, n, one, at) for one in states)
    projection = rest[-1] if cell.projected else None
    return Operands(weight, inner, bias, state, memory[0] if memory else None, projection, None, late)
