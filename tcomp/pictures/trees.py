"""A picture of a schedule tree: a box for each node, those inside others below them and further right."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any

import islpy as isl

from tcomp.driver import Compilation
from tcomp.mapping.plan.values import Plan
from tcomp.model.terms.unions import maps_of, sets_of
from tcomp.pictures.canvas import BLUE, COLOURS, GOLD, GREEN, INK, LINE, PAPER, SOFT, Picture, bare, figure, finished

_KINDS = isl.schedule_node_type
_COLOUR_OF = {"domain": SOFT, "band": BLUE, "sequence": GOLD, "statements": GREEN, "mark": COLOURS[4]}
_LONGEST = 74
_MOST = 80


def draw_tree(compilation: Compilation) -> Picture:
    """The final tree of a compilation."""
    plan = compilation.plan
    rows = list(_rows(plan, plan.tree.get_root(), 0))[:_MOST]
    made, axes = figure(7.5, max(1.2, 0.27 * len(rows) + 0.3))
    place = axes[0]
    bare(place)
    place.set_xlim(0, 100)
    place.set_ylim(len(rows), -0.5)
    last: dict[int, int] = {}
    for line, (depth, kind, text) in enumerate(rows):
        _box(place, line, depth, kind, text)
        if depth:
            above = max((last[d] for d in last if d < depth), default=line)
            x = 2.5 * (depth - 1) + 1.2
            place.plot([x, x, x + 1.3], [above + 0.5, line, line], color=LINE, linewidth=0.9, zorder=0)
        last = {d: n for d, n in last.items() if d < depth} | {depth: line}
    return finished(made)


def _box(place: Any, line: int, depth: int, kind: str, text: str) -> None:
    patches = importlib.import_module("matplotlib.patches")
    x, width = 2.5 * depth, 12.0
    colour = _COLOUR_OF[kind]
    place.add_patch(patches.FancyBboxPatch((x + 0.3, line - 0.32), width - 0.6, 0.64, boxstyle="round,pad=0.02",
                                           facecolor=colour, edgecolor="none"))  # fmt: skip
    place.text(x + width / 2, line, kind, ha="center", va="center", fontsize=7.5, color=PAPER, weight="bold")
    place.text(x + width + 0.8, line, text, va="center", fontsize=7.5, color=INK, family="monospace")


def _rows(plan: Plan, node: isl.ScheduleNode, depth: int) -> Iterator[tuple[int, str, str]]:
    """Depth, kind and words of a node and of all below it."""
    kind = node.get_type()
    match kind:
        case _KINDS.domain:
            yield depth, "domain", _short(", ".join(s.get_tuple_name() for s in sets_of(node.domain_get_domain())))
        case _KINDS.band:
            yield depth, "band", _short(_band(plan, node))
        case _KINDS.sequence:
            yield depth, "sequence", f"{node.n_children()} parts, one after another"
        case _KINDS.filter:
            yield depth, "statements", _short(", ".join(s.get_tuple_name() for s in sets_of(node.filter_get_filter())))
        case _KINDS.mark:
            name = node.mark_get_id().get_name()
            yield depth, "mark", _short(name + _at(plan, name))
    inside = depth if kind == _KINDS.leaf else depth + 1
    for number in range(node.n_children()):
        yield from _rows(plan, node.child(number), inside)


def _band(plan: Plan, node: isl.ScheduleNode) -> str:
    """What the members of a band count, and for which statements: ``floor(y/32), floor(x/32)  (S0 S1)``."""
    told: dict[str, list[str]] = {}
    for own in maps_of(node.band_get_partial_schedule_union_map()):
        name = own.get_tuple_name(isl.dim_type.in_)
        indices = plan.scop.by_name[name].indices
        for d in range(own.dim(isl.dim_type.in_)):
            index = indices[d].replace(" ", "_") if d < len(indices) else f"i{d}"
            own = own.set_dim_name(isl.dim_type.in_, d, index)
        values = isl.PwMultiAff.from_map(own)
        parts = [_value(str(values.get_at(d))) for d in range(values.dim(isl.dim_type.out))]
        told.setdefault(", ".join(parts), []).append(name)
    coincident = [node.band_member_get_coincident(n) for n in range(node.band_n_member())]
    rows = [f"{text}  ({' '.join(sorted(names))})" for text, names in sorted(told.items())]
    return ("in any order: " if coincident and all(coincident) else "") + "; ".join(rows)


def _value(text: str) -> str:
    """The expression in isl's text of a function of one value, without needless brackets."""
    inner = text.partition("->")[2].partition("[")[2].partition("]")[0].strip()
    inner = inner.removeprefix("(").removesuffix(")")
    return re.sub(r"\((\w+)\)", r"\1", inner)


def _at(plan: Plan, mark: str) -> str:
    """What is declared, copied or spelled as a whole at a mark."""
    where = {"private": "registers", "register": "a register"}
    told = [
        f"{b.storage} {list(b.shape)} in {where.get(b.space, f'a {b.space}')}"
        for b in plan.buffers.values()
        if b.mark == mark
    ]
    told += [f"copy of {c.storage} {list(c.shape)}" for c in plan.copies if c.mark == mark]
    told += [str(o.kind) for o in plan.operations.values() if o.mark == mark]
    told += ["barrier before"] if mark in plan.barriers else []
    return f": {', '.join(told)}" if told else ""


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
