from __future__ import annotations

import math
import random
from dataclasses import fields, replace

import pytest

from tcomp.driver import lower
from tcomp.grammar import define
from tcomp.mapping.machines.cpu import this_machine
from tcomp.mapping.options.declarations import Integers
from tcomp.mapping.options.effects import matters
from tcomp.mapping.options.options import NAMED, OPTIONS, MappingOptions
from tcomp.model.terms.sizes import Sizes
from tcomp.tuner.model.features import of_options
from tcomp.tuner.space.parameters import Scalar
from tcomp.tuner.space.parameters import Sizes as SizesParameter
from tcomp.tuner.space.seeds import seeds
from tcomp.tuner.space.space import NOT_SEARCHED, Space, divided, space_of
from tests.targets import CPU

pytestmark = pytest.mark.sweep(2)

MM = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }", {"M": 26, "K": 20, "N": 50}
SOFTMAX = (
    """def f(float(N,D) X) -> (Y) {
  m(n) max=! X(n,d)   e(n,d) = exp(X(n,d) - m(n))   s(n) +=! e(n,d)   Y(n,d) = e(n,d) / s(n)
}""",
    {"N": 12, "D": 40},
)
BLUR = (
    """def f(float(H,W) I) -> (O) {
  x(h,w) = (I(h,w) + I(h,w+1)) / 2   O(h,w) = (x(h,w) + x(h+1,w)) / 2
}""",
    {"H": 21, "W": 33},
)
ADD = "def f(float(N) A, float(N) B) -> (C) { C(n) = A(n) + B(n) }", {"N": 100}
PROGRAMS = {"mm": MM, "softmax": SOFTMAX, "blur": BLUR, "add": ADD}
TARGETS = ("cpu", "cuda:sm_80")
Program = tuple[str, dict[str, int]]


def space(
    program: Program, target: str = "cpu", base: MappingOptions | None = None, fixed: tuple[str, ...] = ()
) -> Space:
    text, sizes = program
    options = base or MappingOptions()
    return space_of(lower(define(text)["f"], Sizes(sizes), options, CPU), options, target, fixed)


def text_of(program: Program, options: MappingOptions) -> str:
    return lower(define(program[0])["f"], Sizes(program[1]), options, CPU).source.text


def values_of(found: Space, name: str) -> tuple[object, ...]:
    parameter = next(p for p in found.parameters if p.name == name)
    assert isinstance(parameter, Scalar)
    return parameter.choices


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
class TestMoves:
    def test_every_move_leads_to_a_normal_form(self, program: Program, target: str) -> None:
        found, rng = space(program, target), random.Random(1)
        known = [found.base]
        for _ in range(200):
            parents = rng.choices(known, k=3)
            known += [found.drawn(rng), found.mutated(parents[0], rng, 0.3), found.crossed(parents, rng)]
        known += found.neighbours(known[-1])
        assert all(found.normal(options) == options for options in known)
        assert len(set(known)) > 20

    def test_nothing_that_does_not_matter_is_searched(self, program: Program, target: str) -> None:
        found, rng = space(program, target), random.Random(2)
        for _ in range(200):
            options = found.drawn(rng)
            for option in fields(MappingOptions):
                if getattr(options, option.name) != getattr(found.base, option.name):
                    assert matters(options, option.name, target)
                    assert option.name not in NOT_SEARCHED

    def test_neighbours_are_one_option_away_and_all_different(self, program: Program, target: str) -> None:
        found, rng = space(program, target), random.Random(3)
        for options in (found.base, found.drawn(rng)):
            near = list(found.neighbours(options))
            assert near and len(set(near)) == len(near) and options not in near

    def test_what_is_not_mutated_stays(self, program: Program, target: str) -> None:
        found, rng = space(program, target), random.Random(4)
        for _ in range(50):
            options = found.drawn(rng)
            assert found.mutated(options, rng, 0.0) == options

    def test_a_child_has_every_part_from_one_of_its_parents(self, program: Program, target: str) -> None:
        found, rng = space(program, target), random.Random(5)
        for _ in range(100):
            parents = [found.drawn(rng) for _ in range(3)]
            child = found.crossed(parents, rng)
            for parameter in found.parameters:
                mine = getattr(child, parameter.name)
                theirs = [getattr(p, parameter.name) for p in parents]
                if isinstance(mine, tuple) and matters(child, parameter.name, target):
                    padded = [(*t, *[1] * 3) for t in theirs if t is not None]
                    assert all(m in {t[d] for t in padded} for d, m in enumerate(mine))
                elif matters(child, parameter.name, target):
                    assert mine in theirs


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
def test_the_normal_form_gives_the_same_code(program: Program) -> None:
    found, rng = space(program), random.Random(6)
    for _ in range(12):
        options = replace(
            found.drawn(rng),
            tile_sizes=tuple(rng.choice((0, 1, 8, 64, 1000)) for _ in range(4)),
            threads=rng.choice((None, (8, 8))),
            fusion_strategy=rng.choice(("max", "min")),
            recompute_limit=rng.choice((1.0, 3.0)),
            unroll=rng.choice((1, 64)),
        )
        normal = found.normal(options)
        assert text_of(program, options) == text_of(program, normal), (options, normal)


