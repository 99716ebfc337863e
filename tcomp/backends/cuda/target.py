"""The GPU targets: one CUDA kernel per group of clusters, launched one after another."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tcomp.backends.arena import ALIGNMENT, lay_out
from tcomp.backends.arguments import arguments_of
from tcomp.backends.cuda.text.kernel import KernelText, write_kernel
from tcomp.backends.cuda.text.names import identifiers
from tcomp.backends.cuda.text.prelude import cuda_prelude
from tcomp.backends.cuda.text.spelling import CUDA_C
from tcomp.backends.cuda.text.writer import Program
from tcomp.backends.indexwidth import index_type
from tcomp.backends.source import Launch, Source, Temporary
from tcomp.backends.spelling import Needs
from tcomp.grammar.tree.function import Function
from tcomp.loops.ir import Block, LoopNode, Scope
from tcomp.mapping.machines.gpu import Gpu
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.strategy import Pass, gpu_passes
from tcomp.values.intrinsics import INTRINSICS, cuda_definitions


@dataclass(frozen=True, slots=True)
class CudaBackend:
    """The manifest of the target: its name, the device it compiles for, its passes, how it spells loops."""

    gpu: Gpu
    name: str = "cuda"

    @property
    def passes(self) -> tuple[Pass, ...]:
        """What it does to a plan."""
        return gpu_passes(self.gpu)

    def emit(self, function: Function, plan: Plan, loops: LoopNode, options: MappingOptions, checked: bool) -> Source:
        """CUDA C++ for the loops of a plan.  ``checked`` guards data-dependent subscripts."""
        needs = Needs()
        scop = plan.scop
        functions = {*INTRINSICS, *(f"{name}f" for name in INTRINSICS)}
        names = identifiers(scop.storages, functions)
        indices = {i for s in scop.statements for i in s.indices}
        spelled = identifiers(indices, {*functions, *names.values()})
        index = index_type(plan)
        dialect = replace(CUDA_C, index=index, suffix="" if index == "int" else "LL", identifiers=names)
        program = Program(function, plan, options, checked, needs, dialect, spelled)
        kernels = [write_kernel(program, number, f"{function.name}_{number}", node) for number, node in _groups(loops)]
        arguments = arguments_of(function, scop)
        temporaries, scratch = self._temporaries(plan, kernels)
        body = "".join("\n".join(k.lines) + "\n\n" for k in kernels)
        definitions = "".join(d.rstrip() + "\n" for d in cuda_definitions(needs.calls))
        sizes = ", ".join(f"{name} = {value}" for name, value in scop.sizes.items())
        title = f"// {function.name}, specialised to {sizes or 'no sizes'}\n"
        head = title + cuda_prelude(definitions + body, dialect.index) + definitions + "\n"
        launches = _placed(kernels, head.count("\n"))
        flags = ("-ffast-math",) if options.fast_math else ()
        return Source(
            head + body.rstrip("\n") + "\n", function.name, arguments, scratch, tuple(needs.checks), flags, launches,
            temporaries, tuple(a.name for a in arguments if any(a.name in k.vectors for k in kernels)),
        )  # fmt: skip

    @staticmethod
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
