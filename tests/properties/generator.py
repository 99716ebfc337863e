"""Random programs that the front end accepts, with sizes and data on which every correct compiler gives equal results.

A program grows statement by statement.  Each is made from what is known of the tensors so far and then shown to the
front end: what that refuses is dropped and counted, and what it says about types, extents and ranges is what the next
statement starts from.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tcomp.errors import TcompError
from tcomp.evaluation import numpy_dtype
from tcomp.grammar import define
from tcomp.grammar.function import Function, Index
from tcomp.grammar.ranges import Box, Ranges, infer
from tcomp.operators import (
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
from tests.properties.choices import Choices
from tests.properties.statements import Draft, Drafter
from tests.properties.subscripts import Known
from tests.properties.values import exact_limit, stored_bound

Array = np.ndarray[Any, np.dtype[Any]]

POINTS = 40_000
"""Most points that a statement's iteration domain may have."""

_TYPES = (
    *[FLOAT32] * 6, INT32, FLOAT64, *[INT32] * 2, FLOAT16, BFLOAT16, BOOL, INT8, UINT8, INT16, UINT16, INT64, UINT32,
    UINT64,
)  # fmt: skip
_EXTENTS = (2, 3, 1, 4, 5, 7, 8, 13, 16, 17, 11, 6, 31, 37, 64, 70, 101, 0)


@dataclass(frozen=True, slots=True)
class Line:
    """A statement of a program, with the tensors that it writes and reads."""

    text: str
    target: str
    reads: frozenset[str]


@dataclass(frozen=True, slots=True)
class Program:
    """One ``def f``, its arguments in order, and the arrays that outputs start from, where their content is read."""

    head: str
    results: tuple[str, ...]
    lines: tuple[Line, ...]
    sizes: Mapping[str, int]
    arguments: tuple[Array | int, ...]
    contents: Mapping[str, Array]

    @property
    def text(self) -> str:
        """The program text."""
        body = "\n  ".join(line.text for line in self.lines)
        return f"def f({self.head}) -> ({', '.join(self.results)}) {{\n  {body}\n}}"

    @property
    def function(self) -> Function:
        """The checked program."""
        return define(self.text)["f"]

    @property
    def values(self) -> dict[str, int]:
        """Every size symbol of the checked program and every ``const`` parameter."""
        function = self.function
        constants = [t.name for t in function.inputs if t.role == "const"]
        return {name: self.sizes[name] for name in (*function.sizes, *constants)}

    def __repr__(self) -> str:
        return f"{self.text}\nsizes: {dict(self.sizes)}"


@dataclass(slots=True)
class Statistics:
    """What became of statements: "accepted", "refused" by the front end, or "inexact" or "large" in our own view."""

    statements: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)


