"""Lines of findings, and addr2line as it should not be: findings then have no lines, and that is all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tcomp.backends.simulator import places
from tcomp.backends.simulator.places import Line, Places
from tcomp.backends.simulator.text import FILE
from tcomp.backends.source import Launch, Source

TEXT = "first\nsecond\nthird"

PROGRAMS = {
    "answers": f"#!/bin/sh\nwhile read -r address; do echo $address; echo /x/{FILE}:2; done\n",
    "fails": "#!/bin/sh\nexit 1\n",
    "hangs": "#!/bin/sh\nexec sleep 100\n",
    "talks nonsense": "#!/bin/sh\nprintf '\\377\\376\\n0x1\\n??:0\\n'\n",
    "crashes": "#!/bin/sh\nkill -SEGV $$\n",
    "is no program": "\x7fELF",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_addr2line_that(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "addr2line"
    program.write_text(PROGRAMS[name])
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(places, "_SECONDS", 1.0 if name == "hangs" else 60.0)
    launch = Launch("kernel", (1, 1, 1), (1, 1, 1), 0, (), ((2, "S0"),))
    found = Places(Source(TEXT, "f", (), 0, (), (), (launch,)), TEXT, b"").at(0x1000)
    assert found == (Line(2, "S0", "second") if name == "answers" else Line(None, None, ""))


def test_without_addr2line_or_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(TEXT, "f", (), 0, (), ())
    monkeypatch.setattr(Path, "write_bytes", _full)
    assert Places(source, TEXT, b"image").at(1) == Line(None, None, "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Places(source, TEXT, b"image").at(1) == Line(None, None, "")


def _full(path: Path, content: bytes) -> int:
    raise OSError(28, "No space left on device")
