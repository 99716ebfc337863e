"""Where copies begin, as expressions of the loops around them."""

from __future__ import annotations

import islpy as isl
import pytest

from tcomp.loops.codegen import affine_expressions
from tcomp.loops.indexing import Ranges
from tcomp.loops.ir import Number, Variable, substitute


@pytest.mark.parametrize("steps", ["", "[step_t] -> "], ids=["alone", "beside a step"])
def test_remainders_are_kept(steps: str) -> None:
    """``A(t, (i - 1) % 2)`` began at ``i + 1`` where a step was around."""
    first, second = affine_expressions(isl.MultiAff(f"{steps}{{ [i] -> [((-1 + i) mod 2), (3i)] }}"), (Variable("r0"),))
    for value in range(5):
        own, other = (Ranges({}).simplify(substitute(e, "r0", Number(value))) for e in (first, second))
        assert (own, other) == (Number((value - 1) % 2), Number(3 * value))


def test_steps_keep_their_names() -> None:
    (found,) = affine_expressions(isl.MultiAff("[step_t] -> { [i] -> [(step_t + floor(i/2))] }"), (Variable("r0"),))
    values = {"r0": Number(5), "step_t": Number(4)}
    for name, value in values.items():
        found = substitute(found, name, value)
    assert Ranges({}).simplify(found) == Number(6)
