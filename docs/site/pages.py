"""Which file of the repository is which page of the site, and links between pages.

The pages in ``docs/`` link to each other and to other files of the repository.  On the site every file has a place of
its own; a link is looked up in the repository and written anew for the site.  What the site does not show, such as a
file of the code, stays as text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]

_RENAMED = {
    "README.md": "index.md",
    "docs/README.md": "index.md",
    "docs/decisions/README.md": "decisions/index.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "performance/measuring.md",
    "benchmarks/RESULTS.md": "performance/index.md",
    "benchmarks/results/history-2026-11.md": "performance/history.md",
    "examples": "examples/index.md",
    "tcomp/library": "reference/library.md",
}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_FENCE = re.compile(r"^(```|~~~)", re.MULTILINE)

SITE = "site:"
"""What links begin with that name a place on the site, on pages that are generated."""

Anchors = Mapping[str, str]
"""For each anchor of the page of results, the page of the site that has it."""


def handwritten(root: Path = ROOT) -> dict[str, Path]:
    """The pages that people write, and pictures: the path on the site of each file."""
    files = [*(root / "docs").rglob("*.md"), *(root / "docs" / "pictures").iterdir()]
    files += [root / name for name in _RENAMED if name.startswith(("CONTRIBUTING", "benchmarks/README"))]
    files += [root / "benchmarks" / "results" / "history-2026-11.md"]
    return {place: path for path in sorted(files) if (place := place_of(path.relative_to(root).as_posix()))}


def place_of(file: str) -> str | None:
    """The path on the site of a file or folder of the repository; None if the site does not show it."""
    path = PurePosixPath(file)
    if file in _RENAMED:
        return _RENAMED[file]
    if path.parts[0] == "docs" and path.suffix in (".md", ".svg", ".png"):
        return "/".join(path.parts[1:])
    if path.parts[0] == "examples":
        return f"examples/{path.stem}.md" if path.suffix == ".py" else "examples/programs.md"
    if path.parts[:2] == ("benchmarks", "results") and path.suffix == ".json":
        return f"performance/{path.name}"
    return None


def moved(text: str, file: str, place: str, anchors: Anchors) -> str:
    """The text of a page with its links as they must be on the site.

    Args:
        text: Markdown.
        file: where it stands in the repository.
        place: where it stands on the site.
        anchors: the pages of the sections of the page of results.
    """
    parts = _FENCE.split(text)
    # Fences split the text into what is outside and inside of blocks in turn: outside, mark, inside, mark, outside ...
    for number in range(0, len(parts), 4):
        parts[number] = _LINK.sub(_link(file, place, anchors), parts[number])
    return "".join(parts)


def _link(file: str, place: str, anchors: Anchors) -> Callable[[re.Match[str]], str]:
    def rewritten(found: re.Match[str]) -> str:
        picture, words, link = found.groups()
        if link.startswith(SITE):
            return f"{picture}[{words}]({relative(link.removeprefix(SITE), place)})"
        target, mark, anchor = link.partition("#")
        if "://" in target or not target:
            return found[0]
        wanted = os.path.normpath(PurePosixPath(file).parent / target)
        shown = place_of(wanted)
        if wanted == "benchmarks/RESULTS.md" and anchor:
            shown = anchors[anchor]
        if shown is None:
            return words
        return f"{picture}[{words}]({relative(shown, place)}{mark}{anchor})"

    return rewritten


def relative(target: str, place: str) -> str:
    """The link from one place on the site to another."""
    return os.path.relpath(target, PurePosixPath(place).parent)


def contents(places: Mapping[str, str], caption: str) -> str:
    """A part of the site's navigation: pages by the words that stand for them."""
    lines = [f"{words} <{place.removesuffix('.md')}>" for words, place in places.items()]
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", "", *lines, "```", ""])
