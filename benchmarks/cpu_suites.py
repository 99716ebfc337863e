"""The suites of the CPU benchmark, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks.cpu_case import Case
from benchmarks.cpu_cases import workloads
from benchmarks.cpu_more import more
from benchmarks.cpu_tccg import LARGEST_GFLOP, contractions

SUITES: Mapping[str, Callable[[], Sequence[Case]]] = {
    "w": workloads,
    "more": more,
    "tccg": lambda: contractions(LARGEST_GFLOP),
    "tccg-full": lambda: contractions(None),
}
"""``tccg`` has its largest contractions made smaller, ``tccg-full`` has them as they are."""

PEERS: Mapping[str, tuple[str, ...]] = {
    "w": ("numpy", "torch", "torch.compile", "jax", "numba", "halide", "tvm"),
    "more": ("numpy", "torch", "torch.compile", "jax"),
    "tccg": ("numpy", "opt_einsum", "torch"),
    "tccg-full": ("numpy", "opt_einsum", "torch"),
}
"""The peers that a suite is for."""


def find(suite: str, key: str) -> Case:
    """A case by its suite and key.  Raises KeyError."""
    return {case.key: case for case in SUITES[suite]()}[key]


def chosen(keys: Sequence[str], *, small: bool) -> list[Case]:
    """The cases of these keys, in the suites ``w`` and ``more``.  Raises SystemExit for one that there is not."""
    known = {case.key: case for case in (*workloads(small), *more(small))}
    missing = [key for key in keys if key not in known]
    if missing:
        raise SystemExit(f"there is no workload {missing[0]}; there are {', '.join(known)}")
    return [known[key] for key in keys]
