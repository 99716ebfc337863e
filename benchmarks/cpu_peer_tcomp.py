"""tcomp with default options, called as users call it."""

from __future__ import annotations

import numpy as np

import tcomp as tc
from benchmarks.cpu_case import Array, Case
from benchmarks.cpu_peer import Implementation


class Tcomp:
    """The program's text is read, compiled and run into an array that is there."""

    version = tc.__version__

    def __init__(self) -> None:
        # What a process does once, whatever it compiles: tables of the parser, the C compiler's identity.
        warm = tc.define("def warm(float(N) A) -> (B) { B(n) = A(n) }", tune="off")
        warm["warm"](np.zeros(4, np.float32))

    def build(self, case: Case, inputs: list[Array]) -> Implementation | None:
        """Compiled by the first call."""
        output = np.empty(case.output, case.output_dtype)
        (operation,) = tc.define(case.text, tune="off")._operations.values()
        arguments = (*inputs, *case.constants)
        return Implementation(lambda: operation(*arguments, out=output), lambda: output)


def peer() -> Tcomp:
    """tcomp, imported and warm."""
    return Tcomp()
