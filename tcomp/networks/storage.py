"""Where the values of a network lie: which are views of others, how long each is needed, and its offset."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from tcomp.errors import NetworkError
from tcomp.networks.grouping import Group
from tcomp.networks.network import Network, Value
from tcomp.networks.placing import Life, Places, apart, overlap, place
from tcomp.networks.views import Array, applied, spread

_READS_ANY_LAYOUT = ("linear", "matmul", "attention", "einsum", "gemm")
"""Defs that pack what they read, so that it does not matter which axis is the innermost."""


@dataclass(frozen=True)
class Layout:
    """A value in the memory of its ``root``: the bytes from where that begins, and strides in bytes."""

    root: str
    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """Steps that are done one after another, so many times, each time for the next part of a batch."""

    steps: range
    turns: int = 1


@dataclass
class Storage:
    """The layout of every value, the groups that are computed, and the offsets of what lies between them.

    ``stored`` has values that lie where an output does, which is a view of them.  Those that are ``near`` have memory
    for one turn of their run.
    """

    steps: tuple[Group, ...]
    layouts: Mapping[str, Layout]
    stored: Mapping[str, str]
    lives: tuple[Life, ...]
    places: Places = field(init=False)
    share: bool = True
    runs: tuple[Run, ...] = ()
    near: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.places = place(self.lives) if self.share else apart(self.lives)
        if (found := overlap(self.lives, self.places)) is not None:
            raise NetworkError(f"{found[0]} and {found[1]} lie in one place")


def stored(
    network: Network,
    groups: Sequence[Group],
    *,
    views: bool,
    share: bool,
    steps: Container[int] = (),
    runs: Sequence[Run] = (),
    near: Mapping[str, Value] = MappingProxyType({}),
) -> Storage:
    """Find places.

    Args:
        network: whose values they are.
        groups: all of it, in order.
        views: whether other views than those of all elements in their order are looked at.
        share: whether values share memory that are alive at different times.
        steps: the numbers of groups that are steps even where they could be views.
        runs: which steps are done in turns; all once where there are none.
        near: values that lie in memory for one turn, with their shapes there.
    """
    return _Layouts(network, groups, views, near).storage(share, steps, tuple(runs))


class _Layouts:
    """The walk over the groups of a network."""

    def __init__(self, network: Network, groups: Sequence[Group], views: bool, near: Mapping[str, Value]) -> None:
        self.network = network
        self.groups = groups
        self.views = views
        self.near = near
        self.values = {**network.by_name, **near}
        self.arrays: dict[str, Array] = {}
        self.root: dict[str, str] = {}
        self.stored: dict[str, str] = {}
        self.readers: dict[str, list[Group]] = {}
        for group in groups:
            for name in group.arguments:
                self.readers.setdefault(name, []).append(group)

    def storage(self, share: bool, kept: Container[int], runs: tuple[Run, ...]) -> Storage:
        for value in self.network.of_role("input", "weight"):
            self.arrays[value.name], self.root[value.name] = spread(value.shape, value.dtype), value.name
        steps: list[Group] = []
        for number, group in enumerate(self.groups):
            if group.view and number not in kept and self._is_view(group):
                continue
            steps.append(group)
            for name in group.results:
                self.arrays[name], self.root[name] = self._own(self.values[name]), name
        layouts = {
            name: Layout(
                self.root[name],
                array.ctypes.data - self.arrays[self.root[name]].ctypes.data,
                array.strides,
            )
            for name, array in self.arrays.items()
        }
        runs = runs or (Run(range(len(steps))),)
        lives = tuple(self._lives(steps, runs))
        return Storage(tuple(steps), layouts, self.stored, lives, share, runs, frozenset(self.near))

    def _is_view(self, group: Group) -> bool:
        """Whether a group is no step: its result lies in the memory of its argument.  Then it is entered."""
        (source,), (name,) = group.arguments, group.results
        value, root = self.values[name], self.root[source]
        call = group.calls[0]
        view = group.view
        if view[0] != "reshape" and not self.views:
            return False
        made = applied(view, self.arrays[source], dict(call.constants), value.shape)
        if made is None or not (view[0] == "reshape" or self._reads_well(made, name)):
            return False
        if value.role == "output":
            # An output is an array of its own in C order, so what it is a view of must be all of it.
            whole = made.flags.c_contiguous and made.size == self.arrays[root].size
            if not whole or self.values[root].role != "temporary" or root in self.stored:
                return False
            self.stored[root] = name
        self.arrays[name], self.root[name] = made, root
        return True

    def _reads_well(self, made: Array, name: str) -> bool:
        """Whether all that reads a view reads rows of elements that lie one behind the other, or any."""
        inner = made.ndim == 0 or made.shape[-1] == 1 or made.strides[-1] == made.itemsize
        return inner or all(self._any_layout(group, name) for group in self.readers.get(name, ()))

    def _any_layout(self, group: Group, name: str) -> bool:
        function = next(call.function for call in group.calls if name in call.arguments)
        return function.startswith(_READS_ANY_LAYOUT)

    def _own(self, value: Value) -> Array:
        """The layout of a value with memory of its own: that of what is read of it, if that is a permutation."""
        readers = self.readers.get(value.name, [])
        if self.views and value.role == "temporary" and len(readers) == 1 and readers[0].view[:1] == ("permute",):
            order = [int(k) for k in readers[0].view[1:]]
            if order[-1] == len(order) - 1:
                shape = [value.shape[k] for k in order]
                inverse = [order.index(k) for k in range(len(order))]
                return spread(shape, value.dtype).transpose(inverse)
        return spread(value.shape, value.dtype)

    def _lives(self, steps: Sequence[Group], runs: Sequence[Run]) -> list[Life]:
        """How long each value with memory of its own between kernels is needed.

        What is not near is needed in all turns of a run that makes it or reads it.
        """
        lives: dict[str, Life] = {}
        run_of = [run for run in runs for _ in run.steps]
        for number, step in enumerate(steps):
            for name in (*step.results, *step.arguments):
                root = self.root[name]
                value = self.values[root]
                if value.role != "temporary" or root in self.stored:
                    continue
                run, in_turns = run_of[number], run_of[number].turns > 1 and root not in self.near
                first = run.steps.start if in_turns else number
                last = run.steps.stop - 1 if in_turns else number
                lives[root] = Life(root, value.bytes, lives[root].first if root in lives else first, last)
        return list(lives.values())
