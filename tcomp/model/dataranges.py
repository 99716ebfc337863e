"""What must hold of ranges whose ends data give, and how it is told where it does not.

Three things are checked of each: where it ``starts``, where it ``ends``, and that it never ``turns`` back.
"""

from __future__ import annotations

from collections.abc import Mapping

from tcomp.errors import SourceText, Span
from tcomp.grammar.tree.function import Within


def range_ends(low: int, high: int) -> dict[str, tuple[int, int]]:
    """What each of the ends of a range inside ``low:high`` may be, and its length: the least, and how many values."""
    return {"starts": (low, high - low + 1), "ends": (low, high - low + 1), "turns": (0, high - low + 1)}


def range_part(within: Within, kind: str, source: SourceText) -> tuple[str, Span]:
    """The text of what is checked of a range, and where it stands."""
    span = {"starts": within.lower.span, "ends": within.upper.span}.get(kind)
    span = within.lower.span.to(within.upper.span) if span is None else span
    return source.text[span.start : span.end], span


def describe_range(kind: str, text: str, value: int, box: tuple[int, int], place: Mapping[str, int]) -> str:
    """What is wrong with a range: ``value`` is its end, or its length, ``place`` has the indices that it belongs to."""
    if text.endswith("="):  # how many instances of a statement name an element, of which there may be one
        element = f" at {', '.join(map(str, place.values()))}"
        many = f"`{text} ...` writes {value} values to the element{element if place else ''}"
        return f"{many}: data name it more than once; `where last` with an index says which counts"
    at = "".join(f"{', ' * bool(n)}{name} = {index}" for n, (name, index) in enumerate(place.items()))
    where = f" at {at}" if at else ""
    if ":" in text:  # the length of a range, up to which its entries are counted
        kind = "turns"
    if kind == "turns" and value < 0:
        return f"the range {text} ends {-value} before it starts{where}"
    if kind == "turns":
        return f"the range {text} has {value} values{where}, more than there are"
    return f"the range {kind} at {text}, which is {value}{where}, but must lie in {box[0]}..{box[1]}"
