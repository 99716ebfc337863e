"""Short reductions, one for each of some rows: the lanes of several rows are folded together.

Folding a vector takes as long as reducing some more of them.  Four vectors, of four rows, are folded into the results
of these with little more: what is left of each is half of it at every step.  Rows that fill no vector are reduced side
by side, one in each lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tcomp.backends.c.loops.joined import Apart, joined, moves_evenly
from tcomp.backends.c.rows.gathers import all_gathers
from tcomp.backends.c.rows.reductions import FOLDED, Reduction
from tcomp.backends.c.vectors.extrema import of_vectors
from tcomp.backends.c.vectors.types import vector_type
from tcomp.backends.c.vectors.values import ELEMENTS, VectorSpeller, moves_target, neighbours
from tcomp.backends.dialect import C_STORAGE_TYPES, combine, load, store
from tcomp.backends.spelling import Speller, loop_text
from tcomp.grammar.tree.function import Constant, Read, depends_on_data, walk
from tcomp.loops.ir import (
    Block,
    Execute,
    For,
    If,
    Let,
    LoopNode,
    Number,
    Operation,
    Scope,
    Variable,
    substitute_below,
)
from tcomp.loops.ir import walk as nodes_below
from tcomp.mapping.machines.fitted.cputext import VECTOR_ROWS
from tcomp.mapping.plan.values import Plan
from tcomp.model.scop import ScopStatement
from tcomp.values.operators import DType

LEAST_STEPS = 2


def one_reduction(loop: For, plan: Plan, apart: Apart) -> tuple[Scope, For, Execute] | None:
    """The mark, the loop and the update of the only reduction that a loop over rows runs, if there is nothing else but
    single instances and it may run before them, for some rows at a time."""
    below = [*nodes_below(loop.body)]
    if loop.step != 1 or any(isinstance(n, If | Let) for n in below):
        return None
    scopes = [n for n in below if isinstance(n, Scope)]
    if any(scope.around for scope in scopes):
        return None
    for scope in scopes:
        operation = plan.operations.get(scope.name)
        loops = sum(isinstance(n, For) for n in below) - sum(isinstance(n, For) for n in nodes_below(scope.body))
        match joined(scope.body, plan, apart) if isinstance(scope.body, For) and not loops else None:
            case For(lower=Number(low), upper=Number(high), step=1, body=Execute() as call) as inner:
                if operation is not None and operation.kind == "reduce" and high - low >= LEAST_STEPS:
                    calls = [n for n in below if isinstance(n, Execute)]
                    return (scope, inner, call) if _comes_first(call, calls, plan) and apart(loop, calls) else None
    return None


def _comes_first(call: Execute, calls: list[Execute], plan: Plan) -> bool:
    """Whether nothing that a reduction reads is written beside it, and no data choose its elements."""
    update = plan.scop.by_name[call.statement]
    if update.scatters:
        return False
    written = {plan.scop.by_name[n.statement].target for n in calls}
    return not written & {e.tensor for e in walk(update.value) if isinstance(e, Read)}


@dataclass(frozen=True, slots=True)
class RowFolds:
    """A loop over ``rows`` with one reduction in it: its ``scope``, its ``loop`` and what that runs.

    ``speller`` spells expressions of a statement where indices have the C text given; ``ahead`` is that of reductions.
    """

    rows: For
    scope: Scope
    loop: For
    call: Execute
    plan: Plan
    vector_bytes: int
    speller: Callable[[str, Mapping[str, str]], Speller]
    ahead: Mapping[Read, int] = field(default_factory=dict)

    @property
    def statement(self) -> ScopStatement:
        """The update."""
        return self.plan.scop.by_name[self.call.statement]

    @property
    def dtype(self) -> DType:
        """The type of the elements that are reduced into."""
        return self.plan.scop.storages[self.statement.target].dtype

    @property
    def first(self) -> str:
        """The iterator over the first rows of groups."""
        return f"{self.rows.iterator}_first"

    def applies(self) -> bool:
        """Whether rows may be folded together, or run side by side, and are worth it."""
        if moves_target(self.loop, self.call, self.statement) or not self._rows_are_apart():
            return False
        if self._steps() < FOLDED:
            return self._reduction().element.name in ELEMENTS and self.together >= FOLDED
        return self._steps() <= VECTOR_ROWS.most_folded_steps and self._reduction().fills_vectors()

    @property
    def together(self) -> int:
        """Rows of a group."""
        return FOLDED if self._steps() >= FOLDED else self.vector_bytes // self._reduction().element.itemsize

    def lines(self, spelled: Callable[[For, list[str]], list[str]]) -> Iterator[str]:
        """The C text of the rows that come in groups; those that are left begin at the iterator ``first``.

        ``spelled`` gives the text of a loop over rows in which some lines stand for the reduction.
        """
        first, count = Variable(self.first), self.together
        element = self._reduction().element
        kind = vector_type(element, count)
        reduced = self._folded(kind) if self._steps() >= FOLDED else self._side_by_side(kind)
        yield f"long {self.first} = {loop_text(self.rows.lower)};"
        yield f"for (; {self.first} + {count} <= {loop_text(self.rows.upper)}; {self.first} += {count}) {{"
        yield f"  {C_STORAGE_TYPES[element.name]} tc_folded[{count}] __attribute__((aligned(64)));"
        yield from ("  " + line for line in reduced)
        loop = For(self.rows.iterator, first, Operation("+", (first, Number(count))), 1, self.rows.body)
        vectors = self._as_vectors(loop)
        if vectors is not None:
            yield from ("  " + line for line in vectors)
            yield "}"
            return
        element_of_row = self._element(self.call, self.statement.target)
        value = f"tc_folded[{self.rows.iterator} - {self.first}]"
        result = combine(self._operator, load(element_of_row, self.dtype), value, self.dtype)
        line = f"{element_of_row} = {store(result, self.dtype)};"
        yield from ("  " + text for text in spelled(loop, [line]))
        yield "}"

    def _as_vectors(self, group: For) -> list[str] | None:
        """The rows of a group in statements of C for vectors of them; None if one of these is more than arithmetic.

        gcc would have to find them in a loop, which takes it ten times as long.
        """
        lines = [self._vector_of_rows(group, node) for node in self._inside(group.body)]
        return None if None in lines else [line for line in lines if line is not None]

    def _inside(self, node: LoopNode) -> tuple[LoopNode, ...]:
        """What a node runs, the reduction as one; marks at which something is declared stay as they are."""
        match node:
            case Block():
                return tuple(found for child in node.children for found in self._inside(child))
            case Scope() if node != self.scope and not self._declares(node.name):
                return self._inside(node.body)
        return (node,)

    def _declares(self, mark: str) -> bool:
        marks = {buffer.mark for buffer in self.plan.buffers.values()}
        return mark in marks or any(copy.mark == mark for copy in self.plan.copies)

    def _vector_of_rows(self, group: For, node: LoopNode) -> str | None:
        """What a node of ``group`` does for all of its rows, as a statement of C; None if it takes more than one."""
        call = self.call if node == self.scope else node
        if not isinstance(call, Execute):
            return None
        statement = self.plan.scop.by_name[call.statement]
        along, dtype = neighbours(group, call, statement), self.plan.scop.storages[statement.target].dtype
        if along is None or dtype.name not in ELEMENTS or all_gathers(statement):
            return None
        if node != self.scope and statement.kind == "update":
            return None  # another reduction adds to what is there
        first = substitute_below(call, group.iterator, group.lower)
        assert isinstance(first, Execute)
        indices = {n: loop_text(a) for n, a in zip(statement.indices, first.arguments, strict=True)}
        vectors = VectorSpeller(self.speller(call.statement, indices), along, self.together)
        if vectors.write_stride(statement) != 1:
            return None
        kind = vector_type(dtype, self.together)
        target = f"*({kind} *)&{vectors.scalar.written(statement.target, statement.subscripts)}"
        if node == self.scope:
            both = of_vectors(self._operator, dtype, self.together)
            return f"{target} = {both(target, f'*(const {kind} *)tc_folded')};"
        if isinstance(statement.value, Constant):
            value: str | None = f"{vectors.scalar.value(statement.value)} - ({kind}){{}}"
        else:
            value = vectors.value(statement.value, dtype)
        return None if value is None else f"{target} = {value};"

    def _folded(self, kind: str) -> Iterator[str]:
        """Lines that reduce each row in vectors, and fold what is left of all."""
        yield f"{kind} tc_rows[{FOLDED}];"
        if self._steps() * self._reduction().element.itemsize < VECTOR_ROWS.unrolled * self.vector_bytes:
            yield f"#pragma GCC unroll {FOLDED}"
        yield f"for (long tc_row = 0; tc_row < {FOLDED}; tc_row++) {{"
        yield from ("  " + line for line in self._reduction().vector_lines("tc_rows[tc_row]"))
        yield "}"
        both = of_vectors(self._operator, self._reduction().element, FOLDED)
        for left, right in ((0, 1), (2, 3)):
            pair = f"tc_rows[{left}], tc_rows[{right}]"
            halves = (f"__builtin_shufflevector({pair}, {order})" for order in ("0, 4, 1, 5", "2, 6, 3, 7"))
            yield f"const {kind} tc_pair{left} = {both(*halves)};"
        halves = (f"__builtin_shufflevector(tc_pair0, tc_pair2, {order})" for order in ("0, 1, 4, 5", "2, 3, 6, 7"))
        yield f"*({kind} *)tc_folded = {both(*halves)};"

    def _side_by_side(self, kind: str) -> Iterator[str]:
        """Lines that reduce each row in a lane, in the order in which one alone is."""
        reduction, count = self._reduction(), self.together
        low = self.loop.lower
        assert isinstance(low, Number)
        steps = range(self._steps())
        for step in steps:
            yield f"{C_STORAGE_TYPES[reduction.element.name]} tc_step{step}[{count}] __attribute__((aligned(64)));"
        yield "#pragma omp simd"
        yield f"for (long tc_row = 0; tc_row < {count}; tc_row++) {{"
        for step in steps:
            yield f"  tc_step{step}[tc_row] = {reduction.value(Number(low.value + step))};"
        yield "}"
        result = f"*(const {kind} *)tc_step{steps[-1]}"
        for step in reversed(steps[:-1]):
            result = of_vectors(self._operator, reduction.element, count)(
                f"*(const {kind} *)tc_step{step}", f"({result})"
            )
        yield f"*({kind} *)tc_folded = {result};"

    @property
    def _operator(self) -> str:
        assert self.statement.reduction is not None
        return self.statement.reduction

    def _steps(self) -> int:
        assert isinstance(self.loop.lower, Number) and isinstance(self.loop.upper, Number)
        return self.loop.upper.value - self.loop.lower.value

    def _reduction(self) -> Reduction:
        """The reduction of one row of a group."""
        there = Operation("+", (Variable(self.first), Variable("tc_row")))
        call = substitute_below(self.call, self.rows.iterator, there)
        assert isinstance(call, Execute)

        def speller(indices: Mapping[str, str]) -> Speller:
            return self.speller(self.statement.name, indices)

        return Reduction(self.loop, call, self.statement, self.dtype, "", self.vector_bytes, speller, self.ahead)

    def _element(self, call: Execute, storage: str, read: Read | None = None) -> str:
        """The C text of the element that an instance writes, or reads."""
        statement = self.plan.scop.by_name[call.statement]
        speller = self.speller(
            call.statement, {n: loop_text(a) for n, a in zip(statement.indices, call.arguments, strict=True)}
        )
        subscripts = statement.subscripts if read is None else read.subscripts
        return speller.element(storage, tuple(speller.subscript(s) for s in subscripts))

    def _rows_are_apart(self) -> bool:
        """Whether each row writes elements of its own, and of what is written reads no others."""
        below = [*nodes_below(self.rows.body)]
        inside = {n.name for n in below if isinstance(n, Scope)}
        calls = [n for n in below if isinstance(n, Execute)]
        written: dict[str, str] = {}
        for call in calls:
            target = self.plan.scop.by_name[call.statement].target
            buffer, element = self.plan.buffers.get(target), self._element(call, target)
            register = buffer is not None and buffer.space == "register"
            own = buffer is not None and buffer.mark in inside if register else self._moves(call)
            if not own or written.setdefault(target, element) != element:
                return False
        reads = ((c, e) for c in calls for e in walk(self.plan.scop.by_name[c.statement].value) if isinstance(e, Read))
        for call, read in reads:
            if any(map(depends_on_data, read.subscripts)):
                return False
            other = read.boundary or written.get(read.tensor) != self._element(call, read.tensor, read)
            if read.tensor in written and other:
                return False
        return True

    def _moves(self, call: Execute) -> bool:
        return moves_evenly(self.plan, call, self.rows.iterator)
