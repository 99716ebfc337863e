"""What every implementation gives the worker, and the peers by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.cpu_case import Array, Case

MODULES: Mapping[str, str] = {
    "tcomp": "benchmarks.cpu_peer_tcomp",
    "numpy": "benchmarks.cpu_peer_numpy",
    "opt_einsum": "benchmarks.cpu_peer_opt_einsum",
    "torch": "benchmarks.cpu_peer_torch",
    "torch.compile": "benchmarks.cpu_peer_inductor",
    "jax": "benchmarks.cpu_peer_jax",
    "numba": "benchmarks.cpu_peer_numba",
    "halide": "benchmarks.cpu_peer_halide",
    "tvm": "benchmarks.cpu_peer_tvm",
}
"""Each has a function ``peer() -> Peer``, which raises ImportError where the peer is not installed."""

OURS = "tcomp"

SEARCH_SECONDS: Mapping[str, float] = {"tvm": 1200.0}
"""What peers that search may take for a row besides; what they find is kept, so they search once."""


@dataclass(frozen=True, slots=True)
class Implementation:
    """A case made ready: ``call`` runs it once and waits for the result, ``result`` gives what the last call made."""

    call: Callable[[], Any]
    result: Callable[[], Array]
    tuning_seconds: float = 0.0
    """What a search took before; no part of the first call."""
    holds: Sequence[Any] = ()
    """Arrays that the call finds by their addresses alone."""


class Peer(Protocol):
    """A library or compiler in this process."""

    @property
    def version(self) -> str: ...

    def build(self, case: Case, inputs: list[Array]) -> Implementation | None:
        """The case on these inputs, compiled if the peer compiles before the first call; None if it has no such one."""
        ...


def returning(call: Callable[[], Any], to_numpy: Callable[[Any], Array]) -> Implementation:
    """What allocates its result: the last one is kept, as a caller would."""
    kept: list[Any] = [None]

    def keep() -> None:
        kept[0] = call()

    return Implementation(keep, lambda: to_numpy(kept[0]))


def limit_threads(threads: int) -> None:
    """Bind this process to the first of its processors and tell every pool.  Before anything of a peer is imported."""
    processors = sorted(os.sched_getaffinity(0))[:threads]
    os.sched_setaffinity(0, processors)
    for name in ("OMP", "OPENBLAS", "MKL", "NUMBA", "HL", "TVM"):
        os.environ[f"{name}_NUM_THREADS"] = str(threads)
