"""Pictures of iterations: in which tile each is, in which order they run, what they need; and the order as a film."""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from tcomp.driver import Compilation
from tcomp.errors import MissingPackageError, TcompError
from tcomp.mapping.plan.values import Plan
from tcomp.model.scop import ScopStatement
from tcomp.pictures.canvas import COLOURS, INK, LINE, PAPER, RED, Picture, figure, finished, grid, shade
from tcomp.pictures.points import Point, Shown, needs, shown, threads_of
from tcomp.pictures.steps import Steps
from tcomp.stepwise import StepwiseCompilation

_MOST_PANELS, _MOST_FRAMES = 4, 60
_CELL, _MARGIN, _TITLE = 14, 10, 22
_SECONDS = 8.0


def statements_of(plan: Plan) -> list[ScopStatement]:
    """What is drawn: statements that have loops, those that start or end reductions left out if there are others."""
    every = [s for s in plan.scop.statements if len(s.indices) > s.tile_rank]
    main = [s for s in every if s.kind in ("update", "assign")]
    return (main or every)[-_MOST_PANELS:]


def sides_of(statement: ScopStatement) -> tuple[int, int]:
    """The two indices that are drawn: the last two that name an element, where there are two; else the first two."""
    count = max(1, statement.coordinates - statement.tile_rank)
    own = len(statement.indices) - statement.tile_rank
    return (count - 2, count - 1) if count > 1 else (0, 1 if own > 1 else 0)


def _of_plan(plan: Plan) -> list[Shown]:
    panels = [shown(plan, s, sides_of(s)) for s in statements_of(plan)]
    # Boxes say something where there are several in one panel.
    return panels if any(len(p.boxes) > 1 for p in panels) else [replace(p, boxes=()) for p in panels]


def _drawn(compilation: Compilation) -> tuple[list[Shown], Callable[[Point], list[tuple[str, tuple[int, int]]]]]:
    """The panels, and what tells which instances one needs."""
    if isinstance(compilation, StepwiseCompilation):
        steps = Steps(compilation)
        return steps.panels(_MOST_PANELS), steps.needs
    plan, panels = compilation.plan, _of_plan(compilation.plan)
    names = [panel.statement for panel in panels]
    return panels, lambda of: needs(plan, of, plan.scop.by_name[of.statement], sides_of, names)


def _panels(compilation: Compilation) -> list[Shown]:
    return _drawn(compilation)[0]


def draw_domain(compilation: Compilation) -> Picture:
    """A panel for each statement: a square for an instance, a colour for a tile, numbers for the order of tiles, and
    arrows to one instance from those that it needs.

    Of a domain that is too large for squares the tiles are drawn, without arrows.
    """
    panels, needed = _drawn(compilation)
    made, axes = _figure(panels)
    for panel, place in zip(panels, axes, strict=False):
        if panel.boxes:
            _boxes(place, panel, [COLOURS[n % len(COLOURS)] for n in range(len(panel.boxes))], len(panel.boxes) <= 64)
            continue
        order = {tile: n for n, tile in enumerate(dict.fromkeys(p.tile for p in panel.points))}
        _squares(place, panel, [COLOURS[order[p.tile] % len(COLOURS)] for p in panel.points])
        for tile, number in order.items() if 1 < len(order) <= 64 else ():
            row, column = min(at for p, at in zip(panel.points, _columns(panel), strict=True) if p.tile == tile)
            box = {"boxstyle": "circle,pad=0.15", "facecolor": PAPER, "edgecolor": "none"}
            place.text(column, row, str(number), ha="center", va="center", fontsize=6.5, color=INK, bbox=box)
        _named(place, panel)
    places = {panel.statement: (panel, place) for panel, place in zip(panels, axes, strict=False)}
    for panel in panels:
        if panel.points and not any(p.boxes for p in panels):
            _arrows(made, places, _middle(panel), needed)
    if any(panel.boxes for panel in panels):
        made.suptitle("Colours and numbers are tiles, in the order\nin which they begin", fontsize=8)
        return finished(made)
    between = "\n" if len(panels) < 2 else " "
    what = "steps, or tiles of steps" if isinstance(compilation, StepwiseCompilation) else "tiles"
    made.suptitle(
        f"Colours and numbers are {what};{between}arrows lead to one iteration from what it needs", fontsize=8
    )
    return finished(made)


