"""The instructions of NVIDIA's devices that multiply small matrices: one row each.

A *warpgroup*, four warps, multiplies 64 rows by up to 256 columns with one instruction, which reads both operands from
shared memory by itself and runs while threads go on; the others are a warp's, which fetches operands.

All leave a 16 x 8 result in the lanes of a warp alike: lane ``4 g + t`` has the rows ``g`` and ``g + 8`` and the
columns ``2 t`` and ``2 t + 1``.  A *word* is what a lane has of a row of an operand at a time: word ``t + 4 q`` of the
steps, for q from 0 on (PTX ISA, "Matrix multiply-accumulate operation using mma instruction").
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

ROWS, COLUMNS = 16, 8
"""Rows and columns of a result."""

LANES_OF_ROWS, LANES_OF_COLUMNS = 8, 4
"""How the lanes of a warp share the rows and the columns of a result."""

GROUP_WARPS = 4
"""Warps of a warpgroup: each has 16 of its 64 rows."""

GROUP_COLUMNS, MOST_GROUP_COLUMNS = 64, 256
"""Columns that a warpgroup multiplies come in multiples of the one, up to the other."""

GROUP_ROW_BYTES = 128
"""Steps of a tile for a warpgroup come in multiples of so many bytes: a row of an operand in shared memory."""

MOST_SHORT_STEPS = 128
"""Steps after which sums of floats of 8 bits, of 14 bits, leave an instruction at the latest, as bounds have it."""

FETCHED_BYTES = 16
"""What a lane fetches of a row for its warp: an eighth of a matrix of 8 x 16 bytes (``ldmatrix``)."""


@dataclass(frozen=True, slots=True)
class Atom:
    """An instruction: products of two operands of a ``kind`` over so many ``steps``, added to ``sums``.

    Where columns are of another kind than rows, that is ``other``.  A word holds ``together`` neighbours along the
    steps.  A tile has ``tile`` steps where there are as many.  ``rate`` is how many times as fast as those of halves
    its products are; ``least`` is the first architecture.  ``math`` is the option that asks for it, where results
    differ from those of single products.  Where it keeps fewer bits of sums than a float has, or cuts off too often,
    sums ``leave`` it after each tile, and are added as single floats are.  So many ``warps`` run it together.
    """

    name: str
    kind: str
    sums: str
    steps: int
    together: int
    tile: int
    rate: float
    least: int = 80
    math: str = ""
    leave: bool = False
    warps: int = 1
    other: str = ""

    @property
    def kinds(self) -> tuple[str, str]:
        """The types of the operands that have the rows and the columns."""
        return self.kind, self.other or self.kind

    @property
    def letters(self) -> str:
        """The kinds of its operands as PTX has them, in a name: ``e4m3``, ``s8_u8``."""
        return "_".join(self.name.split(".")[2:])

    def kind_of(self, side: str) -> str:
        """The type of the operand of a side, "row" or "column"."""
        return self.kinds[side == "column"]

    @property
    def in_groups(self) -> bool:
        """Whether a warpgroup runs it, while its threads go on."""
        return self.warps == GROUP_WARPS

    @property
    def granule(self) -> int:
        """Steps of a tile come in multiples of it."""
        return GROUP_ROW_BYTES // self.itemsize if self.in_groups else self.steps

    @property
    def itemsize(self) -> int:
        """Bytes of an element of an operand."""
        return self.word_bytes // self.together

    @property
    def word_bytes(self) -> int:
        """Bytes of a word."""
        return 8 if self.kind == "float64" else 4

    @property
    def sums_kept(self) -> int:
        """How many sums a lane has of each result: those of a tile beside those of all tiles, where these leave."""
        return 2 if self.leave else 1

    @property
    def row_words(self) -> int:
        """Words of the first operand that a lane has."""
        return self.steps // self.together // LANES_OF_COLUMNS * (ROWS // LANES_OF_ROWS)

    @property
    def column_words(self) -> int:
        """Words of the second operand that a lane has."""
        return self.steps // self.together // LANES_OF_COLUMNS

    @property
    def chunk(self) -> int:
        """Elements that a lane fetches of a row for its warp."""
        return FETCHED_BYTES // self.itemsize


_BYTES = {"s8": "int8", "u8": "uint8"}
_EIGHTHS = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}


def _of_bytes() -> Iterator[Atom]:
    """Instructions for operands of one byte, each of either kind of its family: by warpgroups, then by single warps.

    Single warps of ``sm_90`` have none for floats of 8 bits of their own: each is two of those for halves.
    """
    for warps, name, rate, tile in ((GROUP_WARPS, "wgmma.m64k32", 3.2, 128), (1, "mma.m16n8k32", 2.0, 64)):
        for family, sums, short in ((_BYTES, "int32", False), (_EIGHTHS, "float32", True)):
            for (row, kind), (column, other) in itertools.product(family.items(), repeat=2):
                yield Atom(
                    f"{name}.{row}" if row == column else f"{name}.{row}.{column}", kind, sums, 32, 4, tile, rate,
                    least=90 if warps > 1 else 89 if short else 80, leave=short, warps=warps, other=other,
                )  # fmt: skip


ATOMS = (
    Atom("wgmma.m64k16.f16", "float16", "float32", 16, 2, 64, 1.6, least=90, warps=GROUP_WARPS),
    Atom("wgmma.m64k16.bf16", "bfloat16", "float32", 16, 2, 64, 1.6, least=90, warps=GROUP_WARPS),
    Atom("mma.m16n8k16.f16", "float16", "float32", 16, 2, 32, 1.0),
    Atom("mma.m16n8k16.bf16", "bfloat16", "float32", 16, 2, 32, 1.0),
    *_of_bytes(),
    Atom("mma.m16n8k8.tf32", "float32", "float32", 8, 1, 32, 0.5, math="tf32"),
    Atom("mma.m16n8k8.tf32x3", "float32", "float32", 8, 1, 16, 0.16, math="tf32x3", leave=True),
    Atom("mma.m16n8k16.f64", "float64", "float64", 16, 1, 16, 0.07),
)
"""Every instruction that kernels may use."""

BY_NAME = {atom.name: atom for atom in ATOMS}
