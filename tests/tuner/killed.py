"""A run in a process that will be killed: it tells how many candidates are kept, and the seconds left."""

from __future__ import annotations

import time
from multiprocessing.connection import Connection
from pathlib import Path

from tcomp.mapping.options.options import MappingOptions
from tcomp.tuner.database.database import Database
from tcomp.tuner.database.trials import Candidate
from tcomp.tuner.progress import Progress
from tcomp.tuner.search import Run, Searcher
from tcomp.tuner.settings import Settings
from tests.tuner.fakes import FakeWorkshop, Listed
from tests.tuner.problems import problem, tiled

PROBLEM = problem()
SETTINGS = Settings(budget=300.0)
CANDIDATES = [MappingOptions(), *(tiled(n) for n in range(61, 10_000))]


def search(path: Path, told: Connection, count: int) -> None:
    """Measure so many candidates, one every few milliseconds, in a fixed order."""

    def tell(progress: Progress) -> None:
        told.send((progress.measured, progress.end - time.monotonic()))

    with Database(path) as database:
        searcher = Searcher((Candidate(CANDIDATES[0], "default"),), Listed(CANDIDATES[1:count]))
        Run(PROBLEM, SETTINGS, searcher, FakeWorkshop(pause=0.002), database, tell).search()
    told.send(None)
