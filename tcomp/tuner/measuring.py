"""What a measuring sandbox does: it makes inputs and expected outputs once, then verifies and times candidates."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tcomp.backends.simulator.report import SimulationError
from tcomp.errors import TcompError
from tcomp.evaluation import numpy_dtype
from tcomp.grammar.function import Function, Tensor
from tcomp.grammar.ranges import infer
from tcomp.kernel import Kernel
from tcomp.madeup import Array, random_arguments
from tcomp.mapping.options import MappingOptions
from tcomp.memo import ISL
from tcomp.scop import contiguous_strides
from tcomp.tolerance import Model, error_bounds
from tcomp.tuner.sandbox import Confines, Failure, Isolate, Progress
from tcomp.tuner.timing import Effort, timed
from tcomp.tuner.trials import Outcome, Problem
from tcomp.tuner.verification import Expected, estimated

_LEAST_PATIENCE = 1.0
"""Seconds that a call may always take: the system may be slow to give the processor back."""

_MOST_DISTURBED = 0.5


@dataclass(frozen=True, slots=True)
class Limits:
    """How long things may take, in seconds of wall time, and the bytes that a candidate may take for itself.

    ``compile`` bounds the way from options to a kernel, ``call`` one call of it, ``reference`` the interpreter.
    """

    compile: float = 30.0
    call: float = 10.0
    reference: float = 20.0
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """What all candidates of a problem are called with.

    ``values`` has one array or ``const`` value per parameter, ``contents`` what outputs hold before a call, where that
    is read.  ``note`` says on what the expected results rest, if not on the interpreter.  ``baseline`` are the seconds
    of the default options, infinite where they give no time.
    """

    problem: Problem
    values: tuple[Array | int, ...]
    contents: Mapping[str, Array]
    expected: tuple[Expected, ...]
    note: str = ""
    baseline: float = math.inf


@dataclass(frozen=True, slots=True)
class Preparation:
    """The setup of a measuring sandbox."""

    problem: Problem
    limits: Limits
    effort: Effort

    def prepare(self, isolate: Isolate) -> Prepared:
        """Make inputs, and find out what is right: from the interpreter or, where it takes too long or too much memory,
        from the default options.  Raises TcompError."""
        specialisation = self.problem.specialisation
        function = specialisation.function
        ranges = infer(function, specialisation.sizes.values)
        arguments = random_arguments(function, ranges, self.problem.seed)
        given = self.problem.given
        strides = specialisation.sizes.strides
        values = tuple(
            laid_out(value, strides.get(tensor.name)) if isinstance(value, np.ndarray) else value
            for tensor, value in zip(function.inputs, given or arguments.values, strict=True)
        )
        contents = {name: laid_out(array, strides.get(name)) for name, array in arguments.contents.items()}
        expected = tuple(Expected.room(t, ranges.boxes[t.name].extent) for t in function.outputs)
        ready = Prepared(self.problem, values, contents, expected)
        model = Model.RANDOM_ORDER if given is None else Model.WORST_CASE
        found = isolate(lambda _: _interpret(ready, model), Confines(self.limits.reference, self.limits.memory))
        if isinstance(found, Failure):
            ready = self._with_belief(ready, found.message, isolate)
        default = Measure(specialisation.options, math.inf, self.effort, self.limits)
        timed = isolate(lambda progress: default.run(ready, progress), self._confines())
        if isinstance(timed, Failure) or not timed.times:
            return ready
        return replace(ready, baseline=statistics.median(timed.times))

    def _with_belief(self, ready: Prepared, reason: str, isolate: Isolate) -> Prepared:
        found = isolate(lambda _: _believe(ready), self._confines())
        if isinstance(found, Failure):
            raise TcompError(f"the default options give no results to compare with: {found.message}")
        return replace(ready, note=f"results are compared with those of the default options ({reason})")

    def _confines(self) -> Confines:
        return Confines(self.limits.compile + self.limits.call, self.limits.memory)


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a candidate's child says: times in seconds, or an outcome other than ``MEASURED`` and why.

    ``baseline`` is that of the setup.
    """

    outcome: Outcome
    times: tuple[float, ...] = ()
    message: str = ""
    baseline: float = math.inf


