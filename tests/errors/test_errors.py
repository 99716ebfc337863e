"""One bad program per ``.tc`` file; the ``.txt`` file next to it holds the whole message, caret included."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tcomp.errors import CompileError
from tcomp.grammar import define

PROGRAMS = sorted(Path(__file__).parent.glob("*.tc"))


@pytest.mark.parametrize("program", PROGRAMS, ids=[p.stem for p in PROGRAMS])
def test_message(program: Path, golden: Callable[[Path, str], None]) -> None:
    with pytest.raises(CompileError) as failure:
        define(program.read_text(encoding="utf-8"), program.name)
    golden(program.with_suffix(".txt"), f"{failure.value}\n")
    assert failure.value.line is not None
    assert "^" in failure.value.caret


def test_every_message_has_a_program() -> None:
    texts = {p.stem for p in Path(__file__).parent.glob("*.txt")}
    assert texts == {p.stem for p in PROGRAMS}
    assert len(PROGRAMS) > 50
