"""What other programs tell of a candidate before anything of its own program has run.

Trees were fitted to candidates of some programs that were measured on a CPU: how long each took, over what the default
options took, by what is different from these: the estimated cycles, the registers that are filled, the bytes that a
tile moves, and so on.  Such differences say more about programs that nobody measured than the facts themselves.  They
come with tcomp, as weights come with Halide's autoscheduler (Adams et al., "Learning to Optimize Halide with Tree
Search and Random Programs", ACM TOG 38, 2019); ``benchmarks/tuning_experience.py`` makes them anew.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import resources
from typing import Any, TypeAlias

from tcomp.mapping.options.options import MappingOptions
from tcomp.tuner.model.features import Features

CHANGED = "options changed"
"""The name of how many options differ from the default."""

Tree: TypeAlias = "float | tuple[int, float, Tree, Tree]"
"""A leaf, or the position of a feature, a threshold, and what follows up to it and above."""


@dataclass(frozen=True, slots=True)
class Experience:
    """Trees over the differences of named features."""

    names: tuple[str, ...]
    trees: tuple[Tree, ...]

    def expected(self, different: Mapping[str, float]) -> float:
        """The binary logarithm of the time over that of the default options, from ``differences``."""
        row = [different.get(name, 0.0) for name in self.names]
        return sum(_leaf(tree, row) for tree in self.trees) / len(self.trees)

    def to_json(self) -> str:
        """The inverse of ``read``: a line for the names, and one for each tree."""
        trees = ",\n".join(json.dumps(tree, separators=(",", ":")) for tree in self.trees)
        return f'{{"names": {json.dumps(self.names)},\n"trees": [\n{trees}\n]}}\n'


def differences(
    options: MappingOptions, features: Features, default: MappingOptions, usual: Features
) -> dict[str, float]:
    """What a candidate has that the default options have not: features less theirs, and which options differ."""
    found = {name: value - usual[name] for name, value in features.items()}
    changed = [f.name for f in fields(options) if getattr(options, f.name) != getattr(default, f.name)]
    found |= {f"{name} changed": float(name in changed) for name in ("tile_sizes", "register_tile")}
    return found | {CHANGED: float(len(changed))}


@functools.cache
def experience_of(target: str) -> Experience | None:
    """What comes with tcomp for a target; None where nothing does."""
    file = resources.files("tcomp.tuner.model") / f"experience-{target.partition(':')[0]}.json"
    return read(file.read_text(encoding="utf-8")) if file.is_file() else None


def read(text: str) -> Experience:
    """An experience from its JSON."""
    plain = json.loads(text)
    return Experience(tuple(plain["names"]), tuple(map(_tree, plain["trees"])))


def _tree(plain: Any) -> Tree:
    if not isinstance(plain, list):
        return float(plain)
    position, threshold, low, high = plain
    return int(position), float(threshold), _tree(low), _tree(high)


def _leaf(tree: Tree, row: Sequence[float]) -> float:
    while isinstance(tree, tuple):
        position, threshold, low, high = tree
        tree = low if row[position] <= threshold else high
    return tree
