"""``=`` into elements that data choose, ``O(idx(i), d) = V(i, d)``, as the statements that it stands for.

Which instance an element is named by is written down first, by reductions, and each element then fetches its value::

    int32(E) O_i(idx(i))     max=! i
    int32(E) O_times(idx(i)) +=!   1
    O_once(x)  +=! 1         where n in 0:O_times(x), n in 0:1
    O(x, d)    =   O_once(x) > 0 ? V(O_i(x), d) : 0

``O_once`` has a range that data give, with one value at most; where it has more, an element was named twice, and the
check of the range tells.  ``where last i`` and ``where first i`` say which instance counts: then nothing is counted,
and the greatest or least ``i`` is sought.  Integers give one result in whatever order they are combined, elements are
apart from each other, and schedules, proofs, targets and derivatives know of nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tcomp.grammar.checking.names import Environment, is_function
from tcomp.grammar.checking.rows import replaced, walked
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.diagnostics import Report
from tcomp.grammar.tree.syntax import (
    Apply,
    Binary,
    Clause,
    Conditional,
    Declared,
    Exists,
    Expr,
    Name,
    Number,
    Order,
    Range,
    Statement,
    Unary,
)
from tcomp.values.operators import INT32

ORDERS = {"last": "max", "first": "min"}
"""The words that say which of several instances counts, and the reduction that finds it."""

NONE = str(INT32.highest)
"""What stands for no instance: this where the least is sought, its negative where the greatest is."""


def report_order(clause: Order, report: Report) -> None:
    """Say that nothing needs ``last i`` or ``first i`` here."""
    message = f"`{clause}` says which of several values counts, but no `=` writes elements here that data choose by it"
    report.error(message, clause.span, "leave it out")


@dataclass(frozen=True, slots=True)
class _Parts:
    """A scatter in parts.

    ``own`` are the indices that name elements, ``chosen`` those that only data have to do with.  ``kept`` are the
    dimensions in which instances are told apart, ``elements`` what stands for the chosen subscripts.
    """

    statement: Statement
    own: tuple[str, ...]
    chosen: tuple[str, ...]
    kept: tuple[int, ...]
    elements: dict[int, Name]
    dims: tuple[Expr, ...] | None

    def subscripts(self) -> tuple[Expr, ...]:
        """The subscripts of an element."""
        return tuple(self.elements.get(d, s) for d, s in enumerate(self.statement.subscripts or ()))

    def place(self) -> tuple[Expr, ...]:
        """The subscripts of an element in the kept dimensions."""
        return tuple(self.subscripts()[d] for d in self.kept)


class Scatters:
    """Replaces statements of one definition; ``fresh`` makes a name of its own of one that is wanted."""

    def __init__(
        self, definition: syntax.Definition, environment: Environment, report: Report, fresh: Callable[[str], str]
    ) -> None:
        self.definition = definition
        self.environment = environment
        self.report = report
        self._fresh = fresh

    def expanded(self, statement: Statement, steps: frozenset[str]) -> tuple[Statement, ...]:
        """What a statement stands for; itself, where data choose nothing that ``=`` writes.

        ``steps`` are the indices of the blocks around it.
        """
        data = [d for d, s in enumerate(statement.subscripts or ()) if self._reads(s, self._named(statement))]
        if statement.operator != "=" or statement.others or not data:
            return (statement,)
        lets: dict[str, Expr] = {}
        for let in (c for c in statement.clauses if isinstance(c, syntax.Let)):
            lets[let.name.name] = replaced(let.value, lets)
        plain = replace(
            statement,
            value=replaced(statement.value, lets),
            clauses=tuple(_without_lets(c, lets) for c in statement.clauses if not isinstance(c, syntax.Let)),
        )
        parts = self._parts(plain, data, steps)
        orders = tuple(c for c in plain.clauses if isinstance(c, Order))
        if parts is None or not self._are_right(orders, parts):
            self.environment.misdirected = True
            return ()
        return tuple(self._made(parts, orders))

    def _named(self, statement: Statement) -> frozenset[str]:
        """The indices of a statement that stand alone on the left or have ranges, whatever else has their names."""
        alone = [s.name for s in statement.subscripts or () if isinstance(s, Name)]
        return frozenset((*alone, *(c.index.name for c in statement.clauses if isinstance(c, Range))))

    def _reads(self, subscript: Expr, indices: frozenset[str]) -> bool:
        """Whether a subscript reads a tensor: an element, or a number by its name, ``p + i``."""
        names = (e.name for e in walked(subscript) if isinstance(e, Name) and e.name not in indices)
        return self._reads_elements(subscript) or any(map(self._is_number, names))

    def _is_number(self, name: str) -> bool:
        """Whether a name is that of a tensor without dimensions, which a later statement of a block may write."""
        entry = self.environment.tensors.get(name)
        if entry is not None:
            return entry.rank == 0
        writing = (s for s in syntax.statements(self.definition.body) if s.subscripts is None)
        return any(name in {target.name for target in (s.target, *s.others)} for s in writing)

    def _reads_elements(self, subscript: Expr) -> bool:
        return any(isinstance(e, Apply) and self._is_tensor(e.function.name) for e in walked(subscript))

    def _is_tensor(self, name: str) -> bool:
        return name in self.environment.tensors or (name in self.environment.written_later and not is_function(name))

    def _parts(self, statement: Statement, data: list[int], steps: frozenset[str]) -> _Parts | None:
        """The parts of a scatter; None after a report of what is wrong."""
        subscripts = statement.subscripts or ()
        own = dict.fromkeys(n for d, s in enumerate(subscripts) if d not in data for n in self._indices(s))
        named = dict.fromkeys(n for d in data for n in self._indices(subscripts[d]))
        chosen = tuple(n for n in named if n not in own and n not in steps)
        kept = tuple(
            d for d, s in enumerate(subscripts) if d in data or any(n in named for n in self._indices(s))
        )  # fmt: skip
        dims = self._dims(statement)
        entry = self.environment.tensors.get(statement.target.name)
        if dims is not None and len(dims) != len(subscripts):
            message = (
                f"wrong rank of {statement.target}: it has {len(dims)} dimensions, and {len(subscripts)} subscripts"
            )
            self.report.error(message, statement.target.span)
            return None
        if dims is None and not (entry is not None and entry.written):
            target = statement.target
            message = f"data choose the elements of {target} that are written here, so its extents must be known before"
            declared = f"float({', '.join('N' for _ in subscripts)}) {target}"
            hint = f"declare them, as in `-> ({declared})`, or write all of it first"
            self.report.error(message, subscripts[data[0]].span, hint)
            return None
        for clause in statement.clauses:
            if isinstance(clause, Range) and clause.index.name not in chosen:
                mentioned = [n for bound in (clause.lower, clause.upper) for n in self._indices(bound) if n in chosen]
                if mentioned:
                    message = f"the range of {clause.index} depends on {mentioned[0]}, by which data choose the element"
                    self.report.error(message, clause.span, "write the values to a temporary first")
                    return None
        elements = {d: Name(self._fresh("element"), subscripts[d].span) for d in data}
        return _Parts(statement, tuple(own), chosen, kept, elements, dims)

    def _indices(self, expr: Expr) -> Iterator[str]:
        for node in walked(expr):
            if isinstance(node, Name) and not self.environment.kind_of(node.name):
                yield node.name

    def _dims(self, statement: Statement) -> tuple[Expr, ...] | None:
        """The extents that the target is declared with."""
        if statement.declared is not None:
            return statement.declared.dims
        return next((p.dims for p in self.definition.outputs if p.name.name == statement.target.name), None)

    def _nothing(self, statement: Statement) -> Expr:
        """What an element holds that no instance names: 0, in the type that the target is declared with."""
        declared = [p.type for p in self.definition.outputs if p.name.name == statement.target.name]
        kind = statement.declared.type if statement.declared is not None else declared[0]
        zero = Number("0", statement.span)
        return zero if kind is None else syntax.Cast(kind, zero, statement.span)

    def _are_right(self, orders: tuple[Order, ...], parts: _Parts) -> bool:
        """Report orders that do not say of each index that data have to do with which one counts."""
        errors = len(self.report.errors)
        for clause in orders:
            if clause.index.name not in parts.chosen:
                report_order(clause, self.report)
        missing = [n for n in parts.chosen if n not in {c.index.name for c in orders}]
        if orders and missing and len(self.report.errors) == errors:
            message = f"`{orders[0]}` leaves open which {missing[0]} counts"
            self.report.error(message, orders[-1].span, f"add `last {missing[0]}` or `first {missing[0]}`")
        return len(self.report.errors) == errors

    def _made(self, parts: _Parts, orders: tuple[Order, ...]) -> Iterator[Statement]:
        statement, span = parts.statement, parts.statement.span
        target = statement.target
        named = tuple(s for d, s in enumerate(statement.subscripts or ()) if d in parts.kept)
        clauses = tuple(self._where(parts))
        found: dict[str, Expr] = {}
        is_named: Expr | None = None
        before: Expr | None = None
        for which, index in [(c.which, c.index.name) for c in orders] or [("last", n) for n in parts.chosen]:
            name = Name(self._fresh(f"{target}_{index}"), span)
            none: Expr = Number(NONE, span) if which == "first" else Unary("-", Number(NONE, span), span)
            value: Expr = Name(index, span)
            if before is not None and orders:
                value = Conditional(before, value, none, span)
            yield from self._reduced(parts, name, ORDERS[which], none, named, value, clauses)
            found[index] = Apply(name, parts.place(), span)
            reached = Binary("==", Apply(name, named, span), Name(index, span), span)
            before = reached if before is None else Binary("&&", before, reached, span)
            if is_named is None:
                is_named = Binary("<" if which == "first" else ">", found[index], none, span)
        if not orders:
            times = Name(self._fresh(f"{target}_times"), span)
            yield from self._reduced(parts, times, "+", Number("0", span), named, Number("1", span), clauses)
            once = times
            if parts.chosen:
                once = Name(self._fresh(f"{target}_once"), span)
                yield self._counted(parts, once, times)
            is_named = Binary(">", Apply(once, parts.place(), span), Number("0", span), span)
        assert is_named is not None
        yield self._fetched(parts, found, is_named)

    def _reduced(
        self,
        parts: _Parts,
        name: Name,
        reduction: str,
        neutral: Expr,
        subscripts: tuple[Expr, ...],
        value: Expr,
        clauses: tuple[Clause, ...],
    ) -> Iterator[Statement]:
        """Statements that reduce something of the instances of each element."""
        span = parts.statement.span
        all_chosen = len(parts.kept) == len(parts.elements)
        if parts.dims is not None and all_chosen:
            declared = Declared("int32", tuple(parts.dims[d] for d in parts.kept), span)
            yield Statement(name, subscripts, f"{reduction}=!", value, None, clauses, span, span, declared)
            return
        fresh = tuple(Name(self._fresh(f"all_{d}"), span) for d in parts.kept)
        everywhere: tuple[Clause, ...]
        if parts.dims is not None:
            zero = Number("0", span)
            everywhere = tuple(Range(n, zero, parts.dims[d], span) for n, d in zip(fresh, parts.kept, strict=True))
        else:
            own = dict(zip(parts.kept, fresh, strict=True))
            all_of_it = tuple(own.get(d, s) for d, s in enumerate(parts.statement.subscripts or ()))
            rest = tuple(s if d in own else Number("0", span) for d, s in enumerate(all_of_it))
            everywhere = (Exists(Apply(parts.statement.target, rest, span), span),)
        yield Statement(name, fresh, "=", neutral, None, everywhere, span, span)
        yield Statement(name, subscripts, f"{reduction}=", value, None, clauses, span, span)

    def _counted(self, parts: _Parts, once: Name, times: Name) -> Statement:
        """The statement that checks that no element is named twice; ``once`` is 1 where one is named."""
        statement, span = parts.statement, parts.statement.span
        index, zero, one = Name(self._fresh("instance"), span), Number("0", span), Number("1", span)
        told = statement.target.span.to(statement.operator_span)
        ranges = (
            Range(index, zero, Apply(times, parts.place(), told), told),
            Range(index, zero, one, span),
        )
        return Statement(once, parts.place(), "+=!", one, None, ranges, span, span)

    def _fetched(self, parts: _Parts, found: dict[str, Expr], is_named: Expr) -> Statement:
        """The statement in which each element fetches its value."""
        statement, span = parts.statement, parts.statement.span
        entry = self.environment.tensors.get(statement.target.name)
        written = entry is not None and entry.written
        element = Apply(statement.target, parts.subscripts(), span)
        otherwise = element if written else self._nothing(statement)
        value = Conditional(is_named, replaced(statement.value, found), otherwise, statement.value.span)
        clauses: list[Clause] = []
        for clause in statement.clauses:
            match clause:
                case Range() if clause.index.name not in parts.chosen:
                    clauses.append(clause)
                case Exists():
                    clauses.append(Exists(replaced(clause.read, found), clause.span))
        if parts.dims is not None:
            zero = Number("0", span)
            clauses += [Range(name, zero, parts.dims[d], span) for d, name in parts.elements.items()]
        return replace(
            statement, subscripts=parts.subscripts(), value=value, clauses=tuple(clauses), equivalent=None
        )  # fmt: skip

    def _where(self, parts: _Parts) -> Iterator[Clause]:
        """Which instances there are: ranges of their indices, and the elements that they read."""
        statement = parts.statement
        kept = [s for d, s in enumerate(statement.subscripts or ()) if d in parts.kept]
        known = {*parts.chosen, *(n for s in kept for n in self._indices(s))}
        reads = [statement.value]
        for clause in statement.clauses:
            match clause:
                case Range() if clause.index.name in known:
                    yield clause
                case Exists():
                    reads.append(clause.read)
        seen: set[str] = set()
        for read in (e for root in reads for e in walked(root)):
            if not isinstance(read, Apply) or not self._is_tensor(read.function.name):
                continue
            inside = [{*self._indices(a)} <= known and not self._reads_elements(a) for a in read.arguments]
            mixed = [{*self._indices(a)} & {*parts.chosen} for a in read.arguments]
            if not any(i and m for i, m in zip(inside, mixed, strict=True)):
                continue
            arguments = (
                a if own else Number("0", a.span) for a, own in zip(read.arguments, inside, strict=True)
            )  # fmt: skip
            access = replace(read, arguments=tuple(arguments))
            if str(access) not in seen and read.function.name != statement.target.name:
                seen.add(str(access))
                yield Exists(access, read.span)


def _without_lets(clause: Clause, lets: dict[str, Expr]) -> Clause:
    match clause:
        case Range():
            return replace(clause, lower=replaced(clause.lower, lets), upper=replaced(clause.upper, lets))
        case Exists():
            return replace(clause, read=replaced(clause.read, lets))
        case _:
            return clause
