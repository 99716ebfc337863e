"""Where a kernel keeps tiles: declarations of buffers, and copies that the threads of a block make together."""

from __future__ import annotations

import math

from tcomp.backends.gpu.matrices.warps import lent_to_warps
from tcomp.backends.gpu.words.dialect import DEVICE_TYPES, SharedArray
from tcomp.backends.gpu.words.spelling import Local
from tcomp.backends.gpu.writer import KernelWriter
from tcomp.loops.codegen import affine_expressions
from tcomp.loops.ir import LoopExpr
from tcomp.mapping.machines.gpu import MOST_REGISTERS, REGISTER_BYTES
from tcomp.mapping.plan.values import Buffer


def declare(writer: KernelWriter, buffer: Buffer, around: tuple[LoopExpr, ...], depth: int) -> None:
    """Declare a buffer at its mark, or what points to it there."""
    corner = () if buffer.lower is None else affine_expressions(buffer.lower, around)
    element, own = DEVICE_TYPES[buffer.dtype.name], writer.dialect
    if buffer.space == "block":
        name = writer.fresh(f"{writer.program.dialect.name(buffer.storage)}_tile")
        writer.used[buffer.storage] = None
        count = math.prod(buffer.shape)
        (x, y, z), (width, height, _) = ([name(axis) for axis in range(3)] for name in (own.block, own.blocks))
        block = f"({x} + {width} * ({y} + (long long){height} * {z}))"
        start = f"{writer.program.dialect.name(buffer.storage)} + {block} * {count}"
        writer.put(depth, f"{own.global_space}{element} *const {name} = {start};")
    elif buffer.space == "shared":
        name = writer.fresh(f"{writer.program.dialect.name(buffer.storage)}_tile")
        share(writer, element, name, buffer.shape, buffer.dtype.itemsize)
    else:
        name = writer.program.dialect.name(buffer.storage)
        extents = "".join(f"[{e}]" for e in buffer.shape if e > 1)
        # Beyond the last row and step an operand of an instruction is nothing.
        start = " = {}" if lent_to_warps(writer.plan, buffer) else ""
        writer.put(depth, f"{element} {name}{extents}{start};")
    writer.locals[buffer.storage] = Local(buffer, name, corner)


def registers_of(buffer: Buffer) -> int:
    """How many registers of a thread hold all elements that it has of a buffer; 0 for one element, and elsewhere."""
    elements = math.prod(buffer.shape)
    registers = elements * max(1, buffer.dtype.itemsize // REGISTER_BYTES)
    return registers if buffer.space == "private" and elements > 1 and registers <= MOST_REGISTERS else 0


def share(
    writer: KernelWriter, element: str, name: str, shape: tuple[int, ...], itemsize: int, wide: bool = False,
    swizzled: bool = False,
) -> None:  # fmt: skip
    """Declare an array in shared memory, at the head of the kernel."""
    writer.shared.append(SharedArray(element, name, tuple(e for e in shape if e > 1), itemsize, wide, swizzled))
