"""Schedules by hand compute what the interpreter computes, print as loops and as source, and can be tuned over."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.grammar.ranges.ranges import infer
from tcomp.model.madeup import random_arguments
from tcomp.schedules import Schedule, ScheduleError
from tests.schedules.programs import TEXTS, operation, schedule

Steps = Callable[[Schedule], Schedule]


def agrees(name: str, made: Schedule) -> tc.Kernel:
    """The kernel, whose results are those of the interpreter."""
    called = operation(name)
    given = random_arguments(called.function, infer(called.function, TEXTS[name][1]), 3)
    kernel = made.compile()
    outputs = [tuple(v.copy() for v in given.contents.values()) or None for _ in range(2)]
    wanted, found = called.reference(*given.values, out=outputs[0]), kernel(*given.values, out=outputs[1])
    for w, f in zip(*(r if isinstance(r, tuple) else (r,) for r in (wanted, found)), strict=True):
        assert np.array_equal(w, f), made.source()
    return kernel


LEGAL: dict[str, tuple[str, Steps, str]] = {
    # Name: the program, the steps, and a line of the loops that come of it.
    "breadth first": ("blur", lambda s: s, "for y in 0 .. 11:"),
    "full inline": ("blur", lambda s: s["B"].inline(), "O(y,x) = B(y,x) + B(y+1,x) + B(y+2,x)"),
    "computed again in rows": ("blur", lambda s: s["B"].compute_at("O", "y"), "# B, as needed here:"),
    "sliding window": ("blur", lambda s: s["B"].compute_at("O", "y", store_at="root"), "each element once:"),
    "tiled": ("blur", lambda s: s["O"].tile("y", "x", 4, 8)["B"].compute_at("O", "x_o"), "for y_o in 0 .. 3:"),
    "tiled, with threads and vectors": (
        "blur",
        lambda s: (
            s["O"].tile("y", "x", 4, 8).parallel("y_o").vectorize("x_i")["B"].compute_at("O", "x_o").vectorize("x")
        ),
        "vectorized for x_i in 0 .. min(8, 15 - 8*x_o):",
    ),
    "sliding in strips": (
        "blur",
        lambda s: s["O"].split("y", 4).parallel("y_o")["B"].compute_at("O", "y_i", store_at="y_o"),
        "# B, as needed here, each element once in y_o:",
    ),
    "in step": (
        "blur",
        lambda s: s["B"].compute_at("O", "y", shift=-2),
        "# B, in step, 2 iterations earlier, so that B.y is O.y + 2:",
    ),
    "ping pong": (
        "chain",
        lambda s: s["C"].compute_at("D", "i", shift=-1)["B"].compute_at("D", "i", shift=-2),
        "# C, in step, 1 iteration earlier, so that C.i is D.i + 1:",
    ),
    "one in another in a third": (
        "chain",
        lambda s: s["D"].split("i", 5)["C"].compute_at("D", "i_o")["B"].compute_at("D", "i_o"),
        "for i_o in 0 .. 4:",
    ),
    "register tiles": (
        "mm",
        lambda s: s["C"].tile("m", "n", 4, 8).reorder("m_o", "n_o", "k", "m_i", "n_i").tensorize(),
        "for k in 0 .. 7:  # one operation",
    ),
    "sums in lanes": ("mm", lambda s: s["C"].vectorize("k"), "vectorized for k in 0 .. 7:"),
    "sums split": ("mm", lambda s: s["C"].split("k", 3).reorder("k_o", "m", "n", "k_i"), "start C for all m, n"),
    "skewed and fused": ("mm", lambda s: s["C"].skew("n", "m").fuse("m", "n").reverse("k"), "for m_n in"),
    "layers together": (
        "mlp",
        lambda s: s["E"].split("m", 2).parallel("m_o")["R"].compute_at("E", "m_o")["C"].compute_at("E", "m_o"),
        "parallel for m_o in 0 .. 3:",
    ),
    "rows together": (
        "rows",
        lambda s: s["s"].compute_at("Y", "n")["e"].compute_at("Y", "n")["m"].compute_at("Y", "n"),
        "# m, as needed here:",
    ),
    "a sum of indices": (
        "mm",
        lambda s: s["C"].skew("n", "m").interchange("k", "n").fuse("m", "k"),
        "start C for all n",
    ),
    "filter outside": ("conv", lambda s: s["O"].reorder("r", "s", "c", "n", "m", "h", "w"), "for r in 0 .. 3:"),
    "once in a loop that needs all of it": (
        "sums",
        lambda s: s["s"].compute_at("B", "i", store_at="root"),
        "each element once:",
    ),
    "data choose": ("scatter", lambda s: s["O"].split("n", 2).interchange("n_o", "d"), "for d in 0 .. 5:"),
    "a name again": (
        "again",
        lambda s: s["B"].inline()["B#2"].inline()["C"].compute_at("B#3", "i"),
        "# C, as needed here:",
    ),
    "copies of rows": ("blur", lambda s: s["O"].unroll("y", 4), "unrolled for y_i in 0 .. min(4, 11 - 4*y_o):"),
    "copies inside": ("blur", lambda s: s["O"].interchange("y", "x").unroll("y"), "unrolled for y in 0 .. 11:"),
    "a window that is unrolled": (
        "blur",
        lambda s: s["O"].unroll("y", 3)["B"].compute_at("O", "y_i", store_at="root"),
        "unrolled for y_i in 0 .. min(3, 11 - 3*y_o):",
    ),
    "copies of steps": ("mm", lambda s: s["C"].unroll("k", 2), "unrolled for k_i in 0 .. min(2, 7 - 2*k_o):"),
    "copies of copies": (
        "mm",
        lambda s: s["C"].unroll("n", 3).unroll("n_o").vectorize("k"),
        "unrolled for n_o in 0 .. 4:",
    ),
    "copies in a tile": (
        "mm",
        lambda s: s["C"].tile("m", "n", 4, 8).reorder("m_o", "n_o", "k", "m_i", "n_i").unroll("m_i").vectorize("n_i"),
        "unrolled for m_i in 0 .. min(4, 9 - 4*m_o):",
    ),
    "what is there is added to": ("acc", lambda s: s["y"].interchange("i", "j"), "for j in 0 .. 7:"),
}


@pytest.mark.parametrize("name", LEGAL)
def test_schedules_compute_what_the_program_says(name: str) -> None:
    program, steps, line = LEGAL[name]
    made = steps(schedule(program))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tc.ProgramWarning)
        agrees(program, made)
        assert line in str(made)
        # What it prints as makes it again.
        names: dict[str, Any] = {"ops": {program: operation(program)}}
        exec(made.source().replace(f"ops.{program}", f"ops[{program!r}]"), names)
    assert names["s"].plan == made.plan
    assert str(names["s"]) == str(made)


def test_a_schedule_prints_as_loops() -> None:
    made = schedule("blur")["O"].tile("y", "x", 4, 8).parallel("y_o")["B"].compute_at("O", "x_o").vectorize("x")
    assert (
        str(made)
        == """\
