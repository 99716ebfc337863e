"""Products of matrices by the warps of a block: fragments from shared memory, and the instructions that multiply."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tcomp.backends.gpu.matrices.warpgroups import Warpgroups
from tcomp.backends.gpu.words.spelling import Fetched
from tcomp.backends.gpu.writer import KernelWriter
from tcomp.loops.ir import Execute, LoopNode, walk
from tcomp.mapping.gpu.atoms import operands_of
from tcomp.mapping.gpu.matrices.products import Kept, Operand, Product, product_at
from tcomp.mapping.gpu.turns.fetching import copies_at
from tcomp.mapping.machines.atoms import ATOMS, BY_NAME, COLUMNS, LANES_OF_COLUMNS, LANES_OF_ROWS
from tcomp.mapping.plan.deals import Phase
from tcomp.mapping.plan.values import Buffer, Plan

MATRICES = ", matrices by warps"
"""What the comment on such a phase says."""

GROUPS = ", matrices by warpgroups"
"""The same where four warps multiply together."""

_MULTIPLY = {
    "mma.m16n8k16.f16": "tc_mma_f16",
    "mma.m16n8k16.bf16": "tc_mma_bf16",
    "mma.m16n8k8.tf32": "tc_mma_rounded",
    "mma.m16n8k8.tf32x3": "tc_mma_three",
    "mma.m16n8k16.f64": "tc_mma_f64",
    **{a.name: f"tc_mma_{a.letters}" for a in ATOMS if a.itemsize == 1 and not a.in_groups},
}
_GROUP, _MEMBER = f"thread / {LANES_OF_COLUMNS} % {LANES_OF_ROWS}", f"thread % {LANES_OF_COLUMNS}"


def multiplies(writer: KernelWriter, phase: Phase) -> bool:
    """Whether warps multiply matrices at a phase."""
    operation = writer.plan.operations.get(phase.mark)
    return operation is not None and operation.kind == "contract"


def in_groups(writer: KernelWriter, phase: Phase) -> bool:
    """Whether warpgroups multiply matrices at a phase."""
    return multiplies(writer, phase) and BY_NAME[writer.plan.operations[phase.mark].atom].in_groups


def sums_in_registers(plan: Plan, buffer: Buffer) -> int:
    """How many sums a thread keeps for each element of a buffer: where sums leave atoms, those of a tile, too."""
    own = [o for o in plan.operations.values() if plan.scop.by_name[o.statement].target == buffer.storage and o.atom]
    return max((BY_NAME[o.atom].sums_kept for o in own), default=1)


def lent_to_warps(plan: Plan, buffer: Buffer) -> bool:
    """Whether warps that multiply matrices take an operand from what threads keep of it."""
    own = [plan.scop.by_name[o.statement] for o in plan.operations.values() if o.kind == "contract"]
    kept = buffer.space == "private"
    return kept and any(buffer.storage in {read.tensor for read in operands_of(statement)} for statement in own)


def multiply_matrices(writer: KernelWriter, node: LoopNode, phase: Phase, depth: int, flight: int = 0) -> None:
    """All steps of a tile: each warp fetches fragments of both operands, and multiplies each row by each column.

    Row ``8 W (2 i + h) + 8 w + g`` of a tile is row ``8 h + g`` of atom ``i`` of warp ``w`` of W.  Warpgroups may leave
    the products of so many tiles under way: ``flight``.
    """
    copies = copies_at(writer.plan, phase.mark)
    product = product_at(writer.plan, phase, copies, BY_NAME[writer.plan.operations[phase.mark].atom])
    assert product is not None
    (instance,) = {n.statement for n in walk(node) if isinstance(n, Execute)}
    writer.uses_thread = True
    if product.atom.in_groups:
        Warpgroups(writer, product, instance, flight).write(depth)
        return
    step, i, j, word = (writer.fresh(name) for name in ("step", "i_atom", "j_atom", "word"))
    statement = writer.statements[instance]
    taps = tuple(writer.fresh(statement.indices[p]) for p, _ in product.taps)
    rows, columns = (
        writer.fresh(f"{writer.program.dialect.name(o.storage)}_part") for o in (product.row, product.column)
    )
    _Matrices(writer, product, instance, step, i, j, word, rows, columns, taps).write(depth)


@dataclass(frozen=True, slots=True)
class _Matrices:
    """The names of loops, over steps, atoms of rows and of columns, words and taps, and of the fragments."""

    writer: KernelWriter
    product: Product
    instance: str
    step: str
    i: str
    j: str
    word: str
    rows: str
    columns: str
    taps: tuple[str, ...]

    def write(self, depth: int) -> None:
        if self.product.atom.leave:
            self._write_by_tiles(depth)
            return
        self._steps(depth, self._results())

    def _write_by_tiles(self, depth: int) -> None:
        """Sums of a tile alone, which are added to those of the tiles before as single floats are."""
        product, tile = self.product, self.writer.fresh("tile_sums")
        self.writer.put(depth, "{")
        self.writer.put(depth + 1, f"float {tile}[{product.row_blocks}][{product.column_blocks}][4] = {{}};")
        sums = [f"{tile}[{self.i}][{self.j}][{n}]" for n in range(4)]
        self._steps(depth + 1, sums)
        self._loop(depth + 1, self.i, product.row_blocks)
        self._loop(depth + 2, self.j, product.column_blocks)
        for result, own in zip(self._results(), sums, strict=True):
            self._line(depth + 3, f"{result} += {own};")
        for closed in (depth + 2, depth + 1, depth):
            self.writer.put(closed, "}")

    def _steps(self, depth: int, sums: Sequence[str]) -> None:
        """All steps of a tile, added to the sums of a lane."""
        product, atom = self.product, self.product.atom
        element = "double" if atom.word_bytes == 8 else "unsigned int"
        pairs = self._by_matrices(product.column)
        column_blocks = product.column_blocks // 2 if pairs else product.column_blocks
        column_words = 2 * atom.column_words if pairs else atom.column_words
        for tap, (_, count) in zip(self.taps, product.taps, strict=True):
            self._loop(depth, tap, count)
            depth += 1
        self._loop(depth, self.step, product.steps)
        rows = f"{self.rows}[{product.row_blocks}][{atom.row_words}]"
        self.writer.put(depth + 1, f"{element} {rows}, {self.columns}[{column_blocks}][{column_words}];")
        self._loop(depth + 1, self.i, product.row_blocks)
        self._fetch_rows(depth + 2)
        self.writer.put(depth + 1, "}")
        self._loop(depth + 1, self.j, column_blocks)
        self._fetch_columns(depth + 2)
        self.writer.put(depth + 1, "}")
        self._loop(depth + 1, self.i, product.row_blocks)
        self._loop(depth + 2, self.j, product.column_blocks)
        second = f"{self.columns}[{self.j}]"
        if pairs or atom.word_bytes == 4:
            block, first = (f"{self.j} / 2", f"{self.j} % 2 * 2") if pairs else (self.j, "0")
            words = (first, "1" if first == "0" else f"{first} + 1")
            second = ", ".join(f"{self.columns}[{block}][{word}]" for word in words)
        self._line(depth + 3, f"{_MULTIPLY[atom.name]}({', '.join(sums)}, {self.rows}[{self.i}], {second});")
        for closed in range(depth + 2, depth - len(self.taps) - 1, -1):
            self.writer.put(closed, "}")

    def _loop(self, depth: int, iterator: str, trips: int) -> None:
        self.writer.put(depth, "#pragma unroll")
        self.writer.put(depth, f"for (int {iterator} = 0; {iterator} < {trips}; ++{iterator}) {{")

    def _line(self, depth: int, text: str) -> None:
        self.writer.put(depth, text)
        self.writer.at(self.instance)

    def _by_matrices(self, operand: Operand) -> bool:
        """Whether lanes fetch rows of matrices for each other; elements of 2 bytes may be turned on their way."""
        itemsize = self.product.atom.itemsize
        return itemsize == 2 or (itemsize < 8 and not operand.turned)

    def _fetch_rows(self, depth: int) -> None:
        """A fragment of 16 rows: lanes 8 q + r say where row r of its quarter q begins.

        Quarters are rows 0 to 7 and 8 to 15 of the first half of the steps, and the same of the other.
        """
        atom, operand = self.product.atom, self.product.row
        first, into = f"{atom.steps} * {self.step}", f"{self.rows}[{self.i}]"
        if isinstance(operand, Kept):
            self._pack(depth, operand, into)
            return
        if not self._by_matrices(operand):
            row = self._row(f"{self.word} % 2", f" + {_GROUP}")
            step = f"{first} + {_MEMBER} + {LANES_OF_COLUMNS} * ({self.word} / 2)"
            self._fetch_words(depth, operand, into, atom.row_words, row, step)
        elif operand.turned:
            row = self._row("thread / 8 % 2", "")
            self._fetch_matrices(depth, operand, into, row, f"{first} + thread % 8 + thread / 16 % 2 * 8")
        else:
            row = self._row("thread / 8 % 2", " + thread % 8")
            self._fetch_matrices(depth, operand, into, row, f"{first} + thread / 16 % 2 * {atom.chunk}")

    def _row(self, half: str, within: str) -> dict[int, str]:
        """The place of a row of atom ``i`` along each index of rows: in which half of the atom, and ``within`` that."""
        product = self.product
        across = next((d.threads for d in product.rows[:-1] if d.dimension is not None), 1)
        found: dict[int, str] = {}
        elements = digits(f"2 * {self.i}", half, [d.elements for d in reversed(product.rows)])
        for position, deal, element in zip(reversed(product.sides.rows), reversed(product.rows), elements, strict=True):
            if position == product.sides.row:
                warp = "thread / 32" if across == 1 else f"thread / 32 % {product.warps}"
                base = "" if product.warps == 1 else f"{LANES_OF_ROWS} * ({warp}) + "
                own = f"{base}{LANES_OF_ROWS * product.warps} * ({element}){within}"
                found[position] = own if element != "0" else f"{base[:-3]}{within}".removeprefix(" + ") or "0"
            elif deal.dimension is not None:
                warp = f"thread / {32 * product.warps}"
                found[position] = warp if element == "0" else f"{deal.threads} * ({element}) + {warp}"
            else:
                found[position] = element
        return found

    def _column(self, within: str, pairs: bool) -> dict[int, str]:
        """The place of a column along each index of columns: in block ``j`` of eight, or in one of a pair of these."""
        sides, half = self.product.sides, "thread / 16 % 2"
        if pairs and len(sides.columns) == 1:
            return {sides.column: f"{2 * COLUMNS} * {self.j}{within} + {half} * {COLUMNS}"}
        blocks = digits(f"2 * {self.j}", half, self._blocks()) if pairs else digits(self.j, "", self._blocks())
        places = dict(zip(reversed(sides.columns), blocks, strict=True))
        block = places[sides.column]
        places[sides.column] = (
            within.removeprefix(" + ") or "0" if block == "0" else f"{COLUMNS} * {_factor(block)}{within}"
        )
        return places

    def _blocks(self) -> list[int]:
        """How many blocks of columns a warp has along each index of columns, innermost first."""
        lanes, *outer = reversed(self.product.columns)
        return [lanes.elements // 2, *(d.elements for d in outer)]

    def _pack(self, depth: int, operand: Kept, into: str) -> None:
        """A fragment of what the lane keeps: two rows, and of each two steps of the first half and of the other."""
        self._loop(depth, self.word, self.product.atom.row_words)
        row = f"2 * {self.i} + {self.word} % 2"
        pair = [f"4 * {self.step} + {self.word} / 2 * 2{further}" for further in ("", " + 1")]
        low, high = (self._kept(operand.buffer, {operand.side: row, operand.step: step}) for step in pair)
        if operand.buffer.dtype.itemsize == 2:
            packed = f"(unsigned int){low} | (unsigned int){high} << 16"
        else:
            packed = f"tc_pack_{'f16' if self.product.atom.kind == 'float16' else 'bf16'}({low}, {high})"
        self._line(depth + 1, f"{into}[{self.word}] = {packed};")
        self.writer.put(depth, "}")

    def _fetch_columns(self, depth: int) -> None:
        """A fragment of 8 columns, or two: the quarters are then the halves of the steps of one, then of the other."""
        atom, operand = self.product.atom, self.product.column
        first, into = f"{atom.steps} * {self.step}", f"{self.columns}[{self.j}]"
        if not self._by_matrices(operand):
            step = f"{first} + {_MEMBER} + {LANES_OF_COLUMNS} * {self.word}"
            column = self._column(f" + {_GROUP}", False)
            self._fetch_words(depth, operand, into, atom.column_words, column, step)
        elif operand.turned:
            self._fetch_matrices(depth, operand, into, self._column("", True), f"{first} + thread % 16")
        else:
            column = self._column(" + thread % 8", True)
            self._fetch_matrices(depth, operand, into, column, f"{first} + thread / 8 % 2 * {atom.chunk}")

    def _fetch_matrices(self, depth: int, operand: Operand, into: str, side: Mapping[int, str], step: str) -> None:
        turned = "_turned" if operand.turned else ""
        self._line(depth, f"tc_ldmatrix{turned}({into}, &{self._place(operand, side, step)});")

    def _fetch_words(
        self, depth: int, operand: Operand, into: str, words: int, side: Mapping[int, str], step: str
    ) -> None:
        self._loop(depth, self.word, words)
        place = self._place(operand, side, step)
        element = f"__float_as_uint({place})" if operand.copy.dtype.itemsize == 4 else place
        self._line(depth + 1, f"{into}[{self.word}] = {element};")
        self.writer.put(depth, "}")

    def _place(self, operand: Operand, side: Mapping[int, str], step: str) -> str:
        """An element of an operand in shared memory, at places along indices."""
        fetched: Fetched = next(f for f in self.writer.fetched if f.copy is operand.copy)
        room = dict(zip(operand.copy.order, operand.copy.room, strict=True))
        sides = self.product.sides
        places = {**side, sides.step: step, **dict(zip(sides.taps, self.taps, strict=True))}

        def subscript(dimension: int) -> str:
            terms = (_times(c, places[p]) for p, c in operand.places[dimension].items())
            return " + ".join(t for t in terms if t != "0") or "0"

        return fetched.name + "".join(f"[{subscript(d)}]" for d in operand.copy.order if room[d] > 1)

    def _results(self) -> list[str]:
        """The four results of a lane in an atom: two rows by two columns."""
        product, found = self.product, list[str]()
        for half, other in itertools.product("01", repeat=2):
            rows = digits(f"2 * {self.i}", half, [d.elements for d in reversed(product.rows)])
            lanes, *outer = digits(self.j, "", self._blocks())
            places = dict(zip(reversed(product.sides.rows), rows, strict=True))
            columns = [f"2 * {_factor(lanes)}{' + 1' if other == '1' else ''}", *outer]
            places |= dict(zip(reversed(product.sides.columns), columns, strict=True))
            found.append(self._kept(product.target, {product.dimensions[p]: text for p, text in places.items()}))
        return found

    def _kept(self, buffer: Buffer, places: Mapping[int, str]) -> str:
        """An element of what the thread keeps, by its places along dimensions; those of the others are 0."""
        kept = ((places.get(d, "0"), extent) for d, extent in enumerate(buffer.shape))
        return self.writer.locals[buffer.storage].name + "".join(f"[{text}]" for text, extent in kept if extent > 1)


def digits(even: str, rest: str, radices: Sequence[int]) -> list[str]:
    """C text for the digits, of some radices, the least first, of a number: ``even`` and a ``rest`` of 0 or 1."""
    found: list[str] = []
    for radix in radices[:-1]:
        if radix == 1:
            found.append("0")
        elif rest and radix % 2 == 0:
            found.append(_sum(f"{_factor(even)} % {radix}", rest))
            even, rest = f"{_factor(even)} / {radix}", ""
        else:
            whole = _factor(_sum(even, rest))
            found.append(f"{whole} % {radix}")
            even, rest = f"{whole} / {radix}", ""
    return [*found, "0" if radices[-1] == 1 else _sum(even, rest)]


def _sum(text: str, rest: str) -> str:
    return text if rest in ("", "0") else f"{text} + {rest}"


def _factor(text: str) -> str:
    return text if text.isidentifier() else f"({text})"


def _times(count: int, text: str) -> str:
    return text if count == 1 or text == "0" else f"{count} * ({text})"
