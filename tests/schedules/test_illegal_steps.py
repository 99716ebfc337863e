"""Steps that would compute something else are refused, each with two instances that show it."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import islpy as isl
import pytest

import tcomp as tc
from tcomp.schedules import IllegalStepError, Instance, Schedule, ScheduleError
from tests.schedules.judging import shows
from tests.schedules.programs import operation, schedule

Steps = Callable[[Schedule], Schedule]

IN_STEP = lambda s: s["B"].compute_at("O", "y", shift=-2)  # noqa: E731
SLIDING = lambda s: s["B"].compute_at("O", "y", store_at="root")  # noqa: E731
PING_PONG = lambda s: s["C"].compute_at("D", "i", shift=-1)["B"].compute_at("D", "i", shift=-2)  # noqa: E731

ILLEGAL: list[tuple[str, Steps, Steps]] = [
    # What is read is not there yet.
    ("blur", lambda s: s, lambda s: s["B"].compute_at("O", "y", shift=0)),
    ("blur", lambda s: s, lambda s: s["B"].compute_at("O", "y", shift=-1)),
    ("blur", lambda s: s, lambda s: s["B"].compute_at("O", "y", shift=1)),
    ("blur", lambda s: s, lambda s: s["B"].compute_at("O", "x", shift=0)),
    ("blur", lambda s: s, lambda s: s["B"].compute_at("O", "x", shift=-2)),
    ("blur", lambda s: s["O"].interchange("y", "x"), lambda s: s["B"].compute_at("O", "x", shift=-2)),
    ("blur", IN_STEP, lambda s: s["O"].reverse("y")),
    ("blur", IN_STEP, lambda s: s["O"].interchange("y", "x")),
    ("blur", IN_STEP, lambda s: s["B"].interchange("y", "x")),
    ("chain", lambda s: s, lambda s: s["C"].compute_at("D", "i", shift=0)),
    ("chain", lambda s: s, lambda s: s["B"].compute_at("C", "i", shift=0)),
    ("chain", lambda s: s, lambda s: s["B"].compute_at("C", "i", shift=2)),
    ("chain", lambda s: s["C"].compute_at("D", "i", shift=-1), lambda s: s["B"].compute_at("D", "i", shift=-1)),
    ("chain", lambda s: s["C"].compute_at("D", "i", shift=-3), lambda s: s["B"].compute_at("D", "i", shift=-3)),
    ("chain", PING_PONG, lambda s: s["D"].reverse("i")),
    ("chain", PING_PONG, lambda s: s["C"].reverse("i")),
    ("chain", PING_PONG, lambda s: s["C"].compute_at("D", "i", shift=0)),
    ("two", lambda s: s, lambda s: s["B"].compute_at("X", "i", shift=-1)),
    # Iterations that run at the same time need each other.
    ("blur", IN_STEP, lambda s: s["O"].parallel("y")),
    ("blur", SLIDING, lambda s: s["O"].parallel("y")),
    ("chain", PING_PONG, lambda s: s["D"].parallel("i")),
    ("chain", lambda s: s["C"].compute_at("D", "i", store_at="root"), lambda s: s["D"].parallel("i")),
    # Iterations that run at the same time change one element.
    ("mm", lambda s: s["C"].reorder("k", "m", "n"), lambda s: s["C"].parallel("k")),
    ("mm", lambda s: s["C"].reorder("m", "k", "n"), lambda s: s["C"].parallel("m", "k")),
    ("mm", lambda s: s["C"].split("k", 4).reorder("k_o", "m", "n", "k_i"), lambda s: s["C"].parallel("k_o")),
    ("mm", lambda s: s["C"].reorder("k", "m", "n").fuse("k", "m"), lambda s: s["C"].parallel("k_m")),
    ("mm", lambda s: s["C"].fuse("m", "n").reorder("k", "m_n"), lambda s: s["C"].parallel("k")),
    ("rows", lambda s: s["m"].interchange("n", "d"), lambda s: s["m"].parallel("d")),
    ("rows", lambda s: s["s"].interchange("n", "d"), lambda s: s["s"].parallel("d")),
    ("rows", lambda s: s["s"].fuse("n", "d"), lambda s: s["s"].parallel("n_d")),
    ("acc", lambda s: s["y"].interchange("i", "j"), lambda s: s["y"].parallel("j")),
    ("conv", lambda s: s["O"].reorder("c", "n", "m", "h", "w"), lambda s: s["O"].parallel("c")),
    ("conv", lambda s: s["O"].reorder("r", "n", "m", "h", "w", "c"), lambda s: s["O"].parallel("r")),
    ("conv", lambda s: s["O"].reorder("s", "n", "m", "h", "w", "c", "r"), lambda s: s["O"].parallel("s")),
    ("mlp", lambda s: s["E"].interchange("m", "n"), lambda s: s["E"].parallel("n")),
    # What another stage reads as well is computed in tiles of one alone.
    ("two", lambda s: s, lambda s: s["B"].compute_at("X", "i")),
    ("twice", lambda s: s, lambda s: s["m"].compute_at("v", "d")),
    # Stencils over time: one step of it must not get ahead of what it reads.
    ("time", lambda s: s, lambda s: s["T2"].compute_at("T3", "i", shift=-1)),
    ("time", lambda s: s["T2"].compute_at("T3", "i", shift=-2), lambda s: s["T1"].compute_at("T3", "i", shift=-3)),
    ("time", lambda s: s["T2"].compute_at("T3", "i", shift=-2), lambda s: s["T3"].reverse("i")),
    ("time", lambda s: s["T1"].compute_at("T2", "i", store_at="root"), lambda s: s["T2"].parallel("i")),
    ("stencil", lambda s: s, lambda s: s["B"].compute_at("C", "j", shift=-2)),
    ("stencil", lambda s: s["B"].compute_at("C", "i", shift=-2), lambda s: s["C"].skew("j", "i").interchange("i", "j")),
    (
        "stencil",
        lambda s: s["C"].skew("j", "i", -2).interchange("i", "j"),
        lambda s: s["B"].compute_at("C", "j", shift=-1),
    ),
    # Fused loops that run in step, counted as one loop each.
    ("stencil", lambda s: s["B"].fuse("i", "j")["C"].fuse("i", "j"), lambda s: s["B"].compute_at("C", "i_j", shift=-9)),
    # Sums over part of a row: each element needs its own sum, all of it.
    ("scan", lambda s: s, lambda s: s["S"].compute_at("Y", "i", shift=1)),
    ("scan", lambda s: s["S"].compute_at("Y", "i", shift=0), lambda s: s["Y"].reverse("i")),
    ("scan", lambda s: s["S"].reorder("j", "n", "i"), lambda s: s["S"].parallel("j")),
    # Reads at a border come from further away than those inside.
    ("edges", lambda s: s, lambda s: s["B"].compute_at("O", "j", shift=0)),
    ("edges", lambda s: s["O"].reverse("i"), lambda s: s["B"].compute_at("O", "i", shift=0)),
    ("mirror", lambda s: s, lambda s: s["B"].compute_at("O", "i", shift=-2)),
    ("ring", lambda s: s, lambda s: s["B"].compute_at("O", "i", shift=-5)),
    ("ring", lambda s: s["B"].compute_at("O", "i", store_at="root"), lambda s: s["O"].parallel("i")),
    # A name that is written again: each reads what the one before it left.
    ("again", lambda s: s, lambda s: s["B#2"].compute_at("B#3", "i", shift=1)),
    ("again", lambda s: s, lambda s: s["B"].compute_at("B#3", "i", shift=0)),
    ("inplace", lambda s: s, lambda s: s["B#2"].compute_at("B#3", "i", shift=-3)),
    ("inplace", lambda s: s["B#2"].compute_at("B#3", "i", store_at="root"), lambda s: s["B#3"].parallel("i")),
    ("inplace", lambda s: s["B"].interchange("i", "j"), lambda s: s["B"].compute_at("B#2", "i", shift=0)),
    ("update", lambda s: s, lambda s: s["y"].compute_at("y#2", "i", shift=1)),
    ("update", lambda s: s["y#2"].interchange("i", "j"), lambda s: s["y#2"].parallel("j")),
    ("update", lambda s: s, lambda s: s["y#2"].compute_at("z", "i", shift=1)),
    # A whole row is needed, and only one element of it would be there.
    ("power", lambda s: s, lambda s: s["P"].compute_at("Q", "j", shift=0)),
    ("power", lambda s: s["Q"].reorder("k", "i", "j"), lambda s: s["Q"].parallel("k")),
    ("power", lambda s: s["P"].compute_at("Q", "i", shift=0), lambda s: s["Q"].interchange("i", "j")),
    # Windows that lie two apart: one row of the result needs two of what it reads.
    ("pool", lambda s: s, lambda s: s["R"].compute_at("P", "y", shift=-2)),
    ("pool", lambda s: s["P"].reorder("a", "y", "x", "b"), lambda s: s["P"].parallel("a")),
    ("pool", lambda s: s, lambda s: s["R"].compute_at("Q", "y")),
    # Two statements write one tensor, each half of it.
    ("halves", lambda s: s["B#2"].compute_at("O", "i", store_at="root"), lambda s: s["O"].parallel("i")),
    # Kept in too small a place, or computed after the first who needs it.
    ("attend", lambda s: s, lambda s: s["s"].compute_at("p", "l")),
    ("attend", lambda s: s, lambda s: s["p"].compute_at("O", "e", shift=0)),
    ("attend", lambda s: s["O"].reorder("t", "l", "e"), lambda s: s["O"].parallel("t")),
    # Places of extrema are reductions, too.
    ("places", lambda s: s["at"].interchange("n", "d"), lambda s: s["at"].parallel("d")),
    ("places", lambda s: s, lambda s: s["at"].compute_at("v", "n", shift=1)),
    ("scatter", lambda s: s["O"], lambda s: s["O"].parallel("n")),
    # Copies of a loop that vectors cannot hold: neighbours change one element.
    ("mm", lambda s: s["C"].fuse("m", "n").fuse("m_n", "k"), lambda s: s["C"].parallel("m_n_k")),
]


def shown(instance: Instance) -> str:
    return f"{instance.statement}[{', '.join(str(v) for _, v in instance.indices)}]"


def asked(legal: Schedule, step: Steps) -> Schedule:
    """The schedule that a step makes, unproved."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Schedule, "_check", lambda self, name: None)
        return step(legal)


