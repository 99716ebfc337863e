"""Sums of weights that are relative to the maximum so far, while parts of the steps pass by.

In parts of some ``j`` each (``parts.py`` has the names), with s(i,part,j) in place of s(i,j),

    before(i,part)  = top(i,part-1)                        the lowest number in front of the first part
    top(i,part)     = before(i,part)                       top(i,part) max= s(i,part,j)
    scale(i,part)   = exp(c*(before(i,part) - top(i,part)))
    p(i,part,j)     = exp(c*(s(i,part,j) - top(i,part)))
    z(i,part)       = z(i,part-1) * scale(i,part)          z(i,part) += p(i,part,j)
    O(i,part,e)     = O(i,part-1,e) * scale(i,part)        O(i,part,e) += p(i,part,j) * V(j,e)

and the last part leaves the results.  What is summed when a part begins is relative to the maximum before; times the
scale it is relative to the maximum now, for ``exp(x) exp(y)`` is ``exp(x + y)``.  Each part needs only what the one
before it left, so its memory serves all parts: such storages are *carried*.  The largest weight of all is 1.

This is online softmax (Milakov and Gimelshein, 2018) as FlashAttention uses it (Dao and others, 2022).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.errors import LegalityError
from tcomp.grammar.ranges.ranges import Box
from tcomp.grammar.tree.function import Binary, Cast, Constant, Expr, Index, Read, Select, walk
from tcomp.mapping.rescaling.building import Builder, Instances, is_bijective, read_of, replaced
from tcomp.mapping.rescaling.weights import Weights, scores_of
from tcomp.model.scop import Scop, ScopStatement, Storage, contiguous_strides, storage_of
from tcomp.values.accuracy import FORMATS
from tcomp.values.operators import BOOL, INT64

LOWEST = {dtype.name: -form.largest for dtype, form in FORMATS.items()}
"""The lowest finite number of each float type."""


@dataclass(frozen=True, slots=True)
class Running:
    """A program whose parts run in turn: names of the statements ``inside``, in order, and what is ``carried``.

    ``carried`` gives the dimension of the part in each storage that hands something on to the next part.  ``last``
    are the statements that take the results of the last part.  ``together`` are those of ``inside`` that
    make the maximum, and each sum.
    """

    scop: Scop
    inside: tuple[str, ...]
    carried: Mapping[str, int]
    last: tuple[str, ...]
    together: tuple[tuple[str, ...], ...]


def can_run(scop: Scop, weights: Weights) -> bool:
    """Whether nobody but weights needs their maximum, and scores are computed for them alone."""
    maximum = weights.maximum.target
    users = {s.name for name in {maximum, weights.top} for s in scop.users[name]}
    known = {weights.statement.name}
    known |= {s.name for s in scop.statements if s.target in (maximum, weights.top)}
    outputs = any(scop.storages[name].role != "temporary" for name in (maximum, weights.top))
    return users <= known and not outputs and bool(scores_of(scop, weights))


def running(scop: Scop, weights: Weights, steps: int) -> Running:
    """The program with weights and their sums in parts of so many steps that run in turn.

    Raises LegalityError if it would not sum what the program does.
    """
    return _Running(scop, weights, steps).done()


@dataclass(frozen=True, slots=True, eq=False)
class _Sum:
    """A sum of weights in parts: its update, what starts a part, what takes the result, and which maximum belongs."""

    own: Instances
    start: ScopStatement
    update: ScopStatement
    last: ScopStatement


class _Running(Builder):
    """A program while its weights get a running maximum."""

    def done(self) -> Running:
        """The program, proved."""
        weights = self.weights
        self.scores = self._scores()
        moved = {s.name: self._score(s) for name in self.scores for s in self._writers(name)}
        before, top, highest = self._maximum()
        scale = self._scale(before, top)
        own, made = self._weights(top)
        sums = {s.name: self._sum(s, made, scale) for s in weights.sums}
        self._prove(own, made, (before, top, highest, scale), sums, moved)
        gone = {s.name for name in {weights.maximum.target, weights.top} for s in self._writers(name)}
        instead: dict[str, tuple[ScopStatement, ...]] = {name: (s,) for name, (_, s) in moved.items()}
        instead[weights.statement.name] = (before, top, highest, scale, made)
        for name, total in sums.items():
            instead[name] = (total.start, total.update, total.last)
            gone |= {s.name for s in self._writers(total.own.statement.target) if s.kind == "init"}
        statements = [new for s in self.scop.statements if s.name not in gone for new in instead.get(s.name, (s,))]
        last = tuple(total.last.name for total in sums.values())
        replaced_by = {new.name for news in instead.values() for new in news}
        inside = tuple(s.name for s in statements if s.name in replaced_by and s.name not in last)
        kept = {s.target for s in statements} | {storage_of(r) for s in statements for r in s.reads}
        storages = {k: s for k, s in self.storages.items() if s.role != "temporary" or k in kept}
        carried = {top.target: len(weights.rows)}
        carried |= {total.start.target: len(total.own.rows) for total in sums.values()}
        scop = Scop(storages, tuple(statements), self.scop.sizes, self.scop.warnings, self.scop.around)
        together = [(before, top, highest, scale), *((total.start, total.update) for total in sums.values())]
        return Running(scop, inside, carried, last, tuple(tuple(s.name for s in own) for own in together))

    def _writers(self, storage: str) -> list[ScopStatement]:
        return [s for s in self.scop.users[storage] if s.target == storage]

    def _scores(self) -> dict[str, tuple[Storage, tuple[int, ...]]]:
        """What scores are made of: its storage in parts, and the rows (by number, -1 is the step) of its dimensions."""
        found = {}
        for name, places in scores_of(self.scop, self.weights).items():
            old = self.scop.storages[name]
            sides = [(old.box.origin[places.index(r)], old.box.extent[places.index(r)]) for r in self._rows]
            box = Box((*(o for o, _ in sides), 0, 0), (*(e for _, e in sides), self.count, self.steps))
            new = Storage(
                self.free(f"{_name(name)}_parts"), old.dtype, box, "temporary", contiguous_strides(box.extent)
            )
            found[name] = (self.stored(new), places)
        return found

    @property
    def _rows(self) -> range:
        return range(len(self.weights.rows))

    def _instead(self, expr: Expr) -> dict[str, Read]:
        """What is read in place of scores in the expression of a statement of parts."""
        found: dict[str, Read] = {}
        for read in (e for e in walk(expr) if isinstance(e, Read) and e.tensor in self.scores):
            storage, places = self.scores[read.tensor]
            names = [s.name for s in read.subscripts if isinstance(s, Index)]
            order = (*(names[places.index(row)] for row in self._rows), self.part, names[places.index(-1)])
            found[read.tensor] = self.read(storage.name, order)
        return found

    def _score(self, statement: ScopStatement) -> tuple[Instances, ScopStatement]:
        """A statement that makes scores, in parts."""
        storage, places = self.scores[statement.target]
        rows = tuple(statement.indices[places.index(row)] for row in self._rows)
        step = statement.indices[places.index(-1)]
        own = self.instances(statement, rows, step)
        value = own.value(statement.value, self._instead(statement.value))
        written = (*rows, self.part, step)
        made = self.statement(
            own.name, statement.kind, own.whole.domain(), own.indices, storage, written, value, statement.reduction
        )
        return own, self._as_of(own, made, statement)

    @staticmethod
    def _as_of(own: Instances, made: ScopStatement, statement: ScopStatement) -> ScopStatement:
        """A statement of parts that stands for one of the program, and reports its indices."""
        reported = tuple((i, own.value(value, {})) for i, value in statement.reported)
        return replace(made, renumbered=reported, origin=statement.origin)

    def _maximum(self) -> tuple[ScopStatement, ScopStatement, ScopStatement]:
        """What the maximum was before a part, where it starts from, and its update."""
        update = self.weights.maximum
        rows, step = update.indices[:-1], update.indices[-1]
        own = self.instances(update, rows, step)
        storage = self.storage(f"{_name(update.target)}_so_far", update.target, own.results, update)
        kept = self.stored(replace(storage, name=self.free(f"{_name(update.target)}_before")))
        lowest = Constant(LOWEST[storage.dtype.name], storage.dtype, self.span)
        elements = self._elements(own)
        value = self._from_before(self._before(storage.name, own.results), lowest)
        name = self.name(f"{update.name}b")
        before = self.statement(name, "assign", elements, own.results, kept, own.results, value, None)
        value = self.read(kept.name, own.results)
        start = self.statement(own.name + "i", "init", elements, own.results, storage, own.results, value, None)
        value = own.value(update.value, self._instead(update.value))
        domain = own.whole.domain()
        highest = self.statement(own.name, "update", domain, own.indices, storage, own.results, value, "max")
        origin = update.origin
        return replace(before, origin=origin), replace(start, origin=origin), self._as_of(own, highest, update)

    def _elements(self, own: Instances) -> isl.Set:
        """All elements of a reduction, in all parts."""
        (start,) = [s for s in self._writers(own.statement.target) if s.kind == "init"]
        names = {index: f"i{d}" for d, index in enumerate(own.results)}
        old = own.statement.indices[: own.statement.coordinates]
        text = f"{{ {start.name}[{', '.join(names[i] for i in old)}] -> [{', '.join(names.values())}] : "
        return start.domain.apply(isl.Map(f"{text}0 <= {names[self.part]} < {self.count} }}"))

    def _before(self, storage: str, order: tuple[str, ...]) -> Read:
        """An element of the part before."""
        read = self.read(storage, order)
        place = order.index(self.part)
        earlier = Binary("-", Index(self.part, INT64, self.span), Constant(1, INT64, self.span), INT64, self.span)
        return replace(read, subscripts=(*read.subscripts[:place], earlier, *read.subscripts[place + 1 :]))

    def _from_before(self, value: Expr, first: Expr) -> Expr:
        """A value made of what the part before left, and what the first part takes instead."""
        part, zero = Index(self.part, INT64, self.span), Constant(0, INT64, self.span)
        return Select(Binary(">", part, zero, BOOL, self.span), value, first, value.dtype, self.span)

    def _scale(self, before: ScopStatement, top: ScopStatement) -> ScopStatement:
        """What the sums so far count from now on: their maximum against the new one."""
        rows, dtype = self.weights.rows, self.weights.core.dtype
        order = (*rows, self.part)
        like = self.storages[top.target]
        storage = self.stored(
            replace(like, name=self.free(f"{_name(self.weights.statement.target)}_scale"), dtype=dtype)
        )
        value = replaced(self.weights.core, self.weights.score, self.read(before.target, order))
        own = Instances(self.weights.statement, "", rows, self.weights.step, self.part, self.first, self.steps)
        value = own.value(value, {self.weights.top: self.read(top.target, order)})
        name = self.name(f"{self.weights.statement.name}s")
        return self.statement(name, "assign", top.domain, order, storage, order, value, None)

    def _weights(self, top: ScopStatement) -> tuple[Instances, ScopStatement]:
        """The weights of parts, relative to the maximum so far."""
        statement, rows, step = self.weights.statement, self.weights.rows, self.weights.step
        own = self.instances(statement, rows, step)
        indices = (*rows, self.part, step)
        storage = self.storage(f"{_name(statement.target)}_parts", statement.target, indices, statement, step)
        instead = self._instead(statement.value) | {self.weights.top: self.read(top.target, (*rows, self.part))}
        value = own.value(statement.value, instead)
        made = self.statement(own.name, "assign", own.whole.domain(), indices, storage, indices, value, None)
        return own, self._as_of(own, made, statement)

    def _sum(self, statement: ScopStatement, made: ScopStatement, scale: ScopStatement) -> _Sum:
        """A sum of weights, which goes on from what the parts before have left."""
        found = next(
            e for e in walk(statement.value) if isinstance(e, Read) and e.tensor == self.weights.statement.target
        )
        names = [s.name for s in found.subscripts if isinstance(s, Index)]
        named = dict(zip(self.weights.statement.indices, names, strict=True))
        rows, step = tuple(named[r] for r in self.weights.rows), named[self.weights.step]
        own = self.instances(statement, rows, step)
        storage = self.storage(f"{_name(statement.target)}_so_far", statement.target, own.results, statement)
        zero = Constant(0.0, storage.dtype, self.span)
        factor = self._converted(self.read(scale.target, (*rows, self.part)), storage)
        value = Binary("*", self._before(storage.name, own.results), factor, storage.dtype, self.span)
        elements, results = self._elements(own), own.results
        start = self.statement(
            own.name + "i", "init", elements, results, storage, results, self._from_before(value, zero), None
        )
        term = own.value(statement.value, {found.tensor: self.read(made.target, (*rows, self.part, step))})
        update = self.statement(own.name, "update", own.whole.domain(), own.indices, storage, results, term, "+")
        target, old = self.scop.storages[statement.target], statement.indices[: statement.coordinates]
        final = Constant(self.count - 1, INT64, self.span)
        read = self.read(storage.name, results)
        places = tuple(final if i == self.part else s for i, s in zip(results, read.subscripts, strict=True))
        (first,) = [s for s in self._writers(statement.target) if s.kind == "init"]
        last = self.statement(
            statement.name, "assign", first.domain, old, target, old, replace(read, subscripts=places), None
        )
        parts = [replace(s, origin=statement.origin) for s in (start, last)]
        return _Sum(own, parts[0], self._as_of(own, update, statement), parts[1])

    @staticmethod
    def _converted(read: Read, storage: Storage) -> Expr:
        return read if read.dtype == storage.dtype else Cast(read, storage.dtype, read.span)

    def _prove(
        self,
        own: Instances,
        made: ScopStatement,
        tops: tuple[ScopStatement, ScopStatement, ScopStatement, ScopStatement],
        sums: Mapping[str, _Sum],
        moved: Mapping[str, tuple[Instances, ScopStatement]],
    ) -> None:
        """Raise LegalityError unless each weight is summed once, and what was summed is scaled at every part."""
        before, top, highest, scale = tops
        weights, maximum = self.weights, self.weights.maximum
        for instances, _ in moved.values():
            _require(is_bijective(instances.whole, instances.statement.domain), instances.statement)
        _require(is_bijective(own.whole, weights.statement.domain), weights.statement)
        self._same_reads(own, made, moved)
        raised = self.instances(maximum, maximum.indices[:-1], maximum.indices[-1])
        raised = replace(raised, name=highest.name)
        _require(is_bijective(raised.whole, maximum.domain), maximum)
        self._same_reads(raised, highest, moved)
        for total in sums.values():
            self._prove_sum(own, made, before, top, scale, total)

    def _same_reads(
        self, own: Instances, made: ScopStatement, moved: Mapping[str, tuple[Instances, ScopStatement]]
    ) -> None:
        """A statement of parts reads those scores that it read in the program."""
        by_storage = {s.target: (instances, s) for instances, s in moved.values() if s.kind != "update"}
        for name in {storage_of(r) for r in own.statement.reads} & self.scores.keys():
            instances, writer = by_storage[self.scores[name][0].name]
            used = own.whole.reverse().apply_range(read_of(made, writer.target)).apply_range(writer.write.reverse())
            needed = read_of(own.statement, name).apply_range(instances.statement.write.reverse())
            _require(bool(used.apply_range(instances.whole).is_equal(needed)), own.statement)

    def _prove_sum(
        self,
        own: Instances,
        made: ScopStatement,
        before: ScopStatement,
        top: ScopStatement,
        scale: ScopStatement,
        total: _Sum,
    ) -> None:
        """A sum takes every step, is relative to one maximum in each part, and goes on from the part before."""
        whole, old = total.own.whole, total.own.statement
        _require(is_bijective(whole, old.domain), old)
        used = whole.reverse().apply_range(read_of(total.update, made.target)).apply_range(made.write.reverse())
        needed = read_of(old, self.weights.statement.target).apply_range(self.weights.statement.write.reverse())
        _require(bool(used.apply_range(own.whole).is_equal(needed)), old)
        # The maximum that each element of the sum is relative to: that of its part, for what it takes and scales.
        relative = total.update.write.reverse().apply_range(read_of(total.update, made.target))
        relative = relative.apply_range(made.write.reverse()).apply_range(read_of(made, top.target))
        to_scale = total.start.write.reverse().apply_range(read_of(total.start, scale.target))
        to_scale = to_scale.apply_range(scale.write.reverse())
        scaled = to_scale.apply_range(read_of(scale, top.target))
        last = to_scale.apply_range(read_of(scale, before.target)).apply_range(before.write.reverse())
        last = last.apply_range(read_of(before, top.target))
        earlier = total.start.write.reverse().apply_range(read_of(total.start, total.start.target))
        rank, place = len(total.own.results), len(total.own.rows)
        names = [f"i{d}" for d in range(rank)]
        to = ", ".join(f"{i} - 1" if d == place else i for d, i in enumerate(names))
        target, inside = total.start.target, ", ".join(names)
        step = isl.Map(f"{{ {target}[{inside}] -> {target}[{to}] : i{place} > 0 }}")
        elements = total.start.write.range()
        first = isl.Set(f"{{ {target}[{inside}] : i{place} = 0 }}")
        _require(bool(earlier.is_equal(step.intersect_domain(elements).intersect_range(elements))), old)
        _require(bool(elements.subtract(earlier.domain()).is_subset(first)), old)
        everywhere = scaled.union(relative)
        _require(bool(scaled.is_single_valued()) and bool(everywhere.is_single_valued()), old)
        _require(bool(elements.subtract(first).is_subset(scaled.domain())), old)
        # What is relative to the maximum before is that of the part before, where anything was summed until then.
        behind = earlier.apply_range(everywhere)
        _require(bool(behind.is_subset(last)) and bool(last.is_single_valued()), old)
        taken = total.last.write.reverse().apply_range(read_of(total.last, target))
        _require(bool(taken.reverse().is_equal(self._results(total).intersect_domain(elements))), old)
        _require(bool(taken.domain().is_equal(old.write.range().union(total.last.write.range()))), old)

    def _results(self, total: _Sum) -> isl.Map:
        """An element of the last part to the result that it is."""
        names = {index: f"i{d}" for d, index in enumerate(total.own.results)}
        old = total.own.statement
        into = ", ".join(names[i] for i in old.indices[: old.coordinates])
        place = names[self.part]
        text = f"{total.start.target}[{', '.join(names.values())}] -> {old.target}[{into}]"
        return isl.Map(f"{{ {text} : {place} = {self.count - 1} }}")


def _name(storage: str) -> str:
    """A storage without the number that the model gives to accumulators and versions."""
    return re.sub(r"_(acc)?\d+$", "", storage)


def _require(sound: bool, statement: ScopStatement) -> None:
    if not sound:
        raise LegalityError(
            f"pass 'rescale' does not take every step of {statement.name} once, relative to the maximum so far"
        )
