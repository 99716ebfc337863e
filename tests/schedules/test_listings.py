"""What a schedule prints is what runs: its loops, run in Python, have the iterations that follow from the steps."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

import tcomp as tc
from tcomp.schedules import Schedule, bounds
from tests.schedules.judging import Dates, points
from tests.schedules.programs import schedule
from tests.schedules.test_schedules import LEGAL

LOOP = re.compile(r"(?:\w+ )?for (\w+) in (.*) \.\. (.*?)(?: by (\d+))?:(?:  #.*)?")
NAME = re.compile(r"([A-Za-z_][\w#]*)(?:\.(\w+))?")
WORDS = {"if", "else", "and", "or", "mod", "min", "max"}

Runs = Counter[tuple[str, tuple[int, ...]]]
"""How often a stage runs where the loops around have these values; zeros are left out."""


@dataclass(frozen=True)
class Around:
    """A loop around a line: its name, how far it stands to the right, whose it is, and what Python calls it."""

    name: str
    left: int
    stage: str
    variable: str


def printed(made: Schedule) -> Runs:
    """What the listing of a schedule runs."""
    lines = [line for line in str(made).splitlines() if not line.lstrip().startswith("#")]
    stages = {text: name for name in made.stages for text in [statement(made, name)]}
    python, around = ["def run(seen):"], [Around("", -1, "", "")]
    for number, line in enumerate(lines):
        text, left = line.strip(), len(line) - len(line.lstrip())
        while around[-1].left >= left:
            around.pop()
        if loop := LOOP.fullmatch(text):
            variable, owner = f"l{number}", stages[last_inside(lines, number, left, stages)]
            low, high = (spelled(part, around) for part in (loop[2], loop[3]))
            python.append(f"{' ' * (left + 2)}for {variable} in range({low}, {high}, {loop[4] or 1}):")
            around.append(Around(loop[1], left, owner, variable))
        elif text.startswith("if "):
            python.append(f"{' ' * (left + 2)}if {spelled(text[3:-1], around)}:")
        elif text in stages:
            values = "".join(f"{a.variable}, " for a in around[1:])
            python.append(f"{' ' * (left + 2)}seen.append(({stages[text]!r}, ({values})))")
        else:
            assert text.startswith(("start ", "end "))
            python.append(f"{' ' * (left + 2)}pass")
    names: dict[str, object] = {}
    exec("\n".join(python), names)
    seen: list[tuple[str, tuple[int, ...]]] = []
    names["run"](seen)  # type: ignore[operator]
    return Counter((stage, tuple(v for v in values if v)) for stage, values in seen)


def last_inside(lines: list[str], number: int, left: int, stages: dict[str, str]) -> str:
    """The last statement inside a loop, which is that of its stage: others are computed before."""
    found = ""
    for line in lines[number + 1 :]:
        if len(line) - len(line.lstrip()) <= left:
            break
        found = line.strip() if line.strip() in stages else found
    return found


def statement(made: Schedule, stage: str) -> str:
    """The text of a stage's statement in one line."""
    function, scop = made.state.function, made.state.scop
    span = function.statements[scop.by_name[made.state.stage(stage).statements[-1]].origin].span
    assert span is not None
    return " ".join(function.source.text[span.start : span.end].split())


def spelled(text: str, around: list[Around]) -> str:
    """A bound or a condition as Python has it; a name is that of the innermost loop around unless a stage is named."""

    def name(match: re.Match[str]) -> str:
        if match[0] in WORDS:
            return {"mod": "%"}.get(match[0], match[0])
        of, wanted = (match[1], match[2]) if match[2] else ("", match[1])
        return next(a.variable for a in reversed(around) if a.name == wanted and of in ("", a.stage))

    return NAME.sub(name, text.replace("/", "//"))


