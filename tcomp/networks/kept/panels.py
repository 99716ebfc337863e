"""Panels of weights, kept on disk: a network that starts again neither transforms nor packs its weights.

All panels of a network lie one after another in a few parts, each an entry, so that a thread reads them without Python
while kernels are looked for.  An entry is read into the memory in which panels stay, not mapped: no other process can
change it then, and it has large pages.  It is found by the network's text and options, the bytes of its weights, the
compiler and the texts of the kernels.  A list, found by all of that but the kernels, says what the network had when it
was compiled last.  What is found is believed as the cache's other entries are.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from tcomp.backends.arena import ALIGNMENT
from tcomp.backends.host import toolchain
from tcomp.bound.ahead import aligned
from tcomp.errors import TcompError
from tcomp.mapping.machines.fitted.networks import KEPT
from tcomp.networks.network import Network
from tcomp.networks.options import NetworkOptions
from tcomp.runtime.kernel import Kernel
from tcomp.runtime.specialisation import build_identity
from tcomp.storage.cache import store
from tcomp.storage.memo import Memo
from tcomp.version import __version__

_KIND = "panels"
_LIST = "panellist"

_SHARE = 4
"""Panels of one network take no more than this part of the cache, so that they drive no kernels out."""

Array = np.ndarray[Any, np.dtype[Any]]
K = TypeVar("K", bound=Hashable)
Digests = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Panels:
    """The panels that a kernel reads, so many bytes, and the weights of which they are packed.

    ``bound`` has, in the order of the kernel, the names of weights in C order and bytes from where these begin.
    """

    kernel: Kernel
    bound: tuple[tuple[str, int], ...]
    size: int

    def pack(self, room: Array, original: Callable[[str], Array]) -> None:
        """Fill memory from weights, which ``original`` gives by name in C order."""
        arrays = [original(root) for root, _ in self.bound]
        starts = [array.ctypes.data + offset for array, (_, offset) in zip(arrays, self.bound, strict=True)]
        self.kernel.pack([*starts, room.ctypes.data])


@dataclass(frozen=True, slots=True)
class _Part:
    """Memory for some panels, and the key of their entry, empty where there is none, which a thread may be reading."""

    room: Array
    held: tuple[tuple[Panels, Array], ...]
    key: str
    read: Future[bool] | None

    def fill(self) -> bool:
        """Whether the cache has it."""
        if not self.key:
            return False
        if self.read is not None and not self.read.cancel():
            return self.read.result()
        return _read(self.key, self.room)


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A name for a network and its weights, empty where panels are not kept, and the parts that are being read."""

    named: str
    facts: str = ""
    reads: tuple[tuple[Array, Future[bool]], ...] = ()

    @property
    def sizes(self) -> list[int]:
        """The bytes of each part."""
        return [room.nbytes for room, _ in self.reads]


