"""Blocks that run at a time take tiles of few rows and few columns."""

from __future__ import annotations

import numpy as np
import pytest

import tcomp as tc
from tcomp.errors import PlanError
from tcomp.mapping.gpu.model import order_of_blocks, rows_read, tile_of_block
from tcomp.mapping.text.writer import plan_text
from tests.cuda.simulated import NEEDS_COMPILER

pytestmark = pytest.mark.sweep(2)

MM = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
BIASED = MM.replace("float(K,N) B", "float(K,N) B, float(N) b").replace(
    "k,n) }", "k,n)\n C(m,n) = max(C(m,n) + b(n), 0.0) }"
)
BATCHES = "def f(float(B,M,K) X, float(B,K,N) Y) -> (Z) { Z(b,m,n) +=! X(b,m,k) * Y(b,k,n) }"


def orders(text: str, options: tc.MappingOptions | None = None, **sizes: int) -> dict[int, int]:
    return dict(tc.define(text).f.compile(sizes=sizes, target="cuda:sm_90", options=options).compilation.plan.orders)


@pytest.mark.parametrize("tiles", [(1, 1), (7, 5), (5, 7), (1, 9), (9, 1), (12, 8), (64, 3)])
def test_every_order_has_each_tile_once(tiles: tuple[int, int]) -> None:
    for order in range(1, 70):
        found = {tile_of_block(tiles, order, block) for block in range(tiles[0] * tiles[1])}
        assert found == {(row, column) for row in range(tiles[0]) for column in range(tiles[1])}


@pytest.mark.parametrize("tiles", [(32, 32), (64, 64), (16, 64), (64, 16), (33, 47)])
@pytest.mark.parametrize("together", [132, 264])
def test_the_order_reads_less_in_each_wave(tiles: tuple[int, int], together: int) -> None:
    def read(order: int) -> int:
        waves = range(0, tiles[0] * tiles[1], together)
        return sum(sum(rows_read(tiles, order, first, together)) for first in waves)

    chosen = order_of_blocks(tiles, (128, 128), together)
    least = min(read(order) for order in range(1, tiles[0] + 1))
    assert chosen > 1 or read(1) <= 1.1 * least
    assert read(chosen) <= 1.15 * least


@pytest.mark.parametrize(("together", "most"), [(132, 0.7), (264, 0.9)])
def test_a_product_of_4096_reads_fewer_rows_and_columns(together: int, most: float) -> None:
    """In tiles of 128 x 128: rows and columns of tiles that all waves read, against those of row by row."""
    order = order_of_blocks((32, 32), (128, 128), together)
    waves = range(0, 1024, together)
    by_row, grouped = (sum(sum(rows_read((32, 32), o, first, together)) for first in waves) for o in (1, order))
    assert grouped <= most * by_row


def test_one_wave_has_no_order_and_others_are_as_asked() -> None:
    assert orders(MM, M=512, N=512, K=512) == {}
    assert orders(MM, tc.MappingOptions(order=1), M=4096, N=4096, K=64) == {}
    assert orders(MM, tc.MappingOptions(order=8), M=4096, N=4096, K=64) == {0: 8}
    assert orders(BIASED, tc.MappingOptions(order=8), M=4096, N=4096, K=64) == {0: 8}
    assert orders(BATCHES, tc.MappingOptions(order=3), B=4, M=2048, N=2048, K=64) == {0: 3}
    assert (
        orders("def f(float(M,N) A) -> (B) { B(m,n) = 2 * A(m,n) }", tc.MappingOptions(order=8), M=4096, N=4096) == {}
    )


def test_a_plan_reads_back_and_is_checked() -> None:
    f, sizes = tc.define(MM).f, {"M": 4096, "N": 4096, "K": 64}
    kernel = f.compile(sizes=sizes, target="cuda:sm_90", options=tc.MappingOptions(order=8))
    text = plan_text(kernel.compilation.plan, "barriers")
    again = f.compile(sizes=sizes, target="cuda:sm_90", plan=text)
    assert again.compilation.source.text == kernel.compilation.source.text
    for wrong, message in (("rows = 0", "0 rows of tiles"), ("rows = 8\n[[order]]\ngroup = 1\nrows = 2", "group 1")):
        with pytest.raises(PlanError, match=message):
            f.compile(sizes=sizes, target="cuda:sm_90", plan=text.replace("rows = 8", wrong))


@NEEDS_COMPILER
@pytest.mark.parametrize("order", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("text", [MM, BIASED, BATCHES], ids=["product", "with a bias", "batches"])
def test_results_are_those_of_the_interpreter(text: str, order: int) -> None:
    f, rng = tc.define(text).f, np.random.default_rng(0)
    batch = (2,) if text is BATCHES else ()
    shapes = [(*batch, 200, 8), (*batch, 8, 170), *([(170,)] if text is BIASED else [])]
    inputs = [rng.integers(-3, 4, shape).astype(np.float32) for shape in shapes]
    sizes = (1, 32, 16) if text is BATCHES else (32, 16)
    options = tc.MappingOptions(tile_sizes=sizes, order=order)
    np.testing.assert_array_equal(f(*inputs, target="simulator", options=options), f.reference(*inputs))
