"""Windows: a stage a few rows ahead of what reads it needs these rows alone, whose places are used in turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tcomp as tc
from tcomp.schedules import Schedule
from tests.schedules.programs import schedule
from tests.schedules.test_schedules import agrees

WINDOWS: dict[str, tuple[str, Callable[[Schedule], Schedule], dict[str, tuple[tuple[int, ...], tuple[int, ...]]]]] = {
    # Name: the program, the steps, and the shape and the folded dimension of each buffer.
    "rows": ("blur", lambda s: s["B"].compute_at("O", "y", store_at="root"), {"B_1": ((3, 15), (0,))}),
    "elements of rows": ("blur", lambda s: s["B"].compute_at("O", "x", store_at="root"), {"B_1": ((3, 15), (0,))}),
    "columns": (
        "blur",
        lambda s: s["O"].interchange("y", "x")["B"].compute_at("O", "x", store_at="root"),
        {"B_1": ((13, 1), ())},
    ),
    "downwards": (
        "blur",
        lambda s: s["O"].reverse("y")["B"].compute_at("O", "y", store_at="root"),
        {"B_1": ((3, 15), (0,))},
    ),
    "several rows at a time": (
        "blur",
        lambda s: s["O"].split("y", 2)["B"].compute_at("O", "y_o", store_at="root"),
        {"B_1": ((4, 15), (0,))},
    ),
    "in strips on threads": (
        "blur",
        lambda s: s["O"].split("y", 6).parallel("y_o")["B"].compute_at("O", "y_i", store_at="y_o").vectorize("x"),
        {"B_1": ((3, 15), (0,))},
    ),
    "in step": ("blur", lambda s: s["B"].compute_at("O", "y", shift=-3), {"B_1": ((4, 15), (0,))}),
    "three in step": (
        "chain",
        lambda s: s["C"].compute_at("D", "i", shift=-1)["B"].compute_at("D", "i", shift=-2),
        {"B_1": ((2,), (0,)), "C_1": ((2,), (0,))},
    ),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_has_room_for_what_is_in_use(name: str) -> None:
    program, steps, wanted = WINDOWS[name]
    kernel = agrees(program, steps(schedule(program)))
    assert {b.storage: (b.shape, b.folded) for b in kernel.compilation.plan.buffers.values()} == wanted


def test_the_first_rows_have_loops_of_their_own() -> None:
    """Later iterations compute one row and do not look for it among those before."""
    text = schedule("blur")["B"].compute_at("O", "y", store_at="root").compile().source
    assert "if ((c0 == 0)) {" in text and "% 3) * 15L" in text
    assert "c1 < (c0 + 3)" not in text


def test_a_window_that_is_too_short_is_refused() -> None:
    made = schedule("blur")["B"].compute_at("O", "y", store_at="root")
    plan = made.compile().stages["pack"]
    called, sizes = made["O"], {"H": 13, "W": 17}
    ops = tc.define(
        "def blur(float(H,W) I) -> (O) { B(y,x) = I(y,x) + I(y,x+1) + I(y,x+2)  O(y,x) = B(y,x) + B(y+1,x) + B(y+2,x)}"
    )
    assert "shape = [3, 15]\nlower" in plan and "folded = [0]" in plan and called.stages == ("B", "O")
    for rows in (3, 4, 13):
        ops.blur.compile(sizes=sizes, plan=plan.replace("[3, 15]", f"[{rows}, 15]"))
    with pytest.raises(tc.LegalityError, match="keeps 2 of B_1 along dimension 0") as caught:
        ops.blur.compile(sizes=sizes, plan=plan.replace("[3, 15]", "[2, 15]"))
    assert "S1[" in caught.value.message and "S0[" in caught.value.message
    with pytest.raises(tc.LegalityError, match="still in use"):
        ops.blur.compile(sizes=sizes, plan=plan.replace("[3, 15]", "[13, 3]").replace("folded = [0]", "folded = [1]"))
    with pytest.raises(tc.PlanError, match="folded dimensions"):
        ops.blur.compile(sizes=sizes, plan=plan.replace("folded = [0]", "folded = [0, 1]"))
    with pytest.raises(tc.PlanError, match="folded dimensions"):
        ops.blur.compile(sizes=sizes, plan=plan.replace("[3, 15]", "[0, 15]"))


def test_a_loop_that_is_too_long_to_be_copied_is_refused() -> None:
    called = tc.define("def scale(float(N) A) -> (B) { B(i) = 2 * A(i) }").scale
    long = called.schedule(sizes={"N": 65})["B"]
    with pytest.raises(tc.PlanError, match="i of B has 65 iterations; no more than 64"):
        long.unroll("i")
    pair = tc.define("def pair(float(N) A) -> (C) { B(i) = 2 * A(i)  C(i) +=! B(j) where i in 0:3 }").pair
    inside = pair.schedule(sizes={"N": 80})["B"].compute_at("C", "i", store_at="root").unroll("i")
    with pytest.raises(tc.PlanError, match="up to 80 iterations; no more than 64"):
        inside.compile()
    assert long.unroll("i", 64).compile().source.count("v_B[") == 64 + 63


def test_what_an_operation_touches_is_no_window() -> None:
    """Vectors of sums know elements that lie apart evenly."""
    made = schedule("mlp")["R"].compute_at("E", "m", store_at="root")["C"].compute_at("R", "m", store_at="root")
    vectors = made["C"].reorder("m", "n", "k").vectorize("k")
    assert {b.folded for b in agrees("mlp", vectors).compilation.plan.buffers.values()} == {()}
