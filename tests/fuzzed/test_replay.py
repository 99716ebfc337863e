"""What ``tcomp fuzz`` found and what has been mended: every reproducer passes.

A new one is a file from ``tcomp fuzz --keep``, under a name that says what was wrong.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tcomp.backends.simulator.compiler import why_not
from tcomp.fuzzing.cases import read_case
from tcomp.fuzzing.execution import Outcome, Verdict, execute
from tcomp.fuzzing.workers import ENVIRONMENT

REPRODUCERS = sorted(Path(__file__).parent.glob("*.tc"))


@pytest.mark.parametrize("path", REPRODUCERS, ids=lambda path: path.stem)
def test_reproducer_passes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    case = read_case(path.read_text(encoding="utf-8"))
    if case.simulated and why_not() is not None:
        pytest.skip(why_not() or "")
    assert execute(case) == Outcome(Verdict.PASSED)


def test_there_are_reproducers() -> None:
    assert REPRODUCERS
