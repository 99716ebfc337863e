"""The catalogue of tensor comprehensions: its programs, small sizes for them, and data on which they are exact.

The catalogue lies beside the project, in ``../shared/corpus``; tests that read it skip where it is absent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tcomp.errors import CompileError, ShapeError, TcompError
from tcomp.grammar.ranges.ranges import Ranges, infer
from tcomp.grammar.tree.function import Binary, Call, Function, Read, Tensor, walk
from tcomp.model.evaluation import numpy_dtype
from tcomp.model.reference import interpret
from tcomp.operation import Operation
from tests.agreement import assert_agrees

CATALOGUE = Path(__file__).parents[1] / ".." / "shared" / "corpus" / "tc_catalogue.json"

_POINTS = 60_000
"""Most points that a statement's iteration domain may have."""
_EXACT_CALLS = {"fmax", "fmin", "fabs", "abs", "relu", "sign", "floor", "ceil", "trunc", "round"}
_LARGEST_EXACT = 1 << 24
"""Integers up to here are exact in float32."""

EXPECTED_ERRORS: dict[int, tuple[type[TcompError], str]] = {
    105: (CompileError, "expected integral type but found float32"),
    107: (CompileError, "Could not infer ranges for free variables"),
    113: (CompileError, "undefined variable foo used here"),
    167: (CompileError, "Free variable m is unconstrained"),
    175: (CompileError, "Could not infer ranges for free variables"),
    182: (CompileError, "Could not infer ranges for free variables"),
    186: (CompileError, "Free variable i is unconstrained"),
    189: (CompileError, "expected integral type but found float32"),
    196: (CompileError, "but does not specify a reduction"),
    # The catalogue expects nothing of these, which the original could not compile either.
    239: (CompileError, "expected 4 dimensions but found 5 dimensions"),
    280: (CompileError, "undefined variable output used here"),
    284: (CompileError, "Free variable n is unconstrained"),
    304: (CompileError, "undefined variable b used here"),
    316: (CompileError, "undefined variable fmaxf used here"),
    318: (CompileError, "undefined variable O2 used here"),
    325: (CompileError, "undefined variable b used here"),
    # The original computes these out of bounds, or an array of negative extent.
    108: (ShapeError, "elements"),
    188: (ShapeError, "extent -4"),
}
"""What a family of programs raises, and part of the message.  CompileError comes at once, ShapeError with sizes."""

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Program:
    """A catalogue entry; programs of one ``family`` are equal up to renaming."""

    number: int
    name: str
    text: str
    family: int
    sizes: Mapping[str, int]
    expect: str

    def __str__(self) -> str:
        return f"{self.number}-{self.name}"


@dataclass(frozen=True, slots=True)
class Case:
    """A program with everything that it takes to run it.

    ``exact`` says that every order of evaluation gives the same result in float32.
    """

    function: Function
    sizes: Mapping[str, int]
    ranges: Ranges
    inputs: Mapping[str, Array]
    contents: Mapping[str, Array]
    expected: Mapping[str, Array]
    exact: bool


def programs() -> list[Program]:
    """The entries that the original's grammar accepts; none where the catalogue is absent."""
    if not CATALOGUE.exists():
        return []
    return [
        Program(
            number, entry["name"], entry["tc"], entry["alpha_class"], (entry["shapes"] or [{}])[0],
            entry.get("expect") or "",
        )
        for number, entry in enumerate(json.loads(CATALOGUE.read_text()))
        if entry["parses"]
    ]  # fmt: skip


def make_case(program: Program, function: Function) -> Case:
    """Sizes, inputs and expected outputs.  Raises ShapeError if no sizes, or no data, suit the program."""
    ranges = small_ranges(program, function)
    last: ShapeError | None = None
    for attempt in range(8):
        rng = np.random.default_rng(attempt)
        exact = _is_exact(function)
        try:
            inputs, contents = _data(function, ranges, rng, exact, attempt)
            expected = interpret(function, inputs, contents)
        except ShapeError as error:
            last = error
            continue
        if exact and attempt < 4 and _largest(function, inputs, contents) >= _LARGEST_EXACT:
            continue
        exact = exact and _largest(function, inputs, contents) < _LARGEST_EXACT
        return Case(function, ranges.sizes, ranges, inputs, contents, expected, exact)
    assert last is not None
    raise last


def small_ranges(program: Program, function: Function) -> Ranges:
    """Ranges for sizes near the catalogue's, scaled down, or invented where it has none.

    Sizes that leave no output empty are preferred.  Raises ShapeError, the first one met, if no sizes that were tried
    suit the program.
    """
    first: ShapeError | None = None
    best: Ranges | None = None
    for sizes in _size_candidates(program, function):
        try:
            ranges = infer(function, sizes)
        except ShapeError as error:
            first = first or error
            continue
        filled = all(0 not in ranges.boxes[t.name].extent for t in function.outputs)
        if filled and _points(ranges) <= _POINTS:
            return ranges
        best = best or ranges
    if best is not None:
        return best
    assert first is not None
    raise first


