"""A compiled network: a kernel for each group of calls, one block of memory for what lies between them."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcomp.engine import define
from tcomp.errors import NetworkError, ShapeError
from tcomp.networks.folding import fold_norms
from tcomp.networks.grouping import Group, group
from tcomp.networks.network import Network, Value
from tcomp.networks.placing import ALIGNMENT, Life, Places, overlap, place
from tcomp.networks.profile import Profile, Row
from tcomp.operation import Operation

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Step:
    """One kernel: the operation, and the values that it reads and writes."""

    operation: Operation
    group: Group


class CompiledNetwork:
    """``net(x)`` runs a network; several threads may call it at once.

    Results are NumPy arrays, or tensors of torch where the first input is one.
    """

    def __init__(self, network: Network) -> None:
        """Compile.  Raises NetworkError, and what compiling a def raises."""
        self.source = network
        self.network = fold_norms(network)
        self._values = self.network.by_name
        self._groups = group(self.network)
        self._root = _roots(self._groups)
        self._stored = _stored_in(self.network, self._root)
        operations: dict[str, Operation] = {}
        self.steps: list[Step] = []
        for one in self._groups:
            if one.view and self._is_alias(one):
                continue
            text = str(one.network)
            if text not in operations:
                operations[text] = define(text, self.network.name)[one.network.name]
            self.steps.append(Step(operations[text], one))
        self.kernels = len({id(step.operation) for step in self.steps})
        self.lives = tuple(self._lives())
        self.places: Places = place(self.lives)
        if (found := overlap(self.lives, self.places)) is not None:
            raise NetworkError(f"{found[0]} and {found[1]} of {self.network.name} lie in one place")
        self._arenas: list[dict[str, Array]] = []
        self._compile()

    def __call__(self, *inputs: Any) -> Any:
        """What the network gives for inputs of the shapes for which it was compiled.  Raises ShapeError."""
        results, _ = self._run(inputs, timed=False)
        if inputs and type(inputs[0]).__module__.partition(".")[0] == "torch":
            results = tuple(sys.modules["torch"].from_numpy(result) for result in results)
        return results[0] if len(results) == 1 else results

    def profile(self, *inputs: Any, repeats: int = 20) -> Profile:
        """The median time that each kernel takes in ``repeats`` runs of the whole network."""
        self._run(inputs, timed=True)
        times = np.median([self._run(inputs, timed=True)[1] for _ in range(max(1, repeats))], axis=0)
        rows = zip(self.steps, times, strict=True)
        return Profile(tuple(Row(_told(step.group), step.group.calls[0].place, float(t)) for step, t in rows))

    def explain(self) -> str:
        """What runs, one line a kernel, and where its results lie."""
        weights = sum(array.nbytes for array in self.network.weights.values())
        apart = sum(life.bytes for life in self.lives)
        numbers: dict[int, int] = {}
        lines = [
            f"{self.network.name}: {len(self.source.calls)} calls, {len(self.steps)} steps, {self.kernels} kernels",
            f"weights {weights:,} bytes; results between kernels {self.places.bytes:,} bytes ({apart:,} if apart)",
        ]
        for number, step in enumerate(self.steps):
            kernel = numbers.setdefault(id(step.operation), len(numbers))
            name = step.group.results[0]
            root = self._root.get(name, name)
            where = f"at {self.places.offsets[root]:,}" if root in self.places.offsets else "a result"
            shape = "x".join(map(str, self._values[name].shape))
            lines.append(f"{number:4} kernel {kernel:<4} {name} ({shape}, {where}): {_told(step.group)}")
        return "\n".join(lines)

    def _is_alias(self, one: Group) -> bool:
        """Whether a view needs no step: its elements lie where those of its argument do."""
        return one.results[0] in self._root

    def _lives(self) -> list[Life]:
        """How long each value in the arena is needed."""
        lives: dict[str, Life] = {}
        for number, step in enumerate(self.steps):
            for name in (*step.group.results, *step.group.arguments):
                root = self._root.get(name, name)
                value = self._values[root]
                if value.role in ("input", "weight") or root in self._stored:
                    continue
                first = lives[root].first if root in lives else number
                lives[root] = Life(root, value.bytes, first, number)
        return list(lives.values())

    def _arena(self) -> dict[str, Array]:
        """Weights, and a new block of memory as the values that lie in it."""
        block = np.zeros(self.places.bytes + ALIGNMENT, np.uint8)
        start = -block.ctypes.data % ALIGNMENT
        arrays: dict[str, Array] = dict(self.network.weights)
        for name, offset in self.places.offsets.items():
            value = self._values[name]
            bytes_of = block[start + offset : start + offset + value.bytes]
            arrays[name] = bytes_of.view(value.dtype).reshape(value.shape)
        for name, root in self._root.items():
            if root in arrays:
                arrays[name] = arrays[root].reshape(self._values[name].shape)
        return arrays

    def _compile(self) -> None:
        """Compile each kernel for the layouts that it will be called with."""
        arrays = self._arena() | {v.name: np.zeros(v.shape, v.dtype) for v in self.network.inputs}
        self._bind_results(arrays)
        for operation, step in {id(s.operation): (s.operation, s) for s in self.steps}.values():
            out = tuple(arrays[name] for name in step.group.results)
            operation.compile(*(arrays[name] for name in step.group.arguments), out=out, target="cpu")

    def _bind_results(self, arrays: dict[str, Array]) -> tuple[Array, ...]:
        """New arrays for the outputs; a value of which an output is a view is written there."""
        made = []
        for value in self.network.outputs:
            result = np.empty(value.shape, value.dtype)
            arrays[value.name] = result
            made.append(result)
        for root, name in self._stored.items():
            arrays[root] = arrays[name].reshape(self._values[root].shape)
        for name, root in self._root.items():
            if root in self._stored or self._values[root].role in ("input", "output"):
                arrays[name] = arrays[root].reshape(self._values[name].shape)
        return tuple(arrays[value.name] for value in self.network.outputs)

    def _run(self, inputs: tuple[Any, ...], *, timed: bool) -> tuple[tuple[Array, ...], list[float]]:
        try:
            # One step for the interpreter: another thread may take the last one between a look and this.
            arena = self._arenas.pop()
        except IndexError:
            arena = self._arena()
        try:
            arrays = arena | self._given(inputs)
            results = self._bind_results(arrays)
            times = []
            for step in self.steps:
                start = time.perf_counter() if timed else 0.0
                one = step.group
                out = arrays[one.results[0]] if len(one.results) == 1 else tuple(arrays[n] for n in one.results)
                step.operation(*(arrays[name] for name in one.arguments), out=out, target="cpu")
                times.append(time.perf_counter() - start if timed else 0.0)
            return results, times
        finally:
            self._arenas.append(arena)

    def _given(self, inputs: tuple[Any, ...]) -> dict[str, Array]:
        """The inputs as arrays, by name.  Raises ShapeError."""
        expected = self.network.inputs
        if len(inputs) != len(expected):
            raise ShapeError(f"{self.network.name} takes {len(expected)} inputs, not {len(inputs)}")
        return {value.name: _array(value, given) for value, given in zip(expected, inputs, strict=True)}


def _array(value: Value, given: Any) -> Array:
    """An input as an array in C order.  Raises ShapeError."""
    array = np.asarray(given.detach() if hasattr(given, "detach") else given)
    if array.shape != value.shape or array.dtype.name != value.dtype:
        raise ShapeError(
            f"{value.name} must be {value.dtype} of {value.shape}, not {array.dtype.name} of {array.shape}"
        )
    return np.ascontiguousarray(array).reshape(value.shape)


def _roots(groups: tuple[Group, ...]) -> dict[str, str]:
    """What each view is a view of, however many lie between."""
    root: dict[str, str] = {}
    for one in groups:
        if one.view:
            root[one.results[0]] = root.get(one.arguments[0], one.arguments[0])
    return root


def _stored_in(network: Network, root: dict[str, str]) -> dict[str, str]:
    """Values that are written where an output lies that is a view of them; of other views that are outputs forget."""
    stored: dict[str, str] = {}
    known = network.by_name
    for value in network.outputs:
        source = root.get(value.name)
        if source is None:
            continue
        if known[source].role == "temporary" and source not in stored:
            stored[source] = value.name
        else:
            del root[value.name]
    return stored


def _told(one: Group) -> str:
    """The defs of a group, in order."""
    return " + ".join(call.function for call in one.calls)
