"""Named facts about a compiled candidate: those known before, and what its plan and its code tell."""

from __future__ import annotations

import math
import re

from tcomp.driver import Compilation
from tcomp.mapping.options import MappingOptions
from tcomp.tuner.features import facts_of

_LOOP, _BRANCH = re.compile(r"\bfor \("), re.compile(r"\bif \(")


def describe(compilation: Compilation, options: MappingOptions) -> tuple[tuple[str, float], ...]:
    """The features of a candidate that was compiled with some options, by name."""
    found = dict(facts_of(compilation)(options))
    plan, text = compilation.plan, compilation.source.text
    main = max(plan.groups, key=lambda g: g.root, default=None)
    sizes: tuple[int, ...] = () if main is None else main.sizes
    found |= {
        "groups": float(len(plan.groups)),
        "recomputed": max((g.recompute for g in plan.groups), default=1.0),
        "final tile": math.log2(max(1, math.prod(sizes))),
        "fetched bytes": math.log2(1 + sum(c.bytes for c in plan.copies)),
        "copies": float(len(plan.copies)),
        "barriers": float(len(plan.barriers)),
        "text": math.log2(1 + len(text)),
        "loops": float(len(_LOOP.findall(text))),
        "branches": float(len(_BRANCH.findall(text))),
        "streams": float("tc_stream_" in text),
    }
    for space in ("global", "tile", "register", "shared", "block", "private"):
        found[f"{space} bytes"] = math.log2(1 + sum(b.bytes for b in plan.buffers.values() if b.space == space))
    return tuple(sorted(found.items()))