class TestValues:
    def test_an_extent_is_divided_by_powers_of_two_and_evenly(self) -> None:
        assert divided(10) == {1, 2, 3, 4, 5, 8, 10, 16}
        assert divided(1) == {1}

    def test_each_loop_has_tiles_of_its_own(self) -> None:
        tiles = next(p for p in space(MM).parameters if p.name == "tile_sizes")
        assert isinstance(tiles, SizesParameter)
        rows, columns = tiles.positions
        assert {1, 2, 4, 7, 8, 13, 16, 0} <= set(rows) and max(rows) < 26
        assert {25, 13, 32, 0} <= set(columns) and max(columns) < 50

    def test_a_single_cluster_is_not_fused(self) -> None:
        assert not {"fusion_strategy", "recompute_limit"} & {p.name for p in space(MM).parameters}
        assert {"fusion_strategy", "recompute_limit"} <= {p.name for p in space(BLUR).parameters}

    def test_only_reductions_have_register_tiles(self) -> None:
        assert "register_tile" in {p.name for p in space(MM).parameters}
        assert "register_tile" not in {p.name for p in space(BLUR).parameters}

    def test_options_of_another_target_are_left_alone(self) -> None:
        assert all(not OPTIONS[p.name].targets or "cpu" in OPTIONS[p.name].targets for p in space(MM).parameters)
        assert "register_tile" not in {p.name for p in space(MM, "simulator").parameters}

    def test_the_threads_of_a_processor_are_granted_not_searched(self) -> None:
        assert "threads" not in {p.name for p in space(MM).parameters}
        assert "threads" in {p.name for p in space(MM, "simulator").parameters}

    def test_fixed_options_keep_their_values(self) -> None:
        base = MappingOptions(tile_sizes=(8, 8), parallel=False)
        found = space(MM, base=base, fixed=("tile_sizes", "parallel"))
        rng = random.Random(7)
        drawn = [found.drawn(rng) for _ in range(20)]
        assert {(o.tile_sizes, o.parallel) for o in drawn} == {((8, 8), False)}

    def test_every_searched_option_has_values_of_its_kind(self) -> None:
        for target in TARGETS:
            for name, option in OPTIONS.items():
                if option.is_searched(target) and name not in NOT_SEARCHED:
                    parameters = [p for program in PROGRAMS.values() for p in space(program, target).parameters]
                    assert any(p.name == name and p.count > 1 for p in parameters), name

    def test_integers_are_powers_of_two_up_to_the_usual(self) -> None:
        assert values_of(space(MM, "cuda:sm_80"), "reduction_tile") == (None, 1, 2, 4, 8, 16, 32, 64)


class TestLists:
    tiles = SizesParameter("tile_sizes", OPTIONS["tile_sizes"], ((1, 2, 4, 0), (8, 16, 0)), 0, (7, 20), (3, 16))
    threads = SizesParameter("threads", OPTIONS["threads"], ((1, 512, 1024), (1, 2), (1,)), 1)

    def test_large_tiles_are_whole(self) -> None:
        assert self.tiles.settled((7, 19)) == (0, 19)
        assert self.tiles.settled((2,)) == (2, 0)
        assert self.tiles.settled((2, 8, 5)) == (2, 8)
        assert self.tiles.settled(None) is None

    def test_trailing_ones_are_left_out(self) -> None:
        assert self.threads.settled((512, 1, 1)) == (512,)
        assert self.threads.settled((1, 1)) == (1,)

    def test_steps_lead_to_the_next_numbers(self) -> None:
        assert list(self.tiles.near((2, 16))) == [None, (1, 16), (4, 16), (2, 8), (2, 0)]
        assert list(self.tiles.near((3, 0))) == [None, (2, 0), (4, 0), (3, 16)]
        assert list(self.tiles.near(None)) == [(2, 16), (4, 16), (3, 8), (3, 0)]

    def test_illegal_lists_are_not_proposed(self) -> None:
        rng = random.Random(8)
        found = {self.threads.drawn(rng) for _ in range(200)}
        found |= {self.threads.crossed([(1024,), (1, 2)], rng) for _ in range(200)}
        found |= {self.threads.mutated((1024,), rng, 0.5) for _ in range(200)}
        found |= set(self.threads.near((1024,)))
        assert (1024, 2) not in found and {(1024,), (512, 2), None} <= found
        assert isinstance(OPTIONS["tile_sizes"].kind, Integers)


def test_register_tiles_fit_the_registers() -> None:
    found, rng, machine = space(MM), random.Random(8), this_machine()
    drawn = [found.drawn(rng) for _ in range(300)]
    moved = [found.mutated(o, rng, 0.5) for o in drawn] + [n for o in drawn[:20] for n in found.neighbours(o)]
    tiles = {o.register_tile for o in (*drawn, *moved)} - {None}
    most = machine.registers * machine.vector_bytes // 4
    assert len(tiles) > 20 and max(map(math.prod, tiles)) <= most
    assert max(map(math.prod, tiles)) > most / 2


class TestSeeds:
    def test_the_default_comes_first_and_each_mapping_once(self) -> None:
        found = space(MM)
        stored = [MappingOptions(tile_sizes=(64, 8)), MappingOptions(tile_sizes=(26, 8), threads=(64,))]
        candidates = seeds(found, stored)
        assert candidates[0].options == MappingOptions() and candidates[0].origin == "default"
        assert [c.options.tile_sizes for c in candidates if c.origin == "stored"] == [(0, 8)]
        assert {found.normal(o) for o in NAMED.values()} <= {c.options for c in candidates}
        assert len({c.options for c in candidates}) == len(candidates)


def test_names_that_are_left_to_the_model_have_a_number_and_a_choice() -> None:
    left, chosen = (of_options(MappingOptions(route=r), "cuda:sm_90") for r in (None, "tensor"))
    assert (left["route"], left["route of the model"]) == (-1.0, 1.0)
    assert (chosen["route"], chosen["route of the model"]) == (1.0, 0.0)
    assert values_of(space(ADD, "cuda:sm_90"), "route") == (None, "async", "tensor")
