"""What the entry point of a kernel takes, and in which order."""

from __future__ import annotations

from tcomp.backends.source import SIZE, Argument
from tcomp.grammar.ranges.affine import step_parameter
from tcomp.grammar.tree.function import Function
from tcomp.model.scop import Scop
from tcomp.values.operators import INT64


def arguments_of(function: Function, scop: Scop) -> tuple[Argument, ...]:
    """Inputs in the order of the parameters, outputs in their order, what is bound, then sizes that calls say."""
    listed = [t.name for t in (*function.inputs, *function.outputs)]
    order = {name: position for position, name in enumerate([*scop.storages, *listed])}
    order |= {name: position for position, name in enumerate(listed)}
    storages = [s for s in scop.storages.values() if s.role != "temporary"]
    storages.sort(key=lambda s: (s.bound, s.role != "input", order[s.name]))
    sizes = scop.around.steps if scop.around is not None and scop.around.open else ()
    return tuple(
        Argument(s.name, s.dtype, s.box.extent, s.strides, s.role, s.bound) for s in (s.argument for s in storages)
    ) + tuple(Argument(step_parameter(name), INT64, (), (), SIZE, bound=True) for name in sizes)
