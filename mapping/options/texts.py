"""Values of options as users write them."""

from __future__ import annotations

import math


def as_text(value: object) -> str:
    """A value as on the command line."""
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_source(value: object) -> str:
    """A value as in Python."""
    return 'float("inf")' if value == math.inf else repr(value)
