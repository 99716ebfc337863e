"""``tcomp simulate``: run a def's CUDA kernels on the CPU, thread by thread; tell what is wrong and what they cost."""

from __future__ import annotations

import argparse
import ctypes
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tcomp.backends.simulator.report import AccessCounts, KernelCounts, Report
from tcomp.backends.simulator.simulation import Order, Settings, load
from tcomp.backends.source import Source
from tcomp.commands.inputs.programs import Request, add_program_arguments, program_request
from tcomp.commands.inputs.types import parse_seed
from tcomp.commands.run import Comparison, compare, show_comparisons
from tcomp.commands.terminal.blocks import BlocksDisplay
from tcomp.commands.terminal.display import show_line, show_table
from tcomp.commands.terminal.exit_codes import DONE, WRONG
from tcomp.commands.terminal.machinecode import architecture_of
from tcomp.commands.terminal.roofline import Point, bound, picture, readable
from tcomp.driver import Compilation
from tcomp.errors import Diagnostic, ShapeError, TargetError
from tcomp.grammar.ranges.ranges import infer
from tcomp.grammar.tree.function import Function
from tcomp.grammar.tree.limits import MAX_INDICES
from tcomp.mapping.machines.gpu import DEFAULT_ARCHITECTURE, SECTOR_BYTES, Gpu, gpu_of
from tcomp.mapping.options.choices import NVIDIA_TARGETS
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.tiles.flops import flops_of
from tcomp.model.evaluation import numpy_dtype
from tcomp.model.madeup import Arguments, Array, random_arguments
from tcomp.runtime.binding import describe_failure

_ORDERS: tuple[Order, ...] = ("forward", "reverse", "random")
_TARGET = f"cuda:{DEFAULT_ARCHITECTURE}"
_GARBAGE = 77
"""What outputs hold that nobody has written."""

_KERNEL_COLUMNS = ("kernel", "grid", "block", "barriers", "warp ops", "flops", "bytes", "flop/byte", "bound")
_BUFFER_COLUMNS = ("buffer", "access", "requests", "sectors", "ideal", "bytes", "conflicts")


@dataclass(frozen=True, slots=True)
class SimulateRequest:
    """What the command line asks for."""

    program: Request
    order: Order
    seed: int
    json: bool
    blocks: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out: the report, outputs against the reference, and each kernel's place under the roof."""

    gpu: Gpu
    report: Report
    comparisons: tuple[Comparison, ...]
    points: tuple[Point, ...]

    @property
    def right(self) -> bool:
        """Whether there is nothing to complain of."""
        return not self.report.findings and all(c.agrees for c in self.comparisons)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``tcomp simulate``."""
    add_program_arguments(parser, _TARGET, "the GPU to map for")
    parser.add_argument(
        "--order", choices=_ORDERS, default="forward", help="of blocks, and of threads between barriers"
    )
    parser.add_argument("--seed", type=parse_seed, default=0, help="of the made-up inputs and of a random order")
    parser.add_argument(
        "--blocks",
        type=_positive,
        metavar="N",
        help="simulate N blocks of each kernel only, spread over its grid; counts are scaled, results not compared",
    )
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")
    parser.set_defaults(execute=lambda values: execute(_request(values)))


def _request(values: argparse.Namespace) -> SimulateRequest:
    return SimulateRequest(program_request(values), values.order, values.seed, values.json, values.blocks)


def _positive(text: str) -> int:
    """A number of blocks.  Raises ValueError."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected at least one block but found {number}")
    return number


def execute(request: SimulateRequest) -> int:
    """Simulate a program.  Returns WRONG if there are findings or a wrong result.  Raises TcompError."""
    program, target = request.program.load(), _full_name(request.program.target)
    architecture = architecture_of(target)
    if architecture is None:
        hint = "name a GPU, as in --target cuda:sm_90"
        raise TargetError(Diagnostic(f"the target {target} has no CUDA kernels to simulate", hint=hint))
    operation = program.operation
    ranges = infer(operation.function, request.program.sizes)
    arguments = random_arguments(operation.function, ranges, request.seed)
    compilation = program.lower(request.program.sizes, target)
    arrays = arrays_of(compilation.source, operation.function, arguments)
    settings = Settings(request.order, request.seed, counting=True, blocks=request.blocks)
    report = simulated(compilation.source, operation.function, arrays, settings)
    outputs = {tensor.name: arrays[tensor.name] for tensor in operation.function.outputs}
    comparable = report.complete and not report.findings
    comparisons = compare(operation, arguments, outputs, program.options, on_gpu=True) if comparable else ()
    outcome = Outcome(gpu_of(architecture), report, comparisons, points_of(compilation, report.kernels))
    if request.json:
        options = program.options or MappingOptions()
        show_line(json.dumps(_plain(outcome, request, options), indent=2))
    else:
        _show(outcome)
        if not report.complete:
            show_line("results are not compared: not all blocks were simulated")
    return DONE if outcome.right else WRONG


def _full_name(target: str) -> str:
    """A bare ``cuda`` needs no device here: the default architecture stands for it."""
    return f"{target}:{DEFAULT_ARCHITECTURE}" if target in NVIDIA_TARGETS else target


def arrays_of(source: Source, function: Function, arguments: Arguments) -> dict[str, Array]:
    """Every argument of the kernels by name: inputs, outputs that are read, and room for the others."""
    given = {
        tensor.name: value
        for tensor, value in zip(function.inputs, arguments.values, strict=True)
        if isinstance(value, np.ndarray)
    } | arguments.fresh_contents()
    return {
        a.name: given[a.name] if a.name in given else np.full(a.shape, _GARBAGE).astype(numpy_dtype(a.dtype))
        for a in source.arguments
    }


