"""What is around the loops of a CPU kernel: its head, what it calls, and the facts that whoever runs it needs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tcomp.backends.arena import Arena
from tcomp.backends.arguments import arguments_of
from tcomp.backends.c.contractions.aheadpanels import MEMORY, AheadPanels
from tcomp.backends.c.contractions.dotinstructions import dot_functions
from tcomp.backends.c.contractions.groupedpanels import group_functions
from tcomp.backends.c.contractions.lanesums import lane_sum_functions
from tcomp.backends.c.contractions.matrixtiles import matrix_functions
from tcomp.backends.c.contractions.panels import fill_functions
from tcomp.backends.c.outlining import outlined
from tcomp.backends.c.rows.streaming import stream_functions
from tcomp.backends.c.vectors.extrema import vector_extrema
from tcomp.backends.c.vectors.types import vector_declarations
from tcomp.backends.c.vectors.widening import widening_functions
from tcomp.backends.dialect import C_STORAGE_TYPES, mangle
from tcomp.backends.openextents import open_declarations
from tcomp.backends.prelude import prelude
from tcomp.backends.source import PACKED, SIZE, Argument, Source
from tcomp.backends.spelling import Needs
from tcomp.grammar.tree.function import Function
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.plan.values import Plan
from tcomp.values.intrinsics import c_declarations
from tcomp.values.operators import UINT8

_OPENMP = "".join(f"int omp_get_{name}(void);\n" for name in ("thread_num", "num_threads", "max_threads"))

_DEEP = 12
_DEEP_FLAGS = ("-fno-ivopts",)
"""gcc's choice of induction variables takes 1.7 times as long for each further loop around a statement, minutes for 20;
kernels with fewer loops need it, some take twice as long without."""


@dataclass(frozen=True, slots=True)
class KernelFrame:
    """The frame of one kernel, whose temporaries lie as the ``arena`` says, for so many ``threads`` of a machine.

    The panels ``ahead`` lie in memory that a second function fills.
    """

    function: Function
    plan: Plan
    arena: Arena
    machine: Machine
    threads: int
    fast_math: bool
    ahead: AheadPanels

    def source(self, lines: list[str], needs: Needs, scratch: int, uses_threads: bool, depth: int) -> Source:
        """The kernel around the lines of its loops, which have those ``needs`` and may ask for their thread.

        They have so many bytes of ``scratch``.

        ``depth`` is how many of the loops are in one another.
        """
        arguments = arguments_of(self.function, self.plan.scop)
        if self.ahead.bytes:
            arguments += (Argument(PACKED, UINT8, (self.ahead.bytes,), (1,), "input", bound=True),)
        entry = f"tcomp_{self.function.name}"
        head = [f"int {entry}({', '.join(parameters(arguments))})", "{"]
        head += [f"  {line}" for line in open_declarations(self.plan.scop, "\n".join(lines))]
        head += [f"  {line}" for line in self.global_declarations()]
        if needs.checks:
            head.append("  report[2] = 0;")
        tail = ["  return report[2] != 0;" if needs.checks else "  return 0;", "}"]
        packing = f"{entry}_packing" if self.ahead.bytes else None
        body = "\n".join([*head[1:], *lines])
        packed = [a.name for a in arguments if packing and a.bound and a.name != PACKED and not named(a, body)]
        whole = outlined([*head[2:], *lines], parameters(arguments), entry)
        parts = [*whole.functions, *head[:2], *whole.lines]
        text = "\n".join([*self._packing(packing, arguments), *parts, *tail]) + "\n"
        text = with_helpers(text, needs, uses_threads, self.machine)
        flags = flags_of(self.fast_math, depth)
        return Source(
            f"/* {self._title()} */\n{text}",
            entry,
            arguments,
            scratch,
            tuple(needs.checks),
            flags,
            packing=packing,
            packed=tuple(packed),
        )

    @property
    def scratch_bytes(self) -> int:
        """The scratch memory that temporaries and slices take."""
        return self.arena.shared_bytes + self.threads * self.arena.slice_bytes

    def _packing(self, name: str | None, arguments: tuple[Argument, ...]) -> list[str]:
        """The function that packs the panels of bound arrays, where there are some."""
        if name is None:
            return []
        bound = [parameter(a) for a in arguments if a.bound and a.name != PACKED]
        head = f"void {name}({', '.join([*bound, f'char *restrict {MEMORY}'])})"
        return [head, "{", *(f"  {line}" for line in self.ahead.filled(self.machine.vector_bytes)), "}"]

    def pointer(self, storage: str) -> str:
        """How the pointer to a storage is declared, after the type of what it points to."""
        return f"*{'restrict ' if storage in self.arena.alone else ''}{mangle(storage)}"

    def _title(self) -> str:
        around = self.plan.scop.around
        most = around.steps if around is not None and around.open else ()
        pairs = self.plan.scop.sizes.items()
        sizes = ", ".join(f"{name} {'up to' if name in most else '='} {value}" for name, value in pairs)
        return f"{self.function.name}, specialised to {sizes or 'no sizes'}"

    def global_declarations(self) -> list[str]:
        lines: list[str] = []
        for name, offset in self.arena.shared.items():
            c = C_STORAGE_TYPES[self.plan.buffers[name].dtype.name]
            lines.append(f"{c} {self.pointer(name)} = ({c} *)(scratch + {offset}L);")
        return lines


def flags_of(fast_math: bool, depth: int) -> tuple[str, ...]:
    """What a compiler is told for a kernel with so many loops in one another."""
    return (*(("-ffast-math",) if fast_math else ()), *(_DEEP_FLAGS if depth > _DEEP else ()))


def with_helpers(text: str, needs: Needs, uses_threads: bool, machine: Machine) -> str:
    """The functions of a kernel, behind the declarations and the functions that they use."""
    declarations = "".join(d.rstrip() + "\n" for d in c_declarations(needs.calls))
    declarations += _OPENMP if uses_threads else ""
    text = fill_functions(text) + vector_extrema(text) + stream_functions(text) + text
    text = group_functions(text) + lane_sum_functions(text) + text
    text = matrix_functions(text) + text
    text = dot_functions(text, machine.dots) + widening_functions(text, machine.widens) + text
    return vector_declarations(text) + prelude(declarations + text) + declarations + "\n" + text


def named(argument: Argument, lines: str) -> bool:
    """Whether lines of a kernel name an argument: what they do not name they cannot read."""
    return re.search(rf"\b{mangle(argument.name)}\b", lines) is not None


def parameters(arguments: tuple[Argument, ...]) -> list[str]:
    """What a kernel takes."""
    return [*map(parameter, arguments), "char *restrict scratch", "long long *restrict report"]


def parameter(argument: Argument) -> str:
    """How an argument is declared."""
    if argument.name == PACKED:
        return f"char *restrict {MEMORY}"
    if argument.role == SIZE:
        return f"const long {argument.name}"
    const = "const " if argument.role == "input" else ""
    return f"{const}{C_STORAGE_TYPES[argument.dtype.name]} *restrict {mangle(argument.name)}"
