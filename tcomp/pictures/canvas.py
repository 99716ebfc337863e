"""matplotlib as far as pictures need it, and the picture that comes of it."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tcomp.errors import MissingPackageError, TcompError
from tcomp.storage.wholefiles import write_whole

INK, SOFT, LINE, PAPER = "#222222", "#667788", "#c5d0d6", "#ffffff"
BLUE, RED, GREEN, GOLD = "#2a7f9e", "#c8553d", "#4f9d69", "#c99a2e"
COLOURS = (BLUE, GOLD, GREEN, RED, "#7d6ba8", "#5aa9c4", "#a8784f", "#8aa4b0")

_SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tcomp",
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.edgecolor": LINE,
    "axes.labelcolor": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
}


class MissingMatplotlibError(MissingPackageError):
    """There is no matplotlib."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture: SVG text, which a notebook shows, and what makes the same as PNG, and as GIF if it moves."""

    svg: str
    png: Callable[[], bytes]
    gif: Callable[[], bytes] | None = None

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write it as what its name ends in: .svg, .png, or .gif for one that moves.  Raises TcompError."""
        path = Path(path)
        match path.suffix.lower():
            case ".svg":
                content = self.svg.encode()
            case ".png":
                content = self.png()
            case ".gif" if self.gif is not None:
                content = self.gif()
            case other:
                kinds = "svg, .png" if self.gif is None else "svg, .png, .gif"
                raise TcompError(f"a picture's name ends in .{kinds}, not in {other or 'nothing'}")
        try:
            write_whole(path, content)
        except OSError as error:
            raise TcompError(f"cannot write {path}: {error.strerror or error}") from None
        return path


def figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Any, list[Any]]:
    """A figure of so many inches, and its axes, row by row.  Raises MissingPackageError without matplotlib."""
    try:
        matplotlib = importlib.import_module("matplotlib")
        figures = importlib.import_module("matplotlib.figure")
    except ImportError:
        raise MissingMatplotlibError("pictures are drawn by matplotlib: pip install 'tcomp[pictures]'") from None
    with matplotlib.rc_context(_SETTINGS):
        made = figures.Figure(figsize=(width, height), facecolor=PAPER, layout="constrained")
        axes = made.subplots(rows, columns, squeeze=False)
        return made, [a for row in axes for a in row]


def finished(made: Any) -> Picture:
    """The picture of a figure, the same to the byte for one version of matplotlib."""
    matplotlib = importlib.import_module("matplotlib")

    def content(kind: str, metadata: dict[str, None] | None) -> bytes:
        buffer = io.BytesIO()
        with matplotlib.rc_context(_SETTINGS):
            made.savefig(buffer, format=kind, metadata=metadata, facecolor=PAPER, dpi=130)
        return buffer.getvalue()

    return Picture(content("svg", {"Date": None}).decode(), lambda: content("png", None))


def bare(axes: Any) -> None:
    """Axes without a frame and without numbers."""
    axes.axis("off")


def grid(axes: Any, title: str, across: str, down: str) -> None:
    """Axes whose second dimension goes down, as in a matrix."""
    axes.set_title(title, fontsize=8, color=INK, loc="left")
    axes.set_xlabel(across, fontsize=8)
    axes.set_ylabel(down, fontsize=8)
    axes.invert_yaxis()
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True)
    axes.set_aspect("equal", adjustable="box")
    for spine in axes.spines.values():
        spine.set_visible(False)


def shade(share: float) -> tuple[float, float, float]:
    """A colour between light and dark blue."""
    light, dark = (0.86, 0.93, 0.96), (0.05, 0.23, 0.33)
    return (
        light[0] + share * (dark[0] - light[0]),
        light[1] + share * (dark[1] - light[1]),
        light[2] + share * (dark[2] - light[2]),
    )
