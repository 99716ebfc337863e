"""Random sums of products, large enough for what compilers do about them: products of matrices of any rank, batched and
transposed, convolutions with strides, dilations and padding, over all types."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tcomp.fuzzing.programs.choices import Choices
from tcomp.fuzzing.programs.programs import largest_element
from tcomp.fuzzing.programs.statements import Draft
from tcomp.fuzzing.programs.subscripts import Known
from tcomp.grammar.ranges.ranges import Box
from tcomp.values.operators import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, INT8, INT16, INT32, INT64, UINT8, DType

_BATCHES = (2, 3, 1, 5)
_ROWS = (64, 17, 8, 1, 33, 5, 70, 13, 16, 100, 31, 129, 200, 2)
_COLUMNS = (64, 16, 17, 1, 70, 3, 100, 33, 31, 40, 128, 8, 200, 257)
_STEPS = (16, 64, 3, 33, 100, 65, 128, 8, 17, 200, 300, 1, 0)
_WINDOW = (3, 2, 1, 5)
_LONG = (64, 128, 72, 136, 65, 100, 192, 200, 144, 160)
"""Extents of matrices that several warps multiply together."""

_NAMES = ("N", "M", "K", "P", "Q", "R", "U", "V")

_TYPES: Sequence[tuple[DType, DType]] = (
    *[(FLOAT32, FLOAT32)] * 6,
    *[(FLOAT64, FLOAT64), (INT32, INT32), (INT8, INT8), (UINT8, INT8), (FLOAT16, FLOAT16), (BFLOAT16, BFLOAT16)] * 2,
    *[(FLOAT16, FLOAT32), (FLOAT32, BFLOAT16), (INT64, INT64), (INT16, INT16), (INT8, FLOAT32), (UINT8, UINT8)],
)

_SHORT: Sequence[tuple[DType, DType]] = ((FLOAT16, FLOAT16), (BFLOAT16, BFLOAT16))


@dataclass(frozen=True, slots=True)
class Product:
    """A statement that sums products; ``inputs`` are its operands, ``parameters`` and ``sizes`` what declares them."""

    draft: Draft
    parameters: tuple[str, ...]
    sizes: Mapping[str, int]
    inputs: Mapping[str, Known]


@dataclass(slots=True)
class _Operand:
    """A factor on its way: for each dimension its extent, its text in the declaration, and its subscript."""

    extents: list[int] = field(default_factory=list)
    dims: list[str] = field(default_factory=list)
    subscripts: list[str] = field(default_factory=list)
    padded: bool = False

    def add(self, extent: int, dim: str, subscript: str) -> None:
        """One more dimension, innermost."""
        self.extents.append(extent)
        self.dims.append(dim)
        self.subscripts.append(subscript)

    def reordered(self, order: Sequence[int]) -> None:
        """Another order of the dimensions."""
        self.extents = [self.extents[o] for o in order]
        self.dims = [self.dims[o] for o in order]
        self.subscripts = [self.subscripts[o] for o in order]


class Products:
    """Makes products of at most so many multiply-adds; of long ``matrices`` of 16-bit floats, where asked.

    Operands are of one type if that is given.
    """

    def __init__(self, choices: Choices, points: int, matrices: bool = False, operands: DType | None = None) -> None:
        self._choices = choices
        self._matrices = matrices
        self._types = (_SHORT if matrices else _TYPES) if operands is None else [(operands, operands)]
        self._points = points
        self._sizes: dict[str, int] = {}
        self._extents: dict[str, int] = {}

    def product(self) -> Product:
        """A product: the indices of its bundles, who reads them and in which order."""
        pick, chance = self._choices.pick, self._choices.chance
        batch = self._bundle("b", pick((0, 0, 0, 0, 1)), _BATCHES)
        if self._matrices:
            rows, columns, steps = (self._bundle(letter, 1, _LONG) for letter in "mnk")
            window: list[str] = []
        else:
            rows = self._bundle("m", pick((1, 1, 1, 1, 2, 0)), _ROWS)
            columns = self._bundle("n", pick((1, 1, 1, 1, 2, 0)), _COLUMNS)
            steps = self._bundle("k", pick((1, 1, 1, 2)), _STEPS)
            window = self._bundle("w", pick((0, 0, 1, 2)) if rows else 0, _WINDOW)
        self._shrink()
        names = {index: self._named(index) for index in (*batch, *columns, *steps, *window[len(rows) :])}
        first, second = _Operand(), _Operand()
        clauses: list[str] = []
        for index in batch:
            first.add(self._extents[index], names[index], index)
        for position, index in enumerate(rows):
            if position < len(window):
                clauses += self._slide(first, index, window[position])
            else:
                first.add(self._extents[index], self._named(index), index)
        for index in (*steps, *window[len(rows) :]):
            first.add(self._extents[index], names[index], index)
        for index in (*batch, *steps, *window, *columns):
            second.add(self._extents[index], names.get(index) or self._named(index), index)
        return self._finished(first, second, [*batch, *rows, *columns], clauses, explicit=chance(30))

    def _bundle(self, letter: str, count: int, extents: Sequence[int]) -> list[str]:
        names = [f"{letter}{number}" for number in range(count)]
        self._extents |= {name: self._choices.pick(extents) for name in names}
        return names

    def _shrink(self) -> None:
        """Halve the longest extents until there are few enough points."""
        while math.prod(self._extents.values()) > self._points:
            longest = max(self._extents, key=lambda name: self._extents[name])
            self._extents[longest] = (self._extents[longest] + 1) // 2

    def _named(self, index: str) -> str:
        """A size symbol for the extent of an index: a new one, or one of equal value."""
        return self._symbol(self._extents[index])

    def _symbol(self, value: int) -> str:
        equal = [name for name, known in self._sizes.items() if known == value]
        if (equal and self._choices.chance(50)) or len(self._sizes) == len(_NAMES):
            return equal[0] if equal else str(value)
        name = _NAMES[len(self._sizes)]
        self._sizes[name] = value
        return name

    def _slide(self, operand: _Operand, row: str, window: str) -> list[str]:
        """A dimension that a window slides along; the clauses say how often it is laid on, and how long it is."""
        stride, dilation = self._choices.pick((1, 1, 2, 3)), self._choices.pick((1, 1, 1, 2))
        rows, taps = self._extents[row], self._extents[window]
        margin = self._choices.integer(1, 2) if self._choices.chance(30) else 0
        reach = max(0, stride * (rows - 1) + dilation * (taps - 1) + 1 - 2 * margin)
        start = row if stride == 1 else f"{stride}*{row}"
        tap = window if dilation == 1 else f"{dilation}*{window}"
        operand.add(reach, self._symbol(reach), f"{start} + {tap}{f' - {margin}' if margin else ''}")
        operand.padded = operand.padded or margin > 0
        return [f"{row} in 0:{rows}", f"{window} in 0:{taps}"]

    def _finished(
        self, first: _Operand, second: _Operand, target: list[str], clauses: list[str], explicit: bool
    ) -> Product:
        choices = self._choices
        dtypes = choices.pick(self._types)
        for operand in (first, second):
            if choices.chance(50):
                operand.reordered(self._order(len(operand.dims)))
            if self._matrices and dtypes[0].bits == 8 and choices.chance(75):
                # Instructions for matrices of bytes turn none: their steps must lie together.
                operand.reordered(sorted(range(len(operand.dims)), key=lambda d: operand.subscripts[d].startswith("k")))
        if choices.chance(25):
            target = [target[o] for o in self._order(len(target))]
        factors = [
            self._factor(name, dtype, operand)
            for name, dtype, operand in zip("AB", dtypes, (first, second), strict=True)
        ]
        if choices.chance(30):
            factors.reverse()
        if explicit:
            stated = {clause.partition(" ")[0] for clause in clauses}
            clauses = [*clauses, *(f"{i} in 0:{e}" for i, e in self._extents.items() if i not in stated)]
        accumulates = choices.chance(12) and dtypes[0] == dtypes[1] and dtypes[0] in (FLOAT32, FLOAT64, INT32)
        extents = ",".join(str(self._extents[i]) for i in target)
        annotation = f"{dtypes[0]}({extents}) T0" if accumulates and target else ""
        access = f"T0({', '.join(target)})" if target else "T0"
        text = f"{access} {'+=' if annotation else '+=!'} {' * '.join(factors)}"
        if clauses:
            text += f" where {', '.join(clauses)}"
        operands = list(zip("AB", dtypes, (first, second), strict=True))
        return Product(
            Draft(text, "T0", annotation),
            tuple(f"{d}({','.join(o.dims)}) {n}" if o.dims else f"{d} {n}" for n, d, o in operands),
            self._sizes,
            {n: Known(n, d, Box((0,) * len(o.dims), tuple(o.extents)), largest_element(d)) for n, d, o in operands},
        )

    def _order(self, count: int) -> list[int]:
        left = list(range(count))
        return [left.pop(self._choices.integer(0, len(left) - 1)) for _ in range(count)]

    def _factor(self, name: str, dtype: DType, operand: _Operand) -> str:
        read = f"{name}({', '.join(operand.subscripts)})" if operand.subscripts else name
        if operand.padded:
            zero = "0" if dtype in (FLOAT32, INT32, FLOAT64) else f"{dtype}(0)"
            read = f"constant_exterior({name}, {zero})({', '.join(operand.subscripts)})"
        wider = "float" if dtype.is_short_float else {INT8: "int32", UINT8: "int32", INT16: "int32"}.get(dtype)
        # Sums of the type of short operands are no instruction's.
        return f"{wider}({read})" if wider and self._choices.chance(90 if self._matrices else 60) else read