@pytest.mark.parametrize("number", range(len(ILLEGAL)))
def test_illegal_steps_are_refused_with_a_pair_that_shows_it(number: int) -> None:
    name, before, step = ILLEGAL[number]
    legal = before(schedule(name))
    with pytest.raises(tc.LegalityError) as caught:
        step(legal)
    error = caught.value
    assert isinstance(error, IllegalStepError)
    assert "is illegal" in error.message
    # The pair is one of the program's: the second needs the first, or both change one element.
    assert error.first is not None and error.second is not None
    pair = isl.UnionMap(f"{{ {shown(error.first)} -> {shown(error.second)} }}")
    scop = legal.state.scop
    assert pair.is_subset(scop.dependences.union(scop.reduction_dependences))
    # Listed one by one, without isl's dependences: the schedule that was asked for runs them in the wrong order.
    assert shows(asked(legal, step), error.first, error.second)
    assert not shows(legal, error.first, error.second)


def test_what_the_passes_cannot_do_says_so() -> None:
    blur, mm = schedule("blur"), schedule("mm")
    long = operation("mm").schedule(sizes={"M": 40, "N": 50, "K": 30})
    for step, message in (
        (lambda: blur["Q"], "there is no stage 'Q'; the stages are B, O"),
        (lambda: blur.split("y", 4), "say of which stage"),
        (lambda: blur["O"].split("z", 4), "O has no loop 'z'; its loops are y, x"),
        (lambda: blur["O"].split("y", 0), "must be a number from 1 on"),
        (lambda: blur["O"].split("y", 4, names=("x", "i")), "O has a loop 'x' already"),
        (lambda: blur["O"].tile("y", "x", 4), "tile takes names of loops"),
        (lambda: blur["O"].reorder("y", "y"), "different loops"),
        (lambda: blur["O"].split("y", 4, names="ab"), "names like those of variables"),  # type: ignore[arg-type]
        (lambda: blur["O"].split("y", 4, names=("a b", "c")), "names like those of variables"),
        (lambda: blur["O"].fuse("y", "x", name="y x"), "names like those of variables"),
        (lambda: blur["O"].skew("x", "y", 0), "that is not 0"),
        (lambda: blur["O"].skew("x", "y", 0.5), "a whole number"),
        (lambda: blur["B"].compute_at("O", "y", shift="1"), "a whole number"),  # type: ignore[arg-type]
        (lambda: blur["B"].compute_at("O", "y", shift=-2, store_at="root"), "store_at says nothing there"),
        (lambda: blur["B"].compute_at("O", "y", shift=-2).store_at("root"), "store_at says nothing there"),
        (lambda: blur["O"].split("y", blur.choice("a", [2, 4])).chosen(a=3), "3 is none of the values of"),
        (lambda: blur["O"].fuse("x", "y"), "directly inside"),
        (lambda: blur["O"].skew("y", "x"), "does not stand around"),
        (lambda: blur["O"].vectorize("y"), "only the innermost loop"),
        (lambda: blur["O"].parallel("x"), "cannot run in parallel inside other loops"),
        (lambda: blur["O"].compute_at("B", "y"), "B comes before O"),
        (lambda: blur["B"].store_at("y"), "say compute_at before"),
        (lambda: blur["B"].compute_at("O", "y", store_at="x"), "x of O stands inside y"),
        (lambda: blur["O"].inline(), "only what one statement computes element by element"),
        (lambda: blur["O"].unroll(4), "O has no loop 4"),
        (lambda: blur["O"].vectorize("x").unroll("x"), "so it is not unrolled"),
        (lambda: long["C"].unroll("m").unroll("n").unroll("k"), "would have 60000 copies"),
        (lambda: blur["O"].auto().unroll("x"), "do not take this"),
        (lambda: mm["C"].reorder("k", "m", "n").unroll("k").tensorize(), "k of C is inside an operation"),
        (lambda: blur["O"].blocks(4), "say auto"),
        (lambda: blur["O"].tensorize(), "no loop over what is reduced"),
        (lambda: mm["C"].cache_read("A", at="k"), "tensorize C before"),
        (lambda: mm["C"].reorder("m", "k", "n").tensorize().cache_read("Z", at="k"), "C does not read Z"),
        (lambda: mm["C"].cache_write(), "without being asked"),
        (lambda: mm["C"].reorder("k", "m", "n").vectorize("n").interchange("k", "n"), "vectors"),
        (lambda: blur["O"].split("y", 4).parallel("y_o")["B"].compute_at("O", "y_i"), "say store_at"),
        (lambda: schedule("sums")["s"].compute_at("B", "i"), "is a result, of which each element is computed once"),
        (
            lambda: schedule("edges")["B"].compute_at("O", "j", store_at="j")["O"].parallel("i"),
            "store_at for the last of these",
        ),
        (lambda: schedule("halves")["B"].compute_at("O", "i"), "another statement writes B, too"),
        (lambda: schedule("scatter")["O"].vectorize("n"), "have no lanes"),
        (
            lambda: schedule("mlp")["C"].compute_at("R", "m", store_at="root")["R"].compute_at("E", "p", shift=1),
            "but there R runs in step with E",
        ),
        (lambda: mm.choice("w", []), "a choice has a name and some values"),
    ):
        with pytest.raises(ScheduleError) as caught:
            step()  # type: ignore[no-untyped-call]
        assert message in caught.value.message, caught.value.message


