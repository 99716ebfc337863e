"""What all candidates of a problem are called with, and what has to come out: made once in a measuring sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tcomp.arrays.arrays import fetched, kind_of, moved
from tcomp.arrays.devices import Memory, cupy_module, seconds_of, wait
from tcomp.errors import TcompError
from tcomp.grammar.ranges.ranges import infer
from tcomp.grammar.tree.function import Tensor
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.tiles.flops import flops_of
from tcomp.model.evaluation import numpy_dtype
from tcomp.model.madeup import Array, random_arguments, random_contents
from tcomp.model.terms.storages import contiguous_strides
from tcomp.model.tolerance import Model, error_bounds
from tcomp.runtime.kernel import Kernel
from tcomp.runtime.registry import estimate_of, memory_of
from tcomp.storage.forks import ISL
from tcomp.tuner.database.trials import Problem
from tcomp.tuner.measuring.sandbox import Confines, Failure, Isolate, Progress
from tcomp.tuner.measuring.verification import Expected, believed


@dataclass(frozen=True, slots=True)
class Limits:
    """How long things may take, in seconds of wall time, and the bytes that a candidate may take for itself.

    ``compile`` bounds the way from options to a kernel, ``call`` one call of it, ``simulate`` one on the simulator,
    ``reference`` the interpreter.
    """

    compile: float = 30.0
    call: float = 10.0
    simulate: float = 60.0
    reference: float = 20.0
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """Arguments and expected results.

    ``values`` has one array or ``const`` value per parameter, ``contents`` what outputs hold before a call, where that
    is read.  ``note`` says on what the expected results rest, if not on the interpreter.  ``usual`` is what the default
    options take by estimate, in seconds, None where a clock tells.  ``placed`` holds the values where kernels read
    them, once a child has brought them there.
    """

    problem: Problem
    values: tuple[Array | int, ...]
    contents: Mapping[str, Array]
    expected: tuple[Expected, ...]
    note: str = ""
    usual: float | None = None
    placed: list[tuple[Any, ...]] = field(default_factory=list)

    @property
    def memory(self) -> Memory:
        """What kernels read and write."""
        return memory_of(self.problem.specialisation.target) or Memory.MAIN

    def placed_values(self) -> tuple[Any, ...]:
        """The values where kernels read them; in a child that lasts they are brought there once."""
        if not self.placed:
            strides = self.problem.specialisation.sizes.strides
            tensors = self.problem.specialisation.function.inputs
            pairs = zip(tensors, self.values, strict=True)
            self.placed.append(tuple(placed(value, strides.get(t.name), self.memory) for t, value in pairs))
        return self.placed[0]


@dataclass(frozen=True, slots=True)
class Preparation:
    """The setup of a measuring sandbox."""

    problem: Problem
    limits: Limits

    def prepare(self, isolate: Isolate) -> Prepared:
        """Make inputs, and find out what is right: from the interpreter or, where it takes too long or too much memory,
        from the default options.  Raises TcompError."""
        specialisation = self.problem.specialisation
        function, strides = specialisation.function, specialisation.sizes.strides
        ranges = infer(function, specialisation.sizes.values)
        given, seed = self.problem.given, self.problem.seed
        if given is None:
            arguments = random_arguments(function, ranges, seed)
            taken, read = arguments.values, arguments.contents
        else:
            taken, read = given, random_contents(function, ranges, seed)
        values = tuple(
            laid_out(value, strides.get(tensor.name)) if isinstance(value, np.ndarray) else value
            for tensor, value in zip(function.inputs, taken, strict=True)
        )
        contents = {name: laid_out(array, strides.get(name)) for name, array in read.items()}
        expected = tuple(Expected.room(t, ranges.boxes[t.name].extent) for t in function.outputs)
        ready = Prepared(self.problem, values, contents, expected)
        model = Model.RANDOM_ORDER if given is None else Model.WORST_CASE
        confines = Confines(self.limits.reference, self.limits.memory)
        found = isolate(lambda progress: self._interpret(ready, model, progress), confines)
        right = self._with_belief(ready, found.message, isolate) if isinstance(found, Failure) else ready
        return replace(right, usual=self._estimated(right, isolate))

    def _estimated(self, ready: Prepared, isolate: Isolate) -> float | None:
        """What the default options take by estimate.  Raises TcompError if there is anything wrong with them."""
        if estimate_of(ready.problem.specialisation.target) is None:
            return None
        seconds = self.limits.compile + self.limits.simulate
        options = ready.problem.specialisation.options
        found = isolate(lambda _: Subject(ready, options).estimate(), Confines(seconds, self.limits.memory))
        if isinstance(found, Failure):
            raise TcompError(f"the default options cannot be simulated: {found.message}")
        return found

    def _interpret(self, ready: Prepared, model: Model, progress: Progress) -> None:
        """Fill in what is right, from the interpreter.  Raises TcompError."""
        progress("interpreting the program", self.limits.reference)
        function, options = ready.problem.specialisation.function, ready.problem.specialisation.options
        inputs = dict(zip((t.name for t in function.inputs), ready.values, strict=True))
        contents = {name: array.copy() for name, array in ready.contents.items()}
        with ISL.value:
            on_gpu = not ready.problem.specialisation.target.startswith("cpu")
            tolerances = error_bounds(
                function, inputs, contents, model, options.fast_math, on_gpu, options.math if on_gpu else "exact"
            )
        for expected in ready.expected:
            expected.allow(tolerances[expected.tensor.name])

    def _with_belief(self, ready: Prepared, reason: str, isolate: Isolate) -> Prepared:
        seconds = self.limits.compile + self.limits.simulate
        found = isolate(lambda _: _believe(ready), Confines(seconds, self.limits.memory))
        if isinstance(found, Failure):
            raise TcompError(f"the default options give no results to compare with: {found.message}")
        return replace(
            ready, note=f"results are compared with those of the default options (the interpreter: {reason})"
        )


class Subject:
    """A kernel with its arguments, and outputs that nobody has written yet."""

    def __init__(self, prepared: Prepared, options: MappingOptions) -> None:
        """Raises TcompError if there is no kernel, or no room for its outputs."""
        specialisation = prepared.problem.with_options(options)
        outputs = specialisation.function.outputs
        strides = specialisation.sizes.strides
        self._kernel = Kernel(specialisation)
        self._expected = prepared.expected
        self._memory = prepared.memory
        self._values = prepared.placed_values()
        self._contents = tuple(prepared.contents.get(tensor.name) for tensor in outputs)
        self._outputs = tuple(
            placed(_unwritten(tensor, expected.low.shape), strides.get(tensor.name), self._memory)
            for tensor, expected in zip(outputs, prepared.expected, strict=True)
        )
        self.called_as_first = True
        """Whether the latest call found in the outputs what the first one did, so that its results are the same."""
        # A tuple of one array takes the kernel longer to look at than the array.
        self._out = self._outputs[0] if len(self._outputs) == 1 else self._outputs

    def call(self) -> None:
        """One call, as if it were the first; returns when it is done."""
        self._restore()
        self._kernel(*self._values, out=self._out)
        wait(self._memory)

    def seconds(self, calls: int) -> float:
        """The mean time of some calls, each after another one; a ``Stopwatch``."""
        self._restore()
        self.called_as_first = calls == 1 or not any(content is not None for content in self._contents)
        if calls > 1:
            self._kernel(*self._values, out=self._out)
        return seconds_of(lambda: self._repeat(calls), self._memory) / calls

    def _repeat(self, calls: int) -> None:
        kernel, values, out = self._kernel, self._values, self._out
        for _ in range(calls):
            kernel(*values, out=out)

    def _restore(self) -> None:
        """Put back what outputs hold before a call, where that is read."""
        for array, content in zip(self._outputs, self._contents, strict=True):
            if content is not None:
                kind_of(array).assign(array, content)

    def estimate(self) -> float | None:
        """What a call would take on the device that the target stands for; None where a clock tells.

        It is also a call.  Raises TcompError if there is anything wrong with it.
        """
        target = self._kernel.specialisation.target
        estimate = estimate_of(target)
        if estimate is None:
            return None
        self._restore()
        compilation = self._kernel.compilation
        arrays = [value for value in self._values if not isinstance(value, int)]
        addresses = [kind_of(array).address(array) for array in (*arrays, *self._outputs)]
        return estimate(compilation.source, flops_of(compilation.plan), addresses)

    def mistake(self) -> str:
        """What is wrong with the outputs; empty if nothing is."""
        pairs = zip(self._expected, self._outputs, strict=True)
        return next(filter(None, (expected.mistake(fetched(array)) for expected, array in pairs)), "")

    def results(self) -> tuple[Array, ...]:
        """The outputs."""
        return tuple(map(fetched, self._outputs))


def _believe(ready: Prepared) -> None:
    """Fill in what is right, from the default options.  Raises TcompError."""
    subject = Subject(ready, ready.problem.specialisation.options)
    subject.call()
    for expected, output in zip(ready.expected, subject.results(), strict=True):
        expected.allow(believed(output, expected.tensor.dtype))


def _unwritten(tensor: Tensor, shape: tuple[int, ...]) -> Array:
    """Garbage, so that an element that a kernel leaves out shows: no right result has it, or few do."""
    dtype = numpy_dtype(tensor.dtype)
    return np.full(shape, np.nan if tensor.dtype.is_float else 77, np.float32).astype(dtype, copy=False)


def laid_out(array: Array, strides: tuple[int, ...] | None) -> Array:
    """An array with the same elements and the given strides, in elements; None stands for C order.

    Where several elements share a place, the result holds one of them.
    """
    if strides is None or strides == contiguous_strides(array.shape):
        return np.asarray(array, order="C")
    room, first = _room(array, strides)
    view = np.lib.stride_tricks.as_strided(room[first:], array.shape, tuple(s * array.itemsize for s in strides))
    np.copyto(view, array)
    return view


def placed(value: Array | int, strides: tuple[int, ...] | None, memory: Memory) -> Any:
    """An array with the given strides in a memory; integers stay what they are."""
    if not isinstance(value, np.ndarray):
        return value
    if strides is None or memory is not Memory.CUDA:
        return moved(laid_out(value, strides), memory)
    room, first = _room(value, strides)
    view = np.lib.stride_tricks.as_strided(room[first:], value.shape, tuple(s * value.itemsize for s in strides))
    np.copyto(view, value)
    there = moved(room, memory)[first:]
    return cupy_module().lib.stride_tricks.as_strided(there, value.shape, view.strides)


def _room(array: Array, strides: tuple[int, ...]) -> tuple[Array, int]:
    """Zeros for the elements of an array with these strides, and the place of its first."""
    steps = [(n - 1) * step for n, step in zip(array.shape, strides, strict=True)]
    first = -sum(min(0, step) for step in steps)
    return np.zeros(first + sum(max(0, step) for step in steps) + 1, array.dtype), first
