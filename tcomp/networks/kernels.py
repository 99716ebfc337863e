"""The kernels of a network: one for each group that differs in text, layout or options, compiled side by side."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tcomp.engine import define
from tcomp.errors import Diagnostic, NetworkError
from tcomp.mapping.options.options import MappingOptions
from tcomp.networks.grouping import Group
from tcomp.networks.network import Network
from tcomp.networks.options import NetworkOptions
from tcomp.networks.storage import Storage
from tcomp.networks.views import Array, spread
from tcomp.operation import Operation
from tcomp.runtime.kernel import Kernel


@dataclass(frozen=True)
class Step:
    """One kernel: the operation, the values that it reads and writes, and the number of its kernel.

    What runs outside has neither operation nor kernel, and the number -1.
    """

    operation: Operation | None
    group: Group
    kernel: Kernel | None
    number: int


def compiled(network: Network, storage: Storage, options: NetworkOptions) -> tuple[Step, ...]:
    """The steps, each with its kernel.  Raises what compiling a def raises, and NetworkError."""
    chosen = _chosen(storage.steps, options.kernels)
    operations: dict[str, Operation] = {}
    wanted: dict[tuple[Any, ...], tuple[Operation, Group, MappingOptions | None]] = {}
    keys: list[tuple[Any, ...] | None] = []
    for group in storage.steps:
        if group.outside is not None:
            keys.append(None)
            continue
        text = str(group.network)
        if text not in operations:
            operations[text] = define(text, network.name)[group.network.name]
        option = chosen.get(id(group))
        layouts = tuple(storage.layouts[name].strides for name in (*group.arguments, *group.results))
        key = (text, layouts, option)
        wanted.setdefault(key, (operations[text], group, option))
        keys.append(key)
    values = network.by_name

    def array(name: str) -> Array:
        layout, value = storage.layouts[name], values[name]
        return spread(value.shape, value.dtype, layout.strides)

    def kernel_of(operation: Operation, group: Group, option: MappingOptions | None) -> Kernel:
        out = tuple(array(name) for name in group.results)
        return operation.compile(*(array(name) for name in group.arguments), out=out, target="cpu", options=option)

    kernels = dict(zip(wanted, _side_by_side(kernel_of, list(wanted.values()), options.workers), strict=True))
    numbers = {key: number for number, key in enumerate(wanted)}
    return tuple(
        Step(None, group, None, -1) if key is None else Step(wanted[key][0], group, kernels[key], numbers[key])
        for key, group in zip(keys, storage.steps, strict=True)
    )


def _side_by_side(make: Any, wanted: Sequence[tuple[Any, ...]], workers: int) -> list[Kernel]:
    """What ``make`` gives for each; while a C compiler works on one kernel, others are planned."""
    if workers == 1 or len(wanted) < 2 or threading.current_thread() is not threading.main_thread():
        return [make(*one) for one in wanted]
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(make, *one) for one in wanted]
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
