"""Global temporaries share scratch memory unless they are alive together."""

from __future__ import annotations

from tcomp.backends.arena import ALIGNMENT, LARGEST_ON_STACK, STACK_BYTES, group_lives, lay_out
from tcomp.driver import Compilation, lower
from tcomp.grammar import define
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import Sizes
from tests.targets import CPU

CHAIN = """def f(float(N) A) -> (O) {
  a(i) = A(i) + 1.0
  b(i) = a(i) * 2.0 + a(N-1-i)
  c(i) = b(i) * 2.0 + b(N-1-i)
  O(i) = c(i) * 2.0 + c(N-1-i)
}"""


def _unfused() -> Compilation:
    return lower(define(CHAIN)["f"], Sizes({"N": 1000}), MappingOptions().fuse("min"), CPU)


def test_lives_span_the_groups_that_touch_a_storage() -> None:
    lives = group_lives(_unfused().plan)
    assert (lives["a_1"], lives["b_1"], lives["c_1"]) == ((0, 1), (1, 2), (2, 3))


def test_disjoint_lives_share_memory_and_overlapping_ones_do_not() -> None:
    arena = lay_out(_unfused().plan)
    room = -(-4000 // ALIGNMENT) * ALIGNMENT
    assert arena.shared["a_1"] == arena.shared["c_1"]
    assert arena.shared["a_1"] != arena.shared["b_1"]
    assert arena.shared_bytes == 2 * room
    assert arena.alone == {"b_1"}


def test_pointers_to_shared_memory_are_not_restrict() -> None:
    text = _unfused().source.text
    assert "float *restrict v_b_1" in text
    assert "float *v_a_1" in text and "float *v_c_1" in text


def test_many_small_tile_buffers_do_not_fill_the_stack() -> None:
    """Each of them would fit; only as many are there as fit together, and the program runs."""
    body = " ".join(f"T{k}(i,j) = T{k - 1}(i,j) + T{k - 1}(i+1,j)" for k in range(1, 50))
    text = f"def f(float(N,M) A) -> (O) {{ T0(i,j) = A(i,j) {body} O(i,j) = T49(i,j) }}"
    options = MappingOptions().tile(16, 64).fuse("max")
    made = lower(define(text)["f"], Sizes({"N": 120, "M": 64}), options, CPU)
    tiles = {b.storage: b.bytes for b in made.plan.buffers.values() if b.space == "tile"}
    arena = lay_out(made.plan)
    on_stack = sum(size for name, size in tiles.items() if name not in arena.private)
    assert sum(tiles.values()) > STACK_BYTES >= on_stack > 0
    assert max(tiles.values()) <= LARGEST_ON_STACK
