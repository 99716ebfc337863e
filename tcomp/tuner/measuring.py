"""What a measuring sandbox does: it makes inputs and expected outputs once, then verifies and times candidates."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tcomp.backends.simulator.report import SimulationError
from tcomp.errors import TcompError
from tcomp.evaluation import numpy_dtype
from tcomp.filelocks import exclusive
from tcomp.grammar.function import Function, Tensor
from tcomp.grammar.ranges import infer
from tcomp.kernel import Kernel
from tcomp.madeup import Array, random_arguments
from tcomp.mapping.options import MappingOptions
from tcomp.memo import ISL
from tcomp.scop import contiguous_strides
from tcomp.tolerance import Model, error_bounds
from tcomp.tuner.sandbox import Confines, Failure, Isolate, Progress
from tcomp.tuner.timing import Effort, compared, warm
from tcomp.tuner.trials import Outcome, Problem
from tcomp.tuner.verification import Expected, estimated

_LEAST_PATIENCE = 1.0
"""Seconds that a call may always take."""

_PATIENCE = 10.0
"""So many times its time a call may take: the machine may slow down, or others need it."""

_LONGEST_TURN = 30.0
"""Seconds for which a measurement waits for another one on this machine."""

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
    is read.  ``note`` says on what the expected results rest, if not on the interpreter.
    """

    problem: Problem
    values: tuple[Array | int, ...]
    contents: Mapping[str, Array]
    expected: tuple[Expected, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Preparation:
    """The setup of a measuring sandbox."""

    problem: Problem
    limits: Limits

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
        return ready

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

    ``baseline`` are the seconds of the default options, measured in turn with the candidate.
    """

    outcome: Outcome
    times: tuple[float, ...] = ()
    message: str = ""
    baseline: float = math.inf


@dataclass(frozen=True, slots=True)
class Measure:
    """The task of a measuring sandbox: verify a candidate and time it.

    ``best`` is the least time so far as a multiple of the default options', infinite where there is none.
    """

    options: MappingOptions
    best: float
    effort: Effort
    limits: Limits

    def run(self, state: Prepared, progress: Progress) -> Measurement:
        """Raises TcompError if the kernel does not compile or run."""
        progress("loading kernels", 2 * self.limits.compile)
        default = _Trial(state, state.problem.specialisation.options)
        trial = _Trial(state, self.options)
        progress("waiting for its turn", 2 * _LONGEST_TURN)
        with exclusive(_turnstile(), _LONGEST_TURN):
            return self._measured(trial, default, state.note, progress)

    def _measured(self, trial: _Trial, default: _Trial, note: str, progress: Progress) -> Measurement:
        progress("calling the default options' kernel", _PATIENCE * self.limits.call)
        usual = warm(default.seconds)
        patience = min(self.limits.call, max(_LEAST_PATIENCE, _PATIENCE * self.effort.slow * self.best * usual))
        progress("its first call", patience)
        try:
            trial.call()
        except SimulationError as error:
            return Measurement(Outcome.WRONG, (), error.message, usual)
        progress("verifying it", self.limits.call)
        mistake = trial.mistake()
        if mistake:
            return Measurement(Outcome.WRONG, (), mistake, usual)
        progress("timing it", _PATIENCE * self.effort.seconds + 2 * self.effort.least * (patience + usual))
        times = compared(trial.seconds, default.seconds, self.effort, self.best)
        if times.ratio > self.effort.slow * self.best:
            message = f"{times.ratio:.3g} times the default options' time; the best takes {self.best:.3g} times that"
            return Measurement(Outcome.SLOW, (), message, times.baseline)
        progress("verifying it again", self.limits.call + patience)
        trial.call()
        mistake = trial.mistake()
        if mistake:
            return Measurement(Outcome.WRONG, (), f"at first right, later wrong: {mistake}", times.baseline)
        notes = [note] if note else []
        if times.disturbed > _MOST_DISTURBED:
            notes.append(f"the machine was busy: {times.disturbed:.0%} of the samples were disturbed")
        return Measurement(Outcome.MEASURED, times.seconds, "; ".join(notes), times.baseline)


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

    def restore(self) -> None:
        """Put back what outputs hold before a call, where that is read."""
        for array, content in self._restored:
            np.copyto(array, content)

    def call(self) -> None:
        """One call, as if it were the first."""
        self.restore()
        self._kernel(*self._state.values, out=self._outputs)

    def seconds(self, calls: int) -> float:
        """The mean time of some calls; a ``Stopwatch``."""
        self.restore()
        kernel, values, outputs = self._kernel, self._state.values, self._outputs
        if calls > 1:
            kernel(*values, out=outputs)
        begin = time.perf_counter()
        for _ in range(calls):
            kernel(*values, out=outputs)
        return (time.perf_counter() - begin) / calls

    def mistake(self) -> str:
        """What is wrong with the outputs; empty if nothing is."""
        pairs = zip(self._state.expected, self._outputs, strict=True)
        return next(filter(None, (expected.mistake(array) for expected, array in pairs)), "")

    def outputs(self) -> tuple[Array, ...]:
        return self._outputs


def _turnstile() -> Path:
    """The lock that measurements of this user on this machine take in turn."""
    return Path(tempfile.gettempdir(), f"tcomp-measuring-{os.geteuid()}.lock")


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
