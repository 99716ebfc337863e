"""Register tiles of sums of products by instructions that multiply whole matrices of bytes or of bfloat16 (AMX).

Both operands lie in packed copies with groups of steps together (``groupedpanels.py``), as for other instructions that
take several steps.  A register for matrices has sixteen rows of 64 bytes.  One of the operand along the rows holds up
to sixteen groups of steps for each of sixteen rows; one of the other operand has a row for each group, and in it a
group of each of sixteen columns.  Tiles that are smaller have registers of fewer rows and bytes, so that nothing is
read that does not belong to them.  Zeros fill up the last groups of steps.

What the registers are is set by an instruction that takes as long as some forty products, so threads remember what
they have set (``SHAPE``), and give the registers back when they have done their tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tcomp.backends.c.contractions.dotinstructions import LANE_BYTES
from tcomp.backends.c.contractions.dotproducts import DotContraction, GroupedOperand
from tcomp.backends.c.contractions.places import Operand
from tcomp.backends.c.vectors.types import vector_type
from tcomp.backends.c.vectors.widening import NARROWED, narrowed
from tcomp.backends.dialect import C_STORAGE_TYPES, store
from tcomp.backends.prelude import INLINE
from tcomp.mapping.contraction.registertile import Loads, RegisterTile, matrix_tile
from tcomp.values.operators import BFLOAT16, FLOAT32, INT32

_REGISTERS = 8

_SIDE = 16
"""Rows of a register for matrices, and numbers of 32 bits in one."""

_BYTES = 64
"""Bytes of a row of a register, and of what says how the registers are shaped."""

_ALLOWED = "tc_may_use_matrices()"
"""The C condition that the system lets the process use the registers."""

SHAPE = "tc_shape"
"""The C name of what a thread remembers of the registers' shape."""


def declared_shape(lines: list[str]) -> list[str]:
    """The lines that a thread declares in front of tiles with some lines, if these use registers for matrices."""
    used = any(SHAPE in line for line in lines)
    return [f"long {SHAPE} __attribute__((cleanup(tc_free_matrices))) = 0;"] if used else []


@dataclass(frozen=True, slots=True)
class Registers:
    """The registers of a tile of so many ``rows`` and ``columns``, with so many groups of steps in one.

    Accumulators come first, then those of the operand along the rows, then some that those along the columns share.
    """

    rows: int
    columns: int
    depth: int

    @property
    def heights(self) -> list[int]:
        """Rows of the accumulators, from above."""
        return _parts(self.rows)

    @property
    def widths(self) -> list[int]:
        """Columns of the accumulators, from the left."""
        return _parts(self.columns)

    def sum(self, i: int, j: int) -> int:
        """The number of an accumulator."""
        return i * len(self.widths) + j

    def of_rows(self, i: int) -> int:
        """The number of a register of the operand along the rows."""
        return len(self.heights) * len(self.widths) + i

    def of_columns(self, j: int) -> int:
        """The number of a register of the operand along the columns: the last has one for itself."""
        first, last = self.of_rows(len(self.heights)), len(self.widths) - 1
        free = _REGISTERS - first
        if last < free or j == last:
            return first + min(j, free - 1)
        return first + j % (free - 1)

    @property
    def code(self) -> int:
        """A number that tells these registers from all others; it is not 0."""
        return (self.rows << 20) | (self.columns << 8) | self.depth

    @property
    def shape(self) -> list[int]:
        """The bytes that tell the processor how long and how many the rows of each register are."""
        lengths, counts = [0] * _REGISTERS, [0] * _REGISTERS
        for i, height in enumerate(self.heights):
            lengths[self.of_rows(i)], counts[self.of_rows(i)] = self.depth * LANE_BYTES, height
            for j, width in enumerate(self.widths):
                lengths[self.sum(i, j)], counts[self.sum(i, j)] = width * LANE_BYTES, height
        for j, width in enumerate(self.widths):
            lengths[self.of_columns(j)], counts[self.of_columns(j)] = width * LANE_BYTES, self.depth
        head = [1, *[0] * 15]
        return [*head, *(byte for length in lengths for byte in (length, 0)), *[0] * 16, *counts, *[0] * 8]


def _parts(extent: int) -> list[int]:
    return [min(_SIDE, extent - start) for start in range(0, extent, _SIDE)]


