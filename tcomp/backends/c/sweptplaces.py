"""Where sweeps that run several steps at a time keep what: elements in memory, and vectors of lanes for each pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tcomp.backends.c.vectors.types import vector_type
from tcomp.backends.dialect import C_STORAGE_TYPES, mangle
from tcomp.grammar.tree.forms import to_form
from tcomp.grammar.tree.function import Expr
from tcomp.model.stepwise.pieces import Pieces, Sweeps, SweptRead
from tcomp.model.terms.storages import Storage
from tcomp.values.operators import DType

_ALIGNMENT = 64


@dataclass(frozen=True)
class SweepPlaces:
    """The places of a block whose ``sweeps`` run in lanes."""

    sweeps: Sweeps
    pieces: Pieces

    @property
    def vectors(self) -> int:
        """How many vectors hold all lanes."""
        return self.sweeps.steps // self.sweeps.lanes

    @property
    def storage(self) -> Storage:
        """Where the target lies."""
        return self.pieces.storages[self.sweeps.target]

    @property
    def dtype(self) -> DType:
        """The type of all elements."""
        return self.storage.dtype

    @property
    def kind(self) -> str:
        """A vector."""
        return vector_type(self.dtype, self.sweeps.lanes)

    @property
    def element(self) -> str:
        """The C type of an element."""
        return C_STORAGE_TYPES[self.dtype.name]

    @property
    def own(self) -> list[SweptRead]:
        """The reads of the target."""
        return [read for read in self.sweeps.reads if read.of_target]

    @cached_property
    def fields(self) -> list[SweptRead]:
        """The reads of other tensors."""
        return [read for read in self.sweeps.reads if not read.of_target]

    @property
    def rows(self) -> tuple[int, int]:
        """The rows of the target that are touched."""
        away = [read.row for read in self.own]
        low, high = self.sweeps.rows
        return low + min(0, *away), high + max(0, *away)

    @property
    def columns(self) -> tuple[int, int]:
        """The columns of the target that are touched."""
        away = [read.column for read in self.own]
        low, high = self.sweeps.columns
        return low + min(0, *away), high + max(0, *away)

    @property
    def width(self) -> int:
        """How many columns these are."""
        return self.columns[1] - self.columns[0]

    @property
    def moments(self) -> int:
        """How many moments a pass has."""
        return self.width + self.sweeps.column_lag * self.sweeps.steps

    @property
    def passes(self) -> int:
        """How many passes all rows take."""
        return self.rows[1] - self.rows[0] + self.sweeps.row_lag * (self.sweeps.steps - 1)

    @property
    def is_shared(self) -> bool:
        """Whether fronts have several tiles."""
        return self.sweeps.rows_of_tile < self.passes

    @property
    def _reach(self) -> int:
        return max(abs(read.column) for read in self.own)

    @property
    def away(self) -> int:
        """How many places to the left of what it overwrites a pass lies."""
        return self._reach + self.sweeps.column_lag + 1

    @property
    def _row(self) -> int:
        """Vectors of what is kept of one pass, and of those that overwrite it."""
        turns = -(-self.sweeps.rows_of_tile // self.sweeps.row_lag) + 1
        return self._reach + self.sweeps.column_lag + self.moments + self._reach + self.away * turns

    @property
    def start(self) -> int:
        """Where the passes before the first one of a tile begin."""
        return self._row - self.moments - self._reach

    def own_bytes(self) -> int:
        """What a thread needs for itself."""
        return self.bytes_of_pass * self.sweeps.row_lag * (2 + len(self.fields))

    @property
    def bytes_of_pass(self) -> int:
        """What is kept of all lanes for one pass."""
        size = self._row * self.sweeps.steps * self.dtype.itemsize
        return -(-size // _ALIGNMENT) * _ALIGNMENT

    def memory(self, row: str, column: str) -> str:
        """An element of the target."""
        return _element(self.sweeps.target, self.storage, self.sweeps.dims, (0, 0), row, column)

    def of_field(self, read: SweptRead, row: str, column: str) -> str:
        """An element of another tensor, for an instance."""
        return _element(read.read.tensor, self.pieces.storages[read.read.tensor], read.dims, read.places, row, column)


def constant(subscript: Expr, sizes: Mapping[str, int]) -> int:
    """The number that a subscript is."""
    form = to_form(subscript, sizes)
    assert form is not None and not form.terms, "the subscript is a number"
    return form.constant


def _element(
    tensor: str, storage: Storage, dims: tuple[int, int], places: Sequence[int], row: str, column: str
) -> str:  # fmt: skip
    """An element of a tensor: that of a row and a column, at the constants of its subscripts."""
    away = sum((p - o) * s for p, o, s in zip(places, storage.box.origin, storage.strides, strict=True))
    terms = [f"({text}) * {storage.strides[d]}L" for d, text in zip(dims, (row, column), strict=True) if d >= 0]
    return f"{mangle(tensor)}[{' + '.join(terms)} + {away}L]".replace("+ -", "- ")