STATISTICS = Statistics()


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Programs of one to six statements."""
    choices = Choices(lambda low, high: draw(st.integers(low, high)))
    return _Builder(choices).build()


class _Builder:
    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.sizes: dict[str, int] = {}
        self.parameters: list[str] = []
        self.inputs: dict[str, Known] = {}
        self.constants: list[str] = []
        self.tensors: dict[str, Known] = {}
        self.lines: list[Line] = []
        self.annotations: dict[str, str] = {}

    def build(self) -> Program:
        self._declare_inputs()
        wanted = self.choices.integer(1, 6)
        for _ in range(2 * wanted + 2):
            drafter = Drafter(self.choices, self.sizes, tuple(self.constants), self.inputs, self.tensors)
            self._try(drafter.drafts())
            if len(self.lines) >= wanted:
                break
        if not self.lines:
            self._try([Draft("T0(i0) = 1 where i0 in 0:3", "T0", frozenset(), 1.0, None, True, "")])
        return self._finish()

    def _declare_inputs(self) -> None:
        for name in ("N", "M", "K", "P")[: self.choices.integer(1, 4)]:
            self.sizes[name] = self.choices.pick(_EXTENTS)
        symbols = list(self.sizes)
        if self.choices.chance(25):
            self.sizes["S"] = self.choices.integer(1, 3)
            self.constants.append("S")
        for number in range(max(len(symbols), self.choices.integer(1, 4))):
            first = symbols[number] if number < len(symbols) else None
            self._declare_input("ABCDEF"[number], first, symbols)
        self.parameters += [f"const int {c}" for c in self.constants]

    def _declare_input(self, name: str, first: str | None, symbols: Sequence[str]) -> None:
        """Every size symbol is a dimension of some input; other dimensions may be expressions of symbols."""
        dims = [first] if first else []
        for _ in range(self.choices.integer(0, 3)):
            symbol, other = self.choices.pick(symbols), self.choices.pick(symbols)
            dims.append(self.choices.pick([symbol, symbol, symbol, symbol, f"2*{symbol}", f"{symbol}+{other}", "3"]))
        extent = [eval(d, {}, self.sizes) for d in dims]
        while math.prod(extent) > POINTS:
            dims.pop()
            extent.pop()
        dtype = self.choices.pick(_TYPES)
        self.parameters.append(f"{dtype}({','.join(dims)}) {name}" if dims else f"{dtype} {name}")
        bound = 7 if dtype.kind == "uint" else 3
        self.inputs[name] = Known(name, dtype, Box((0,) * len(extent), tuple(extent)), bound)

    def _try(self, drafts: Sequence[Draft]) -> None:
        """Add statements if the front end takes them and their results are exact."""
        new = [Line(d.text, d.target, d.reads) for d in drafts]
        lines = [*self.lines, *new]
        annotations = dict(self.annotations)
        for draft in drafts:
            if draft.annotation:
                annotations[draft.target] = draft.annotation
        names = list(dict.fromkeys(line.target for line in lines))
        try:
            function, ranges = self._check(names, lines, annotations)
        except TcompError as error:
            STATISTICS.statements["refused"] += 1
            STATISTICS.refusals[re.sub(r"[`'].*?[`']|\d+|\b[A-Z]\d*\(.*\)", "_", error.args[0].split("\n")[0])] += 1
            return
        known = dict(self.tensors)
        for number, draft in enumerate(drafts, start=len(self.lines)):
            tensor = self._outcome(draft, function, ranges, number, known.get(draft.target))
            if tensor is None:
                return
            known[draft.target] = tensor
        STATISTICS.statements["accepted"] += 1
        self.lines, self.annotations, self.tensors = lines, annotations, known

    def _check(
        self, names: Sequence[str], lines: Sequence[Line], annotations: Mapping[str, str]
    ) -> tuple[Function, Ranges]:
        results = tuple(annotations.get(n, n) for n in names)
        function = Program(", ".join(self.parameters), results, tuple(lines), self.sizes, (), {}).function
        return function, infer(function, {name: self.sizes[name] for name in (*function.sizes, *self.constants)})

    def _outcome(
        self, draft: Draft, function: Function, ranges: Ranges, number: int, before: Known | None
    ) -> Known | None:
        """What a statement makes of its target; None if it is too large, or a sum could round."""
        statement, hull = function.statements[number], ranges.domains[number].hull
        count = math.prod(max(0, high - low + 1) for low, high in hull.values())
        box = ranges.boxes[draft.target]
        if count > POINTS or math.prod(box.extent) > POINTS:
            STATISTICS.statements["large"] += 1
            return None
        if all(isinstance(s, Index) for s in statement.subscripts):
            elements = statement.reduction_indices
            count = math.prod(max(0, hull[i][1] - hull[i][0] + 1) for i in elements)
        start = before.bound if before is not None else 3.0
        match statement.reduction:
            case "+":
                bound = draft.bound * count + (0 if draft.initialise else start)
            case "*":
                bound = _power(draft.bound, count) * (1 if draft.initialise else max(1.0, start))
            case _:
                bound = draft.bound
        if bound > exact_limit(statement.accumulator):
            STATISTICS.statements["inexact"] += 1
            return None
        dtype = function.tensors[draft.target].dtype
        bound = max(stored_bound(bound, dtype), before.bound if before is not None else 0, 3.0)
        return Known(draft.target, dtype, box, bound)

    def _finish(self) -> Program:
        names = list(dict.fromkeys(line.target for line in self.lines))
        kept = [n for n in names if n in self.annotations or n == names[-1] or not self.choices.chance(60)]
        for outputs in (kept, names):
            try:
                function, ranges = self._check(outputs, self.lines, self.annotations)
            except TcompError:
                continue
            return self._with_data(function, ranges, outputs)
        raise AssertionError("the front end takes back what it accepted")

    def _with_data(self, function: Function, ranges: Ranges, outputs: Sequence[str]) -> Program:
        rng = np.random.default_rng(self.choices.integer(0, 1000))
        arguments: list[Array | int] = []
        for tensor in function.inputs:
            if tensor.role == "const":
                arguments.append(self.sizes[tensor.name])
            else:
                arguments.append(_integers(rng, self.inputs[tensor.name].dtype, self.inputs[tensor.name].box.extent))
        contents = {
            t.name: _integers(rng, t.dtype, ranges.boxes[t.name].extent)
            for t in function.outputs
            if t.name in function.needs_content
        }
        results = tuple(self.annotations.get(n, n) for n in outputs)
        head = ", ".join(self.parameters)
        return Program(head, results, tuple(self.lines), self.sizes, tuple(arguments), contents)


def _power(base: float, exponent: int) -> float:
    """A bound on the product of so many values."""
    if base <= 1 or exponent == 0:
        return 1.0
    return math.inf if exponent * math.log2(base) > 100 else base**exponent


def _integers(rng: np.random.Generator, dtype: DType, extent: tuple[int, ...]) -> Array:
    low, high = {"bool": (0, 2), "uint": (0, 8)}.get(dtype.kind, (-3, 4))
    return np.asarray(rng.integers(low, high, extent)).astype(numpy_dtype(dtype))
