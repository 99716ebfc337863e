"""``tcomp tune`` and ``tcomp tuned``, with a workshop that measures nothing."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.cli import main
from tcomp.commands import tune as command
from tcomp.commands.inputs.shapes import parse_shapes
from tcomp.commands.terminal.progress import lines_of, sparkline
from tcomp.mapping.options.options import MappingOptions
from tcomp.tuner.database.database import Database
from tcomp.tuner.database.trials import Candidate, Problem
from tcomp.tuner.progress import Phase, Progress, Watch
from tcomp.tuner.report.result import TuningResult
from tcomp.tuner.search import Run, Searcher
from tcomp.tuner.settings import Settings
from tests.tuner.fakes import FakeWorkshop, Listed
from tests.tuner.problems import MM, SCALE, tiled


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TCOMP_TUNED", str(tmp_path / "tuned.sqlite3"))
    monkeypatch.chdir(tmp_path)
    Path("mm.tc").write_text(MM)
    Path("two.tc").write_text(f"{MM}\n{SCALE}\n")
    return tmp_path / "tuned.sqlite3"


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Problem, Settings]]:
    """The runs that were asked for; each is done in the workshop that measures nothing."""
    return _fake(monkeypatch, lambda _: FakeWorkshop())


def _fake(monkeypatch: pytest.MonkeyPatch, workshop: Callable[[int], FakeWorkshop]) -> list[tuple[Problem, Settings]]:
    asked: list[tuple[Problem, Settings]] = []

    def tune(problem: Problem, settings: Settings, *, database: Database, watch: Watch, **_: Any) -> TuningResult:
        asked.append((problem, settings))
        searcher = Searcher((Candidate(MappingOptions(), "default"),), Listed([tiled(n) for n in range(90, 99)]))
        return Run(problem, settings, searcher, workshop(len(asked)), database, watch).search()

    monkeypatch.setattr(command, "tune", tune)
    return asked


def sizes_of(runs: list[tuple[Problem, Settings]]) -> list[tuple[str, dict[str, int]]]:
    made = [problem.specialisation for problem, _ in runs]
    return [(m.function.name, dict(m.sizes.values)) for m in made]


def test_one_problem(runs: list[tuple[Problem, Settings]], capsys: pytest.CaptureFixture[str], file: Path) -> None:
    arguments = ["tune", "mm.tc", "--sizes", "M=8,N=9,K=10", "--budget", "59.5", "--strategy", "random", "--seed", "7"]
    assert main(arguments) == 0
    assert sizes_of(runs) == [("mm", {"M": 8, "K": 10, "N": 9})]
    assert runs[0][1] == Settings(59.5, "random", 7)
    out, err = capsys.readouterr()
    assert "options: MappingOptions(tile_sizes=(98,))" in out
    assert "3.70 times as fast as the default" in out
    assert str(file) in out
    assert len(out.splitlines()) <= 11
    assert "measured" in err


def test_element_types(runs: list[tuple[Problem, Settings]], capsys: pytest.CaptureFixture[str]) -> None:
    Path("twice.tc").write_text("def twice<T>(T(N) A) -> (B) { B(i) = A(i) + A(i) }\n")
    chosen = [[], ["--types", "T=double"], ["--types", "T=float16"]]
    for types in chosen:
        assert main(["tune", "twice.tc", "mm.tc", "--sizes", "N=9,M=8,K=10", "--quiet", *types]) == 0
    made = [problem.specialisation for problem, _ in runs]
    assert [str(m.function.tensors["A"].dtype) for m in made[::2]] == ["float32", "float64", "float16"]
    assert len({m.key() for m in made[1::2]}) == 1
    twice = tc.define("twice.tc").twice
    for m, dtype in zip(made[::2], (np.float32, np.float64, np.float16), strict=True):
        assert twice.chosen([np.zeros(9, dtype)]).function == m.function
    capsys.readouterr()
    assert main(["tune", "twice.tc", "--sizes", "N=9", "--types", "U=double"]) == 1
    assert "there is no element type U; those that are parameters are T" in capsys.readouterr().err
    assert main(["tune", "mm.tc", "--sizes", "N=9,M=8,K=10", "--types", "T=double"]) == 1
    assert "there is no element type T" in capsys.readouterr().err


def test_families_of_shapes_and_several_programs(
    runs: list[tuple[Problem, Settings]], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["tune", "two.tc", "--def", "mm", "--def", "scale", "--sizes", "M=8..32:pow2,N=9/5,K=10", "--quiet"]
    assert main(arguments) == 0
    assert sizes_of(runs) == [
        *(("mm", {"M": m, "K": 10, "N": n}) for m in (8, 16, 32) for n in (9, 5)),
        *(("scale", {"N": n}) for n in (9, 5)),
    ]
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "mm(M=8, K=10, N=9): MappingOptions(tile_sizes=(98,))"
    assert len(out.splitlines()) == 8
    assert err == ""


def test_sizes_given_twice_are_two_families(runs: list[tuple[Problem, Settings]]) -> None:
    assert main(["tune", "mm.tc", "--sizes", "M=1,N=2,K=3", "--sizes", "M=4,N=5,K=6", "--quiet"]) == 0
    assert sizes_of(runs) == [("mm", {"M": 1, "N": 2, "K": 3}), ("mm", {"M": 4, "N": 5, "K": 6})]


def test_json(runs: list[tuple[Problem, Settings]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "mm.tc", "--sizes", "M=8,N=9,K=10", "--json"]) == 0
    out, err = capsys.readouterr()
    (result,) = json.loads(out)["results"]
    assert result["options"] == "MappingOptions(tile_sizes=(98,))"
    assert result["speedup"] == pytest.approx(1e-3 / 0.27e-3)
    assert len(result["history"]) == 10
    assert err == ""


def test_ctrl_c_ends_with_130_and_keeps_the_best(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = _fake(monkeypatch, lambda number: FakeWorkshop(interrupt_after=4 if number == 2 else None))
    arguments = ["tune", "mm.tc", "--sizes", "M=1/2/3,N=1,K=1", "--report", "out.html"]
    assert main(arguments) == 130
    assert len(runs) == 2
    out = capsys.readouterr().out
    assert "MappingOptions(tile_sizes=(92,))" in out
    assert "interrupted" in out
    assert "kept in" in out
    assert Path("out.html").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["mm.tc"], 1, "the size M is not given"),
        (["mm.tc", "--sizes", "M=1,N=1,K=1,Q=1"], 1, "there is no size Q"),
        (["two.tc", "--sizes", "N=1"], 1, "2 defs; pick one with --def"),
        (["two.tc", "--def", "nn", "--sizes", "N=1"], 1, "there is no def nn"),
        (["none.tc", "--sizes", "N=1"], 1, "cannot read none.tc"),
        (["mm.tc", "--sizes", "M=1,N=1,K=1", "--target", "abacus"], 3, "there is no target"),
    ],
)
def test_mistakes(arguments: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", *arguments]) == status
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value"),
    [("--sizes", "M"), ("--sizes", "M=1..8"), ("--sizes", "M=0..8:pow2"), ("--sizes", "M=1..8:0"), ("--budget", "0"),
     ("--budget", "inf"), ("--strategy", "luck"), ("--jobs", "0"), ("--seed", "-1"), ("--sizes", "M=1..99999:1"),
     ("--sizes", "M=1,M=2")],
)  # fmt: skip
def test_wrong_usage(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["tune", "mm.tc", option, value])
    assert ended.value.code == 2
    assert option in capsys.readouterr().err


def test_shapes() -> None:
    assert parse_shapes("M=3") == [{"M": 3}]
    assert parse_shapes("M=1..3:1, N=-2") == [{"M": 1, "N": -2}, {"M": 2, "N": -2}, {"M": 3, "N": -2}]
    assert [s["M"] for s in parse_shapes("M=3..100:pow2")] == [3, 6, 12, 24, 48, 96]
    assert [s["M"] for s in parse_shapes("M=7/1..9:4/7")] == [7, 1, 5, 9]


@pytest.mark.parametrize("wrong", ["M=4/", "M=/4", "M=4//5", "M=4/x", "M=", "=4", "M", "M=4,M=5", "M=9..1:2"])
def test_wrong_shapes(wrong: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_shapes(wrong)


def test_tuned_lists_moves_and_prunes(
    runs: list[tuple[Problem, Settings]], capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    main(["tune", "mm.tc", "--sizes", "M=8,N=9,K=10", "--quiet"])
    capsys.readouterr()
    assert main(["tuned", "ls"]) == 0
    out = capsys.readouterr().out
    assert "mm(M=8, K=10, N=9)" in out
    assert "3.70" in out
    assert f"1 result, 10 trials, in {file}" in out
    assert main(["tuned", "export", "all.json", "--trials"]) == 0
    assert main(["tuned", "prune", "--all"]) == 0
    assert main(["tuned", "ls"]) == 0
    assert main(["tuned", "import", "all.json"]) == 0
    assert main(["tuned", "prune", "--trials"]) == 0
    assert main(["tuned", "ls"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "wrote 1 result, 10 trials to all.json"
    assert lines[1] == f"removed 1 result, 10 trials from {file}"
    assert lines[2] == f"0 results, 0 trials, in {file}"
    assert lines[3] == f"took 1 result, 10 trials into {file}"
    assert lines[4] == f"removed 0 results, 10 trials from {file}"
    assert lines[-1] == f"1 result, 0 trials, in {file}"


def test_what_cannot_be_imported_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tuned", "import", "mm.tc"]) == 1
    assert "it is not JSON" in capsys.readouterr().err
    assert main(["tuned", "export", "no/such/place"]) == 1
    assert "cannot write" in capsys.readouterr().err


def test_what_finds_no_room_is_no_success(
    runs: list[tuple[Problem, Settings]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    file: Path,
) -> None:
    arguments = ["tune", "two.tc", "--def", "mm", "--def", "scale", "--sizes", "M=8,N=9,K=10"]
    keep = Database.keep
    raising = "SELECT RAISE(ABORT, 'disk is full'); END"
    trigger = f"CREATE TEMP TRIGGER IF NOT EXISTS full BEFORE INSERT ON tuned BEGIN {raising}"

    def full(database: Database, tuned: Any) -> None:
        if tuned.label.startswith("mm"):
            database._connection.execute(trigger)
        else:
            database._connection.execute("DROP TRIGGER IF EXISTS full")
        keep(database, tuned)

    monkeypatch.setattr(Database, "keep", full)
    assert main([*arguments[:4], *arguments[6:]]) == 1
    out, err = capsys.readouterr()
    assert "calls use it" not in out and "nothing is kept for calls" in out
    assert f"error: the result could not be kept in {file}: disk is full" in err
    assert main([*arguments, "--quiet"]) == 1
    assert "error: 1 of 2 results could not be kept" in capsys.readouterr().err
    monkeypatch.setattr(Database, "keep", keep)
    monkeypatch.setenv("TCOMP_TUNED", "/dev/null")
    assert main([*arguments[:4], *arguments[6:]]) == 1
    out, err = capsys.readouterr()
    assert "calls use it" not in out
    assert "could not be kept in /dev/null" in err


def test_progress_lines() -> None:
    none = Progress("mm(M=1)", Phase.COMPILING, 0, 0, 0, 0, *[float("inf")] * 3, MappingOptions(), (), 100.0)
    assert lines_of(none, "", 30.0) == [
        "mm(M=1)",
        "compiling, generation 0: 0 compiled, 0 measured, 0 failed; 1:10 left",
    ]
    some = Progress("mm(M=1)", Phase.MEASURING, 3, 9, 8, 1, 2e-3, 1e-3, 3e-3, tiled(4), (1.0, 0.5), 100.0)
    assert lines_of(some, " (2 of 3)", 200.0) == [
        "mm(M=1) (2 of 3)",
        "measuring, generation 3: 9 compiled, 8 measured, 1 failed; 0:00 left",
        "default 2 ms, best 1 ms (2.00x), median 3 ms",
        "█▁ MappingOptions(tile_sizes=(4,))",
    ]


def test_sparkline() -> None:
    assert sparkline([]) == ""
    assert sparkline([2.0]) == "▁"
    assert sparkline([8, 7, 6, 5, 4, 3, 2, 1]) == "█▇▆▅▄▃▂▁"
    assert len(sparkline([1.0 / k for k in range(1, 1000)])) == 60


def test_run_and_compile_use_what_was_found(
    runs: list[tuple[Problem, Settings]], capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["mm.tc", "--sizes", "M=200,N=9,K=10"]
    assert main(["compile", *sizes]) == 0
    before = capsys.readouterr().out
    assert main(["tune", *sizes, "--quiet"]) == 0
    capsys.readouterr()
    assert main(["compile", *sizes]) == 0
    after = capsys.readouterr().out
    assert main(["compile", *sizes, "--options", "tile=98"]) == 0
    assert after == capsys.readouterr().out != before
    assert main(["compile", *sizes, "--options", "{}"]) == 0
    assert capsys.readouterr().out == before
    assert main(["run", *sizes, "--check"]) == 0