@dataclass(frozen=True, slots=True)
class MatrixContraction(DotContraction):
    """A contraction whose operands are grouped for instructions that take whole matrices."""

    def _conditions(self) -> list[str]:
        return [_ALLOWED, *DotContraction._conditions(self)]

    def _operands(self) -> tuple[Operand, Operand] | None:
        """The operand along the rows, and the one along the columns; None where they do not lie as they should."""
        found = DotContraction._operands(self)
        if found is None:
            return None
        rows, columns = sorted(found, key=lambda o: o.is_vector)
        grouped = self._grouped(rows)
        innermost = grouped.panel.copy.order[-1] == grouped.groups.dimension
        return (rows, columns) if innermost and not columns.row else None

    def _grouped(self, operand: Operand) -> GroupedOperand:
        """The copy that an operand is read from."""
        return self.grouped[self._reads()[0 if operand.name == "tc_a" else 1]]

    def _vectors(self, rows: int, columns: int, loads: Loads) -> RegisterTile | None:
        return matrix_tile(rows, columns)

    def _tile(
        self, tile: RegisterTile, targets: tuple[Operand, Operand], operands: tuple[Operand, Operand]
    ) -> Iterator[str]:
        """All steps of one register tile.

        Accumulators of floats below 2^-126 would be taken for zero, so what is in memory is added when they are done.
        """
        target, result = targets
        registers = Registers(tile.rows, tile.columns, self._groups().depth)
        own, element = result.place.dtype, C_STORAGE_TYPES[self.dtype.name]
        late = self.dtype == FLOAT32 and not self.from_zero
        direct = own == self.dtype and not late
        cells = [(i, j) for i in range(len(registers.heights)) for j in range(len(registers.widths))]
        shape = ", ".join(map(str, registers.shape))
        yield f"static const unsigned char tc_registers[{_BYTES}] __attribute__((aligned({_BYTES}))) = {{{shape}}};"
        yield f"tc_shape_matrices(&{SHAPE}, {registers.code}, tc_registers);"
        if not self.from_zero:
            yield f"const {element} *const {target.name} = &{target.place.text};"
        for i, j in cells:
            start = f"{target.name} + {target.offset(_SIDE * i, _SIDE * j)}"
            loaded = f"tc_matrix_load({registers.sum(i, j)}, {start}, {target.apart(LANE_BYTES)});"
            yield f"tc_matrix_zero({registers.sum(i, j)});" if self.from_zero or late else loaded
        yield from self._all_steps(self._products(registers, operands))
        yield f"{C_STORAGE_TYPES[own.name]} *const {result.name} = &{result.place.text};"
        for i, j in cells if direct else ():
            start = f"{result.name} + {result.offset(_SIDE * i, _SIDE * j)}"
            yield f"tc_matrix_store({registers.sum(i, j)}, {start}, {result.apart(LANE_BYTES)});"
        if not direct:
            yield from self._through_memory(registers, target if late else None, result)

    def _products(self, registers: Registers, operands: tuple[Operand, Operand]) -> Iterator[str]:
        """One step: registers of the operand along the rows are kept, those along the columns pass by."""
        rows, columns = operands
        for o in operands:
            yield f"const {C_STORAGE_TYPES[o.place.dtype.name]} *const {o.name} = &{o.place.text};"
        grouped = self._grouped(columns)
        apart = grouped.panel.strides[grouped.groups.dimension] * grouped.groups.size * columns.place.dtype.itemsize
        group = grouped.groups.size
        for j in range(len(registers.widths)):
            for i in range(len(registers.heights)):
                if j == 0:
                    start = f"{rows.name} + {_SIDE * i * rows.row}"
                    yield f"tc_matrix_load({registers.of_rows(i)}, {start}, {rows.row * rows.place.dtype.itemsize});"
                if i == 0:
                    start = f"{columns.name} + {_SIDE * j * group}"
                    yield f"tc_matrix_load({registers.of_columns(j)}, {start}, {apart});"
                numbers = registers.sum(i, j), registers.of_rows(i), registers.of_columns(j)
                yield f"{self._product}({', '.join(map(str, numbers))});"

    @property
    def _product(self) -> str:
        """The C name of the instruction for the types of both operands."""
        operands = self._operands()
        assert operands is not None
        first, second = (o.place.dtype for o in operands)
        if first == BFLOAT16:
            return "tc_matrix_product_bf16ps"
        letters = ("s" if dtype.kind == "int" else "u" for dtype in (first, second))
        return f"tc_matrix_product_b{''.join(letters)}d"

    def _through_memory(self, registers: Registers, target: Operand | None, result: Operand) -> Iterator[str]:
        """Sums that are stored in another form, or to which what is in memory is added."""
        width, own = _SIDE * len(registers.widths), result.place.dtype
        dtype = FLOAT32 if self.dtype == FLOAT32 else INT32
        size = width * registers.rows
        yield f"{C_STORAGE_TYPES[dtype.name]} tc_sums[{size}] __attribute__((aligned({_BYTES})));"
        for i in range(len(registers.heights)):
            for j in range(len(registers.widths)):
                start = f"tc_sums + {_SIDE * (i * width + j)}"
                yield f"tc_matrix_store({registers.sum(i, j)}, {start}, {width * LANE_BYTES});"
        yield f"for (long r = 0; r < {registers.rows}; r++) {{"
        columns = registers.columns
        if columns < _SIDE:
            added = "" if target is None else f" + {target.name}[r * {target.apart()} + c]"
            value = store(f"(tc_sums[r * {width} + c]{added})", own)
            yield f"  for (long c = 0; c < {columns}; c++) {result.name}[r * {result.apart()} + c] = {value};"
        else:
            vector = vector_type(dtype, _SIDE)
            offsets = [min(start, columns - _SIDE) for start in range(0, columns, _SIDE)]
            for n, offset in enumerate(offsets):
                added = (
                    "" if target is None else f" + *(const {vector} *)({target.name} + r * {target.apart()} + {offset})"
                )
                yield f"  const {vector} sum{n} = *(const {vector} *)(tc_sums + r * {width} + {offset}){added};"
            for n, offset in enumerate(offsets):
                place = f"{result.name} + r * {result.apart()} + {offset}"
                if own in NARROWED:
                    yield f"  {narrowed(place, f'sum{n}', own, _SIDE)}"
                else:
                    yield f"  *({vector} *)({place}) = sum{n};"
        yield "}"


