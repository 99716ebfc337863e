"""The pass that replaces what rules say, as long as that saves something."""

from __future__ import annotations

import dataclasses
import operator
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tcomp.engine import define
from tcomp.grammar.tree import syntax
from tcomp.networks.lowering.rebuilding import Parts
from tcomp.networks.network import Call, Definition, Network, Number
from tcomp.networks.rewriting.families import is_nothing
from tcomp.networks.rewriting.matching import Graph, Match, Rules, match
from tcomp.networks.rewriting.rules import Rule
from tcomp.networks.rewriting.table import RULES
from tcomp.networks.texts import elements
from tcomp.networks.texts.general import pointwise
from tcomp.networks.views import spread

Array = np.ndarray[Any, np.dtype[Any]]

_MOST_SWEEPS = 50
_FUNCTIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
_KNOWN = {body.format(x="{a}"): name for name, body in elements.UNARY.items()}
"""Functions of one element that networks have a def for."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A rule that was applied where ``value`` is made; ``bytes`` that need not be read or written any more.

    They are counted as if each call were a kernel.
    """

    rule: str
    value: str
    calls: int
    bytes: int


def rewrite(
    network: Network, *, leave: Collection[str] = (), exact: bool = False, rules: Sequence[Rule] = RULES
) -> tuple[Network, tuple[Rewrite, ...]]:
    """The network after all rules that save something, and what was done.

    Args:
        leave: names of rules that are not applied.
        exact: leave out rules by which results may be rounded otherwise.
        rules: in the order in which they are tried.
    """
    chosen = Rules(rule for rule in rules if rule.name not in leave and not (exact and rule.reassociates))
    done: list[Rewrite] = []
    for _ in range(_MOST_SWEEPS):
        network, made = _sweep(network, chosen)
        done += made
        if not made:
            break
    return network, tuple(done)


def told(rewrites: Iterable[Rewrite]) -> list[str]:
    """A line for each rule: how often it was applied, and what that saves."""
    rewrites = list(rewrites)
    counts = Counter(one.rule for one in rewrites)
    saved = {name: sum(one.bytes for one in rewrites if one.rule == name) for name in counts}
    return [f"rewritten by {name}: {count} times, {saved[name]:,} bytes less" for name, count in counts.items()]


def _sweep(network: Network, rules: Rules) -> tuple[Network, list[Rewrite]]:
    """Matches that share no call, replaced together."""
    graph = Graph(network)
    parts = Parts(network)
    taken: set[int] = set()
    gone: set[int] = set()
    written: dict[int, list[Call]] = {}
    stands: dict[str, str] = {}
    made: list[Rewrite] = []
    for call in network.calls:
        for looked in rules.of(network.definitions[call.function]):
            found = match(looked, graph, call) if id(call) not in taken else None
            if found is None or any(id(one) in taken for one in found.calls):
                continue
            writer = _Writer(graph, parts, found)
            calls = writer.calls()
            if calls is None or not stands.keys().isdisjoint(writer.stands):
                continue  # a value has one name: the next sweep sees which
            before, after = (_cost(parts, every) for every in (found.replaces, calls))
            if after >= before:
                continue
            taken.update(map(id, found.calls))
            gone.update(map(id, found.replaces))
            written[id(call)] = calls
            stands |= writer.stands
            made.append(Rewrite(looked.rule.name, call.results[0], before[1] - after[1], before[0] - after[0]))
    if not made:
        return network, made

    def name_of(name: str) -> str:
        while name in stands:
            name = stands[name]
        return name

    for call in network.calls:
        for one in written.get(id(call), [] if id(call) in gone else [call]):
            names = tuple(map(name_of, one.arguments)), tuple(map(name_of, one.results))
            parts.calls.append(replace(one, arguments=names[0], results=names[1]))
    return parts.network(), made


def _cost(parts: Parts, calls: Iterable[Call]) -> tuple[int, int]:
    """Bytes that calls read and write, and how many there are; views move nothing."""
    moved = count = 0
    for call in calls:
        count += 1
        if not parts.definitions[call.function].view:
            moved += sum(parts.values[name].bytes for name in (*call.arguments, *call.results))
    return moved, count


