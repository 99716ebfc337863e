"""Networks from program text: a def that calls defs, with arrays for those of its parameters that are weights."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tcomp.engine import define, library
from tcomp.errors import Diagnostic, NetworkError, SourceText, Span
from tcomp.grammar.parsing.parser import parse_recovering
from tcomp.grammar.tree import syntax
from tcomp.networks.network import Call, Definition, Network, Number, Role, Value, foreign
from tcomp.networks.texts import elements, layers, parts
from tcomp.networks.views import spread
from tcomp.operation import Operation
from tcomp.reading import read_text

Array = np.ndarray[Any, np.dtype[Any]]
Weights = Mapping[str, Any]


def network_of(
    source: str | os.PathLike[str],
    weights: Weights,
    example: Sequence[Any] = (),
    sizes: Mapping[str, int] | None = None,
    name: str | None = None,
) -> Network:
    """The network that a text says; see ``tcomp.networks.from_text``, also for what is raised."""
    is_file = isinstance(source, os.PathLike) or source.endswith(".tc")
    text, label = (read_text(Path(source)), str(source)) if is_file else (str(source), "<string>")
    module = define(Path(source) if is_file else text)
    parsed = parse_recovering(SourceText(text, label))
    own = {definition.name.name: definition for definition in parsed.definitions}
    wanted = name or next(reversed(own))
    if wanted not in own:
        raise NetworkError(f"{label} has no def {wanted}; it has {', '.join(own)}")
    operations = {key: module[key] for key in own}
    return _Text(own[wanted], SourceText(text, label), operations, weights, sizes or {}).network(example)


class _NoCallError(Exception):
    """The def has a statement that is no plain call, so that it is one kernel."""


@dataclass
class _Text:
    """The walk over one def."""

    definition: syntax.Definition
    source: SourceText
    operations: Mapping[str, Operation]
    weights: Weights
    sizes: Mapping[str, int]

    def network(self, example: Sequence[Any]) -> Network:
        self.values: dict[str, Value] = {}
        self.arrays: dict[str, Array] = {}
        self.calls: list[Call] = []
        self.definitions: dict[str, Definition] = {}
        self.numbers = 0
        self._enter_parameters(list(example))
        parameters = dict(self.values)
        try:
            for statement in self.definition.body:
                self._statement(statement)
        except _NoCallError:
            self.values, self.calls, self.definitions = parameters, [], {}
            self._whole()
        outputs = {output.name.name for output in self.definition.outputs}
        values = [replace(v, role="output") if v.name in outputs else v for v in self.values.values()]
        order = [output.name.name for output in self.definition.outputs]
        roles: tuple[Role, ...] = ("input", "weight", "temporary", "output")
        values.sort(key=lambda v: (roles.index(v.role), order.index(v.name) if v.name in order else 0))
        name = self.definition.name.name
        return Network(name, tuple(values), tuple(self.calls), self.definitions, self.arrays).checked()

    def _enter_parameters(self, example: list[Any]) -> None:
        """The inputs, and the weights with their arrays.  Raises NetworkError."""
        unused = set(self.weights)
        for parameter in self.definition.inputs:
            name = parameter.name.name
            if parameter.const or parameter.type is None:
                raise self._refused("a network has no compile-time scalars", parameter.name.span)
            dtype = np.dtype(_NUMPY.get(parameter.type, parameter.type)).name
            if name in self.weights:
                whole = np.asarray(self.weights[name])
                array = np.array(whole, whole.dtype.newbyteorder("="), order="C")
                if array.dtype.name != dtype:
                    raise self._refused(f"the weight {name} is of {array.dtype.name}, not {dtype}", parameter.name.span)
                self.values[name] = Value(name, dtype, array.shape, "weight")
                self.arrays[name] = array
                unused.discard(name)
                continue
            given = example.pop(0) if example else None
            shape = self._shape(parameter) if given is None else tuple(np.shape(given))
            self.values[name] = Value(name, dtype, shape, "input")
        known = {dim.name for p in self.definition.inputs for dim in p.dims or () if isinstance(dim, syntax.Name)}
        unknown = sorted(set(self.sizes) - known)
        if unknown:
            raise NetworkError(f"{self.definition.name.name}: no input has a size {unknown[0]}")
        if unused or example:
            told = f"no parameter is called {sorted(unused)[0]}" if unused else "there are more arrays than inputs"
            raise NetworkError(f"{self.definition.name.name}: {told}")

    def _shape(self, parameter: syntax.Parameter) -> tuple[int, ...]:
        """The extents of an input from its type and the sizes that are given.  Raises NetworkError."""
        extents = []
        for dim in parameter.dims or ():
            if isinstance(dim, syntax.Number):
                extents.append(int(dim.text))
            elif isinstance(dim, syntax.Name) and dim.name in self.sizes:
                extents.append(self.sizes[dim.name])
            else:
                hint = "give an array for each input, sizes={'N': 1}, or weights={...} if it is a weight; "
                hint += "on the command line --size N=1 and --weights"
                raise self._refused(f"the extent {dim} of {parameter.name} is not known", parameter.name.span, hint)
        return tuple(extents)

    def _refused(self, message: str, span: Span, hint: str | None = None) -> NetworkError:
        return NetworkError(Diagnostic(message, self.source, span, hint))

    def _statement(self, statement: syntax.Statement | syntax.Loop) -> None:
        """Enter the call of a statement."""
        if not isinstance(statement, syntax.Statement) or statement.subscripts is not None or statement.operator != "=":
            raise _NoCallError
        if not isinstance(statement.value, syntax.Apply) or statement.clauses or statement.declared:
            raise _NoCallError
        self._call(statement.value, [target.name for target in (statement.target, *statement.others)])

    def _call(self, value: syntax.Apply, targets: Sequence[str]) -> None:
        function = value.function.name
        operation = self.operations.get(function)
        if operation is None and function in library:
            operation = library[function]
        if operation is None or function in self.values:
            raise _NoCallError
        given: dict[str, Any] = {}
        names = [tensor.name for tensor in operation.function.inputs]
        for position, argument in enumerate(value.arguments):
            if isinstance(argument, syntax.Named):
                given[argument.name.name] = argument.value
            else:
                given[names[position]] = argument
        arguments: list[str] = []
        constants: list[tuple[str, Number]] = []
        shapes: list[Any] = []
        for tensor in operation.function.inputs:
            if tensor.name not in given:
                raise _NoCallError  # a default
            operand = given[tensor.name]
            number = _number(operand)
            if number is not None:
                constants.append((tensor.name, number))
                shapes.append(int(number) if tensor.role == "const" else np.float64(number))
                continue
            name = self._operand(operand)
            arguments.append(name)
            shapes.append(spread(self.values[name].shape, self.values[name].dtype))
        results = []
        for target, (shape, dtype) in zip(targets, operation.result_types(*shapes), strict=False):
            name = self._free() if target == "_" else target
            if name in self.values:
                raise _NoCallError  # assigned again
            self.values[name] = Value(name, dtype.name, tuple(shape), "temporary")
            results.append(name)
        kinds = tuple(self.values[name].shape for name in (*arguments, *results))
        made = _recognised(operation, kinds)
        self.definitions.setdefault(made.name, made)
        self.calls.append(Call(made.name, tuple(arguments), tuple(constants), tuple(results)))

    def _operand(self, operand: syntax.Expr) -> str:
        """The name of a tensor that is passed; of one that a call within the call gives."""
        if isinstance(operand, syntax.Name) and operand.name in self.values:
            return operand.name
        if isinstance(operand, syntax.Apply):
            name = self._free()
            self._call(operand, [name])
            return name
        raise _NoCallError

    def _free(self) -> str:
        """A name for a result that has none."""
        while f"between{self.numbers}" in self.values:
            self.numbers += 1
        return f"between{self.numbers}"

    def _whole(self) -> None:
        """The def as one call of itself, under another name."""
        name = self.definition.name.name
        operation = self.operations[name]
        inputs = list(self.values)
        shapes = [spread(self.values[n].shape, self.values[n].dtype) for n in inputs]
        outputs = [output.name.name for output in self.definition.outputs]
        for output, (shape, dtype) in zip(outputs, operation.result_types(*shapes), strict=True):
            self.values[output] = Value(output, dtype.name, tuple(shape), "temporary")
        inner = f"{name}_whole"
        text = str(operation.function).replace(f"def {name}(", f"def {inner}(", 1)
        self.definitions = {inner: Definition(inner, text)}
        self.calls = [Call(inner, tuple(inputs), (), tuple(outputs))]


_NUMPY = {"float": "float32", "double": "float64", "half": "float16", "int": "int32"}


def _number(operand: syntax.Expr) -> Number | None:
    """The value of a literal, perhaps with a sign."""
    if isinstance(operand, syntax.Unary) and operand.op == "-":
        inner = _number(operand.operand)
        return None if inner is None else -inner
    if isinstance(operand, syntax.Binary) and operand.op == "/" and str(operand.rhs) == "0.0":
        return {"1.0": math.inf, "-1.0": -math.inf, "0.0": math.nan}.get(str(operand.lhs))
    if not isinstance(operand, syntax.Number):
        return None
    plain = operand.text.lower()
    return float(plain) if any(c in plain for c in ".e") else int(plain)


def _recognised(operation: Operation, shapes: Sequence[tuple[int, ...]]) -> Definition:
    """The def of an operation, with what the passes know of it: of those that networks print, and of functions of
    elements."""
    name, text = operation.function.name, str(operation.function)
    for known in _candidates(name, shapes):
        if _canonical(known.text) == _canonical(text):
            return known
    like_a_layer = name.startswith(_BY_NAME) and not _OTHERS & set(name.split("_"))
    made = foreign(name, text) if like_a_layer else Definition(name, text)
    return replace(made, pointwise=_is_pointwise(operation.function.definition))


_BY_NAME = ("conv2d", "batch_norm")
"""What passes rewrite by its name: only where the text is the one that networks print."""

_OTHERS = frozenset(("point", "apart", "last", "int8", "uint8", "by", "float16", "float64"))
"""Words in names of layers that networks print in other forms, as passes have made them."""


def _candidates(name: str, shapes: Sequence[tuple[int, ...]]) -> Iterator[Definition]:
    """Defs that a network would have printed under this name."""
    words = name.split("_")
    if words[0] == "reshape" and len(shapes) == 2:
        yield elements.reshape(*shapes)
    if words[0] == "permute" and words[-1].isdigit() and len(shapes) == 2:
        yield elements.permute([int(c) for c in words[-1]])
    if words[0] in ("slice", "select") and words[-1][4:].isdigit():
        make = parts.take if words[0] == "slice" else parts.select
        yield make(len(shapes[0]), int(words[-1][4:]))
    if words[0] == "conv2d":
        groups = next((kind for kind in ("depthwise", "grouped") if kind in words), "one")
        flags = {flag: flag in words for flag in ("bias", "strided", "padded", "dilated")}
        yield layers.conv2d(groups=groups, **flags)
    if words[:2] == ["batch", "norm"] and shapes:
        yield layers.batch_norm(len(shapes[0]), "unscaled" not in words, "unshifted" not in words)


@functools.lru_cache(maxsize=512)
def _canonical(text: str) -> str:
    """A def's text laid out in one way."""
    return str(parse_recovering(SourceText(text, "")).definitions[0])


