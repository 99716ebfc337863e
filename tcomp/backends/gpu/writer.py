"""The text of one kernel while it is written, and the control flow of C."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import islpy as isl

from tcomp.backends.gpu.matrices.weights import chosen_without_branch, with_powers_of_two
from tcomp.backends.gpu.words.dialect import DeviceDialect, SharedArray
from tcomp.backends.gpu.words.guards import readable
from tcomp.backends.gpu.words.names import unlike
from tcomp.backends.gpu.words.spelling import Fetched, Local, expression_text
from tcomp.backends.spelling import Needs
from tcomp.grammar.tree.function import Function, Read
from tcomp.loops.indexing import Ranges
from tcomp.loops.ir import For, If, Let, LoopExpr, LoopNode, walk
from tcomp.loops.narrowing import Narrowing, narrow
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.deals import Phase
from tcomp.mapping.plan.values import Plan
from tcomp.model.scop import ScopStatement

Body = Callable[[LoopNode, int, Ranges], None]
"""Writes a node at a depth of indentation, under known ranges of iterators."""


@dataclass(frozen=True, slots=True)
class Program:
    """What all kernels of a program share.

    ``numbers`` are those of the function's statements in the program text.
    """

    function: Function
    plan: Plan
    options: MappingOptions
    checked: bool
    needs: Needs
    dialect: DeviceDialect
    indices: Mapping[str, str]
    numbers: Sequence[int]


class KernelWriter:
    """Lines of a kernel, what it has used so far, and what is in force where it stands.

    ``used`` are the storages (and ``REPORT``) that the kernel takes, ``vectors`` those of which it reads or stores
    several elements at a time; ``locals`` the buffers and ``fetched`` the copies in force; ``begun`` are the phases
    of pipelines whose first tiles it has asked for; ``starts`` says where reductions into a storage start;
    ``exchanged`` has, by element type, the array in which threads combine what they share without warps;
    ``declared`` are the indices that the C block around has declared, ``thread_ids`` the thread's coordinates.
    ``redirected`` are statements whose results go elsewhere first, with the C text for that place, ``gathered`` those
    whose neighbours do, with the text up to the number of one of them; ``loaded`` is
    the C text for what statements read that was loaded before.  Powers of two in statements that are ``rounded`` may be
    less precise, and those that are ``chosen`` between two values have no branch.  ``firsts`` are numbers of turns that
    statements name, which the kernel has declared.  ``wide`` says
    whether threads need more registers than usual, ``everywhere`` whether they hand values to each other in global
    memory, too.
    """

    def __init__(self, program: Program, number: int, shape: tuple[int, ...], wide: bool) -> None:
        self.program = program
        self.plan = program.plan
        self.statements: Mapping[str, ScopStatement] = program.plan.scop.by_name
        self.dialect = program.dialect
        self.shape = shape
        self.everywhere = _hands_on_in_global_memory(program.plan, number)
        self.threads = math.prod(shape)
        self.wide = wide
        self.lines: list[str] = []
        self.where: list[tuple[int, str]] = []
        self.used: dict[str, None] = {}
        self.vectors: dict[str, None] = {}
        self.locals: dict[str, Local] = {}
        self.fetched: tuple[Fetched, ...] = ()
        self.shared: list[SharedArray] = []
        self.begun: set[str] = set()
        self.taken: set[str] = set(program.dialect.identifiers.values())
        self.uses_thread = False
        self.thread_ids: dict[str, str] = {}
        self.declared: dict[str, LoopExpr] = {}
        self.redirected: dict[str, str] = {}
        self.gathered: dict[str, str] = {}
        self.loaded: Mapping[tuple[str, Read], str] = {}
        self.starts: dict[str, tuple[LoopNode, Phase]] = {}
        self.exchanged: dict[str, str] = {}
        self.ranges: Mapping[str, Narrowing] = {}
        self.firsts: dict[str, LoopExpr] = {}
        self.rounded: frozenset[str] = frozenset()
        self.chosen: frozenset[str] = frozenset()

    def barrier(self, level: str) -> str:
        """Where the threads of a ``level`` wait for each other."""
        return self.dialect.barrier(level, self.everywhere)

    def narrow(self, node: LoopNode) -> LoopNode:
        """The loops of the kernel, those cut to ranges that data give that can be; ``ranges`` then has these.

        Those over elements may be dealt to threads.
        """
        narrowed = narrow(self.plan, node, over_elements=False)
        self.ranges = narrowed.ranges
        self.plan, self.rounded = with_powers_of_two(narrowed.plan)
        self.chosen = chosen_without_branch(self.plan) if self.dialect.lanes else frozenset()
        self.statements = self.plan.scop.by_name
        return narrowed.loops

    def put(self, depth: int, text: str) -> None:
        """Add a line."""
        self.lines.append("  " * depth + text)

    def fresh(self, name: str) -> str:
        """The name, or one like it that nothing else in the kernel has."""
        name = unlike(name, {*self.taken, *self.program.indices.values()})
        self.taken.add(name)
        return name

    def unlike(self, name: str, ranges: Ranges, inside: LoopNode | None = None) -> str:
        """The name, or one like it that is none of the program, nor of an iterator around or ``inside`` a node."""
        loops = [] if inside is None else [n.iterator for n in walk(inside) if isinstance(n, For | Let)]
        return unlike(name, {*self.taken, *self.program.indices.values(), *ranges.known, *loops})

    def at(self, statement: str) -> None:
        """Note that the last line executes a statement."""
        self.where.append((len(self.lines), statement))

    def scoped(self, write: Callable[[], None]) -> None:
        """Write what stands in a C block of its own: indices declared there are unknown behind it."""
        before = self.declared
        self.declared = dict(before)
        write()
        self.declared = before

    def loop(self, node: For, depth: int, ranges: Ranges, body: Body, comment: str = "") -> None:
        """A loop; ``body`` writes what is in it."""
        lower, upper = ranges.simplify(node.lower), ranges.simplify(node.upper)
        low, high = ranges.bounds(lower), ranges.bounds(upper)
        index, i = self.program.dialect.index, node.iterator
        step = f"++{i}" if node.step == 1 else f"{i} += {node.step}"
        first, end = expression_text(lower, ranges), expression_text(upper, ranges, 4)
        head = f"for ({index} {i} = {first}; {i} < {end}; {step}) {{"
        self.put(depth, f"{head}  // {comment}" if comment else head)
        inner = ranges if low is None or high is None else ranges.knowing(i, low[0], max(low[0], high[1] - 1))
        self.scoped(lambda: body(node.body, depth + 1, inner))
        self.put(depth, "}")

    def let(self, node: Let, depth: int, ranges: Ranges, body: Body) -> None:
        """A loop of one iteration."""
        bounds = ranges.bounds(node.value)
        value = ranges.simplify(node.value)
        inner = ranges if bounds is None else ranges.knowing(node.iterator, *bounds)
        if bounds is None or bounds[0] != bounds[1]:
            self.put(depth, "{")
            self.put(
                depth + 1, f"const {self.program.dialect.index} {node.iterator} = {expression_text(value, ranges)};"
            )
            self.scoped(lambda: body(node.body, depth + 1, inner))
            self.put(depth, "}")
        else:
            body(node.body, depth, inner)

    def branch(self, node: If, depth: int, ranges: Ranges, body: Body) -> None:
        """A test, left out where ranges decide it."""
        decided = ranges.decide(node.condition)
        if decided is True:
            body(node.then, depth, ranges)
        elif decided is False:
            if node.otherwise is not None:
                body(node.otherwise, depth, ranges)
        else:
            condition = readable(node.condition, node.then, ranges, self.statements)
            self.put(depth, f"if ({expression_text(condition, ranges)}) {{")
            self.scoped(lambda: body(node.then, depth + 1, ranges))
            otherwise = node.otherwise
            if otherwise is not None:
                self.put(depth, "} else {")
                self.scoped(lambda: body(otherwise, depth + 1, ranges))
            self.put(depth, "}")


def _hands_on_in_global_memory(plan: Plan, number: int) -> bool:
    """Whether a group reads what it has written to global memory."""
    own = [plan.scop.by_name[s] for c in plan.groups[number].clusters for s in plan.clusters[c].statements]
    read = {r.get_tuple_name(isl.dim_type.out) for s in own for r in s.all_reads}
    buffers = [plan.buffers.get(storage) for storage in {s.target for s in own} & read]
    return any(b is None or b.space in ("block", "global") for b in buffers)
