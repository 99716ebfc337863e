"""Candidates that are alike have the same code, and most of those that have the same code are found alike."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.text.writer import plan_text
from tcomp.runtime.kernel import Kernel
from tcomp.tuner.database.trials import Candidate
from tcomp.tuner.measuring.evaluation import Bench, CompileJob, compile_candidate
from tcomp.tuner.measuring.executors import local_executor
from tcomp.tuner.measuring.likeness import likeness
from tcomp.tuner.space.space import space_of
from tests.tuner.problems import MM, problem

LAYER = """
def layer(float(M,K) X, float(K,N) W) -> (Y) {
  H(m,n) +=! X(m,k) * W(k,n)
  Y(m,n) = H(m,n) * 2 + 1
}
"""


@pytest.mark.parametrize(("text", "target", "draws"), [(MM, "cpu", 16), (LAYER, "cpu", 16), (MM, "cuda:sm_80", 6)])
def test_what_is_alike_has_the_same_code(text: str, target: str, draws: int) -> None:
    of = problem(text, target=target, M=24, K=8, N=32)
    base = of.specialisation.options
    space = space_of(of.specialisation.lower(), base, target)
    rng = random.Random(3)
    drawn = [space.mutated(base, rng, 0.4) if k % 2 else space.drawn(rng) for k in range(draws)]
    sources: dict[str, str] = {}
    for options in drawn:
        specialisation = of.with_options(options)
        begun = specialisation.begin()
        text = specialisation.lower(begun).source.text
        assert sources.setdefault(likeness(begun, options, target), text) == text
    if target == "cpu":
        found, there_are = len(sources), len(set(sources.values()))
        assert there_are <= found < draws, "some are alike, and few have the same code without being so"


def test_threads_that_are_granted_make_other_code() -> None:
    of = problem(MM, M=240, K=80, N=320)
    all_cores = of.specialisation.options
    one = replace(all_cores, threads=(1,))
    found = {likeness(of.with_options(o).begin(), o, "cpu") for o in (all_cores, one)}
    assert len(found) == 2


def test_going_on_gives_what_one_run_gives() -> None:
    specialisation = problem(LAYER, M=24, K=8, N=32).specialisation
    begun = specialisation.begin()
    gone_on, at_once = specialisation.lower(begun), specialisation.lower()
    assert gone_on.source == at_once.source
    assert gone_on.stages == at_once.stages


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90"])
def test_candidates_go_on_from_what_does_not_depend_on_options(target: str) -> None:
    """The first plan is made once, and no candidate changes it."""
    of = problem(LAYER, target=target, M=24, K=8, N=32)
    first = of.specialisation.schedule()
    before = plan_text(first.plan, "schedule")
    for options in (MappingOptions(), MappingOptions(fusion_strategy="min"), MappingOptions(tile_sizes=(5, 7))):
        specialisation = of.with_options(options)
        gone_on, at_once = specialisation.lower(specialisation.begin(first)), specialisation.lower()
        assert gone_on.source == at_once.source
        assert gone_on.stages == at_once.stages
    assert plan_text(first.plan, "schedule") == before


def at_this_moment(_: Kernel) -> tuple[tuple[str, float], ...]:
    return (("when", time.time()),)


def test_what_is_alike_is_compiled_once(tmp_path: Path) -> None:
    bench = Bench(str(tmp_path), describe=at_this_moment)
    of = problem(M=16, K=16, N=16)
    several = [MappingOptions(), MappingOptions(recompute_limit=4.0), MappingOptions(tile_sizes=(4, 16))]
    with local_executor(1) as executor:
        first, same, other = executor.map(
            compile_candidate, [CompileJob(bench, of, Candidate(o, "test")) for o in several]
        )
    assert (same.source, same.features) == (first.source, first.features)
    assert other.source != first.source
    assert other.features != first.features
