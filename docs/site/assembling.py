"""Writes all pages as Sphinx reads them: those of ``docs/`` with other links, those that are generated, the margin."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from docs.site import commandline, functions, gallery, lessons, operators, performance
from docs.site.pages import ROOT, contents, handwritten, moved

NAVIGATION: dict[str, dict[str, str]] = {
    "Begin": {"Tutorial": "tutorial.md", "Lessons": "examples/index.md", "Programs": "examples/programs.md"},
    "How to": {
        "Operators in PyTorch": "howto/pytorch.md",
        "GPU kernels without a GPU": "howto/gpu-without-a-gpu.md",
        "Tune on the command line": "howto/tuning.md",
        "Teach with it": "howto/teaching.md",
        "Colours in an editor": "howto/editors.md",
        "Bind arguments": "bound.md",
        "Gradients": "gradients.md",
        "PyTorch in full": "pytorch.md",
        "Networks": "networks.md",
        "Schedules by hand": "schedules.md",
        "Plans as text": "plans.md",
        "Pictures": "pictures.md",
        "Kernels to take away": "export.md",
        "Other processors": "processors.md",
        "OpenCL": "opencl.md",
        "AMD's GPUs": "hip.md",
        "Look inside": "debugging.md",
    },
    "Reference": {
        "The language": "language.md",
        "Every construct": "constructs.md",
        "The library": operators.PLACE,
        "Mapping options": "options.md",
        "The command line": commandline.PLACE,
        "tcomp": "reference/tcomp.md",
        "tcomp.schedules": "reference/schedules.md",
        "Choices": "reference/choices.md",
        "Pictures as values": "reference/pictures.md",
        "tcomp.torch": "reference/torch.md",
        "tcomp.networks": "reference/networks.md",
        "Numerics": "numerics.md",
        "Tuning in full": "tuning.md",
    },
    "Seen and measured": {"Gallery": gallery.PLACE, "Performance": "performance/index.md"},
    "Inside": {
        "From text to kernel": "architecture.md",
        "Memory on a GPU": "promotion.md",
        "Correctness": "correctness.md",
        "Random programs": "fuzzing.md",
        "Fitted numbers": "fitted.md",
        "Decisions": "decisions/index.md",
        "Contributing": "contributing.md",
        "Where the work stands": "ROADMAP.md",
    },
}
"""The pages in the margin."""


def assemble(source: Path) -> None:
    """Write all pages as Sphinx reads them into a folder, which is emptied before."""
    shutil.rmtree(source, ignore_errors=True)
    results = ROOT / "benchmarks" / "results"
    head, sections = performance.sections(results)
    anchors = performance.anchors(sections)
    for place, path in handwritten().items():
        file = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8")
        _write(source / place, moved(text, file, place, anchors) if path.suffix == ".md" else text)
    for file in results.glob("*.json"):
        _write(source / "performance" / file.name, file.read_text(encoding="utf-8"))
    for place, text in _generated(source, head, sections):
        file = "benchmarks/RESULTS.md" if place.startswith("performance/") else f"docs/{place}"
        _write(source / place, moved(text, file, place, anchors))
    for _ in performance.draw(sections, source):
        pass
    _add_navigation(source, [section.place for section in sections])


def _generated(source: Path, head: str, sections: list[performance.Section]) -> Iterator[tuple[str, str]]:
    yield from functions.pages()
    yield commandline.PLACE, commandline.page()
    yield operators.PLACE, operators.page()
    yield gallery.PLACE, gallery.page(source / "pictures")
    yield from lessons.pages(ROOT / "examples")
    yield from performance.pages(ROOT / "benchmarks" / "results", head, sections)


def _add_navigation(source: Path, measured: list[str]) -> None:
    parts = [contents(places, caption) for caption, places in NAVIGATION.items()]
    _append(source / "index.md", "\n".join(parts))
    children = {
        "examples/index.md": sorted(p.name for p in (source / "examples").glob("[0-9]*.md")),
        "decisions/index.md": sorted(p.name for p in (source / "decisions").glob("*.md") if p.stem != "index"),
        "performance/index.md": [*dict.fromkeys(p.partition("/")[2] for p in measured), "measuring.md", "history.md"],
    }
    for place, names in children.items():
        lines = ["```{toctree}", ":hidden:", "", *(name.removesuffix(".md") for name in names), "```", ""]
        _append(source / place, "\n".join(lines))


def _append(path: Path, text: str) -> None:
    path.write_text(f"{path.read_text(encoding='utf-8').rstrip()}\n\n{text}", encoding="utf-8")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