def _is_pointwise(definition: syntax.Definition) -> bool:
    """Whether each element of the one result is a function of elements at its own place."""
    if len(definition.body) != 1 or not isinstance(definition.body[0], syntax.Statement):
        return False
    statement = definition.body[0]
    subscripts = [s.name if isinstance(s, syntax.Name) else "" for s in statement.subscripts or ()]
    tensors = {parameter.name.name for parameter in definition.inputs}
    if statement.operator != "=" or statement.others or "" in subscripts or len(set(subscripts)) < len(subscripts):
        return False
    if not all(isinstance(clause, syntax.Let) for clause in statement.clauses):
        return False
    reads = [node for node in _nodes((statement.value, *statement.clauses)) if isinstance(node, syntax.Boundary)]
    for node in _nodes((statement.value, *statement.clauses)):
        if isinstance(node, syntax.Apply) and node.function.name in tensors:
            own = subscripts[len(subscripts) - len(node.arguments) :]
            places = zip(node.arguments, own, strict=False)
            if len(node.arguments) > len(subscripts) or not all(str(a) in (c, "0") for a, c in places):
                return False
    return not reads


def _nodes(roots: Sequence[Any]) -> Iterator[Any]:
    """All nodes of some trees."""
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        yield node
        for one in dataclasses.fields(node) if dataclasses.is_dataclass(node) else ():
            found = getattr(node, one.name)
            waiting += found if isinstance(found, tuple) else [found] if dataclasses.is_dataclass(found) else []
