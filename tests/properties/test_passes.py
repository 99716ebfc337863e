"""Each pass of each strategy on random programs: no instance is lost or invented, and the plan is proved legal."""

from __future__ import annotations

import islpy as isl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tcomp as tc
from tcomp.fuzzing.programs.programs import Program
from tcomp.fuzzing.rewriting import has_blocks
from tcomp.mapping.options.choices import FUSION_STRATEGIES
from tcomp.mapping.plan.schedule import schedule
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.proof.legality import prove
from tcomp.model.build import build
from tcomp.model.scop import ScopStatement
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.registry import backend_of
from tests.properties.machines import BOUNDS, Bounds
from tests.properties.strategies import options, programs, suite

pytestmark = pytest.mark.filterwarnings("ignore::tcomp.ProgramWarning")


@suite(25)
@given(programs(), options("cpu"), BOUNDS)
@pytest.mark.long
def test_passes_keep_all_instances_and_are_legal(program: Program, options: tc.MappingOptions, bounds: Bounds) -> None:
    assume(not has_blocks(program.definition))  # those have a plan for each piece
    scop = build(program.function, Sizes(program.sizes))
    with bounds.imitated():
        plan = schedule(scop)
        assert plan.tree.get_domain().is_equal(scop.domain)
        prove(plan, "schedule")
        for step in backend_of("cpu").passes:
            plan = step.run(plan, options)
            check_instances(plan)
            prove(plan, step.name)


def check_instances(plan: Plan) -> None:
    """The tree runs what the plan's Scop holds: of each statement of the program, what tiles need, once or per tile."""
    assert plan.tree.get_domain().is_equal(plan.scop.domain)
    assert plan.scop.by_name.keys() <= plan.program.by_name.keys()
    for before in plan.program.statements:
        output = plan.program.storages[before.target].role != "temporary"
        now = plan.scop.by_name.get(before.name)
        if now is None:
            assert not output
            continue
        instances = without_tiles(now)
        assert instances.is_subset(before.domain)
        if output:
            assert now.tile_rank == 0
            assert instances.is_equal(before.domain)


def without_tiles(statement: ScopStatement) -> isl.Set:
    """The instances of the program that a statement runs, whatever the tile."""
    projected = statement.domain.project_out(isl.dim_type.set, 0, statement.tile_rank)
    return projected.set_tuple_name(statement.name)


EVERY_OPTION = st.builds(
    tc.MappingOptions,
    tile_sizes=st.none() | st.lists(st.integers(0, 2**40), max_size=7).map(tuple),
    fusion_strategy=st.sampled_from(FUSION_STRATEGIES),
    register_tile=st.none() | st.tuples(st.integers(1, 512), st.integers(1, 64)),
    recompute_limit=st.floats(1, allow_nan=False),
    parallel=st.booleans(),
    fast_math=st.booleans(),
)


@suite(200)
@given(EVERY_OPTION)
def test_options_survive_json(options: tc.MappingOptions) -> None:
    again = tc.MappingOptions.from_json(options.to_json())
    assert again == options
    assert again.to_json() == options.to_json()
    assert hash(again) == hash(options)
