"""Where a rule's first side stands in a network."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from tcomp.grammar.tree import syntax
from tcomp.networks.network import Call, Definition, Network, Number
from tcomp.networks.rewriting.rules import MOST_AXES, Instance, Look, Rule, Word, instance, look_of, parsed


@dataclass(frozen=True, slots=True)
class Match:
    """A rule that holds: which values its names are, which numbers, its ``calls``, the last statement's first.

    ``replaces`` has those of the calls that go: what others read as well stays.

    ``constants`` are those of the calls, but for such that the rule names.
    """

    instance: Instance
    values: Mapping[str, str]
    numbers: Mapping[str, Number]
    constants: Mapping[str, Number]
    calls: tuple[Call, ...]
    replaces: tuple[Call, ...]


class Graph:
    """A network with who makes and who reads each value."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.values = network.by_name
        self.makers = {name: call for call in network.calls for name in call.results}
        self.readers: dict[str, list[Call]] = {}
        for call in network.calls:
            for name in dict.fromkeys(call.arguments):
                self.readers.setdefault(name, []).append(call)

    def around(self, call: Call, depth: int) -> list[Definition]:
        """The defs of calls before a call that are not further away than ``depth``."""
        waiting, seen, found = [call], {id(call)}, set()
        for _ in range(depth):
            made = []
            for name in dict.fromkeys(name for one in waiting for name in one.arguments):
                maker = self.makers.get(name)
                if maker is not None and id(maker) not in seen:
                    seen.add(id(maker))
                    made.append(maker)
                    found.add(maker.function)
            waiting = made
        return [self.network.definitions[name] for name in sorted(found)]

    def may(self, rule: Looked, call: Call) -> bool:
        """Whether there are calls such as the rule looks for."""
        if rule.known and not call.constants and not any(name in self.network.weights for name in call.arguments):
            return False
        if not _looks(rule.looks[0], self.network.definitions[call.function]):
            return False
        near = self.around(call, len(rule.looks) - 1) if len(rule.looks) > 1 else []
        return all(any(_looks(look, definition) for definition in near) for look in rule.looks[1:])

    def number(self, name: str) -> float | None:
        """The element of a weight that has a single one."""
        value = self.values.get(name)
        if value is None or value.role != "weight" or math.prod(value.shape) != 1:
            return None
        return float(self.network.weights[name].reshape(-1)[0])


@dataclass(frozen=True, slots=True)
class Looked:
    """A rule and what tells quickly where it cannot hold; see ``Rule.looks``."""

    rule: Rule
    looks: tuple[Look, ...]
    known: bool


