"""Measured tables inside docs/numerics.md, each between two marks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "numerics.md"


def write_table(mark: str, lines: Sequence[str], page: Path = PAGE) -> None:
    """Put a table between the marks ``<!-- mark: begin -->`` and ``<!-- mark: end -->`` of the page."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    before, found, rest = page.read_text(encoding="utf-8").partition(begin)
    if not found or end not in rest:
        raise ValueError(f"{page} has no marks for {mark}")
    page.write_text("\n".join([before + begin, *lines, end]) + rest.partition(end)[2], encoding="utf-8")
