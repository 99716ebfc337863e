"""Which options may change the code for a target, and which of those that were given do not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields

from tcomp.mapping.options.options import OPTIONS, MappingOptions


def matters(options: MappingOptions, name: str, target: str) -> bool:
    """Whether, on a target such as ``cuda:sm_90`` and with these other options, an option may change the code.

    Where it does not, a search need not try its values.
    """
    option = OPTIONS[name]
    return option.is_for(target) and all(getattr(options, c.option) in c.values for c in option.when)


def without_effect(options: MappingOptions, target: str, loops: int) -> Iterator[str]:
    """What of the given options does nothing on a target, a sentence each.

    ``loops`` is how many loops of the program's deepest nest have tiles, or could have.
    """
    given = {f.name: getattr(options, f.name) for f in fields(options) if getattr(options, f.name) != f.default}
    foreign = [name for name in given if not OPTIONS[name].is_for(target)]
    if foreign:
        yield f"without effect on {target}: {', '.join(foreign)}"
    for name, value in given.items():
        if name in foreign:
            continue
        if not matters(options, name, target):
            yield f"{name} has no effect: it matters only if {' and '.join(map(str, OPTIONS[name].when))}"
        elif name == "tile_sizes" and len(value) > loops:
            yield f"tile_sizes has {len(value)} sizes, of which the first {loops} have loops to tile"
        elif OPTIONS[name].is_granted(target) and isinstance(value, tuple) and len(value) > 1:
            yield f"{name} says on {target} only how many may run at most: {math.prod(value)}"
