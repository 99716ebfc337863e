"""What a row that computes functions reads of memory, fetched before it is needed.

Processors run on while they wait for memory, but not far: the functions of one line of the cache are as many
instructions as they hold.  And what they fetch by themselves ends with a page.  So rows that are no more than a few
operations an element need nothing; rows of exponentials waited and computed in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tcomp.backends.arena import home_groups
from tcomp.backends.c.vectors.values import neighbours
from tcomp.backends.spelling import Speller, loop_text
from tcomp.grammar.tree.function import Call, Read, depends_on_data, walk
from tcomp.loops.indexing import constant_extent
from tcomp.loops.ir import Execute, For, LoopExpr, Number, Operation, Variable
from tcomp.mapping.fusion.inlining import EXTREMA
from tcomp.mapping.machines.cpu import LINE_BYTES, Machine
from tcomp.mapping.machines.fitted.cputext import FETCHED
from tcomp.mapping.plan.operations import indices_in
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.tiles.strides import access_stride
from tcomp.model.scop import ScopStatement
from tcomp.model.terms.unions import storage_of


@dataclass(frozen=True, slots=True)
class FetchedReads:
    """Reads of neighbouring elements of inputs, which are fetched ``FETCHED.bytes`` ahead."""

    reads: tuple[Read, ...] = ()

    @classmethod
    def of(cls, plan: Plan, machine: Machine, loop: For, call: Execute) -> FetchedReads:
        """Of a row; none where it computes no functions, or where its kernel's tensors may stay in the caches."""
        statement = plan.scop.by_name[call.statement]
        along = neighbours(loop, call, statement)
        calls = [e for e in walk(statement.value) if isinstance(e, Call) and e.intrinsic not in EXTREMA]
        if not any(along in indices_in(e) for e in calls) or not machine.overflows(plan.scop.tensor_bytes):
            return cls()
        near = _read_before(plan, statement)
        reads = tuple(
            r
            for r in dict.fromkeys(e for e in walk(statement.value) if isinstance(e, Read))
            if r.tensor not in near
            and plan.scop.storages[r.tensor].bytes >= machine.threads * machine.middle_cache
            and _follows_memory(plan, r, str(along))
        )
        return cls(reads if len(reads) <= FETCHED.most_reads else ())

    def lines(self, after: Callable[[int], Speller], count: int) -> Iterator[str]:
        """What fetches the lines of the next ``count`` iterations; ``after`` so many, the speller is there."""
        for read in self.reads:
            for offset in range(0, count, LINE_BYTES // read.dtype.itemsize):
                speller = after(offset)
                element = speller.element(read.tensor, tuple(speller.subscript(s) for s in read.subscripts))
                yield f"__builtin_prefetch(&{element} + {FETCHED.bytes // read.dtype.itemsize}L);"


def behind(iterator: str, count: int) -> LoopExpr:
    """The iteration so many behind one."""
    return Operation("+", (Variable(iterator), Number(count))) if count else Variable(iterator)


def in_blocks(
    loop: For, fetched: FetchedReads, at: Callable[[LoopExpr], Speller], spelled: Callable[[For], list[str]]
) -> list[str] | None:
    """The C text of a row in blocks that fetch what later ones read; None if that is nothing, or it is short.

    ``at`` gives what spells an iteration, ``spelled`` the text of a part of the row.
    """
    extent, block, start = constant_extent(loop.lower, loop.upper), FETCHED.block, f"{loop.iterator}_block"
    if not fetched.reads or (extent is not None and extent < 2 * block):
        return None
    lower, upper = loop_text(loop.lower), loop_text(loop.upper)
    inside = replace(loop, lower=Variable(start), upper=behind(start, block))
    rest = replace(loop, lower=Variable(start))
    return [
        "{",
        f"  long {start} = {lower};",
        f"  for (; {start} + {block} <= {upper}; {start} += {block}) {{",
        *("    " + line for line in fetched.lines(lambda n: at(behind(start, n)), block)),
        *("    " + line for line in spelled(inside)),
        "  }",
        *("  " + line for line in ([] if extent is not None and extent % block == 0 else spelled(rest))),
        "}",
    ]


def _read_before(plan: Plan, statement: ScopStatement) -> set[str]:
    """What statements before one have brought near: those of its group."""
    scop, homes = plan.scop, home_groups(plan)
    before = scop.statements[: scop.statements.index(statement)]
    same = [s for s in before if homes[s.name] == homes[statement.name]]
    return {storage_of(r) for s in same for r in s.reads}


def _follows_memory(plan: Plan, read: Read, along: str) -> bool:
    """Whether neighbouring iterations read neighbours in an input where it lies."""
    if plan.scop.storages[read.tensor].role != "input" or read.boundary is not None:
        return False
    if any(map(depends_on_data, read.subscripts)) or any(read in c.reads for c in plan.copies):
        return False
    return access_stride(plan.scop, read.tensor, read.subscripts, along, plan.scop.sizes) == 1
