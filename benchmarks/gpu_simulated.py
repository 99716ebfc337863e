"""Cases at small sizes on the simulator: checked thread by thread and against the interpreter, their traffic counted.

The counts are exact and the same on every machine; nothing here says how fast a kernel is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tcomp as tc
from benchmarks.gpu_cases import BY_NAME, Case
from benchmarks.gpu_workers import Settings
from tcomp.backends.simulator.report import AccessCounts, KernelCounts
from tcomp.backends.simulator.simulation import Settings as Run
from tcomp.backends.simulator.simulation import load
from tcomp.grammar.ranges.ranges import infer
from tcomp.mapping.machines.gpu import SECTOR_BYTES
from tcomp.mapping.tiles.flops import flops_of
from tcomp.model.evaluation import numpy_dtype
from tcomp.operation import Operation

Array = np.ndarray[Any, np.dtype[Any]]

TOLERANCE = 1e-5
"""Most that a result may be away from the interpreter's, as a share of its norm."""


class WrongResultError(Exception):
    """A kernel does not compute what it should."""


def prepare(settings: Settings) -> Callable[[str], dict[str, Any]]:
    """What simulates the case of a name."""
    return lambda name: simulate(BY_NAME[name], settings.target)


def operation_of(case: Case) -> Operation:
    """The one def of a case."""
    module = tc.define(case.text, tune="off")
    (name,) = module
    return module[name]


def inputs_for(case: Case, operation: Operation, sizes: dict[str, int]) -> list[Array]:
    """Random arrays in parameter order; integers are rows of the table before them."""
    rng = np.random.default_rng(0)
    boxes = infer(operation.function, sizes).boxes
    arrays: list[Array] = []
    for tensor in operation.function.inputs:
        shape, dtype = boxes[tensor.name].extent, numpy_dtype(tensor.dtype)
        if tensor.dtype.is_float:
            arrays.append(rng.standard_normal(shape).astype(dtype))
        else:
            arrays.append(rng.integers(0, arrays[-1].shape[0], shape).astype(dtype))
    return arrays


def simulate(case: Case, target: str) -> dict[str, Any]:
    """Findings, distance from the interpreter and counts of every kernel; all of it as JSON has it.

    Raises WrongResultError if anything is wrong with the kernels, TcompError if they cannot be made or run.
    """
    operation, sizes = operation_of(case), dict(case.small)
    inputs = inputs_for(case, operation, sizes)
    compilation = operation.compile(sizes=sizes, target=target).compilation
    source = compilation.source
    given = {tensor.name: array for tensor, array in zip(operation.function.inputs, inputs, strict=True)}
    outputs = {a.name: np.full(a.shape, np.nan, numpy_dtype(a.dtype)) for a in source.arguments if a.role != "input"}
    arrays = given | outputs
    report = load(source).run([arrays[a.name].ctypes.data for a in source.arguments], None, Run(counting=True))
    if report.findings or report.status:
        raise WrongResultError("; ".join(map(str, report.findings)) or "a subscript was outside its tensor")
    found = [outputs[tensor.name] for tensor in operation.function.outputs]
    error = distance(found, operation.reference(*inputs))
    if not error <= TOLERANCE:
        raise WrongResultError(f"the result is {error:.2g} of its norm away from the interpreter's")
    least = case.least_bytes(sizes)
    moved = SECTOR_BYTES * sum(k.global_sectors for k in report.kernels)
    return {
        "program": operation.name,
        "sizes": sizes,
        "error": error,
        "flops": sum(flops_of(compilation.plan).values()),
        "least_flops": case.flops(sizes),
        "least_bytes": least,
        "sector_bytes": moved,
        "kernels": [plain_kernel(k) for k in report.kernels],
    }


def distance(found: Sequence[Array], expected: Array | tuple[Array, ...]) -> float:
    """The norm of the difference over that of what is expected, for all outputs together; nan where one has a nan."""
    wanted = expected if isinstance(expected, tuple) else (expected,)
    pairs = [(f.astype(np.float64).ravel(), w.astype(np.float64).ravel()) for f, w in zip(found, wanted, strict=True)]
    difference = math.sqrt(sum(float(np.sum((f - w) ** 2)) for f, w in pairs))
    norm = math.sqrt(sum(float(np.sum(w**2)) for _, w in pairs))
    return difference / norm if norm else difference


def plain_kernel(kernel: KernelCounts) -> dict[str, Any]:
    """The counts of a kernel as JSON has them."""
    return {
        "kernel": kernel.kernel,
        "grid": kernel.grid,
        "block": kernel.block,
        "barriers_per_block": kernel.barriers,
        "warp_operations": kernel.collectives,
        "bytes_read": kernel.global_bytes_read,
        "bytes_written": kernel.global_bytes_written,
        "sectors": kernel.global_sectors,
        "ideal_sectors": kernel.ideal_sectors,
        "requests": sum(a.requests for a in kernel.select("global")),
        "conflicts": kernel.conflicts,
        "accesses": [plain_access(a) for a in kernel.accesses],
    }


def plain_access(access: AccessCounts) -> dict[str, Any]:
    """The counts of one line's accesses to a buffer as JSON has them."""
    counts: dict[str, Any] = {
        "statement": access.statement,
        "buffer": access.buffer,
        "access": f"{access.space} {access.access}",
        "bytes_per_lane": access.bytes_per_lane,
        "requests": access.requests,
        "bytes": access.bytes,
    }
    if access.space == "shared":
        return counts | {"conflicts": access.conflicts}
    return counts | {"sectors": access.sectors, "ideal_sectors": access.ideal_sectors}
