"""Products of matrices by warpgroups: one instruction reads both operands from shared memory, while threads go on."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.backends.gpu.words.spelling import Fetched
from tcomp.backends.gpu.writer import KernelWriter
from tcomp.mapping.gpu.matrices.operands import steps_of_a_row
from tcomp.mapping.gpu.matrices.products import Operand, Product
from tcomp.mapping.machines.atoms import COLUMNS, GROUP_WARPS, ROWS
from tcomp.mapping.machines.gpu import WARP
from tcomp.mapping.plan.layouts import CORE_ROWS, SWIZZLED_ROW

_APART = CORE_ROWS * SWIZZLED_ROW
"""Bytes from eight rows of an operand to the next eight."""


@dataclass(frozen=True, slots=True, eq=False)
class Warpgroups:
    """A product at a phase.  The products of ``flight`` tiles may be under way when its threads go on."""

    writer: KernelWriter
    product: Product
    instance: str
    flight: int

    def write(self, depth: int) -> None:
        """All steps of a tile: 64 rows of each group by all columns, 32 bytes of steps at a time.

        Sums that must leave the instruction after a tile are those of the tile alone, then added to those before.
        """
        writer, product, leave = self.writer, self.product, self.product.atom.leave
        step, i = writer.fresh("step"), writer.fresh("i_atom")
        groups, blocks = product.groups, product.row_blocks
        block = f"thread / {GROUP_WARPS * WARP}" if groups > 1 else "0"
        if blocks > 1:
            turn = i if groups == 1 else f"{groups} * {i}"
            block = turn if groups == 1 else f"({turn} + {block})"
        name = results = writer.locals[product.target.storage].name
        first = f"2 * {i}" if blocks > 1 else "0"
        second = f"2 * {i} + 1" if blocks > 1 else "1"
        assert isinstance(product.row, Operand)
        columns = product.column_blocks * COLUMNS
        if leave:
            name = writer.fresh("tile_sums")
            writer.put(depth, "{")
            depth += 1
            writer.put(depth, f"float {name}[{2 * blocks}][{2 * product.column_blocks}];")
        writer.put(depth, f"tc_wgmma_fence({name});")
        self._loop(depth, step, product.steps)
        inner = depth + 1
        if blocks > 1:
            self._loop(inner, i, blocks)
            inner += 1
        arguments = [f"{name}[{first}]", f"{name}[{second}]", self._rows(block, step), self._columns(step)]
        if leave:
            arguments.append(f"{step} > 0")
        halves = product.atom.itemsize > 1
        turned = f"<{int(product.row.turned)}, {int(product.column.turned)}>" if halves else ""
        writer.put(inner, f"tc_wgmma_{product.atom.letters}_n{columns}{turned}({', '.join(arguments)});")
        writer.at(self.instance)
        for closed in range(inner - 1, depth - 1, -1):
            writer.put(closed, "}")
        writer.put(depth, "tc_wgmma_commit();")
        writer.put(depth, f"tc_wgmma_wait<{self.flight}>({name});")
        if leave:
            self._add(depth, results, name)
            writer.put(depth - 1, "}")

    def _add(self, depth: int, results: str, tile: str) -> None:
        """Add the sums of a tile to those of the tiles before, as single floats are added."""
        writer, product = self.writer, self.product
        row, column = writer.fresh("i"), writer.fresh("j")
        self._loop(depth, row, 2 * product.row_blocks)
        self._loop(depth + 1, column, 2 * product.column_blocks)
        writer.put(depth + 2, f"{results}[{row}][{column}] += {tile}[{row}][{column}];")
        writer.at(self.instance)
        for closed in (depth + 1, depth):
            writer.put(closed, "}")

    def _loop(self, depth: int, iterator: str, trips: int) -> None:
        self.writer.put(depth, "#pragma unroll")
        self.writer.put(depth, f"for (int {iterator} = 0; {iterator} < {trips}; ++{iterator}) {{")

    def _rows(self, block: str, step: str) -> str:
        """The descriptor of 64 rows; of a copy whose steps lie together, they begin 64 rows of a panel further."""
        operand = self.product.row
        assert isinstance(operand, Operand)
        rows = operand.copy.shape[operand.step] if operand.turned else GROUP_WARPS * ROWS
        each = rows * steps_of_a_row(operand.copy)
        start = "" if block == "0" else f"{each} * {f'({block})' if ' ' in block and block[0] != '(' else block} + "
        return self._descriptor(operand, start, step)

    def _columns(self, step: str) -> str:
        """The descriptor of all columns."""
        return self._descriptor(self.product.column, "", step)

    def _descriptor(self, operand: Operand, start: str, step: str) -> str:
        """What the instruction is told of an operand: where it begins, and bytes between panels and groups of rows."""
        fetched: Fetched = next(f for f in self.writer.fetched if f.copy is operand.copy)
        copy, each, length = operand.copy, self.product.atom.steps, steps_of_a_row(operand.copy)
        panel = SWIZZLED_ROW
        if operand.turned:
            further, panel = f"{each * length} * {step}", SWIZZLED_ROW * copy.shape[operand.step]
        elif copy.shape[operand.step] == length:
            further = f"{each} * {step}"
        else:
            many = length // each
            assert copy.swizzle is not None
            further = f"{copy.swizzle.rows(copy.shape) * length} * ({step} / {many}) + {each} * ({step} % {many})"
        return f"tc_descriptor(&{fetched.name}[{start}{further}], {panel}, {_APART})"
