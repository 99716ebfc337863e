"""Rows that do not fill vectors: several of them, one behind the other in memory, run as one long loop.

What they read once a row, or the same in every row, is laid out beside them first, element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tcomp.backends.c.loops.joined import Motion, motion_of
from tcomp.backends.c.rows.gathers import unconditional_reads
from tcomp.backends.c.vectors.types import vector_type
from tcomp.backends.dialect import C_STORAGE_TYPES, load
from tcomp.backends.spelling import Speller, loop_text
from tcomp.grammar.tree.function import Binary, Call, Expr, Read, children, walk
from tcomp.loops.ir import Execute, For, LoopExpr, Number, Operation, Variable, substitute, substitute_below
from tcomp.mapping.machines.fitted.cputext import VECTOR_ROWS
from tcomp.mapping.plan.values import Plan
from tcomp.model.scop import ScopStatement
from tcomp.values.operators import BOOL, DType


@dataclass(frozen=True, slots=True)
class ShortRows:
    """A loop over rows, and the loop over the elements of one, which some statements run for each.

    ``speller`` spells expressions of a statement where indices have the C text given.
    """

    rows: For
    row: For
    calls: Sequence[Execute]
    plan: Plan
    vector_bytes: int
    speller: Callable[[str, Mapping[str, str]], Speller]

    def lines(self, spelled: Callable[[For, Mapping[str, Mapping[Expr, str]]], list[str]]) -> list[str] | None:
        """The C text of the rows that come in groups; those that are left begin at the iterator ``first``.

        None if rows are not worth that, or not one behind the other.  ``spelled`` gives the text of a loop over
        elements in which some reads are held.
        """
        found = [self._motion(call) for call in self.calls]
        motions = [m for m in found if m is not None]
        if len(motions) < len(found):
            return None
        lanes = self.lanes
        apart = self._laid_out(motions)
        if (
            self.count % lanes == 0
            or self.count > VECTOR_ROWS.most_short_vectors * lanes
            or not self._pays(apart, lanes)
        ):
            return None
        return [*self._spelled(apart, lanes, spelled)]

    @property
    def first(self) -> str:
        """The iterator over the first rows of groups."""
        return f"{self.rows.iterator}_first"

    @property
    def count(self) -> int:
        """Elements of a row."""
        assert isinstance(self.row.lower, Number) and isinstance(self.row.upper, Number)
        return self.row.upper.value - self.row.lower.value

    @property
    def statements(self) -> list[ScopStatement]:
        """What runs for each element."""
        return [self.plan.scop.by_name[call.statement] for call in self.calls]

    @property
    def lanes(self) -> int:
        """Rows of a group: as many as a vector has lanes."""
        reads = (e for s in self.statements for e in walk(s.value) if isinstance(e, Read))
        storages = {*(s.target for s in self.statements), *(read.tensor for read in reads)}
        return self.vector_bytes // max(self._dtype(name).itemsize for name in storages)

    def _dtype(self, storage: str) -> DType:
        return self.plan.scop.storages[storage].dtype

    def _motion(self, call: Execute) -> Motion | None:
        """How an instance moves; None if it keeps rows from running as one."""
        motion = motion_of(self.plan, call, self.rows.iterator, self.row.iterator)
        target = self.plan.scop.by_name[call.statement].target
        if motion is None or motion.target != ((0, 0) if self._in_register(target) else (self.count, 1)):
            return None
        written = {s.target for s in self.statements}
        always = {*unconditional_reads(self.plan.scop.by_name[call.statement].value)}
        for read, (far, near) in motion.reads.items():
            if self._is_laid(far, near) and (far * near != 0 or read.tensor in written or read not in always):
                return None
        kinds = {self._dtype(name) for name in (target, *(read.tensor for read in motion.reads))}
        return None if any((kind.bits == 16 and kind.is_float) or kind == BOOL for kind in kinds) else motion

    def _in_register(self, storage: str) -> bool:
        buffer = self.plan.buffers.get(storage)
        return buffer is not None and buffer.space == "register"

    def _is_laid(self, far: int, near: int) -> bool:
        """Whether elements that move so far do not run on from row to row."""
        return far != self.count * near

    def _laid_out(self, motions: Sequence[Motion]) -> dict[tuple[str, Read], tuple[int, int]]:
        """The reads, by statement, that are laid out, and how far they move from row to row and within one."""
        return {
            (call.statement, read): step
            for call, motion in zip(self.calls, motions, strict=True)
            for read, step in motion.reads.items()
            if self._is_laid(*step)
        }

    def _pays(self, apart: Mapping[tuple[str, Read], tuple[int, int]], lanes: int) -> bool:
        """Whether groups of rows take fewer operations than rows of vectors that overlap."""
        work = sum(_work(s.value) for s in self.statements)
        width = lanes
        while width > self.count:
            width //= 2
        alone = -(-self.count // width) if width >= lanes // 2 and width > 2 else self.count
        beside = sum(VECTOR_ROWS.spread if far else VECTOR_ROWS.repeated for far, _ in apart.values())
        return alone * work > self.count / lanes * (work + beside)

    def _spelled(
        self,
        apart: Mapping[tuple[str, Read], tuple[int, int]],
        lanes: int,
        spelled: Callable[[For, Mapping[str, Mapping[Expr, str]]], list[str]],
    ) -> Iterator[str]:
        arguments = {call.statement: call.arguments for call in self.calls}
        held: dict[str, dict[Expr, str]] = {}
        repeated, spread = list[str](), list[str]()
        low, i = self.row.lower, self.row.iterator
        assert isinstance(low, Number)
        for number, ((name, read), (far, _)) in enumerate(apart.items()):
            dtype = self._dtype(read.tensor)
            array, place = f"tc_beside{number}", f"{i} - {low}" if low.value else i
            declared = f"{C_STORAGE_TYPES[dtype.name]} {array}[{lanes * self.count}] __attribute__((aligned(64)));"
            if far == 0:
                there = self._element(name, arguments[name], read, self.rows.lower, Variable(i))
                repeated += [
                    declared,
                    f"for (long l = 0; l < {lanes}; l++)",
                    f"  for (long {i} = {low}; {i} < {self.row.upper}; {i}++)",
                    f"    {array}[l * {self.count} + {place}] = {there};",
                ]
            else:
                spread += [declared, *self._spread(name, arguments[name], read, far, array, number, lanes)]
            held.setdefault(name, {})[read] = load(f"{array}[{place}]", dtype)
        loop = For(i, low, Number(low.value + lanes * self.count), 1, self.row.body)
        body = substitute_below(loop, self.rows.iterator, Variable(self.first))
        assert isinstance(body, For)
        there = f"{self.first} + {lanes} <= {loop_text(self.rows.upper)}"
        yield f"long {self.first} = {loop_text(self.rows.lower)};"
        yield f"if ({there}) {{"
        yield from ("  " + line for line in repeated)
        yield f"  for (; {there}; {self.first} += {lanes}) {{"
        yield from ("    " + line for line in spread)
        yield from ("    " + line for line in spelled(body, held))
        yield "  }"
        yield "}"

    def _spread(
        self, name: str, arguments: tuple[LoopExpr, ...], read: Read, far: int, array: str, number: int, lanes: int
    ) -> Iterator[str]:
        """Lines that lay out what is read once a row, the same for all elements of one."""
        kind = vector_type(self._dtype(read.tensor), lanes)
        rows = [Operation("+", (Variable(self.first), Number(n))) if n else Variable(self.first) for n in range(lanes)]
        texts = [self._element(name, arguments, read, row, self.row.lower) for row in rows]
        value = f"*(const {kind} *)&{texts[0]}" if far == 1 else f"({kind}){{{', '.join(texts)}}}"
        yield f"const {kind} tc_rows{number} = {value};"
        for v in range(self.count):
            order = ", ".join(str((v * lanes + lane) // self.count) for lane in range(lanes))
            turned = f"__builtin_shufflevector(tc_rows{number}, tc_rows{number}, {order})"
            yield f"*({kind} *)&{array}[{v * lanes}] = {turned};"

    def _element(self, name: str, arguments: tuple[LoopExpr, ...], read: Read, row: LoopExpr, column: LoopExpr) -> str:
        """The C text of the element that a read has in some row and column."""
        statement = self.plan.scop.by_name[name]
        there = [substitute(substitute(a, self.rows.iterator, row), self.row.iterator, column) for a in arguments]
        speller = self.speller(name, {n: loop_text(a) for n, a in zip(statement.indices, there, strict=True)})
        return speller.element_read(read, speller.read_subscripts(read))


def _work(expr: Expr) -> int:
    """Operations of an expression, loads included."""
    match expr:
        case Read():
            return 1
        case Call() | Binary(op="/" | "%"):
            own = VECTOR_ROWS.slow
        case _:
            own = isinstance(expr, Binary)
    return own + sum(map(_work, children(expr)))
