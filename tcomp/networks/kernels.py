"""The kernels of a network: one for each group that differs in text, layout or options, compiled side by side."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tcomp.backends.source import PACKED
from tcomp.bound.ahead import kernel_with_bound
from tcomp.errors import Diagnostic, NetworkError
from tcomp.mapping.options.options import MappingOptions
from tcomp.networks.grouping import Group
from tcomp.networks.kept.checked import checked
from tcomp.networks.network import Network, Value
from tcomp.networks.options import NetworkOptions
from tcomp.networks.storage import Storage
from tcomp.networks.views import Array, spread
from tcomp.operation import Operation
from tcomp.runtime.kernel import Kernel
from tcomp.storage.memo import Memo
from tcomp.storage.turns import working

T = TypeVar("T")


@dataclass(frozen=True)
class Step:
    """One kernel: the operation, the values that it reads and writes, and the number of its kernel.

    What runs outside has neither operation nor kernel, and the number -1.  ``advances`` has the bytes by which values
    lie further from turn to turn, where steps run in turns.
    """

    operation: Operation | None
    group: Group
    kernel: Kernel | None
    number: int
    advances: Mapping[str, int] = field(default_factory=dict)

    @property
    def weights(self) -> frozenset[str]:
        """The arguments that the kernel takes as bound ones."""
        part = None if self.kernel is None else self.kernel.specialisation.sizes.part
        return frozenset() if part is None else frozenset(self._values[name] for name in part.bound)

    @property
    def _values(self) -> dict[str, str]:
        """The values by the names that the operation has for its inputs."""
        inputs = () if self.operation is None else self.operation.function.inputs
        return {tensor.name: value for tensor, value in zip(inputs, self.group.arguments, strict=True)}

    @property
    def called(self) -> tuple[str, ...]:
        """The values that the kernel takes as arguments of a call: inputs, then outputs."""
        return (*(name for name in self.group.arguments if name not in self.weights), *self.group.results)

    @property
    def bound(self) -> tuple[str, ...]:
        """The values that it takes after those, in its order, without the memory of panels."""
        arguments = () if self.kernel is None else self.kernel.bound
        return tuple(self._values[argument.name] for argument in arguments if argument.name != PACKED)

    @property
    def packed(self) -> frozenset[str]:
        """Those of them that calls do not read, only their panels."""
        return frozenset() if self.kernel is None else frozenset(self._values[name] for name in self.kernel.packed)

    @property
    def panel_bytes(self) -> int:
        """The memory of the panels that are packed ahead."""
        last = self.kernel.bound[-1] if self.kernel is not None and self.kernel.bound else None
        return math.prod(last.shape) * last.dtype.itemsize if last is not None and last.name == PACKED else 0

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of what it reads and writes in one turn."""
        network = self.group.network
        names = (*self.group.arguments, *self.group.results)
        return {name: v.shape for name, v in zip(names, (*network.inputs, *network.outputs), strict=True)}

    @property
    def told(self) -> str:
        """The defs that it computes, in order."""
        return " + ".join(call.function for call in self.group.calls)


class Operations:
    """The operations of groups, each read once for all that have the same text, by whichever thread wants it first."""

    def __init__(self, network: Network) -> None:
        self._source = network.name
        self._made: Memo[str, Operation] = Memo()

    def __call__(self, group: Group) -> Operation:
        """The operation of a group.  Raises CompileError."""
        *defs, layer = group.network.parts
        read = functools.partial(checked, layer, group.network.name, self._source, defs)
        return self._made.get("".join((*defs, layer)), read)


def compiled(
    network: Network,
    storage: Storage,
    options: NetworkOptions,
    operations: Operations,
    advances: Sequence[Mapping[str, int]] = (),
) -> tuple[Step, ...]:
    """The steps, each with its kernel.  Raises what compiling a def raises, and NetworkError."""
    chosen = _chosen(storage.steps, options.kernels)
    wanted: dict[tuple[Any, ...], tuple[Group, MappingOptions | None, frozenset[str]]] = {}
    keys: list[tuple[Any, ...] | None] = []
    for group in storage.steps:
        if group.outside is not None:
            keys.append(None)
            continue
        text, option = str(group.network), chosen.get(id(group))
        layouts = tuple(storage.layouts[name].strides for name in (*group.arguments, *group.results))
        weights = _weights(network, storage, group) if options.pack_weights else frozenset()
        key = (text, layouts, option, tuple(name in weights for name in group.arguments))
        wanted.setdefault(key, (group, option, weights))
        keys.append(key)

    def array(name: str, value: Value) -> Array:
        return spread(value.shape, value.dtype, storage.layouts[name].strides)

    def kernel_of(group: Group, option: MappingOptions | None, weights: frozenset[str]) -> Kernel:
        # Read here, a def is compiled while others are read.
        operation = operations(group)
        out = tuple(map(array, group.results, group.network.outputs))
        arguments = list(map(array, group.arguments, group.network.inputs))
        inputs = operation.function.inputs
        names = {tensor.name for tensor, name in zip(inputs, group.arguments, strict=True) if name in weights}
        if names and not operation.function.recurs:
            kernel = kernel_with_bound(operation.function, names, arguments, out, option)
            # Otherwise something besides panels would have to be computed ahead: folding does that.
            if {argument.name for argument in kernel.bound} <= {*names, PACKED}:
                return kernel
        return operation.compile(*arguments, out=out, target="cpu", options=option)

    kernels = dict(zip(wanted, side_by_side(kernel_of, list(wanted.values()), options.workers), strict=True))
    numbers = {key: number for number, key in enumerate(wanted)}
    return tuple(
        Step(None, group, None, -1)
        if key is None
        else Step(operations(wanted[key][0]), group, kernels[key], numbers[key], further)
        for key, group, further in zip(keys, storage.steps, advances or [{}] * len(keys), strict=True)
    )


def _weights(network: Network, storage: Storage, group: Group) -> frozenset[str]:
    """The arguments of a group of which panels may be packed ahead: weights that are matrices at least."""
    values = network.by_name
    every = frozenset(name for name in group.arguments if storage.layouts[name].root in network.weights)
    return frozenset(name for name in every if len(values[name].shape) > 1 and len(every) < len(group.arguments))


def side_by_side(make: Callable[..., T], wanted: Sequence[tuple[Any, ...]], workers: int) -> list[T]:
    """What ``make`` gives for each; while C compilers work on some kernels, ``workers`` others are planned."""
    if workers == 1 or len(wanted) < 2 or threading.current_thread() is not threading.main_thread():
        return [make(*one) for one in wanted]
    # More threads than processors only wait, each for its compiler: at work they would take Python from each other.
    turns = threading.Semaphore(workers)

    def in_turn(*one: Any) -> T:
        with working(turns):
            return make(*one)

    with ThreadPoolExecutor(2 * workers) as pool:
        futures = [pool.submit(in_turn, *one) for one in wanted]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _chosen(steps: Sequence[Group], given: Mapping[str, MappingOptions]) -> dict[int, MappingOptions]:
    """The options of groups, by the names of what they make.  Raises NetworkError for a name that none makes."""
    found: dict[int, MappingOptions] = {}
    makers = {name: group for group in steps for call in group.calls for name in call.results}
    for name, options in given.items():
        if name not in makers:
            hint = "explain() tells what each kernel makes"
            raise NetworkError(Diagnostic(f"no kernel of the network makes {name}", hint=hint))
        found[id(makers[name])] = options
    return found
