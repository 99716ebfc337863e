"""What programs whose parts run in turn have in common: elements in parts, and sums that go on from part to part."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.errors import LegalityError
from tcomp.grammar.ranges.ranges import Box
from tcomp.grammar.tree.function import Binary, Cast, Constant, Expr, Index, Read, Select, walk
from tcomp.mapping.rescaling.building import Builder, Instances, is_bijective, read_of
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.storages import Storage, contiguous_strides
from tcomp.model.terms.unions import storage_of
from tcomp.values.operators import BOOL, INT64


@dataclass(frozen=True, slots=True)
class Running:
    """A program whose parts run in turn: names of the statements ``inside``, in order, and what is ``carried``.

    ``carried`` gives the dimension of the part in each storage that hands something on to the next part.  ``last``
    are the statements that take the results of the last part.  ``together`` are those of ``inside`` that are one
    cluster: what makes a maximum, and each sum.
    """

    scop: Scop
    inside: tuple[str, ...]
    carried: Mapping[str, int]
    last: tuple[str, ...]
    together: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Sum:
    """A sum in parts: what starts a part, its update, and what takes the result."""

    own: Instances
    start: ScopStatement
    update: ScopStatement
    last: ScopStatement


class InTurn(Builder):
    """A program while parts of it are made to run in turn.

    ``moved`` are the temporaries that have new storages in parts, with the rows (by number, -1 is the step) that their
    dimensions are.  Names of these end in ``suffix``.
    """

    suffix = "_parts"
    moved: dict[str, tuple[Storage, tuple[int, ...]]]

    def writers(self, storage: str) -> list[ScopStatement]:
        """The statements that write a storage, in order."""
        return [s for s in self.scop.users[storage] if s.target == storage]

    def move(self, places: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[Instances, ScopStatement]]:
        """Make storages in parts, and the statements that fill them, by the names of those of the program."""
        self.moved = {name: (self._in_parts(name, own), own) for name, own in places.items()}
        return {s.name: self._copied(s) for name in places for s in self.writers(name)}

    def _in_parts(self, name: str, places: tuple[int, ...]) -> Storage:
        old = self.scop.storages[name]
        at = [places.index(row) for row in range(len(places) - 1)]
        box = Box((*(old.box.origin[d] for d in at), 0, 0), (*(old.box.extent[d] for d in at), self.count, self.steps))
        strides = contiguous_strides(box.extent)
        return self.stored(Storage(self.free(f"{plain_name(name)}{self.suffix}"), old.dtype, box, "temporary", strides))

    def _copied(self, statement: ScopStatement) -> tuple[Instances, ScopStatement]:
        """A statement of what is moved, in parts."""
        storage, places = self.moved[statement.target]
        rows = tuple(statement.indices[places.index(row)] for row in range(len(places) - 1))
        own = self.instances(statement, rows, statement.indices[places.index(-1)])
        value = own.value(statement.value, self.instead(statement.value))
        written = (*rows, self.part, own.step)
        made = self.statement(
            own.name, statement.kind, own.whole.domain(), own.indices, storage, written, value, statement.reduction
        )
        return own, as_of(own, made, statement)

    def instead(self, expr: Expr) -> dict[str, Read]:
        """What is read in place of what is moved in the expression of a statement of parts."""
        found: dict[str, Read] = {}
        for read in (e for e in walk(expr) if isinstance(e, Read) and e.tensor in self.moved):
            storage, places = self.moved[read.tensor]
            names = [s.name for s in read.subscripts if isinstance(s, Index)]
            rows = (names[places.index(row)] for row in range(len(places) - 1))
            found[read.tensor] = self.read(storage.name, (*rows, self.part, names[places.index(-1)]))
        return found

    def elements(self, own: Instances) -> isl.Set:
        """All elements of a reduction, in all parts."""
        (start,) = [s for s in self.writers(own.statement.target) if s.kind == "init"]
        names = {index: f"i{d}" for d, index in enumerate(own.results)}
        old = own.statement.indices[: own.statement.coordinates]
        text = f"{{ {start.name}[{', '.join(names[i] for i in old)}] -> [{', '.join(names.values())}] : "
        return start.domain.apply(isl.Map(f"{text}0 <= {names[self.part]} < {self.count} }}"))

    def before(self, storage: str, order: tuple[str, ...]) -> Read:
        """An element of the part before."""
        read = self.read(storage, order)
        place = order.index(self.part)
        earlier = Binary("-", Index(self.part, INT64, self.span), Constant(1, INT64, self.span), INT64, self.span)
        return replace(read, subscripts=(*read.subscripts[:place], earlier, *read.subscripts[place + 1 :]))

    def from_before(self, value: Expr, first: Expr) -> Expr:
        """A value made of what the part before left, and what the first part takes instead."""
        part, zero = Index(self.part, INT64, self.span), Constant(0, INT64, self.span)
        return Select(Binary(">", part, zero, BOOL, self.span), value, first, value.dtype, self.span)

    def sum_in_turn(self, own: Instances, term: Expr, scale: Read | None) -> Sum:
        """A sum of ``term``, which goes on from what the part before has left, times a ``scale`` if there is one."""
        statement, results = own.statement, own.results
        storage = self.storage(f"{plain_name(statement.target)}_so_far", statement.target, results, statement)
        value: Expr = self.before(storage.name, results)
        if scale is not None:
            value = Binary("*", value, converted(scale, storage), storage.dtype, self.span)
        start = self.statement(
            own.name + "i", "init", self.elements(own), results, storage, results,
            self.from_before(value, Constant(0.0, storage.dtype, self.span)), None,
        )  # fmt: skip
        update = self.statement(own.name, "update", own.whole.domain(), own.indices, storage, results, term, "+")
        target, old = self.scop.storages[statement.target], statement.indices[: statement.coordinates]
        read, final = self.read(storage.name, results), Constant(self.count - 1, INT64, self.span)
        places = tuple(final if i == self.part else s for i, s in zip(results, read.subscripts, strict=True))
        (first,) = [s for s in self.writers(statement.target) if s.kind == "init"]
        last = self.statement(
            statement.name, "assign", first.domain, old, target, old, replace(read, subscripts=places), None
        )
        start, last = (replace(s, origin=statement.origin) for s in (start, last))
        return Sum(own, start, as_of(own, update, statement), last)

    def finished(
        self,
        instead: Mapping[str, tuple[ScopStatement, ...]],
        sums: Sequence[Sum],
        gone: set[str],
        together: Sequence[tuple[ScopStatement, ...]],
        carried: Mapping[str, int],
    ) -> Running:
        """The program with other statements ``instead`` of some, without those that are ``gone``, and its sums."""
        others = dict(instead)
        for total in sums:
            others[total.own.statement.name] = (total.start, total.update, total.last)
            gone = gone | {s.name for s in self.writers(total.own.statement.target) if s.kind == "init"}
        statements = [new for s in self.scop.statements if s.name not in gone for new in others.get(s.name, (s,))]
        last = tuple(total.last.name for total in sums)
        inside = tuple(s.name for s in statements if s.name not in self.scop.by_name)
        kept = {s.target for s in statements} | {storage_of(r) for s in statements for r in s.reads}
        storages = {k: s for k, s in self.storages.items() if s.role != "temporary" or k in kept}
        scop = Scop(storages, tuple(statements), self.scop.sizes, self.scop.warnings, self.scop.around)
        parts = [*together, *((total.start, total.update) for total in sums)]
        handed_on = {**carried, **{total.start.target: len(total.own.rows) for total in sums}}
        return Running(scop, inside, handed_on, last, tuple(tuple(s.name for s in own) for own in parts))

    def same_reads(
        self, own: Instances, made: ScopStatement, moved: Mapping[str, tuple[Instances, ScopStatement]]
    ) -> None:
        """Raise LegalityError unless a statement of parts reads those moved elements that it read in the program."""
        by_storage = {s.target: (instances, s) for instances, s in moved.values() if s.kind != "update"}
        for name in {storage_of(r) for r in own.statement.reads} & self.moved.keys():
            instances, writer = by_storage[self.moved[name][0].name]
            used = own.whole.reverse().apply_range(read_of(made, writer.target)).apply_range(writer.write.reverse())
            needed = read_of(own.statement, name).apply_range(instances.statement.write.reverse())
            require(bool(used.apply_range(instances.whole).is_equal(needed)), own.statement)

    def prove_sum(self, total: Sum) -> isl.Map:
        """Raise LegalityError unless a sum takes every step, goes on from the part before, and gives the last part.

        Returns the map from an element of the sum to that of the part before.
        """
        old = total.own.statement
        require(is_bijective(total.own.whole, old.domain), old)
        earlier = total.start.write.reverse().apply_range(read_of(total.start, total.start.target))
        rank, place = len(total.own.results), len(total.own.rows)
        names = [f"i{d}" for d in range(rank)]
        to = ", ".join(f"{i} - 1" if d == place else i for d, i in enumerate(names))
        target, inside = total.start.target, ", ".join(names)
        step = isl.Map(f"{{ {target}[{inside}] -> {target}[{to}] : i{place} > 0 }}")
        elements = total.start.write.range()
        require(bool(earlier.is_equal(step.intersect_domain(elements).intersect_range(elements))), old)
        require(bool(elements.subtract(earlier.domain()).is_subset(self.first_part(total))), old)
        taken = total.last.write.reverse().apply_range(read_of(total.last, target))
        require(bool(taken.reverse().is_equal(self._results(total).intersect_domain(elements))), old)
        require(bool(taken.domain().is_equal(old.write.range().union(total.last.write.range()))), old)
        return earlier

    @staticmethod
    def first_part(total: Sum) -> isl.Set:
        """The elements of the first part."""
        names = [f"i{d}" for d in range(len(total.own.results))]
        return isl.Set(f"{{ {total.start.target}[{', '.join(names)}] : i{len(total.own.rows)} = 0 }}")

    def _results(self, total: Sum) -> isl.Map:
        """An element of the last part to the result that it is."""
        names = {index: f"i{d}" for d, index in enumerate(total.own.results)}
        old = total.own.statement
        into = ", ".join(names[i] for i in old.indices[: old.coordinates])
        text = f"{total.start.target}[{', '.join(names.values())}] -> {old.target}[{into}]"
        return isl.Map(f"{{ {text} : {names[self.part]} = {self.count - 1} }}")


def begins(statement: ScopStatement) -> Select | None:
    """The value of a statement that goes on from the part before, and takes another value in the first part.

    Its condition is ``part > 0``.
    """
    value = statement.value
    if not isinstance(value, Select) or not isinstance(test := value.condition, Binary) or test.op != ">":
        return None
    return value if isinstance(test.lhs, Index) and isinstance(test.rhs, Constant) and test.rhs.value == 0 else None


def as_of(own: Instances, made: ScopStatement, statement: ScopStatement) -> ScopStatement:
    """A statement of parts that stands for one of the program, and reports its indices."""
    reported = tuple((i, own.value(value, {})) for i, value in statement.reported)
    return replace(made, renumbered=reported, origin=statement.origin)


def converted(read: Read, storage: Storage) -> Expr:
    """What is read as an element of a storage."""
    return read if read.dtype == storage.dtype else Cast(read, storage.dtype, read.span)


def plain_name(storage: str) -> str:
    """A storage without the number that the model gives to accumulators and versions, or without its part."""
    return re.sub(r"_((acc)?\d+|shared)$", "", storage)


def require(sound: bool, statement: ScopStatement) -> None:
    """Raise LegalityError if a sum in parts is not that of the program."""
    if not sound:
        raise LegalityError(
            f"pass 'rescale' does not take every step of {statement.name} once, relative to the maximum so far"
        )
