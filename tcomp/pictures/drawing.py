"""Open this first: which pictures there are of a compiled program."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from tcomp.backends.simulator.report import KernelCounts
from tcomp.backends.simulator.simulation import Settings, load
from tcomp.driver import Compilation
from tcomp.errors import TcompError
from tcomp.grammar.tree.limits import MAX_INDICES
from tcomp.model.terms.sizes import Sizes
from tcomp.pictures.canvas import Picture
from tcomp.pictures.domains import draw_dates, draw_domain, draw_order, draw_threads
from tcomp.pictures.memories import draw_footprint, draw_memory
from tcomp.pictures.profiles import made_up_arrays, names_of, profile
from tcomp.pictures.rates import draw_banks, draw_loops
from tcomp.pictures.trees import draw_tree

_BLOCKS = 4

KINDS: dict[str, Callable[[Compilation], Picture]] = {
    "tree": draw_tree,
    "domain": draw_domain,
    "threads": draw_threads,
    "dates": draw_dates,
    "order": draw_order,
    "footprint": draw_footprint,
    "memory": draw_memory,
    "loops": draw_loops,
}
"""The pictures that need the compilation alone, by name."""

OF_STEPS = ("domain", "dates", "order")
"""Those that show a whole program with blocks of steps; others show its largest piece."""

BANKS, PROFILE = "banks", "profile"
"""Those that run the kernel: in the simulator, or on this machine."""


def draw(compilation: Compilation, what: str, sizes: Sizes) -> Picture:
    """A picture of a compiled program.  Raises TcompError for one that there is not, MissingPackageError."""
    if what == BANKS:
        return draw_banks(_counted(compilation, sizes))
    if what == PROFILE:
        return profile(compilation.source, compilation.function, sizes, names=names_of(compilation)).draw()
    if what not in KINDS:
        raise TcompError(f"there is no picture {what!r}; there are {', '.join((*KINDS, BANKS, PROFILE))}")
    return KINDS[what](compilation)


def _counted(compilation: Compilation, sizes: Sizes) -> tuple[KernelCounts, ...]:
    """What the accesses of some blocks cost, as the simulator counts them."""
    source = compilation.source
    if not source.launches:
        raise TcompError("banks and sectors are those of a GPU's memories: draw a kernel for cuda:sm_90, say")
    arrays = made_up_arrays(source, compilation.function, sizes)
    report = (ctypes.c_int64 * (3 + MAX_INDICES))()
    settings = Settings(counting=True, blocks=_BLOCKS)
    addresses = [array.ctypes.data for array in arrays]
    return tuple(load(source).run(addresses, ctypes.addressof(report), settings).kernels)
