"""Tune one problem: everything that a run needs, put together."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

from tcomp import debug
from tcomp.arrays.devices import Memory, device_count
from tcomp.errors import TargetError, TcompError
from tcomp.grammar.tree.diagnostics import refuse_steps
from tcomp.mapping.options.options import MappingOptions
from tcomp.runtime.registry import check_available, estimate_of, memory_of, runs_emulated
from tcomp.storage.filelocks import claimed
from tcomp.tuner.database.database import Database
from tcomp.tuner.database.file import open_database
from tcomp.tuner.database.identity import identity_of
from tcomp.tuner.database.trials import Problem
from tcomp.tuner.measuring.evaluation import Bench
from tcomp.tuner.measuring.executors import executor_at, local_executor
from tcomp.tuner.measuring.preparation import Limits
from tcomp.tuner.measuring.workshop import ExecutorWorkshop
from tcomp.tuner.model.background import Background
from tcomp.tuner.model.description import describe
from tcomp.tuner.model.experience import experience_of
from tcomp.tuner.model.features import facts_of
from tcomp.tuner.progress import Progress, Watch, ignore
from tcomp.tuner.report.result import TuningResult
from tcomp.tuner.report.wording import readable_seconds
from tcomp.tuner.search import Run, Searcher
from tcomp.tuner.settings import Settings
from tcomp.tuner.space.seeds import seeds
from tcomp.tuner.space.space import space_of
from tcomp.tuner.strategies import strategy_named

_PREFIX, _LOCK = "tcomp-tune-", ".lock"
_STALE_SECONDS = 3600.0

_MOST_JOBS = 10**9

_REMOTE_DEVICES = 4
"""Candidates that are measured at a time on an executor of which nobody knows on how many machines it runs."""

_NEIGHBOURS = 4
"""Stored results for other sizes that a search begins with."""

_RELATED, _TRIALS_OF_EACH = 8, 120
"""Problems whose trials a strategy learns from, and how many: a trial takes half a millisecond to read."""


def tune(
    problem: Problem,
    settings: Settings,
    *,
    jobs: int | None = None,
    executor: Executor | str | None = None,
    database: Database | None = None,
    watch: Watch = ignore,
) -> TuningResult:
    """Search for better options for a problem and keep them; the result tells whether Ctrl-C ended it early.

    Args:
        problem: what to tune.
        settings: how long and how to search.
        jobs: how many candidates are compiled at a time on this machine; None means one for each processor.
        executor: what to use instead of this machine, or the address of one, such as ``dask://host:port``.
        database: where results are kept; None means the one that the environment asks for.
        watch: is called with the progress of the run.

    Raises TargetError if the target is not here, and TcompError if the default options do not work, or there is no such
    strategy or executor.
    """
    begin = time.monotonic()
    function = problem.specialisation.function
    refuse_steps(function, "nothing can be tuned there yet", "try `options=` by hand", TcompError)
    if jobs is not None and (type(jobs) is not int or not 1 <= jobs < _MOST_JOBS):
        raise TcompError(f"jobs is {jobs!r}; it must be a whole number of at least 1")
    if executor is None:
        target = problem.specialisation.target
        check_available(target)
        if runs_emulated(target):
            raise TargetError(f"{target} is emulated here, and times of an emulator say nothing")
    if debug.print_tuning():
        watch = _printing(watch)
    with ExitStack() as stack:
        kept = stack.enter_context(open_database() if database is None else nullcontext(database))
        searcher = _searcher(problem, settings, kept)
        directory = stack.enter_context(_directory())
        pool = stack.enter_context(_executor(executor, jobs))
        bench = Bench(directory, describe, _limits(settings.budget))
        workshop = ExecutorWorkshop(problem, bench, pool, _devices(problem, executor, jobs))
        return Run(problem, settings, searcher, workshop, kept, watch, begin).search()


def _limits(budget: float) -> Limits:
    """How long a candidate may take where the run takes so many seconds; half of the memory is for all of them."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return Limits(
        compile=max(30.0, budget / 2), call=max(10.0, budget / 4), reference=min(20.0, budget / 6), memory=memory
    )


def _devices(problem: Problem, executor: Executor | str | None, jobs: int | None) -> int:
    """How many candidates to measure at a time: each machine, or GPU of it, takes one, and others wait for it.

    What is not timed but estimated need not be alone.
    """
    target = problem.specialisation.target
    if executor is not None and not isinstance(executor, ThreadPoolExecutor | ProcessPoolExecutor):
        return _REMOTE_DEVICES
    if estimate_of(target) is not None:
        return jobs or len(os.sched_getaffinity(0))
    return device_count() if memory_of(target) is Memory.CUDA else 1


@contextmanager
def _directory() -> Iterator[str]:
    """A new directory for the kernels of a run, removed at the end; those that killed runs left are removed first."""
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if left.stat().st_uid == os.geteuid() and time.time() - left.stat().st_mtime > _STALE_SECONDS:
                with claimed(left / _LOCK) as ours:
                    if ours:
                        shutil.rmtree(left, ignore_errors=True)
    made = tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True)
    with made as directory, claimed(Path(directory, _LOCK)):
        yield directory


@contextmanager
def _executor(executor: Executor | str | None, jobs: int | None) -> Iterator[Executor]:
    """Raises TcompError if an address leads nowhere, or is none."""
    if isinstance(executor, Executor):
        yield executor
        return
    if executor is not None and not isinstance(executor, str):
        raise TcompError(f"executor must be an Executor or an address, not {type(executor).__name__}")
    with local_executor(jobs) if executor is None else executor_at(executor) as found:
        yield found


def _searcher(problem: Problem, settings: Settings, database: Database) -> Searcher:
    """Seeds and a strategy, from what the program is like and what is known of it and of others."""
    specialisation = problem.specialisation
    identity = identity_of(specialisation, problem.device)
    compilation = specialisation.lower()
    space = space_of(compilation, specialisation.options, specialisation.target)
    known = database.best(identity)
    stored = [tuned.options for tuned in ([known] if known else []) + database.near(identity, _NEIGHBOURS)]
    others = [trials for _, trials in database.related(identity, _RELATED, _TRIALS_OF_EACH)]
    facts = facts_of(compilation, specialisation.target)
    background = Background(space, facts, settings.seed, others, experience_of(specialisation.target))
    strategy = strategy_named(settings.strategy, background)
    return Searcher(tuple(seeds(space, stored)), strategy)


def _printing(watch: Watch) -> Watch:
    """Say on stderr, too, what options are the best so far, as source to paste."""
    told: list[MappingOptions] = []

    def tell(progress: Progress) -> None:
        watch(progress)
        if progress.measured and progress.options not in told[-1:]:
            told.append(progress.options)
            debug.say(f"tcomp: {progress.label}: {readable_seconds(progress.best)}, {progress.options}")

    return tell
