"""Global temporaries share scratch memory unless they are alive together."""

from __future__ import annotations

from tcomp.backends.arena import ALIGNMENT, group_lives, lay_out
from tcomp.driver import Compilation, lower
from tcomp.grammar import define
from tcomp.mapping.options import MappingOptions
from tcomp.scop import Sizes
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