def test_a_word_that_would_change_nothing_says_why() -> None:
    blur, mm = schedule("blur"), schedule("mm")
    sliding = blur["B"].compute_at("O", "y", store_at="root").interchange("y", "x")
    gpu = operation("blur").schedule(sizes={"H": 34, "W": 66}, target="cuda:sm_80")["O"]
    for step, message in (
        (lambda: blur["O"].split("x", 1).vectorize("x_i"), "x_i of O has one iteration, so vectorize"),
        (lambda: blur["B"].compute_at("O", "x", store_at="root").vectorize("x"), "x of B has one iteration"),
        (lambda: blur["O"].vectorize("x").vectorize("x"), "x of O runs in vectors already"),
        (lambda: blur["O"].parallel("y").parallel("y"), "y of O runs in parallel already"),
        (lambda: mm["C"].unroll("k").unroll("k"), "k of C is unrolled already"),
        (lambda: blur["O"].unroll("x", 1), "x_i of O has one iteration, so unroll"),
        (lambda: blur["O"].vectorize("x")["B"].compute_at("O", "x"), "B is computed inside x of O"),
        (lambda: sliding.vectorize("y").compilation, "y of B moves the window of B"),
        (lambda: mm["C"].tensorize(), "k of C is over what is reduced"),
        (lambda: mm["C"].reorder("k", "n", "m").tensorize().compilation, "know no register tile"),
        (lambda: blur.auto()["O"].registers(2, 16).compilation, "has no sum of products"),
        (lambda: gpu.double_buffer().compilation, "no operand is fetched in several parts"),
        (lambda: gpu.registers().compilation, "no value stays with one thread"),
        (lambda: gpu.tile("y", "x", 2, 2).threads(16, 16).compilation, "no tile has work for more than 4 threads"),
        (lambda: gpu.shared("I").compilation, "the passes read I where it lies"),
        (lambda: gpu.serial(), "the passes for a GPU do not take this"),
        (lambda: gpu.tile("y", "x", 4, 32).unroll(2).compilation, "one instance of each statement"),
        (lambda: mm["C"].auto()["C"].threads(7, 2), "threads takes how many there may be at most"),
    ):
        with pytest.raises(ScheduleError) as caught:
            step()  # type: ignore[no-untyped-call]
        assert message in caught.value.message, caught.value.message
    for loops, why in (
        (blur["O"].parallel("y"), "y of O"),
        (blur["O"].split("y", 64).parallel("y_o"), "they have one"),
    ):
        with pytest.warns(tc.ProgramWarning, match=f"{why}.* run on one thread|run on one thread: {why}"):
            loops.compile()


def test_a_second_statement_of_a_tensor_is_told_from_the_first() -> None:
    """Also where an earlier one has been inlined; the lines of both follow the message."""
    with pytest.raises(tc.LegalityError) as caught:
        schedule("again")["B"].inline()["B#2"].compute_at("B#3", "i", shift=1)
    assert isinstance(caught.value, IllegalStepError)
    assert (str(caught.value.first), str(caught.value.second)) == ("B#2 at i=0", "B#3 at i=0")
    text = str(caught.value)
    assert "note: this is B#2" in text and "note: this is B#3" in text and text.count("^^^") > 1


def test_errors_cross_processes() -> None:
    with pytest.raises(tc.LegalityError) as caught:
        schedule("blur")["B"].compute_at("O", "y", shift=-1)
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, tc.LegalityError)
    assert again.message == caught.value.message
    assert "B at y=2, x=0 must run before O at y=0, x=0, and would not" in again.message
