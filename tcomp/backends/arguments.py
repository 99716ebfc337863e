"""What the entry point of a kernel takes, and in which order."""

from __future__ import annotations

from tcomp.backends.source import Argument
from tcomp.grammar.tree.function import Function
from tcomp.model.scop import Scop


def arguments_of(function: Function, scop: Scop) -> tuple[Argument, ...]:
    """Inputs in the order of the parameters, outputs in their order, then what is bound."""
    listed = [t.name for t in (*function.inputs, *function.outputs)]
    order = {name: position for position, name in enumerate([*scop.storages, *listed])}
    order |= {name: position for position, name in enumerate(listed)}
    storages = [s for s in scop.storages.values() if s.role != "temporary"]
    storages.sort(key=lambda s: (s.bound, s.role != "input", order[s.name]))
    return tuple(
        Argument(s.name, s.dtype, s.box.extent, s.strides, s.role, s.bound) for s in (s.argument for s in storages)
    )
