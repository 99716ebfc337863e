"""Times and rates as people read them."""

from __future__ import annotations

import math


def readable_seconds(seconds: float) -> str:
    """A time with a unit; three digits."""
    if seconds == math.inf:
        return "no time"
    for unit, length in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= length:
            return f"{_three(seconds / length)} {unit}"
    return f"{_three(seconds * 1e9)} ns"


def readable_rate(value: float, unit: str) -> str:
    """A number with a metric prefix before its unit; three digits."""
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= scale:
            return f"{_three(value / scale)} {prefix}{unit}"
    return f"{_three(value)} {unit}".rstrip()


def _three(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"