class Rules:
    """Rules by what their last statement does, in order."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._every = [Looked(rule, *rule.looks()) for rule in rules]
        self._found: dict[str, list[Looked]] = {}

    def of(self, definition: Definition) -> list[Looked]:
        """The rules whose last statement may be a call of this def."""
        if definition.name not in self._found:
            self._found[definition.name] = [one for one in self._every if _looks(one.looks[0], definition)]
        return self._found[definition.name]


@dataclass(frozen=True, slots=True)
class _State:
    """What names of a rule have been found to be."""

    values: Mapping[str, str]
    numbers: Mapping[str, Number]
    constants: Mapping[str, Number]

    def value(self, name: str, value: str) -> _State | None:
        if name in self.values or name in self.numbers:
            return self if self.values.get(name) == value else None
        return replace(self, values={**self.values, name: value})

    def number(self, name: str, number: Number) -> _State | None:
        if name in self.values or name in self.numbers:
            return self if self.numbers.get(name) == number else None
        return replace(self, numbers={**self.numbers, name: number})


def match(looked: Looked, graph: Graph, call: Call) -> Match | None:
    """The rule with this call as the last of what it replaces."""
    if len(call.results) != 1 or not graph.may(looked, call):
        return None
    rule = looked.rule
    result = graph.values[call.results[0]]
    axes = max(0, len(result.shape) - max(0, rule.root_axes))
    if rule.root_axes >= 0 and (len(result.shape) < rule.root_axes or axes > MOST_AXES):
        return None
    choices: list[list[Definition]] = []
    for word in rule.words.values():
        near = [graph.network.definitions[call.function], *graph.around(call, len(looked.looks) - 1)]
        choices.append(list({definition.name: definition for definition in near if word.accepts(definition)}.values()))
    for chosen in itertools.product(*choices):
        made = instance(rule, dict(zip(rule.words, chosen, strict=True)), axes)
        found = _Matcher(graph, made).found(call)
        if found is not None:
            return found
    return None


@dataclass(frozen=True, slots=True)
class _Matcher:
    graph: Graph
    instance: Instance

    def found(self, call: Call) -> Match | None:
        """The first way in which all statements fit."""
        start = _State({"Y": call.results[0]}, {}, {})
        for state, calls in self._statements(list(self.instance.before.body), start, ()):
            if self._holds(state):
                gone = self._replaced(calls)
                return Match(self.instance, state.values, state.numbers, state.constants, calls, gone)
        return None

    def _statements(
        self, waiting: list[syntax.Statement | syntax.Loop], state: _State, calls: tuple[Call, ...]
    ) -> Iterator[tuple[_State, tuple[Call, ...]]]:
        """Fit the statements, the last one first: what it reads says where the others are."""
        if not waiting:
            yield state, calls
            return
        statement = waiting[-1]
        assert isinstance(statement, syntax.Statement)
        name = state.values.get(statement.target.name)
        call = self.graph.makers.get(name or "")
        if call is None or len(call.results) != 1 or call in calls:
            return
        for after in self._statement(statement, call, state):
            yield from self._statements(waiting[:-1], after, (*calls, call))

    def _statement(self, statement: syntax.Statement, call: Call, state: _State) -> Iterator[_State]:
        definition = self.graph.network.definitions[call.function]
        value, subscripts = statement.value, statement.subscripts or ()
        words = {word.name for word in self.instance.choice.values()}
        if isinstance(value, syntax.Apply) and value.function.name in words:
            yield from self._call(value, definition, call, state)
            return
        tree = parsed(definition) if definition.pointwise else None
        if tree is None or len(tree.body) != 1 or not isinstance(tree.body[0], syntax.Statement):
            return
        body = tree.body[0]
        own = [str(s) for s in body.subscripts or ()]
        if body.operator != "=" or body.clauses or len(own) != len(subscripts):
            return
        shape = self.graph.values[call.results[0]].shape
        if any(str(s) == "0" and n != 1 for s, n in zip(subscripts, shape, strict=True)):
            return
        axes = {str(s): c for s, c in zip(subscripts, own, strict=True) if str(s) != "0"}
        names = [parameter.name.name for parameter in tree.inputs]
        arguments = iter(call.arguments)
        constants = dict(call.constants)
        given: dict[str, str | Number] = {n: constants[n] if n in constants else next(arguments) for n in names}
        yield from self._expression(value, body.value, axes, given, state)

    def _call(self, value: syntax.Apply, definition: Definition, call: Call, state: _State) -> Iterator[_State]:
        """A call of a def by its name, or by a word that stands for it."""
        words = {d.name: d.text for d in self.instance.choice.values()}
        name = value.function.name
        if definition.name != name or words.get(name) != definition.text:
            return
        constants = dict(call.constants)
        tensors = [a for a in value.arguments if not isinstance(a, syntax.Named)]
        named = [a for a in value.arguments if isinstance(a, syntax.Named)]
        if len(tensors) != len(call.arguments):
            return
        now: _State | None = state
        for tensor, found in zip(tensors, call.arguments, strict=True):
            now = None if now is None else now.value(str(tensor), found)
        for number in named:
            now = None if now is None else now.number(str(number.value), constants.pop(number.name.name))
        if now is not None:
            yield replace(now, constants={**now.constants, **constants})

    def _expression(
        self,
        pattern: syntax.Expr,
        expr: syntax.Expr,
        axes: Mapping[str, str],
        given: Mapping[str, str | Number],
        state: _State,
    ) -> Iterator[_State]:
        """All ways in which an expression of the rule is one of a def's."""
        match pattern:
            case syntax.Name():
                yield from _one(self._scalar(pattern.name, expr, given, state))
            case syntax.Number():
                if self._value(expr, given) == np.float32(float(pattern.text)):
                    yield state
            case syntax.Apply() if pattern.function.name in self._tensors:
                yield from _one(self._read(pattern, expr, axes, given, state))
            case syntax.Apply():
                same = isinstance(expr, syntax.Apply) and expr.function.name == pattern.function.name
                if same and isinstance(expr, syntax.Apply) and len(expr.arguments) == len(pattern.arguments):
                    yield from self._all(pattern.arguments, expr.arguments, axes, given, state)
            case syntax.Binary():
                if isinstance(expr, syntax.Binary) and expr.op == pattern.op:
                    both = (pattern.lhs, pattern.rhs)
                    yield from self._all(both, (expr.lhs, expr.rhs), axes, given, state)
                    if pattern.op in "+*":
                        yield from self._all(both, (expr.rhs, expr.lhs), axes, given, state)
            case syntax.Conditional():
                if isinstance(expr, syntax.Conditional):
                    looked = (pattern.condition, pattern.then, pattern.otherwise)
                    found = (expr.condition, expr.then, expr.otherwise)
                    yield from self._all(looked, found, axes, given, state)
            case syntax.Unary():
                if isinstance(expr, syntax.Unary) and expr.op == pattern.op:
                    yield from self._expression(pattern.operand, expr.operand, axes, given, state)

    def _all(
        self,
        patterns: tuple[syntax.Expr, ...],
        exprs: tuple[syntax.Expr, ...],
        axes: Mapping[str, str],
        given: Mapping[str, str | Number],
        state: _State,
    ) -> Iterator[_State]:
        if not patterns:
            yield state
            return
        for after in self._expression(patterns[0], exprs[0], axes, given, state):
            yield from self._all(patterns[1:], exprs[1:], axes, given, after)

    @property
    def _tensors(self) -> frozenset[str]:
        """Names of a rule that are tensors: its parameters, and what its statements make."""
        made = (s.target.name for s in self.instance.before.body if isinstance(s, syntax.Statement))
        return frozenset((*made, *self.instance.parameters))

    def _read(
        self,
        pattern: syntax.Apply,
        expr: syntax.Expr,
        axes: Mapping[str, str],
        given: Mapping[str, str | Number],
        state: _State,
    ) -> _State | None:
        """A tensor's element: with its own indices, and 0 along axes that have a single element."""
        if not isinstance(expr, syntax.Apply):
            return None
        name = given.get(expr.function.name)
        if not isinstance(name, str):
            return None
        read = zip(expr.arguments, self.graph.values[name].shape, strict=True)
        known = set(axes.values())
        left = [str(a) for a, extent in read if not (extent == 1 and str(a) not in known)]
        if left != [axes.get(str(a)) for a in pattern.arguments if str(a) != "0"]:
            return None
        return state.value(pattern.function.name, name)

    def _scalar(self, name: str, expr: syntax.Expr, given: Mapping[str, str | Number], state: _State) -> _State | None:
        """A number: one that is written, or the only element of a tensor."""
        if isinstance(expr, syntax.Number):
            return state.number(name, float(expr.text))
        if isinstance(expr, syntax.Name):
            found = given.get(expr.name)
        elif isinstance(expr, syntax.Apply) and expr.function.name in given:
            found = given[expr.function.name]
        else:
            return None
        if isinstance(found, str):
            if self.graph.values[found].shape.count(1) != len(self.graph.values[found].shape):
                return None
            known = self.graph.number(found)
            wanted = name in self.instance.rule.numbers or name in self.instance.rule.when
            return state.number(name, known) if wanted and known is not None else state.value(name, found)
        return None if found is None else state.number(name, found)

    def _value(self, expr: syntax.Expr, given: Mapping[str, str | Number]) -> np.float32 | None:
        """The number that an expression is, rounded to float32."""
        found = self._scalar("", expr, given, _State({}, {}, {}))
        if found is None:
            return None
        number = found.numbers.get("", self.graph.number(found.values.get("", "")))
        return None if number is None else np.float32(number)

    def _replaced(self, calls: tuple[Call, ...]) -> tuple[Call, ...]:
        """The last call, and those of the others that make nothing for calls that stay, and no output."""
        gone = list(calls)
        for _ in calls:
            for call in gone[1:]:
                (name,) = call.results
                read = any(reader not in gone for reader in self.graph.readers.get(name, ()))
                if read or self.graph.values[name].role != "temporary":
                    gone.remove(call)
        return tuple(gone)

    def _holds(self, state: _State) -> bool:
        """Whether the rule's conditions hold."""
        rule, values = self.instance.rule, self.graph.values
        kinds = self.instance.kinds
        if any(values[found].dtype != kinds.get(name, "float32") for name, found in state.values.items()):
            return False
        if any(name in state.values and state.values[name] not in self.graph.network.weights for name in rule.weights):
            return False
        if any(name not in state.numbers for name in rule.numbers):
            return False
        return all(state.numbers.get(name) == number for name, number in rule.when.items())


def _looks(look: Look, definition: Definition) -> bool:
    return look.accepts(definition) if isinstance(look, Word) else look_of(definition) == look


def _one(state: _State | None) -> Iterator[_State]:
    if state is not None:
        yield state
