"""Blocks whose rows need nothing of each other: some vectors of rows beside each other run all steps of the block.

What a row needs of the steps before is in registers.  Where rows lie apart in memory and steps beside each other, as
many steps as a vector has lanes are loaded from each row, transposed, computed, transposed back and stored.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tcomp.backends.c.beside import Beside, beside_of
from tcomp.backends.c.vectors.transposition import transposed_rows
from tcomp.backends.c.vectors.values import VectorSpeller
from tcomp.backends.c.walks import END, FIRST, first_views, views_at
from tcomp.backends.dialect import C_VALUE_TYPES, bare
from tcomp.backends.spelling import Needs, Speller, loop_text
from tcomp.grammar.ranges.affine import step_parameter
from tcomp.grammar.tree.function import Constant, Expr, Index, Read, children, walk
from tcomp.loops.ir import LoopNode
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.plan.values import Plan
from tcomp.model.stepwise.pieces import Piece, Pieces, TimeTiles

_NEXT, _ROW, _LAST = "tc_next", "tc_row", "tc_last"


@dataclass(frozen=True, slots=True)
class Strip:
    """The text of a piece whose ``rows`` run beside each other."""

    rows: Beside

    @property
    def piece(self) -> Piece:
        """The piece."""
        return self.rows.piece

    @property
    def step(self) -> str:
        """The step whose steps it runs."""
        return self.rows.step

    @property
    def note(self) -> str:
        """What readers are told."""
        name = self.rows.piece.slices[self.rows.statement.target].tensor
        turned = ", transposed on their way" if self.rows.turned else ""
        count = self.rows.vectors * self.rows.lanes
        return f"{name}: {count} rows at a time run all steps over {self.rows.step} in vectors{turned}"

    def lines(self, needs: Needs) -> list[str]:
        """The C text of the piece."""
        found = first_views(self.rows.plan, self.rows.statement, self.rows.moves)
        found += [
            f"long {_NEXT} = {FIRST}, {_ROW} = {loop_text(self.rows.loop.lower)};",
            f"const long {_LAST} = {loop_text(self.rows.loop.upper)};",
        ]
        step = step_parameter(self.rows.step)
        if self.rows.peeled:
            found += [
                f"for (; {_NEXT} < {END} && {_NEXT} < {FIRST} + {self.rows.peeled}; {_NEXT}++) {{",
                f"  const long {step} = {_NEXT};",
                *("  " + line for line in self._shifted(step)),
                f"  for (long tc_one = {_ROW}; tc_one < {_LAST}; tc_one++)",
                f"    {self._once(needs)}",
                "}",
            ]
        found.append(f"if ({_NEXT} < {END} && {_ROW} < {_LAST}) {{")
        found += ["  " + line for line in self._together(needs)]
        found.append("}")
        return ["  " + line for line in found]

    def _once(self, needs: Needs) -> str:
        own = self._speller(needs, "tc_one", {})
        target = own.written(self.rows.statement.target, self.rows.statement.subscripts)
        return f"{target} = {bare(own.value(self.rows.statement.value))};"

    def _speller(self, needs: Needs, row: str, held: Mapping[Expr, str]) -> Speller:
        facts = (
            self.rows.plan.scop,
            self.rows.plan.buffers,
            {self.rows.row: row},
            needs,
            False,
            self.rows.piece.function.source,
        )
        return Speller(*facts, held=held)

    def _together(self, needs: Needs) -> Iterator[str]:
        """Rows in several vectors, in one, and one by one."""
        same, changing = self._alike()
        held: dict[Expr, str] = {}
        for number, expr in enumerate(same):
            text = bare(self._speller(needs, "0", {}).value(expr))
            yield f"const {C_VALUE_TYPES[expr.dtype.name]} tc_same{number} = {text};"
            held[expr] = f"tc_same{number}"
        for vectors in dict.fromkeys((self.rows.vectors, 1)):
            count = vectors * self.rows.lanes
            yield f"for (; {_ROW} + {count} <= {_LAST}; {_ROW} += {count}) {{"
            yield from ("  " + line for line in self._vectors(needs, vectors, held, changing))
            yield "}"
        yield f"for (; {_ROW} < {_LAST}; {_ROW}++) {{"
        yield from ("  " + line for line in self._single(needs, _ROW, _NEXT, held))
        yield "}"

    def _alike(self) -> tuple[list[Expr], list[Expr]]:
        """What is the same in all rows: in all steps, and in each of them."""
        found: list[Expr] = []

        def gather(expr: Expr) -> None:
            if self.rows.differs(expr):
                for child in () if isinstance(expr, Read) else children(expr):
                    gather(child)
            elif not isinstance(expr, Constant):
                found.append(expr)

        gather(self.rows.value)
        found = list(dict.fromkeys(found))
        changing = [e for e in found if self._changes(e)]
        return [e for e in found if e not in changing], changing

    def _changes(self, expr: Expr) -> bool:
        return any(
            (isinstance(e, Read) and self.rows.moves[e.tensor] != 0)
            or (isinstance(e, Index) and e.name == self.rows.step)
            for e in walk(expr)
        )

    def _single(self, needs: Needs, row: str, first: str, held: Mapping[Expr, str]) -> Iterator[str]:
        """All steps from one on for a row."""
        step = step_parameter(self.rows.step)
        names: dict[Expr, str] = {read: f"x{ago}" for read, ago in self.rows.carried.items()}
        yield from self._before(needs, row, first, self.rows.element, functools.partial(_aged_name, ""), 1)
        own = self._speller(needs, row, {**held, **names})
        yield f"for (long {step} = {first}; {step} < {END}; {step}++) {{"
        yield from ("  " + line for line in self._shifted(step))
        yield f"  const {self.rows.element} x0 = {bare(own.value(self.rows.value))};"
        yield f"  {own.written(self.rows.statement.target, self.rows.statement.subscripts)} = x0;"
        yield from ("  " + line for line in self._aged(functools.partial(_aged_name, "")))
        yield "}"

    def _before(
        self, needs: Needs, row: str, first: str, kind: str, name: Callable[[int], str], lanes: int
    ) -> Iterator[str]:
        """The values of the steps before one, of so many rows."""
        own, step = self._speller(needs, row, {}), step_parameter(self.rows.step)
        for read, ago in self.rows.carried.items():
            place, apart = own.value(read), self.rows.stride(read.tensor)
            yield f"{kind} {name(ago)};"
            yield "{"
            yield f"  const long {step} = {first};"
            yield from ("  " + line for line in self._shifted(step, [read.tensor]))
            if lanes == 1:
                yield f"  {name(ago)} = {place};"
            elif apart == 1:
                yield f"  {name(ago)} = *(const {kind} *)&{place};"
            else:
                each = ", ".join(f"(&{place})[{lane * apart}L]" for lane in range(lanes))
                yield f"  {name(ago)} = ({kind}){{{each}}};"
            yield "}"

    def _aged(self, name: Callable[[int], str]) -> Iterator[str]:
        for ago in range(self.rows.ago, 0, -1):
            yield f"{name(ago)} = {name(ago - 1)};"

    def _vectors(
        self, needs: Needs, vectors: int, held: Mapping[Expr, str], changing: Sequence[Expr]
    ) -> Iterator[str]:  # fmt: skip
        """All steps for so many vectors of rows."""
        for g in range(vectors):
            row = f"({_ROW} + {g * self.rows.lanes})"
            yield from self._before(
                needs, row, _NEXT, self.rows.kind, functools.partial(_aged_name, f"_{g}"), self.rows.lanes
            )
        if not self.rows.turned:
            step = step_parameter(self.rows.step)
            yield f"for (long {step} = {_NEXT}; {step} < {END}; {step}++) {{"
            yield from ("  " + line for line in self._shifted(step))
            names, made = self._now(needs, held, changing, "")
            yield from (f"  const {kind} {name} = {text};" for kind, name, text in made)
            for g in range(vectors):
                loaded: dict[Expr, str] = {read: f"x{ago}_{g}" for read, ago in self.rows.carried.items()}
                yield "  {"
                yield f"    const {self.rows.kind} x0_{g} = {self._value(needs, g, names, loaded)};"
                yield f"    *({self.rows.kind} *)&{self._target(needs, g)} = x0_{g};"
                yield from ("    " + line for line in self._aged(functools.partial(_aged_name, f"_{g}")))
                yield "  }"
            yield "}"
            return
        at = "tc_at"
        yield f"long {at} = {_NEXT};"
        yield f"for (; {at} + {self.rows.lanes} <= {END}; {at} += {self.rows.lanes}) {{"
        yield from ("  " + line for line in self._chunk(needs, vectors, held, changing, at))
        yield "}"
        yield f"if ({at} < {END})"
        yield f"  for (long tc_one = {_ROW}; tc_one < {_ROW} + {vectors * self.rows.lanes}; tc_one++) {{"
        yield from ("    " + line for line in self._single(needs, "tc_one", at, held))
        yield "  }"

    def _chunk(
        self, needs: Needs, vectors: int, held: Mapping[Expr, str], changing: Sequence[Expr], at: str
    ) -> Iterator[str]:
        """As many steps as there are lanes, vector by vector of rows."""
        step, kind, target = step_parameter(self.rows.step), self.rows.kind, self.rows.statement.target
        alike = []
        for k in range(self.rows.lanes):
            names, made = self._now(needs, held, changing, f"_{k}")
            alike.append(names)
            if made:
                yield from (f"{own} {name};" for own, name, _ in made)
                yield "{"
                yield f"  const long {step} = {at} + {k};"
                yield from ("  " + line for line in self._shifted(step))
                yield from (f"  {name} = {text};" for _, name, text in made)
                yield "}"
        apart = [read for read in self.rows.reads if self.rows.stride(read.tensor) != 1]
        for g in range(vectors):
            yield "{"
            turned: dict[Read, list[str]] = {}
            for number, read in enumerate(apart):
                turned[read] = [f"y{number}_{k}" for k in range(self.rows.lanes)]
                yield f"  {kind} {', '.join(turned[read])};"
                yield "  {"
                yield from ("    " + line for line in self._loaded(needs, g, read, turned[read], at))
                yield "  }"
            stored = self.rows.stride(target) != 1
            if stored:
                yield f"  {kind} {', '.join(f'r0_{k}' for k in range(self.rows.lanes))};"
            for k in range(self.rows.lanes):
                loaded: dict[Expr, str] = {read: f"x{ago}_{g}" for read, ago in self.rows.carried.items()}
                loaded |= {read: each[k] for read, each in turned.items()}
                yield "  {"
                yield f"    const long {step} = {at} + {k};"
                yield from ("    " + line for line in self._shifted(step))
                yield f"    const {kind} x0_{g} = {self._value(needs, g, alike[k], loaded)};"
                place = f"*({kind} *)&{self._target(needs, g)}"
                # What moves down lies the other way round.
                own = k if self.rows.moves[target] > 0 else self.rows.lanes - 1 - k
                yield f"    r0_{own} = x0_{g};" if stored else f"    {place} = x0_{g};"
                yield from ("    " + line for line in self._aged(functools.partial(_aged_name, f"_{g}")))
                yield "  }"
            if stored:
                lines, across = transposed_rows(kind, self.rows.lanes, self.rows.value.dtype.itemsize)
                yield from ("  " + line for line in lines)
                last = 0 if self.rows.moves[target] > 0 else self.rows.lanes - 1
                yield f"  const long {step} = {at} + {last};"
                yield from ("  " + line for line in self._shifted(step, [target]))
                for lane, name in enumerate(across):
                    yield f"  *({kind} *)&{self._target(needs, g, lane)} = {name};"
            yield "}"

    def _loaded(self, needs: Needs, g: int, read: Read, results: Sequence[str], at: str) -> Iterator[str]:
        """So many steps of as many rows, a row in each vector, transposed: a step in each vector."""
        down, step = self.rows.moves[read.tensor] < 0, step_parameter(self.rows.step)
        yield f"const long {step} = {at} + {self.rows.lanes - 1 if down else 0};"
        yield from self._shifted(step, [read.tensor])
        for lane in range(self.rows.lanes):
            own = self._speller(needs, f"({_ROW} + {g * self.rows.lanes + lane})", {})
            yield f"const {self.rows.kind} r0_{lane} = *(const {self.rows.kind} *)&{own.value(read)};"
        lines, names = transposed_rows(self.rows.kind, self.rows.lanes, self.rows.value.dtype.itemsize)
        yield from lines
        yield from (f"{y} = {name};" for y, name in zip(results, reversed(names) if down else names, strict=True))

    def _now(
        self, needs: Needs, held: Mapping[Expr, str], changing: Sequence[Expr], suffix: str
    ) -> tuple[dict[Expr, str], list[tuple[str, str, str]]]:  # fmt: skip
        """What is the same in all rows at a step: its names, with those of all steps; types, names and texts."""
        names, made = dict(held), []
        for number, expr in enumerate(changing):
            names[expr] = f"tc_now{number}{suffix}"
            text = bare(self._speller(needs, "0", held).value(expr))
            made.append((C_VALUE_TYPES[expr.dtype.name], names[expr], text))
        return names, made

    def _value(self, needs: Needs, g: int, names: Mapping[Expr, str], loaded: Mapping[Expr, str]) -> str:
        text = self._vector(needs, g, names, loaded).value(self.rows.value, self.rows.value.dtype)
        assert text is not None, "it was asked before"
        return bare(text)

    def _vector(
        self, needs: Needs, g: int, names: Mapping[Expr, str], loaded: Mapping[Expr, str]
    ) -> VectorSpeller:  # fmt: skip
        scalar = self._speller(needs, f"({_ROW} + {g * self.rows.lanes})", names)
        return VectorSpeller(scalar, self.rows.row, self.rows.lanes, loaded)

    def _target(self, needs: Needs, g: int, lane: int = 0) -> str:
        own = self._speller(needs, f"({_ROW} + {g * self.rows.lanes + lane})", {})
        return own.written(self.rows.statement.target, self.rows.statement.subscripts)

    def _shifted(self, step: str, only: Sequence[str] | None = None) -> list[str]:
        """The views at a step, under their names."""
        return views_at(self.rows.plan, self.rows.statement, self.rows.moves, step, only)

    def is_spelled(self) -> bool:
        """Whether its value can be computed in vectors."""
        loaded: dict[Expr, str] = dict.fromkeys((*self.rows.carried, *self.rows.reads), "x")
        return self._vector(Needs(), 0, {}, loaded).value(self.rows.value, self.rows.value.dtype) is not None


def strip_of(pieces: Pieces, tiles: TimeTiles, plan: Plan, loops: LoopNode, machine: Machine) -> Strip | None:
    """How the only piece of tiles runs in vectors of rows; None where it does not."""
    rows = beside_of(pieces, tiles, plan, loops, machine)
    return Strip(rows) if rows is not None and Strip(rows).is_spelled() else None


def _aged_name(suffix: str, ago: int) -> str:
    """The variable with the value of so many steps ago."""
    return f"x{ago}{suffix}"
