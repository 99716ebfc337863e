"""``tcomp run``: compile a def, call it, describe what came out, and compare it with the reference interpreter."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tcomp.arrays import fetched, moved
from tcomp.commands.display import show_line, show_table
from tcomp.commands.exit_codes import DONE, WRONG
from tcomp.commands.inputs import Arguments, Array, load_arguments, random_arguments
from tcomp.commands.programs import Request, add_program_arguments, program_request
from tcomp.devices import wait
from tcomp.errors import TcompError
from tcomp.grammar.ranges import infer
from tcomp.operation import Operation
from tcomp.registry import memory_of

_TIMING_SECONDS = 0.2
_MOST_REPEATS = 100

TOLERANCES = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-5, "float64": 1e-12}
"""Largest difference from the reference that counts as rounding, relative to the largest value of the output.

Sums are reassociated and intrinsics are approximations, so floats may differ by some units in the last place; all other
types must be equal."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What the command line asks for; ``inputs`` is None where arrays are to be made up from ``seed``."""

    program: Request
    inputs: tuple[str, ...] | None
    output: Path | None
    seed: int
    check: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``tcomp run``."""
    add_program_arguments(parser)
    parser.add_argument(
        "--inputs", nargs="*", metavar="A.npy", help="arrays, in the order of the parameters (default: small integers)"
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="write each output to DIR/NAME.npy")
    parser.add_argument("--seed", type=parse_seed, default=0, help="of the made-up inputs (default: 0)")
    parser.add_argument("--check", action="store_true", help="compare with the reference interpreter")
    parser.set_defaults(execute=lambda values: execute(_request(values)))


def parse_seed(text: str) -> int:
    """The meaning of ``--seed``; raises ArgumentTypeError, which argparse turns into a usage error."""
    if not re.fullmatch(r"[0-9]{1,20}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


def _request(values: argparse.Namespace) -> RunRequest:
    inputs = None if values.inputs is None else tuple(values.inputs)
    return RunRequest(program_request(values), inputs, values.output, values.seed, values.check)


def execute(request: RunRequest) -> int:
    """Run a program.  Returns WRONG if ``check`` finds a difference.  Raises TcompError."""
    program = request.program.load()
    operation, function = program.operation, program.operation.function
    if request.inputs is None:
        arguments = random_arguments(function, infer(function, request.program.sizes), request.seed)
    else:
        arguments = load_arguments(function, request.inputs, request.program.sizes)

    memory = memory_of(request.program.target)
    values = [moved(value, memory) for value in arguments.values]

    def call() -> tuple[Any, ...]:
        contents = {name: moved(array, memory) for name, array in arguments.fresh_contents().items()}
        result = program.call(*values, out=contents or None, target=request.program.target)
        wait(memory)
        return result if isinstance(result, tuple) else (result,)

    begin = time.perf_counter()
    results = [fetched(array) for array in call()]
    first = time.perf_counter() - begin
    outputs = dict(zip((tensor.name for tensor in function.outputs), results, strict=True))
    show_table(("output", "type", "shape", "min", "max", "mean"), [_row(name, a) for name, a in outputs.items()])
    show_line(f"first call {_milliseconds(first)}, then {_milliseconds(_best_time(call))}")
    if request.output is not None:
        _save(outputs, request.output)
    return show_comparisons(compare(operation, arguments, outputs)) if request.check else DONE


def _best_time(call: Any) -> float:
    best, total, repeats = float("inf"), 0.0, 0
    while repeats == 0 or (total < _TIMING_SECONDS and repeats < _MOST_REPEATS):
        begin = time.perf_counter()
        call()
        seconds = time.perf_counter() - begin
        best, total, repeats = min(best, seconds), total + seconds, repeats + 1
    return best


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far an output is from the reference, and the largest difference that counts as rounding."""

    output: str
    difference: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        """Whether only rounding differs."""
        return self.difference <= self.tolerance

    def __str__(self) -> str:
        if self.difference == 0:
            return f"{self.output}: equal to the reference"
        if self.agrees:
            rounded = f"equal to the reference up to rounding; largest difference {self.difference:.3g}"
            return f"{self.output}: {rounded}"
        return f"{self.output}: differs from the reference; largest difference {self.difference:.6g}"


def compare(operation: Operation, arguments: Arguments, outputs: Mapping[str, Array]) -> tuple[Comparison, ...]:
    """Each output against what the interpreter makes of the same arguments.  Raises TcompError."""
    result = operation.reference(*arguments.values, out=arguments.fresh_contents() or None)
    expected: Sequence[Array] = result if isinstance(result, tuple) else (result,)
    found = []
    for tensor, reference in zip(operation.function.outputs, expected, strict=True):
        difference, scale = largest_difference(outputs[tensor.name], reference)
        found.append(Comparison(tensor.name, difference, TOLERANCES.get(tensor.dtype.name, 0.0) * scale))
    return tuple(found)


def show_comparisons(comparisons: Sequence[Comparison]) -> int:
    """Print them.  Returns WRONG if one does not agree."""
    for comparison in comparisons:
        show_line(str(comparison), "green" if comparison.agrees else "red")
    return DONE if all(c.agrees for c in comparisons) else WRONG


def largest_difference(result: Array, reference: Array) -> tuple[float, float]:
    """The largest absolute difference, and the largest finite magnitude in the reference (1 at least).

    Equal infinities and NaN against NaN do not differ; any other pair with one of them differs by infinity.
    """
    if result.size == 0:
        return 0.0, 1.0
    if reference.dtype.kind not in "biu":
        result, reference = result.astype(np.float64), reference.astype(np.float64)
        same = (result == reference) | (np.isnan(result) & np.isnan(reference))
        with np.errstate(invalid="ignore"):
            difference = np.where(same, 0.0, np.abs(result - reference))
        finite = np.abs(reference[np.isfinite(reference)])
        return float(np.nan_to_num(difference, nan=np.inf, posinf=np.inf).max()), float(finite.max(initial=1.0))
    pairs = result != reference
    difference = np.abs(result[pairs].astype(object) - reference[pairs].astype(object))
    return float(difference.max(initial=0)), 1.0


def _row(name: str, array: Array) -> tuple[str, ...]:
    shape = "x".join(map(str, array.shape)) or "scalar"
    if array.size == 0:
        return name, array.dtype.name, shape, "-", "-", "-"
    values = array if array.dtype.kind in "biu" else array.astype(np.float64)
    low, high, mean = values.min().item(), values.max().item(), float(values.mean(dtype=np.float64))
    return name, array.dtype.name, shape, _number(low), _number(high), _number(mean)


def _number(value: float) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def _save(outputs: Mapping[str, Array], directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, array in outputs.items():
            np.save(directory / f"{name}.npy", array, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise TcompError(f"cannot write to {directory}: {getattr(error, 'strerror', None) or error}") from None