def draw_threads(compilation: Compilation) -> Picture:
    """The same with a colour for each thread of a block, and its number in the squares of the first tile.

    Raises TcompError for a plan that is dealt to no threads.
    """
    plan = compilation.plan
    panels = _of_plan(plan)
    if not plan.dealt:
        raise TcompError("threads of blocks are those of a GPU: draw a kernel for cuda:sm_90, say")
    made, axes = _figure(panels)
    for panel, place in zip(panels, axes, strict=False):
        threads = threads_of(plan, panel, sides_of(plan.scop.by_name[panel.statement]))
        _squares(place, panel, [COLOURS[(t + t // len(COLOURS)) % len(COLOURS)] for t in threads])
        for point, at, thread in zip(panel.points, _columns(panel), threads, strict=True):
            if point.tile == panel.points[0].tile:
                place.text(at[1], at[0], str(thread), ha="center", va="center", fontsize=4, color=PAPER)
        _named(place, panel)
    made.suptitle("Colours and numbers are threads of a block;\nnumbers stand in the first tile", fontsize=8)
    return finished(made)


def draw_order(compilation: Compilation) -> Picture:
    """The same with a shade for when each instance runs; as a film where it is shown, or saved as GIF."""
    panels = _panels(compilation)
    return Picture(_film_svg(panels), lambda: draw_dates(compilation).png(), lambda: _film_gif(panels))


def draw_dates(compilation: Compilation) -> Picture:
    """The same as one still picture."""
    panels = _panels(compilation)
    made, axes = _figure(panels)
    dates = _ranks(panels)
    for panel, place in zip(panels, axes, strict=False):
        if panel.boxes:
            last = max(1, len(panel.boxes) - 1)
            _boxes(place, panel, [shade(n / last) for n in range(len(panel.boxes))], False)
            continue
        _squares(place, panel, [shade(dates[p] / max(1, len(dates) - 1)) for p in panel.points])
        _named(place, panel)
    made.suptitle("Iterations: the darker, the later", fontsize=8, color=INK)
    return finished(made)


def _boxes(place: Any, panel: Shown, colours: Sequence[Any], numbered: bool) -> None:
    """The tiles of a panel as boxes, with their numbers."""
    patches = importlib.import_module("matplotlib.patches")
    flat = not panel.axes[1]
    for number, (box, colour) in enumerate(zip(panel.boxes, colours, strict=True)):
        (top, left), (bottom, right) = ((0, box.low[0]), (0, box.high[0])) if flat else (box.low, box.high)
        corner, size = (left - 0.5, top - 0.5), (right - left + 1, bottom - top + 1)
        place.add_patch(patches.Rectangle(corner, *size, facecolor=colour, edgecolor=PAPER, linewidth=0.6, alpha=0.85))
        if numbered and len(colours) > 1:
            middle = ((left + right) / 2, (top + bottom) / 2)
            place.text(*middle, str(number), ha="center", va="center", fontsize=5, color=PAPER)
    place.autoscale_view()
    _named(place, panel)
    if flat:
        place.set_aspect("auto")


def _named(place: Any, panel: Shown) -> None:
    """Title and axes of a panel; what has one index lies across."""
    flat = not panel.axes[1]
    across, down = (panel.axes[0], "") if flat else (panel.axes[1], panel.axes[0])
    grid(place, f"{panel.target} ({panel.statement}){'' if panel.boxes else _more(panel)}", across, down)
    if flat:
        place.set_yticks([])


def _figure(panels: Sequence[Shown]) -> tuple[Any, list[Any]]:
    """A figure with axes for each panel; rows alone need little height."""
    flat = not any(panel.axes[1] or panel.boxes for panel in panels)
    return figure(max(4.0, 3.2 * len(panels)), 1.8 if flat else 3.6, 1, max(1, len(panels)))


def _more(panel: Shown) -> str:
    return "" if panel.whole else ", a part"


def _squares(place: Any, panel: Shown, colours: Sequence[Any]) -> None:
    collections = importlib.import_module("matplotlib.collections")
    patches = importlib.import_module("matplotlib.patches")
    at = _columns(panel)
    squares = [patches.Rectangle((c - 0.44, r - 0.44), 0.88, 0.88) for r, c in at]
    place.add_collection(collections.PatchCollection(squares, facecolor=list(colours), linewidth=0))
    if at:
        place.set_xlim(min(c for _, c in at) - 1, max(c for _, c in at) + 1)
        place.set_ylim(min(r for r, _ in at) - 1, max(r for r, _ in at) + 1)


def _columns(panel: Shown) -> list[tuple[int, int]]:
    """Rows and columns; what has one index lies in one row."""
    return [p.at if panel.axes[1] else (0, p.at[0]) for p in panel.points]


def _middle(panel: Shown) -> Point:
    at = [p.at for p in panel.points]
    middle = (
        (min(a for a, _ in at) + max(a for a, _ in at)) // 2,
        (min(b for _, b in at) + max(b for _, b in at)) // 2,
    )
    return min(panel.points, key=lambda p: abs(p.at[0] - middle[0]) + abs(p.at[1] - middle[1]))


def _arrows(
    made: Any, places: Mapping[str, tuple[Shown, Any]], of: Point,
    needed: Callable[[Point], list[tuple[str, tuple[int, int]]]],
) -> None:  # fmt: skip
    """Arrows from what one instance needs: from the panels of other statements, where these are drawn."""
    panel, place = places[of.statement]
    row, column = of.at if panel.axes[1] else (0, of.at[0])
    found = needed(of)
    for source, (a, b) in found:
        origin, from_place = places[source]
        r, c = (a, b) if origin.axes[1] else (0, a)
        from_place.plot([c], [r], marker="o", color=INK, markersize=3, zorder=5)
        if source != panel.statement:
            _across(made, from_place, (c, r), place, (column, row))
        elif (r, c) != (row, column):
            style = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.3, "shrinkA": 0, "shrinkB": 3,
                     "connectionstyle": "arc3,rad=0.35"}  # fmt: skip
            place.annotate("", (column, row), (c, r), arrowprops=style, zorder=6)
    if found:
        place.plot([column], [row], marker="s", color=PAPER, markeredgecolor=INK, markersize=6, zorder=6)


def _across(made: Any, origin: Any, begin: tuple[int, int], place: Any, end: tuple[int, int]) -> None:
    """An arrow from a square of one panel to a square of another."""
    patches = importlib.import_module("matplotlib.patches")
    arrow = patches.ConnectionPatch(
        begin, end, "data", "data", axesA=origin, axesB=place, arrowstyle="-|>", color=INK, linewidth=1.0, shrinkA=2,
        shrinkB=4, connectionstyle="arc3,rad=-0.12", zorder=7,
    )  # fmt: skip
    arrow.set_in_layout(False)
    made.add_artist(arrow)


def _ranks(panels: Sequence[Shown]) -> dict[Point, int]:
    """Which of all instances runs when; instances that only an index apart tells from each other are one."""
    points = sorted({p: None for panel in panels for p in panel.points}, key=lambda p: p.date)
    return {p: n for n, p in enumerate(points)}


def _film_svg(panels: Sequence[Shown]) -> str:
    """SVG that moves by itself: each square takes its colour when its time comes, and the film starts again."""
    ranks = _ranks(panels)
    last = max(1, len(ranks) - 1)
    parts, left, height = [], float(_MARGIN), 0.0
    for panel in panels:
        at = _columns(panel)
        if not at:
            continue
        top, first = min(r for r, _ in at), min(c for _, c in at)
        title = escape(f"{panel.target} ({panel.statement}){_more(panel)}")
        parts.append(f'<text x="{left:.0f}" y="15" font-size="11" fill="{INK}">{title}</text>')
        for point, (row, column) in zip(panel.points, at, strict=True):
            x, y = left + (column - first) * _CELL, _TITLE + (row - top) * _CELL
            when = 0.02 + 0.9 * ranks[point] / last
            red, green, blue = (round(255 * part) for part in shade(ranks[point] / last))
            parts.append(
                f'<rect x="{x:.0f}" y="{y:.0f}" width="{_CELL - 2}" height="{_CELL - 2}" fill="{LINE}">'
                f'<animate attributeName="fill" dur="{_SECONDS:g}s" repeatCount="indefinite" calcMode="discrete" '
                f'values="{LINE};{RED};rgb({red},{green},{blue})" '
                f'keyTimes="0;{when:.4f};{min(0.999, when + 0.02):.4f}"/>'
                f"</rect>"
            )
            height = max(height, y + _CELL)
        left += (max(c for _, c in at) - first + 1) * _CELL + 2 * _MARGIN
    size = f'width="{max(left, 60):.0f}" height="{height + _MARGIN:.0f}"'
    style = 'font-family="sans-serif" role="img"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}><title>order</title>{"".join(parts)}</svg>\n'


def _film_gif(panels: Sequence[Shown]) -> bytes:
    """The film as GIF, in some dozens of frames.  Raises MissingPackageError without Pillow."""
    try:
        images, drawing = (importlib.import_module(f"PIL.{name}") for name in ("Image", "ImageDraw"))
    except ImportError:
        raise MissingPackageError("films are written by Pillow: pip install 'tcomp[pictures]'") from None
    ranks = _ranks(panels)
    places: dict[int, tuple[int, int]] = {}
    left, height = _MARGIN, _MARGIN
    for panel in panels:
        at = _columns(panel)
        if at:
            top, first = min(r for r, _ in at), min(c for _, c in at)
            for point, (row, column) in zip(panel.points, at, strict=True):
                places[ranks[point]] = (left + (column - first) * _CELL, _MARGIN + (row - top) * _CELL)
            left += (max(c for _, c in at) - first + 1) * _CELL + 2 * _MARGIN
            height = max(height, _MARGIN + (max(r for r, _ in at) - top + 1) * _CELL)
    count = max(1, len(places))
    picture = images.new("RGB", (max(left, 40), height + _MARGIN), PAPER)
    pen = drawing.Draw(picture)
    for x, y in places.values():
        pen.rectangle((x, y, x + _CELL - 3, y + _CELL - 3), fill=LINE)
    frames = [picture.copy()]
    step = -(-count // _MOST_FRAMES)
    for begin in range(0, count, step):
        for n in range(begin, min(count, begin + step)):
            x, y = places[n]
            colour = tuple(round(255 * part) for part in shade(n / max(1, count - 1)))
            pen.rectangle((x, y, x + _CELL - 3, y + _CELL - 3), fill=colour)
        frames.append(picture.copy())
    buffer = io.BytesIO()
    palette = [frame.convert("P", palette=images.Palette.ADAPTIVE, colors=64) for frame in frames]
    duration = max(40, round(1000 * _SECONDS / len(frames)))
    palette[0].save(buffer, "GIF", save_all=True, append_images=palette[1:], duration=duration, loop=0)
    return buffer.getvalue()
