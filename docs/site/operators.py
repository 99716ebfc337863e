"""The page of the operators that come with tcomp, from their texts."""

from __future__ import annotations

from tcomp.shipped import texts

PLACE = "reference/library.md"

_HEAD = """Operators that come with tcomp, as program text. `tcomp run library:softmax --sizes N=64,D=128` runs one,
`tc.library.softmax(X)` calls it, and `use library:softmax` lets defs of a program call it."""


def page() -> str:
    """The text of the page: the files of the library."""
    lines = ["# The library", "", _HEAD, ""]
    for name, text in texts().items():
        lines += [f"## {name}", "", "```tc", text.rstrip("\n"), "```", ""]
    return "\n".join(lines)
