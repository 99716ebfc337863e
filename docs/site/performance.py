"""Pages of what was measured, made from the JSON in ``benchmarks/results``: tables, and a bar for each row.

A page has the sections of the page of results that are about the same thing on different machines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import results_page
from benchmarks.pictures import draw_ratios
from benchmarks.ratios import gpu_ratios

_JSON = re.compile(r"\(results/([\w.-]+\.json)\)")


@dataclass(slots=True)
class Section:
    """A section of the page of results: its title, its text, and the bars of each file that it is made from."""

    title: str
    text: str
    bars: dict[str, list[tuple[str, float]]] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """The page of the site that has it: the title as far as it says what was measured."""
        return f"performance/{_slug(self.title.partition(', ')[0])}.md"


def sections(folder: Path) -> tuple[str, list[Section]]:
    """What stands above all sections, and the sections, for the folder with the JSON."""
    head, *parts = re.split(r"^## ", results_page.page(folder), flags=re.MULTILINE)
    found = []
    for part in parts:
        title, _, text = part.partition("\n")
        made = Section(title, text.strip())
        for file in dict.fromkeys(_JSON.findall(text)):
            bars = ratios(json.loads((folder / file).read_text(encoding="utf-8")))
            if bars:
                made.bars[file] = bars
        found.append(made)
    return head, found


def anchors(found: list[Section]) -> dict[str, str]:
    """The page of each section, by the anchor that it has on the page of results."""
    return {_slug(section.title): section.place for section in found}


def pages(folder: Path, head: str, found: list[Section]) -> Iterator[tuple[str, str]]:
    """Place and text of each page, in Markdown with links as they are on the page of results."""
    by_place: dict[str, list[Section]] = {}
    for section in found:
        by_place.setdefault(section.place, []).append(section)
    rows = [f"- [{_title(sections)}](site:{place})" for place, sections in by_place.items()]
    words = head.replace("# Measured", "# Performance", 1)
    yield "performance/index.md", words + "\n".join(["\n## Pages\n", *rows, ""])
    for place, members in by_place.items():
        parts = [f"# {_title(members)}\n"] if len(members) > 1 else []
        for section in members:
            parts.append(f"{'##' if len(members) > 1 else '#'} {section.title}\n")
            for file in section.bars:
                what = "Above 1, tcomp is faster than the fastest of the others."
                parts.append(f"![A bar for each row. {what}](site:performance/{_picture(file)})\n")
            # A section that has a page to itself is one level higher there, and so is what it consists of.
            text = section.text if len(members) > 1 else re.sub(r"^###", "##", section.text, flags=re.MULTILINE)
            parts.append(text + "\n")
        yield place, "\n".join(parts)


def draw(found: list[Section], site: Path) -> Iterator[str]:
    """Draw the bars of all sections into the folder of the site; their places."""
    for section in found:
        for file, bars in section.bars.items():
            place = f"performance/{_picture(file)}"
            draw_ratios(bars, site / place)
            yield place


def ratios(found: Mapping[str, Any]) -> list[tuple[str, float]]:
    """How many times as fast as the fastest peer tcomp is in each row of a file of results; empty where none is."""
    match found.get("benchmark", "cpu"):
        case "cpu":
            return [(r["key"], r["ratio"]) for r in found["rows"] if r["ratio"] is not None]
        case "gpu":
            return [(case.name, case.ratio) for case in gpu_ratios(found)]
        case "gradients" | "attention":
            return [
                (name, min(t for peer, t in times.items() if peer != "tcomp") / times["tcomp"])
                for name, times in found["rows"].items()
            ]
        case "recurrences":
            return [
                (name, min(t for peer, t in times.items() if peer != "tcomp") / times["tcomp"])
                for name, times in found["seconds"].items()
            ]
        case _:
            return []


def _title(members: list[Section]) -> str:
    return members[0].title.partition(", ")[0]


def _picture(file: str) -> str:
    return f"{Path(file).stem}.svg"


def _slug(title: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