class Keeper:
    """Memory for the panels of one network, and panels in it, from the cache where that has them.

    The bytes of the weights, on which keys depend, are looked at while kernels are compiled, and then panels are read.
    """

    def __init__(self, source: Network, options: NetworkOptions) -> None:
        """``source`` is the network as it was given, of which all weights come."""
        self._source = source
        self._network = source
        self._options = options
        self._pool: ThreadPoolExecutor | None = None
        self._groups = _grouped(source)
        self._digests: Memo[int, Digests] = Memo()
        self._ahead: Future[_Ahead] | None = None
        self._known = _Ahead("")
        self._facts = ""
        self._parts: list[_Part] = []
        size = sum(value.bytes for value in source.of_role("weight"))
        self._keeps = options.pack_weights and store().directory is not None and size >= KEPT.least_bytes
        if any(definition.outside is not None for definition in source.definitions.values()):
            self._keeps = False  # what these do has no text
        if self._keeps and options.workers > 1 and threading.current_thread() is threading.main_thread():
            self._pool = ThreadPoolExecutor(1)
            for number in range(len(self._groups)):
                self._pool.submit(self._first_digests_of, number)

    def __enter__(self) -> Keeper:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def expect(self, network: Network) -> None:
        """Begin to read what the cache has; ``network`` is what the passes made of the source."""
        self._network = network
        if self._pool is not None:
            self._ahead = self._pool.submit(self._begun, self._pool)

    def rooms(self, named: Mapping[K, Panels]) -> dict[K, Array]:
        """Memory for the panels of kernels, which will be there after ``fill``."""
        wanted = list(named.values())
        laid = _laid_out(panels.size for panels in wanted)
        sizes = [size for size, _ in laid]
        if wanted and self._keeps and _may_be_kept(sizes):
            self._first_digests()  # the thread that makes them may not be done: this one helps
            self._known = _Ahead(self._named()) if self._ahead is None else self._ahead.result()
            self._facts = _facts(wanted)
        known, rooms, reads = self._known, [], []
        if (known.facts, known.sizes) == (self._facts, sizes):
            rooms, reads = [room for room, _ in known.reads], [read for _, read in known.reads]
        self._parts.clear()
        for number, (size, starts) in enumerate(laid):
            room = rooms[number] if rooms else aligned(size)
            held = tuple((wanted[n], room[start : start + wanted[n].size]) for n, start in starts)
            key = _key(known.named, self._facts, number) if known.named and store().takes(size) else ""
            self._parts.append(_Part(room, held, key, reads[number] if reads else None))
        return dict(zip(named, (room for part in self._parts for _, room in part.held), strict=True))

    def fill(
        self,
        original: Callable[[str], Array],
        each: Callable[[Callable[[Panels, Array], None], Sequence[tuple[Panels, Array]]], object],
    ) -> None:
        """Fill that memory; ``each`` does something for all, perhaps at once.  Raises what computing weights raises."""
        # The thread that reads has begun with the first.
        missing = [part for part in reversed(self._parts) if not part.fill()]
        each(lambda panels, room: panels.pack(room, original), [one for part in missing for one in part.held])
        known, missing = self._known, [part for part in missing if part.key]
        if not known.named or (known.facts == self._facts and not missing):
            return
        # Who shares its weights may have written them in the meantime.
        if missing and tuple(one for names in self._groups for one in self._digested(names)) != self._first_digests():
            return
        for part in missing:
            label = f"{self._source.name}, {', '.join(name for panels, _ in part.held for name, _ in panels.bound)}"
            store().put(_KIND, part.key, label, part.room.data.cast("B"))
        sizes = [part.room.nbytes for part in self._parts]
        store().put(_LIST, known.named, self._source.name, json.dumps([self._facts, sizes]).encode())

    def _begun(self, pool: ThreadPoolExecutor) -> _Ahead:
        """What is known of the network, and the parts that it had when it was compiled last, which are to be read."""
        named = self._named()
        content = store().get(_LIST, named) if named else None
        with suppress(ValueError, TypeError, OverflowError, MemoryError, RuntimeError):
            facts, sizes = json.loads(content or b"")
            rooms = [aligned(size) for size in sizes] if _may_be_kept(sizes) else []
            keys = [_key(named, facts, number) for number in range(len(rooms))]
            return _Ahead(named, facts, tuple((r, pool.submit(_read, k, r)) for r, k in zip(rooms, keys, strict=True)))
        return _Ahead(named)

    def _named(self) -> str:
        """A digest of all on which the weights of a network depend; empty where nobody knows the compiler."""
        try:
            compiler = toolchain.find().identity
        except TcompError:
            return ""
        told = (self._options.told, str(self._source), str(self._network))
        return _digest(__version__, build_identity(), np.__version__, compiler, self._first_digests(), *told)

    def _first_digests(self) -> Digests:
        """Those of the weights as they were at the beginning."""
        # The last ones first, for a thread has begun with the others.
        numbers = range(len(self._groups))
        found = {number: self._first_digests_of(number) for number in reversed(numbers)}
        return tuple(one for number in numbers for one in found[number])

    def _first_digests_of(self, number: int) -> Digests:
        return self._digests.get(number, lambda: self._digested(self._groups[number]))

    def _digested(self, names: Sequence[str]) -> Digests:
        """A digest of the elements of each weight, by its name."""
        weights = self._source.weights
        return tuple((name, hashlib.sha256(_elements(weights[name])).hexdigest()) for name in names)


def _grouped(source: Network) -> list[list[str]]:
    """The names of all weights in their order, as many together as have the bytes of a part."""
    values, groups, size = source.by_name, list[list[str]](), 0
    for name in sorted(source.weights):
        bytes_of = values[name].bytes if name in values else 0
        size += bytes_of
        if not groups or size > KEPT.part_bytes:
            groups.append([])
            size = bytes_of
        groups[-1].append(name)
    return groups


def _laid_out(sizes: Iterable[int]) -> list[tuple[int, list[tuple[int, int]]]]:
    """The bytes of each part, and the numbers of the panels of these sizes that it holds and where they begin."""
    parts: list[tuple[int, list[tuple[int, int]]]] = []
    for number, size in enumerate(sizes):
        start = parts[-1][0] + -parts[-1][0] % ALIGNMENT if parts else 0
        if parts and start + size <= KEPT.part_bytes:
            parts[-1][1].append((number, start))
            parts[-1] = start + size, parts[-1][1]
        else:
            parts.append((size, [(number, 0)]))
    return parts


def _may_be_kept(sizes: Sequence[int]) -> bool:
    limit = store().limit
    return limit is None or sum(sizes) <= limit // _SHARE


def _facts(wanted: Sequence[Panels]) -> str:
    """A digest of what panels depend on beside the network and its weights."""
    sources = {panels.kernel.source for panels in wanted}
    texts = {source: hashlib.sha256(source.encode()).hexdigest() for source in sources}
    return _digest([(texts[panels.kernel.source], panels.bound, panels.size) for panels in wanted])


def _key(named: str, facts: str, number: int) -> str:
    return _digest(named, facts, number)


def _read(key: str, room: Array) -> bool:
    return store().get_into(_KIND, key, room.data.cast("B"))


def _digest(*facts: object) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _elements(array: Array) -> memoryview:
    """The bytes of an array; those of types that are not NumPy's own have no buffer."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
