"""The lessons of ``examples/``, each as a page, and the programs beside them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

FOLDERS = {
    "recurrences": "What runs step by step",
    "polybench": "PolyBench 4.2",
}


def pages(folder: Path) -> Iterator[tuple[str, str]]:
    """Place and text of each page, for the folder of the lessons."""
    rows = []
    for path in sorted(folder.glob("[0-9]*.py")):
        title, text = _lesson(path)
        rows.append(f"| [{path.stem}]({path.stem}.md) | {title} |")
        yield f"examples/{path.stem}.md", text
    yield "examples/programs.md", _programs(folder)
    head = "# Lessons\n\nEach is a program that checks its own results: `python examples/01_matmul.py`.\n"
    head += "What they draw is saved by `examples/pictures.py`.\n"
    table = ["| lesson | about |", "|---|---|", *rows, ""]
    more = "[Programs](programs.md) for steps, stencils and all of PolyBench stand beside them."
    yield "examples/index.md", "\n".join([head, *table, more, ""])


def _lesson(path: Path) -> tuple[str, str]:
    """The title of a lesson, and its page: what its docstring says, and its text."""
    text = path.read_text(encoding="utf-8")
    first, _, rest = (ast.get_docstring(ast.parse(text)) or path.stem).partition("\n")
    title = first.partition(": ")[2].rstrip(".") or first
    title = f"{title[:1].upper()}{title[1:]}"
    words = rest.strip().replace("``", "`")
    return title, f"# {title}\n\n{words}\n\n`python examples/{path.name}`\n\n```python\n{text.rstrip()}\n```\n"


def _programs(folder: Path) -> str:
    lines = ["# Programs", "", "Texts of whole programs, which the tests compare with NumPy and PyTorch.", ""]
    for name, title in FOLDERS.items():
        lines += [f"## {title}", ""]
        for path in sorted((folder / name).rglob("*.tc")):
            heading = path.relative_to(folder / name).with_suffix("").as_posix()
            lines += [f"### {heading}", "", "```tc", path.read_text(encoding="utf-8").rstrip(), "```", ""]
    return "\n".join(lines)
