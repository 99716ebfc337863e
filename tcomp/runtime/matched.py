"""Calls of arrays that their library says are like those of an earlier call, with or without arrays for the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tcomp.arrays.matching import Matcher
from tcomp.backends.runtime import Attribute, DirectBinding, Pulled
from tcomp.errors import TcompError

Launch = Callable[[tuple[int, ...]], Sequence[int] | None]
"""Runs a kernel on addresses, and gives its report where a check failed."""


@dataclass(frozen=True, slots=True)
class MatchedRun:
    """A ``QuickRun`` in Python: a kernel for arguments that ``match`` gives addresses for.

    ``run`` takes these to give the results; ``places`` are those of the arrays among the arguments.
    """

    match: Matcher
    run: Callable[[tuple[int, ...]], Any]
    places: tuple[int, ...]
    address: Callable[[Any], int]

    def binding(self) -> DirectBinding:
        """See ``QuickRun``."""
        match, run = self.match, self.run

        def call(arguments: tuple[Any, ...], out: Any) -> Any:
            if out is not None:
                return None
            addresses = match(arguments)
            return None if addresses is None else run(addresses)

        return call

    def forward(self, attributes: Sequence[Attribute], otherwise: Callable[..., Any]) -> Callable[..., Any]:
        """See ``QuickRun``; here what goes wrong is raised."""
        run, places, address = self.run, self.places, self.address

        def forward(ctx: Any, *arguments: Any) -> Any:
            results = run(tuple([address(arguments[place]) for place in places]))
            values = (*arguments, *(results if type(results) is tuple else (results,)))
            for attribute in attributes:
                chosen = attribute.value
                if chosen is None:
                    chosen = tuple([values[place] for place in attribute.places])
                setattr(ctx, attribute.name, chosen)
            return results

        return forward

    def recorded(self, apply: Callable[..., Any], taken: int) -> DirectBinding:
        """See ``QuickRun``."""
        match = self.match

        def call(arguments: tuple[Any, ...], out: Any) -> Any:
            if out is not None or match(arguments) is None:
                return None
            results = apply(*arguments)
            return results if taken == 0 else results[0] if taken == 1 else results[:taken]

        return call

    def backward(self, pulled: Pulled) -> Callable[..., Any] | None:
        """See ``QuickRun``; there is no way that would be quicker than the operation's."""
        return None


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

    def binding(self) -> DirectBinding:
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
