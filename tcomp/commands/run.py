"""``tcomp run``: compile a def, call it, describe what came out, and compare it with the reference interpreter."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tcomp.arrays.arrays import fetched, moved
from tcomp.arrays.devices import wait
from tcomp.commands.inputs.arrays import load_arguments
from tcomp.commands.inputs.programs import Request, add_program_arguments, program_request
from tcomp.commands.inputs.types import parse_seed
from tcomp.commands.terminal.display import show_error, show_line, show_table
from tcomp.commands.terminal.exit_codes import DONE, WRONG
from tcomp.errors import TcompError
from tcomp.grammar.ranges.ranges import infer
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.madeup import Arguments, Array, random_arguments
from tcomp.model.tolerance import Model, error_bounds
from tcomp.operation import Operation
from tcomp.runtime.kernel import idle_options
from tcomp.runtime.registry import memory_of, runs_emulated
from tcomp.storage.forks import ISL
from tcomp.storage.wholefiles import whole_file
from tcomp.tuner.measuring.timing import sampled, stopwatch_of


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
    if program.options is not None:
        kernel = operation.compile(*values, target=request.program.target, options=program.options, plan=program.plan)
        for note in idle_options(kernel.specialisation, kernel.compilation.plan):
            show_error(f"note: {note}", "yellow")
    outputs = dict(zip((tensor.name for tensor in function.outputs), results, strict=True))
    show_table(("output", "type", "shape", "min", "max", "mean"), [_row(name, a) for name, a in outputs.items()])
    if runs_emulated(request.program.target):
        show_line("run by an emulator, so that times say nothing")
    else:
        show_line(f"first call {_milliseconds(first)}, then {spread(sampled(stopwatch_of(call)))}")
    if request.output is not None:
        _save(outputs, request.output)
    if not request.check:
        return DONE
    on_gpu = not request.program.target.startswith("cpu")
    return show_comparisons(compare(operation, arguments, outputs, program.options, on_gpu))


def spread(samples: Sequence[float]) -> str:
    """The median of some times, and between which two half of them lie."""
    low, middle, high = np.quantile(samples, (0.25, 0.5, 0.75))
    return (
        f"{_milliseconds(middle)} (half of {len(samples)} samples from {_milliseconds(low)} to {_milliseconds(high)})"
    )


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far an output is from the reference.

    ``share`` is the largest part of its bound that an element's difference takes, as ``tcomp.model.tolerance`` has it;
    ``improbable`` says that the bound is the worst case, the probable one being exceeded; ``undecided`` elements have
    no bound.
    """

    output: str
    difference: float
    share: float
    improbable: bool = False
    undecided: int = 0

    @property
    def agrees(self) -> bool:
        """Whether only rounding differs."""
        return self.share <= 1

    def __str__(self) -> str:
        if self.undecided:
            return f"{self._text()} ({self.undecided} elements hang on rounding errors and may have any value)"
        return self._text()

    def _text(self) -> str:
        if self.difference == 0:
            return f"{self.output}: equal to the reference"
        largest = f"largest difference {self.difference:.3g}"
        if not self.agrees:
            times = "" if math.isinf(self.share) else f", {self.share:.3g} times what rounding comes to"
            return f"{self.output}: differs from the reference; {largest}{times}"
        if self.improbable:
            return f"{self.output}: differs from the reference by more than is probable, but not impossible; {largest}"
        return f"{self.output}: equal to the reference up to rounding; {largest}, {self.share:.2g} of its bound"


def compare(
    operation: Operation,
    arguments: Arguments,
    outputs: Mapping[str, Array],
    options: MappingOptions | None,
    on_gpu: bool = False,
) -> tuple[Comparison, ...]:
    """Each output against what the interpreter makes of the same arguments.  Raises TcompError.

    Made-up data come in random order, so little is allowed.  What a user loads may have been made to add up badly:
    beyond the probable error counts the worst case.
    """
    usual = Model.RANDOM_ORDER if arguments.made_up else Model.PROBABLE
    found = _compare(operation, arguments, outputs, options, usual, on_gpu)
    if arguments.made_up or all(c.agrees for c in found):
        return found
    worst = _compare(operation, arguments, outputs, options, Model.WORST_CASE, on_gpu)
    return tuple(c if c.agrees else replace(w, improbable=True) for c, w in zip(found, worst, strict=True))


def _compare(
    operation: Operation,
    arguments: Arguments,
    outputs: Mapping[str, Array],
    options: MappingOptions | None,
    model: Model,
    on_gpu: bool,
) -> tuple[Comparison, ...]:
    function = operation.function
    inputs = dict(zip((tensor.name for tensor in function.inputs), arguments.values, strict=True))
    fast_math = options is not None and options.fast_math
    math = options.math if options is not None and on_gpu else "exact"
    with ISL.value:
        contents = arguments.fresh_contents()
        tolerances = error_bounds(function, inputs, contents, model, fast_math, matrix_units=on_gpu, math=math)
    return tuple(
        Comparison(
            name,
            float(tolerance.differences(outputs[name]).max(initial=0.0)),
            float(tolerance.shares(outputs[name]).max(initial=0.0)),
            undecided=int(np.isinf(tolerance.bound).sum()),
        )
        for name, tolerance in tolerances.items()
    )


def show_comparisons(comparisons: Sequence[Comparison]) -> int:
    """Print them.  Returns WRONG if one does not agree."""
    for comparison in comparisons:
        show_line(str(comparison), "green" if comparison.agrees else "red")
    return DONE if all(c.agrees for c in comparisons) else WRONG


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
            with whole_file(directory / f"{name}.npy") as file:
                np.save(file, array, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise TcompError(f"cannot write to {directory}: {getattr(error, 'strerror', None) or error}") from None
