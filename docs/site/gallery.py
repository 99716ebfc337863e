"""The gallery: every picture in ``docs/pictures``, with what makes it."""

from __future__ import annotations

from pathlib import Path

from benchmarks.gallery import CAPTIONS, PROGRAMS, SCHEDULES, Caption

PLACE = "gallery.md"

_HEAD = """# Gallery

Every picture here is drawn by tcomp, from the programs at the end of the page; [pictures.md](site:pictures.md) says
what there is and what it means. `python -m benchmarks.pictures` draws all of them anew.
"""


def page(folder: Path) -> str:
    """The text of the page, for the folder that has the pictures."""
    parts = [_HEAD]
    for name, caption in CAPTIONS.items():
        if (folder / name).exists():
            parts.append(_figure(name, caption))
    parts.append("## The programs\n")
    parts.append(f"```python\n{SCHEDULES.strip()}\n```\n")
    parts += [f"```tc\n{text.strip()}\n```\n" for text in PROGRAMS]
    return "\n".join(parts)


def _figure(name: str, caption: Caption) -> str:
    made = f"\n```python\n{caption.code}\n```\n" if caption.code else ""
    return f"## {caption.title}\n\n{caption.words}\n\n![{caption.title}](site:pictures/{name})\n{made}"
