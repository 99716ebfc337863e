"""Reverse mode: from a def, the text of a def that takes its inputs and cotangents and gives gradients.

Statements are gone through from the last to the first; the adjoint of what a statement writes goes down its right-hand
side by the chain rule, to an adjoint of each tensor that is read there.  Values of the forward pass are computed anew.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tcomp.derivatives.expressions import ChainRule
from tcomp.derivatives.gathers import Contribution, Place, contribution, range_of
from tcomp.derivatives.text import ONE, ZERO, Expr, element, name, names_in, product, to_syntax, total
from tcomp.derivatives.tidy import without_inferred_ranges
from tcomp.derivatives.versions import Version, tensors_read, versions_of
from tcomp.errors import DerivativeError, Diagnostic
from tcomp.grammar.ranges.linear import Linear, linear
from tcomp.grammar.ranges.polynomials import Polynomial
from tcomp.grammar.ranges.symbolic import Span, symbolic_ranges
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import Function, Statement, Tensor

_SPELLINGS = {"float32": "float", "float64": "double", "float16": "half", "int32": "int"}


@dataclass(frozen=True, slots=True)
class Derivative:
    """A derived def: its text, its name, and the inputs and cotangents that it takes, in order."""

    text: str
    name: str
    inputs: tuple[str, ...]
    cotangents: tuple[str, ...]
    wrt: tuple[str, ...]


def gradient_text(function: Function, wrt: Sequence[str] | None = None, wanted: str | None = None) -> Derivative:
    """The def that computes the gradients of ``function`` by the inputs ``wrt``, by default by all of floats.

    Raises:
        DerivativeError: ``wrt`` names no input of floats, or a statement has no derivative here.
    """
    return _Reverse(function, _chosen(function, wrt)).run(wanted or f"{function.name}_grad")


def _chosen(function: Function, wrt: Sequence[str] | None) -> tuple[str, ...]:
    floats = [t.name for t in function.inputs if t.role == "input" and t.dtype.is_float]
    if wrt is None:
        if not floats:
            raise DerivativeError(f"{function.name} has no input of floats to find a gradient for")
        return tuple(floats)
    chosen = (wrt,) if isinstance(wrt, str) else tuple(wrt)
    for given in chosen:
        if given not in floats or chosen.count(given) > 1:
            hint = f"its inputs of floats are {', '.join(floats)}" if floats else None
            message = f"{function.name} has no gradient with respect to {given}"
            raise DerivativeError(Diagnostic(message, function.source, hint=hint))
    return chosen


@dataclass(slots=True)
class _Group:
    """Statements that belong together, and what they come from."""

    comment: str
    statements: list[syntax.Statement] = field(default_factory=list)


class _Reverse:
    def __init__(self, function: Function, wrt: tuple[str, ...]) -> None:
        self.function = function
        self.wrt = wrt
        self.symbolic = symbolic_ranges(function)
        self.versions = versions_of(function, self.symbolic)
        used = set(function.tensors) | set(function.sizes) | {v.name for v in self.versions}
        self.taken = used | {i for s in function.statements for i in s.indices}
        self.adjoints: dict[str, str] = {}
        self.sums: dict[str, list[Contribution]] = {}
        self.groups: list[_Group] = []
        finals = {v.tensor: v.name for v in self.versions}
        self.outputs = {finals[t.name]: t for t in function.outputs if t.dtype.is_float and t.name in finals}
        self.inputs = {t.name: t for t in function.inputs if t.role == "input"}
        self.active = self._active()
        self.cotangents = {version: self._fresh(f"d_{tensor.name}") for version, tensor in self.outputs.items()}
        for given in wrt:
            self.adjoints[given] = self._fresh(f"d_{given}")

    def _active(self) -> set[str]:
        """The versions of tensors that depend on what gradients are wanted for."""
        active = set(self.wrt)
        for version, statement in zip(self.versions, self.function.statements, strict=True):
            if any(version.reads[read] in active for read in tensors_read(statement)):
                active.add(version.name)
        return active

    def run(self, wanted: str) -> Derivative:
        for position in reversed(range(len(self.versions))):
            version = self.versions[position]
            if version.name not in self.active or not self._has_adjoint(version.name):
                continue
            if all(later.name != version.name for later in self.versions[position + 1 :]):
                self._settle(version)
            self._push(position, version)
        for given in self.wrt:
            self._write_result(given)
        return self._assemble(wanted)

    def _write_result(self, given: str) -> None:
        """A gradient; narrower ones than what is added up are rounded once, at the end."""
        tensor, own, box = self.inputs[given], self.adjoints[given], self._box(given)
        widest = max(t.dtype.bits for t in self.function.tensors.values() if t.dtype.is_float)
        if given not in self.sums or tensor.dtype.bits == max(32, widest):
            self._write_sum(own, tensor, box, given)
            return
        wide = self._fresh(f"wide_{own}")
        self._write_sum(wide, tensor, box, given)
        subscripts = tuple(map(name, self._indices(given, len(box))))
        ranges = tuple(_range(i.name, span) for i, span in zip(subscripts, box, strict=True))
        rounded = syntax.Cast(_spelling(tensor), element(wide, subscripts))
        self.groups[-1].statements.append(_statement(own, subscripts, "=", rounded, ranges))

    def _has_adjoint(self, version: str) -> bool:
        return version in self.outputs or version in self.sums

    def _settle(self, version: Version) -> None:
        """Write down the adjoint of a version, all of whose readers have been gone through."""
        tensor = self.function.tensors[version.tensor]
        if version.name not in self.sums:
            self.adjoints[version.name] = self.cotangents[version.name]
            return
        box = self._box(version.tensor)
        if version.name in self.outputs:
            own = self._fresh(f"all_d_{version.tensor}")
            indices = self._indices(version.name, len(box))
            shifted = tuple(self._rebased(name(i), span) for i, span in zip(indices, box, strict=True))
            ranges = tuple(_range(i, span) for i, span in zip(indices, box, strict=True))
            copied = Contribution(
                tuple(map(name, indices)), element(self.cotangents[version.name], shifted), ranges, gathered=True
            )
            self.sums[version.name].insert(0, copied)
        else:
            own = self._fresh(f"d_{version.name}")
        self.adjoints[version.name] = own
        self._write_sum(own, tensor, box, version.name)

    def _rebased(self, index: Expr, span: Span) -> Expr:
        """A coordinate of an array that is handed out from 0."""
        return index if not span[0].terms else syntax.Binary("-", index, span[0].syntax())

    def _indices(self, version: str, rank: int) -> tuple[str, ...]:
        """Names for the dimensions: those of the first gather, where there is one."""
        for part in self.sums.get(version, ()):
            if part.gathered and len(set(part.indices)) == rank:
                return part.indices
        found: list[str] = []
        for letter in "ijklmnopqrstuvw"[:rank]:
            found.append(self._fresh(letter, keep=False))
        return tuple(found)

    def _write_sum(self, own: str, tensor: Tensor, box: tuple[Span, ...], version: str) -> None:
        parts = self.sums.get(version, [])
        group = _Group(f"{own}: the adjoint of {version}")
        indices = self._indices(version, len(box))
        pointwise = [p.renamed(indices) for p in parts if p.is_pointwise]
        others = [p for p in parts if not p.is_pointwise]
        ranges = tuple(_range(i, span) for i, span in zip(indices, box, strict=True))
        subscripts = tuple(map(name, indices))
        needs_zero = not pointwise and (not others or not others[0].gathered)
        if needs_zero:
            zero: Expr = ZERO if tensor.dtype.name != "float64" else syntax.Cast("double", ZERO)
            group.statements.append(_statement(own, subscripts, "=", zero, ranges))
        elif pointwise:
            value = pointwise[0].value
            for part in pointwise[1:]:
                value = total(value, part.value)
            group.statements.append(_statement(own, subscripts, "=", value, ranges))
        others.sort(key=lambda part: not part.gathered)
        for part in others:
            operator = "+=" if group.statements else "+=!"
            group.statements.append(_statement(own, part.subscripts, operator, part.value, part.ranges))
        self.groups.append(group)

    def _push(self, position: int, version: Version) -> None:
        statement = self.function.statements[position]
        place, rule = self._place(position, version), self._rule(position, version)
        seed, value = place.seed, statement.value
        guards: tuple[Expr, ...] = ()
        if statement.reduction in ("min", "max"):
            seed, guards = self._ties(position, version, rule, place)
        elif statement.reduction == "*":
            seed, guards = self._products(position, version, rule, place)
        for adjoint in rule.push(value, seed, guards):
            read = version.reads[adjoint.read.tensor]
            if read not in self.active:
                continue
            boundary = adjoint.read.boundary
            if boundary is not None and boundary.kind != "constant_exterior":
                message = f"{boundary.kind} has no derivative here yet"
                raise DerivativeError(Diagnostic(message, self.function.source, adjoint.read.span))
            part = contribution(adjoint, place, self._box(adjoint.read.tensor), frozenset(self.taken))
            self.sums.setdefault(read, []).append(part)

    def _place(self, position: int, version: Version) -> Place:
        statement = self.function.statements[position]
        ranges = self.symbolic.ranges[position]
        missing = [index for index in statement.indices if index not in ranges]
        if missing:
            message = f"the range of {missing[0]} cannot be said for all sizes, so there is no derivative"
            hint = f"add a range, such as `where {missing[0]} in 0:3`"
            raise DerivativeError(Diagnostic(message, self.function.source, statement.span, hint))
        box = self._box(version.tensor)
        subscripts = tuple(to_syntax(s, version.reads) for s in statement.subscripts)
        own = self.adjoints[version.name]
        if own in self.cotangents.values():
            subscripts = tuple(self._rebased(s, span) for s, span in zip(subscripts, box, strict=True))
        outer = frozenset(set(statement.indices) - set(statement.reduction_indices))
        dependent = _dependent(statement)
        return Place(statement.indices, outer, ranges, dependent, element(own, subscripts), box)

    def _rule(self, position: int, version: Version) -> ChainRule:
        statement = self.function.statements[position]
        known = None
        if statement.reduction is None and version.is_only_write:
            subscripts = tuple(to_syntax(s, version.reads) for s in statement.subscripts)
            known = (statement.value, element(version.name, subscripts))
        return ChainRule(self.function.source, version.reads, known)

    def _ties(self, position: int, version: Version, rule: ChainRule, place: Place) -> tuple[Expr, tuple[Expr, ...]]:
        """Elements that are the extreme share its adjoint evenly."""
        statement = self.function.statements[position]
        subscripts = tuple(to_syntax(s, version.reads) for s in statement.subscripts)
        is_extreme = syntax.Binary("==", rule.text(statement.value), element(version.name, subscripts))
        one: Expr = ONE if statement.value.dtype.name != "float64" else syntax.Cast("double", ONE)
        ties = self._fresh(f"ties_{version.name}")
        counted = syntax.Conditional(is_extreme, one, ZERO)
        self._helper(position, ties, subscripts, "+=!", counted, place)
        return syntax.Binary("/", place.seed, element(ties, subscripts)), (is_extreme,)

    def _products(
        self, position: int, version: Version, rule: ChainRule, place: Place
    ) -> tuple[Expr, tuple[Expr, ...]]:
        """The product of the others: right for any number of zeros."""
        statement = self.function.statements[position]
        subscripts = tuple(to_syntax(s, version.reads) for s in statement.subscripts)
        value = rule.text(statement.value)
        one: Expr = ONE if statement.value.dtype.name != "float64" else syntax.Cast("double", ONE)
        is_zero = syntax.Binary("==", value, ZERO)
        zeros, rest = self._fresh(f"zeros_{version.name}"), self._fresh(f"nonzero_{version.name}")
        self._helper(position, zeros, subscripts, "+=!", syntax.Conditional(is_zero, one, ZERO), place)
        self._helper(position, rest, subscripts, "*=!", syntax.Conditional(is_zero, one, value), place)
        count, others = element(zeros, subscripts), product(place.seed, element(rest, subscripts))
        alone = syntax.Conditional(syntax.Binary("&&", syntax.Binary("==", count, ONE), is_zero), others, ZERO)
        none = syntax.Binary("==", count, ZERO)
        return syntax.Conditional(none, syntax.Binary("/", others, value), alone), ()

    def _helper(
        self, position: int, own: str, subscripts: tuple[Expr, ...], operator: str, value: Expr, place: Place
    ) -> None:
        bounds = [range_of(index, place, {}) for index in self.function.statements[position].indices]
        group = _Group(f"for the adjoint of `{_first_line(self.function, position)}`")
        group.statements.append(_statement(own, subscripts, operator, value, tuple(bounds)))
        self.groups.append(group)

    def _box(self, tensor: str) -> tuple[Span, ...]:
        box = self.symbolic.boxes.get(tensor)
        if box is None:
            found = self.function.tensors[tensor]
            message = f"the extents of {tensor} cannot be said for all sizes, so there is no derivative"
            raise DerivativeError(Diagnostic(message, self.function.source, found.span))
        return box

    def _fresh(self, wanted: str, keep: bool = True) -> str:
        while wanted in self.taken:
            wanted += "_"
        if keep:
            self.taken.add(wanted)
        return wanted

    def _forward(self) -> list[_Group]:
        """The statements whose values the adjoints read, and what those read."""
        wanted = {n for g in self.groups for s in g.statements for n in _names(s)}
        kept: list[_Group] = []
        for position in reversed(range(len(self.versions))):
            version = self.versions[position]
            if version.name not in wanted:
                continue
            statement = self._renamed(position, version)
            wanted |= _names(statement)
            kept.append(_Group("", [statement]))
        return kept[::-1]

    def _renamed(self, position: int, version: Version) -> syntax.Statement:
        """A statement of the forward pass, with its ranges written out and its tensors by version."""
        statement = self.function.statements[position]
        place = Place(statement.indices, frozenset(), self.symbolic.ranges[position], _dependent(statement), ZERO, ())
        bounds = tuple(range_of(index, place, {}) for index in statement.indices if index in place.ranges)
        operator = f"{statement.reduction or ''}={'!' if statement.initialise and statement.reduction else ''}"
        subscripts = tuple(to_syntax(s, version.reads) for s in statement.subscripts)
        return _statement(version.name, subscripts, operator, to_syntax(statement.value, version.reads), bounds)

    def _assemble(self, wanted: str) -> Derivative:
        forward = self._forward()
        mentioned = {n for g in (*forward, *self.groups) for s in g.statements for n in _names(s)}
        results = [self._parameter(self.inputs[n], self.adjoints[n]) for n in self.wrt]
        cotangents = [self._parameter(t, self.cotangents[v]) for v, t in self.outputs.items()]
        dims = [n for p in (*results, *cotangents) for d in p.dims or () for n in names_in(d)]
        mentioned |= set(dims)
        taken = self._inputs(mentioned)
        inputs = [next(p for p in self.function.definition.inputs if p.name.name == n) for n in taken]
        head = syntax.Definition(name(wanted), (*inputs, *cotangents), tuple(results), ())
        groups = (*forward, *self.groups)
        body = tuple(statement for group in groups for statement in group.statements)
        tidy = iter(without_inferred_ranges(replace(head, body=body)).body)
        lines = [str(head).removesuffix("\n}")]
        for group in groups:
            if group.comment:
                lines.append(f"{syntax.INDENT}# {group.comment}")
            lines += [textwrap.indent(str(next(tidy)), syntax.INDENT) for _ in group.statements]
        text = "\n".join([*lines, "}"]) + "\n"
        return Derivative(text, wanted, tuple(taken), tuple(p.name.name for p in cotangents), self.wrt)

    def _inputs(self, mentioned: set[str]) -> list[str]:
        """The inputs that are read, and those that say a size which is mentioned and that no other one says."""
        kept = [t.name for t in self.function.inputs if t.name in mentioned]
        said = {n for t in self.function.inputs if t.name in kept for n in _bare_sizes(t)}
        said |= {n for t in self.outputs.values() for n in _bare_spans(self._box(t.name))}
        for tensor in self.function.inputs:
            missing = (_bare_sizes(tensor) & mentioned) - said
            if tensor.name not in kept and missing:
                kept.append(tensor.name)
                said |= _bare_sizes(tensor)
        return [t.name for t in self.function.inputs if t.name in kept]

    def _parameter(self, tensor: Tensor, own: str) -> syntax.Parameter:
        dims = tuple((last - first + 1).syntax() for first, last in self._box(tensor.name))
        return syntax.Parameter(name(own), _spelling(tensor), dims or None)


def _spelling(tensor: Tensor) -> str:
    return _SPELLINGS.get(tensor.dtype.name, tensor.dtype.name)


def _bare_sizes(tensor: Tensor) -> set[str]:
    return {size for dim in map(linear, tensor.dims or ()) if dim is not None for size in _atoms(dim.constant)}


def _bare_spans(box: tuple[Span, ...]) -> set[str]:
    return {n for first, last in box for n in _atoms(last - first + 1)}


def _atoms(extent: Polynomial) -> Iterator[str]:
    """The size that an extent is, if it is one."""
    if len(extent.terms) == 1 and extent.terms[0][1] == 1 and len(extent.terms[0][0]) == 1:
        atom = extent.terms[0][0][0]
        if isinstance(atom, str):
            yield atom


def _dependent(statement: Statement) -> Mapping[str, tuple[Linear, Linear]]:
    """The ``where`` ranges that other indices bound, inclusive."""
    found: dict[str, tuple[Linear, Linear]] = {}
    for given in statement.ranges:
        low, high = linear(given.lower), linear(given.upper)
        if low is not None and high is not None and low.indices() | high.indices():
            found[given.index] = low, high + Linear.of(Polynomial.of(-1))
    return found


def _range(index: str, span: Span) -> syntax.Range:
    return syntax.Range(name(index), span[0].syntax(), (span[1] + 1).syntax())


def _statement(
    target: str, subscripts: tuple[Expr, ...], operator: str, value: Expr, ranges: tuple[syntax.Range, ...]
) -> syntax.Statement:
    return syntax.Statement(name(target), subscripts or None, operator, value, None, ranges)


def _names(statement: syntax.Statement) -> set[str]:
    own = names_in(statement.value).union(*(names_in(s) for s in statement.subscripts or ()))
    bounds = [
        e for clause in statement.clauses if isinstance(clause, syntax.Range) for e in (clause.lower, clause.upper)
    ]
    return own.union(*map(names_in, bounds))


def _first_line(function: Function, position: int) -> str:
    statement = list(syntax.statements(function.definition.body))[position]
    return str(replace(statement, clauses=())).split("\n", 1)[0]
