"""Programs whose last arguments are the same in every call: what is bound, and open sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tcomp.backends.runtime import CallLayout, Program, QuickRun, Run, Site
from tcomp.errors import TcompError


class BoundRun:
    """A kernel ready to run, to which the addresses of what is bound are handed on."""

    __slots__ = ("_fixed", "_run")

    def __init__(self, run: Run, fixed: tuple[int, ...]) -> None:
        self._run = run
        self._fixed = fixed

    def __call__(self, addresses: Sequence[int]) -> Sequence[int] | None:
        """See ``Run``."""
        return self._run((*addresses, *self._fixed))

    def direct(self, layout: CallLayout) -> QuickRun | None:
        """See ``Run``."""
        return self._run.direct(replace(layout, fixed=self._fixed))

    def keep(self, objects: object) -> bool:
        """See ``Run``."""
        return self._run.keep(objects)

    def failure(self, error: Exception) -> TcompError:
        """See ``Run``."""
        return self._run.failure(error)


@dataclass(frozen=True, slots=True, eq=False)
class BoundProgram:
    """A program with what is bound to its last arguments, which ``arrays`` keeps alive."""

    program: Program
    fixed: tuple[int, ...]
    arrays: tuple[Any, ...]

    def at(self, site: Site) -> BoundRun:
        """See ``Program``."""
        return BoundRun(self.program.at(site), self.fixed)

    def pack(self, addresses: Sequence[int]) -> None:
        """See ``Program``."""
        self.program.pack(addresses)
