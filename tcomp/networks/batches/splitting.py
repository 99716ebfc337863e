"""Groups that go over parts of a batch, and the runs of steps that are done part by part."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tcomp.errors import NetworkError, TcompError
from tcomp.mapping.machines.cpu import Machine, this_machine
from tcomp.networks.batches.choosing import Work, turns
from tcomp.networks.batches.following import Axes
from tcomp.networks.batches.independence import is_part
from tcomp.networks.grouping import Group
from tcomp.networks.network import Network, Value
from tcomp.networks.storage import Run, Storage, stored
from tcomp.operation import Operation


@dataclass(frozen=True)
class Split:
    """Groups of which some go over a part of a batch; which of them are steps, and those that run in turns.

    ``near`` has the values that are made and read in one run: memory is needed for one part of them.  ``axes`` has the
    axis of the batch of all values that have one.
    """

    groups: tuple[Group, ...]
    numbers: tuple[int, ...]
    runs: tuple[Run, ...]
    near: Mapping[str, Value]
    axes: Mapping[str, int]

    def stored(self, network: Network, *, views: bool, share: bool) -> Storage:
        """Places for these groups.  Raises NetworkError."""
        steps = frozenset(self.numbers)
        made = stored(network, self.groups, views=views, share=share, steps=steps, runs=self.runs, near=self.near)
        if len(made.steps) != len(steps):
            raise NetworkError("a view of a batch is none of its parts")
        return made

    def advances(self, network: Network, storage: Storage) -> tuple[dict[str, int], ...]:
        """For each step, by how many bytes what it reads and writes advances from turn to turn, where it does."""
        values = network.by_name
        made = []
        for run in storage.runs:
            for step in storage.steps[run.steps.start : run.steps.stop]:
                names = () if run.turns == 1 else (*step.arguments, *step.results)
                far = [name for name in names if name in self.axes and name not in self.near]
                made.append({name: self._advance(values[name], storage, run.turns) for name in far})
        return tuple(made)

    def _advance(self, value: Value, storage: Storage, count: int) -> int:
        axis = self.axes[value.name]
        return storage.layouts[value.name].strides[axis] * (value.shape[axis] // count)


def split(
    network: Network,
    groups: Sequence[Group],
    storage: Storage,
    operation: Callable[[Group], Operation],
    machine: Machine | None = None,
) -> Split | None:
    """The groups of a network whose batch is taken apart where that is cheaper; None where it is nowhere."""
    numbers = {id(group): number for number, group in enumerate(groups)}
    steps = [numbers[id(group)] for group in storage.steps]
    axes = Axes(network, groups, frozenset(steps), operation)
    while axes.inside:
        works = [_work(network, storage, groups[n], n in axes.inside) for n in steps]
        counts = turns(works, axes.batch, machine or this_machine())
        if max(counts, default=1) == 1:
            return None
        made = {n: _part(groups[n], axes.inside[n], count) for n, count in zip(steps, counts, strict=True) if count > 1}
        wrong = [n for n, part in made.items() if not _is_part(part, groups[n], axes.inside[n], operation)]
        if not wrong:
            runs = _runs(counts)
            near = _near(network, storage, runs, axes.of)
            return Split(tuple(made.get(n, group) for n, group in enumerate(groups)), tuple(steps), runs, near, axes.of)
        axes.inside = {n: found for n, found in axes.inside.items() if n not in wrong}
    return None


def _work(network: Network, storage: Storage, group: Group, apart: bool) -> Work:
    values = network.by_name
    roots = {name: storage.layouts[name].root for name in (*group.arguments, *group.results)}
    reads: dict[str, int] = {}
    for name in group.arguments:
        if roots[name] not in network.weights:
            reads[roots[name]] = max(reads.get(roots[name], 0), values[name].bytes)
    weights = sum(values[name].bytes for name in group.arguments if roots[name] in network.weights)
    return Work(reads, {roots[name]: values[name].bytes for name in group.results}, weights, apart)


def _part(group: Group, axes: Mapping[str, int], count: int) -> Group:
    """A group for a part of the batch."""
    values = tuple(
        _shortened(value, axes[value.name], count) if value.name in axes else value for value in group.network.values
    )
    return replace(group, network=replace(group.network, values=values))


def _shortened(value: Value, axis: int, count: int) -> Value:
    shape = list(value.shape)
    shape[axis] //= count
    return replace(value, shape=tuple(shape))


def _is_part(part: Group, group: Group, axes: Mapping[str, int], operation: Callable[[Group], Operation]) -> bool:
    """Whether the smaller group computes what the group does for a part; not where its text does not fit."""
    try:
        return is_part(operation(part).function, operation(group).function, axes)
    except TcompError:
        return False


def _runs(counts: Sequence[int]) -> tuple[Run, ...]:
    """Neighbours that take as many turns are one run."""
    runs, start = [], 0
    for count, members in itertools.groupby(counts):
        end = start + len(list(members))
        runs.append(Run(range(start, end), count))
        start = end
    return tuple(runs)


def _near(network: Network, storage: Storage, runs: Sequence[Run], axes: Mapping[str, int]) -> dict[str, Value]:
    """The values that one run in turns makes and alone reads, with the shape of a part."""
    used: dict[str, set[int]] = {}
    for number, run in enumerate(runs):
        for step in storage.steps[run.steps.start : run.steps.stop]:
            for name in (*step.arguments, *step.results):
                used.setdefault(storage.layouts[name].root, set()).add(number)
    values, near = network.by_name, {}
    across = {layout.root for name, layout in storage.layouts.items() if name not in axes}
    for name, layout in storage.layouts.items():
        count = next((runs[n].turns for n in used.get(layout.root, ())), 1)
        own = values[layout.root].role == "temporary" and layout.root not in storage.stored
        if own and len(used[layout.root]) == 1 and count > 1 and layout.root not in across:
            near[name] = _shortened(values[name], axes[name], count)
    return near
