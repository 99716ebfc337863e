"""Calls of arrays that their library says are like those of an earlier call, with or without arrays for the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tcomp.arrays.matching import Matcher
from tcomp.errors import TcompError

DirectBinding = Callable[[tuple[Any, ...], Any], Any]
"""Runs a kernel on the arguments of a call and what was given as ``out``.

Returns what the call returns, or None if nothing was done, since something is not as in the call that it was made for.
"""

Launch = Callable[[tuple[int, ...]], Sequence[int] | None]
"""Runs a kernel on addresses, and gives its report where a check failed."""


@dataclass(frozen=True, slots=True)
class MatchedRun:
    """A kernel for arguments that ``match`` gives addresses for, which ``run`` takes to give the results."""

    match: Matcher
    run: Callable[[tuple[int, ...]], Any]

    def direct(self) -> DirectBinding:
        """Both, one after the other."""
        match, run = self.match, self.run

        def call(arguments: tuple[Any, ...], out: Any) -> Any:
            if out is not None:
                return None
            addresses = match(arguments)
            return None if addresses is None else run(addresses)

        return call


@dataclass(frozen=True, slots=True)
class GivenResults:
    """A kernel whose results go into arrays of the caller's: an array, or a tuple of several.

    ``match`` looks at ``arguments`` arguments and all results; ``near`` has pairs of arrays and how far apart they
    must be; ``note`` is told of what was written.
    """

    match: Matcher
    launch: Launch
    failure: Callable[[Sequence[int]], TcompError]
    arguments: int
    single: bool
    near: tuple[tuple[int, int, int, int], ...]
    note: Callable[[Any], None] | None

    def direct(self) -> DirectBinding:
        """The call.  Where arrays may share memory it does nothing: the long way finds out."""
        match, launch, near, note = self.match, self.launch, self.near, self.note
        count, single = self.arguments, self.single

        def call(arguments: tuple[Any, ...], out: Any) -> Any:
            if out is None or (type(out) is tuple) is single or len(arguments) != count:
                return None
            addresses = match((*arguments, out) if single else (*arguments, *out))
            if addresses is None:
                return None
            for later, earlier, least, most in near:
                if least < addresses[earlier] - addresses[later] < most:
                    return None
            report = launch(addresses)
            if note is not None:
                for array in (out,) if single else out:
                    note(array)
            if report is not None:
                raise self.failure(report)
            return out

        return call
