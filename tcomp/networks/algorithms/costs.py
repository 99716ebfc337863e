"""What a convolution would cost by each algorithm, in cycles of one core, and how exact it is.

The estimates only choose; ``tune`` measures.
"""

from __future__ import annotations

import math

from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.networks import LAYERS
from tcomp.networks.algorithms.convolutions import Convolution, Depthwise
from tcomp.networks.network import Call, Value

_FLOAT = 4

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
    long, strided = math.prod(layer.kernel.shape[1:]) > LAYERS.long, layer.strides != (1, 1)
    if layer.window == (1, 1):
        columns = layer.filters if last else math.prod(layer.pixels)
        reached = LAYERS.point[last] / (LAYERS.strided_point if strided and not last else 1.0)
    else:
        columns = layer.filters if last else _vector(machine)
        reached = LAYERS.window_last[2 * long + strided] if last else LAYERS.window[strided]
    products *= _filled(columns, machine)
    weights = math.prod(layer.kernel.shape) * _FLOAT
    spent = products / (reached * _lanes(machine) * machine.threads)
    return spent + weights / LAYERS.memory_bytes + moved(layer.image.bytes + layer.result.bytes) + LAYERS.kernel


def integers(layer: Convolution, machine: Machine, last: bool = False) -> float:
    """The sums of products of bytes."""
    faster = LAYERS.integers[last] * (1.0 if machine.matrix_tiles else 0.5)
    return (direct(layer, machine, last) - LAYERS.kernel) / max(1.0, faster) + LAYERS.kernel


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
        far = LAYERS.transform_far if elements * _FLOAT > 2 * machine.middle_cache else 0.0
        each = (
            LAYERS.transform_last[which] * side
            if last
            else LAYERS.transform[which] * (LAYERS.transform_side * side + LAYERS.transform_row / across + far)
        )
        spent += elements * each
    spent += products / (LAYERS.product[last] * _lanes(machine))
    return spent / machine.threads + weights / LAYERS.memory_bytes + 3 * LAYERS.kernel


def pruned(layer: Convolution, entries: int, machine: Machine, unfolded: bool) -> float:
    """A convolution by the ``entries`` of its kernel that are not zero; ``unfolded``: a plane for each place in it."""
    count, pixels = layer.result.shape[0], math.prod(layer.pixels)
    planes = count * math.prod(layer.kernel.shape[1:]) * pixels * _FLOAT
    copied = 2 * planes / LAYERS.near_bytes + LAYERS.kernel if unfolded else 0.0
    return copied + _by_entries(entries, count * pixels, machine) + LAYERS.kernel


def _by_entries(entries: int, columns: int, machine: Machine) -> float:
    """Each of some entries times as many neighbours."""
    products = float(entries * columns) * _filled(columns, machine)
    spent = products / (LAYERS.pruned * _lanes(machine) * machine.threads)
    return spent + 2 * entries * _FLOAT / LAYERS.memory_bytes


def product(rows: int, weight: tuple[int, ...], machine: Machine) -> float:
    """Rows times a transposed weight."""
    filters, length = weight
    products = float(rows * length * filters) * _filled(filters, machine)
    spent = products / (LAYERS.point[1] * _lanes(machine) * machine.threads)
    return max(spent, filters * length * _FLOAT / LAYERS.memory_bytes) + LAYERS.kernel


def pruned_product(rows: int, weight: tuple[int, ...], entries: int, machine: Machine, turned: bool) -> float:
    """Rows times the entries of a transposed weight that are not zero; ``turned``: with rows as neighbours."""
    filters, length = weight
    if turned:
        turning = 2 * rows * (length + filters) * _FLOAT / LAYERS.turned_bytes[0] + 2 * LAYERS.kernel
        return _by_entries(entries, rows, machine) + turning
    gathered = rows * (entries * LAYERS.gathered + filters * LAYERS.gathered_row) / machine.threads
    return gathered + 2 * entries * _FLOAT / LAYERS.memory_bytes + LAYERS.kernel


def pruned_blocks(rows: int, weight: tuple[int, ...], blocks: int, height: int, machine: Machine) -> float:
    """Rows times the blocks of so many rows of a transposed weight that are not zero."""
    products = float(rows * blocks * height)
    spent = products / (LAYERS.pruned_blocks[height > 16] * _lanes(machine) * machine.threads)
    return spent + blocks * (height + 1) * _FLOAT / LAYERS.memory_bytes + LAYERS.kernel


def depthwise(layer: Depthwise, machine: Machine, last: bool = False) -> float:
    """A convolution of each channel by itself."""
    elements = math.prod(layer.result.shape) * math.prod(layer.kernel.shape[2:]) / 9
    each = (LAYERS.depthwise_last if last else LAYERS.depthwise)[layer.strided]
    if not last:
        each *= _filled(layer.result.shape[3], machine)
    return elements * each / machine.threads + LAYERS.kernel


def pooling(call: Call, result: Value, machine: Machine, last: bool = False) -> float:
    """A pool of windows."""
    numbers = dict(call.constants)
    window = numbers.get("KH", 1) * numbers.get("KW", 1)
    return math.prod(result.shape) * window / 9 * LAYERS.pool[last] / machine.threads + LAYERS.kernel


def moved(count: float) -> float:
    """Bytes that are read and written one behind the other."""
    return count / LAYERS.near_bytes


def turned(value: Value, last: bool) -> float:
    """An image written again with channels innermost (``last``), or as it was."""
    return 2 * value.bytes / LAYERS.turned_bytes[last] + LAYERS.kernel


def _vector(machine: Machine) -> int:
    return machine.vector_bytes // _FLOAT


def _filled(columns: int, machine: Machine) -> float:
    """The elements of vectors, of which the last is not full, for each of their columns."""
    vector = _vector(machine)
    return -(-columns // vector) * vector / columns


def _lanes(machine: Machine) -> float:
    """Products of floats that one core adds in a cycle."""
    return LAYERS.units * min(machine.vector_bytes, machine.datapath_bytes) / _FLOAT
