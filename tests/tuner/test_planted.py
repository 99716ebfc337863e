"""A run with candidates that crash, hang, want too much memory or are wrong: it ends with the right winner."""

from __future__ import annotations

from pathlib import Path

import pytest

from tcomp.mapping.options.options import MappingOptions
from tcomp.tuner.database.database import Database
from tcomp.tuner.database.identity import identity_of
from tcomp.tuner.database.trials import Candidate, Outcome, Problem
from tcomp.tuner.measuring.evaluation import Bench
from tcomp.tuner.measuring.executors import local_executor
from tcomp.tuner.measuring.preparation import Limits
from tcomp.tuner.measuring.workshop import ExecutorWorkshop
from tcomp.tuner.search import Run, Searcher
from tcomp.tuner.settings import Settings
from tests.tuner.fakes import Listed
from tests.tuner.faulty import FAULTS, TARGET, options_with
from tests.tuner.problems import problem

PLANTED = [
    "writes to address 8",
    "never returns",
    "adds to one element",
    "writes nothing",
    "wants too much memory",
    "is no C",
    "crashes the compiler",
    "has no room for its text",
]
SOUND = [MappingOptions(tile_sizes=tiles, parallel=False) for tiles in ((32, 64), (64, 64))]


@pytest.mark.long
def test_planted_candidates_are_lost_alone(tmp_path: Path) -> None:
    # The default is slow here, so that it is clear who wins.
    slow = MappingOptions(tile_sizes=(1, 1), register_tile=(1, 16), parallel=False)
    plain = problem(target=TARGET, M=128, K=128, N=128)
    of = Problem(plain.with_options(slow), plain.device)
    bench = Bench(
        str(tmp_path), limits=Limits(compile=10.0, call=2.0, memory=2 << 30), modules=("tests.tuner.faultytarget",)
    )
    planted = [options_with(name) for name in PLANTED]
    candidates = [*planted[:3], SOUND[0], *planted[3:], SOUND[1]]
    searcher = Searcher((Candidate(slow, "default"),), Listed(candidates))
    with Database() as database, local_executor(2) as executor:
        workshop = ExecutorWorkshop(of, bench, executor)
        result = Run(of, Settings(90.0), searcher, workshop, database).search()
        kept = database.best(identity_of(of.specialisation, of.device))
    outcomes = {t.options: t.outcome for t in result.history}
    assert {name: outcomes[options_with(name)] for name in PLANTED} == {name: FAULTS[name].outcome for name in PLANTED}
    assert [outcomes[options] for options in (slow, *SOUND)] == [Outcome.MEASURED] * 3
    assert result.best in SOUND
    assert result.speedup > 1
    assert kept is not None
    assert kept.options == result.best
