"""Innermost loops on a CPU that are more than a loop: reduced in vectors, streamed, or with subscripts known before."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import islpy as isl

from tcomp.backends.c.contractions.accumulators import Accumulation
from tcomp.backends.c.loops.nests import may_have, nest_of
from tcomp.backends.c.loops.pieces import pieces
from tcomp.backends.c.loops.stages import copied_by, start_of
from tcomp.backends.c.rows.ahead import FetchedReads, in_blocks
from tcomp.backends.c.rows.folds import RowFolds, one_reduction
from tcomp.backends.c.rows.gathers import all_gathers, steady_gathers
from tcomp.backends.c.rows.halves import HalfRow
from tcomp.backends.c.rows.nextrows import next_rows
from tcomp.backends.c.rows.parts import in_parts
from tcomp.backends.c.rows.reductions import Reduction
from tcomp.backends.c.rows.searches import search_of
from tcomp.backends.c.rows.short import ShortRows
from tcomp.backends.c.rows.steady import steady_values
from tcomp.backends.c.rows.streaming import StreamedRow, streamed_statements
from tcomp.backends.c.rows.sweeping import sweep_of
from tcomp.backends.c.rows.whole import whole_vectors
from tcomp.backends.c.vectors.values import moves_target
from tcomp.backends.dialect import C_STORAGE_TYPES, C_VALUE_TYPES, bare, mangle
from tcomp.backends.spelling import Gather, Speller, loop_text
from tcomp.backends.stretches import PLACE, chosen, sent
from tcomp.grammar.tree.function import Cast, Expr, Read, depends_on_data
from tcomp.grammar.tree.function import walk as walk_expr
from tcomp.loops.indexing import constant_extent
from tcomp.loops.ir import (
    Execute,
    For,
    If,
    Let,
    LoopExpr,
    LoopNode,
    Number,
    Operation,
    Scope,
    Variable,
    substitute,
    variables,
    walk,
)
from tcomp.loops.narrowing import end_of
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cputext import VECTOR_ROWS
from tcomp.mapping.plan.operations import indices_in
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.tiles.strides import strides_along
from tcomp.model.scop import Scop, ScopStatement
from tcomp.values.operators import FLOAT32

Spell = Callable[[str, Mapping[str, str], Mapping[Gather, str]], Speller]
"""Gives what spells expressions of a statement where indices have the C text given and some data-dependent subscripts
are known."""


SIMD = "#pragma omp simd"
"""Says that the iterations of the next loop may run side by side."""


def may_repeat(statements: list[ScopStatement]) -> bool:
    """Whether an iteration may run twice: it reads nothing but what it has written before, or nobody there writes."""
    written = {s.target for s in statements}
    before: set[str] = set()
    for s in statements:
        read = {r.get_tuple_name(isl.dim_type.out) for r in s.reads}
        if s.kind == "update" or read & (written - before):
            return False
        before.add(s.target)
    return True


def is_at_own_elements(statement: ScopStatement) -> bool:
    """Whether an instance reads of what the statement writes nothing but its own element: none waits for another."""
    own = [r for r in statement.reads if r.get_tuple_name(isl.dim_type.out) == statement.target]
    return statement.kind != "update" and all(bool(r.is_subset(statement.write)) for r in own)


@dataclass(slots=True)
class RowLoops:
    """Spells innermost loops of a plan.

    ``known`` are the subscripts computed in front of the one under way, ``held`` what has the values of some parts,
    and ``reduced_by`` the lines that stand for some reductions, by their marks.

    ``plain`` spells a loop as it stands, ``spelled`` any node as it is spelled elsewhere.
    """

    plan: Plan
    machine: Machine
    spell: Spell
    plain: Callable[[For], list[str]]
    spelled: Callable[[LoopNode], list[str]]
    known: Mapping[Gather, str] = field(default_factory=dict)
    held: Mapping[str, Mapping[Expr, str]] = field(default_factory=dict)
    reduced_by: Mapping[str, list[str]] = field(default_factory=dict)
    streamed: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.streamed = streamed_statements(self.plan, self.machine)

    @property
    def scop(self) -> Scop:
        """What the plan computes."""
        return self.plan.scop

    def lines(self, loop: For) -> list[str] | None:
        """The C text of short rows, or of an innermost loop; None for any other loop."""
        sweep = sweep_of(loop, self.scop, self._spell_anew)
        if sweep is not None:
            return [*sweep.lines()]
        tile = self._short_rows(loop) or self._row_folds(loop)
        if tile is not None:
            return tile
        cut = pieces(loop, self.plan)
        if len(cut) > 1:
            return [line for piece in cut for line in self._vectors_or_row(piece) or self.plain(piece)]
        return self._vectors_or_row(loop)

    def _vectors_or_row(self, loop: For) -> list[str] | None:
        return self._overlapping(loop) or self._known_before(loop)

    def _known_before(self, loop: For) -> list[str] | None:
        """The C text of an innermost loop; None for any other."""
        call = self._only_call(loop)
        return None if call is None else self._with_known(loop, call, self._row)

    def _only_call(self, loop: For) -> Execute | None:
        """What a loop runs, if that is one instance and no operation."""
        call = loop.body
        marks = {b.mark for b in self.plan.buffers.values()} | {*self.plan.operations}
        while isinstance(call, Scope) and call.name not in marks:
            call = call.body
        return call if isinstance(call, Execute) else None

    def reduced(self, loop: For, call: Execute) -> list[str]:
        """The C text of the innermost loop of a ``reduce`` operation."""
        return self._with_known(loop, call, self._reduction)

    def register_tile(
        self, loop: For, start: LoopNode | None = None, after: LoopNode | None = None
    ) -> list[str] | None:
        """The C text of a register tile of an update, with what sets and copies its elements; None if it is none."""
        node: LoopNode = loop
        while isinstance(node, For | Let):
            node = node.body
        statement = self.scop.by_name[node.statement] if isinstance(node, Execute) else None
        if statement is None or statement.kind != "update" or statement.scatters or self._in_register(statement):
            return None
        nest = nest_of(loop, statement)
        if nest is None:
            return None
        first = None if start is None else start_of(start, nest, statement, self.scop)
        result = None if after is None else copied_by(after, nest, statement, self.plan)
        if (first is None) != (start is None) or (result is None) != (after is None):
            return None
        if result is not None and (result.name in self.streamed or isinstance(result.value, Cast)):
            return None
        arguments = zip(statement.indices, nest.call.arguments, strict=True)
        moving = frozenset(n for n, a in arguments if nest.column.iterator in variables(a))
        gathers = steady_gathers(self.scop, statement, moving)
        if not all_gathers(statement) <= {*gathers}:
            return None
        dtype = self.scop.storages[statement.target].dtype
        spell = functools.partial(self.spell, statement.name)
        facts = (statement, dtype, nest, self.machine, gathers, spell, first, result)

        def plainly() -> list[str]:
            parts = (self.spelled(start) if start else [], self.plain(loop), self.spelled(after) if after else [])
            return [line for part in parts for line in part]

        lines = Accumulation(*facts).lines(plainly)
        return None if lines is None else ["{", *("  " + line for line in lines), "}"]

    def _short_rows(self, loop: For) -> list[str] | None:
        """Rows of known length, in groups that fill vectors; None where that may not be, or does not pay."""
        row = loop.body
        if not (isinstance(row, For) and isinstance(row.lower, Number) and isinstance(row.upper, Number)):
            return None
        below = [*walk(row.body)]
        calls = [n for n in below if isinstance(n, Execute)]
        if any(isinstance(n, For | Let | If) or (isinstance(n, Scope) and n.around) for n in below):
            return None
        statements = [self.scop.by_name[call.statement] for call in calls]
        if loop.step != 1 or row.step != 1 or not may_repeat(statements):
            return None
        inside = {n.name for n in below if isinstance(n, Scope)}
        if any(self._in_register(s) and self.plan.buffers[s.target].mark not in inside for s in statements):
            return None
        if not (self.side_by_side(loop, calls) and self.side_by_side(row, calls)):
            return None
        rows = ShortRows(loop, row, calls, self.plan, self.machine.vector_bytes, self._spell_anew)
        extent = constant_extent(loop.lower, loop.upper)
        lines = rows.lines(self._beside) if may_have(loop, rows.lanes) else None
        if lines is None:
            return None
        left = extent is None or extent % rows.lanes
        rest = self.plain(replace(loop, lower=Variable(rows.first))) if left else []
        return ["{", *("  " + line for line in (*lines, *rest)), "}"]

    def _row_folds(self, loop: For) -> list[str] | None:
        """Rows with a short reduction each, the lanes of several folded together; None where that may not be."""
        found = one_reduction(loop, self.plan, self.side_by_side)
        extent = constant_extent(loop.lower, loop.upper)
        if found is None:
            return None
        ahead = next_rows(self.plan, self.machine, *found[1:])
        rows = RowFolds(loop, *found, self.plan, self.machine.vector_bytes, self._spell_anew, ahead)
        if not rows.applies() or not may_have(loop, rows.together):
            return None

        def spelled(inner: For, lines: list[str]) -> list[str]:
            before, self.reduced_by = self.reduced_by, {**self.reduced_by, rows.scope.name: lines}
            text = [SIMD, *self.plain(inner)]
            self.reduced_by = before
            return text

        left = extent is None or extent % rows.together
        rest = self.plain(replace(loop, lower=Variable(rows.first))) if left else []
        return ["{", *("  " + line for line in (*rows.lines(spelled), *rest)), "}"]

    def _beside(self, loop: For, held: Mapping[str, Mapping[Expr, str]]) -> list[str]:
        """A loop over whole vectors with some reads held."""
        before, self.held = self.held, held
        lines = [SIMD, *self.plain(loop)]
        self.held = before
        return lines

    def _spell_anew(self, statement: str, indices: Mapping[str, str]) -> Speller:
        return self.spell(statement, indices, self.known)

    def _overlapping(self, loop: For) -> list[str] | None:
        """A loop of known length: whole vectors, and one that overlaps the last of them.  None if it may not."""
        extent = constant_extent(loop.lower, loop.upper)
        calls = [n for n in walk(loop.body) if isinstance(n, Execute)]
        if extent is None or loop.step != 1 or any(isinstance(n, For | Let | If) for n in walk(loop.body)):
            return None
        statements = [self.scop.by_name[call.statement] for call in calls]
        if any(s.name in self.streamed for s in statements) or not self.side_by_side(loop, calls):
            return None
        lanes = self.machine.vector_bytes // max(self.scop.storages[s.target].dtype.itemsize for s in statements)
        while lanes > max(extent, 1):
            lanes //= 2
        if lanes < VECTOR_ROWS.least_lanes:
            return None
        once = extent % lanes == 0 and len(statements) == 1 and is_at_own_elements(statements[0])
        if not once and not may_repeat(statements):
            return None
        parts = [loop]
        if extent % lanes:
            whole = Operation("+", (loop.lower, Number(extent // lanes * lanes)))
            last = Operation("-", (loop.upper, Number(lanes)))
            parts = [replace(loop, upper=whole), replace(loop, lower=last)]
        return [line for part in parts for line in self._vectors(part, lanes)]

    def side_by_side(self, loop: For, calls: Sequence[Execute]) -> bool:
        """Whether statements depend on each other within iterations of a loop only, if there are several."""
        if len(calls) < 2:
            return True
        moving: dict[str, int] = {}
        for call in calls:
            positions = [p for p, a in enumerate(call.arguments) if a == Variable(loop.iterator)]
            if not positions or moving.setdefault(call.statement, positions[0]) != positions[0]:
                return False
        for (source, sink), pairs in self.scop.pairs_among(moving.keys()).items():
            kinds = isl.dim_type
            same = isl.Map.universe(pairs.get_space()).equate(kinds.in_, moving[source], kinds.out, moving[sink])
            if not pairs.is_subset(same):
                return False
        return True

    def _vectors(self, loop: For, lanes: int) -> list[str]:
        """A loop over whole vectors, which gcc would unroll before it looks for vectors if it is short."""

        def inner() -> list[str]:
            call = self._only_call(loop)
            lines = None if call is None else whole_vectors(loop, call, lanes, self.scop, self._speller)
            lines = lines or self._known_before(loop) or self.plain(loop)
            return [SIMD, *lines] if lines[0].startswith("for (") else lines

        return self._with_steady(loop, inner)

    def _with_steady(self, loop: For, inner: Callable[[], list[str]]) -> list[str]:
        """A loop with what all its iterations have alike computed in front of it.

        gcc, which must expect that what the loop stores changes what it reads, would load that anew at the end of each
        iteration, and then finds no vectors; and it divides in each lane by what it loads.
        """
        before, self.held = self.held, {**self.held}
        declared: list[str] = []
        for name, value, text in self._steady_values(loop):
            if value not in self.held.get(name, {}):
                variable = f"tc_same{sum(map(len, self.held.values()))}"
                declared.append(f"  const {C_VALUE_TYPES[value.dtype.name]} {variable} = {text};")
                self.held[name] = {**self.held.get(name, {}), value: variable}
        lines = inner()
        self.held = before
        if not declared:
            return lines
        lower, upper = loop_text(loop.lower), loop_text(loop.upper)
        runs = "{" if constant_extent(loop.lower, loop.upper) else f"if ({lower} < {upper}) {{"
        return [runs, *declared, *("  " + line for line in lines), "}"]

    def _steady_values(self, loop: For) -> list[tuple[str, Expr, str]]:
        """What is the same in all iterations, each with its statement and its text."""
        calls = [n for n in walk(loop.body) if isinstance(n, Execute)]
        written = {self.scop.by_name[call.statement].target for call in calls}
        found: list[tuple[str, Expr, str]] = []
        for call in calls:
            statement = self.scop.by_name[call.statement]
            arguments = dict(zip(statement.indices, call.arguments, strict=True))
            copied = {read for c in self.plan.copies if c.statement == statement.name for read in c.reads}
            moving = frozenset(name for name, a in arguments.items() if loop.iterator in variables(a))

            def is_steady(read: Read, copied: Set[Read] = copied, moving: Set[str] = moving) -> bool:
                changes = read.boundary is not None or read.tensor in written or read in copied
                return not (changes or moving & indices_in(read) or any(map(depends_on_data, read.subscripts)))

            speller = self._speller(statement, {n: loop_text(a) for n, a in arguments.items()})
            for value in dict.fromkeys(steady_values(statement.value, is_steady, moving)):
                if not (isinstance(value, Read) and self._is_register(value.tensor)):
                    found.append((statement.name, value, bare(speller.value(value))))
        return found

    def _row(self, loop: For, call: Execute) -> list[str]:
        return self._with_steady(loop, lambda: self._own_row(loop, call))

    def _own_row(self, loop: For, call: Execute) -> list[str]:
        """In streaming stores where they pay, float16 in blocks, else plain."""
        statement = self.scop.by_name[call.statement]
        dtype = self.scop.storages[statement.target].dtype
        speller = functools.partial(self._speller, statement)
        fetched = FetchedReads.of(self.plan, self.machine, loop, call)
        if call.statement in self.streamed:
            streamed = StreamedRow(loop, call, statement, dtype, self.machine.vector_bytes, speller, fetched).lines()
            if streamed is not None:
                return [*streamed]
        lanes = self.machine.vector_bytes // FLOAT32.itemsize
        lines = HalfRow(loop, call, statement, dtype, lanes, speller).lines() if self.machine.widens else None
        if lines is None and self._updates_neighbours(loop, call, statement):
            return [SIMD, *self.plain(loop)]
        if lines is None:

            def at(iteration: LoopExpr) -> Speller:
                moved = (substitute(a, loop.iterator, iteration) for a in call.arguments)
                return speller({n: loop_text(a) for n, a in zip(statement.indices, moved, strict=True)})

            lines = in_blocks(loop, fetched, at, lambda inner: [SIMD, *self.plain(inner)])
        return lines or self.plain(loop)

    def _updates_neighbours(self, loop: For, call: Execute, statement: ScopStatement) -> bool:
        """Whether a loop reduces neighbours into neighbours: gcc does not see that they are no others than it reads."""
        indices = [n for n, a in zip(statement.indices, call.arguments, strict=True) if a == Variable(loop.iterator)]
        if statement.kind != "update" or len(indices) != 1:
            return False
        write, *reads = strides_along(self.scop, statement, indices[0], certain=True)
        apart = all(e.tensor != statement.target for e in walk_expr(statement.value) if isinstance(e, Read))
        return apart and write == 1 and {*reads} <= {-1, 0, 1}

    def _reduction(self, loop: For, call: Execute) -> list[str]:
        """In vectors if all iterations reduce one element; if that is in memory, it goes through a register."""
        statement = self.scop.by_name[call.statement]
        gathers = not all_gathers(statement) <= self.known.keys()
        if loop.step != 1 or moves_target(loop, call, statement) or (gathers and not self._is_cut(loop, statement)):
            return self.plain(loop)
        dtype = self.scop.storages[statement.target].dtype
        spellers = functools.partial(self._speller, statement)
        speller = spellers({i: loop_text(a) for i, a in zip(statement.indices, call.arguments, strict=True)})
        element = speller.written(statement.target, statement.subscripts)
        register = element if self._in_register(statement) else f"{mangle(statement.target)}_element"
        ahead = next_rows(self.plan, self.machine, loop, call)
        width = self.machine.vector_bytes
        if gathers:
            lines = in_parts(loop, call, statement, dtype, register, spellers)
        else:
            found = search_of(loop, call, statement, dtype, register, spellers)
            made = found or Reduction(loop, call, statement, dtype, register, width, spellers, ahead)
            lines = [*made.lines()]
        if register == element:
            return lines
        before = f"{C_STORAGE_TYPES[dtype.name]} {register} = {element};"
        return ["{", *("  " + line for line in (before, *lines, f"{element} = {register};")), "}"]

    def _is_cut(self, loop: For, statement: ScopStatement) -> bool:
        """Whether a loop runs over a range that data give, and what it reduces may be reduced in parts."""
        dtype = self.scop.storages[statement.target].dtype
        return isinstance(loop.lower, Variable) and loop.upper == Variable(end_of(loop.lower.name)) and dtype.bits >= 32

    def _with_known(self, loop: For, call: Execute, inner: Callable[[For, Execute], list[str]]) -> list[str]:
        """A loop with the data-dependent subscripts that it does not change computed in front of it."""
        statement = self.scop.by_name[call.statement]
        arguments = dict(zip(statement.indices, call.arguments, strict=True))
        moving = frozenset(n for n, a in arguments.items() if loop.iterator in variables(a))
        gathers = [g for g in steady_gathers(self.scop, statement, moving) if g not in self.known]
        if not gathers:
            return inner(loop, call)
        before = self.known
        first = {n: loop_text(substitute(a, loop.iterator, loop.lower)) for n, a in arguments.items()}
        runs = isinstance(loop.lower, Number) and isinstance(loop.upper, Number) and loop.lower.value < loop.upper.value
        lines = ["{" if runs else f"if ({loop_text(loop.lower)} < {loop_text(loop.upper)}) {{"]
        for number, gather in enumerate(gathers):
            text = self._speller(statement, first).gathered(gather.tensor, gather.dimension, gather.subscript)
            lines.append(f"  const long steady{number} = {text};")
            self.known = {**self.known, gather: f"steady{number}"}
        stretch, behind = statement.stretch, ["}"]
        if stretch is not None and chosen(statement, stretch) in gathers and stretch.index not in moving:
            way = sent(statement, self._speller(statement, first))
            assert way is not None
            lines += [f"  const long {PLACE} = {way.place};", f"  if ({way.inside}) {{"]
            self.known, behind = way.speller.known, ["}", "}"]
        lines += ["  " + line for line in inner(loop, call)]
        self.known = before
        return [*lines, *behind]

    def _in_register(self, statement: ScopStatement) -> bool:
        return self._is_register(statement.target)

    def _is_register(self, storage: str) -> bool:
        buffer = self.plan.buffers.get(storage)
        return buffer is not None and buffer.space == "register"

    def _speller(self, statement: ScopStatement, indices: Mapping[str, str]) -> Speller:
        return self.spell(statement.name, indices, self.known)
