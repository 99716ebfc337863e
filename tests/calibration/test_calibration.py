"""Numbers fitted to this machine: searched one at a time, kept per processor, used by kernels from then on."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tcomp.calibration.programs import PROGRAMS
from tcomp.calibration.search import Search
from tcomp.calibration.trials import FACTORS, TRIALS, Trial
from tcomp.cli import main
from tcomp.driver import lower
from tcomp.engine import define
from tcomp.errors import TcompError
from tcomp.mapping.machines.fitted.cpupanels import PACKING
from tcomp.mapping.machines.fitted.replacing import replace_numbers, replaced, shipped
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime import calibrated
from tcomp.runtime.calibrated import Calibration, forget, keep, kept
from tests.targets import CPU

PANEL = "cpupanels.PACKING.least_panel"
REUSE = "cpupanels.PACKING.least_reuse"


@pytest.fixture(autouse=True)
def _shipped_afterwards(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(calibrated, "_read", False)
    yield
    replace_numbers({})


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "calibration.json"
    monkeypatch.setenv("TCOMP_CALIBRATED", str(path))
    return path


class Machine:
    """One whose kernels take as long as a function of the numbers says."""

    def __init__(self, seconds: Callable[[str, float], float]) -> None:
        self.seconds = seconds
        self.compared = 0

    def kernel(self, program: str) -> tuple[str, float]:
        return program, replaced().get(PANEL, shipped()[PANEL])

    def ratio(self, kernel: tuple[str, float], reference: tuple[str, float]) -> float:
        self.compared += 1
        return self.seconds(*kernel) / self.seconds(*reference)


def found_on(seconds: Callable[[str, float], float], budget: float = 60.0) -> tuple[Search[tuple[str, float]], object]:
    search = Search(Machine(seconds), budget)
    return search, search.run([Trial(PANEL, ("a", "b"))])


@pytest.mark.parametrize("best", [8192, 65536, 32768, 131072])
def test_the_search_goes_on_as_long_as_it_gains(best: int) -> None:
    search, numbers = found_on(lambda _, value: 1 + abs(math.log2(value / best)))
    assert numbers == ({} if best == shipped()[PANEL] else {PANEL: best})
    assert math.isclose(search.gains.get(PANEL, 1.0), 1 / (1 + abs(math.log2(shipped()[PANEL] / best))))
    assert not replaced()


def test_what_one_program_loses_by_is_not_kept() -> None:
    assert found_on(lambda program, value: value if program == "a" else 1e9 / value)[1] == {}


def test_a_lucky_measurement_is_repeated() -> None:
    luck = iter([0.5, 0.5])
    search = Search(Machine(lambda program, value: 1.0), 60.0)
    search.workshop.ratio = lambda kernel, reference: next(luck, 1.0)  # type: ignore[method-assign]
    assert search.run([Trial(PANEL, ("a", "b"))]) == {}


def test_the_search_ends_in_time() -> None:
    moments = iter(range(100))
    search = Search(Machine(lambda _, value: value), 3.0, clock=lambda: next(moments))
    search.run([Trial(name, ("a",)) for name in (PANEL, REUSE)] * 10)
    assert len(search.steps) <= 3


def test_numbers_are_replaced_for_the_process_and_restored() -> None:
    replace_numbers({PANEL: 65536})
    assert PACKING.least_panel == 65536 and replaced() == {PANEL: 65536}
    replace_numbers({REUSE: 4})
    assert PACKING.least_panel == shipped()[PANEL] and PACKING.least_reuse == 4


@pytest.mark.parametrize(
    "values", [{"cpupanels.PACKING.none": 3}, {PANEL: 0}, {PANEL: 1.5}, {PANEL: True}, {PANEL: 1 << 40}, {PANEL: None}]
)
def test_numbers_that_do_not_fit_are_refused(values: dict[str, int]) -> None:
    with pytest.raises(TcompError):
        replace_numbers({REUSE: 4, **values})
    assert not replaced() and PACKING.least_reuse == shipped()[REUSE]


def test_what_was_found_is_kept_for_this_processor(file: Path) -> None:
    keep(Calibration({PANEL: 65536}, {PANEL: 0.9}, "a processor", "2026-11-26"))
    assert kept() == Calibration({PANEL: 65536}, {PANEL: 0.9}, "a processor", "2026-11-26")
    assert calibrated.calibrated() == {PANEL: 65536}
    entries = json.loads(file.read_text())
    file.write_text(json.dumps({"another processor": next(iter(entries.values()))}))
    assert kept() is None
    file.write_text(json.dumps(entries))
    assert forget() and kept() is None and not replaced() and not forget()


@pytest.mark.parametrize("content", ["", "[]", "{", '{"x": 1}', "\x00\xff"])
def test_a_damaged_file_holds_nothing(file: Path, content: str) -> None:
    file.write_text(content, encoding="latin-1")
    assert kept() is None and not calibrated.calibrated()
    keep(Calibration({PANEL: 65536}, {}, "", ""))
    assert kept() is not None


def test_numbers_that_a_file_has_no_right_to_are_left_out(file: Path) -> None:
    keep(Calibration({}, {}, "", ""))
    entries = json.loads(file.read_text())
    next(iter(entries.values()))["numbers"] = {PANEL: 1 << 60}
    file.write_text(json.dumps(entries))
    calibrated._read = False
    assert not calibrated.calibrated() and PACKING.least_panel == shipped()[PANEL]


def test_kernels_are_made_with_what_is_kept(file: Path) -> None:
    """Neither the cache on disk nor that of the process hands out what was made with other numbers."""
    text = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
    sizes = {"M": 384, "K": 384, "N": 384}

    def made() -> str:
        return define(text)["f"].compile(sizes=sizes, target="cpu").source

    before = made()
    keep(Calibration({"cpucontractions.REGISTER_TILES.most_vectors": 1}, {}, "", ""))
    assert made() != before
    forget()
    assert made() == before


def test_trials_name_numbers_and_programs_that_there_are() -> None:
    assert {trial.number for trial in TRIALS} <= shipped().keys()
    assert {program for trial in TRIALS for program in trial.programs} <= PROGRAMS.keys()
    assert len({trial.number for trial in TRIALS}) == len(TRIALS)


def test_the_command_fits_shows_and_forgets(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--show"]) == 0
    assert "nothing was fitted" in capsys.readouterr().out
    assert main(["calibrate", "--seconds", "0.5"]) == 0
    assert str(file) in capsys.readouterr().out.replace("\n", "")
    assert main(["calibrate", "--show"]) == 0
    assert "fitted on" in capsys.readouterr().out
    assert main(["calibrate", "--forget"]) == 0
    assert "forgotten" in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.number)
def test_each_number_changes_its_programs(trial: Trial) -> None:
    """On a machine like those on which it was found; else the search would compile for nothing."""

    def texts() -> list[str]:
        made = (PROGRAMS[name] for name in trial.programs)
        return [lower(define(p.text)["f"].function, Sizes(p.sizes), MappingOptions(), CPU).source.text for p in made]

    before, shipped_value = texts(), shipped()[trial.number]
    changed = False
    for factor in FACTORS:
        replace_numbers({trial.number: type(shipped_value)(shipped_value * factor)})
        changed |= texts() != before
    assert changed
