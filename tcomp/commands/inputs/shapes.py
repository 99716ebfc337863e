"""Families of sizes as ``tcomp tune`` takes them: ``M=128..1024:pow2,N=256``."""

from __future__ import annotations

import argparse
import itertools
import re

_RANGE = re.compile(r"(?P<low>-?[0-9]{1,20})\.\.(?P<high>-?[0-9]{1,20}):(?P<step>pow2|[0-9]{1,20})")
_NUMBER = re.compile(r"-?[0-9]{1,20}")
_MOST = 10_000


def parse_shapes(text: str) -> list[dict[str, int]]:
    """Every combination of the values of each name, the last name varying fastest.

    A value is a number, several with ``/`` between them, ``LOW..HIGH:STEP``, or ``LOW..HIGH:pow2`` for doublings of
    LOW.  Raises ArgumentTypeError, which argparse turns into a usage error.
    """
    values: dict[str, list[int]] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (part.strip() for part in item.partition("="))
        parts = [_values(part.strip()) for part in value.split("/")]
        if not name or not all(parts):
            message = f"{item!r} is not NAME=INTEGER, as in M=128, nor NAME=128/300, NAME=128..1024:pow2 or :STEP"
            raise argparse.ArgumentTypeError(message)
        if name in values:
            raise argparse.ArgumentTypeError(f"{name} is given twice; several values of it are NAME=128/300")
        values[name] = list(dict.fromkeys(number for part in parts for number in part))
    combinations = itertools.islice(itertools.product(*values.values()), _MOST + 1)
    shapes = [dict(zip(values, chosen, strict=True)) for chosen in combinations]
    if len(shapes) > _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} stands for more than {_MOST} shapes")
    return shapes


def _values(text: str) -> list[int]:
    """The numbers that a value stands for; none if it is wrong."""
    if _NUMBER.fullmatch(text):
        return [int(text)]
    found = _RANGE.fullmatch(text)
    if found is None:
        return []
    low, high, step = int(found["low"]), int(found["high"]), found["step"]
    if step == "pow2":
        doublings = itertools.takewhile(lambda v: v <= high, (low << k for k in itertools.count()))
        return list(doublings) if low > 0 else []
    return list(itertools.islice(range(low, high + 1, int(step)), _MOST + 1)) if int(step) else []
