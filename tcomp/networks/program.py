"""A compiled network: a kernel for each group of calls, one block of memory for what lies between them."""

from __future__ import annotations

import functools
import itertools
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tcomp import debug
from tcomp.backends.host.chains import MOST_ARRAYS, Chain, Failure, Link
from tcomp.errors import Diagnostic, ShapeError, TcompError
from tcomp.networks.batches.splitting import split
from tcomp.networks.grouping import group
from tcomp.networks.kept import checked
from tcomp.networks.kept.panels import Keeper, Panels
from tcomp.networks.kernels import Operations, Step, compiled, side_by_side
from tcomp.networks.lowering.passes import Lowered, lower
from tcomp.networks.network import Network, Value
from tcomp.networks.options import NetworkOptions
from tcomp.networks.placing import ALIGNMENT, Life, Places
from tcomp.networks.precision.agreement import Agreement
from tcomp.networks.storage import Layout, Run, stored
from tcomp.networks.studies.explaining import explained
from tcomp.networks.studies.profile import Profile, Row
from tcomp.networks.uncollected import uncollected
from tcomp.storage.cache import store

if TYPE_CHECKING:
    from tcomp.networks.studies.tuning import NetworkTuning
    from tcomp.pictures.canvas import Picture

Array = np.ndarray[Any, np.dtype[Any]]

_ARENA, _WEIGHTS, _FIRST = 0, 1, 2
"""The bases of a chain: the block of memory, address 0 for weights, then inputs and outputs."""


