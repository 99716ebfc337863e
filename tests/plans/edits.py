"""Random edits of the text of a plan, such as a person might make: most of them make it wrong."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

_NUMBER = re.compile(r"(?<![\w.])\d+")
_INDEX = re.compile(r"\bi\d+\b")
_NAME = re.compile(
    r"\b(?:S\d+[if]?|group\d+|cluster\d+|rest\d+|point\d+\w*|phase\d+_\d+|lanes\d+_\d+|steps\d+_\d+|reduce\d+)\b"
)


def edited(text: str, choose: random.Random) -> str:
    """The text with one thing, or now and then several, changed."""
    for _ in range(choose.choice((1, 1, 1, 2, 3))):
        text = choose.choice(_EDITS)(text, choose)
    return text


def _other_number(text: str, choose: random.Random) -> str:
    return _replaced(
        text,
        _NUMBER,
        choose,
        lambda found: str(max(0, choose.choice((found - 1, found + 1, found * 2, found // 2, 0)))),
    )


def _same_number_everywhere(text: str, choose: random.Random) -> str:
    """A tile size, say, in all places at once."""
    found = choose.choice(_NUMBER.findall(text))
    other = str(choose.choice((int(found) + 1, 2 * int(found), max(1, int(found) // 2))))
    return re.sub(rf"(?<![\w.]){found}(?!\w)", other, text)


def _other_index(text: str, choose: random.Random) -> str:
    return _swapped(text, _INDEX, choose)


def _other_name(text: str, choose: random.Random) -> str:
    return _swapped(text, _NAME, choose)


def _swapped(text: str, pattern: re.Pattern[str], choose: random.Random) -> str:
    """One occurrence of a pattern replaced by another one's text."""
    found = list(pattern.finditer(text))
    if not found:
        return text
    place, other = choose.choice(found), choose.choice(found)
    return text[: place.start()] + other.group() + text[place.end() :]


def _replaced(text: str, pattern: re.Pattern[str], choose: random.Random, new: Callable[[int], str]) -> str:
    found = list(pattern.finditer(text))
    place = choose.choice(found)
    return text[: place.start()] + new(int(place.group())) + text[place.end() :]


def _line_gone(text: str, choose: random.Random) -> str:
    lines = text.splitlines()
    del lines[choose.randrange(len(lines))]
    return "\n".join(lines) + "\n"


def _table_gone(text: str, choose: random.Random) -> str:
    parts = text.split("\n\n")
    if len(parts) > 1:
        del parts[choose.randrange(1, len(parts))]
    return "\n\n".join(parts)


def _tables_swapped(text: str, choose: random.Random) -> str:
    parts = text.split("\n\n")
    if len(parts) > 2:
        first, second = choose.sample(range(1, len(parts)), 2)
        parts[first], parts[second] = parts[second], parts[first]
    return "\n\n".join(parts)


def _rows_of_a_band_swapped(text: str, choose: random.Random) -> str:
    """Two members of a band interchanged."""
    bands = [m for m in re.finditer(r'schedule: "\[(.*)\]"', text) if "}, {" in m.group(1)]
    if not bands:
        return text
    band = choose.choice(bands)
    rows = re.split(r"(?<=\}), (?=\{)", band.group(1))
    first, second = choose.sample(range(len(rows)), 2)
    rows[first], rows[second] = rows[second], rows[first]
    return text[: band.start(1)] + ", ".join(rows) + text[band.end(1) :]


def _children_swapped(text: str, choose: random.Random) -> str:
    """Two neighbours of a sequence interchanged."""
    lines = text.splitlines()
    starts = [n for n, line in enumerate(lines) if line.lstrip().startswith("- filter:")]
    if len(starts) < 2:
        return text
    depth = choose.choice([_depth(lines[n]) for n in starts])
    level = [n for n in starts if _depth(lines[n]) == depth]
    first = choose.randrange(len(level))
    if first + 1 >= len(level):
        return text
    a, b = level[first], level[first + 1]
    end = next((n for n in range(b + 1, len(lines)) if _depth(lines[n]) <= depth), len(lines))
    return "\n".join(lines[:a] + lines[b:end] + lines[a:b] + lines[end:]) + "\n"


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _word(text: str, choose: random.Random) -> str:
    """One word of the vocabulary replaced by another."""
    words = (
        "block",
        "warp",
        "shared",
        "private",
        "register",
        "tile",
        "global",
        "serial",
        "pointwise",
        "reduce",
        "contract",
    )
    found = [(w, m.start()) for w in words for m in re.finditer(rf'"{w}"', text)]
    if not found:
        return text
    word, start = choose.choice(found)
    return text[:start] + f'"{choose.choice(words)}"' + text[start + len(word) + 2 :]


def _floor_and_mod(text: str, choose: random.Random) -> str:
    found = list(re.finditer(r"floor\(\((\w+)\)/(\d+)\)|\(\((\w+)\) mod (\d+)\)", text))
    if not found:
        return text
    place = choose.choice(found)
    if place.group(1):
        new = f"(({place.group(1)}) mod {place.group(2)})"
    else:
        new = f"(floor(({place.group(3)})/{place.group(4)}))"
    return text[: place.start()] + new + text[place.end() :]


_EDITS = (
    _other_number, _other_number, _other_number, _same_number_everywhere, _same_number_everywhere, _other_index,
    _other_name, _line_gone, _table_gone, _tables_swapped, _rows_of_a_band_swapped, _rows_of_a_band_swapped,
    _children_swapped, _word, _floor_and_mod,
)  # fmt: skip
