"""Products of matrices by the warps of a block: fragments from shared memory, and the instructions that multiply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tcomp.backends.gpu.matrices.warpgroups import Warpgroups
from tcomp.backends.gpu.words.spelling import Fetched
from tcomp.backends.gpu.writer import KernelWriter
from tcomp.loops.ir import Execute, LoopNode, walk
from tcomp.mapping.gpu.atoms import operands_of
from tcomp.mapping.gpu.matrices.products import Kept, Operand, Product, product_at
from tcomp.mapping.gpu.turns.fetching import copies_at
from tcomp.mapping.machines.atoms import BY_NAME, COLUMNS, LANES_OF_COLUMNS, LANES_OF_ROWS
from tcomp.mapping.plan.values import Buffer, Phase, Plan

MATRICES = ", matrices by warps"
"""What the comment on such a phase says."""

GROUPS = ", matrices by warpgroups"
"""The same where four warps multiply together."""

_MULTIPLY = {
    "mma.m16n8k16.f16": "tc_mma_f16",
    "mma.m16n8k16.bf16": "tc_mma_bf16",
    "mma.m16n8k32.s8": "tc_mma_s8",
    "mma.m16n8k32.u8": "tc_mma_u8",
    "mma.m16n8k8.tf32": "tc_mma_rounded",
    "mma.m16n8k8.tf32x3": "tc_mma_three",
    "mma.m16n8k16.f64": "tc_mma_f64",
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
    """How many sums a thread keeps for each element of a buffer: where floats are in parts, those of a tile, too."""
    own = [o for o in plan.operations.values() if plan.scop.by_name[o.statement].target == buffer.storage and o.atom]
    return max((BY_NAME[o.atom].parts for o in own), default=1)


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
    rows, columns = (
        writer.fresh(f"{writer.program.dialect.name(o.storage)}_part") for o in (product.row, product.column)
    )
    _Matrices(writer, product, instance, step, i, j, word, rows, columns).write(depth)


@dataclass(frozen=True, slots=True)
class _Matrices:
    """The names of loops, over steps, atoms of rows and of columns and words, and of the fragments."""

    writer: KernelWriter
    product: Product
    instance: str
    step: str
    i: str
    j: str
    word: str
    rows: str
    columns: str

    def write(self, depth: int) -> None:
        if self.product.atom.parts > 1:
            self._write_in_parts(depth)
            return
        self._steps(depth, self._results())

    def _write_in_parts(self, depth: int) -> None:
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
        for closed in (depth + 2, depth + 1, depth):
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
        product, atom, operand = self.product, self.product.atom, self.product.row
        apart, first = LANES_OF_ROWS * product.warps, f"{atom.steps} * {self.step}"
        base = "" if product.warps == 1 else f"{LANES_OF_ROWS} * (thread / 32) + "
        into = f"{self.rows}[{self.i}]"
        if isinstance(operand, Kept):
            self._pack(depth, operand, into)
            return
        if not self._by_matrices(operand):
            row = f"{base}{apart} * (2 * {self.i} + {self.word} % 2) + {_GROUP}"
            step = f"{first} + {_MEMBER} + {LANES_OF_COLUMNS} * ({self.word} / 2)"
            self._fetch_words(depth, operand, into, atom.row_words, row, step)
        elif operand.turned:
            row = f"{base}{apart} * (2 * {self.i} + thread / 8 % 2)"
            self._fetch_matrices(depth, operand, into, row, f"{first} + thread % 8 + thread / 16 % 2 * 8")
        else:
            row = f"{base}{apart} * (2 * {self.i} + thread / 8 % 2) + thread % 8"
            self._fetch_matrices(depth, operand, into, row, f"{first} + thread / 16 % 2 * {atom.chunk}")

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
            self._fetch_words(depth, operand, into, atom.column_words, f"{COLUMNS} * {self.j} + {_GROUP}", step)
        elif operand.turned:
            column = f"{2 * COLUMNS} * {self.j} + thread / 16 % 2 * 8"
            self._fetch_matrices(depth, operand, into, column, f"{first} + thread % 16")
        else:
            column = f"{2 * COLUMNS} * {self.j} + thread % 8 + thread / 16 % 2 * 8"
            self._fetch_matrices(depth, operand, into, column, f"{first} + thread / 8 % 2 * {atom.chunk}")

    def _fetch_matrices(self, depth: int, operand: Operand, into: str, side: str, step: str) -> None:
        turned = "_turned" if operand.turned else ""
        self._line(depth, f"tc_ldmatrix{turned}({into}, &{self._place(operand, side, step)});")

    def _fetch_words(self, depth: int, operand: Operand, into: str, words: int, side: str, step: str) -> None:
        self._loop(depth, self.word, words)
        place = self._place(operand, side, step)
        element = f"__float_as_uint({place})" if operand.copy.dtype.itemsize == 4 else place
        self._line(depth + 1, f"{into}[{self.word}] = {element};")
        self.writer.put(depth, "}")

    def _place(self, operand: Operand, side: str, step: str) -> str:
        """An element of an operand in shared memory."""
        fetched: Fetched = next(f for f in self.writer.fetched if f.copy is operand.copy)
        room = dict(zip(operand.copy.order, operand.copy.room, strict=True))
        texts = {operand.side: side, operand.step: step}
        return fetched.name + "".join(f"[{texts.get(d, '0')}]" for d in operand.copy.order if room[d] > 1)

    def _results(self) -> list[str]:
        """The four results of a lane in an atom: two rows by two columns."""
        target = self.product.target
        along = {d.dimension: n for n, d in enumerate(target.deals) if d.dimension is not None}
        pairs = [(f"2 * {self.i}{h}", f"2 * {self.j}{p}") for h in ("", " + 1") for p in ("", " + 1")]
        return [self._kept(target, {along[0]: row, along[1]: column}) for row, column in pairs]

    def _kept(self, buffer: Buffer, places: Mapping[int, str]) -> str:
        """An element of what the thread keeps, by its places along dimensions; those of the others are 0."""
        kept = ((places.get(d, "0"), extent) for d, extent in enumerate(buffer.shape))
        return self.writer.locals[buffer.storage].name + "".join(f"[{text}]" for text, extent in kept if extent > 1)
