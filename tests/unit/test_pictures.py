"""Pictures show what is: each kind is drawn once, small, and read back from its text."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path

import pytest

import tcomp as tc
from tcomp.cli import main
from tcomp.pictures.canvas import INK, PAPER, Picture
from tcomp.pictures.domains import sides_of, statements_of
from tcomp.pictures.drawing import KINDS
from tcomp.pictures.points import needs, shown, threads_of
from tcomp.pictures.rates import Work, draw_curve, draw_roofline
from tcomp.pictures.steps import Steps
from tcomp.schedules import Schedule
from tests.language.test_time_tiles import STENCILS
from tests.language.test_time_tiles import tiled as tiled_over_steps

pytest.importorskip("matplotlib")
BLUR = "def blur(float(H,W) I) -> (O) { B(y,x) = I(y,x) + I(y,x+1)  O(y,x) = B(y,x) + B(y+1,x) }"


@pytest.fixture(scope="module")
def tiled() -> Schedule:
    blur = tc.define(BLUR).blur.schedule(sizes={"H": 7, "W": 9}, target="cpu")
    return blur["O"].tile("y", "x", 3, 4)["B"].compute_at("O", "x_o")


def words(picture: Picture) -> str:
    """The words of a picture, which must be SVG that a parser takes."""
    return " ".join(ElementTree.fromstring(picture.svg).itertext())


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("tree", ("sequence", "place0: B_1 [4, 4] in a tile", "floor(y/3), floor(x/4)")),
        ("domain", ("B_1 (S0)", "O (S1)", "arrows lead to one iteration from what it needs")),
        ("dates", ("the darker, the later",)),
        ("footprint", ("I: 4 x 5 read, 80 B", "B_1: 4 x 4 written, 64 B", "O: 3 x 4 written, 48 B")),
        ("memory", ("I: 252 B", "O: 192 B", "B_1: 64 B", "tile of a thread")),
        ("loops", ("# group0", "100 %")),
    ],
)
def test_pictures_say_what_is(tiled: Schedule, what: str, told: tuple[str, ...]) -> None:
    found = words(tiled.draw(what)).replace("\N{NO-BREAK SPACE}", " ")
    for word in told:
        assert word in found
    assert set(KINDS) >= {what}


def test_points_know_their_tile_and_their_date(tiled: Schedule) -> None:
    plan = tiled.compilation.plan
    points = shown(plan, plan.scop.by_name["S1"]).points
    assert [p.date for p in points] == sorted(p.date for p in points)
    assert {p.at: p.tile for p in points} == {(y, x): (y // 3, x // 4) for y in range(6) for x in range(8)}


def test_the_order_moves(tiled: Schedule, tmp_path: Path) -> None:
    """Squares light up in the order of the tree: those of one tile before those of the next."""
    picture = tiled.draw("order")
    starts = [float(v) for v in re.findall(r'keyTimes="0;([0-9.]+);', picture.svg)]
    # Four tiles compute 4 x 4 elements of B each, some of them again.
    assert len(starts) == 4 * 16 + 6 * 8 and len({*starts}) == len(starts)
    gif = picture.save(tmp_path / "order.gif").read_bytes()
    assert gif[:6] == b"GIF89a" and picture.save(tmp_path / "order.png").read_bytes()[1:4] == b"PNG"
    with pytest.raises(tc.TcompError, match=r"ends in \.svg, \.png, \.gif, not in \.bmp"):
        picture.save(tmp_path / "order.bmp")


def test_instances_that_one_square_stands_for_are_one(tmp_path: Path) -> None:
    """The nine neighbours of a cell are drawn as one square, with one date."""
    life = tc.define((Path(__file__).parents[2] / "examples" / "recurrences" / "life.tc").read_text()).life
    kernel = life.compile(sizes={"N": 5, "M": 6, "T": 2})
    assert "the darker, the later" in words(kernel.draw("dates"))
    shares = [float(v) for v in re.findall(r'keyTimes="0;([0-9.]+);', kernel.draw("order").svg)]
    assert max(shares) <= 0.92
    assert kernel.draw("order").save(tmp_path / "life.gif").read_bytes()[:6] == b"GIF89a"


def test_wavefronts_are_drawn_as_they_were_written() -> None:
    program = (Path(__file__).parents[2] / "examples" / "recurrences" / "edit_distance.tc").read_text()
    kernel = tc.define(program).edit_distance.compile(sizes={"N": 64, "M": 70})
    assert "D_by_wave (S2), a part" in words(kernel.draw("domain"))
    steps = Steps(kernel.compilation)
    panel = steps.panels(4)[-1]
    assert panel.axes == ("i", "j") and not panel.whole and len(panel.points) == 24 * 24
    dates = {p.at: p.date for p in panel.points}
    tiles = {p.tile: sum(p.at) for p in panel.points}
    assert all(tiles[p.tile] == sum(p.at) for p in panel.points) and len(tiles) == 47
    for point in panel.points[30:300:30]:
        i, j = point.at
        needed = steps.needs(point)
        assert {place for name, place in needed if name == "S2"} <= {(i - 1, j - 1), (i - 1, j), (i, j - 1)}
        assert len(needed) == 3 and all(dates[place] < point.date for name, place in needed if name == "S2")


def test_tiles_over_steps_are_drawn() -> None:
    """Each iteration once, behind what it needs; tiles have several steps."""
    made = tiled_over_steps(STENCILS["jacobi-1d"], {"N": 60, "T": 8}, 140)
    assert "B (S2), a part" in words(KINDS["domain"](made))
    steps = Steps(made)
    panels = {panel.statement: panel for panel in steps.panels(4)}
    dates = {(p.statement, p.at): p.date for panel in panels.values() for p in panel.points}
    for panel in (panels["S2"], panels["S3"]):
        assert not panel.whole and len({p.at for p in panel.points}) == len(panel.points) == 8 * 24
        spans = {tile: {p.at[0] for p in panel.points if p.tile == tile} for tile in {p.tile for p in panel.points}}
        assert max(len(span) for span in spans.values()) > 2
        for point in panel.points[::7]:
            needed = steps.needs(point)
            assert len(needed) == 3 - (point.at[1] == 24)
            assert all(dates[other] < point.date for other in needed)


def test_names_in_memory_that_fit_no_bar_stand_beside_it() -> None:
    """After the first bar, before the last; a name that fits stands in its bar, in the colour of paper."""
    text = " ".join(f"{'T' if k < 11 else 'Y'}{k}(i) = exp({f'T{k - 1}' if k else 'X'}(i))" for k in range(12))
    svg = tc.define(f"def chain(float(N) X) -> (Y11) {{ {text} }}").chain.compile(sizes={"N": 64}).draw("memory").svg
    pattern = r'text-anchor: (\w+); fill: (#\w+)"[^>]*>(X|Y11|T4_1): '
    found = {name: (anchor, colour) for anchor, colour, name in re.findall(pattern, svg)}
    assert found["X"] == ("start", INK) and found["Y11"] == ("end", INK)
    assert found["T4_1"] == ("start", PAPER)


def test_rates_are_drawn_where_they_are() -> None:
    found = words(draw_roofline([Work("mm", 2e9, 1e6, 0.02), Work("copy", 1e3, 1e4)], 2e11, 2e10, "a machine"))
    assert "mm: 50 %" in found and "copy: at most" in found and "a machine" in found
    near = draw_roofline([Work(f"near{k}", 1e7 + k, 1e7, 0.002 + k * 1e-5) for k in range(4)], 2e11, 2e10, "a machine")
    heights = sorted(float(y) for y in re.findall(r' y="([0-9.]+)"[^>]*>near\d: ', near.svg))
    assert len(heights) == 4 and all(below - above > 7 for above, below in pairwise(heights))
    assert "candidates measured" in words(draw_curve([1.0, 1.3, 0.7], "f(N=4)"))


def test_threads_and_shared_memory_are_those_of_a_gpu(tiled: Schedule) -> None:
    mm = tc.define("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }").mm
    made = mm.schedule(sizes={"M": 16, "N": 16, "K": 32}, target="cuda:sm_90")["C"].tile("m", "n", 8, 8)
    made = made.threads(4, 2).split("k", 16)
    plan = made.compilation.plan
    panel = shown(plan, plan.scop.by_name["S0"], (0, 1))
    assert plan.dealt[0].shape == (2, 4)
    threads = {p.at: t for p, t in zip(panel.points, threads_of(plan, panel, (0, 1)), strict=True)}
    # Elements of a tile that are neighbours belong to one thread in vectors, then to the next.
    one, other = plan.dealt[0].deals
    for (m, n), thread in threads.items():
        assert thread == (m % 8 // one.vector % 2) * 4 + n % 8 // other.vector % 4
    assert {*threads.values()} == {*range(8)}
    assert "threads of a block" in words(made.draw("threads"))
    assert "part of A" in words(made.draw("memory")) and "shared memory" in words(made.draw("memory"))
    with pytest.raises(tc.TcompError, match="those of a GPU"):
        tiled.draw("threads")


def test_banks_are_those_of_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.tc").write_text("def t(float(N,M) A) -> (B) { B(i,j) = A(j,i) where i in 0:M, j in 0:N }")
    output = tmp_path / "banks.svg"
    command = ("draw", str(tmp_path / "t.tc"), "--sizes", "N=64,M=64", "--what", "banks", "--output", str(output))
    assert main((*command, "--target", "cuda:sm_90")) == 0
    assert str(output) in capsys.readouterr().out
    found = " ".join(ElementTree.fromstring(output.read_text()).itertext())
    assert "t_0: read A, global" in found and "t_0: write B, global" in found
    assert main(command) == 1
    assert "draw a kernel for cuda" in capsys.readouterr().err


def test_steps_are_drawn_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[2] / "examples" / "recurrences" / "edit_distance.tc"
    output = tmp_path / "dates.svg"
    command = ("draw", str(path), "--sizes", "N=4,M=5", "--output", str(output), "--what")
    assert main((*command, "dates")) == 0
    assert "D (S2)" in " ".join(ElementTree.fromstring(output.read_text()).itertext())
    assert main((*command, "tree")) == 1
    assert "what is drawn of that: domain, dates, order, profile" in capsys.readouterr().err


def test_notebooks_show_things_by_themselves(tiled: Schedule) -> None:
    operation = tc.define(BLUR).blur
    kernel = tiled.compile()
    assert operation._repr_html_().startswith("<pre>def blur(")
    assert "for y_o in 0 .. 2:" in tiled._repr_html_()
    assert "nest 0: S0 S1" in kernel._repr_html_()
    assert "mark" in kernel.compilation.plan._repr_html_()
    assert kernel.draw("tree")._repr_svg_().startswith("<?xml")
    with pytest.raises(tc.TcompError, match="there is no picture 'nothing'; there are tree, domain"):
        kernel.draw("nothing")


def test_without_matplotlib_it_says_what_to_install(tiled: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(tc.TargetError, match=r"pip install 'tcomp\[pictures\]'"):
        tiled.draw("tree")


def test_arrows_come_from_what_is_needed_where_it_is_drawn(tiled: Schedule) -> None:
    """An element of O needs two elements of B, which lie in a panel of their own."""
    plan = tiled.compilation.plan
    statement = plan.scop.by_name["S1"]
    point = next(p for p in shown(plan, statement).points if p.at == (2, 3))
    assert needs(plan, point, statement, sides_of, ["S0", "S1"]) == [("S0", (2, 3)), ("S0", (3, 3))]


def test_arrows_pass_through_what_ends_a_reduction() -> None:
    """A sum of halves is rounded at its end, by a statement that is not drawn."""
    f = tc.define("def f(half(M,K) A, half(K,N) B) -> (O) { C(m,n) +=! A(m,k) * B(k,n)  O(m,n) = tanh(C(m,n)) }").f
    plan = f.schedule(sizes={"M": 6, "K": 4, "N": 5}).compilation.plan
    drawn = [s.name for s in statements_of(plan)]
    assert drawn == ["S0", "S1"] and "S0f" in {s.name for s in plan.scop.statements}
    statement = plan.scop.by_name["S1"]
    point = next(p for p in shown(plan, statement).points if p.at == (2, 3))
    assert needs(plan, point, statement, sides_of, drawn) == [("S0", (2, 3))]


def test_of_a_large_domain_tiles_are_drawn() -> None:
    called = tc.define("def add(float(N,M) A) -> (B) { B(i,j) = A(i,j) + 1 }").add
    made = called.schedule(sizes={"N": 60, "M": 100})
    tiles = made["B"].tile("i", "j", 32, 40)
    plan = tiles.compilation.plan
    boxes = shown(plan, plan.scop.by_name["S0"]).boxes
    assert [(b.low, b.high) for b in boxes[1:4]] == [((0, 40), (31, 79)), ((0, 80), (31, 99)), ((32, 0), (59, 39))]
    text = tiles.draw("domain").svg
    assert "in which they begin" in text and ">5<" in text and "a part" not in text
    assert "a part" in made.draw("domain").svg
    skewed = made["B"].skew("j", "i").tile("i", "j", 32, 40).draw("dates").svg
    assert "a part" not in skewed
