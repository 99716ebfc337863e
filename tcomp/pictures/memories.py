"""Pictures of memory: what one tile touches of each tensor, and what lies in which memory while nests run."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import Any

import islpy as isl

from tcomp.driver import Compilation
from tcomp.mapping.memory.places import Place, own_element, places
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.tiles.footprint import box_hull
from tcomp.model.terms.storages import Storage
from tcomp.pictures.canvas import (
    BLUE,
    COLOURS,
    GOLD,
    GREEN,
    INK,
    LINE,
    PAPER,
    RED,
    SOFT,
    Picture,
    figure,
    finished,
    grid,
)

_MOST_PANELS = 6
_WIDTH, _LETTER = 7.0, 0.062
"""Of the picture of memories, in inches: its width, and that of a letter in it."""
_TITLE = 28
"""The most letters beside each other above a footprint."""

_SPACES = {
    "argument": BLUE,
    "global": SOFT,
    "tile": GREEN,
    "shared": GREEN,
    "block": GREEN,
    "panel": RED,
    "register": GOLD,
    "private": GOLD,
}


_WORDS = {
    "tile": "tile of a thread",
    "global": "memory of the kernel",
    "argument": "the caller's",
    "shared": "shared memory",
    "panel": "copy for a tile",
    "private": "registers",
}


@dataclass(frozen=True, slots=True)
class _Box:
    """The box of a tensor that a tile touches."""

    storage: Storage
    corner: tuple[int, ...]
    shape: tuple[int, ...]
    written: bool


def draw_footprint(compilation: Compilation) -> Picture:
    """For a tile in the middle of the last nest: the box of each tensor that it reads or writes, to scale."""
    plan = compilation.plan
    place = [p for p in places(plan.tree) if p.mark.startswith("group")][-1]
    tile, boxes = _boxes(plan, place)
    boxes = boxes[:_MOST_PANELS]
    made, axes = figure(max(3.5, 2.3 * len(boxes)), 2.9, 1, max(1, len(boxes)))
    patches = importlib.import_module("matplotlib.patches")
    for box, panel in zip(boxes, axes, strict=False):
        rows, columns = _plane(box.storage.box.extent)
        origin, corner = _plane(box.storage.box.origin, 0), _plane(box.corner, 0)
        shape = _plane(box.shape)
        panel.add_patch(patches.Rectangle((origin[1], origin[0]), columns, rows, facecolor="#eef3f5", edgecolor=LINE))
        colour = RED if box.written else BLUE
        panel.add_patch(patches.Rectangle((corner[1], corner[0]), shape[1], shape[0], facecolor=colour, alpha=0.85))
        panel.set_xlim(origin[1] - 0.02 * columns, origin[1] + 1.02 * columns)
        panel.set_ylim(origin[0] - 0.02 * rows, origin[0] + 1.02 * rows)
        size = math.prod(box.shape) * box.storage.dtype.itemsize
        does = "written" if box.written else "read"
        shown = " x ".join(map(str, box.shape)) or "one"
        said = f"{shown} {does}, {size:,} B"
        between = " " if len(box.storage.name) + len(said) <= _TITLE else "\n"
        grid(panel, f"{box.storage.name}:{between}{said}", "", "")
        if not 1 / 4 < rows / max(1, columns) < 4:
            panel.set_aspect("auto")
    made.suptitle(f"What the tile {list(tile)} of {place.mark} touches", fontsize=8, color=INK)
    return finished(made)


def _boxes(plan: Plan, place: Place) -> tuple[tuple[int, ...], list[_Box]]:
    """A tile in the middle, and what it touches of each storage that has dimensions."""
    every = [p.range() for p in place.prefixes.values() if not p.is_empty()]
    rank = every[-1].dim(isl.dim_type.set)
    middle = []
    for d in range(rank):
        low, high = every[-1].dim_min_val(d).to_python(), every[-1].dim_max_val(d).to_python()
        middle.append((low + high) // 2)
    one = every[-1]
    for d, value in enumerate(middle):
        one = one.fix_val(isl.dim_type.set, d, isl.Val(value))
    if one.is_empty():
        one = isl.Set.from_point(every[-1].sample_point())
    found: dict[tuple[str, bool], isl.Map] = {}
    for name, prefix in place.prefixes.items():
        statement = plan.scop.by_name[name]
        inside = prefix.intersect_range(one).reverse()
        for written, accesses in ((False, statement.all_reads), (True, (statement.write,))):
            for access in accesses:
                storage = plan.scop.storages[access.get_tuple_name(isl.dim_type.out)]
                touched = own_element(inside.apply_range(access), len(storage.box.extent))
                if storage.box.extent and not touched.is_empty():
                    before = found.get((storage.name, written))
                    found[storage.name, written] = touched if before is None else before.union(touched)
    boxes = []
    for (name, written), touched in found.items():
        if not written and (name, True) in found:
            continue
        hull, elements = box_hull(touched), touched.range()
        corner = tuple(elements.dim_min_val(d).to_python() for d in range(len(hull.shape)))
        boxes.append(_Box(plan.scop.storages[name], corner, hull.shape, written))
    return tuple(middle), boxes


def _plane(numbers: tuple[int, ...], outer: int = 1) -> tuple[int, int]:
    """The last two of some numbers, of dimensions say; one dimension lies across."""
    return (numbers[-2] if len(numbers) > 1 else outer), numbers[-1]


def draw_memory(compilation: Compilation) -> Picture:
    """A bar for each storage, over the nests and stages from the first that writes it to the last that uses it."""
    plan = compilation.plan
    order = [s.name for number in range(len(plan.groups)) for c in plan.groups[number].clusters
             for s in plan.scop.statements if s.name in plan.clusters[c].statements]  # fmt: skip
    when = {name: n for n, name in enumerate(order)}
    rows = []
    for storage in plan.scop.storages.values():
        users = [when[s.name] for s in plan.scop.users[storage.name] if s.name in when]
        if users:
            held = plan.buffers.get(storage.name)
            space = "argument" if held is None else held.space
            size = storage.bytes if held is None else max(held.bytes, storage.dtype.itemsize)
            rows.append((storage.name, space, min(users), max(users), size))
    for copy in plan.copies:
        pipeline, at = plan.pipelines.get(copy.mark), when[copy.statement]
        several, size = (1, copy.bytes) if pipeline is None else (pipeline.stages, copy.bytes * pipeline.stages)
        name = f"part of {copy.storage}{f', {several} stages' if several > 1 else ''}"
        rows.append((name, "shared" if plan.phases else "panel", at, at, size))
    height = max(1.6, 0.27 * len(rows) + 1.0)
    made, axes = figure(_WIDTH, height)
    place = axes[0]
    for line, (name, space, first, last, size) in enumerate(rows):
        place.barh(line, last - first + 0.9, left=first + 0.05, height=0.7, color=_SPACES.get(space, COLOURS[4]))
        text = f"{name}: {_readable(size)}"
        taken = len(text) * _LETTER * len(order) / _WIDTH
        if taken <= last - first + 0.8:
            place.text(first + 0.12, line, text, va="center", fontsize=7, color=PAPER)
        elif last + 1 + taken <= len(order):
            place.text(last + 1, line, text, va="center", fontsize=7, color=INK)
        else:
            place.text(first, line, text, va="center", ha="right", fontsize=7, color=INK)
    _frame(place, order, plan)
    place.set_ylim(len(rows) - 0.4, -0.6)
    place.set_yticks([])
    used = list(dict.fromkeys(row[1] for row in rows))
    patches = importlib.import_module("matplotlib.patches")
    handles = [patches.Patch(color=_SPACES.get(space, COLOURS[4])) for space in used]
    where = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.4 / height), "ncols": max(1, len(used))}
    place.legend(handles, [_WORDS.get(space, space) for space in used], fontsize=7, frameon=False, **where)
    return finished(made)


def _frame(place: Any, order: list[str], plan: Plan) -> None:
    """Statements along the axis, and a line where a nest begins."""
    place.set_xlim(0, max(1, len(order)))
    place.set_xticks([n + 0.5 for n in range(len(order))], order, fontsize=7)
    at = 0
    for nest in plan.nests:
        place.axvline(at, color=LINE, linewidth=1.2, zorder=0)
        at += sum(len(plan.clusters[c].statements) for g in nest for c in plan.groups[g].clusters)
    for spine in ("top", "right", "left"):
        place.spines[spine].set_visible(False)
    title = "What lies in which memory, statement by statement; lines stand between nests"
    place.set_title(title, fontsize=8, color=INK)


def _readable(size: int) -> str:
    for unit, scale in (("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}"
    return f"{size} B"
