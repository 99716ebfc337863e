"""The page about a search: whole by itself, well-formed, with what it promises."""

from __future__ import annotations

import math
import random
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tcomp.errors import TcompError
from tcomp.mapping.options.options import MappingOptions
from tcomp.tuner.database.trials import Outcome
from tcomp.tuner.report import report, roofs
from tcomp.tuner.report.charts import Axis, Chart, counting, listing, logarithmic
from tcomp.tuner.report.found import Final
from tcomp.tuner.report.influence import influences
from tcomp.tuner.report.report import page
from tcomp.tuner.report.result import TuningResult
from tcomp.tuner.report.roofs import Roofs, Work, roofs_of, work_of
from tcomp.tuner.report.wording import readable_rate, readable_seconds
from tests.tuner.problems import MM, problem, tiled, trial

VOID = ("meta", "br", "line", "circle", "polyline")


class Checker(HTMLParser):
    """Every element that is opened is closed in turn; nothing comes from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        assert not {name for name, _ in attrs} & {"src", "onclick", "onload"}
        assert all(value is not None and value.startswith("#") for name, value in attrs if name == "href")
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def checked(text: str) -> Checker:
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert "http" not in text.replace("http://www.w3.org", "")
    return checker


def result(seconds: float = 0.5) -> TuningResult:
    history = [replace(trial(tiled(m, n), 1.0 / m), baseline=1.0, message="<hot>") for m in (1, 2, 4) for n in (8, 16)]
    history += [trial(tiled(9, 9), outcome=Outcome.CRASHED), replace(trial(MappingOptions()), baseline=1.0)]
    final = Final(tiled(4, 8), (seconds,) * 4, (1.0,) * 4)
    return TuningResult(
        problem(MM.replace("+=!", "+=!  # <b>\n")),
        tiled(4, 8),
        seconds,
        1.0,
        (final,),
        tuple(history),
        0,
        "random",
        1,
        False,
    )


def test_the_page_has_everything(tmp_path: Path) -> None:
    result().report(tmp_path / "out.html")
    page = checked((tmp_path / "out.html").read_text(encoding="utf-8"))
    assert "options = tc.MappingOptions(tile_sizes=(4, 8))" in page.words
    assert "2.00 times as fast as the default, 1 s" in page.words
    assert "tile_sizes[0]" in page.words
    assert "All 8 candidates" in page.words
    assert "<hot>" in page.words
    assert "crashed" in page.words
    assert "def mm(" in page.words
    assert "return 0;" in page.words
    assert "Roofline" in page.words
    assert page.seen.count("svg") == 4
    assert "script" not in page.seen


def test_several_results_on_one_page() -> None:
    text = page([result(), result(0.25)])
    found = checked(text)
    assert "2 problems" in found.words
    assert text.count("<h2") == 2


def test_a_run_without_a_single_time_has_a_page() -> None:
    empty = replace(result(), history=(), finals=(), seconds=math.inf, default_seconds=math.inf, best=MappingOptions())
    found = checked(page([empty]))
    assert "All 0 candidates" in found.words
    assert "svg" not in found.seen


def test_a_page_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TcompError, match="cannot write"):
        result().report(tmp_path / "no" / "out.html")


def test_the_option_that_matters_comes_first() -> None:
    rng = random.Random(1)
    trials = [
        replace(trial(MappingOptions(tile_sizes=(m, n), parallel=p), m * rng.uniform(0.99, 1.01)), baseline=1.0)
        for m in (1, 2, 4, 8)
        for n in (16, 32, 64)
        for p in (True, False)
    ]
    found = influences(trials)
    assert found[0].name == "tile_sizes[0]"
    assert found[0].share > 0.99
    assert {i.name for i in found} == {"tile_sizes[0]", "tile_sizes[1]", "parallel"}
    assert all(i.share < 0.05 for i in found[1:])
    assert [value for value, _ in found[0].groups] == ["1", "2", "4", "8"]


def test_values_that_occur_once_explain_nothing() -> None:
    trials = [replace(trial(tiled(n), float(n)), baseline=1.0) for n in range(1, 9)]
    assert [i.share for i in influences(trials)] == [0.0]
    assert influences(trials[:1]) == []
    assert influences([]) == []


def test_what_the_model_chose_is_a_value() -> None:
    trials = [
        replace(trial(o, s), baseline=1.0) for o, s in ((tiled(4), 1.0), (MappingOptions(), 2.0), (tiled(4), 1.1))
    ]
    assert [value for value, _ in influences(trials)[0].groups] == ["model", "4"]


def test_axes() -> None:
    axis = logarithmic([1e-3, 1.0], "t", readable_seconds)
    assert [label for _, label in axis.ticks] == ["1 ms", "10 ms", "100 ms", "1 s"]
    assert axis.share(0.0316) == pytest.approx(0.5, abs=0.01)
    assert axis.share(5.0) == 1.0
    assert len(logarithmic([2.0, 2.0], "t", str).ticks) == 1
    assert [t for t, _ in counting(37, "n").ticks] == [0, 5, 10, 15, 20, 25, 30, 35]
    assert listing(["a", "b"], "x").share(0) == 0.25
    assert Axis(1.0, 1.0, (), "").share(1.0) == 0.5


def test_words_in_a_chart_are_escaped() -> None:
    chart = Chart(listing(["<a>"], "<x>"), counting(3, "&"))
    chart.point(0, 1, "dot", "<t>")
    chart.text(0, 1, "<u>")
    chart.line([(0, 0), (0, 3)], "best")
    found = checked(chart.svg())
    assert all(words in found.words for words in ("<a>", "<x>", "<t>", "<u>", "&"))


def test_the_work_of_a_program() -> None:
    work = work_of(problem(M=8, K=4, N=2).specialisation.lower())
    assert (work.flops, work.bytes) == (2 * 8 * 4 * 2, 4 * (8 * 4 + 4 * 2 + 8 * 2))


def test_roofs() -> None:
    here = roofs_of(problem())
    assert here.flops > 1e8
    assert here.bandwidth > 1e8
    gpu = roofs_of(problem(target="cuda:sm_90"))
    assert gpu == Roofs(66.9e12, 3.35e12, "the data sheet of a H100")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (math.inf, "no time"),
        (2.0, "2 s"),
        (0.9996, "1000 ms"),
        (1.5e-3, "1.5 ms"),
        (42.25e-6, "42.2 us"),
        (3e-9, "3 ns"),
    ],
)
def test_times_are_readable(seconds: float, text: str) -> None:
    assert readable_seconds(seconds) == text


def test_rates_are_readable() -> None:
    assert readable_rate(66.9e12, "flop/s") == "66.9 Tflop/s"
    assert readable_rate(12.0, "B") == "12 B"
    assert readable_rate(1234.0, "") == "1.23 k"


def test_a_slow_first_call_is_no_roof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh pages and sleeping threads: the first call takes longer than all that follow."""
    calls: list[float] = []

    def call() -> None:
        time.sleep(0.2 if not calls else 0.001)
        calls.append(0.0)

    assert roofs._fastest(call) < 0.1 and len(calls) > 5


def test_a_device_is_as_good_as_it_ever_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCOMP_CACHE", str(tmp_path))
    assert [roofs.best_ever("a", rate) for rate in (2.0, 1.0, 3.0, 2.5)] == [2.0, 2.0, 3.0, 3.0]
    assert roofs.best_ever("b", 1.0) == 1.0


@pytest.mark.parametrize(
    ("size", "least", "seconds", "said"),
    [
        (1 << 40, 1.0, 2.0, "of which the best options reach 50%"),
        (1 << 40, 2.0, 1.0, "the roof is higher than what was measured"),
        (1 << 10, 2.0, 1.0, "these arrays stay in a cache"),
    ],
)
def test_what_is_said_of_a_roof(size: int, least: float, seconds: float, said: str) -> None:
    assert said in report._reached(result(seconds), Work(1, size), least)
