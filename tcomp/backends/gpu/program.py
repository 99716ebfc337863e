"""The text of a program in a language of GPUs: one kernel per group of clusters, launched one after another."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

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
from tcomp.loops.ir import Block, If, LoopExpr, LoopNode, Number, Operation, Scope
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.values import Plan
from tcomp.values.intrinsics import INTRINSICS

FlagsOf = Callable[[Function, MappingOptions], tuple[str, ...]]
"""What the compiler of a language is told, by a kernel's program and options."""


def write_program(
    dialect: DeviceDialect, function: Function, plan: Plan, loops: LoopNode, options: MappingOptions, checked: bool,
    flags: FlagsOf,
) -> Source:  # fmt: skip
    """The kernels of a plan.  ``checked`` guards data-dependent subscripts.

    Raises TargetError where the plan, written by hand, has what the language lacks.
    """
    needs = Needs()
    kernels = functools.partial(write_kernels, dialect, function, plan, loops, options, checked, needs)
    text = kernels(index_type(plan), function.name, range(len(function.statements)))
    arguments = arguments_of(function, plan.scop)
    temporaries, scratch = temporaries_of(plan, text.kernels, 0)
    whole, launches = assembled(dialect, function.name, plan.scop.sizes, [text], needs)
    return Source(
        whole, function.name, arguments, scratch, tuple(needs.checks), flags(function, options), launches, temporaries,
        tuple(a.name for a in arguments if any(a.name in k.vectors for k in text.kernels)),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProgramText:
    """The kernels of a plan, and the type that they compute indices in."""

    kernels: tuple[KernelText, ...]
    index: str


def write_kernels(
    dialect: DeviceDialect, function: Function, plan: Plan, loops: LoopNode, options: MappingOptions, checked: bool,
    needs: Needs, index: str, name: str, numbers: Sequence[int],
) -> ProgramText:  # fmt: skip
    """The kernels of a plan, ``NAME_0`` and so on; ``needs`` gets what they call.

    ``numbers`` are those of the function's statements in the program text.

    Raises TargetError as ``write_program`` does.
    """
    _check_plan(dialect, plan)
    scop = plan.scop
    functions = {*INTRINSICS, *(f"{name}f" for name in INTRINSICS), *dialect.reserved}
    names = identifiers(scop.storages, functions)
    indices = {i for s in scop.statements for i in s.indices}
    spelled = identifiers(indices, {*functions, *names.values()})
    dialect = _indexed(dialect, index, names)
    program = Program(function, plan, options, checked, needs, dialect, spelled, numbers)
    return ProgramText(tuple(write_kernel(program, n, f"{name}_{n}", node) for n, node in _groups(loops)), index)


def assembled(
    dialect: DeviceDialect, name: str, values: Mapping[str, int], texts: Sequence[ProgramText], needs: Needs
) -> tuple[str, tuple[Launch, ...]]:
    """The whole text of some kernels, and the launch of each of them."""
    kernels = [kernel for text in texts for kernel in text.kernels]
    wide = any(text.index != "int" for text in texts)
    dialect = _indexed(dialect, "long long" if wide else "int", {})
    body = "".join("\n".join(k.lines) + "\n\n" for k in kernels)
    definitions = dialect.definitions(needs.calls)
    sizes = ", ".join(f"{size} = {value}" for size, value in values.items())
    title = f"// {name}, specialised to {sizes or 'no sizes'}\n"
    head = title + dialect.prelude(definitions + body) + definitions + "\n"
    return dialect.finished(head + body.rstrip("\n") + "\n"), _placed(kernels, head.count("\n"))


def _indexed(dialect: DeviceDialect, index: str, names: Mapping[str, str]) -> DeviceDialect:
    return replace(dialect, index=index, suffix="" if index == "int" else "LL", identifiers=names)


def _check_plan(dialect: DeviceDialect, plan: Plan) -> None:
    """Raises TargetError."""
    hint = "leave the passes atoms and pipelines to the target"
    if plan.pipelines and not dialect.asks_ahead:
        raise TargetError(Diagnostic("the plan fetches in stages, which kernels for this target cannot", hint=hint))
    if any(o.kind == "contract" for o in plan.operations.values()) and not dialect.multiplies:
        raise TargetError(Diagnostic("the plan multiplies matrices, which kernels for this target cannot", hint=hint))


def temporaries_of(plan: Plan, kernels: Sequence[KernelText], begin: int) -> tuple[tuple[Temporary, ...], int]:
    """What lies in scratch memory from byte ``begin`` on, and the byte behind it: intermediates between kernels, and
    tiles that a block has there."""
    arena = lay_out(plan)
    found = [
        Temporary(name, plan.buffers[name].dtype, plan.buffers[name].shape, begin + offset)
        for name, offset in arena.shared.items()
    ]
    end = begin + arena.shared_bytes
    for kernel in kernels:
        for storage in kernel.storages:
            buffer = plan.buffers.get(storage)
            if buffer is not None and buffer.space == "block":
                found.append(Temporary(storage, buffer.dtype, (kernel.blocks, *buffer.shape), end))
                end += -(-found[-1].bytes // ALIGNMENT) * ALIGNMENT
    return tuple(found), end


def _groups(loops: LoopNode) -> list[tuple[int, LoopNode]]:
    """The loops of each group, by its number; what only some steps run has its condition inside."""
    match loops:
        case Block():
            return [pair for child in loops.children for pair in _groups(child)]
        case Scope(name=name):
            return [(int(name.removeprefix("parallel").removeprefix("group")), loops)]
        case If(condition=condition, then=then, otherwise=otherwise):
            others = [] if otherwise is None else _guarded(Operation("==", (condition, Number(0))), otherwise)
            return [*_guarded(condition, then), *others]
        case _:
            raise AssertionError(f"{type(loops).__name__} above the tiles of a group")


def _guarded(condition: LoopExpr, loops: LoopNode) -> list[tuple[int, LoopNode]]:
    return [(number, _within(condition, node)) for number, node in _groups(loops)]


def _within(condition: LoopExpr, node: LoopNode) -> LoopNode:
    """The node, with a condition below the marks at its top."""
    if isinstance(node, Scope) and node.name.startswith(("parallel", "group")):
        return replace(node, body=_within(condition, node.body))
    return If(condition, node, None)


def _placed(kernels: list[KernelText], lines: int) -> tuple[Launch, ...]:
    """The launches, with lines counted from the start of the text; ``lines`` stand above the first kernel."""
    launches = []
    for kernel in kernels:
        where = tuple((line + lines, statement) for line, statement in kernel.launch.lines)
        launches.append(replace(kernel.launch, lines=where))
        lines += len(kernel.lines) + 1
    return tuple(launches)
