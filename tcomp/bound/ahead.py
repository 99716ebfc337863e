"""Kernels of one function for many sets of bound arguments: whoever calls them keeps the panels of each set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tcomp.arrays.addresses import data_address
from tcomp.arrays.kinds import NumpyArray
from tcomp.backends.arena import ALIGNMENT
from tcomp.grammar.ranges.sizes import bind_sizes
from tcomp.grammar.tree.function import Function
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import Part, Sizes
from tcomp.runtime.calls import check_call
from tcomp.runtime.kernel import Kernel
from tcomp.runtime.registry import resolve
from tcomp.runtime.specialisation import Specialisation, strides_of
from tcomp.tuner.database.identity import device_model
from tcomp.tuner.policy import stored_options


def kernel_with_bound(
    function: Function,
    names: Iterable[str],
    arguments: Sequence[Any],
    out: tuple[Any, ...],
    options: MappingOptions | None = None,
) -> Kernel:
    """The kernel of a CPU for arrays like these, of which those with ``names`` will be the same in every call.

    Nothing is bound yet: ``Kernel.bound`` says what the function takes after its inputs and outputs.  What depends on
    bound arguments alone is not computed ahead, only packed.  Without options it is compiled with those that tuning
    the function kept for such arrays.

    Raises TcompError.
    """
    call = check_call(function, tuple(arguments), out, runs=False)
    values = bind_sizes(function, call.shapes, call.constants)
    sizes = Sizes(values, strides_of(call.views), Part(tuple(sorted(names))))
    made = Specialisation(function, sizes, options or MappingOptions(), resolve("cpu", call.place), False)
    if options is None:
        made = replace(made, options=stored_options(made, device_model(made.target, call.place)))
    kernel = Kernel(made)
    kernel.check(call)
    return kernel


def aligned(count: int) -> NumpyArray:
    """So many bytes of zeros, from a line of the cache on."""
    memory = np.zeros(count + ALIGNMENT, np.uint8)
    start = -data_address(memory) % ALIGNMENT
    return memory[start : start + count]
