"""Panels of weights, kept on disk: a network that starts again neither transforms nor packs its weights.

An entry is read into the memory in which panels stay, not mapped: no other process can change it then, and it has
large pages.  It is found by the network's text and options, the bytes of its weights, the compiler and the text of the
kernel.  What is found is believed as the cache's other entries are.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcomp.backends.host import toolchain
from tcomp.errors import TcompError
from tcomp.mapping.machines.fitted.networks import KEPT
from tcomp.networks.network import Network
from tcomp.networks.options import NetworkOptions
from tcomp.runtime.kernel import Kernel
from tcomp.runtime.specialisation import build_identity
from tcomp.storage.cache import store
from tcomp.version import __version__

_KIND = "panels"

_SHARE = 4
"""Panels of one network take no more than this part of the cache, so that they drive no kernels out."""

Array = np.ndarray[Any, np.dtype[Any]]
Digests = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Panels:
    """Memory for the panels that a kernel reads, and the weights of which they are packed.

    ``bound`` has, in the order of the kernel, the names of weights in C order and bytes from where these begin.
    """

    kernel: Kernel
    bound: tuple[tuple[str, int], ...]
    room: Array

    def pack(self, original: Callable[[str], Array]) -> None:
        """Fill the memory from weights, which ``original`` gives by name in C order."""
        arrays = [original(root) for root, _ in self.bound]
        starts = [array.ctypes.data + offset for array, (_, offset) in zip(arrays, self.bound, strict=True)]
        self.kernel.pack([*starts, self.room.ctypes.data])


class Keeper:
    """Fills panels of one network, from the cache where that has them.

    The bytes of the weights, on which keys depend, are looked at while kernels are compiled.
    """

    def __init__(self, source: Network, options: NetworkOptions) -> None:
        """``source`` is the network as it was given, of which all weights come."""
        self._source = source
        self._options = options
        self._pool: ThreadPoolExecutor | None = None
        self._digests: Future[Digests] | None = None
        size = sum(value.bytes for value in source.of_role("weight"))
        self._keeps = options.pack_weights and store().directory is not None and size >= KEPT.least_bytes
        if any(definition.outside is not None for definition in source.definitions.values()):
            self._keeps = False  # what these do has no text
        if self._keeps and options.workers > 1 and threading.current_thread() is threading.main_thread():
            self._pool = ThreadPoolExecutor(1)
            self._digests = self._pool.submit(self._digested)

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def fill(
        self,
        wanted: Sequence[Panels],
        network: Network,
        original: Callable[[str], Array],
        each: Callable[[Callable[[Panels], None], Sequence[tuple[Panels]]], object],
    ) -> None:
        """Fill panels; ``network`` is what the passes made, and ``each`` does something for all, perhaps at once.

        Raises what computing weights raises.
        """
        limit, size = store().limit, sum(panels.room.nbytes for panels in wanted)
        keeps = self._keeps and bool(wanted) and (limit is None or size <= limit // _SHARE)
        digests = self._first_digests() if keeps else None
        named = None if digests is None else self._named(network, digests)
        packed: list[tuple[str, Panels]] = []

        def fill_one(panels: Panels) -> None:
            key = None
            if named is not None:
                facts = (named, panels.kernel.source, panels.bound, panels.room.nbytes)
                key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
                if store().get_into(_KIND, key, panels.room.data.cast("B")):
                    return
            panels.pack(original)
            if key is not None:
                packed.append((key, panels))

        each(fill_one, [(panels,) for panels in wanted])
        # Who shares its weights may have written them in the meantime.
        if packed and self._digested() == digests:
            for key, panels in packed:
                label = f"{network.name}, {', '.join(name for name, _ in panels.bound)}"
                store().put(_KIND, key, label, panels.room.data.cast("B"))

    def _named(self, network: Network, digests: Digests) -> str | None:
        """A digest of all on which the weights of a network depend; None where nobody knows the compiler."""
        try:
            compiler = toolchain.find().identity
        except TcompError:
            return None
        facts = (__version__, build_identity(), np.__version__, compiler, digests, self._options.told)
        return hashlib.sha256(json.dumps((*facts, str(self._source), str(network))).encode()).hexdigest()

    def _first_digests(self) -> Digests:
        """Those of the weights as they were at the beginning."""
        return self._digested() if self._digests is None else self._digests.result()

    def _digested(self) -> Digests:
        """A digest of the elements of each weight, by its name."""
        weights = self._source.weights
        return tuple((name, hashlib.sha256(_elements(weights[name])).hexdigest()) for name in sorted(weights))


def _elements(array: Array) -> memoryview:
    """The bytes of an array; those of types that are not NumPy's own have no buffer."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
