"""Random programs that the front end accepts, with sizes and data on which every correct compiler gives equal results.

A program grows statement by statement.  Each is made from what is known of the tensors so far and then shown to the
front end: what that refuses is dropped and counted, and what it says about types, extents and ranges is what the next
statement starts from.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tcomp.errors import TcompError
from tcomp.fuzzing.programs.blocks import Blocks
from tcomp.fuzzing.programs.choices import Choices
from tcomp.fuzzing.programs.exactness import bounds_of, is_exact
from tcomp.fuzzing.programs.products import Products
from tcomp.fuzzing.programs.programs import Program, largest_element
from tcomp.fuzzing.programs.statements import Draft, Drafter
from tcomp.fuzzing.programs.subscripts import Known
from tcomp.grammar import define, parse
from tcomp.grammar.ranges.ranges import Box, Ranges, infer
from tcomp.grammar.tree.function import Function
from tcomp.values.operators import (
    BFLOAT16,
    BOOL,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    DType,
)

MOST_STATEMENTS = 6

PRODUCTS = 20
"""So many programs of a hundred begin with a sum of products."""

BLOCKS = 6
"""So many statements of a hundred are blocks of steps."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How large programs are.

    ``points`` are the most that a statement's iteration domain may have, and the most elements of a tensor, in most
    programs; ``large_points`` are the same in a few, since a CPU kernel that does not much work stays on one thread.
    Some products have ``product_points`` multiply-adds, since panels are packed, and reductions cut, only where that
    pays.  With ``floats`` the first input has a type of floats.  With ``matrices`` each begins with a product of
    matrices of 16-bit floats, of which some have ``matrix_points`` multiply-adds: enough for four warps together.
    With ``operands`` each begins with a product of elements of that type.
    """

    points: int = 40_000
    large_points: int = 400_000
    product_points: int = 1_500_000
    matrix_points: int = 8_000_000
    floats: bool = False
    matrices: bool = False
    operands: DType | None = None


_TYPES = (
    *[FLOAT32] * 6, INT32, FLOAT64, *[INT32] * 2, FLOAT16, BFLOAT16, BOOL, INT8, UINT8, INT16, UINT16, INT64, UINT32,
    UINT64,
)  # fmt: skip
_EXTENTS = (2, 3, 1, 4, 5, 7, 8, 13, 16, 17, 11, 6, 31, 37, 64, 70, 101, 0)
_LARGE_EXTENTS = (128, 200, 257, 64, 500)


@dataclass(slots=True)
class Attempts:
    """What became of drafted statements: "accepted", "refused" by the front end, or in our own view "inexact" or
    "large"."""

    counts: Counter[str] = field(default_factory=Counter)


def generate(choices: Choices, attempts: Attempts | None = None, scale: Scale | None = None) -> Program:
    """A program of one to six statements; ``attempts`` is told what was tried."""
    return _Builder(choices, attempts or Attempts(), scale or Scale()).build()


@dataclass(frozen=True, slots=True)
class _Text:
    """A program on its way."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    lines: tuple[str, ...]

    def __str__(self) -> str:
        statements = "\n  ".join(self.lines)
        return f"def f({', '.join(self.inputs)}) -> ({', '.join(self.outputs)}) {{\n  {statements}\n}}"


