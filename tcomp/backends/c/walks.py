"""Blocks in which each element needs the one before it in its row: row by row, with that one in a register.

Run step by step, for all rows at a time, such a block touches a line of each row for an element of it.  Rows need
nothing of each other, so all steps of one run before the next begins.

``h(t) = a(t) * h(t-1) + b(t)`` also runs in vectors where it may be reordered: maps ``x -> a x + b`` compose to maps of
that kind, and a vector of them is composed with itself, moved by one lane, by two, by four and so on (Kogge and Stone,
IEEE Transactions on Computers 1973).  Only the last element goes from vector to vector.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from tcomp.backends.c.vectors.types import vector_type
from tcomp.backends.dialect import C_STORAGE_TYPES, C_VALUE_TYPES, bare, mangle
from tcomp.backends.spelling import Needs, Speller, loop_text
from tcomp.grammar.ranges.affine import step_parameter
from tcomp.grammar.tree.forms import Form, Interval, combine, interval, to_form
from tcomp.grammar.tree.function import (
    Binary,
    Constant,
    Expr,
    Read,
    Select,
    Unary,
    depends_on_data,
    map_children,
    walk,
)
from tcomp.loops.ir import Block, Execute, For, LoopExpr, LoopNode, Scope, variables
from tcomp.mapping.plan.values import Plan
from tcomp.model.scop import ScopStatement
from tcomp.model.stepwise.pieces import Piece, Pieces, Repeat, TimeTiles
from tcomp.model.stepwise.rows import calls_much

FIRST, END = "tc_first", "tc_end"
"""The C names of the first step of a walk, and of the one behind its last."""

_VALUE, _NEXT, _AT = "tc_value", "tc_next", "tc_at"
_BEFORE = "tc_before"

Parts = tuple[Expr | None, Expr | None]
"""The factor and the term of an affine map; None are 0."""


@dataclass(frozen=True, slots=True)
class Walk:
    """A piece that walks along ``step``: its rows are ``loops`` around one ``call``, which reads what was ``before``.

    ``moves`` has how many elements each view moves with a step.  ``before`` lies at ``place``: a factor of the step and
    a constant are its coordinate, which has an origin and an extent.  In vectors of so many ``lanes`` the block is
    composed of ``parts``; it is not where there are None.
    """

    piece: Piece
    plan: Plan
    step: str
    loops: tuple[For, ...]
    call: Execute
    before: Read
    moves: Mapping[str, int]
    place: tuple[int, int, int, int]
    parts: Parts | None
    lanes: int

    @property
    def statement(self) -> ScopStatement:
        """What it computes."""
        return self.plan.scop.by_name[self.call.statement]

    @property
    def note(self) -> str:
        """What readers are told."""
        how = "one after another" if self.parts is None else f"as a scan of affine maps, {self.lanes} at a time"
        return f"{self.piece.slices[self.before.tensor].tensor}: steps over {self.step} run along rows, {how}"

    def lines(self, needs: Needs) -> list[str]:
        """The C text of the piece."""
        found = ["  " + line for line in first_views(self.plan, self.statement, self.moves)]
        depth = 1
        for loop in self.loops:
            i, step = loop.iterator, f"++{loop.iterator}" if loop.step == 1 else f"{loop.iterator} += {loop.step}"
            head = f"for (long {i} = {loop_text(loop.lower)}; {i} < {loop_text(loop.upper)}; {step}) {{"
            found.append("  " * depth + head)
            depth += 1
        found += ["  " * depth + line for line in self._row(needs)]
        return [*found, *("  " * d + "}" for d in range(depth - 1, 0, -1))]

    def _row(self, needs: Needs) -> Iterator[str]:
        indices = zip(self.statement.indices, self.call.arguments, strict=True)
        facts = (self.plan.scop, self.plan.buffers, {name: loop_text(a) for name, a in indices}, needs, False)
        own = Speller(*facts, self.piece.function.source)
        held = Speller(*facts, self.piece.function.source, held={self.before: _VALUE})
        dtype = self.statement.value.dtype
        element, (factor, constant, origin, extent) = C_VALUE_TYPES[dtype.name], self.place
        yield f"const long {_BEFORE} = {factor}L * {FIRST} + ({constant}L);"
        there = f"{_BEFORE} >= {origin}L && {_BEFORE} < {origin + extent}L"
        # The program asks before it reads what is not there.
        yield f"{element} {_VALUE} = {there} ? {own.value(self.before)} : 0;"
        target = own.written(self.statement.target, self.statement.subscripts)
        once = [f"{_VALUE} = {bare(held.value(self.statement.value))};", f"{target} = {_VALUE};"]
        step = step_parameter(self.step)
        if self.parts is None:
            yield f"for (long {step} = {FIRST}; {step} < {END}; {step}++) {{"
            yield from ("  " + line for line in (*self._shifted(step), *once))
            yield "}"
            return
        yield f"long {_NEXT} = {FIRST};"
        yield f"if ({_NEXT} < {END}) {{"
        yield f"  const long {step} = {_NEXT}++;"
        yield from ("  " + line for line in (*self._shifted(step), *once))
        yield "}"
        yield from self._vectors(own, target)
        yield f"for (long {step} = {_NEXT}; {step} < {END}; {step}++) {{"
        yield from ("  " + line for line in (*self._shifted(step), *once))
        yield "}"

    def _vectors(self, own: Speller, target: str) -> Iterator[str]:
        """The steps in vectors, behind the first one: factors and terms of a vector are computed, then composed."""
        assert self.parts is not None
        lanes, kind = self.lanes, vector_type(self.statement.value.dtype, self.lanes)
        step = step_parameter(self.step)
        yield f"const {kind} tc_ones = 1 - ({kind}){{}}, tc_zeros = {{}};"
        yield f"{kind} tc_carried = {_VALUE} - ({kind}){{}};"
        yield f"for (; {_NEXT} + {lanes} <= {END}; {_NEXT} += {lanes}) {{"
        yield f"  {kind} tc_a = tc_zeros, tc_b = tc_zeros;"
        for name, part in zip(("tc_a", "tc_b"), self.parts, strict=True):
            yield from ("  " + line for line in self._vector(own, name, part))
        moved = 1
        while moved < lanes:
            order = ", ".join(map(str, [*range(moved), *range(lanes, 2 * lanes - moved)]))
            yield f"  tc_b += tc_a * __builtin_shufflevector(tc_zeros, tc_b, {order});"
            yield f"  tc_a *= __builtin_shufflevector(tc_ones, tc_a, {order});"
            moved *= 2
        # Each vector waits for one multiplication and addition of the one before it.
        last = ", ".join([str(lanes - 1)] * lanes)
        yield f"  const {kind} tc_last_a = __builtin_shufflevector(tc_a, tc_a, {last});"
        yield f"  const {kind} tc_last_b = __builtin_shufflevector(tc_b, tc_b, {last});"
        yield f"  const {kind} tc_found = tc_b + tc_a * tc_carried;"
        yield "  tc_carried = tc_last_b + tc_last_a * tc_carried;"
        yield "  {"
        yield f"    const long {step} = {_NEXT};"
        yield from ("    " + line for line in self._shifted(step, [self.statement.target]))
        if self.moves[self.statement.target] == 1:
            yield f"    *({kind} *)&{target} = tc_found;"
        else:
            yield f"    for (long {_AT} = 0; {_AT} < {lanes}; {_AT}++) (&{target})[-{_AT}] = tc_found[{_AT}];"
        yield "  }"
        yield "}"
        yield f"{_VALUE} = tc_carried[0];"

    def _vector(self, own: Speller, name: str, part: Expr | None) -> Iterator[str]:
        """A factor or a term for a vector of steps: loaded where it lies so, else computed for one after the other."""
        kind, step = vector_type(self.statement.value.dtype, self.lanes), step_parameter(self.step)
        views = [e.tensor for e in walk(part) if isinstance(e, Read)] if part is not None else []
        if isinstance(part, Constant):
            yield f"{name} = {bare(own.value(part))} - ({kind}){{}};"
        elif isinstance(part, Read) and self.moves[part.tensor] == 1 and self._is_of_one_type(part):
            yield "{"
            yield f"  const long {step} = {_NEXT};"
            yield from ("  " + line for line in self._shifted(step, views))
            yield f"  {name} = *(const {kind} *)&{own.value(part)};"
            yield "}"
        elif part is not None:
            element = C_VALUE_TYPES[self.statement.value.dtype.name]
            yield "{"
            yield f"  {element} tc_each[{self.lanes}] __attribute__((aligned(64)));"
            yield "  #pragma omp simd"
            yield f"  for (long {_AT} = 0; {_AT} < {self.lanes}; {_AT}++) {{"
            yield f"    const long {step} = {_NEXT} + {_AT};"
            yield from ("    " + line for line in self._shifted(step, views))
            yield f"    tc_each[{_AT}] = {bare(own.value(part))};"
            yield "  }"
            yield f"  {name} = *(const {kind} *)tc_each;"
            yield "}"

    def _is_of_one_type(self, read: Read) -> bool:
        return self.plan.scop.storages[read.tensor].dtype == read.dtype == self.statement.value.dtype

    def _shifted(self, step: str, only: Collection[str] | None = None) -> list[str]:
        """The views at a step, under their names, but for what the step before has."""
        wanted = self.moves.keys() if only is None else only
        return views_at(self.plan, self.statement, self.moves, step, [v for v in wanted if v != self.before.tensor])


def first_views(plan: Plan, statement: ScopStatement, moves: Mapping[str, int]) -> list[str]:
    """What the views that move with steps see at the first one, under names that stay."""
    return [f"{_kind(plan, statement, view)}{_base(view)} = {mangle(view)};" for view, move in moves.items() if move]


def views_at(
    plan: Plan, statement: ScopStatement, moves: Mapping[str, int], step: str, only: Collection[str] | None = None
) -> list[str]:  # fmt: skip
    """The views that move with steps, or ``only`` some of them, at a step, under their names."""
    return [
        f"{_kind(plan, statement, view)}{mangle(view)} = {_base(view)} + ({step} - {FIRST}) * {move}L;"
        for view, move in moves.items()
        if move and (only is None or view in only)
    ]


def _kind(plan: Plan, statement: ScopStatement, view: str) -> str:
    written = "" if view == statement.target else "const "
    return f"{written}{C_STORAGE_TYPES[plan.scop.storages[view].dtype.name]} *const "


def walk_of(
    pieces: Pieces, item: Repeat | TimeTiles, plan: Plan, loops: LoopNode, vector_bytes: int, reordered: bool
) -> Walk | None:  # fmt: skip
    """How the only piece of a block walks along its steps; None where it is not of that form."""
    repeat = item.repeat if isinstance(item, TimeTiles) else item
    own = item.pieces if isinstance(item, TimeTiles) else item.body
    piece = own[0] if len(own) == 1 else None
    if not isinstance(piece, Piece) or (isinstance(item, TimeTiles) and not straight(item)):
        return None
    nest = nest_of(loops)
    if nest is None or (nest[0] and not isinstance(item, TimeTiles)) or len(plan.scop.statements) != 1:
        return None
    (statement,), step = plan.scop.statements, repeat.index
    bounds: list[LoopExpr] = [*nest[1].arguments, *(end for loop in nest[0] for end in (loop.lower, loop.upper))]
    if plan.buffers or plan.copies or plan.operations or any(step_parameter(step) in variables(b) for b in bounds):
        return None
    before = _before(pieces, piece, statement, step)
    moves = {view: move_of(pieces, piece, view, step) for view in views_of(statement)}
    known = {view: move for view, move in moves.items() if move is not None}
    if before is None or len(known) < len(moves) or abs(known[statement.target]) != 1:
        return None
    read, place = before
    lanes = vector_bytes // statement.value.dtype.itemsize
    behind = decided(statement.value, step, _behind_first(repeat), plan.scop.sizes)
    parts = _parts(behind, read) if reordered and lanes > 1 else None
    if parts is None and nest[0] and calls_much(statement.value):
        return None
    return Walk(piece, plan, step, *nest, read, known, place, parts, lanes)


def _base(view: str) -> str:
    return f"tc_from_{mangle(view)}"


def straight(tiles: TimeTiles) -> bool:
    """Whether no row of a tile needs another one: tiles may then be as narrow as a row."""
    return all(band.slope == 0 and not any(band.shifts) for band in (tiles.lower, tiles.upper)) and not tiles.columns


def nest_of(node: LoopNode) -> tuple[tuple[For, ...], Execute] | None:
    """The loops around the only instance."""
    found: list[For] = []
    while True:
        match node:
            case Execute():
                return tuple(found), node
            case For():
                found.append(node)
                node = node.body
            case Scope():
                node = node.body
            case Block(children=(child,)):
                node = child
            case _:
                return None


def views_of(statement: ScopStatement) -> list[str]:
    reads = [e.tensor for e in walk(statement.value) if isinstance(e, Read)]
    return list(dict.fromkeys([statement.target, *reads]))


def _before(
    pieces: Pieces, piece: Piece, statement: ScopStatement, step: str
) -> tuple[Read, tuple[int, int, int, int]] | None:  # fmt: skip
    """What a statement reads of its target, the element of the step before, and where that lies along its dimension."""
    cut, reads = piece.slices[statement.target], [e for e in walk(statement.value) if isinstance(e, Read)]
    storage, dtype = pieces.storages[cut.tensor], statement.value.dtype
    plain = statement.kind != "update" and not statement.scatters and dtype.name in ("float32", "float64")
    if not plain or storage.dtype != dtype or cut.tensor in pieces.folds:
        return None
    if any(r.boundary is not None or any(map(depends_on_data, r.subscripts)) for r in reads):
        return None
    own = {r for r in reads if piece.slices[r.tensor].tensor == cut.tensor}
    along = [(d, dict(form.terms)) for d, form in cut.at if step in dict(form.terms)]
    if len(own) != 1 or len(along) != 1 or len(along[0][1]) != 1:
        return None
    ((read,), (dimension, terms)) = own, along[0]
    factor = terms[step]
    moved = tuple((d, form.plus(-factor) if d == dimension else form) for d, form in cut.at)
    if piece.slices[read.tensor].at != moved or read.subscripts != statement.subscripts:
        return None
    constant = next(form.constant for d, form in moved if d == dimension)
    return read, (factor, constant, storage.box.origin[dimension], storage.box.extent[dimension])


def move_of(pieces: Pieces, piece: Piece, view: str, step: str) -> int | None:
    """How many elements of its tensor a view moves with a step; None if that is no number."""
    cut = piece.slices.get(view)
    if cut is None or (cut.tensor in pieces.folds and cut.at):
        return None
    strides = pieces.storages[cut.tensor].strides
    if not all(_linear(form) for _, form in cut.at):
        return None
    return sum(dict(form.terms).get(step, 0) * strides[d] for d, form in cut.at)


def _behind_first(repeat: Repeat) -> Interval | None:
    """The steps of a block behind its first one."""
    if repeat.lower.terms or repeat.upper.terms:
        return None
    return repeat.lower.constant + 1, max(repeat.lower.constant + 1, repeat.upper.constant - 1)


def decided(value: Expr, step: str, steps: Interval | None, sizes: Mapping[str, int]) -> Expr:
    """A value without choices that are the same in all of some steps."""
    value = map_children(value, lambda child: decided(child, step, steps, sizes))
    if not isinstance(value, Select) or not isinstance(value.condition, Binary) or steps is None:
        return value
    left, right = (to_form(side, sizes) for side in (value.condition.lhs, value.condition.rhs))
    if value.condition.op not in _HOLDS or left is None or right is None:
        return value
    difference = combine([(left, 1), (right, -1)], 0)
    if any(term != step for term, _ in difference.terms):
        return value
    low, high = interval(difference, {step: steps})
    answers = {_HOLDS[value.condition.op](n) for n in (low, high, *([0] if low < 0 < high else []))}
    return value if len(answers) > 1 else value.then if answers.pop() else value.otherwise


_HOLDS: Mapping[str, Callable[[int], bool]] = {
    "==": lambda n: n == 0,
    "!=": lambda n: n != 0,
    "<": lambda n: n < 0,
    "<=": lambda n: n <= 0,
    ">": lambda n: n > 0,
    ">=": lambda n: n >= 0,
}


def _linear(form: Form) -> bool:
    return all(isinstance(term, str) for term, _ in form.terms)


def _parts(value: Expr, before: Read) -> Parts | None:
    """A value as an affine map of the element before; None if it is none."""
    if value == before:
        return Constant(1.0, before.dtype, value.span), None
    if before not in walk(value):
        return None, value
    match value:
        case Unary(op="-"):
            found = _parts(value.operand, before)
            return None if found is None else _each(lambda p: Unary("-", p, value.dtype, value.span), found)
        case Binary(op="+" | "-"):
            left, right = _parts(value.lhs, before), _parts(value.rhs, before)
            if left is None or right is None:
                return None
            return _sum(value, left[0], right[0]), _sum(value, left[1], right[1])
        case Binary(op="*") if before not in walk(value.lhs):
            found = _parts(value.rhs, before)
            return None if found is None else _each(lambda p: _times(value, value.lhs, p), found)
        case Binary(op="*" | "/") if before not in walk(value.rhs):
            found = _parts(value.lhs, before)
            return None if found is None else _each(lambda p: _times(value, p, value.rhs), found)
        case Select() if before not in walk(value.condition):
            then, otherwise = _parts(value.then, before), _parts(value.otherwise, before)
            if then is None or otherwise is None:
                return None
            return _chosen(value, then[0], otherwise[0]), _chosen(value, then[1], otherwise[1])
    return None


def _each(make: Callable[[Expr], Expr], parts: Parts) -> Parts:
    factor, term = parts
    return None if factor is None else make(factor), None if term is None else make(term)


def _times(value: Binary, left: Expr, right: Expr) -> Expr:
    if isinstance(right, Constant) and right.value == 1.0:
        return left
    if isinstance(left, Constant) and left.value == 1.0 and value.op == "*":
        return right
    return Binary(value.op, left, right, value.dtype, value.span)


def _sum(value: Binary, left: Expr | None, right: Expr | None) -> Expr | None:
    if right is None:
        return left
    if left is None:
        return right if value.op == "+" else Unary("-", right, value.dtype, value.span)
    return Binary(value.op, left, right, value.dtype, value.span)


def _chosen(value: Select, then: Expr | None, otherwise: Expr | None) -> Expr | None:
    if then is None and otherwise is None:
        return None
    zero = Constant(0.0, value.dtype, value.span)
    return Select(value.condition, then or zero, otherwise or zero, value.dtype, value.span)
