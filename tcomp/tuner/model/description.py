"""Named facts about a compiled candidate: those known before, and what its plan and its code tell."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from tcomp.backends.cuda.tools.images import compile_image
from tcomp.backends.cuda.tools.occupancy import occupancy
from tcomp.backends.source import Source
from tcomp.driver import Compilation
from tcomp.errors import TcompError
from tcomp.mapping.machines.gpu import DEFAULT_ARCHITECTURE, gpu_of
from tcomp.runtime.kernel import Kernel
from tcomp.tuner.model.features import facts_of

_LOOP, _BRANCH = re.compile(r"\bfor \("), re.compile(r"\bif \(")
_SPACES = ("global", "tile", "register", "shared", "block", "private")


def describe(kernel: Kernel) -> tuple[tuple[str, float], ...]:
    """The features of a candidate from its kernel, by name."""
    specialisation, compilation = kernel.specialisation, kernel.compilation
    target = specialisation.target
    found = dict(facts_of(compilation, target)(specialisation.options))
    found |= _of_plan(compilation)
    if compilation.source.launches:
        found |= _of_launches(compilation.source)
        if target.startswith("cuda"):
            found |= _of_machine_code(compilation.source, target.partition(":")[2] or DEFAULT_ARCHITECTURE)
    return tuple(sorted(found.items()))


def _of_plan(compilation: Compilation) -> Mapping[str, float]:
    plan, text = compilation.plan, compilation.source.text
    found = {
        "groups": float(len(plan.groups)),
        "recomputed": max((g.recompute for g in plan.groups), default=1.0),
        "final tile": math.log2(max(1, max((math.prod(g.sizes) for g in plan.groups), default=1))),
        "fetched bytes": math.log2(1 + sum(c.bytes for c in plan.copies)),
        "copies": float(len(plan.copies)),
        "barriers": float(len(plan.barriers)),
        "text": math.log2(1 + len(text)),
        "loops": float(len(_LOOP.findall(text))),
        "branches": float(len(_BRANCH.findall(text))),
        "streams": float("tc_stream_" in text),
    }
    for space in _SPACES:
        found[f"buffers, {space}"] = math.log2(1 + sum(b.bytes for b in plan.buffers.values() if b.space == space))
    return found


def _of_launches(source: Source) -> Mapping[str, float]:
    blocks = [math.prod(launch.grid) for launch in source.launches]
    return {
        "launches": float(len(blocks)),
        "largest grid": math.log2(max(blocks)),
        "largest block": math.log2(max(math.prod(launch.block) for launch in source.launches)),
    }


def _of_machine_code(source: Source, architecture: str) -> Mapping[str, float]:
    """What the worst kernel of a launch sequence takes of a device; zeros where NVIDIA's compiler is not installed."""
    facts = {"device registers": 0.0, "spilled": 0.0, "device shared": 0.0, "unoccupied": 0.0}
    for one in _kernels(source, architecture):
        for name, value in one.items():
            facts[name] = max(facts[name], value)
    return facts


def _kernels(source: Source, architecture: str) -> Iterator[dict[str, float]]:
    try:
        image = compile_image(source, architecture)
        for launch in source.launches:
            kernel = image.kernel(launch.kernel)
            shared = kernel.shared_bytes + launch.shared_bytes
            found = occupancy(gpu_of(architecture), math.prod(launch.block), kernel.registers, shared)
            yield {
                "device registers": float(kernel.registers),
                "spilled": math.log2(1 + kernel.spill_stores + kernel.spill_loads),
                "device shared": math.log2(1 + shared),
                "unoccupied": 1 - found.fraction,
            }
    except TcompError:
        return
