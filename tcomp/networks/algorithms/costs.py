"""What a convolution would cost by each algorithm, in cycles of one core, and how exact it is.

The estimates only choose; ``tune`` measures.  Those of images with channels second were within a factor of 1.6 of what
convolutions of 16 to 512 channels and images of 7x7 to 224x224 take on two cores of a Zen 4; shares of the peak, and
what is said of channels innermost, are from layers of MobileNet and ResNet-50 on two cores of a Granite Rapids Xeon.
"""

from __future__ import annotations

import math

from tcomp.mapping.machines.cpu import Machine
from tcomp.networks.algorithms.convolutions import Convolution, Depthwise
from tcomp.networks.network import Call, Value

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

NEAR_BYTES = 28.0
TURNED_BYTES = {False: 8.0, True: 13.0}
"""Bytes that all cores read and write in a cycle where they lie near, and where an image is turned."""

POINT = {False: 0.82, True: 0.93}
STRIDED_POINT = 1.5
WINDOW = {False: 0.75, True: 0.6}
LONG = 640
WINDOW_LAST = {False: {False: 0.85, True: 0.85}, True: {False: 0.85, True: 0.8}}
PRODUCT = {False: 0.78, True: 0.83}
"""Shares of the peak that sums of products reach, with channels innermost where it says so (``True``): convolutions by
one pixel, with strides so many times slower; by windows, with strides or without, of more than ``LONG`` products in a
sum or less; and Winograd's products."""

INTEGERS = {False: 3.0, True: 8.0}
"""How many times as fast products of bytes are as those of floats, with channels innermost where it says so."""

TILE = (1.0, 0.5)
TILE_LAST = (0.58, 0.22)
"""The transforms of images and of results: in units of the figures above, and where channels are innermost in cycles
for each element and each pixel of a tile's side."""

DEPTHWISE = {False: {False: 1.26, True: 4.3}, True: {False: 1.2, True: 1.9}}
POOL = {False: 9.5, True: 4.2}
"""Cycles for an element of a result of nine products, by channels innermost and by strides; of nine elements' maximum.
"""

DIRECT = 1.0
ERRORS = {0: DIRECT, 2: 0.65, 4: 4.0}
"""The error of the sums as they are written, of F(2,3) and of F(4,3), in units of ``roundoff``.

Measured on random images and kernels of 16 to 1024 channels, before and behind a ReLU, against float64.
"""


def roundoff(channels: int) -> float:
    """The relative error, in the norm of all results, of sums of float32 products over so many channels."""
    return 2.0**-24 * math.sqrt(channels)


def direct(layer: Convolution, machine: Machine, last: bool = False) -> float:
    """The sums as they are written; ``last``: of images with channels innermost."""
    products = float(math.prod(layer.result.shape) * math.prod(layer.kernel.shape[1:]))
    long, strided = math.prod(layer.kernel.shape[1:]) > LONG, layer.strides != (1, 1)
    if layer.window == (1, 1):
        columns = layer.filters if last else math.prod(layer.pixels)
        reached = POINT[last] / (STRIDED_POINT if strided and not last else 1.0)
    else:
        columns = layer.filters if last else _vector(machine)
        reached = WINDOW_LAST[long][strided] if last else WINDOW[strided]
    products *= _filled(columns, machine)
    weights = math.prod(layer.kernel.shape) * _FLOAT
    spent = products / (reached * _lanes(machine) * machine.threads)
    return spent + weights / _MEMORY_BYTES + moved(layer.image.bytes + layer.result.bytes) + _KERNEL


def integers(layer: Convolution, machine: Machine, last: bool = False) -> float:
    """The sums of products of bytes."""
    faster = INTEGERS[last] * (1.0 if machine.matrix_tiles else 0.5)
    return (direct(layer, machine, last) - _KERNEL) / max(1.0, faster) + _KERNEL


def winograd(layer: Convolution, tile: int, machine: Machine, last: bool = False) -> float:
    """Two transforms, and a product for each place in a tile."""
    down, across = (-(-extent // tile) for extent in layer.pixels)
    side = tile + 2
    tiles = layer.result.shape[0] * down * across
    products = float(side * side * layer.channels * layer.filters * tiles)
    products *= _filled(layer.filters if last else tiles, machine)
    weights = side * side * layer.channels * layer.filters * _FLOAT
    spent = 0.0
    for channels, which in ((layer.channels, 0), (layer.filters, 1)):
        elements = side * side * channels * tiles
        far = _FAR if elements * _FLOAT > 2 * machine.middle_cache else 0.0
        each = TILE_LAST[which] * side if last else TILE[which] * (_TILE * side + _ROW / across + far)
        spent += elements * each
    spent += products / (PRODUCT[last] * _lanes(machine))
    return spent / machine.threads + weights / _MEMORY_BYTES + 3 * _KERNEL


def depthwise(layer: Depthwise, machine: Machine, last: bool = False) -> float:
    """A convolution of each channel by itself."""
    elements = math.prod(layer.result.shape) * math.prod(layer.kernel.shape[2:]) / 9
    each = DEPTHWISE[last][layer.strided]
    if not last:
        each *= _filled(layer.result.shape[3], machine)
    return elements * each / machine.threads + _KERNEL


def pooling(call: Call, result: Value, machine: Machine, last: bool = False) -> float:
    """A pool of windows."""
    numbers = dict(call.constants)
    window = numbers.get("KH", 1) * numbers.get("KW", 1)
    return math.prod(result.shape) * window / 9 * POOL[last] / machine.threads + _KERNEL


def moved(count: float) -> float:
    """Bytes that are read and written one behind the other."""
    return count / NEAR_BYTES


def turned(value: Value, last: bool) -> float:
    """An image written again with channels innermost (``last``), or as it was."""
    return 2 * value.bytes / TURNED_BYTES[last] + _KERNEL


def _vector(machine: Machine) -> int:
    return machine.vector_bytes // _FLOAT


def _filled(columns: int, machine: Machine) -> float:
    """The elements of vectors, of which the last is not full, for each of their columns."""
    vector = _vector(machine)
    return -(-columns // vector) * vector / columns


def _lanes(machine: Machine) -> float:
    """Products of floats that one core adds in a cycle."""
    return _UNITS * min(machine.vector_bytes, machine.datapath_bytes) / _FLOAT
