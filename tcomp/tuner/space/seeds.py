"""The candidates that every search begins with."""

from __future__ import annotations

from collections.abc import Iterable

from tcomp.mapping.options.options import NAMED, MappingOptions
from tcomp.tuner.database.trials import Candidate
from tcomp.tuner.space.space import Space


def seeds(space: Space, stored: Iterable[MappingOptions] = ()) -> list[Candidate]:
    """The default, what ``stored`` has of the same program, nearest first, and the named sets; each mapping once.

    The default comes as it is; tiles and the like that are as large as the program they were stored for are cut to
    this one.
    """
    found = {space.base: Candidate(space.base, "default")}
    origins = [("stored", stored), ("named", NAMED.values())]
    for origin, several in origins:
        for options in several:
            normal = space.normal(options)
            found.setdefault(normal, Candidate(normal, origin))
    return list(found.values())
