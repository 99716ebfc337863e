"""Rows of a stencil, several at a time, in vectors: what they read of each other's rows is loaded once.

``B(i,j) = A(i-1,j) + A(i,j) + A(i+1,j)`` loads each row of A three times, row by row.  Of four rows at a time it loads
six.  The last vector of a row overlaps the one before it, where nothing is read that it has written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tcomp.backends.c.vectors.types import vector_type
from tcomp.backends.c.vectors.values import ELEMENTS, VectorSpeller, neighbours
from tcomp.backends.dialect import C_STORAGE_TYPES, bare
from tcomp.backends.spelling import Speller, loop_text
from tcomp.grammar.tree.forms import Form, combine, to_form
from tcomp.grammar.tree.function import Expr, Index, Read, depends_on_data, walk
from tcomp.loops.ir import Execute, For, LoopExpr, LoopNode, Number, Operation, Scope, Variable, substitute, variables
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.timetiles import TIME_TILING
from tcomp.mapping.plan.values import Plan
from tcomp.model.scop import Scop, ScopStatement
from tcomp.values.operators import DType

_ROW, _LAST = "tc_row", "tc_rows_end"

Spell = Callable[[str, Mapping[str, str]], Speller]

_Place = tuple[str, tuple[Form, ...]]
"""A tensor, and an element of it as forms over the indices of a statement."""


@dataclass(frozen=True, slots=True)
class SharedRows:
    """The rows over which ``loop`` goes, each a ``row`` of instances of one statement whose reads have ``places``.

    ``across`` and ``along`` are the indices that count rows and elements of a row.
    """

    loop: For
    row: For
    call: Execute
    statement: ScopStatement
    places: Mapping[Read, _Place]
    across: str
    along: str
    lanes: int
    spell: Spell

    def shared(self, rows: int) -> dict[_Place, str]:
        """What is read more than once by so many rows together, with names for it."""
        places = [self._moved(place, r) for r in range(rows) for place in self.places.values()]
        names = [place for place in dict.fromkeys(places) if places.count(place) > 1]
        return {place: f"tc_shared{number}" for number, place in enumerate(names)}

    def lines(self, rows: Sequence[int], plainly: Callable[[For], list[str]]) -> list[str] | None:
        """The C text: as many rows at a time as said first, then as said next, and so on; the rest ``plainly``."""
        first, end = (loop_text(bound) for bound in (self.row.lower, self.row.upper))
        found = [
            "{",
            f"  long {_ROW} = {loop_text(self.loop.lower)};",
            f"  const long {_LAST} = {loop_text(self.loop.upper)};",
            f"  const long tc_first = {first}, tc_end = {end};",
            f"  if (tc_first + {self.lanes} <= tc_end) {{",
        ]
        for count in rows:
            body = self._vectors(count)
            if body is None:
                return None
            found += [f"    for (; {_ROW} + {count} <= {_LAST}; {_ROW} += {count}) {{"]
            found += ["      " + line for line in self._row(body, count)]
            found += ["    }"]
        rest = replace(self.loop, lower=Variable(_ROW), upper=Variable(_LAST))
        return [*found, "  }", *("  " + line for line in plainly(rest)), "}"]

    def _row(self, body: list[str], count: int) -> list[str]:
        i = self.row.iterator
        inside = ["  " + line for line in body]
        if self._reads_itself():
            rest = [self._element(r) for r in range(count)]
            return [
                f"long {i} = tc_first;",
                f"for (; {i} + {self.lanes} <= tc_end; {i} += {self.lanes}) {{", *inside, "}",
                f"for (; {i} < tc_end; {i}++) {{", *("  " + line for line in rest), "}",
            ]  # fmt: skip
        return [
            f"for (long {i} = tc_first, tc_next = {i} + {self._to_line()};;) {{", *inside,
            f"  if (tc_next + {self.lanes} <= tc_end) {i} = tc_next;",
            f"  else if (tc_next < tc_end) {i} = tc_end - {self.lanes};",
            "  else break;",
            f"  tc_next += {self.lanes};", "}",
        ]  # fmt: skip

    def _to_line(self) -> str:
        """How far the second vector of a row begins behind the first.

        Where rows are whole vectors apart, that is where stores are aligned: one across two lines takes twice as long.
        """
        scalar, size = self._speller(0), self.statement.value.dtype.itemsize
        apart = VectorSpeller(scalar, self.across, self.lanes).write_stride(self.statement)
        if apart is None or apart % self.lanes:
            return str(self.lanes)
        target = scalar.written(self.statement.target, self.statement.subscripts)
        return f"({self.lanes} - (long)((unsigned long)&{target} / {size} % {self.lanes}))"

    def _vectors(self, count: int) -> list[str] | None:
        """A vector of each of so many rows; None if the statement is more than arithmetic."""
        dtype, shared = self.statement.value.dtype, self.shared(count)
        kind, loaded = vector_type(dtype, self.lanes), set[str]()
        first = self._speller(0)
        near = _Near(first.scop, dtype)
        target = first.written(self.statement.target, self.statement.subscripts)
        loads, stores = [f"{C_STORAGE_TYPES[dtype.name]} *const tc_to = &{target};"], []
        for r in range(count):
            scalar = self._speller(r)
            plain = VectorSpeller(scalar, self.along, self.lanes)
            own: dict[Expr, str] = {}
            for read, place in self.places.items():
                moved = self._moved(place, r)
                text = plain.value(read, dtype)
                if text is not None:
                    own[read] = near.text(text, moved, kind)
                if moved not in shared:
                    continue
                name = shared[moved]
                if name not in loaded:
                    if text is None:
                        return None
                    loads.append(f"const {kind} {name} = {own[read]};")
                    loaded.add(name)
                own[read] = name
            value = replace(plain, loaded=own).value(self.statement.value, dtype)
            apart = VectorSpeller(first, self.across, self.lanes).write_stride(self.statement)
            if value is None or plain.write_stride(self.statement) != 1:
                return None
            there = f"&{scalar.written(self.statement.target, self.statement.subscripts)}"
            there = f"(tc_to + {r * apart})" if apart is not None else there
            stores.append(f"*({kind} *){there} = {bare(value)};")
        return [*near.lines, *loads, *stores]

    def _element(self, r: int) -> str:
        speller = self._speller(r)
        target = speller.written(self.statement.target, self.statement.subscripts)
        return f"{target} = {bare(speller.value(self.statement.value))};"

    def _speller(self, r: int) -> Speller:
        """What spells the instance of a row."""
        at: LoopExpr = Operation("+", (Variable(_ROW), Number(r))) if r else Variable(_ROW)
        arguments = (substitute(a, self.loop.iterator, at) for a in self.call.arguments)
        indices = {n: loop_text(a) for n, a in zip(self.statement.indices, arguments, strict=True)}
        return self.spell(self.statement.name, indices)

    def _moved(self, place: _Place, rows: int) -> _Place:
        """What lies where ``place`` does so many rows later."""
        tensor, forms = place
        return tensor, tuple(form.plus(rows * dict(form.terms).get(self.across, 0)) for form in forms)

    def _reads_itself(self) -> bool:
        return any(tensor == self.statement.target for tensor, _ in self.places.values())


@dataclass(slots=True)
class _Near:
    """What is loaded, as so many elements from a pointer that is computed once.

    gcc 12 makes no constants of distances between elements that are spelled one by one: it computes each address, and
    has no registers left for these.
    """

    scop: Scop
    dtype: DType
    pointers: dict[tuple[str, frozenset[tuple[object, int]]], tuple[str, int]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def text(self, load: str, place: _Place, kind: str) -> str:
        """The load of a vector, whose first element has a place, from the pointer of those that move like it."""
        tensor, forms = place
        strides, begin = self.scop.storages[tensor].known_strides, f"*(const {kind} *)&"
        if not load.startswith(begin) or None in strides:
            return load
        form = combine([(f, s) for f, s in zip(forms, strides, strict=True) if s is not None], 0)
        key = tensor, frozenset(form.terms)
        if key not in self.pointers:
            name = f"tc_near{len(self.pointers)}"
            self.pointers[key] = name, form.constant
            element = C_STORAGE_TYPES[self.dtype.name]
            self.lines.append(f"const {element} *const {name} = &{load.removeprefix(begin)};")
        name, constant = self.pointers[key]
        return f"*(const {kind} *)({name} + {form.constant - constant})".replace("+ -", "- ")


def shared_rows(loop: For, plan: Plan, machine: Machine, spell: Spell) -> tuple[SharedRows, tuple[int, ...]] | None:
    """Rows that are worth to be computed several at a time, and how many; None where they are not or may not be."""
    row = _below(loop.body, plan)
    call = _below(row.body, plan) if isinstance(row, For) else None
    if not isinstance(row, For) or not isinstance(call, Execute) or loop.step != 1:
        return None
    statement = plan.scop.by_name[call.statement]
    across, along = _index(loop, call, statement), neighbours(row, call, statement)
    if across is None or along is None or loop.iterator in variables(row.lower) | variables(row.upper):
        return None
    places = _places(statement, plan)
    dtype = statement.value.dtype
    if places is None or statement.kind == "update" or statement.scatters or dtype.name not in ELEMENTS:
        return None
    lanes = machine.vector_bytes // dtype.itemsize
    if lanes < 2 or plan.scop.storages[statement.target].dtype != dtype:
        return None
    rows = SharedRows(loop, row, call, statement, places, across, along, lanes, spell)
    count = TIME_TILING.rows_at_once
    while count > 1 and len(rows.shared(count)) + TIME_TILING.registers_kept > machine.registers:
        count //= 2
    return (rows, (count, 1)) if count > 1 and rows.shared(count) else None


def _below(node: LoopNode, plan: Plan) -> LoopNode:
    """A node, without scopes around it that stand for nothing."""
    marks = {b.mark for b in plan.buffers.values()} | {*plan.operations}
    while isinstance(node, Scope) and node.name not in marks:
        node = node.body
    return node


def _index(loop: For, call: Execute, statement: ScopStatement) -> str | None:
    """The index whose values a loop goes through."""
    arguments = zip(statement.indices, call.arguments, strict=True)
    moving = [(index, argument) for index, argument in arguments if loop.iterator in variables(argument)]
    return moving[0][0] if [a for _, a in moving] == [Variable(loop.iterator)] else None


def _places(statement: ScopStatement, plan: Plan) -> dict[Read, _Place] | None:
    """Where each read of a statement lies; None where that is no form, or may be what another instance writes."""
    found: dict[Read, _Place] = {}
    for read in walk(statement.value):
        if not isinstance(read, Read):
            continue
        if read.boundary is not None or read.tensor in plan.buffers or any(map(depends_on_data, read.subscripts)):
            return None
        forms = [to_form(s, plan.scop.sizes) for s in read.subscripts]
        if read.tensor == statement.target and read.subscripts != statement.subscripts:
            return None
        if any(form is None for form in forms):
            return None
        found[read] = read.tensor, tuple(form for form in forms if form is not None)
    moves = any(isinstance(e, Index) for s in statement.subscripts for e in walk(s))
    return found if moves and statement.target not in plan.buffers else None