class _Writer:
    """The calls of the second side of a rule that was matched."""

    def __init__(self, graph: Graph, parts: Parts, found: Match) -> None:
        self.graph, self.parts, self.match = graph, parts, found
        self.names, self.numbers = dict(found.values), dict(found.numbers)
        self.made: list[Call] = []
        self.stands: dict[str, str] = {}
        self.place = found.calls[0].place

    def calls(self) -> list[Call] | None:
        """All of them; None where the result is an output that is also an input or a weight, and where numbers that are
        made of finite ones are not."""
        for statement in self.match.instance.after.body:
            assert isinstance(statement, syntax.Statement)
            value, target = statement.value, statement.target.name
            if self._is_lost(value):
                return None
            if isinstance(value, syntax.Name) or (isinstance(value, syntax.Apply) and value.function.name in self.names
                                                  and value.arguments == (statement.subscripts or ())):  # fmt: skip
                source = self.names[value.name if isinstance(value, syntax.Name) else value.function.name]
                if target != "Y":
                    self.names[target] = self._lying(source, self._shape(statement))
                elif not self._same(source):
                    return None
            elif statement.subscripts is None and isinstance(value, syntax.Apply):
                self._call(value, target)
            elif statement.subscripts is None:
                self.numbers[target] = _number(value, self.numbers)
            elif not self._elements(statement, target):
                return None
        return self.made

    def _is_lost(self, expr: syntax.Expr) -> bool:
        """Whether something in an expression is made of finite numbers that are known, and is not finite."""
        parts = syntax.children(expr)
        known = [self._known(part) for part in parts]
        finite = bool(known) and all(k is not None and np.isfinite(k) for k in known)
        found = self._known(expr) if finite else None
        return (found is not None and not np.isfinite(found)) or any(map(self._is_lost, parts))

    def _known(self, expr: syntax.Expr) -> np.float32 | None:
        """What an expression of numbers is, in float32."""
        match expr:
            case syntax.Number():
                return np.float32(expr.text)
            case syntax.Name():
                number = self.numbers.get(expr.name)
                number = self.graph.number(self.names.get(expr.name, "")) if number is None else number
                return None if number is None else np.float32(number)
            case syntax.Binary() if expr.op in _FUNCTIONS:
                lhs, rhs = self._known(expr.lhs), self._known(expr.rhs)
                with np.errstate(all="ignore"):
                    return None if lhs is None or rhs is None else np.float32(_FUNCTIONS[expr.op](lhs, rhs))
        return None

    def _same(self, source: str) -> bool:
        """Let the result be a value that there is."""
        result, values = self.names["Y"], self.parts.values
        if values[source].shape != values[result].shape:
            return False
        if values[result].role != "output":
            self.stands[result] = source
            return True
        if values[source].role != "temporary":
            return False
        self.stands[source] = result
        return True

    def _shape(self, statement: syntax.Statement) -> tuple[int, ...]:
        """The extents of what a statement makes, from those of what it reads."""
        extents = self._extents(statement)
        return tuple(extents[str(s)] for s in statement.subscripts or ())

    def _extents(self, statement: syntax.Statement) -> dict[str, int]:
        extents: dict[str, int] = {}
        if statement.target.name == "Y":
            shape = self.parts.values[self.names["Y"]].shape
            extents |= dict(zip(map(str, statement.subscripts or ()), shape, strict=True))
        short: list[syntax.Apply] = []
        for read in self._reads(statement.value):
            shape = self.parts.values[self.names[read.function.name]].shape
            if len(shape) == len(read.arguments):
                extents |= dict(zip(map(str, read.arguments), shape, strict=True))
            else:
                short.append(read)
        for read in short:  # extents of 1 stand around it
            shape = self.parts.values[self.names[read.function.name]].shape
            wide = [n for n in shape if n != 1]
            wanted = [str(a) for a in read.arguments if str(a) not in extents]
            known = [extents[str(a)] for a in read.arguments if str(a) in extents]
            left = [n for n in wide if n not in known] or [1] * len(wanted)
            extents |= dict(zip(wanted, left, strict=True))
        return extents

    def _reads(self, expr: syntax.Expr) -> list[syntax.Apply]:
        if isinstance(expr, syntax.Apply) and expr.function.name in self.names:
            return [expr]
        return [read for child in syntax.children(expr) for read in self._reads(child)]

    def _lying(self, name: str, shape: tuple[int, ...]) -> str:
        """A value under other extents."""
        value = self.parts.values[name]
        if value.shape == shape:
            return name
        told = f"{name}_as_{'x'.join(map(str, shape)) or 'number'}"
        if name in self.parts.weights:
            array = self.parts.weights[name]
            return self.parts.weight(told, lambda: array.reshape(shape))
        view = elements.reshape(value.shape, shape)
        made = self.parts.temporary(told, value.dtype, shape)
        self._enter(view, Call(view.name, (name,), (), (made,), self.place))
        return made

    def _elements(self, statement: syntax.Statement, target: str) -> bool:
        """A call of a new def, which is a function of elements; of weights alone it is computed at once.

        False where weights that are made of finite ones are not.
        """
        extents, axes = self._extents(statement), [str(s) for s in statement.subscripts or ()]
        shape = tuple(extents[a] for a in axes)
        operands: list[str] = []
        numbers: dict[str, Number] = {}

        def written(expr: syntax.Expr) -> syntax.Expr:
            if isinstance(expr, syntax.Name) and expr.name in self.numbers:
                numbers[expr.name] = self.numbers[expr.name]
                return expr
            if isinstance(expr, syntax.Name) or (isinstance(expr, syntax.Apply) and expr.function.name in self.names):
                name = expr.name if isinstance(expr, syntax.Name) else expr.function.name
                read = () if isinstance(expr, syntax.Name) else tuple(map(str, expr.arguments))
                value = self._lying(self.names[name], tuple(extents[a] if a in read else 1 for a in axes) if read
                                    else ())  # fmt: skip
                if value not in operands:
                    operands.append(value)
                return syntax.Name(f"{{{'abcdefghijkl'[operands.index(value)]}}}")
            return _rebuilt(expr, written)

        body = str(written(statement.value))
        rule = self.match.instance.rule.name
        name = rule if target == "Y" else f"{rule}_{target}"
        values = [self.parts.values[name] for name in operands]
        typed = dict.fromkeys(numbers, "float32")
        known = _KNOWN.get(body) if [v.shape for v in values] == [shape] else None
        made = (
            elements.unary(known, len(shape))
            if known
            else pointwise(name, body, [(v.shape, v.dtype) for v in values], shape, "float32", typed)
        )
        if target != "Y" and all(v.role == "weight" for v in values):
            arrays = [self.parts.weights[v.name] for v in values]
            array = _computed(made, arrays, numbers)
            if not np.isfinite(array).all() and all(np.isfinite(a).all() for a in arrays):
                return False
            self.names[target] = self.parts.another_weight(operands[0], array)
            return True
        result = self.names["Y"] if target == "Y" else self.parts.temporary(name, "float32", shape)
        self.names[target] = result
        self._enter(made, Call(made.name, tuple(operands), tuple(numbers.items()), (result,), self.place))
        return True

    def _call(self, value: syntax.Apply, target: str) -> None:
        """A call of a def that a word stands for."""
        rule, choice = self.match.instance.rule, self.match.instance.choice
        by_name = {definition.name: definition for definition in choice.values()}
        name = value.function.name
        shapes = {own: self.parts.values[v].shape for own, v in self.names.items()}
        definition = rule.derived[name](choice, shapes) if name in rule.derived else by_name[name]
        arguments = tuple(self.names[str(a)] for a in value.arguments if not isinstance(a, syntax.Named))
        given = {a.name.name: _number(a.value, self.numbers) for a in value.arguments
                 if isinstance(a, syntax.Named)}  # fmt: skip
        head = definition.text.partition("->")[0]
        kept = {n: k for n, k in self.match.constants.items() if f" {n}," in head or f" {n})" in head}
        constants = tuple({**kept, **given}.items())
        if target == "Y" and is_nothing(definition) and self._same(arguments[0]):
            return
        if target == "Y":
            result = self.names["Y"]
        else:
            operation = define(definition.text)[definition.name]
            inputs = [spread(self.parts.values[a].shape, self.parts.values[a].dtype) for a in arguments]
            ((shape, dtype),) = operation.result_types(*inputs, *(k for _, k in constants))
            result = self.parts.temporary(f"{self.names['Y']}_{target}", dtype.name, shape)
        self.names[target] = result
        self._enter(definition, Call(definition.name, arguments, constants, (result,), self.place))

    def _enter(self, definition: Definition, call: Call) -> None:
        """Add the def under a name that is free, and the call of it."""
        before = len(self.parts.calls)
        self.parts.call(definition, call)
        self.made += self.parts.calls[before:]
        del self.parts.calls[before:]


def _rebuilt(expr: syntax.Expr, change: Any) -> syntax.Expr:
    """An expression with its operands changed."""
    match expr:
        case syntax.Binary():
            return replace(expr, lhs=change(expr.lhs), rhs=change(expr.rhs))
        case syntax.Unary():
            return replace(expr, operand=change(expr.operand))
        case syntax.Apply():
            return dataclasses.replace(expr, arguments=tuple(map(change, expr.arguments)))
    return expr


def _computed(definition: Definition, arrays: Sequence[Array], numbers: Mapping[str, Number]) -> Array:
    """What a def makes of weights, in float64 and rounded once."""
    operation = define(definition.text)[definition.name]
    with np.errstate(all="ignore"):
        return np.asarray(operation.reference(*arrays, *(np.float32(k) for k in numbers.values())))


def _number(expr: syntax.Expr, numbers: Mapping[str, Number]) -> Number:
    """A number that is written, named, or a quotient of such."""
    match expr:
        case syntax.Number():
            return float(expr.text) if "." in expr.text else int(expr.text)
        case syntax.Binary(op="/"):
            return _number(expr.lhs, numbers) / _number(expr.rhs, numbers)
    return numbers[str(expr)]
