"""The weights of a network: arrays, some of which are computed each time that somebody reads them.

What a pass makes of weights, turned, folded or transformed, is read once, when panels are packed of it.  Only the
arrays that were given stay in memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


class Later:
    """An array that is computed when it is asked for, and let go of when nobody holds it any more."""

    def __init__(self, compute: Callable[[], Array]) -> None:
        self._compute = compute
        self._made: weakref.ref[Array] | None = None

    def array(self) -> Array:
        """The array, read-only: who asks next may get the same one.  Raises what computing it raises."""
        made = None if self._made is None else self._made()
        if made is None:
            made = np.asarray(self._compute(), order="C")
            if made.base is not None or made.flags.writeable:
                made = made.view()
                made.flags.writeable = False
            self._made = weakref.ref(made)
        return made

    def __reduce__(self) -> tuple[Callable[[Array], Array], tuple[Array]]:
        return np.asarray, (self.array(),)


class Weights(MutableMapping[str, Array]):
    """Arrays by name.  Copies of it, and parts, compute nothing."""

    def __init__(self, given: Mapping[str, Array] | None = None) -> None:
        self._entries: dict[str, Array | Later] = dict(given._entries if isinstance(given, Weights) else given or {})

    def __getitem__(self, name: str) -> Array:
        found = self._entries[name]
        return found.array() if isinstance(found, Later) else found

    def __setitem__(self, name: str, array: Array | Later) -> None:
        self._entries[name] = array

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def only(self, names: Iterable[str]) -> Weights:
        """Those of these names that are there, in their own order."""
        wanted, part = set(names), Weights()
        part._entries = {name: entry for name, entry in self._entries.items() if name in wanted}
        return part
