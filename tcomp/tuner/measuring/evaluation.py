"""Compile and measure candidates: what a tuning run gives an executor to do.

``compile_candidate`` and ``measure_candidate`` are functions of one picklable job each, so that
any ``concurrent.futures.Executor`` can run them, here or on other machines.  They do their work in sandboxes, which the
process keeps for the next job, and raise nothing that a candidate can bring about.
"""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from tcomp.arrays.devices import Memory, device_count
from tcomp.backends.host import toolchain
from tcomp.driver import Scheduled
from tcomp.errors import TargetError, TcompError
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.islbounds import TooComplexError
from tcomp.runtime.kernel import Kernel
from tcomp.runtime.registry import memory_of
from tcomp.storage.cache import store
from tcomp.tuner.database.trials import Candidate, Compiled, Outcome, Problem, Trial, digest
from tcomp.tuner.measuring.likeness import likeness
from tcomp.tuner.measuring.measuring import Measure
from tcomp.tuner.measuring.preparation import Limits, Preparation
from tcomp.tuner.measuring.sandbox import Confines, Failure, Isolate, Progress
from tcomp.tuner.measuring.sandboxes import Purpose, sandboxes
from tcomp.tuner.measuring.timing import Effort

Features = tuple[tuple[str, float], ...]
_LIKE = "like"
_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"

Describe = Callable[[Kernel], Features]
"""Facts about a compiled candidate for the strategies: a function of a module, so that it can be pickled."""


def featureless(_: Kernel) -> Features:
    """No facts."""
    return ()


@dataclass(frozen=True, slots=True)
class Bench:
    """How the candidates of a run are compiled and measured.

    ``directory`` is where their kernels are kept meanwhile; on another machine, a directory of that name is made.
    ``modules`` are imported in the sandboxes first, such as one that adds a target.
    """

    directory: str
    describe: Describe = featureless
    limits: Limits = field(default_factory=Limits)
    effort: Effort = field(default_factory=Effort)
    modules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompileJob:
    """A candidate to compile, for which no arrays need to travel."""

    bench: Bench
    problem: Problem
    candidate: Candidate

    def __post_init__(self) -> None:
        object.__setattr__(self, "problem", replace(self.problem, given=None))


@dataclass(frozen=True, slots=True)
class MeasureJob:
    """A candidate to verify and time.

    ``best`` is the least time so far as a multiple of what the default options take on the same worker: a candidate
    several times slower is given up soon.  ``device`` says which GPU to use, of those that the worker sees.
    """

    bench: Bench
    problem: Problem
    compiled: Compiled
    best: float = math.inf
    generation: int = 0
    device: int = 0


def compile_candidate(job: CompileJob) -> Compiled:
    """Compile a candidate and keep its kernel for the measurement.  Raises TcompError if no sandbox starts."""
    bench, problem, candidate = job.bench, job.problem, job.candidate
    began = time.monotonic()
    with sandboxes().lent(Purpose("compile", bench.directory, bench.modules)) as sandbox:
        task = _Compile(candidate.options, bench.describe)
        made = sandbox.run(_Beginning(problem), task, Confines(bench.limits.compile, bench.limits.memory))
    seconds = time.monotonic() - began
    if isinstance(made, Failure):
        return Compiled(candidate, "", (), seconds, made.message, made.outcome)
    return Compiled(candidate, made.source, made.features, seconds)


def measure_candidate(job: MeasureJob) -> Trial:
    """Verify and time a candidate, whose kernel is compiled if need be.  Raises TcompError if no sandbox starts."""
    bench = job.bench
    on_gpu = memory_of(job.problem.specialisation.target) is Memory.CUDA
    turn = f"cuda-{job.device}" if on_gpu else "cpu"
    # On a GPU the clock is the device's, and the process waits for it in a loop.
    effort = replace(bench.effort, priority=bench.effort.priority and not on_gpu)
    task = Measure(job.compiled.candidate.options, job.best, effort, bench.limits, turn)
    # A CUDA context takes long to make, and more addresses than there is memory.
    confines = Confines(bench.limits.compile, None if on_gpu else bench.limits.memory, alone=not on_gpu)
    environment = (_visible(job.device),) if on_gpu else ()
    with sandboxes().lent(Purpose("measure", bench.directory, bench.modules, environment)) as sandbox:
        found = sandbox.run(Preparation(job.problem, bench.limits), task, confines)
    trial = Trial(
        job.compiled,
        Outcome.MEASURED,
        worker=f"{platform.node()}:{turn}",
        when=time.time(),
        generation=job.generation,
    )
    if isinstance(found, Failure):
        return replace(trial, outcome=found.outcome, message=found.message)
    outcome = Outcome.SLOW if found.slow else Outcome.MEASURED
    return replace(
        trial,
        outcome=outcome,
        times=found.times,
        message=found.message,
        baseline=found.baseline,
        doubtful=found.doubtful,
    )


def _visible(device: int) -> tuple[str, str]:
    """The variable that lets a process see one of the GPUs that this one sees; numbers go on with the first again."""
    seen = os.environ.get(_VISIBLE_DEVICES)
    names = [str(number) for number in range(_gpus())] if seen is None else seen.split(",")
    return _VISIBLE_DEVICES, names[device % len(names)]


def _gpus() -> int:
    """How many there are; 1 if none can be found, as the sandbox then has more to say about."""
    try:
        return device_count()
    except TargetError:
        return 1


@dataclass(frozen=True, slots=True)
class _Begun:
    """A problem, and what its candidates have in common; None where that cannot be made, as each of them will say."""

    problem: Problem
    scheduled: Scheduled | None


@dataclass(frozen=True, slots=True)
class _Beginning:
    """The setup of a compiling sandbox.

    What every candidate would find out again about the machine and the program is found out before the first.
    """

    problem: Problem

    def prepare(self, _: Isolate) -> _Begun:
        self.problem.specialisation.key()
        with suppress(TargetError):
            toolchain.find()
        try:
            return _Begun(self.problem, self.problem.specialisation.schedule())
        except TcompError:
            return _Begun(self.problem, None)


@dataclass(frozen=True, slots=True)
class _Made:
    source: str
    features: Features


@dataclass(frozen=True, slots=True)
class _Compile:
    """The task of a compiling sandbox.  What is like a candidate that was compiled before has its code, and facts."""

    options: MappingOptions
    describe: Describe

    def run(self, state: _Begun, _: Progress) -> _Made:
        specialisation = state.problem.with_options(self.options)
        try:
            begun = specialisation.begin(state.scheduled)
        except TooComplexError:
            return self._made(Kernel(specialisation))
        key = likeness(begun, self.options, specialisation.target)
        kept = store().get(_LIKE, key)
        if kept is not None:
            source, features = json.loads(kept)
            return _Made(source, tuple((name, value) for name, value in features))
        made = self._made(Kernel(specialisation, begun))
        store().put(_LIKE, key, specialisation.label(), json.dumps([made.source, made.features]).encode())
        return made

    def _made(self, kernel: Kernel) -> _Made:
        return _Made(digest(kernel.source), self.describe(kernel))
