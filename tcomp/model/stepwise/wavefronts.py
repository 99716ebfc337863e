"""Blocks that run element by element, written so that they run along wavefronts: what lies on one is independent.

``for i { for j { D(i,j) = f(D(i-1,j), D(i,j-1)) } }`` becomes ``for w { D(i,w-i) = ... }``, where ``w`` is the least
``slope * i + j`` that all dependences increase (Lamport's hyperplanes, CACM 1974); isl finds it.  What the block writes
is kept by wavefronts, ``D_by_wave(w,i)``, so that those of a front lie side by side, and is copied in the end where it
is a result.  The new program is proved to run the same instances on the same elements as the old one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.errors import LegalityError, Span
from tcomp.grammar.ranges.ranges import Ranges
from tcomp.grammar.tree.forms import Form, to_form
from tcomp.grammar.tree.function import (
    Binary,
    Constant,
    Expr,
    Function,
    Index,
    Range,
    Read,
    Statement,
    Step,
    Tensor,
    map_children,
    walk,
    with_indices,
)
from tcomp.model.accesses import Frame, element_map, reads_with_subscripts
from tcomp.values.operators import INT32

STEEPEST = 3
"""Fronts that would lean more are not tried."""

SHORTEST = 64
"""Blocks with fewer rows stay as they are on processors: their fronts would be too short."""

SHORTEST_LAUNCHED = 2
"""The same for GPUs, where each front is a launch, and so is each element without fronts."""

_SET = isl.dim_type.set


@dataclass(frozen=True, slots=True, eq=False)
class Wavefronts:
    """A program in wavefronts and what it was: ``statements`` of both by number, and tensors kept by wavefronts."""

    before: Function
    ranges: Ranges
    after: Function
    slope: int
    depth: int
    statements: frozenset[int]
    twins: Mapping[str, str]


def in_wavefronts(
    function: Function, ranges: Ranges, launched: bool = False, kept: frozenset[int] = frozenset()
) -> Wavefronts | None:  # fmt: skip
    """The function with its first block of single elements in wavefronts; None where it has none that may be.

    ``launched`` says that each front, or each element, is a launch; else short blocks stay as they are.  Statements
    that are ``kept``, by number, and the tensors that they touch, stay, too.
    """
    if function.needs_content or len(ranges.domains) != len(function.statements):
        return None
    shortest = SHORTEST_LAUNCHED if launched else SHORTEST
    for numbers in _blocks(function):
        if kept & set(numbers):
            continue
        statements = [function.statements[n] for n in numbers]
        box = _bounds(statements[0], ranges)
        if box is None or min(box[0][1] - box[0][0], box[1][1] - box[1][0]) < shortest:
            continue
        slope = next((s for s in range(1, STEEPEST + 1) if _carries(function, ranges, numbers, s)), None)
        if slope is None:
            continue
        return _Writer(function, ranges, numbers, slope, box, kept).write()
    return None


def prove_wavefronts(made: Wavefronts, after: Ranges) -> None:
    """Raise LegalityError where instances of a front depend on each other, or others or other elements are touched."""
    if not _carries(made.before, made.ranges, sorted(made.statements), made.slope):
        raise LegalityError(
            f"fronts of slope {made.slope} of {made.before.name} hold instances that depend on each other"
        )
    values = made.ranges.sizes
    for number, (old, new) in enumerate(zip(made.before.statements, made.after.statements, strict=False)):
        domain, other = made.ranges.domains[number].domain, after.domains[number].domain
        back = _back(made, domain, other) if number in made.statements else isl.Map.identity(
            domain.get_space().map_from_set()
        )  # fmt: skip
        frames = Frame(domain, values, made.ranges.boxes), Frame(other, values, after.boxes)
        touched = [
            [element_map(frame, s.target, s.subscripts), *reads_with_subscripts(frame, s.value, s.subscripts)]
            for frame, s in zip(frames, (old, new), strict=True)
        ]
        moved = [_by_wave(made, access) for access in touched[0]]
        same = other.apply(back).is_equal(domain) and len(moved) == len(touched[1])
        if not same or not all(
            a.is_equal(b.apply_domain(back)) for a, b in zip(moved, touched[1], strict=True)
        ):  # fmt: skip
            raise LegalityError(f"in wavefronts, statement {number} of {made.before.name} is not what it was")


def _blocks(function: Function) -> Iterator[list[int]]:
    """Statements of two blocks in one another that hold nothing else and compute single elements."""
    seen: set[int] = set()
    for statement in function.statements:
        if len(statement.steps) < 2 or statement.steps[-2].number in seen:
            continue
        outer, inner = (step.number for step in statement.steps[-2:])
        seen.add(outer)
        own = [n for n, s in enumerate(function.statements) if any(step.number == outer for step in s.steps)]
        if all(
            function.statements[n].steps[-1].number == inner and not _has_more(function.statements[n]) for n in own
        ):  # fmt: skip
            yield own


def _has_more(statement: Statement) -> bool:
    """Whether a statement does more in a step than to write one element, or to combine it with a value."""
    steps = tuple(step.index for step in statement.steps)
    return statement.initialise or statement.scatters or statement.indices != steps or bool(statement.exists)


def _bounds(statement: Statement, ranges: Ranges) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """From where to where the two innermost steps run, half-open; None where that depends on others."""
    found = []
    for step in statement.steps[-2:]:
        if step.lower is None or step.upper is None:
            return None
        ends = to_form(step.lower, ranges.sizes), to_form(step.upper, ranges.sizes)
        if any(end is None or end.terms for end in ends):
            return None
        found.append((ends[0].constant if ends[0] else 0, ends[1].constant if ends[1] else 0))
    return found[0], found[1]


def _carries(function: Function, ranges: Ranges, numbers: Sequence[int], slope: int) -> bool:
    """Whether whatever depends on something else in the block is on a later front."""
    touched = [list(_touched(function, ranges, number)) for number in numbers]
    for earlier in touched:
        for later in touched:
            for one, writes in earlier:
                for other, also in later:
                    if not (writes or also) or _name(one) != _name(other):
                        continue
                    moves = one.apply_range(other.reverse()).deltas().reset_tuple_id()
                    outer = moves.dim(_SET) - 2
                    for d in range(outer):
                        moves = moves.fix_val(_SET, d, isl.Val(0))
                    moves = moves.project_out(_SET, 0, outer)
                    wrong = isl.Set(f"{{ [i, j] : (i > 0 or (i = 0 and j > 0)) and {slope} * i + j <= 0 }}")
                    if not moves.intersect(wrong).is_empty():
                        return False
    return True


def _name(access: isl.Map) -> str:
    return str(access.get_tuple_name(isl.dim_type.out))


def _touched(function: Function, ranges: Ranges, number: int) -> Iterator[tuple[isl.Map, bool]]:
    """What a statement touches, from its instances under one name; and whether it writes there."""
    statement, domain = function.statements[number], ranges.domains[number].domain
    frame = Frame(domain, ranges.sizes, ranges.boxes)
    yield element_map(frame, statement.target, statement.subscripts).set_tuple_name(isl.dim_type.in_, "S"), True
    for read in reads_with_subscripts(frame, statement.value, ()):
        yield read.set_tuple_name(isl.dim_type.in_, "S"), False


def _back(made: Wavefronts, domain: isl.Set, other: isl.Set) -> isl.Map:
    """From the instances of a statement in wavefronts to those that they were."""
    names = [f"s{d}" for d in range(made.depth - 2)]
    new, old = [*names, "w", "i"], [*names, "i", f"w - {made.slope} * i"]
    return isl.Map(
        f"{{ {other.get_tuple_name()}[{', '.join(new)}] -> {domain.get_tuple_name()}[{', '.join(old)}] }}"
    )  # fmt: skip


def _by_wave(made: Wavefronts, access: isl.Map) -> isl.Map:
    """An access as one to the tensor by wavefronts, if its tensor has one."""
    name = access.get_tuple_name(isl.dim_type.out)
    if name not in made.twins:
        return access
    return access.apply_range(isl.Map(f"{{ {name}[x, y] -> {made.twins[name]}[{made.slope} * x + y, x] }}"))


class _Writer:
    """Writes one block of a function in wavefronts."""

    def __init__(
        self, function: Function, ranges: Ranges, numbers: Sequence[int], slope: int,
        box: tuple[tuple[int, int], tuple[int, int]], kept: frozenset[int],
    ) -> None:  # fmt: skip
        self.function = function
        self.ranges = ranges
        self.numbers = frozenset(numbers)
        self.slope = slope
        self.rows, self.columns = box
        self.taken = {*function.tensors, *function.sizes}
        self.taken |= {index for s in function.statements for index in s.indices}
        self.wave = self._name("wave")
        fixed = {name for n in kept for name in _tensors(function.statements[n])}
        self.twins = {
            name: self._name(f"{name}_by_wave")
            for name in dict.fromkeys(function.statements[n].target for n in numbers)
            if function.tensors[name].rank == 2
            and name not in fixed
            and not self._is_read_oddly(name)
            and self._is_worth_a_twin(name)
        }

    def write(self) -> Wavefronts:
        function = self.function
        tensors = function.tensors
        made = [replace(tensors[n], name=twin, dims=None, role="temporary") for n, twin in self.twins.items()]
        statements = [self._statement(n, s) for n, s in enumerate(function.statements)]
        outputs = {t.name for t in function.outputs}
        statements += [self._copy(tensors[n], function.statements[-1].span) for n in self.twins if n in outputs]
        kept = tuple(t for t in function.temporaries if t.name not in self.twins)
        after = replace(function, statements=tuple(statements), temporaries=(*kept, *made))
        depth = len(function.statements[min(self.numbers)].steps)
        return Wavefronts(function, self.ranges, after, self.slope, depth, self.numbers, self.twins)

    def _name(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def _is_worth_a_twin(self, name: str) -> bool:
        """Whether a tensor is no result, or the block runs more than once: a copy takes as long as some runs."""
        role = self.function.tensors[name].role
        return role == "temporary" or len(self.function.statements[min(self.numbers)].steps) > 2

    def _is_read_oddly(self, name: str) -> bool:
        """Whether an access has a subscript that is not linear, or a boundary."""
        for statement in self.function.statements:
            reads = [e for x in statement.expressions() for e in walk(x) if isinstance(e, Read) and e.tensor == name]
            places = [r.subscripts for r in reads] + [statement.subscripts] * (statement.target == name)
            if any(r.boundary is not None for r in reads) or statement.exists:
                return True
            if any(not _is_linear(to_form(s, self.ranges.sizes)) for place in places for s in place):
                return True
        return False

    def _statement(self, number: int, statement: Statement) -> Statement:
        if number in self.numbers:
            statement = self._in_waves(statement)
        subscripts = tuple(map(self._expr, statement.subscripts))
        if statement.target in self.twins:
            subscripts = self._places(subscripts, statement.span)
        target = self.twins.get(statement.target, statement.target)
        return replace(statement, target=target, subscripts=subscripts, value=self._expr(statement.value))

    def _in_waves(self, statement: Statement) -> Statement:
        """The statement with the step of the front and the row as a free index in place of row and column."""
        span, slope = statement.span, self.slope
        (top, bottom), (left, right) = self.rows, self.columns
        i, j = (step.index for step in statement.steps[-2:])
        outer = statement.steps[:-2]
        step = Step(
            self.wave, statement.steps[-1].number, _constant(slope * top + left, span),
            _constant(slope * (bottom - 1) + right, span), span,
        )  # fmt: skip
        first = _binary("/", _sum(Form(((self.wave, 1),), slope - right), span), _constant(slope, span))
        last = _binary("/", _sum(Form(((self.wave, 1),), slope - left), span), _constant(slope, span))
        known = {name.index for name in outer}
        ranges = (
            *(r for r in statement.ranges if r.index in known),
            Range(self.wave, step.lower or _constant(0, span), step.upper or _constant(0, span), span),
            Range(
                i, _binary("max", _constant(top, span), first), _binary("min", _constant(bottom, span), last), span
            ),
        )  # fmt: skip
        column = _sum(Form(((self.wave, 1), (i, -slope)), 0), span)
        places: dict[str, Expr] = {j: column}
        return replace(
            statement,
            subscripts=tuple(with_indices(s, places) for s in statement.subscripts),
            value=with_indices(statement.value, places),
            ranges=ranges,
            indices=(*(s.index for s in outer), self.wave, i),
            steps=(*outer, step),
        )

    def _expr(self, expr: Expr) -> Expr:
        changed = map_children(expr, self._expr)
        if isinstance(changed, Read) and changed.tensor in self.twins:
            places = self._places(changed.subscripts, changed.span)
            return replace(changed, tensor=self.twins[changed.tensor], subscripts=places)
        return changed

    def _places(self, subscripts: tuple[Expr, ...], span: Span) -> tuple[Expr, ...]:
        x, y = (to_form(s, self.ranges.sizes) for s in subscripts)
        assert x is not None and y is not None, "subscripts are linear"
        return _sum(x.scaled(self.slope).add(y), span), _sum(x, span)

    def _copy(self, tensor: Tensor, span: Span) -> Statement:
        """A result, from what is kept by wavefronts."""
        box = self.ranges.boxes[tensor.name]
        indices = tuple(self._name(name) for name in ("row", "column"))
        subscripts = tuple(Index(name, INT32, span) for name in indices)
        value = Read(self.twins[tensor.name], self._places(subscripts, span), tensor.dtype, span)
        ranges = tuple(
            Range(name, _constant(low, span), _constant(low + extent, span), span)
            for name, low, extent in zip(indices, box.origin, box.extent, strict=True)
        )
        return Statement(
            tensor.name, subscripts, None, False, value, tensor.dtype, ranges, (), indices, (), span
        )  # fmt: skip


def _tensors(statement: Statement) -> set[str]:
    return {statement.target, *(e.tensor for x in statement.expressions() for e in walk(x) if isinstance(e, Read))}


def _is_linear(form: Form | None) -> bool:
    return form is not None and all(isinstance(term, str) for term, _ in form.terms)


def _constant(value: int, span: Span) -> Expr:
    return Constant(value, INT32, span)


def _binary(op: str, lhs: Expr, rhs: Expr) -> Expr:
    return Binary(op, lhs, rhs, INT32, lhs.span)


def _sum(form: Form, span: Span) -> Expr:
    """A linear form as an expression."""
    total: Expr | None = None
    for term, factor in form.terms:
        assert isinstance(term, str), "the form is linear"
        own: Expr = Index(term, INT32, span)
        if abs(factor) != 1:
            own = _binary("*", _constant(abs(factor), span), own)
        if total is None:
            total = own if factor > 0 else _binary("-", _constant(0, span), own)
        else:
            total = _binary("+" if factor > 0 else "-", total, own)
    if total is None:
        return _constant(form.constant, span)
    if not form.constant:
        return total
    return _binary("+" if form.constant > 0 else "-", total, _constant(abs(form.constant), span))
