"""From addresses in a compiled kernel to lines of its text and statements of the program."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from tcomp import debug
from tcomp.backends.host.processes import work_directory
from tcomp.backends.simulator.text import FILE
from tcomp.backends.source import Source
from tcomp.errors import TargetError

_FRAME = re.compile(rf"(?:.*/)?{re.escape(FILE)}:(\d+)")
_SUBSCRIPTED = re.compile(r"(\w+)\s*(?:\[(?:[^\[\]]|\[[^\[\]]*\])*\]\s*)+\Z")
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the text, counted from 1; ``number`` is None where the compiler left no trace."""

    number: int | None
    statement: str | None
    text: str


class Places:
    """Finds lines; asks ``addr2line`` once for each address."""

    def __init__(self, source: Source, compiled: str, image: bytes) -> None:
        """``compiled`` is the text that the compiler got for the source's."""
        self._lines = source.text.split("\n")
        self._compiled = compiled.split("\n")
        self._statements = {line: statement for launch in source.launches for line, statement in launch.lines}
        self._image = image
        self._known: dict[int, int | None] = {0: None}

    def line(self, number: int | None) -> Line:
        """A line by its number."""
        if number is None or not 1 <= number <= len(self._lines):
            return Line(None, None, "")
        return Line(number, self._statements.get(number), self._lines[number - 1].strip())

    def array_at(self, number: int, column: int) -> str:
        """The array whose subscript ends at a column (from 1) of a line; empty if there is none."""
        found = _SUBSCRIPTED.search(self._compiled[number - 1][:column])
        return found[1] if found else ""

    def at(self, site: int) -> Line:
        """The line that holds the call which returns to ``site``."""
        self.learn((site,))
        return self.line(self._known[site])

    def learn(self, sites: Iterable[int]) -> None:
        """Look up many addresses at a time."""
        wanted = [s for s in dict.fromkeys(sites) if s not in self._known]
        if wanted:
            frames = self._frames(wanted)
            for site in wanted:
                lines = frames.get(site, [])
                self._known[site] = next((n for n in lines if n in self._statements), lines[0] if lines else None)

    def _frames(self, sites: list[int]) -> dict[int, list[int]]:
        """The lines of the text for each address, from the innermost inlined function outwards."""
        program = shutil.which("addr2line")
        if program is None:
            debug.log(1, "there is no addr2line on this machine: findings have no lines")
            return {}
        try:
            answers = self._asked(program, sites)
        except (OSError, subprocess.TimeoutExpired, TargetError) as error:
            debug.log(1, f"addr2line fails, so findings have no lines: {error}")
            return {}
        found: dict[int, list[int]] = {}
        lines: list[int] = []
        for answer in answers:
            if answer.startswith("0x"):
                lines = found.setdefault(int(answer, 16) + 1, [])
            elif frame := _FRAME.match(answer):
                lines.append(int(frame[1]))
        return found

    def _asked(self, program: str, sites: list[int]) -> list[str]:
        """What addr2line prints.  Raises OSError, TimeoutExpired, and TargetError if there is no room for the image."""
        with work_directory() as directory:
            path = directory / "kernel.so"
            path.write_bytes(self._image)
            # The address before the one returned to lies in the call.
            asked = "".join(f"{site - 1:#x}\n" for site in sites)
            command = (program, "-a", "-i", "-e", str(path))
            done = subprocess.run(
                command, input=asked, capture_output=True, errors="replace", timeout=_SECONDS, check=False
            )
        return done.stdout.splitlines()
