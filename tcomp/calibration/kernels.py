"""Kernels of the programs, and how long they take."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from tcomp.calibration.programs import PROGRAMS
from tcomp.engine import define
from tcomp.grammar.ranges.ranges import infer
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.madeup import random_arguments
from tcomp.runtime.kernel import Kernel
from tcomp.tuner.measuring.timing import Effort, Stopwatch, compared, stopwatch_of, warm

_EFFORT = Effort(seconds=0.15, least=9, precision=0.005, priority=False)


@dataclass(frozen=True, slots=True)
class Made:
    """A kernel and the arrays that it runs on; equal to another if their texts are."""

    text: str
    kernel: Kernel = field(compare=False)
    arguments: tuple[Any, ...] = field(compare=False)
    out: tuple[Any, ...] = field(compare=False)

    def stopwatch(self) -> Stopwatch:
        """Times its calls."""
        return stopwatch_of(lambda: self.kernel(*self.arguments, out=self.out))


class Kernels:
    """Makes kernels for this machine's processor; see ``Workshop``."""

    def __init__(self) -> None:
        self._arrays: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {}

    def kernel(self, program: str) -> Made:
        """The kernel of a program under the numbers that hold."""
        wanted = PROGRAMS[program]
        operation = define(wanted.text)["f"]
        kernel = operation.compile(sizes=wanted.sizes, target="cpu", options=MappingOptions())
        if program not in self._arrays:
            inputs = random_arguments(operation.function, infer(operation.function, wanted.sizes), 0).values
            results = kernel(*inputs)
            self._arrays[program] = tuple(inputs), results if isinstance(results, tuple) else (results,)
        return Made(kernel.source, kernel, *self._arrays[program])

    def ratio(self, kernel: Made, reference: Made) -> float:
        """The time of a kernel as a multiple of the time of another."""
        usual = warm(reference.stopwatch())
        return compared(kernel.stopwatch(), reference.stopwatch(), usual, _EFFORT, math.inf).ratio
