"""What is around the loops of a CPU kernel: its head, what it calls, and the facts that whoever runs it needs."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.backends.arena import Arena
from tcomp.backends.c.contractions.dotinstructions import dot_functions
from tcomp.backends.c.contractions.groupedpanels import group_functions
from tcomp.backends.c.contractions.lanesums import lane_sum_functions
from tcomp.backends.c.contractions.panels import fill_functions
from tcomp.backends.c.rows.streaming import stream_functions
from tcomp.backends.c.vectors.extrema import vector_extrema
from tcomp.backends.c.vectors.types import vector_declarations
from tcomp.backends.c.vectors.widening import widening_functions
from tcomp.backends.dialect import C_STORAGE_TYPES, mangle
from tcomp.backends.prelude import prelude
from tcomp.backends.source import Argument, Source
from tcomp.backends.spelling import Needs
from tcomp.grammar.tree.function import Function
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.plan.values import Plan
from tcomp.values.intrinsics import c_declarations

_OPENMP = "".join(f"int omp_get_{name}(void);\n" for name in ("thread_num", "num_threads", "max_threads"))

_DEEP = 12
_DEEP_FLAGS = ("-fno-ivopts",)
"""gcc's choice of induction variables takes 1.7 times as long for each further loop around a statement, minutes for 20;
kernels with fewer loops need it, some take twice as long without."""


@dataclass(frozen=True, slots=True)
class KernelFrame:
    """The frame of one kernel, whose temporaries lie as the ``arena`` says, for so many ``threads`` of a machine."""

    function: Function
    plan: Plan
    arena: Arena
    machine: Machine
    threads: int
    fast_math: bool

    def source(self, lines: list[str], needs: Needs, uses_threads: bool, depth: int) -> Source:
        """The kernel around the lines of its loops, which have those ``needs`` and may ask for their thread.

        ``depth`` is how many of the loops are in one another.
        """
        arguments = self._arguments()
        entry = f"tcomp_{self.function.name}"
        head = [f"int {entry}({', '.join(_parameters(arguments))})", "{"]
        head += [f"  {line}" for line in self._global_declarations()]
        if needs.checks:
            head.append("  report[2] = 0;")
        tail = ["  return report[2] != 0;" if needs.checks else "  return 0;", "}"]
        text = "\n".join([*head, *lines, *tail]) + "\n"
        declarations = "".join(d.rstrip() + "\n" for d in c_declarations(needs.calls))
        declarations += _OPENMP if uses_threads else ""
        text = fill_functions(text) + vector_extrema(text) + stream_functions(text) + text
        text = group_functions(text) + lane_sum_functions(text) + text
        text = dot_functions(text, self.machine.dots) + widening_functions(text, self.machine.widens) + text
        text = vector_declarations(text) + prelude(declarations + text) + declarations + "\n" + text
        flags = (*(("-ffast-math",) if self.fast_math else ()), *(_DEEP_FLAGS if depth > _DEEP else ()))
        scratch = self.arena.shared_bytes + self.threads * self.arena.slice_bytes
        return Source(f"/* {self._title()} */\n{text}", entry, tuple(arguments), scratch, tuple(needs.checks), flags)

    def pointer(self, storage: str) -> str:
        """How the pointer to a storage is declared, after the type of what it points to."""
        return f"*{'restrict ' if storage in self.arena.alone else ''}{mangle(storage)}"

    def _title(self) -> str:
        sizes = ", ".join(f"{name} = {value}" for name, value in self.plan.scop.sizes.items())
        return f"{self.function.name}, specialised to {sizes or 'no sizes'}"

    def _arguments(self) -> list[Argument]:
        names = [t.name for t in self.function.inputs if t.role == "input"]
        names += [t.name for t in self.function.outputs]
        storages = [self.plan.scop.storages[n].argument for n in names]
        return [Argument(s.name, s.dtype, s.box.extent, s.strides, s.role) for s in storages]

    def _global_declarations(self) -> list[str]:
        lines = []
        for name, offset in self.arena.shared.items():
            c = C_STORAGE_TYPES[self.plan.buffers[name].dtype.name]
            lines.append(f"{c} {self.pointer(name)} = ({c} *)(scratch + {offset}L);")
        return lines


def _parameters(arguments: list[Argument]) -> list[str]:
    parameters = []
    for a in arguments:
        const = "const " if a.role == "input" else ""
        parameters.append(f"{const}{C_STORAGE_TYPES[a.dtype.name]} *restrict {mangle(a.name)}")
    return [*parameters, "char *restrict scratch", "long long *restrict report"]
