"""Sums over strided reads by phases: of ``d(h) +=! s`` with ``h/S`` and ``h%S`` in its reads, all ``h`` of one rest.

``p(r, q) +=! s`` has ``r`` for ``h%S`` and ``q`` for ``h/S``, and ``d(h) = p(h%S, h/S)`` puts phases side by side.  A
phase is a sum of products like any other, over the steps that it has, and runs as one: the gradient of a strided
convolution by its image is ``S*S`` small convolutions (the polyphase form of upsampling; Bellanger, Daguet and
Lepagnol, "Interpolation, extrapolation, and reduction of computation speed in digital filters", 1974).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tcomp.derivatives.gathering.gathers import factors_of
from tcomp.derivatives.steps.blocks import Group
from tcomp.derivatives.text import (
    ZERO,
    Expr,
    element,
    integer,
    name,
    names_in,
    polynomial_of,
    shortest,
    with_children,
    with_short_subscripts,
)
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
    """An index that a statement has in a quotient ``of``, the ``step``, and a remainder ``left``, the ``rest``.

    Both are ``y / stride`` and ``y % stride`` for one ``y``, or ``(y - D*left) / stride`` where ``left`` is what
    ``E*y`` leaves.  Without a remainder ``stride`` is that of the quotient.  All is 0 but where ``conditions`` hold,
    which say what divides ``y``.
    """

    index: str
    of: syntax.Binary
    left: syntax.Binary | None
    step: str
    rest: str
    range: syntax.Range
    conditions: tuple[Expr, ...]
    is_zero_below: bool = False

    @property
    def stride(self) -> Expr:
        return self.of.rhs

    @property
    def steps(self) -> tuple[Expr, Expr] | None:
        """First and last value of the quotient."""
        return _ends(self.of, self.range)

    @property
    def first(self) -> Expr:
        """The quotient at which steps begin: not a negative one, if all is 0 there."""
        assert self.steps is not None
        return _from_zero(self.steps[0]) if self.is_zero_below else self.steps[0]

    @property
    def at(self) -> Expr:
        """Which step an element is in: steps count from 0, where register tiles do."""
        return _combined("-", self.of, self.first)

    @property
    def ranges(self) -> tuple[syntax.Range, ...]:
        """Those of the rest and of the step."""
        assert self.steps is not None
        last = _combined("-", self.steps[1], self.first)
        steps = syntax.Range(name(self.step), _NOTHING, _combined("+", last, _ONE))
        rests = syntax.Range(name(self.rest), syntax.Number("0"), self.stride)
        return (steps,) if self.left is None else (rests, steps)

    @property
    def is_padded(self) -> bool:
        """Whether elements of an adjoint may lie at quotients before the first."""
        return self.steps is not None and self.first != self.steps[0]

    def replaced(self, expr: Expr) -> Expr:
        """An expression in the quotient and the rest."""
        if expr == self.of:
            return _combined("+", name(self.step), self.first)
        if expr == self.left:
            return name(self.rest)
        return with_children(expr, [self.replaced(child) for child in syntax.children(expr)])


def _phase_of(statement: syntax.Statement, subscript: Expr, fresh: Fresh) -> _Phase | None:
    """None where the index stands for itself somewhere, has no range, or is divided in several ways.

    Nor is there one where all of a kernel is read once, without steps ``h/S - u``: that is fast as it is.
    """
    if not isinstance(subscript, syntax.Name):
        return None
    index = subscript.name
    ranges = [c for c in statement.clauses if isinstance(c, syntax.Range) and c.index.name == index]
    others = [c for c in statement.clauses if c not in ranges]
    if len(ranges) != 1 or any(index in names_in(bound) for c in others for bound in _expressions(c)):
        return None
    conditions = _divisions(statement, index)
    value = _without(statement.value, conditions)
    divisions = set(_outermost(value, index))
    quotients, rests = ([d for d in divisions if d.op == op] for op in ("/", "%"))
    if len(quotients) != 1 or len(rests) > 1 or (not rests and not conditions):
        return None
    of, left = quotients[0], rests[0] if rests else None
    if left is not None and left.rhs != of.rhs:
        return None
    leaves_out = any(isinstance(e, syntax.Boundary) and left in e.subscripts for e in _walk(value))
    has_steps = any(isinstance(e, syntax.Binary) and e.op == "-" and e.lhs == of for e in _walk(value))
    if not leaves_out and not has_steps:
        return None
    found = _Phase(index, of, left, f"{index}_step", f"{index}_rest", ranges[0], conditions)
    if found.steps is None or any(names_in(d) & _indices(statement) != {index} for d in divisions):
        return None
    if index in names_in(found.replaced(value)):
        return None
    is_zero = _is_zero_below(value, of, statement)
    return replace(found, step=fresh(found.step), rest=fresh(found.rest), is_zero_below=is_zero)


def _divisions(statement: syntax.Statement, index: str) -> tuple[Expr, ...]:
    """The conditions ``y % G == 0`` of a gather that has ``y / G`` in its quotient, and no ``y % G`` elsewhere.

    Nothing else may go from the sum: conditions of the def, and those that keep an index in its range, guard reads.
    """
    divided = {
        c: syntax.Binary("/", c.lhs.lhs, c.lhs.rhs)
        for c in _conditions(statement.value)
        if isinstance(c, syntax.Binary) and c.op == "==" and c.rhs == _NOTHING
        if isinstance(c.lhs, syntax.Binary) and c.lhs.op == "%"
        if names_in(c.lhs) & _indices(statement) == {index}
    }
    others = set(_outermost(_without(statement.value, tuple(divided)), index))
    parts = {part for d in others if d.op == "/" for part in _walk(d)}
    return tuple(c for c, whole in divided.items() if whole in parts and c.lhs not in others)


def _conditions(value: Expr) -> Iterator[Expr]:
    """What must hold for a value not to be 0."""
    while isinstance(value, syntax.Conditional) and value.otherwise == ZERO:
        yield value.condition
        value = value.then


def _without(value: Expr, conditions: Collection[Expr]) -> Expr:
    """A value without some of what must hold for it not to be 0."""
    if not isinstance(value, syntax.Conditional) or value.otherwise != ZERO:
        return value
    then = _without(value.then, conditions)
    return then if value.condition in conditions else replace(value, then=then)


def _outermost(expr: Expr, index: str) -> Iterator[syntax.Binary]:
    """The quotients and remainders of an index that stand in no other."""
    if isinstance(expr, syntax.Binary) and expr.op in ("/", "%") and index in names_in(expr.lhs):
        yield expr
        return
    for child in syntax.children(expr):
        yield from _outermost(child, index)


def _is_zero_below(value: Expr, of: Expr, statement: syntax.Statement) -> bool:
    """Whether what is added up is 0 where a quotient is negative: it reads a tensor there, or before, as 0 outside."""
    from_zero = {c.index.name for c in statement.clauses if isinstance(c, syntax.Range) and c.lower == _NOTHING}
    for factor in factors_of(_without(value, tuple(_conditions(value))))[0]:
        if not isinstance(factor, syntax.Boundary) or factor.arguments[1:] != (ZERO,):
            continue
        for subscript in factor.subscripts:
            match subscript:
                case syntax.Binary(op="-") if subscript.lhs == of:
                    added = polynomial_of(subscript.rhs)
                    if added is not None and names_in(subscript.rhs) <= from_zero and added.is_nonnegative():
                        return True
                case _ if subscript == of:
                    return True
    return False


def _ends(expr: Expr, range_: syntax.Range) -> tuple[Expr, Expr] | None:
    """First and last value of an expression while its index goes through a range; None where that is not plain."""
    match expr:
        case syntax.Name() if expr.name == range_.index.name:
            return range_.lower, _before(range_.upper)
        case syntax.Name() | syntax.Number():
            return expr, expr
        case syntax.Binary(op="%"):
            return _NOTHING, _before(expr.rhs)
        case syntax.Binary(op="/"):
            ends = _ends(expr.lhs, range_)
            return None if ends is None else (_divided(ends[0], expr.rhs), _divided(ends[1], expr.rhs))
        case syntax.Binary(op="*", lhs=syntax.Number()):
            ends = _ends(expr.rhs, range_)
            return None if ends is None else (_combined("*", expr.lhs, ends[0]), _combined("*", expr.lhs, ends[1]))
        case syntax.Binary(op="+" | "-"):
            left, right = _ends(expr.lhs, range_), _ends(expr.rhs, range_)
            if left is None or right is None:
                return None
            first, last = right if expr.op == "+" else right[::-1]
            return _combined(expr.op, left[0], first), _combined(expr.op, left[1], last)
    return None


def _combined(op: str, lhs: Expr, rhs: Expr) -> Expr:
    """A sum, difference or product without what cancels."""
    if rhs == _NOTHING and op != "*":
        return lhs
    match lhs:
        case syntax.Binary(op="-") if (op, lhs.rhs) == ("+", rhs):
            return lhs.lhs
    found = polynomial_of(whole := syntax.Binary(op, lhs, rhs))
    return shortest(whole) if found is None else found.syntax()


def _from_zero(first: Expr) -> Expr:
    """The first value, or 0 for one that is negative."""
    found = polynomial_of(first)
    number = None if found is None else found.constant
    return _NOTHING if number is not None and number < 0 else first


def _split(
    statement: syntax.Statement, phases: Sequence[_Phase], extents: Extents, fresh: Fresh
) -> list[syntax.Statement]:
    """All phases, and the statement that puts them side by side."""
    by_index = {phase.index: phase for phase in phases}
    conditions = [c for phase in phases for c in phase.conditions]
    value, clauses = _without(statement.value, conditions), list[syntax.Clause]()
    for phase in phases:
        value = with_short_subscripts(phase.replaced(value))
    own = [str(s) for s in statement.subscripts or ()]
    with_rest = [p for p in phases if p.left is not None]
    places = [name(p.rest) for p in with_rest] + [name(p.step) for p in phases]
    whole = [name(i) for i in own if i not in by_index]
    for clause in statement.clauses:
        own_phase = by_index.get(clause.index.name) if isinstance(clause, syntax.Range) else None
        clauses += [clause] if own_phase is None else own_phase.ranges
    value, clauses = _without_empty_steps(value, clauses, phases, extents)
    tensor = fresh(f"{statement.target.name}_phases")
    divided = [p.left for p in with_rest if p.left is not None] + [p.at for p in phases]
    kept = tuple(c for c in statement.clauses if isinstance(c, syntax.Range) and c.index.name in own)
    beside: Expr = element(tensor, (*whole, *divided))
    if any(phase.is_padded for phase in phases):
        beside = syntax.Boundary(name("constant_exterior"), (name(tensor), ZERO), (*whole, *divided))
    for condition in reversed(conditions):
        beside = syntax.Conditional(condition, beside, ZERO)
    return [
        replace(statement, target=name(tensor), subscripts=(*whole, *places), value=value, clauses=tuple(clauses)),
        replace(statement, operator="=", value=beside, clauses=kept),
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
            if phase.left is None:
                continue
            at = syntax.Binary("+", name(phase.rest), syntax.Binary("*", phase.stride, clause.index))
            if subscript == at and clause.upper == _steps_to(last, phase.stride):
                left = syntax.Binary("-", last, name(phase.rest))
                return replace(clause, upper=syntax.Binary("+", syntax.Binary("/", left, phase.stride), _ONE))
    return None


_ONE, _NOTHING = syntax.Number("1"), syntax.Number("0")


def _steps_to(last: Expr, stride: Expr) -> Expr:
    """How many steps of a stride there are from 0 to a last place."""
    steps = _divided(last, stride)
    if isinstance(steps, syntax.Number):
        return syntax.Number(str(int(steps.text) + 1))
    return syntax.Binary("+", steps, _ONE)


def _divided(place: Expr, stride: Expr) -> Expr:
    if place == syntax.Number("0"):
        return place
    known, by = polynomial_of(place), polynomial_of(stride)
    if known is not None and by is not None and known.constant is not None and by.constant is not None:
        return integer(known.constant // by.constant)
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