class _Builder:
    def __init__(self, choices: Choices, attempts: Attempts, scale: Scale) -> None:
        self.choices = choices
        self.attempts = attempts
        self.scale = scale
        self.points = scale.large_points if choices.chance(6) else scale.points
        self.sizes: dict[str, int] = {}
        self.parameters: list[str] = []
        self.inputs: dict[str, Known] = {}
        self.constants: list[str] = []
        self.tensors: dict[str, Known] = {}
        self.drafts: list[Draft] = []
        self.checked = 0
        self.annotations: dict[str, str] = {}

    def build(self) -> Program:
        """The program."""
        if self.scale.matrices or self.scale.operands is not None or self.choices.chance(PRODUCTS):
            self._begin_with_product()
        else:
            self._declare_inputs()
        wanted = max(len(self.drafts), self.choices.integer(1, MOST_STATEMENTS))
        for _ in range(2 * wanted + 2 if wanted > len(self.drafts) else 0):
            drafter = Drafter(self.choices, self.sizes, self.inputs, self.tensors, self.points // 2)
            drafts = Blocks(drafter).drafts() if self.choices.chance(BLOCKS) else drafter.drafts()
            if len(self.drafts) + len(drafts) <= MOST_STATEMENTS:
                self._try(drafts)
            if len(self.drafts) >= wanted:
                break
        if not self.drafts:
            self._try([Draft("T0(i0) = 1 where i0 in 0:3", "T0", "")])
        return self._finish()

    def _begin_with_product(self) -> None:
        """A sum of products as the first statement."""
        rest = self.choices.pick((self.scale.large_points, self.scale.product_points, self.scale.points))
        self.points = self.scale.matrix_points if self.scale.matrices else rest
        product = Products(self.choices, self.points, self.scale.matrices, self.scale.operands).product()
        self.sizes |= product.sizes
        self.parameters += product.parameters
        self.inputs |= product.inputs
        self._try([product.draft])
        self.points = rest

    def _declare_inputs(self) -> None:
        for name in ("N", "M", "K", "P")[: self.choices.integer(1, 4)]:
            large = self.points > self.scale.points and self.choices.chance(70)
            self.sizes[name] = self.choices.pick(_LARGE_EXTENTS if large else _EXTENTS)
        symbols = list(self.sizes)
        if self.choices.chance(25):
            self.sizes["S"] = self.choices.pick((2, 1, 3, 0, -1, 7))
            self.constants.append("S")
        for number in range(max(len(symbols), self.choices.integer(1, 4))):
            first = symbols[number] if number < len(symbols) else None
            self._declare_input("ABCDEF"[number], first, symbols)
        for constant in self.constants:
            default = f" = {self.sizes[constant]}" if self.choices.chance(40) else ""
            self.parameters.append(f"const int {constant}{default}")

    def _declare_input(self, name: str, first: str | None, symbols: Sequence[str]) -> None:
        """Every size symbol is a dimension of some input; other dimensions may be expressions of symbols."""
        dims = [first] if first else []
        for _ in range(self.choices.integer(0, 3)):
            symbol, other = self.choices.pick(symbols), self.choices.pick(symbols)
            dims.append(self.choices.pick([symbol, symbol, symbol, symbol, f"2*{symbol}", f"{symbol}+{other}", "3"]))
        extent = [eval(d, {}, self.sizes) for d in dims]
        while math.prod(extent) > self.points:
            dims.pop()
            extent.pop()
        dtype = FLOAT64 if self.scale.floats and not self.inputs else self.choices.pick(_TYPES)
        self.parameters.append(f"{dtype}({','.join(dims)}) {name}" if dims else f"{dtype} {name}")
        self.inputs[name] = Known(name, dtype, Box((0,) * len(extent), tuple(extent)), largest_element(dtype))

    def _try(self, drafts: Sequence[Draft]) -> None:
        """Add statements if the front end takes them and their results are exact."""
        added = [*self.drafts, *drafts]
        annotations = self.annotations | {d.target: d.annotation for d in drafts if d.annotation}
        names = list(dict.fromkeys(name for draft in added for name in draft.targets))
        try:
            function, ranges = self._check([annotations.get(n, n) for n in names], added)
        except TcompError:
            self.attempts.counts["refused"] += 1
            return
        if self._is_large(ranges, range(self.checked, len(function.statements))):
            self.attempts.counts["large"] += 1
            return
        bounds = bounds_of(function, ranges, self.sizes)
        if bounds is None:
            self.attempts.counts["inexact"] += 1
            return
        self.attempts.counts["accepted"] += 1
        self.drafts, self.annotations, self.checked = added, annotations, len(function.statements)
        for name in dict.fromkeys(name for draft in drafts for name in draft.targets):
            self.tensors[name] = Known(name, function.tensors[name].dtype, ranges.boxes[name], max(3.0, bounds[name]))

    def _is_large(self, ranges: Ranges, numbers: range) -> bool:
        hulls = [ranges.domains[number].hull for number in numbers]
        points = [math.prod(max(0, high - low + 1) for low, high in hull.values()) for hull in hulls]
        elements = [math.prod(box.extent) for box in ranges.boxes.values()]
        return max(*points, *elements) > self.points

    def _text(self, outputs: Sequence[str], drafts: Sequence[Draft]) -> str:
        return str(_Text(tuple(self.parameters), tuple(outputs), tuple(d.text for d in drafts)))

    def _check(self, outputs: Sequence[str], drafts: Sequence[Draft]) -> tuple[Function, Ranges]:
        function = define(self._text(outputs, drafts))["f"]
        return function, infer(function, self._values(function))

    def _values(self, function: Function) -> dict[str, int]:
        return {name: self.sizes[name] for name in (*function.sizes, *self.constants)}

    def _finish(self) -> Program:
        names = list(dict.fromkeys(name for draft in self.drafts for name in draft.targets))
        kept = [n for n in names if n in self.annotations or n == names[-1] or not self.choices.chance(60)]
        seed = self.choices.integer(0, 1000)
        for chosen in (kept, names):
            outputs = [self.annotations.get(n, n) for n in chosen]
            try:
                function, ranges = self._check(outputs, self.drafts)
            except TcompError:
                continue
            (definition,) = parse(self._text(outputs, self.drafts))
            sizes = self._values(function)
            halves = self.choices.chance(60) and is_exact(function, ranges, sizes, bits=1)
            return Program(definition, sizes, seed, bits=int(halves))
        raise AssertionError("the front end takes back what it accepted")
