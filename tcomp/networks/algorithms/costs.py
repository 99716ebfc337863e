"""What a convolution would cost by each algorithm, in cycles of one core, and how exact it is.

The estimates only choose; ``tune`` measures.  On two cores of a Zen 4 they are within a factor of 1.6 of what the
convolutions of 16 to 512 channels and images of 7x7 to 224x224 take.
"""

from __future__ import annotations

import math

from tcomp.mapping.machines.cpu import Machine
from tcomp.networks.algorithms.convolutions import Convolution

_FLOAT = 4
_UNITS = 2
"""Vectors of products that are added in a cycle."""

_MEMORY_BYTES = 7.0
"""Bytes that all cores together read from memory in a cycle: weights are read once a call, and do not stay near."""

_KERNEL = 10_000.0
"""Cycles between the start of a kernel and its first product: threads begin, and wait for each other at the end."""

_TILE, _ROW, _FAR = 0.32, 10.0, 1.5
"""Cycles for an element of a transformed tile: for each pixel of its side, shared by all tiles of a row, and where the
tiles do not stay in the second cache."""

DIRECT = 1.0
ERRORS = {0: DIRECT, 2: 0.65, 4: 4.0}
"""The error of the sums as they are written, of F(2,3) and of F(4,3), in units of ``roundoff``.

Measured on random images and kernels of 16 to 1024 channels, before and behind a ReLU, against float64.
"""


def roundoff(channels: int) -> float:
    """The relative error, in the norm of all results, of sums of float32 products over so many channels."""
    return 2.0**-24 * math.sqrt(channels)


def direct(layer: Convolution, machine: Machine) -> float:
    """The sums as they are written."""
    products = math.prod(layer.result.shape) * math.prod(layer.kernel.shape[1:])
    lanes = _lanes(machine)
    weights = math.prod(layer.kernel.shape) * _FLOAT
    return products / (0.87 * lanes * machine.threads) + weights / _MEMORY_BYTES + _KERNEL


def winograd(layer: Convolution, tile: int, machine: Machine) -> float:
    """Two transforms, and a product for each place in a tile."""
    down, across = (-(-extent // tile) for extent in layer.pixels)
    side = tile + 2
    tiles = layer.result.shape[0] * down * across
    vector = machine.vector_bytes // _FLOAT
    columns = -(-tiles // vector) * vector
    products = side * side * layer.channels * layer.filters * columns
    weights = side * side * layer.channels * layer.filters * _FLOAT
    moved = 0.0
    for channels, share in ((layer.channels, 1.0), (layer.filters, 0.5)):
        elements = side * side * channels * tiles
        far = _FAR if elements * _FLOAT > 2 * machine.middle_cache else 0.0
        moved += share * elements * (_TILE * side + _ROW / across + far)
    lanes = _lanes(machine)
    spent = (products / (0.9 * lanes) + moved) / machine.threads
    return spent + weights / _MEMORY_BYTES + 3 * _KERNEL


def _lanes(machine: Machine) -> float:
    """Products of floats that one core adds in a cycle."""
    return _UNITS * min(machine.vector_bytes, machine.datapath_bytes) / _FLOAT
