"""Values of options as users write them."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable

_NONE = "()"
"""A list without values."""


def as_text(value: object) -> str:
    """A value as on the command line."""
    if isinstance(value, tuple):
        return "x".join(map(str, value)) or _NONE
    if value is None:
        return "model"
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_source(value: object) -> str:
    """A value as in Python."""
    return 'float("inf")' if value == math.inf else repr(value)


def hint_for(name: str, known: Iterable[str], otherwise: str) -> str:
    """The known name that was probably meant, or, after ``otherwise``, all of them."""
    names = list(known)
    near = [k for k in names if k.startswith(f"{name}_")] or difflib.get_close_matches(name, names, n=1)
    return f"did you mean `{near[0]}`?" if near else f"{otherwise} {', '.join(names)}"