@dataclass(frozen=True, slots=True)
class Measure:
    """The task of a measuring sandbox: verify a candidate and time it.

    ``best`` is the least time so far as a multiple of the baseline, infinite where there is none.
    """

    options: MappingOptions
    best: float
    effort: Effort
    limits: Limits

    def run(self, state: Prepared, progress: Progress) -> Measurement:
        """Raises TcompError if the kernel does not compile or run."""
        best = self.best * state.baseline if state.baseline < math.inf else math.inf
        patience = min(self.limits.call, max(_LEAST_PATIENCE, 10 * self.effort.slow * best))
        progress("loading the kernel", self.limits.compile)
        trial = _Trial(state, self.options)
        progress("its first call", patience)
        try:
            trial.call()
        except SimulationError as error:
            return Measurement(Outcome.WRONG, (), error.message, state.baseline)
        progress("verifying it", self.limits.call)
        mistake = trial.mistake()
        if mistake:
            return Measurement(Outcome.WRONG, (), mistake, state.baseline)
        progress("timing it", self.effort.seconds + self.effort.least * patience)
        times = timed(trial.call, trial.restore, self.effort, best)
        if times.median > self.effort.slow * best:
            message = f"{times.median:.3g} s, where the best takes {best:.3g} s"
            return Measurement(Outcome.SLOW, (), message, state.baseline)
        progress("verifying it again", self.limits.call + patience)
        trial.restore()
        trial.call()
        mistake = trial.mistake()
        if mistake:
            return Measurement(Outcome.WRONG, (), f"at first right, later wrong: {mistake}", state.baseline)
        notes = [state.note] if state.note else []
        if times.disturbed > _MOST_DISTURBED:
            notes.append(f"the machine was busy: {times.disturbed:.0%} of the samples were disturbed")
        return Measurement(Outcome.MEASURED, times.seconds, "; ".join(notes), state.baseline)


class _Trial:
    """A candidate's kernel with its arguments, and outputs that nobody has written yet."""

    def __init__(self, state: Prepared, options: MappingOptions) -> None:
        self._state = state
        self._kernel = Kernel(state.problem.with_options(options))
        function = state.problem.specialisation.function
        strides = state.problem.specialisation.sizes.strides
        self._outputs = tuple(
            laid_out(_unwritten(tensor, expected.low.shape), strides.get(tensor.name))
            for tensor, expected in zip(function.outputs, state.expected, strict=True)
        )
        self._restored = tuple(
            (array, state.contents[tensor.name])
            for tensor, array in zip(function.outputs, self._outputs, strict=True)
            if tensor.name in state.contents
        )
        self.restore()

    def restore(self) -> None:
        """Put back what outputs hold before a call, where that is read."""
        for array, content in self._restored:
            np.copyto(array, content)

    def call(self) -> None:
        self._kernel(*self._state.values, out=self._outputs)

    def mistake(self) -> str:
        """What is wrong with the outputs; empty if nothing is."""
        pairs = zip(self._state.expected, self._outputs, strict=True)
        return next(filter(None, (expected.mistake(array) for expected, array in pairs)), "")

    def outputs(self) -> tuple[Array, ...]:
        return self._outputs


def _interpret(ready: Prepared, model: Model) -> None:
    """Fill in what is right, from the interpreter.  Raises TcompError."""
    function, options = _program(ready)
    inputs = dict(zip((t.name for t in function.inputs), ready.values, strict=True))
    contents = {name: array.copy() for name, array in ready.contents.items()}
    with ISL.value:
        tolerances = error_bounds(function, inputs, contents, model, options.fast_math)
    for expected in ready.expected:
        expected.allow(tolerances[expected.tensor.name])


def _believe(ready: Prepared) -> None:
    """Fill in what is right, from the default options.  Raises TcompError."""
    _, options = _program(ready)
    trial = _Trial(ready, options)
    trial.call()
    for expected, output in zip(ready.expected, trial.outputs(), strict=True):
        expected.allow(estimated(output, expected.tensor.dtype))


def _program(ready: Prepared) -> tuple[Function, MappingOptions]:
    specialisation = ready.problem.specialisation
    return specialisation.function, specialisation.options


def _unwritten(tensor: Tensor, shape: tuple[int, ...]) -> Array:
    """Garbage, so that an element that a kernel leaves out shows: no right result has it, or few do."""
    dtype = numpy_dtype(tensor.dtype)
    return np.full(shape, np.nan if tensor.dtype.is_float else 77).astype(dtype)


def laid_out(array: Array, strides: tuple[int, ...] | None) -> Array:
    """An array with the same elements and the given strides, in elements; the same array where there are none.

    Where several elements share a place, the result holds one of them.
    """
    if strides is None or strides == contiguous_strides(array.shape):
        return np.ascontiguousarray(array)
    steps = [(n - 1) * step for n, step in zip(array.shape, strides, strict=True)]
    first = -sum(min(0, s) for s in steps)
    room = np.zeros(first + sum(max(0, s) for s in steps) + 1, array.dtype)
    view = np.lib.stride_tricks.as_strided(room[first:], array.shape, tuple(step * array.itemsize for step in strides))
    np.copyto(view, array)
    return view
