"""The text of a program in a language of GPUs: one kernel per group of clusters, launched one after another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tcomp.backends.arena import ALIGNMENT, lay_out
from tcomp.backends.arguments import arguments_of
from tcomp.backends.gpu.kernel import KernelText, write_kernel
from tcomp.backends.gpu.words.dialect import DeviceDialect
from tcomp.backends.gpu.words.names import identifiers
from tcomp.backends.gpu.writer import Program
from tcomp.backends.indexwidth import index_type
from tcomp.backends.source import Launch, Source, Temporary
from tcomp.backends.spelling import Needs
from tcomp.errors import Diagnostic, TargetError
from tcomp.grammar.tree.function import Function
from tcomp.loops.ir import Block, LoopNode, Scope
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.values import Plan
from tcomp.values.intrinsics import INTRINSICS

FlagsOf = Callable[[MappingOptions], tuple[str, ...]]
"""What the compiler of a language is told, by the options of a kernel."""


def write_program(
    dialect: DeviceDialect, function: Function, plan: Plan, loops: LoopNode, options: MappingOptions, checked: bool,
    flags: FlagsOf,
) -> Source:  # fmt: skip
    """The kernels of a plan.  ``checked`` guards data-dependent subscripts.

    Raises TargetError where the plan, written by hand, has what the language lacks.
    """
    _check_plan(dialect, plan)
    needs = Needs()
    scop = plan.scop
    functions = {*INTRINSICS, *(f"{name}f" for name in INTRINSICS), *dialect.reserved}
    names = identifiers(scop.storages, functions)
    indices = {i for s in scop.statements for i in s.indices}
    spelled = identifiers(indices, {*functions, *names.values()})
    index = index_type(plan)
    dialect = replace(dialect, index=index, suffix="" if index == "int" else "LL", identifiers=names)
    program = Program(function, plan, options, checked, needs, dialect, spelled)
    kernels = [write_kernel(program, number, f"{function.name}_{number}", node) for number, node in _groups(loops)]
    arguments = arguments_of(function, scop)
    temporaries, scratch = _temporaries(plan, kernels)
    body = "".join("\n".join(k.lines) + "\n\n" for k in kernels)
    definitions = dialect.definitions(needs.calls)
    sizes = ", ".join(f"{name} = {value}" for name, value in scop.sizes.items())
    title = f"// {function.name}, specialised to {sizes or 'no sizes'}\n"
    head = title + dialect.prelude(definitions + body) + definitions + "\n"
    launches = _placed(kernels, head.count("\n"))
    return Source(
        dialect.finished(head + body.rstrip("\n") + "\n"), function.name, arguments, scratch, tuple(needs.checks),
        flags(options), launches, temporaries,
        tuple(a.name for a in arguments if any(a.name in k.vectors for k in kernels)),
    )  # fmt: skip


def _check_plan(dialect: DeviceDialect, plan: Plan) -> None:
    """Raises TargetError."""
    hint = "leave the passes atoms and pipelines to the target"
    if plan.pipelines and not dialect.asks_ahead:
        raise TargetError(Diagnostic("the plan fetches in stages, which kernels for this target cannot", hint=hint))
    if any(o.kind == "contract" for o in plan.operations.values()) and not dialect.multiplies:
        raise TargetError(Diagnostic("the plan multiplies matrices, which kernels for this target cannot", hint=hint))


def _temporaries(plan: Plan, kernels: list[KernelText]) -> tuple[tuple[Temporary, ...], int]:
    """What lies in scratch memory: intermediates between kernels, and tiles that a block has there."""
    arena = lay_out(plan)
    found = [
        Temporary(name, plan.buffers[name].dtype, plan.buffers[name].shape, offset)
        for name, offset in arena.shared.items()
    ]
    end = arena.shared_bytes
    for kernel in kernels:
        for storage in kernel.storages:
            buffer = plan.buffers.get(storage)
            if buffer is not None and buffer.space == "block":
                found.append(Temporary(storage, buffer.dtype, (kernel.blocks, *buffer.shape), end))
                end += -(-found[-1].bytes // ALIGNMENT) * ALIGNMENT
    return tuple(found), end


def _groups(loops: LoopNode) -> list[tuple[int, LoopNode]]:
    """The loops of each group, by its number."""
    match loops:
        case Block():
            return [pair for child in loops.children for pair in _groups(child)]
        case Scope(name=name):
            return [(int(name.removeprefix("parallel").removeprefix("group")), loops)]
        case _:
            raise AssertionError(f"{type(loops).__name__} above the tiles of a group")


def _placed(kernels: list[KernelText], lines: int) -> tuple[Launch, ...]:
    """The launches, with lines counted from the start of the text; ``lines`` stand above the first kernel."""
    launches = []
    for kernel in kernels:
        where = tuple((line + lines, statement) for line, statement in kernel.launch.lines)
        launches.append(replace(kernel.launch, lines=where))
        lines += len(kernel.lines) + 1
    return tuple(launches)
