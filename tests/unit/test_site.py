"""The documentation site: links between files become links between pages, and everything public has its place."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import tcomp
from benchmarks.gallery import CAPTIONS
from docs.site import checking, commandline, functions, lessons, performance
from docs.site.assembling import NAVIGATION
from docs.site.pages import ROOT, handwritten, moved, place_of
from tcomp.cli import build_parser

RESULTS = ROOT / "benchmarks" / "results"


def test_links_are_written_anew_for_the_site() -> None:
    def link(text: str, file: str = "docs/decisions/gpu.md", place: str = "decisions/gpu.md") -> str:
        return moved(text, file, place, {"cpu-a-run": "performance/cpu-a.md"})

    assert link("[a](../promotion.md#banks)") == "[a](../promotion.md#banks)"
    assert link("[a](README.md)") == "[a](index.md)"
    assert link("[a](../../benchmarks/RESULTS.md)") == "[a](../performance/index.md)"
    assert link("[a](../../benchmarks/RESULTS.md#cpu-a-run)") == "[a](../performance/cpu-a.md#cpu-a-run)"
    assert link("[a](../../examples/14_schedules.py)") == "[a](../examples/14_schedules.md)"
    assert link("[`a`](../../tcomp/driver.py)") == "`a`"
    assert link("[a](https://example.org/x.md) [b](#c)") == "[a](https://example.org/x.md) [b](#c)"
    assert link("```\n[a](README.md)\n```\n[a](README.md)") == "```\n[a](README.md)\n```\n[a](index.md)"
    assert link("![p](../pictures/rooms.svg)") == "![p](../pictures/rooms.svg)"


def test_every_page_is_in_the_navigation() -> None:
    listed = {place for part in NAVIGATION.values() for place in part.values()}
    written = {place for place in handwritten() if place.endswith(".md")}
    below = ("decisions/", "performance/", "examples/")
    assert {p for p in written - listed if not p.startswith(below)} == {"index.md"}
    assert place_of("docs/README.md") == "index.md"


def test_everything_public_has_its_place() -> None:
    texts = dict(functions.pages())
    for name in tcomp.__all__:
        if name not in ("__version__", "networks"):
            assert f"tcomp.{name}\n" in texts["reference/tcomp.md"]
    commands = commandline.page()
    for action in build_parser()._subparsers._group_actions:  # type: ignore[union-attr]
        for name in action.choices:  # type: ignore[union-attr]
            assert f"\n## {name}\n" in commands
    assert "\n### tuned import\n" in commands and "| `--sizes` `M=128,N=64` |" in commands


def test_what_was_measured_is_shown() -> None:
    head, sections = performance.sections(RESULTS)
    pages = dict(performance.pages(RESULTS, head, sections))
    assert "performance/cpu-the-18-workloads.md" in pages
    assert "![A bar for each row." in pages["performance/gpu-27-fp32-kernels.md"]
    assert all(place in pages for place in performance.anchors(sections).values())
    for page in pages.values():
        levels = [len(line) - len(line.lstrip("#")) for line in page.splitlines() if line.startswith("#")]
        assert levels[0] == 1 and all(below <= level + 1 for level, below in pairwise(levels))
    assert performance.ratios({"benchmark": "attention", "rows": {"a": {"tcomp": 2.0, "torch": 3.0}}}) == [("a", 1.5)]


def test_lessons_and_pictures_are_there() -> None:
    pages = dict(lessons.pages(ROOT / "examples"))
    assert pages["examples/14_schedules.md"].startswith("# Schedules by hand\n")
    assert {path.name for path in (ROOT / "docs" / "pictures").iterdir()} == set(CAPTIONS)


def test_faults_of_a_site_are_found(tmp_path: Path) -> None:
    icon = '<link rel="icon" href="i.svg">'
    (tmp_path / "i.svg").write_text("")
    links = '<a href="b.html#y">b</a><a href="#x">x</a><a href="c.html">c</a>'
    (tmp_path / "a.html").write_text(f'{icon}<h1 id="x"></h1>{links}')
    (tmp_path / "b.html").write_text('<script src="https://example.org/x.js"></script><a href="a.html#x">a</a>')
    (tmp_path / "s.css").write_text("@font-face { src: url(https://example.org/x.woff) }")
    assert checking.faults(tmp_path) == [
        "a.html: the link b.html#y names a place that is not there",
        "a.html: the link c.html leads nowhere",
        "b.html: fetches https://example.org/x.js",
        "b.html: names no icon, so that browsers ask for one that is not there",
        "s.css: fetches from elsewhere",
    ]
