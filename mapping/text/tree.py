"""The text of a schedule tree, as isl prints it, read.

isl's reader crashes or never ends on text that is not as isl writes it.  So the form is checked here, one entry a line
and under each what belongs there, and isl reads what stands in quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import islpy as isl

from tcomp.errors import PlanError

_LINE = re.compile(r"( *)(- )?([a-z]+):(?: +(.*\S))? *")
_STRING, _NOTHING = re.compile(r'"[^"\\\x00-\x1f]*"'), re.compile("")
_VALUES = {
    "domain": _STRING,
    "schedule": _STRING,
    "permutable": re.compile("[01]"),
    "coincident": re.compile(r"\[ *[01](?: *, *[01])* *\]"),
    "sequence": _NOTHING,
    "filter": _STRING,
    "mark": _STRING,
    "child": re.compile('(?:"leaf")?'),
}
_ENTRIES = {
    "domain": {"child"},
    "schedule": {"permutable", "coincident", "child"},
    "sequence": set[str](),
    "filter": {"child"},
    "mark": {"child"},
}
"""The kinds of nodes, each by the name of the entry that tells it, and what other entries they have."""

_DEEPEST = 300
"""Levels of a tree; those that passes make have some thirty."""


@dataclass(frozen=True, slots=True)
class _Line:
    """``key: value``, the key at a column; an ``item`` begins a child of a sequence."""

    number: int
    column: int
    item: bool
    key: str
    value: str


def read_tree(text: str) -> isl.Schedule:
    """A schedule tree from its text.  Raises PlanError with the line, or isl.Error for what stands in quotes."""
    lines = list(_lines(text))
    if not lines or (lines[0].key, lines[0].item) != ("domain", False):
        raise PlanError("tree must begin with its domain")
    node, end = _node(lines, 0, 0)
    if end < len(lines):
        raise _wrong(lines[end], "it belongs to no node above it")
    return isl.Schedule.read_from_str(isl.DEFAULT_CONTEXT, "\n".join(node) + "\n")


def _lines(text: str) -> Iterator[_Line]:
    for number, line in enumerate(text.splitlines(), 1):
        found = _LINE.fullmatch(line)
        if found is not None and found[3] in _VALUES and _VALUES[found[3]].fullmatch(found[4] or ""):
            yield _Line(number, len(found[1]) + len(found[2] or ""), bool(found[2]), found[3], found[4] or "")
        elif line.strip():
            raise PlanError(f"line {number} of tree: {line.strip()!r} is no entry of a schedule tree")


def _node(lines: list[_Line], start: int, depth: int) -> tuple[list[str], int]:
    """The node whose entries begin at a line, as isl writes it at the left, and the number of the line behind it."""
    first, position = lines[start], start
    if depth > _DEEPEST:
        raise _wrong(first, "it is nested too deeply")
    entries: dict[str, list[str]] = {}
    while position < len(lines) and lines[position].column == first.column:
        line = lines[position]
        if line.item and entries:
            break
        if line.key in entries:
            raise _wrong(line, f"there is {line.key} already")
        below, position = _below(lines, position, depth)
        entries[line.key] = [f"{line.key}: {line.value}".rstrip(), *("  " + text for text in below)]
    kinds = [key for key in entries if key in _ENTRIES]
    if len(kinds) != 1 or entries.keys() - _ENTRIES[kinds[0]] - set(kinds):
        raise _wrong(first, f"a node has not {', '.join(entries)}")
    if kinds[0] == "mark":
        # isl prints a mark without a child where nothing is below it, but reads only marks with one.
        entries.setdefault("child", ['child: "leaf"'])
    return [text for entry in (entries.pop(kinds[0]), *entries.values()) for text in entry], position


def _below(lines: list[_Line], position: int, depth: int) -> tuple[list[str], int]:
    """What belongs to the entry of a line and stands below it, and the number of the line behind it."""
    entry, after = lines[position], position + 1
    if entry.value:
        return [], after
    items = entry.key == "sequence"
    found: list[str] = []
    while after < len(lines) and lines[after].column > entry.column and lines[after].item == items:
        if found and (not items or lines[after].column != lines[position + 1].column):
            break
        if items and lines[after].key != "filter":
            raise _wrong(lines[after], "a child of a sequence begins with its filter")
        node, after = _node(lines, after, depth + 1)
        found += ["- " + node[0], *("  " + text for text in node[1:])] if items else node
    if not found:
        raise _wrong(entry, f"nothing stands below {entry.key}")
    return found, after


def _wrong(line: _Line, what: str) -> PlanError:
    return PlanError(f"line {line.number} of tree, {line.key}: {what}")