def _size_candidates(program: Program, function: Function) -> Iterator[dict[str, int]]:
    for cap in (40, 24, 17, 11, 8, 6, 5, 4, 3, 2):
        if program.sizes:
            yield {name: min(program.sizes.get(name, cap), cap) for name in function.sizes}
        else:
            invented = {n: 3 if n.startswith("K") and len(n) > 1 else cap - k % 3 for k, n in enumerate(function.sizes)}
            yield {n: max(1, v) for n, v in invented.items()}
    rng = np.random.default_rng(0)
    for _ in range(300):
        yield {name: int(rng.integers(1, 9)) for name in function.sizes}


def _points(ranges: Ranges) -> int:
    return max((math.prod(max(0, high - low + 1) for low, high in d.hull.values()) for d in ranges.domains), default=0)


def _is_exact(function: Function) -> bool:
    """Whether the program maps integers to integers: no division of floats, no transcendental function."""
    for statement in function.statements:
        for node in walk(statement.value):
            if isinstance(node, Binary) and node.op == "/" and node.dtype.is_float:
                return False
            if isinstance(node, Call) and node.intrinsic not in _EXACT_CALLS:
                return False
    return True


def _largest(function: Function, inputs: Mapping[str, Array], contents: Mapping[str, Array]) -> float:
    """The largest value that the program can come to, and so any partial sum: that for the inputs' magnitudes."""
    indices = _indexed_dimensions(function).keys()
    sure = {n: a if n in indices or a.dtype.kind in "ub" else np.abs(a) for n, a in inputs.items()}
    outputs = interpret(function, sure, {n: np.abs(a) for n, a in contents.items()})
    return max((float(np.max(np.abs(a.astype(np.float64)), initial=0)) for a in outputs.values()), default=0.0)


def _indexed_dimensions(function: Function) -> dict[str, set[tuple[str, int]]]:
    """For every tensor whose values are subscripts: the dimensions, as (tensor, number), that they index."""
    found: dict[str, set[tuple[str, int]]] = {}
    for statement in function.statements:
        for node in walk(statement.value):
            if isinstance(node, Read):
                for dimension, subscript in enumerate(node.subscripts):
                    for inner in walk(subscript):
                        if isinstance(inner, Read):
                            found.setdefault(inner.tensor, set()).add((node.tensor, dimension))
    return found


def _data(
    function: Function, ranges: Ranges, rng: np.random.Generator, exact: bool, attempt: int
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Inputs, and the contents of outputs that are read; magnitudes shrink from attempt to attempt."""
    indexed = _indexed_dimensions(function)
    magnitude = 1 if attempt or any(s.reduction == "*" for s in function.statements) else 3
    inputs: dict[str, Array] = {}
    for tensor in function.inputs:
        if tensor.role == "const":
            inputs[tensor.name] = np.asarray(ranges.sizes[tensor.name])
            continue
        limit = min((ranges.boxes[name].extent[d] for name, d in indexed.get(tensor.name, set())), default=0)
        limit = max(1, limit >> attempt) if limit else 0
        inputs[tensor.name] = _values(tensor, ranges, rng, exact, magnitude, limit)
    needed = [t for t in function.outputs if t.name in function.needs_content]
    return inputs, {t.name: _values(t, ranges, rng, exact, magnitude, 0) for t in needed}


def _values(tensor: Tensor, ranges: Ranges, rng: np.random.Generator, exact: bool, magnitude: int, limit: int) -> Array:
    shape, dtype = ranges.boxes[tensor.name].extent, numpy_dtype(tensor.dtype)
    if limit:
        return np.asarray(rng.integers(0, int(min(limit, tensor.dtype.highest)), shape)).astype(dtype)
    if tensor.dtype.is_float and not exact:
        return np.asarray(rng.uniform(0.25, 1.25, shape)).astype(dtype)
    low = -magnitude if tensor.dtype.kind in ("float", "int") else 0
    return np.asarray(rng.integers(low, magnitude + 1, shape)).astype(dtype)


def check_call(case: Case, target: str) -> None:
    """Raises AssertionError where a call on a target does not give what the reference gives."""
    out = None
    if case.contents:
        out = tuple(case.contents.get(n, np.zeros_like(a)).copy() for n, a in case.expected.items())
    made = Operation(case.function)(*case.inputs.values(), out=out, target=target)
    found = dict(zip(case.expected, made if isinstance(made, tuple) else (made,), strict=True))
    assert_agrees(case.function, case.inputs, found, case.contents)