_NAMES = ("bssd", "bsud", "busd", "buud", "bf16ps")
_ABSENT = """static int tc_may_use_matrices(void) { return 0; }
static void tc_shape_matrices(long *known, long code, const unsigned char *shape)
{ (void)known; (void)code; (void)shape; }
static void tc_free_matrices(long *known) { (void)known; }
#define tc_matrix_zero(t)
#define tc_matrix_load(t, from, apart) ((void)(from))
#define tc_matrix_store(t, to, apart) ((void)(to))
"""
_PRESENT = f"""static int tc_may_use_matrices(void)
{{
  static int asked;
  int known = __atomic_load_n(&asked, __ATOMIC_RELAXED);
  if (!known) {{
    long refused;
    __asm__ volatile("syscall" : "=a"(refused) : "a"(158L), "D"(0x1023L), "S"(18L) : "rcx", "r11", "memory");
    known = refused ? 2 : 1;
    __atomic_store_n(&asked, known, __ATOMIC_RELAXED);
  }}
  return known == 1;
}}
{INLINE} void tc_shape_matrices(long *known, long code, const unsigned char *shape)
{{
  if (*known == code) return;
  __asm__ volatile("ldtilecfg %0" : : "m"(*(const unsigned char (*)[{_BYTES}])shape));
  *known = code;
}}
static void tc_free_matrices(long *known)
{{
  if (*known) __asm__ volatile("tilerelease");
}}
#define tc_matrix_zero(t) __asm__ volatile("tilezero %%tmm" #t : : )
#define tc_matrix_load(t, from, apart) \\
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(from), "r"((long)(apart)) : "memory")
#define tc_matrix_store(t, to, apart) \\
  __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(to), "r"((long)(apart)) : "memory")
"""


def matrix_functions(text: str) -> str:
    """What a text calls to use registers for matrices: nothing where the compiler knows no such instructions."""
    if "tc_matrix_" not in text:
        return ""
    used = [name for name in _NAMES if f"tc_matrix_product_{name}(" in text]
    present = "".join(
        f"#define tc_matrix_product_{name}(sum, rows, columns) \\\n"
        f'  __asm__ volatile("tdp{name} %%tmm" #columns ", %%tmm" #rows ", %%tmm" #sum : : )\n'
        for name in used
    )
    absent = "".join(f"#define tc_matrix_product_{name}(sum, rows, columns)\n" for name in used)
    condition = "defined(__linux__) && defined(__AMX_TILE__) && defined(__AMX_INT8__) && defined(__AMX_BF16__)"
    return f"#if {condition}\n{_PRESENT}{present}#else\n{_ABSENT}{absent}#endif\n"
