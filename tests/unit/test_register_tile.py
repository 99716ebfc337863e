"""The model that chooses register tiles."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

import tcomp as tc
from tcomp.driver import lower
from tcomp.grammar import define
from tcomp.mapping.contraction.registertile import Loads, best_register_tile, single_column, vectorised
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cpucontractions import REGISTER_TILES
from tcomp.model.terms.sizes import Sizes
from tests.targets import CPU

AVX512 = Machine(vector_bytes=64, registers=32, datapath_bytes=64, threads=2)
HALVED = Machine(vector_bytes=64, registers=32, datapath_bytes=32, threads=2)
AVX2 = Machine(vector_bytes=32, registers=16, datapath_bytes=32, threads=2)
NEON = Machine(vector_bytes=16, registers=32, datapath_bytes=16, threads=2)
MACHINES = {"avx512": AVX512, "halved": HALVED, "avx2": AVX2, "neon": NEON}
FLOATS = Loads(shared=True, itemsize=4)
PIXELS = Loads(shared=False, itemsize=4, both=True, pointers=1)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("shape", [(1, 4), (1, 1000), (3, 5), (26, 26), (64, 56), (100, 17), (512, 512), (1000, 3)])
@pytest.mark.parametrize("loads", [FLOATS, Loads(False, 4), Loads(True, 8), Loads(True, 2), PIXELS])
def test_tiles_fit_registers_and_problem(machine: Machine, shape: tuple[int, int], loads: Loads) -> None:
    tile = best_register_tile(*shape, loads, machine)
    assert tile is not None
    assert tile.rows <= shape[0] and tile.columns <= shape[1]
    assert tile.lanes * loads.itemsize <= machine.vector_bytes
    assert tile.lanes <= tile.columns
    assert tile.rows * tile.vectors + (tile.vectors if loads.shared else 1) + 1 <= machine.registers


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_a_large_product_is_bound_by_its_multiplications(machine: Machine) -> None:
    tile = best_register_tile(960, 960, FLOATS, machine)
    assert tile is not None
    passes = max(1, tile.lanes * 4 / machine.datapath_bytes)
    assert tile.cycles == tile.rows * tile.vectors * passes / REGISTER_TILES.ports
    assert tile.cycles >= REGISTER_TILES.latency
    assert 960 % tile.rows == 0 and 960 % tile.columns == 0


@pytest.mark.parametrize("side", [128, 200, 256, 512, 1000, 1024])
def test_few_registers_hold_more_accumulators_than_hide_one_addition(side: int) -> None:
    """The lines of a panel that stays near are counted, too: wide vectors of many steps would come from afar."""
    tile = best_register_tile(side, side, Loads(True, 4, steps=side), AVX2)
    assert tile is not None
    assert tile.rows * tile.vectors >= 10 and tile.vectors <= 3


def test_columns_are_whole_lines_where_a_panel_does_not_stay_near() -> None:
    for steps, columns in ((768, 16), (200, 24)):
        tile = best_register_tile(256, 1000, Loads(True, 4, steps=steps), AVX2)
        assert tile is not None and tile.columns == columns


@pytest.mark.parametrize("shape", [(26, 26), (64, 56), (48, 56)])
def test_many_rows_of_one_vector_wait_for_their_broadcasts(shape: tuple[int, int]) -> None:
    tile = best_register_tile(*shape, Loads(True, 4, steps=72), AVX2)
    assert tile is not None and tile.vectors > 1


def test_narrow_datapaths_do_not_pay_for_lanes_that_are_not_used() -> None:
    """Three vectors of 8 do what two of 16 do, in three quarters of the passes."""
    tile = vectorised(4, 24, FLOATS, HALVED)
    assert tile is not None and tile.lanes == 8
    wide = vectorised(4, 24, FLOATS, AVX512)
    assert wide is not None and wide.lanes == 16


def test_a_single_column_is_no_vector() -> None:
    assert best_register_tile(100, 1, FLOATS, AVX512) is None
    assert vectorised(40, 32, FLOATS, AVX512) is None


def test_a_column_that_is_left_over_costs_as_much_as_a_vector() -> None:
    """As long as its rows fit the registers; with plain loops for the rest, tiles would be chosen to have none."""
    for columns in (17, 33, 513):
        tile = best_register_tile(120, columns, FLOATS, AVX512)
        assert tile is not None and tile.columns > 8
    one = single_column(6, FLOATS, AVX2)
    assert one is not None and (one.rows, one.columns, one.lanes) == (6, 1, 1)
    assert one.cycles == REGISTER_TILES.latency + 1
    assert single_column(15, FLOATS, AVX2) is None


def test_panels_from_the_next_cache_are_read_in_few_vectors_a_step() -> None:
    """Two vectors a step hide behind the products of many rows, five do not."""
    near = best_register_tile(196, 196, Loads(True, 4, steps=16), AVX512)
    far = best_register_tile(196, 196, Loads(True, 4, steps=196), AVX512)
    assert near is not None and far is not None
    assert near.vectors > far.vectors
    assert far.rows * far.vectors / REGISTER_TILES.ports >= far.vectors * 64 / 16


def test_vectors_that_straddle_lines_need_more_rows() -> None:
    aligned = best_register_tile(63, 63, FLOATS, AVX512)
    straddling = best_register_tile(63, 63, Loads(True, 4, aligned=False), AVX512)
    assert aligned is not None and straddling is not None
    assert straddling.rows > aligned.rows
    halves = best_register_tile(63, 63, Loads(True, 4, aligned=False), AVX2)
    assert halves == best_register_tile(63, 63, FLOATS, AVX2)


@pytest.mark.parametrize("rows", [15, 30, 36])
def test_tiles_cut_out_of_more_rows_hold_whole_register_tiles(rows: int) -> None:
    tile = best_register_tile(rows, 96, FLOATS, AVX2, (True, True))
    assert tile is not None
    assert rows % tile.rows == 0 and 96 % tile.columns == 0


def test_of_equal_tiles_one_as_wide_as_a_line_is_taken() -> None:
    """Bytes are packed from lines of 64 columns, which a narrower tile would read twice."""
    narrow = best_register_tile(512, 512, FLOATS, AVX512)
    wide = best_register_tile(512, 512, replace(FLOATS, line=64), AVX512)
    assert narrow is not None and wide is not None
    assert wide.columns == 64 > narrow.columns
    assert wide.cycles / (wide.rows * wide.columns) == narrow.cycles / (narrow.rows * narrow.columns)


def test_lines_of_rows_that_lie_pages_apart_stay_near() -> None:
    """Rows that share a set of the nearest cache are no more than it has ways, with one for the vectors."""
    plain = best_register_tile(196, 256, Loads(True, 4, steps=256), AVX512)
    crowded = best_register_tile(196, 256, Loads(True, 4, steps=256, apart=4096), AVX512)
    beside = best_register_tile(196, 256, Loads(True, 4, steps=256, apart=4096 + 64), AVX512)
    assert plain is not None and crowded is not None
    assert plain == beside and plain.rows > 7 >= crowded.rows and crowded.rows * crowded.vectors >= 14


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
def test_rows_share_vectors_of_weights_but_not_pointers(machine: Machine) -> None:
    """One row loads two vectors a product; a row of few vectors asks where it is more often than it multiplies."""
    tile = best_register_tile(56, 512, PIXELS, machine)
    assert tile is not None
    assert 1 < tile.rows <= REGISTER_TILES.most_pointers and tile.vectors >= 3
    free = best_register_tile(56, 512, replace(PIXELS, pointers=0), machine)
    assert free is not None and free.rows >= tile.rows


@pytest.mark.parametrize("given", [(4, 24), (3, 32), (7, 40), (1 << 20, 1 << 20)])
def test_tiles_hold_whole_ones_of_a_register_tile_that_a_user_gives(given: tuple[int, int]) -> None:
    """One that began or ended in the midst of a tile would run in plain loops."""
    function = define("def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }")["f"]
    sizes = Sizes({"M": 840, "K": 64, "N": 960})
    (group,) = lower(function, sizes, tc.MappingOptions(register_tile=given), CPU).plan.groups
    assert max(group.sizes) < 840 and math.prod(-(-e // s) for e, s in zip((840, 960), group.sizes, strict=True)) >= 8
    whole = all(size % side == 0 for size, side in zip(group.sizes, given, strict=True))
    assert whole or max(group.sizes) < max(given)
