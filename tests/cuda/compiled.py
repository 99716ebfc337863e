"""Kernels that the compiler makes, run on the simulator with their data and compared with the reference."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcomp.backends.cuda.target import CudaBackend
from tcomp.backends.simulator.report import Report
from tcomp.backends.simulator.simulation import Settings, load
from tcomp.backends.source import Source
from tcomp.driver import Compilation, lower
from tcomp.grammar import define
from tcomp.grammar.tree.function import Function
from tcomp.mapping.machines.gpu import DEFAULT_ARCHITECTURE, gpu_of
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.evaluation import numpy_dtype
from tcomp.model.reference import interpret
from tcomp.model.terms.sizes import Sizes
from tests.cuda.texts import Text

Array = np.ndarray[Any, np.dtype[Any]]

BACKEND = CudaBackend(gpu_of(DEFAULT_ARCHITECTURE))

UNSET = 77
"""What elements of outputs hold that nobody has written."""


@dataclass(frozen=True)
class Data:
    """Arrays by name: what goes in, what outputs hold before, and what they should hold afterwards."""

    inputs: Mapping[str, Array]
    contents: Mapping[str, Array]
    expected: Mapping[str, Array]


def compiled(
    function: Function,
    sizes: Mapping[str, int],
    options: MappingOptions | None = None,
    checked: bool = True,
    architecture: str = DEFAULT_ARCHITECTURE,
) -> Compilation:
    """A program mapped to a device, every plan proved as in normal use."""
    backend = BACKEND if architecture == DEFAULT_ARCHITECTURE else CudaBackend(gpu_of(architecture))
    return lower(function, Sizes(dict(sizes)), options or MappingOptions(), backend, checked)


def compiled_text(text: Text, options: MappingOptions | None = None) -> Compilation:
    """An example mapped to the default device, once in a process for those options."""
    return _compiled_text(text.text, tuple(text.sizes.items()), options or MappingOptions())


@functools.lru_cache(maxsize=100)
def _compiled_text(text: str, sizes: tuple[tuple[str, int], ...], options: MappingOptions) -> Compilation:
    return compiled(define(text)["f"], dict(sizes), options)


def run(source: Source, data: Data, settings: Settings | None = None) -> tuple[Report, dict[str, Array]]:
    """The report and the outputs of a source on copies of the data."""
    arrays = {name: np.array(a, order="C") for name, a in data.inputs.items()}
    for name, expected in data.expected.items():
        before = data.contents.get(name)
        arrays[name] = np.full(expected.shape, UNSET, expected.dtype) if before is None else np.array(before, order="C")
    addresses = [arrays[a.name].__array_interface__["data"][0] for a in source.arguments]
    report = load(source).run(addresses, None, settings)
    return report, {name: arrays[name] for name in data.expected}


def data_for(text: Text, compilation: Compilation, seed: int = 0) -> Data:
    """Whole numbers for the inputs of an example, and what the reference makes of them."""
    rng = np.random.default_rng(seed)
    inputs: dict[str, Array] = {}
    for argument in compilation.source.arguments:
        if argument.role == "input":
            low, high = (0, text.limits[argument.name]) if argument.name in text.limits else (-3, 4)
            inputs[argument.name] = rng.integers(low, high, argument.shape).astype(numpy_dtype(argument.dtype))
    return Data(inputs, {}, interpret(compilation.function, inputs))