def judged(made: Schedule) -> Runs:
    """What follows from the steps, instance by instance, without isl's schedules."""
    dates, found = Dates(made), Counter[tuple[str, tuple[int, ...]]]()
    for stage in made.state.stages:
        for name in stage.statements:
            s = dates.scop.by_name[name]
            if s.kind in ("update", "assign"):
                for at in points(s.domain):
                    values = [tuple(v for _, v in date if v) for date in dates.of(name, at)]
                    found.update((stage.name, v) for v in values)
    return found


MORE = {
    "skewed rows": ("blur", lambda s: s["O"].skew("x", "y", 2).interchange("y", "x")),
    "skewed tiles": ("blur", lambda s: s["O"].skew("x", "y").tile("y", "x", 4, 5)),
    "earlier than need be": ("chain", lambda s: s["C"].compute_at("D", "i", shift=-3)),
    "tiles in step": (
        "chain",
        lambda s: s["D"].split("i", 4)["C"].split("i", 4).compute_at("D", "i_o", shift=-1)["B"].compute_root(),
    ),
    "fused in part": ("conv", lambda s: s["O"].fuse("n", "m").split("n_m", 4).reverse("n_m_o")),
    "parts of parts": (
        "blur",
        lambda s: s["O"].split("y", 6).split("y_i", 2)["B"].compute_at("O", "y_i_o", store_at="y_o"),
    ),
    "in step with parts": (
        "stencil",
        lambda s: s["B"].split("i", 4)["C"].tile("i", "j", 4, 4)["B"].compute_at("C", "i_o", shift=-1),
    ),
    "quotients of fused loops": ("scan", lambda s: s["S"].reverse("i").unroll("j", 3).fuse("n", "i")),
    "quotients taken off": (
        "scatter",
        lambda s: s["O"].fuse("d", "n").reverse("d_n").split("d_n", 3).reorder("d_n_i", "d_n_o"),
    ),
    "parts of parts outside": ("blur", lambda s: s["O"].split("y", 6).split("y_i", 2).interchange("y_i_o", "y_o")),
    "triangles": ("scan", lambda s: s["S"].reorder("j", "n", "i").skew("i", "j")),
    "a window downwards": ("blur", lambda s: s["O"].reverse("y")["B"].compute_at("O", "y", store_at="root")),
    "every second row": ("pool", lambda s: s["P"].compute_at("Q", "y", shift=0).reverse("x")),
}


OF_LEGAL = ("sliding window", "tiled", "in step", "ping pong", "a window that is unrolled", "sums split", "data choose")


@pytest.mark.parametrize("name", [*OF_LEGAL, *MORE])
def test_listings_have_the_bounds_that_loops_have(name: str) -> None:
    program, steps = (LEGAL | MORE)[name][:2]  # type: ignore[operator]
    made = steps(schedule(program))
    assert printed(made) == judged(made), str(made)


def test_what_is_inlined_is_said() -> None:
    made = schedule("again")["B"].inline()["B#2"].inline()
    assert str(made).startswith("# B is computed where it is read\n# B#2 is computed where it is read\nfor i in ")


def test_bounds_that_take_long_are_said_to_be_the_outermost(monkeypatch: pytest.MonkeyPatch) -> None:
    made = schedule("conv")["O"].fuse("h", "w").split("h_w", 4).reverse("h_w_o").fuse("n", "m")
    assert "at most" not in str(made)
    monkeypatch.setattr(bounds, "MOST_OPERATIONS", 1000)
    assert "for h_w_i in 0 .. 4:  # at most  # counts ((7*h + w) mod 4)" in str(made)


def test_a_sum_of_nothing_is_begun_and_ended() -> None:
    f = tc.define("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }").mm
    made = f.schedule(sizes={"M": 3, "N": 4, "K": 0})["C"].split("n", 2)["C"].vectorize("n_i")
    assert str(made).splitlines()[-2:] == ["      start C", "      end C"]
    assert (made.compile()(np.ones((3, 0), np.float32), np.ones((0, 4), np.float32)) == 0).all()
