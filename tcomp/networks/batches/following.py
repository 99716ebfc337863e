"""Which axis of each value of a network is that of the batch.

A proposal begins with the first axis of inputs, and where a kernel mixes a batch.  What follows from it is proved.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Container, Mapping, Sequence

from tcomp.networks.batches.independence import carried
from tcomp.networks.grouping import Group
from tcomp.networks.network import Network, Value
from tcomp.networks.texts.elements import factors
from tcomp.operation import Operation


class Axes:
    """The axis of the batch in each value, and which groups compute each part of it for itself.

    ``of`` has the axis of a value that has one; its extent is a multiple of the ``batch``.  ``inside`` has those of all
    tensors in a group, by the number of the group, for those ``steps`` that may be taken apart.
    """

    def __init__(
        self,
        network: Network,
        groups: Sequence[Group],
        steps: Container[int],
        operation: Callable[[Group], Operation],
    ) -> None:
        self.values = network.by_name
        shapes = [value.shape for value in network.inputs]
        self.batch = shapes[0][0] if shapes and shapes[0] else 1
        self.of: dict[str, int] = {}
        self.inside: dict[int, Mapping[str, int]] = {}
        if self.batch < 2:
            return
        for value in network.inputs:
            self._propose(value)
        lost: set[str] = set()  # views of parts of the batch that lie across
        proved: dict[tuple[str, tuple[int | None, ...]], dict[str, int] | None] = {}
        for number, group in enumerate(groups):
            given = tuple(self.of.get(name) for name in group.arguments)
            if number not in steps:
                lost.update(() if self._see(group, lost) else group.results)
                continue
            if (
                group.outside is None
                and any(axis is not None for axis in given)
                and not lost.intersection(group.arguments)
            ):
                key = (str(group.network), given)
                if key not in proved:
                    names = (value.name for value in group.network.inputs)
                    axes = {name: axis for name, axis in zip(names, given, strict=True) if axis is not None}
                    proved[key] = carried(operation(group).function, axes)
                found = proved[key]
                if found is not None and self._take(group, found):
                    self.inside[number] = found
            for name in group.results:
                if name not in self.of:
                    self._propose(self.values[name])

    def _propose(self, value: Value) -> None:
        if value.shape and value.shape[0] == self.batch:
            self.of[value.name] = 0

    def _take(self, group: Group, found: Mapping[str, int]) -> bool:
        """Enter the axes of results, whose extents must be multiples of the batch."""
        results = {name: found[inner.name] for name, inner in zip(group.results, group.network.outputs, strict=True)}
        if any(self.values[name].shape[axis] % self.batch for name, axis in results.items()):
            return False
        self.of |= results
        return True

    def _see(self, group: Group, lost: Container[str]) -> bool:
        """Enter the axis of a view.  False where it shows parts of a batch that are no parts of it."""
        (source,), (name,) = group.arguments, group.results
        axis = self.of.get(source)
        if axis is None:
            return source not in lost
        found = seen(group, self.values[source], self.values[name], axis, self.batch)
        if found is not None:
            self.of[name] = found
        return found is not None


def seen(group: Group, source: Value, value: Value, axis: int, batch: int) -> int | None:
    """Where the axis of a batch is in a view; None where it is not an axis there."""
    kind, *numbers = group.view
    if kind == "permute":
        return [int(k) for k in numbers].index(axis)
    if kind in ("take", "select"):
        at = int(numbers[0])
        return None if at == axis else axis - (kind == "select" and at < axis)
    for old, new in factors(source.shape, value.shape):
        if axis not in old:
            continue
        wide = [k for k in new if value.shape[k] > 1]
        # The batch must be outermost of what is counted together, before and after.
        before = itertools.takewhile(lambda k: k != axis, old)
        if not wide or any(source.shape[k] > 1 for k in before) or value.shape[wide[0]] % batch:
            return None
        part = math.prod(source.shape[k] for k in old) // batch
        inner = math.prod(value.shape[k] for k in new) // value.shape[wide[0]]
        return wide[0] if part % inner == 0 else None
    return None
