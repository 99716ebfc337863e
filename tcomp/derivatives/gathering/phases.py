"""Sums over strided reads by phases: of ``d(h) +=! s`` with ``h/S`` and ``h%S`` in its reads, all ``h`` of one rest.

``p(r, q) +=! s`` has ``r`` for ``h%S`` and ``q`` for ``h/S``, and ``d(h) = p(h%S, h/S)`` puts phases side by side.  A
phase is a sum of products like any other, over the steps that it has, and runs as one: the gradient of a strided
convolution by its image is ``S*S`` small convolutions (the polyphase form of upsampling; Bellanger, Daguet and
Lepagnol, "Interpolation, extrapolation, and reduction of computation speed in digital filters", 1974).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tcomp.derivatives.steps.blocks import Group
from tcomp.derivatives.text import Expr, element, name, names_in, shortest, substitute, with_children
from tcomp.grammar.tree import syntax

Fresh = Callable[[str], str]
"""Gives a name like the one that is wanted, which nothing has."""


Extents = Mapping[str, Sequence[Expr]]
"""The dimensions of tensors that are declared."""


def in_phases(groups: Iterable[Group], extents: Extents, fresh: Fresh) -> list[Group]:
    """The groups with each sum over strided reads by phases."""
    return [replace(g, statements=[s for own in g.statements for s in _parts(own, extents, fresh)]) for g in groups]


def _parts(statement: syntax.Statement, extents: Extents, fresh: Fresh) -> list[syntax.Statement]:
    if statement.operator != "+=!" or statement.declared is not None or not statement.subscripts:
        return [statement]
    if any(isinstance(e, syntax.Cast) for e in _walk(statement.value)):
        return [statement]
    phases = [p for s in statement.subscripts if (p := _phase_of(statement, s, fresh)) is not None]
    if not phases or not all(isinstance(s, syntax.Name) for s in statement.subscripts):
        return [statement]
    return _split(statement, phases, extents, fresh)


@dataclass(frozen=True, slots=True)
class _Phase:
    """An index of which a statement has ``of / stride``, the ``step``, and ``of % stride``, the ``rest``."""

    index: str
    of: Expr
    stride: Expr
    step: str
    rest: str
    range: syntax.Range

    @property
    def ranges(self) -> tuple[syntax.Range, syntax.Range]:
        """Those of the rest and of the quotient."""
        low, high = (substitute(self.of, {self.index: end}) for end in (self.range.lower, _before(self.range.upper)))
        first, last = (_divided(shortest(end), self.stride) for end in (low, high))
        return (
            syntax.Range(name(self.rest), syntax.Number("0"), self.stride),
            syntax.Range(name(self.step), first, syntax.Binary("+", last, _ONE)),
        )

    def replaced(self, expr: Expr) -> Expr:
        """An expression in the quotient and the rest."""
        match expr:
            case syntax.Binary(op="/" | "%") if (expr.lhs, expr.rhs) == (self.of, self.stride):
                return name(self.step if expr.op == "/" else self.rest)
        return with_children(expr, [self.replaced(child) for child in syntax.children(expr)])


def _phase_of(statement: syntax.Statement, subscript: Expr, fresh: Fresh) -> _Phase | None:
    """None where the index stands for itself somewhere, has no range, or is divided by several strides.

    Nor is there one where all of a kernel is read once, without steps ``h/S - u``: that is fast as it is.
    """
    if not isinstance(subscript, syntax.Name):
        return None
    index = subscript.name
    ranges = [c for c in statement.clauses if isinstance(c, syntax.Range) and c.index.name == index]
    others = [c for c in statement.clauses if c not in ranges]
    binary = [e for e in _walk(statement.value) if isinstance(e, syntax.Binary)]
    divisions = [e for e in binary if e.op in ("/", "%") and index in names_in(e.lhs)]
    if len(ranges) != 1 or len({(d.lhs, d.rhs) for d in divisions}) != 1 or len({d.op for d in divisions}) != 2:
        return None
    if any(index in names_in(bound) for c in others for bound in _expressions(c)):
        return None
    division = divisions[0]
    quotient, rest = (syntax.Binary(op, division.lhs, division.rhs) for op in ("/", "%"))
    leaves_out = any(isinstance(e, syntax.Boundary) and rest in e.subscripts for e in _walk(statement.value))
    if not leaves_out and not any(e.op == "-" and e.lhs == quotient for e in binary):
        return None
    found = _Phase(index, division.lhs, division.rhs, f"{index}_step", f"{index}_rest", ranges[0])
    if index in names_in(found.replaced(statement.value)) or names_in(division.lhs) & _indices(statement) != {index}:
        return None
    return replace(found, step=fresh(found.step), rest=fresh(found.rest))


def _split(
    statement: syntax.Statement, phases: Sequence[_Phase], extents: Extents, fresh: Fresh
) -> list[syntax.Statement]:
    """All phases, and the statement that puts them side by side."""
    by_index = {phase.index: phase for phase in phases}
    value, clauses = statement.value, list[syntax.Clause]()
    for phase in phases:
        value = phase.replaced(value)
    own = [str(s) for s in statement.subscripts or ()]
    rests, steps = ([name(getattr(p, side)) for p in phases] for side in ("rest", "step"))
    whole = [name(i) for i in own if i not in by_index]
    for clause in statement.clauses:
        own_phase = by_index.get(clause.index.name) if isinstance(clause, syntax.Range) else None
        clauses += [clause] if own_phase is None else own_phase.ranges
    value, clauses = _without_empty_steps(value, clauses, phases, extents)
    tensor = fresh(f"{statement.target.name}_phases")
    divided = [syntax.Binary(op, p.of, p.stride) for op in ("%", "/") for p in phases]
    kept = tuple(c for c in statement.clauses if isinstance(c, syntax.Range) and c.index.name in own)
    return [
        replace(
            statement, target=name(tensor), subscripts=(*whole, *rests, *steps), value=value, clauses=tuple(clauses)
        ),
        replace(statement, operator="=", value=element(tensor, (*whole, *divided)), clauses=kept),
    ]


def _without_empty_steps(
    value: Expr, clauses: Sequence[syntax.Clause], phases: Sequence[_Phase], extents: Extents
) -> tuple[Expr, list[syntax.Clause]]:
    """The statement without steps at which a kernel is read behind its end, ``rest + S*u`` for ``u in 0:(K-1)/S+1``.

    A phase has as many as begin with its rest, ``u in 0:(K-1-rest)/S+1``.
    """
    changed: dict[str, syntax.Range] = {}
    for boundary in [e for e in _walk(value) if isinstance(e, syntax.Boundary)]:
        tensor = boundary.arguments[0]
        dims = extents.get(tensor.name) if isinstance(tensor, syntax.Name) else None
        if boundary.kind.name != "constant_exterior" or dims is None or len(dims) != len(boundary.subscripts):
            continue
        found = [_ending(s, clauses, phases, dim) for s, dim in zip(boundary.subscripts, dims, strict=True)]
        whole = {(c.index, c.upper) for c in clauses if isinstance(c, syntax.Range) and c.lower == syntax.Number("0")}
        places = zip(found, boundary.subscripts, dims, strict=True)
        if any(found) and all(f is not None or (s, dim) in whole for f, s, dim in places):
            assert isinstance(tensor, syntax.Name)
            changed |= {f.index.name: f for f in found if f is not None}
            value = _with(value, boundary, syntax.Apply(tensor, boundary.subscripts))
    return value, [changed.get(c.index.name, c) if isinstance(c, syntax.Range) else c for c in clauses]


def _ending(
    subscript: Expr, clauses: Sequence[syntax.Clause], phases: Sequence[_Phase], extent: Expr
) -> syntax.Range | None:
    """The range of ``u`` in which ``rest + S*u`` is inside an extent, if it is such a subscript and has no more now."""
    last = _before(extent)
    for phase in phases:
        for clause in clauses:
            if not isinstance(clause, syntax.Range):
                continue
            at = syntax.Binary("+", name(phase.rest), syntax.Binary("*", phase.stride, clause.index))
            if subscript == at and clause.upper == _steps_to(last, phase.stride):
                left = syntax.Binary("-", last, name(phase.rest))
                return replace(clause, upper=syntax.Binary("+", syntax.Binary("/", left, phase.stride), _ONE))
    return None


_ONE = syntax.Number("1")


def _steps_to(last: Expr, stride: Expr) -> Expr:
    """How many steps of a stride there are from 0 to a last place."""
    steps = _divided(last, stride)
    if isinstance(steps, syntax.Number):
        return syntax.Number(str(int(steps.text) + 1))
    return syntax.Binary("+", steps, _ONE)


def _divided(place: Expr, stride: Expr) -> Expr:
    if place == syntax.Number("0"):
        return place
    if isinstance(place, syntax.Number) and isinstance(stride, syntax.Number):
        return syntax.Number(str(int(place.text) // int(stride.text)))
    return syntax.Binary("/", place, stride)


def _with(expr: Expr, part: Expr, other: Expr) -> Expr:
    if expr == part:
        return other
    return with_children(expr, [_with(child, part, other) for child in syntax.children(expr)])


def _walk(expr: Expr) -> Iterator[Expr]:
    yield expr
    for child in syntax.children(expr):
        yield from _walk(child)


def _expressions(clause: syntax.Clause) -> tuple[Expr, ...]:
    match clause:
        case syntax.Range():
            return clause.lower, clause.upper
        case syntax.Let():
            return (clause.value,)
        case _:
            return ()


def _indices(statement: syntax.Statement) -> set[str]:
    return {c.index.name for c in statement.clauses if isinstance(c, syntax.Range)}


def _before(upper: Expr) -> Expr:
    return shortest(syntax.Binary("-", upper, _ONE))