class CompiledNetwork:
    """``net(x)`` runs a network; several threads may call it at once.

    Results are NumPy arrays, or tensors of torch where the first input is one.  ``stages`` has the network after each
    pass, ``network`` is the last of them and ``source`` the first.  ``agreement`` says how far results are from those
    in floats, where that was measured.
    """

    agreement: Agreement | None = None

    @uncollected()
    def __init__(
        self,
        network: Network,
        options: NetworkOptions | Mapping[str, Any] | None = None,
        kept: Iterable[tuple[str, str, str, bytes]] = (),
        *,
        passed: bool = False,
    ) -> None:
        """Compile; ``kept`` is for the cache, and ``passed`` says that the passes have been done.

        Raises NetworkError, and what compiling a def raises.
        """
        for kind, key, label, content in kept:
            if store().get(kind, key) is None:
                store().put(kind, key, label, content)
        self.options = NetworkOptions.of(options)
        self.source = network
        with Keeper(network, self.options) as keeper:
            self._compile(keeper, passed=passed)

    def _compile(self, keeper: Keeper, *, passed: bool) -> None:
        network = self.source
        lowered = Lowered({"source": network}) if passed else lower(network, self.options)
        self.stages, self.choices, self.rewrites = lowered.stages, lowered.choices, lowered.rewrites
        self.network = list(self.stages.values())[-1]
        keeper.expect(self.network)
        self._values = self.network.by_name
        groups = group(self.network, followers=self.options.join_followers)
        self._storage = stored(self.network, groups, views=self.options.views, share=self.options.share_memory)
        operations = Operations(self.network)
        advances: tuple[dict[str, int], ...] = ()
        found = split(self.network, groups, self._storage, operations) if self.options.split_batch else None
        if found is not None:
            self._storage = found.stored(self.network, views=self.options.views, share=self.options.share_memory)
            advances = found.advances(self.network, self._storage)
        self.steps: tuple[Step, ...] = compiled(self.network, self._storage, self.options, operations, advances)
        self.kernels = len({step.number for step in self.steps if step.kernel is not None})
        self._weights: dict[str, Array] = {}
        """Those that kernels read where they lie.  Of others only panels are kept: who asks has them computed again."""
        ends = [value.name for value in (*self.network.inputs, *self.network.outputs)]
        self._slots = {name: _FIRST + number for number, name in enumerate(ends)}
        self._panels = keeper.rooms(self._wanted())
        self._parts: list[tuple[Chain | None, range]] = self._linked()
        # Several at a time: meanwhile the weights of others are turned or transformed.
        keeper.fill(self._original, functools.partial(side_by_side, workers=self.options.workers))
        self._arenas: list[Array] = []

    @property
    def lives(self) -> tuple[Life, ...]:
        """How long each result between kernels is needed."""
        return self._storage.lives

    @property
    def places(self) -> Places:
        """Where these lie in their block of memory."""
        return self._storage.places

    @property
    def runs(self) -> tuple[Run, ...]:
        """The steps in order: those that are done together, and in how many turns."""
        return self._storage.runs

    @property
    def weight_bytes(self) -> int:
        """The memory of the weights that kernels read where they lie."""
        return sum(array.nbytes for array in self._weights.values())

    @property
    def panel_bytes(self) -> int:
        """The memory of the panels of weights that were packed ahead."""
        return sum(panels.nbytes for panels in self._panels.values())

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
        rows = tuple(self._row(step, float(t)) for step, t in zip(self.steps, times, strict=True))
        return Profile(rows, self.agreement)

    def tune(self, *inputs: Any, budget: float = 60.0, again: bool = False, **search: Any) -> NetworkTuning:
        """Search for faster options for each distinct kernel, and run with them from now on.

        What is found is kept, so other networks with such a kernel use it, too.  Kernels that were tuned before are
        not searched for again.  If the whole network is no faster, it stays as it was.

        Args:
            inputs: as for a call; the network is measured with them.
            budget: seconds of wall time for all searches; the kernels that take most get most of it.
            again: search for kernels, too, that were tuned before.
            search: ``strategy``, ``seed``, ``jobs``, ``executor`` and ``watch``, as for the ``tune`` of an operation.

        Raises:
            ShapeError: inputs do not fit.
            TcompError: a parameter of the search is wrong.
            KeyboardInterrupt: Ctrl-C; what was found until then is kept.
        """
        from tcomp.networks.studies.tuning import tune  # noqa: PLC0415  (few processes tune)

        result, faster = tune(self, inputs, budget, search, again=again)
        if faster is not None:
            same = ("stages", "choices", "rewrites", "source")
            vars(self).update({name: value for name, value in vars(faster).items() if name not in same})
        return result

    def picture(self, *inputs: Any) -> Picture:
        """The kernels in order, what each reads, and where results lie in their block of memory, step by step.

        Given inputs, kernels are coloured by the share of the time that they take.  The picture shows itself in a
        notebook, and ``save(path)`` writes it as SVG or PNG.  Raises ShapeError for inputs that do not fit, and
        MissingPackageError without matplotlib.
        """
        from tcomp.networks.studies.drawing import draw  # noqa: PLC0415  (few processes draw)

        return draw(self, [row.seconds for row in self.profile(*inputs).rows] if inputs else [])

    def layout_of(self, name: str) -> Layout:
        """How the elements of a value lie in memory."""
        return self._storage.layouts[name]

    @property
    def entries(self) -> int:
        """How many calls of C, or of Python where there is none, one call of the network makes."""
        return sum(len(steps) if chain is None else 1 for chain, steps in self._parts)

    def explain(self) -> str:
        """What runs, one line a kernel, and where its results lie."""
        return explained(self)

    def kept(self) -> Iterator[tuple[str, str, str, bytes]]:
        """What the cache has of the kernels: kind, key, label and content of each entry."""
        for kernel in {step.number: step.kernel for step in self.steps}.values():
            if kernel is not None:
                yield from kernel.kept()
        texts = dict.fromkeys((str(s.group.network), s.group.network.name) for s in self.steps if s.kernel is not None)
        for text, name in texts:
            yield from checked.kept(text, name)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the network, its weights and its kernels into one file, which ``tcomp.load_network`` reads.

        Raises NetworkError if that cannot be written.
        """
        from tcomp.networks.saving import save  # noqa: PLC0415  (it reads, too, and makes networks)

        save(self, Path(path))

    def export(self, folder: str | os.PathLike[str], name: str = "network") -> tuple[Path, ...]:
        """Write the network as C, with its weights, a library and an example: for use without tcomp and Python.

        Args:
            folder: where the files go; it is made if it is not there.
            name: what the function is called.

        Raises:
            NetworkError: a part of it runs outside of tcomp, or the name is none in C.
            TcompError: a file cannot be written.
            TargetError: the compiler is missing, or fails.
        """
        from tcomp.networks.exporting import export  # noqa: PLC0415  (few processes export)

        return export(self, Path(folder), name)

    def place_of(self, name: str) -> tuple[str, int]:
        """Where a value lies: a weight, an input, an output or ``""`` for the block between, and how far from there."""
        layout = self._storage.layouts[name]
        root = self._storage.stored.get(layout.root, layout.root)
        if root in self.network.weights or root in self._slots:
            return root, layout.offset
        return "", self.places.offsets[root] + layout.offset

    def _row(self, step: Step, seconds: float) -> Row:
        moved = sum(self._values[name].bytes for name in (*step.group.arguments, *step.group.results))
        return Row(step.told, step.group.calls[0].place, seconds, step.group.results[0], step.number, moved)

    def _linked(self) -> list[tuple[Chain | None, range]]:
        """Runs of steps that are one call of C; those without a chain are called one by one."""
        parts: list[tuple[Chain | None, range]] = []
        linked: list[tuple[int, list[tuple[Link, list[tuple[int, int, int]]]]]] = []

        def hold(steps: range) -> None:
            for name in (name for number in steps for name in self.steps[number].group.arguments):
                self._base(name)

        def close(end: int) -> None:
            start = parts[-1][1].stop if parts else 0
            if start < end:
                try:
                    chain: Chain | None = Chain(linked, _FIRST + len(self._slots))
                except TcompError as error:
                    debug.log(1, f"kernels of a network are called one by one: {error}")
                    chain = None
                    hold(range(start, end))
                parts.append((chain, range(start, end)))
                linked.clear()

        for run in self.runs:
            together = [run.steps] if run.turns > 1 else [range(number, number + 1) for number in run.steps]
            for steps in together:
                links = [self._link(self.steps[number]) for number in steps]
                known = [link for link in links if link is not None]
                if len(known) == len(links):
                    linked.append((run.turns, known))
                else:
                    close(steps.start)
                    parts.append((None, steps))
                    hold(steps)
        close(len(self.steps))
        return parts

    def _link(self, step: Step) -> tuple[Link, list[tuple[int, int, int]]] | None:
        """A step as one of a chain, if it can be."""
        if (link := self._link_alone(step)) is None:
            return None
        called = [(*self._base(name), step.advances.get(name, 0)) for name in step.called]
        bound = [(_WEIGHTS, 0) if name in step.packed else self._base(name) for name in step.bound]
        panels = self._panels.get((step.number, step.bound))
        bound += [] if panels is None else [(_WEIGHTS, panels.ctypes.data)]
        return link, called + [(*place, 0) for place in bound]

    def _link_alone(self, step: Step) -> Link | None:
        """The kernel of a step, if it can be part of a chain."""
        if step.kernel is None or not self.options.one_call:
            return None
        return step.kernel.link() if len(step.called) + len(step.kernel.bound) <= MOST_ARRAYS else None

    def _wanted(self) -> dict[tuple[int, tuple[str, ...]], Panels]:
        """The panels of all steps in chains: those of steps with one kernel and the same weights are the same."""
        return {
            (step.number, step.bound): Panels(step.kernel, tuple(map(self.place_of, step.bound)), step.panel_bytes)
            for step in self.steps
            if step.kernel is not None and step.panel_bytes and self._link_alone(step) is not None
        }

    def _base(self, name: str) -> tuple[int, int]:
        """The base of a value, and how far from it the value lies."""
        root, offset = self.place_of(name)
        if root in self._slots:
            return self._slots[root], offset
        if not root:
            return _ARENA, offset
        array = self._weights[root] = self._original(root)
        return _WEIGHTS, array.ctypes.data + offset

    def _original(self, root: str) -> Array:
        """A weight in C order."""
        if (kept := self._weights.get(root)) is not None:
            return kept
        array = self.network.weights[root]
        return np.ascontiguousarray(array).reshape(array.shape)

    def _run(self, inputs: tuple[Any, ...], *, timed: bool) -> tuple[tuple[Array, ...], list[float]]:
        given = self._given(inputs)
        results = tuple(np.empty(value.shape, value.dtype) for value in self.network.outputs)
        try:
            # One step for the interpreter: another thread may take the last one between a look and this.
            arena = self._arenas.pop()
        except IndexError:
            arena = np.empty(self.places.bytes + ALIGNMENT, np.uint8)
        try:
            start = arena.ctypes.data
            bases = [start + -start % ALIGNMENT, 0, *(array.ctypes.data for array in (*given, *results))]
            times: list[float] = []
            for chain, steps in self._parts:
                if chain is None or debug.interpret():
                    times += self._one_by_one(arena, (*given, *results), steps)
                    continue
                failure, found = chain.timed(bases) if timed else (chain.run(bases), [])
                if failure is not None:
                    raise self._failed(failure, steps.start)
                times += [1e-9 * t for t in found]
            return results, times
        finally:
            self._arenas.append(arena)

    def _failed(self, failure: Failure, first: int) -> TcompError:
        kernel = self.steps[first + failure.step].kernel
        if failure.status != 1 or kernel is None:
            return TcompError(f"a kernel ended with status {failure.status}")
        return kernel.failure(failure.report)

    def _one_by_one(self, arena: Array, ends: tuple[Array, ...], steps: range) -> list[float]:
        """Call some steps from here; how long each took."""
        start = -arena.ctypes.data % ALIGNMENT
        memory = {name: array.reshape(-1).view(np.uint8) for name, array in zip(self._slots, ends, strict=True)}
        memory |= {name: arena[start + offset :] for name, offset in self.places.offsets.items()}

        def array(step: Step, name: str, turn: int) -> Array:
            layout, value = self._storage.layouts[name], self._values[name]
            root = self._storage.stored.get(layout.root, layout.root)
            room = memory[root] if root in memory else self._original(root).reshape(-1).view(np.uint8)
            first = layout.offset + turn * step.advances.get(name, 0)
            return np.ndarray(step.shapes[name], value.dtype, room, first, layout.strides)

        times = dict.fromkeys(steps, 0.0)
        for run in self.runs:
            for turn, number in itertools.product(range(run.turns), run.steps):
                if number in times:
                    step, before = self.steps[number], time.perf_counter()
                    out = tuple(array(step, name, turn) for name in step.group.results)
                    self._call(step, [array(step, name, turn) for name in step.group.arguments], out)
                    times[number] += time.perf_counter() - before
        return list(times.values())

    def _call(self, step: Step, arguments: Sequence[Array], out: tuple[Array, ...]) -> None:
        if step.operation is not None:
            step.operation(*arguments, out=out if len(out) > 1 else out[0], target="cpu")
        elif (function := step.group.outside) is not None:
            _copied(self.network.name, step, function(*arguments), out)

    def _given(self, inputs: tuple[Any, ...]) -> tuple[Array, ...]:
        """The inputs as arrays.  Raises ShapeError."""
        if len(inputs) != len(expected := self.network.inputs):
            raise ShapeError(f"{self.network.name} takes {len(expected)} inputs, not {len(inputs)}")
        return tuple(_array(value, given) for value, given in zip(expected, inputs, strict=True))


def _array(value: Value, given: Any) -> Array:
    """An input as an array in C order and this machine's order of bytes.  Raises ShapeError."""
    if getattr(given, "requires_grad", False) and sys.modules["torch"].is_grad_enabled():
        hint = "detach() it, or call the network under torch.no_grad()"
        raise ShapeError(Diagnostic(f"{value.name} requires a gradient, and networks compute none", hint=hint))
    try:
        array = np.asarray(given.detach() if hasattr(given, "detach") else given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ShapeError(f"{value.name} cannot be read as an array: {error}") from error
    found = array.dtype.name
    if (array.shape, found) != (value.shape, value.dtype):
        raise ShapeError(f"{value.name} must be {value.dtype} of {value.shape}, not {found} of {array.shape}")
    return np.require(array, np.dtype(value.dtype), requirements=("C", "A")).reshape(value.shape)


def _copied(network: str, step: Step, found: Sequence[Any], out: tuple[Array, ...]) -> None:
    """Put what ran outside where it belongs.  Raises ShapeError if that has another shape than was said."""
    for array, made in zip(out, found, strict=True):
        if np.shape(made) != array.shape:
            raise ShapeError(f"{step.told} of {network} gave {np.shape(made)} and not {array.shape}")
        array[...] = made