parallel for y_o in 0 .. 3:
  for x_o in 0 .. 2:
    # B, as needed here:
    for y in 4*y_o .. min(13, 4*y_o + 6):
      vectorized for x in 8*x_o .. min(15, 8*x_o + 8):
        B(y,x) = I(y,x) + I(y,x+1) + I(y,x+2)
    for y_i in 0 .. min(4, 11 - 4*y_o):
      for x_i in 0 .. min(8, 15 - 8*x_o):
        O(y,x) = B(y,x) + B(y+1,x) + B(y+2,x)
"""
    )
    assert (
        made.source()
        == """\
s = ops.blur.schedule(sizes={'H': 13, 'W': 17}, target="cpu")
s = s["O"].tile("y", "x", 4, 8)
s = s["O"].parallel("y_o")
s = s["B"].compute_at("O", "x_o")
s = s["B"].vectorize("x")
"""
    )
    assert made.stages == ("B", "O")
    assert made["O"].loops == ("y_o", "x_o", "y_i", "x_i")


def test_values_live_where_the_schedule_puts_them() -> None:
    """Tiles that compute something again have it in a tile; what is computed once stays in memory, or in a register."""
    tiled = schedule("blur")["O"].tile("y", "x", 4, 8)["B"].compute_at("O", "x_o").compile()
    assert tiled.compilation.plan.buffers["B_1"].shape == (6, 8)
    window = schedule("blur")["B"].compute_at("O", "y", store_at="root").compile()
    assert window.compilation.plan.buffers["B_1"].shape == (3, 15)
    rows = schedule("rows")["m"].compute_at("e", "n").compile()
    assert rows.compilation.plan.buffers["m_acc0"].space == "register"


def test_a_kernel_keeps_its_schedule() -> None:
    made = schedule("blur")["B"].compute_at("O", "y")
    kernel = made.compile()
    assert kernel.schedule is made
    assert 'schedule: B.compute_at("O", "y")' in kernel.explain()
    assert operation("blur").compile(sizes=TEXTS["blur"][1]).schedule is None


def test_choices_are_tried_and_measured() -> None:
    start = schedule("blur")
    rows, how = start.choice("rows", [4, 2]), start.choice("loop", ["x_o", "y_o", "nowhere"])
    made = start["O"].tile("y", "x", rows, 8)["B"].compute_at("O", how)
    assert "s.choice" in made.source() and "for y_i in 0 .. min(4, 11 - 4*y_o):" in str(made)
    assert "for y_i in 0 .. min(2, 11 - 2*y_o):" in str(made.chosen(rows=2))
    found = made.tune()
    assert len(found.rows) == 4 and found.rows[0][1] == min(seconds for _, seconds in found.rows)
    agrees("blur", found.best)
    with pytest.raises(ScheduleError, match="there is no choice 'columns'"):
        made.chosen(columns=3)
    with pytest.raises(ScheduleError, match="with other values"):
        made["O"].split("x_i", start.choice("rows", [1, 2]))


def test_the_model_chooses_what_is_not_said() -> None:
    made = schedule("mm").auto()["C"].tile("m", 4).registers(2, 16).serial()
    assert made.options == tc.MappingOptions(tile_sizes=(4, 0), register_tile=(2, 16), parallel=False)
    assert made.plan is None and "tile_sizes=(4, 0)" in str(made)
    agrees("mm", made)
    with pytest.raises(ScheduleError, match="do not take this"):
        made["C"].reorder("k", "m")
    with pytest.raises(ScheduleError, match="no loop over its elements"):
        schedule("mm").auto()["C"].tile("k", 4)
    with pytest.raises(ScheduleError, match="one value of tile_sizes for the whole program"):
        schedule("mlp").auto()["C"].tile("m", 4)["E"].tile("m", 2)
    with pytest.raises(ScheduleError, match="do not take this"):
        schedule("mm")["C"].interchange("m", "n").auto()


def test_on_a_gpu_steps_are_options() -> None:
    start = operation("mm").schedule(sizes={"M": 64, "N": 64, "K": 64}, target="cuda:sm_90")
    made = (
        start["C"].tile("m", "n", 32, 32).threads(8, 8).split("k", 16).shared().registers().double_buffer().unroll(64)
    )
    assert made.options == tc.MappingOptions(
        tile_sizes=(32, 32), threads=(8, 8), reduction_tile=16, use_shared_memory=True, use_private_memory=True,
        prefetch=True, unroll=64,
    )  # fmt: skip
    assert {c.storage for c in made.shared("A", "B").compilation.plan.copies} == {"A", "B"}
    with pytest.raises(ScheduleError, match="the passes read Z where it lies; in shared memory are A, B"):
        made.shared("Z").compilation  # noqa: B018
    with pytest.raises(ScheduleError, match="do not take this"):
        made.compute_at("C", "m")
    simulated = operation("mm").schedule(sizes=TEXTS["mm"][1], target="simulator")["C"].tile("m", "n", 4, 8)
    agrees("mm", simulated)


def test_copies_that_are_asked_for_are_made_or_refused() -> None:
    """The rows of a transposed operand lie apart, so a copy in which they are neighbours is of use."""
    called = tc.define("def mmt(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }").mmt
    start = called.schedule(sizes={"M": 64, "N": 64, "K": 32}, target="cpu")["C"].tile("m", "n", 8, 32)
    product = start.reorder("n_o", "m_o", "k", "m_i", "n_i").tensorize()
    kernel = product.cache_read("B", at="n_o").compile()
    assert [(c.storage, c.shape) for c in kernel.compilation.plan.copies] == [("B", (32, 32))]
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (64, 32)).astype("f4") for _ in range(2))
    assert np.array_equal(kernel(a, b), a @ b.T)
    with pytest.raises(ScheduleError, match="see no use in a copy of A at n_o"):
        product.cache_read("A", at="n_o").compile()


def drawn(rng: random.Random, made: Schedule) -> Schedule:
    """A random step; may be wrong or illegal."""
    stage = made[rng.choice(made.stages)]
    loops = list(stage.loops)
    loop, other = rng.choice(loops), rng.choice(loops)
    reader = rng.choice(made.stages)
    match rng.randrange(13):
        case 0:
            return stage.split(loop, rng.choice([1, 2, 3, 4]))
        case 1:
            return stage.reorder(*rng.sample(loops, rng.randrange(1, len(loops) + 1)))
        case 2:
            return stage.fuse(loop, other)
        case 3:
            return stage.skew(loop, other, rng.choice([1, 2, -1]))
        case 4:
            return stage.reverse(loop)
        case 5:
            return stage.parallel(*loops[: rng.randrange(1, 3)])
        case 6:
            return stage.vectorize(loops[-1])
        case 7:
            return stage.compute_at(reader, rng.choice(made[reader].loops), shift=rng.choice([-2, -1, 0, 1]))
        case 8 | 9:
            kept = rng.choice([None, "root", rng.choice(made[reader].loops)])
            return stage.compute_at(reader, rng.choice(made[reader].loops), store_at=kept)
        case 10:
            return stage.inline()
        case 11:
            return stage.unroll(loop, rng.choice([None, 2, 3])) if rng.randrange(2) else stage.unroll(loop)
        case _:
            return stage.tensorize()


def refused_late(made: Schedule) -> bool:
    """Whether loops turn out when they are generated to be too long for copies, or to be none for what was asked."""
    try:
        made.compile()
    except tc.PlanError as error:
        if "more than 64 are unrolled" not in error.message and not isinstance(error, ScheduleError):
            raise
        return True
    return False


@pytest.mark.parametrize("seed", [pytest.param(n, marks=() if n < 2 else pytest.mark.long) for n in range(13)])
def test_random_schedules_that_are_accepted_are_right(seed: int) -> None:
    rng = random.Random(seed)
    kernels = 0
    while kernels < 16:
        name = rng.choice(list(TEXTS))
        made, steps = schedule(name), 0
        for _ in range(rng.randrange(2, 16)):
            try:
                made = drawn(rng, made)
                steps += 1
            except (ScheduleError, tc.LegalityError):
                continue
        if steps < 2:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", tc.ProgramWarning)
            if not refused_late(made):
                agrees(name, made)
                kernels += 1


def test_a_schedule_is_for_sizes_and_may_have_nothing_to_do() -> None:
    blur = operation("blur")
    for attempt in (lambda: blur.schedule(), lambda: blur.schedule(np.zeros((4, 4), np.float32))):
        with pytest.raises(tc.TcompError, match=r"a schedule is for sizes: blur.schedule\(sizes="):
            attempt()
    empty = blur.schedule(sizes=dict.fromkeys(TEXTS["blur"][1], 2))
    assert empty.compile()(np.zeros((2, 2), np.float32)).size == 0
    with pytest.raises(ScheduleError, match="B is this one"):
        schedule("blur")["B"].compute_at("B", "y")
