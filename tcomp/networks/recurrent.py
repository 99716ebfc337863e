"""Recurrent layers: LSTM, GRU and plain ones, each direction as a product over all steps and one block of steps.

What importers know as a layer becomes, for each direction, a linear layer over the whole sequence, whose weights are
packed like all others, and a def with ``for t in 0:T { ... }``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tcomp.networks.importing import Builder, Node
from tcomp.networks.network import Definition, Value, retyped
from tcomp.networks.pieces import swapped
from tcomp.networks.texts import layers
from tcomp.networks.texts.general import definition

_GATES = {"lstm": "4*D", "gru": "3*D", "rnn": "D"}
"""How many rows a cell has for a state of D elements."""


@dataclass(frozen=True)
class Cell:
    """What one step computes.

    Attributes:
        kind: ``lstm``, ``gru`` or ``rnn``.
        order: the gates by the places of their rows: ``i``nput, ``f``orget, ``g`` (the new content) and ``o``utput of
            an LSTM, ``r``eset, ``z`` (update) and ``n``ew of a GRU.
        functions: of the gates, of the new content, and of the state of an LSTM; ``{x}`` stands for the argument.
        backwards: the last step comes first.
        ragged: sequences have lengths of their own, behind which the state stays and results are 0.
        peepholes: the gates of an LSTM see its state.
        coupled: the forget gate of an LSTM is what the input gate leaves.
        late: the reset gate of a GRU multiplies a product, and not the state.
        biased: that product has a bias of its own.
        projected: the state of an LSTM is multiplied by a matrix before it goes out and back.
        clip: the largest argument of a function, or none.
    """

    kind: str
    order: str
    functions: tuple[str, ...]
    backwards: bool = False
    ragged: bool = False
    peepholes: bool = False
    coupled: bool = False
    late: bool = False
    biased: bool = False
    projected: bool = False
    clip: float | None = None

    def text(self) -> Definition:
        """The def: of products ``X`` (steps, batch, gates) all results ``Y``, and the last states ``h`` and ``c``."""
        flags = ("backwards", "ragged", "peepholes", "coupled", "late", "biased", "projected")
        name = "_".join([self.kind, *(flag for flag in flags if getattr(self, flag))])
        rows, state = _GATES[self.kind], "J" if self.projected else "D"
        parameters = [f"float(T,B,{rows}) X", f"float({rows},{state}) R", f"float(B,{state}) h0"]
        results = ["Y", "h"]
        first = ["h(b,d) = h0(b,d)"]
        if self.kind == "lstm":
            parameters.append("float(B,D) c0")
            first.append("c(b,d) = c0(b,d)")
            results.append("c")
        parameters += ["float(J,D) V"] * self.projected + ["float(3*D) p"] * self.peepholes
        parameters += ["float(3*D) u"] * self.biased + ["int32(B) length"] * self.ragged
        step = {"lstm": self._lstm, "gru": self._gru, "rnn": self._rnn}[self.kind]()
        lines = [*first, "for t in 0:T {", *(f"  {line}" for line in step), "}"]
        return definition(name, parameters, ", ".join(results), lines)

    @property
    def _time(self) -> str:
        return "T-1-t" if self.backwards else "t"

    def _gate(self, gate: str) -> str:
        """The rows of a gate, from the first one on."""
        place = self.order.index(gate)
        return "d" if place == 0 else f"{'' if place == 1 else f'{place}*'}D+d"

    def _of(self, function: int, argument: str, *, clipped: bool = True) -> str:
        """A function of an expression."""
        if clipped and self.clip is not None:
            argument = f"clamp({argument}, -{self.clip!r}, {self.clip!r})"
        body = self.functions[function]
        return body.format(x=argument if body.count("{x}") == body.count("({x})") == 1 else f"({argument})")

    def _lstm(self) -> list[str]:
        def gate(name: str, seen: str, at: str) -> str:
            peep = f" + p({at}) * {seen}" if self.peepholes else ""
            return self._of(0, f"z(b,{self._gate(name)}){peep}")

        keep = "1.0 - i(b,d)" if self.coupled else gate("f", "c(b,d)", "2*D+d")
        given = "f(b,d) * c(b,d) + i(b,d) * g(b,d)"
        shown = f"o(b,d) * {self._of(2, 'c(b,d)', clipped=False)}"
        new, ranges = self._gate("g"), " where d in 0:D"
        lines = [
            "r(b,k) +=! h(b,j) * R(k,j)",
            f"z(b,k) = X({self._time},b,k) + r(b,k)",
            f"i(b,d) = {gate('i', 'c(b,d)', 'd')}{ranges}",
            f"f(b,d) = {keep}{'' if self.coupled else ranges}",
            f"g(b,d) = {self._of(1, f'z(b,{new})')}{ranges}",
            f"c(b,d) = {self._kept(given, 'c(b,d)')}",
            f"o(b,d) = {gate('o', 'c(b,d)', 'D+d')}{ranges}",
        ]
        if self.projected:
            lines += [f"m(b,d) = {shown}", "s(b,j) +=! m(b,d) * V(j,d)"]
            return [*lines, f"h(b,j) = {self._kept('s(b,j)', 'h(b,j)')}", self._result("j")]
        return [*lines, f"h(b,d) = {self._kept(shown, 'h(b,d)')}", self._result("d")]

    def _gru(self) -> list[str]:
        reset, update, new = (self._gate(gate) for gate in "rzn")
        x, ranges = f"X({self._time},b,", " where d in 0:D"
        lines = [
            "r(b,k) +=! h(b,j) * R(k,j)" + " where k in 0:2*D" * (not self.late),
            *["r(b,k) = r(b,k) + u(k)"] * self.biased,
            f"q(b,d) = {self._of(0, f'{x}{reset}) + r(b,{reset})')}{ranges}",
            f"z(b,d) = {self._of(0, f'{x}{update}) + r(b,{update})')}{ranges}",
        ]
        if self.late:
            lines.append(f"n(b,d) = {self._of(1, f'{x}{new}) + q(b,d) * r(b,{new})')}{ranges}")
        else:
            lines += [
                "m(b,d) = q(b,d) * h(b,d)",
                f"s(b,d) +=! m(b,j) * R({new},j){ranges}",
                f"n(b,d) = {self._of(1, f'{x}{new}) + s(b,d)')}{ranges}",
            ]
        given = "(1.0 - z(b,d)) * n(b,d) + z(b,d) * h(b,d)"
        return [*lines, f"h(b,d) = {self._kept(given, 'h(b,d)')}", self._result("d")]

    def _rnn(self) -> list[str]:
        given = self._of(0, f"X({self._time},b,d) + r(b,d)")
        return ["r(b,d) +=! h(b,j) * R(d,j)", f"h(b,d) = {self._kept(given, 'h(b,d)')}", self._result("d")]

    def _kept(self, given: str, before: str) -> str:
        return f"{self._time} < length(b) ? {given} : {before}" if self.ragged else given

    def _result(self, index: str) -> str:
        return f"Y({self._time},b,{index}) = " + (
            f"{self._time} < length(b) ? h(b,{index}) : 0.0" if self.ragged else f"h(b,{index})"
        )


@dataclass(frozen=True)
class Operands:
    """The tensors of one direction; those that a cell has none of are None.

    ``weight`` is (gates, inputs), ``recurrent`` (gates, state), ``bias`` and ``late_bias`` as long as their rows,
    states (batch, state).
    """

    weight: Value
    recurrent: Value
    bias: Value | None
    state: Value
    memory: Value | None = None
    projection: Value | None = None
    peepholes: Value | None = None
    late_bias: Value | None = None
    lengths: Value | None = None


def direction(b: Builder, n: Node, cell: Cell, x: Value, given: Operands, *, batch_first: bool) -> list[Value]:
    """One direction of a layer: all results (steps, batch, state), the last state, and the last memory of an LSTM.

    ``x`` is (steps, batch, inputs), or (batch, steps, inputs) where ``batch_first`` says so.
    """
    rows = given.weight.shape[0]
    product = layers.linear(3, given.bias is not None)
    inner = replace(n, name=f"{n.name}_gates", shape=(*x.shape[:2], rows), dtype=x.dtype)
    gates = b.call(inner, retyped(product, x.dtype), [x, given.weight, given.bias])
    gates = swapped(b, n, gates) if batch_first else gates
    steps, batch, state = gates.shape[0], gates.shape[1], given.state.shape[1]
    shapes = [("all", (steps, batch, state)), ("last", (batch, state))]
    operands = [gates, given.recurrent, given.state]
    if given.memory is not None:
        shapes.append(("memory", given.memory.shape))
    every = [*operands, given.memory, given.projection, given.peepholes, given.late_bias, given.lengths]
    nodes = [replace(n, name=f"{n.name}_{label}", shape=shape, dtype=x.dtype) for label, shape in shapes]
    return b.several(nodes, retyped(cell.text(), x.dtype), every)
