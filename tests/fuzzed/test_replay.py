"""What ``tcomp fuzz`` found and what has been mended: every reproducer passes.

A new one is a file from ``tcomp fuzz --keep``, under a name that says what was wrong.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tcomp.errors import TargetError
from tcomp.fuzzing.cases import read_case
from tcomp.fuzzing.execution import Outcome, Verdict, execute
from tcomp.fuzzing.workers import ENVIRONMENT
from tcomp.runtime.registry import check_available

REPRODUCERS = sorted(Path(__file__).parent.glob("*.tc"))


@pytest.mark.parametrize("path", REPRODUCERS, ids=lambda path: path.stem)
def test_reproducer_passes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    case = read_case(path.read_text(encoding="utf-8"))
    try:
        check_available(case.target)
    except TargetError as error:
        pytest.skip(error.message)
    assert execute(case) == Outcome(Verdict.PASSED)


def test_there_are_reproducers() -> None:
    assert REPRODUCERS
