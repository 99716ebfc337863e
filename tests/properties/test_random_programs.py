"""Random programs under random options: the compiled kernel gives exactly what the interpreter gives.

``tcomp fuzz`` goes on for as long as one likes, on the simulator, too; here are a few programs, always the same, and
machines that are smaller than any.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tcomp.fuzzing.cases import Case
from tcomp.fuzzing.execution import Outcome, Verdict, execute
from tcomp.fuzzing.programs.programs import Program
from tcomp.fuzzing.relations import RELATIONS
from tcomp.fuzzing.workers import ENVIRONMENT
from tcomp.mapping.options.options import MappingOptions
from tests.properties.machines import BOUNDS, Bounds
from tests.properties.strategies import options, programs, suite

pytestmark = pytest.mark.sweep(3)


@pytest.fixture(autouse=True)
def proved_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pass is proved, and nothing comes from, or goes to, the disk."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@suite(15)
@given(programs(), options("cpu"), BOUNDS)
@pytest.mark.long
def test_the_kernel_equals_the_interpreter(program: Program, options: MappingOptions, bounds: Bounds) -> None:
    with bounds.imitated():
        assert execute(Case(program, "cpu", options)) == Outcome(Verdict.PASSED)


@pytest.mark.parametrize("relation", [name for name in RELATIONS if name != "same"])
def test_variants_give_the_same(relation: str) -> None:
    @suite(5)
    @given(programs(), options("cpu"), st.integers(0, 1000))
    def check(program: Program, options: MappingOptions, variation: int) -> None:
        outcome = execute(Case(program, "cpu", options, relation, variation))
        # What sizes that are left open do not do is refused in words; nothing else may be.
        refused = outcome.verdict == Verdict.REFUSED and outcome.kind.startswith("open sizes: ")
        assert outcome == Outcome(Verdict.PASSED) or refused, outcome.detail

    check()