def simulated(source: Source, function: Function, arrays: Mapping[str, Array], settings: Settings) -> Report:
    """Raises ShapeError for a data-dependent subscript outside its tensor."""
    checked = (ctypes.c_int64 * (3 + MAX_INDICES))()
    addresses = [arrays[argument.name].ctypes.data for argument in source.arguments]
    simulation = load(source)
    with BlocksDisplay(lambda: simulation.progress):
        report = simulation.run(addresses, ctypes.addressof(checked), settings)
    if report.status and not report.findings:
        check = source.checks[checked[0]]
        place = dict(zip(check.indices, checked[3:], strict=False))
        raise ShapeError(Diagnostic(describe_failure(function, check, checked[1], place), function.source))
    return report


def points_of(compilation: Compilation, kernels: Sequence[KernelCounts]) -> tuple[Point, ...]:
    """Arithmetic from the domains of the statements that a kernel runs, traffic as the simulator counted it."""
    flops = flops_of(compilation.plan)
    statements = {
        launch.kernel: {name for _, name in launch.lines if name in flops} for launch in compilation.source.launches
    }
    return tuple(
        Point(k.kernel, sum(flops[s] for s in statements[k.kernel]), k.global_sectors * SECTOR_BYTES) for k in kernels
    )


def _show(outcome: Outcome) -> None:
    for finding in outcome.report.findings:
        show_line(str(finding), "red")
    if outcome.report.total > len(outcome.report.findings):
        show_line(f"{outcome.report.total} faults in all", "red")
    show_comparisons(outcome.comparisons)
    show_line("")
    pairs = list(zip(outcome.report.kernels, outcome.points, strict=True))
    show_table(_KERNEL_COLUMNS, [_kernel_row(outcome.gpu, k, p) for k, p in pairs])
    for kernel in outcome.report.kernels:
        show_line("")
        show_table(_BUFFER_COLUMNS, _buffer_rows(kernel), f"{kernel.kernel} (sectors per request)")
    show_line("")
    for line in picture(outcome.gpu, outcome.points).splitlines():
        show_line(line)


def _kernel_row(gpu: Gpu, kernel: KernelCounts, point: Point) -> tuple[str, ...]:
    return (
        kernel.kernel,
        _extents(kernel.grid),
        _extents(kernel.block),
        f"{kernel.barriers:g}",
        str(kernel.collectives),
        str(point.flops),
        str(point.bytes),
        readable(point.intensity) if point.bytes else "-",
        bound(gpu, point) if point.bytes else "-",
    )


@dataclass(frozen=True, slots=True)
class _Traffic:
    """The accesses of one kind to one buffer, whatever their lines."""

    accesses: tuple[AccessCounts, ...]

    def row(self) -> tuple[str, ...]:
        """The row of the table."""
        first = self.accesses[0]
        requests = sum(a.requests for a in self.accesses)
        shared = first.space == "shared"
        sectors = sum(a.sectors for a in self.accesses) / max(1, requests)
        ideal = sum(a.ideal_sectors for a in self.accesses) / max(1, requests)
        return (
            first.buffer,
            f"{first.space} {first.access}",
            str(requests),
            "" if shared else f"{sectors:.2f}",
            "" if shared else f"{ideal:.2f}",
            str(sum(a.bytes for a in self.accesses)),
            str(sum(a.conflicts for a in self.accesses)) if shared else "",
        )


def _buffer_rows(kernel: KernelCounts) -> list[tuple[str, ...]]:
    found: dict[tuple[str, str, str], list[AccessCounts]] = {}
    for access in kernel.accesses:
        found.setdefault((access.space, access.buffer, access.access), []).append(access)
    return [_Traffic(tuple(accesses)).row() for accesses in found.values()]


def _extents(extents: tuple[int, int, int]) -> str:
    count = max((position for position, extent in enumerate(extents, 1) if extent > 1), default=1)
    return "x".join(map(str, extents[:count]))


def _plain(outcome: Outcome, request: SimulateRequest, options: MappingOptions) -> dict[str, object]:
    """Everything as JSON has it."""
    report = outcome.report
    return {
        "program": request.program.file,
        "sizes": dict(request.program.sizes),
        "architecture": outcome.gpu.architecture,
        "order": request.order,
        "seed": request.seed,
        "blocks": request.blocks,
        "options": json.loads(options.to_json()),
        "right": outcome.right,
        "findings": [str(f) for f in report.findings],
        "outputs": [_plain_comparison(c) for c in outcome.comparisons],
        "kernels": [_plain_kernel(outcome.gpu, k, p) for k, p in zip(report.kernels, outcome.points, strict=True)],
    }


def _plain_comparison(comparison: Comparison) -> dict[str, object]:
    """JSON has no infinity: null stands for it."""
    difference = comparison.difference if math.isfinite(comparison.difference) else None
    return {"name": comparison.output, "difference": difference, "agrees": comparison.agrees}


def _plain_kernel(gpu: Gpu, kernel: KernelCounts, point: Point) -> dict[str, object]:
    return {
        "kernel": kernel.kernel,
        "grid": kernel.grid,
        "block": kernel.block,
        "barriers_per_block": kernel.barriers,
        "warp_operations": kernel.collectives,
        "flops": point.flops,
        "moved_bytes": point.bytes,
        "bound": bound(gpu, point),
        "accesses": [
            {
                "line": a.line,
                "statement": a.statement,
                "buffer": a.buffer,
                "space": a.space,
                "access": a.access,
                "bytes_per_lane": a.bytes_per_lane,
                "requests": a.requests,
                "bytes": a.bytes,
                "sectors": a.sectors,
                "ideal_sectors": a.ideal_sectors,
                "conflicts": a.conflicts if a.space == "shared" else 0,
            }
            for a in kernel.accesses
        ],
    }
