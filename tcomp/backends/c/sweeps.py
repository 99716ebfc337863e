"""The C text of sweeps in place, of which several steps run at the same time, each in a lane of vectors.

A tile is some passes.  In pass ``p``, lane ``k`` runs step ``k`` of the tile on row ``p - row_lag * k``, at moment
``x`` on column ``x - column_lag * (k + 1)``.  Vectors of a pass, ``v``, hold what each lane has computed at each
moment, ``s`` what the lane before had: the values of one step before.  The first lane has them from memory, where the
last one leaves its results.  What lies outside goes through lanes unchanged, so that boundaries need nothing of their
own.

Vectors of a pass overwrite those of the pass that nothing reads any more, a few places to the left of where these are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tcomp.backends.c.sweptplaces import SweepPlaces, constant
from tcomp.backends.c.vectors.types import vector_type
from tcomp.backends.c.vectors.values import VectorSpeller
from tcomp.backends.dialect import C_STORAGE_TYPES, bare, load, mangle
from tcomp.backends.spelling import Needs, Speller
from tcomp.grammar.tree.function import Expr, Read, walk
from tcomp.model.stepwise.sweeps import by_lanes
from tcomp.values.operators import INT32, INT64, DType


@dataclass(frozen=True)
class LaneSweeps(SweepPlaces):
    """A block whose ``sweeps`` run in lanes."""

    needs: Needs

    @property
    def note(self) -> str:
        """What readers are told."""
        swept = self.sweeps
        return (
            f"{swept.target}: {swept.steps} steps over {swept.repeat.index} run at the same time, in lanes of vectors"
        )

    @property
    def tensors(self) -> list[str]:
        """All tensors that the block touches."""
        reads = [e.tensor for e in walk(self.sweeps.value) if isinstance(e, Read)]
        return list(dict.fromkeys([self.sweeps.target, *reads]))

    def parameters(self) -> list[str]:
        """What the function of a tile takes."""
        found = []
        for name in self.tensors:
            const = "" if name == self.sweeps.target else "const "
            found.append(f"{const}{C_STORAGE_TYPES[self.pieces.storages[name].dtype.name]} *const {mangle(name)}")
        return [*found, "const long left", "const long begin", "const long end", "char *const mine"]

    def call(self, name: str, mine: str) -> list[str]:
        """What calls that function, for tile ``strip`` of front ``wave``."""
        swept = self.sweeps
        low, step, rows = self.rows[0], swept.row_lag * swept.steps, swept.rows_of_tile
        return [
            f"const long round = least + strip, at = {low} + (wave - round) * {rows}L - round * {step}L;",
            f"const long begin = tc_max(at, {low}), until = tc_min(at + {rows}, {low + self.passes}L);",
            f"const long left = length - round * {swept.steps}L;",
            f"if (begin < until) {name}({', '.join(map(mangle, self.tensors))}, left, begin, until, {mine});",
        ]

    def fronts(self, first: str, last: str) -> list[str]:
        """The loop over fronts, without its end: it tells how many tiles each has, from which round of steps on."""
        swept = self.sweeps
        step, rows, passes = swept.row_lag * swept.steps, swept.rows_of_tile, self.passes
        return [
            f"const long length = tc_max(0, {last} - ({first}));",
            f"const long rounds = (length + {swept.steps - 1}) / {swept.steps};",
            f"const long waves = rounds ? ({passes - 1}L + {rows + step}L * (rounds - 1)) / {rows} + 1 : 0;",
            "for (long wave = 0; wave < waves; wave++) {",
            f"  const long least = wave * {rows}L < {passes} ? 0 : (wave * {rows}L - {passes}) / {rows + step} + 1;",
            f"  const long most = tc_min(rounds - 1, ((wave + 1) * {rows}L - 1) / {rows + step});",
            "  const long tiles = tc_max(0, most - least + 1);",
        ]

    def lines(self) -> Iterator[str]:
        """The body of that function."""
        lag = self.sweeps.row_lag
        yield f"__builtin_memset(mine, 0, {self.own_bytes()}L);"
        names = ["v", "s", *(f"f{n}_" for n in range(len(self.fields)))]
        for number, name in enumerate(names):
            for d in range(1, lag + 1):
                place = self.bytes_of_pass * (number * lag + d - 1)
                yield f"{self.kind} *{name}{d} = ({self.kind} *)(mine + {place}L) + {self.start * self.vectors}L;"
        for read in dict.fromkeys(e for e in walk(self.sweeps.value) if isinstance(e, Read)):
            if read in self._scalars:
                dtype = self.pieces.storages[read.tensor].dtype
                yield f"const {C_STORAGE_TYPES[dtype.name]} {self._scalars[read]} = {self._element_of(read)};"
        yield from self._known()
        for d in range(1, lag + 1):
            yield from self._brought(d)
        yield "for (long p = begin; p < end; p++) {"
        yield from ("  " + line for line in self._pass(names))
        yield "}"
        for d in range(1, lag + 1):
            yield from self._left(d)

    @cached_property
    def _scalars(self) -> dict[Expr, str]:
        """The reads that are the same for all rows and columns, by the names that hold them."""
        known = {read.read for read in self.sweeps.reads}
        reads = dict.fromkeys(e for e in walk(self.sweeps.value) if isinstance(e, Read) and e not in known)
        return {read: f"same{number}" for number, read in enumerate(reads)}

    def _element_of(self, read: Read) -> str:
        """An element that no row or column names."""
        storage = self.pieces.storages[read.tensor]
        places = [constant(s, self.pieces.sizes) for s in read.subscripts]
        away = sum((p - o) * s for p, o, s in zip(places, storage.box.origin, storage.strides, strict=True))
        return f"{mangle(read.tensor)}[{away}L]"

    @property
    def _truth(self) -> DType:
        return INT64 if self.dtype.itemsize == 8 else INT32

    @property
    def _mask(self) -> str:
        return vector_type(self._truth, self.sweeps.lanes)

    def _numbers(self, factor: int, vector: int, first: int = 0) -> str:
        """A vector of what the lanes of one have, so many times their number."""
        lanes = self.sweeps.lanes
        texts = [str(first + factor * (vector * lanes + lane)) for lane in range(lanes)]
        return f"({self._mask}){{{', '.join(texts)}}}"

    def _known(self) -> Iterator[str]:
        """What each lane is behind."""
        swept = self.sweeps
        for x in range(self.vectors):
            behind = swept.column_lag + self.sweeps.columns[0] - self.columns[0]
            yield f"const {self._mask} columns{x} = {self._numbers(swept.column_lag, x, behind)};"
            yield f"const {self._mask} rows{x} = {self._numbers(swept.row_lag, x, swept.rows[0])};"
            yield f"const {self._mask} runs{x} = {self._numbers(1, x)} < ({C_STORAGE_TYPES[self._truth.name]})left;"

    def _brought(self, d: int) -> Iterator[str]:
        """The pass ``d`` before the first one, as it lies in memory."""
        swept = self.sweeps
        low, high = self.rows
        lag, after, steps = swept.row_lag, swept.column_lag, swept.steps
        yield f"for (long k = 0; k < {steps}; k++) {{"
        yield f"  const long row = begin - {d} - k * {lag};"
        yield f"  if (row >= {low} && row < {high}) {{"
        yield f"    for (long c = 0; c < {self.width}; c++)"
        yield (
            f"      (({self.element} *)(v{d} + (c + (k + 1) * {after}) * {self.vectors}))[k]"
            f" = {self.memory('row', f'c + {self.columns[0]}')};"
        )
        yield "  }"
        for number, read in enumerate(self.fields):
            (top, bottom), (left, right) = swept.rows, swept.columns
            yield f"  if (row >= {top} && row < {bottom}) {{"
            yield f"    for (long c = {left - self.columns[0]}; c < {right - self.columns[0]}; c++)"
            yield (
                f"      (({self.element} *)(f{number}_{d} + (c + (k + 1) * {after}) * {self.vectors}))[k]"
                f" = {self.of_field(read, 'row', f'c + {self.columns[0]}')};"
            )
            yield "  }"
        yield "}"
        yield "{"
        yield f"  const long row = begin - {d} + {lag};"
        yield f"  const long some = row >= {low} && row < {high} ? {self.width} : 0;"
        yield f"  for (long x = 0; x < {self.moments}; x++) {{"
        memory = self.memory("row", f"x + {self.columns[0]}")
        yield f"    const {self.element} next = x < some ? {memory} : 0;"
        vectors = [f"v{d}[x * {self.vectors} + {x}]" for x in range(self.vectors)]
        yield from (
            f"    s{d}[x * {self.vectors} + {x}] = {text};" for x, text in enumerate(self._moved("next", vectors))
        )
        yield "  }"
        yield "}"

    def _left(self, d: int) -> Iterator[str]:
        """Back to memory what lanes have in one of the last passes, but for what the last lane has brought there."""
        swept = self.sweeps
        low, high = self.rows
        yield f"for (long k = 0; k < {swept.steps - 1}; k++) {{"
        yield f"  const long row = end - {d} - k * {swept.row_lag};"
        yield f"  if (row < {low} || row >= {high}) continue;"
        yield f"  for (long c = 0; c < {self.width}; c++)"
        yield (
            f"    {self.memory('row', f'c + {self.columns[0]}')}"
            f" = ((const {self.element} *)(v{d} + (c + (k + 1) * {swept.column_lag}) * {self.vectors}))[k];"
        )
        yield "}"

    def _moved(self, first: str, vectors: Sequence[str]) -> list[str]:
        """What the lane before each has: the ``first`` one an element."""
        lanes = self.sweeps.lanes
        before = f"({self.kind}){{{', '.join([first] * lanes)}}}"
        order = ", ".join(map(str, [lanes - 1, *range(lanes, 2 * lanes - 1)]))
        return [
            f"__builtin_shufflevector({a}, {b}, {order})" for a, b in zip([before, *vectors], vectors, strict=False)
        ]  # fmt: skip

    def _pass(self, names: Sequence[str]) -> Iterator[str]:
        swept, n = self.sweeps, self.vectors
        (low, high), (top, bottom) = self.rows, swept.rows
        lag, behind = swept.row_lag, swept.column_lag * swept.steps
        first = swept.columns[0] - self.columns[0]
        last = swept.columns[1] - self.columns[0]
        for name in names:
            yield f"{self.kind} *const {name}0 = {name}{lag} - {self.away * n};"
        yield f"const long row = p + {lag}, gone = p - {lag * (swept.steps - 1)};"
        yield f"const int comes = row >= {low} && row < {high}, goes = gone >= {low} && gone < {high};"
        yield f"const int whole = gone >= {top} && p < {bottom} && left >= {swept.steps} && comes;"
        integer = C_STORAGE_TYPES[self._truth.name]
        for x in range(n):
            yield (
                f"const {self._mask} lives{x} = (({integer})p >= rows{x}) & (({integer})p < rows{x} + {bottom - top})"
                f" & runs{x};"
            )
        yield f"const long some = whole ? {min(first + behind, self.moments)} : {self.moments};"
        yield f"const long all = whole ? {min(last + swept.column_lag, self.width)} : 0;"
        for d in range(1, self._carried + 1):
            yield from (f"{self.kind} near{d}_{x} = v0[{-d * n + x}];" for x in range(n))
        yield "long x = 0;"
        yield "for (long part = 0; part < 2; part++) {"
        yield f"  const long until = part ? {self.moments} : some;"
        yield "  for (; x < until; x++) {"
        yield from ("    " + line for line in self._moment(inside=False))
        yield "  }"
        yield "  for (; x < all; x++) {"
        yield from ("    " + line for line in self._moment(inside=True))
        yield "  }"
        yield "}"
        for name in names:
            yield " ".join(f"{name}{d} = {name}{d - 1};" for d in range(lag, 0, -1))

    @property
    def _carried(self) -> int:
        """How many columns before it in its row an element needs what is new."""
        return max([0, *(-read.column for read in self.own if read.is_new and not read.row)])

    def _moment(self, inside: bool) -> Iterator[str]:
        """What all lanes do at a moment; ``inside`` says that all of them have an instance."""
        swept, n, lag, behind = self.sweeps, self.vectors, self.sweeps.row_lag, self.sweeps.column_lag
        (top, bottom), (left, right) = swept.rows, swept.columns
        for number, read in enumerate(self.fields):
            column = f"x + {self.columns[0] - behind}"
            element = self.of_field(read, "p", column)
            if not inside:
                there = f"p >= {top} && p < {bottom} && x >= {left - self.columns[0] + behind}"
                element = f"{there} && x < {right - self.columns[0] + behind} ? {element} : 0"
            yield f"const {self.element} next{number} = {element};"
            vectors = [self._at(f"f{number}_{lag}", -behind, x) for x in range(n)]
            # What a lane has of the tensor is what the lane before it had as many passes and moments ago.
            for x, text in enumerate(self._moved(f"next{number}", vectors)):
                yield f"const {self.kind} field{number}_{x} = {text};"
                yield f"{self._at(f'f{number}_0', 0, x)} = field{number}_{x};"
        results = []
        for x in range(n):
            value = self._value(x)
            if inside:
                yield f"const {self.kind} now{x} = {value};"
            else:
                integer = C_STORAGE_TYPES[self._truth.name]
                mask = (
                    f"lives{x} & (({integer})x >= columns{x}) & (({integer})x < columns{x} + {right - left})"
                )  # fmt: skip
                yield f"const {self._mask} inside{x} = {mask};"
                old = self._at(f"s{lag}", -behind, x)
                yield (
                    f"const {self.kind} now{x} = ({self.kind})((({self._mask})({value}) & inside{x})"
                    f" | (({self._mask}){old} & ~inside{x}));"
                )
            results.append(f"now{x}")
        memory = self.memory("row", f"x + {self.columns[0]}")
        next_element = memory if inside else f"comes && x < {self.width} ? {memory} : 0"
        yield f"const {self.element} next = {next_element};"
        for x, text in enumerate(self._moved("next", results)):
            yield f"{self._at('v0', 0, x)} = now{x};"
            yield f"{self._at('s0', 0, x)} = {text};"
        for d in range(self._carried, 0, -1):
            yield " ".join(f"near{d}_{x} = {f'near{d - 1}_{x}' if d > 1 else f'now{x}'};" for x in range(n))
        away = behind * swept.steps
        condition = "" if inside else f"if (goes && x >= {away} && x < {away + self.width}) "
        last = f"now{n - 1}[{swept.lanes - 1}]"
        yield f"{condition}{self.memory('gone', f'x + {self.columns[0] - away}')} = {last};"

    def _at(self, name: str, moment: int, vector: int) -> str:
        """A vector so many moments from now."""
        return f"{name}[x * {self.vectors} + {moment * self.vectors + vector}]"

    def _value(self, vector: int) -> str:
        """What the lanes of a vector compute."""
        swept = self.sweeps
        j = swept.piece.steps[-1]
        loaded: dict[str, str] = {}
        field = 0
        for number, read in enumerate(swept.reads):
            if not read.of_target:
                text = f"field{field}_{vector}"
                field += 1
            elif read.is_new and not read.row:
                text = f"near{-read.column}_{vector}"
            elif read.is_new:
                text = self._at(f"v{-read.row}", read.column, vector)
            else:
                text = self._at(f"s{swept.row_lag - read.row}", read.column - swept.column_lag, vector)
            loaded[f"lanes{number}"] = text
        value = by_lanes(swept.value, swept.reads, j)
        held: dict[Expr, str] = {read: load(name, read.dtype) for read, name in self._scalars.items()}
        names: dict[Expr, str] = {
            e: loaded[e.tensor] for e in walk(value) if isinstance(e, Read) and e.tensor in loaded
        }
        speller = Speller(swept.piece.scop, {}, {}, self.needs, False, swept.piece.function.source, held=held)
        found = VectorSpeller(speller, j, swept.lanes, names).value(value, self.dtype)
        assert found is not None, "the value is arithmetic of lanes"
        return bare(found)
