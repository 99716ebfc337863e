"""What is derived once for an operation, and anew for sizes where that does not serve all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from tcomp.errors import UnsaidError
from tcomp.storage.memo import MOST_KEPT, Recent


class Once:
    """Values that are made when they are first asked for, by one thread; of those for some numbers the last so many."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._known: dict[object, Any] = {}
        self._for_numbers: Recent[object, Any] = Recent(MOST_KEPT)
        self._sized: set[object] = set()

    def get(self, key: object, make: Callable[[], Any], numbers: Hashable = None) -> Any:
        """What was made for a key, and for numbers if there are some."""
        known, whole = (self._known, key) if numbers is None else (self._for_numbers, (key, numbers))
        found = known.get(whole)
        if found is None:
            with self._lock:
                found = known.get(whole)
                if found is None:
                    found = known[whole] = make()
        return found

    def for_sizes(
        self,
        key: object,
        sizes: Mapping[str, Any],
        make: Callable[[Mapping[str, int] | None], Any],
        suits: Callable[[Any, Mapping[str, int]], bool],
    ) -> Any:
        """What ``make`` derives for all sizes, or for those of a call where no formula says the extents of a def.

        Also where what serves all does not suit those of a call, as far as they are known.
        """
        if key not in self._sized:
            try:
                found = self.get(key, lambda: make(None))
            except UnsaidError:
                self._sized.add(key)
            else:
                if self._suits(key, found, sizes, suits):
                    return found
        own = {name: int(value) for name, value in sizes.items()}
        return self.get(key, lambda: make(own), tuple(sorted(own.items())))

    def _suits(self, key: object, found: Any, sizes: Mapping[str, Any], suits: Callable[..., bool]) -> bool:
        if any(type(value) is not int for value in sizes.values()):
            return True  # what traces leaves some open
        (answer,) = self.get((key, "suits"), lambda: (suits(found, sizes),), tuple(sorted(sizes.items())))
        return bool(answer)
