"""One program for arrays that begin where vectors do, another for all others, compiled when the first of them comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tcomp.backends.runtime import CallLayout, Program, QuickRun, Run, Site
from tcomp.backends.source import ALIGNMENT, Source
from tcomp.errors import TcompError
from tcomp.storage.memo import Memo


class ProgramForAddresses:
    """Runs ``program`` where the arguments that must be aligned are, and what ``other`` makes elsewhere."""

    def __init__(self, source: Source, program: Program, other: Callable[[], Program]) -> None:
        self._positions = tuple(n for n, a in enumerate(source.arguments) if a.name in source.aligned)
        self._program = program
        self._make_other = other
        self._other: Memo[None, Program] = Memo()

    def at(self, site: Site) -> RunForAddresses:
        """Make the program ready; the other one is when its first call comes."""
        return RunForAddresses(self._positions, self._program.at(site), lambda: self._elsewhere().at(site))

    def pack(self, addresses: Sequence[int]) -> None:
        """See ``Program``."""
        self._program.pack(addresses)

    def _elsewhere(self) -> Program:
        return self._other.get(None, self._make_other)


class RunForAddresses:
    """A ``Run`` that looks at the addresses of a call."""

    __slots__ = ("_make_other", "_other", "_positions", "_run")

    def __init__(self, positions: Sequence[int], run: Run, other: Callable[[], Run]) -> None:
        self._positions = positions
        self._run = run
        self._make_other = other
        self._other: Run | None = None

    def __call__(self, addresses: Sequence[int]) -> Sequence[int] | None:
        """See ``Run``; also raises TargetError if the other program does not compile."""
        for position in self._positions:
            if addresses[position] % ALIGNMENT:
                return self._elsewhere()(addresses)
        return self._run(addresses)

    def _elsewhere(self) -> Run:
        if self._other is None:
            self._other = self._make_other()
        return self._other

    def direct(self, layout: CallLayout) -> QuickRun | None:
        """See ``Run``."""
        return self._run.direct(layout)

    def keep(self, objects: object) -> bool:
        """See ``Run``."""
        return self._run.keep(objects)

    def failure(self, error: Exception) -> TcompError:
        """See ``Run``."""
        return self._run.failure(error)
