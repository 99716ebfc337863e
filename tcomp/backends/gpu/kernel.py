"""One group of a GPU plan as one kernel: tiles on blocks, phases on threads, point loops inside.

Control flow down to a phase is the same for all threads of a block; below its band of threads each goes its own way.
Copies and barriers are therefore spelled at the entry of phases and nowhere else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import islpy as isl

from tcomp.backends.gpu.blocks import Tiles, backwards, block_loops, grid_of, in_rows, in_turn
from tcomp.backends.gpu.fetches.feeding import Feeding
from tcomp.backends.gpu.matrices.warps import sums_in_registers
from tcomp.backends.gpu.memory import registers_of
from tcomp.backends.gpu.phases import PhaseWriter
from tcomp.backends.gpu.words.dialect import DEVICE_TYPES, DeviceDialect
from tcomp.backends.gpu.words.names import IteratorNames
from tcomp.backends.gpu.writer import KernelWriter, Program
from tcomp.backends.indexwidth import steps_between
from tcomp.backends.source import REPORT, Launch, elements_before
from tcomp.grammar.ranges.affine import step_parameter
from tcomp.loops.indexing import Ranges
from tcomp.loops.ir import LoopNode, Scope, walk
from tcomp.mapping.gpu.matrices.feeding import FETCHING_THREADS
from tcomp.mapping.machines.fitted.gpu import DEVICE
from tcomp.mapping.machines.gpu import WARP, is_wide
from tcomp.mapping.plan.values import Plan

LONGEST_LINE = 110
_BEHIND = "tc_behind"
_WORD = re.compile(r"\bstep_\w+")

BLOCKS_RESIDENT = 16
"""Blocks that every architecture can hold."""


@dataclass(frozen=True, slots=True)
class KernelText:
    """The lines of a kernel, its launch (lines counted from its own first), and the blocks that it was cut for.

    ``vectors`` are those of its ``storages`` of which it touches several elements at a time.
    """

    lines: tuple[str, ...]
    launch: Launch
    storages: tuple[str, ...]
    vectors: frozenset[str]
    blocks: int


def write_kernel(program: Program, number: int, name: str, node: LoopNode) -> KernelText:
    """The kernel for the loops of a group."""
    plan = program.plan
    shapes = [plan.dealt[c].shape for c in plan.groups[number].clusters]
    marks = {n.name for n in walk(node) if isinstance(n, Scope)}
    kept = [registers_of(b) * sums_in_registers(plan, b) for b in plan.buffers.values() if b.mark in marks]
    # Scores and sums of a turn are there at the same time.
    most = sum(kept) if plan.groups[number].turns else max(kept, default=0)
    writer = KernelWriter(program, number, max(shapes, key=math.prod), is_wide(most))
    names = IteratorNames(writer.statements, program.indices, frozenset(writer.taken))
    ranges, depth = _steps_known(plan), 1
    loops, inside = block_loops(writer.narrow(names.rename(node, {})), ranges)
    mapped, grid = grid_of(program.dialect, loops, program.options.blocks, ranges)
    mapped = backwards(mapped) if plan.groups[number].backwards else mapped
    feeding = Feeding.of(writer, inside)
    rows, blocks, tiles = plan.orders.get(number, 1), plan.persistent.get(number), None
    if feeding is not None and blocks is not None:
        tiles = in_turn(mapped, program.dialect, rows, blocks, writer.fresh)
        grid = grid if tiles is None else (blocks, 1, 1)
    tiles = tiles or in_rows(mapped, program.dialect, rows, writer.fresh)
    if tiles.head is None:
        for line in tiles.lines:
            writer.put(depth, line)
    if feeding is None:
        inner, known = _open(writer, tiles, depth, ranges)
        PhaseWriter(writer).uniform(inside, inner, known)
        _close(writer, tiles, inner)
    else:
        _write_fed(feeding, tiles, inside, depth, ranges)
    return _framed(writer, number, name, grid, feeding)


def _open(writer: KernelWriter, tiles: Tiles, depth: int, ranges: Ranges) -> tuple[int, Ranges]:
    """The coordinates of the tiles of a block, in loops where it has several; the depth inside and what is known."""
    if tiles.head is not None:
        writer.put(depth, tiles.head)
        depth += 1
        for line in tiles.lines:
            writer.put(depth, line)
    for loop in tiles.loops:
        for line in loop.lines(writer.dialect.index):
            writer.put(depth, line)
        if loop.repeats and writer.dialect.meets_first:
            writer.put(depth + 1, writer.barrier("block"))
        ranges = ranges.knowing(loop.iterator, loop.low, loop.high)
        depth += loop.opens
    return depth, ranges


def _write_fed(
    feeding: Feeding, tiles: Tiles, inside: LoopNode, depth: int, ranges: Ranges
) -> None:  # fmt: skip
    """A warpgroup of which one thread fetches, and those that multiply; both go through the same tiles."""
    writer, registers = feeding.writer, feeding.registers
    feeding.begin(depth)
    writer.put(depth, f"if (thread >= {writer.threads}) {{  // a warpgroup that fetches")
    if registers:
        writer.put(depth + 1, f"tc_registers_down<{registers[0]}>();")
    writer.put(depth + 1, f"if (thread == {writer.threads}) {{")
    writer.put(depth + 2, f"int {feeding.stage} = 0, {feeding.parity} = 1;")
    inner, known = _open(writer, tiles, depth + 2, ranges)
    feeding.fetch(inside, inner, known)
    _close(writer, tiles, inner, meets=False)
    writer.put(depth + 1, "}")
    writer.put(depth, "} else {")
    if registers:
        writer.put(depth + 1, f"tc_registers_up<{registers[1]}>();")
    writer.put(depth + 1, f"int {feeding.stage} = 0, {feeding.parity} = 0;")
    inner, known = _open(writer, tiles, depth + 1, ranges)
    PhaseWriter(writer, feeding).uniform(inside, inner, known)
    _close(writer, tiles, inner, meets=False)
    writer.put(depth, "}")


def _resident(writer: KernelWriter) -> int:
    """Blocks that a multiprocessor must hold at least; the rest of a block's last warp counts.

    One, where threads keep many elements: there ptxas had better choose registers, which it does not spill.
    """
    if writer.wide or any(a.swizzled for a in writer.shared):
        return 1
    return min(BLOCKS_RESIDENT, max(1, DEVICE.threads_resident // (-(-writer.threads // WARP) * WARP)))


def _close(writer: KernelWriter, tiles: Tiles, depth: int, meets: bool = True) -> None:
    """Close the loops over tiles; where a block goes on to another tile, its threads wait for each other if it
    ``meets``."""
    for loop in reversed(tiles.loops):
        if loop.opens:
            waits = bool(writer.shared or writer.plan.barriers) and not writer.dialect.meets_first
            if loop.repeats and waits and meets:
                writer.put(depth, writer.barrier("block"))
            depth -= 1
            writer.put(depth, "}")
    if tiles.head is not None:
        writer.put(depth - 1, "}")


def _framed(
    writer: KernelWriter, number: int, name: str, grid: tuple[int, int, int], feeding: Feeding | None
) -> KernelText:  # fmt: skip
    storages = _in_program_order(writer)
    outermost = writer.shape[0]
    if feeding is not None:
        outermost += FETCHING_THREADS // math.prod(writer.shape[1:])
    x, y, z, *_ = (*reversed((outermost, *writer.shape[1:])), 1, 1, 1)
    fed = [] if feeding is None else feeding.parameters
    shared_bytes = sum(a.bytes for a in writer.shared)
    dynamic = shared_bytes > writer.dialect.most_declared or any(a.swizzled for a in writer.shared)
    head = [writer.dialect.head((x, y, z), _resident(writer)), *_signature(writer, number, name, fed), "{"]
    if writer.uses_thread:
        head.append(f"  const int thread = {_linear_thread(writer.dialect, writer.shape)};")
    index = writer.program.dialect.index
    head += [f"  const {index} {t} = {text};" for t, text in writer.thread_ids.items()]
    head += [f"  {line}" for line in writer.dialect.shared(writer.shared, dynamic)]
    head += [f"  {line}" for line in (*_moved_by_launch(writer), *_moved(writer, number))]
    lines = (*head, *writer.lines, "}")
    where = tuple((len(head) + n, s) for n, s in writer.where)
    arguments = (*storages, *([REPORT] if REPORT in writer.used else []))
    steps = _steps(writer)
    maps = () if feeding is None else feeding.maps
    launch = Launch(name, grid, (x, y, z), shared_bytes if dynamic else 0, arguments, where, steps, maps)
    return KernelText(lines, launch, tuple(storages), frozenset(writer.vectors), math.prod(grid))


def _signature(writer: KernelWriter, number: int, name: str, maps: Sequence[str]) -> list[str]:
    parameters = [_parameter(writer, number, s, _pointer(writer, s)) for s in _in_program_order(writer)]
    if REPORT in writer.used:
        parameters.append(writer.dialect.parameter("long long", "report", written=True, restricted=True))
    parameters += maps
    parameters += [f"const long long {step_parameter(step)}" for step in _steps(writer)]
    if writer.dialect.moved:
        parameters += [f"const long long {_BEHIND}{n}" for n in range(len(_in_program_order(writer)))]
    joined = f"{name}({', '.join(parameters)})"
    if len(joined) <= LONGEST_LINE:
        return [joined]
    return [f"{name}(", *(f"    {p}," for p in parameters[:-1]), f"    {parameters[-1]})"]


def _steps(writer: KernelWriter) -> tuple[str, ...]:
    """The steps around that a kernel asks for."""
    around = writer.plan.scop.around
    words = {word for line in writer.lines for word in _WORD.findall(line)}
    return () if around is None else tuple(step for step in around.steps if step_parameter(step) in words)


def _steps_known(plan: Plan) -> Ranges:
    """The values that each of the steps around a plan takes."""
    return Ranges({step_parameter(step): between for step, between in steps_between(plan).items()})


def _in_program_order(writer: KernelWriter) -> list[str]:
    """The storages that a kernel takes: inputs, then outputs, as the program lists them, then temporaries."""
    function = writer.program.function
    listed = [t.name for t in (*function.inputs, *function.outputs)]
    order = {name: position for position, name in enumerate([*listed, *writer.plan.scop.storages])}
    order |= {name: position for position, name in enumerate(listed)}
    return sorted((s for s in writer.used if s != REPORT), key=lambda s: order[s])


def _parameter(writer: KernelWriter, number: int, storage: str, name: str) -> str:
    """A pointer; what threads hand to each other there is not restricted, or reads of it move across barriers."""
    plan: Plan = writer.plan
    own = [writer.statements[s] for c in plan.groups[number].clusters for s in plan.clusters[c].statements]
    written = storage in {s.target for s in own}
    read = storage in {r.get_tuple_name(isl.dim_type.out) for s in own for r in s.all_reads}
    element = DEVICE_TYPES[plan.scop.storages[storage].dtype.name]
    return writer.dialect.parameter(element, name, written, restricted=not (written and read))


def _pointer(writer: KernelWriter, storage: str) -> str:
    """The name of a parameter: that of the storage, but where the kernel gets a pointer to another element."""
    name = writer.dialect.name(storage)
    return f"tc_lowest_{name}" if _before(writer, storage) else name


def _moved(writer: KernelWriter, number: int) -> list[str]:
    """Pointers to the first elements of arrays, of which the kernel gets the lowest."""
    found = [(s, _before(writer, s)) for s in _in_program_order(writer)]
    return [
        f"{_parameter(writer, number, s, writer.dialect.name(s))} = {_pointer(writer, s)} + {before};"
        for s, before in found
        if before
    ]


def _moved_by_launch(writer: KernelWriter) -> list[str]:
    """Pointers to where the slices of a launch begin; the kernel gets the arrays, and how far it is to there."""
    if not writer.dialect.moved:
        return []
    storages = writer.plan.scop.storages
    return [
        f"{_pointer(writer, s)} += {_BEHIND}{n} / {storages[s].dtype.itemsize};"
        for n, s in enumerate(_in_program_order(writer))
    ]


def _before(writer: KernelWriter, storage: str) -> int:
    """How many elements lie between the one that the kernel gets a pointer to and the first."""
    own = writer.plan.scop.storages[storage].argument
    kept = own.role == "temporary" or not writer.dialect.from_lowest
    return 0 if kept else elements_before(own.box.extent, own.strides)


def _linear_thread(dialect: DeviceDialect, shape: tuple[int, ...]) -> str:
    """The number of a thread in its block; ``shape`` is outermost first."""
    text = dialect.thread(len(shape) - 1)
    for n in range(len(shape) - 2, -1, -1):
        inner = f"({text})" if " " in text else text
        text = f"{dialect.thread(n)} + {shape[len(shape) - 1 - n]} * {inner}"
    return text
