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

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tcomp.grammar.tree.function import Constant, Index, Read, walk
from tcomp.mapping.rescaling.building import Instances, is_bijective, read_of, replaced
from tcomp.mapping.rescaling.inturn import InTurn, Running, Sum, as_of, plain_name, require
from tcomp.mapping.rescaling.weights import Weights, scores_of
from tcomp.model.scop import Scop, ScopStatement
from tcomp.values.accuracy import FORMATS
from tcomp.values.operators import INT64

LOWEST = {dtype.name: -form.largest for dtype, form in FORMATS.items()}
"""The lowest finite number of each float type."""


def can_run(scop: Scop, weights: Weights) -> bool:
    """Whether nobody but weights needs their maximum, and scores are computed for them alone."""
    return not _hands_on(scop, weights) and bool(scores_of(scop, weights))


def _hands_on(scop: Scop, weights: Weights) -> bool:
    """Whether others than weights need their maximum."""
    maximum = weights.maximum.target
    users = {s.name for name in {maximum, weights.top} for s in scop.users[name]}
    known = {weights.statement.name}
    known |= {s.name for s in scop.statements if s.target in (maximum, weights.top)}
    outputs = any(scop.storages[name].role != "temporary" for name in (maximum, weights.top))
    return outputs or not users <= known


def running(scop: Scop, weights: Weights, steps: int) -> Running:
    """The program with weights and their sums in parts of so many steps that run in turn.

    Others may take the maximum, too, if it makes no difference to them that it is no lower than the lowest number, as
    to those that combine ``sharing.py``'s parts.  Raises LegalityError if it would not sum what the program does.
    """
    return _Running(scop, weights, steps).done()


class _Running(InTurn):
    """A program while its weights get a running maximum."""

    def __init__(self, scop: Scop, weights: Weights, steps: int) -> None:
        super().__init__(scop, weights.statement, weights.steps, steps)
        self.weights = weights

    def done(self) -> Running:
        """The program, proved."""
        weights = self.weights
        moved = self.move(scores_of(self.scop, weights))
        before, top, highest = self._maximum()
        scale = self._scale(before, top)
        own, made = self._weights(top)
        sums = [self._sum(s, made, scale) for s in weights.sums]
        self._prove(own, made, (before, top, highest, scale), sums, moved)
        gone = {s.name for name in {weights.maximum.target, weights.top} for s in self.writers(name)}
        instead: dict[str, tuple[ScopStatement, ...]] = {name: (s,) for name, (_, s) in moved.items()}
        left = (self._left(top),) if _hands_on(self.scop, weights) else ()
        instead[weights.statement.name] = (before, top, highest, scale, made, *left)
        together = [(before, top, highest, scale)]
        found = self.finished(instead, sums, gone, together, {top.target: len(weights.rows)})
        return replace(found, last=(*(s.name for s in left), *found.last))

    def _maximum(self) -> tuple[ScopStatement, ScopStatement, ScopStatement]:
        """What the maximum was before a part, where it starts from, and its update."""
        update = self.weights.maximum
        rows, step = update.indices[:-1], update.indices[-1]
        own = self.instances(update, rows, step)
        storage = self.storage(f"{plain_name(update.target)}_so_far", update.target, own.results, update)
        kept = self.stored(replace(storage, name=self.free(f"{plain_name(update.target)}_before")))
        lowest = Constant(LOWEST[storage.dtype.name], storage.dtype, self.span)
        elements = self.elements(own)
        value = self.from_before(self.before(storage.name, own.results), lowest)
        name = self.name(f"{update.name}b")
        before = self.statement(name, "assign", elements, own.results, kept, own.results, value, None)
        value = self.read(kept.name, own.results)
        start = self.statement(own.name + "i", "init", elements, own.results, storage, own.results, value, None)
        value = own.value(update.value, self.instead(update.value))
        domain = own.whole.domain()
        highest = self.statement(own.name, "update", domain, own.indices, storage, own.results, value, "max")
        origin = update.origin
        return replace(before, origin=origin), replace(start, origin=origin), as_of(own, highest, update)

    def _left(self, top: ScopStatement) -> ScopStatement:
        """What hands the maximum of all parts on to others than weights."""
        update = self.weights.maximum
        final = Constant(self.count - 1, INT64, self.span)
        target, results = self.scop.storages[update.target], update.indices[:-1]
        read = self.read(top.target, results)
        read = replace(read, subscripts=(*read.subscripts, final))
        (first,) = [s for s in self.writers(update.target) if s.kind == "init"]
        made = self.statement(update.name, "assign", first.domain, results, target, results, read, None)
        return replace(made, origin=update.origin)

    def _scale(self, before: ScopStatement, top: ScopStatement) -> ScopStatement:
        """What the sums so far count from now on: their maximum against the new one."""
        rows, dtype = self.weights.rows, self.weights.core.dtype
        order = (*rows, self.part)
        like = self.storages[top.target]
        storage = self.stored(
            replace(like, name=self.free(f"{plain_name(self.weights.statement.target)}_scale"), dtype=dtype)
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
        storage = self.storage(f"{plain_name(statement.target)}_parts", statement.target, indices, statement, step)
        instead = self.instead(statement.value) | {self.weights.top: self.read(top.target, (*rows, self.part))}
        value = own.value(statement.value, instead)
        made = self.statement(own.name, "assign", own.whole.domain(), indices, storage, indices, value, None)
        return own, as_of(own, made, statement)

    def _sum(self, statement: ScopStatement, made: ScopStatement, scale: ScopStatement) -> Sum:
        """A sum of weights, which goes on from what the parts before have left."""
        found = next(
            e for e in walk(statement.value) if isinstance(e, Read) and e.tensor == self.weights.statement.target
        )
        names = [s.name for s in found.subscripts if isinstance(s, Index)]
        named = dict(zip(self.weights.statement.indices, names, strict=True))
        rows, step = tuple(named[r] for r in self.weights.rows), named[self.weights.step]
        own = self.instances(statement, rows, step)
        term = own.value(statement.value, {found.tensor: self.read(made.target, (*rows, self.part, step))})
        return self.sum_in_turn(own, term, self.read(scale.target, (*rows, self.part)))

    def _prove(
        self,
        own: Instances,
        made: ScopStatement,
        tops: tuple[ScopStatement, ScopStatement, ScopStatement, ScopStatement],
        sums: Sequence[Sum],
        moved: Mapping[str, tuple[Instances, ScopStatement]],
    ) -> None:
        """Raise LegalityError unless each weight is summed once, and what was summed is scaled at every part."""
        before, top, highest, scale = tops
        weights, maximum = self.weights, self.weights.maximum
        for instances, _ in moved.values():
            require(is_bijective(instances.whole, instances.statement.domain), instances.statement)
        require(is_bijective(own.whole, weights.statement.domain), weights.statement)
        self.same_reads(own, made, moved)
        raised = self.instances(maximum, maximum.indices[:-1], maximum.indices[-1])
        raised = replace(raised, name=highest.name)
        require(is_bijective(raised.whole, maximum.domain), maximum)
        self.same_reads(raised, highest, moved)
        for total in sums:
            self._prove_sum(own, made, before, top, scale, total)

    def _prove_sum(
        self,
        own: Instances,
        made: ScopStatement,
        before: ScopStatement,
        top: ScopStatement,
        scale: ScopStatement,
        total: Sum,
    ) -> None:
        """A sum takes every step, is relative to one maximum in each part, and goes on from the part before."""
        whole, old = total.own.whole, total.own.statement
        used = whole.reverse().apply_range(read_of(total.update, made.target)).apply_range(made.write.reverse())
        needed = read_of(old, self.weights.statement.target).apply_range(self.weights.statement.write.reverse())
        require(bool(used.apply_range(own.whole).is_equal(needed)), old)
        # The maximum that each element of the sum is relative to: that of its part, for what it takes and scales.
        relative = total.update.write.reverse().apply_range(read_of(total.update, made.target))
        relative = relative.apply_range(made.write.reverse()).apply_range(read_of(made, top.target))
        to_scale = total.start.write.reverse().apply_range(read_of(total.start, scale.target))
        to_scale = to_scale.apply_range(scale.write.reverse())
        scaled = to_scale.apply_range(read_of(scale, top.target))
        last = to_scale.apply_range(read_of(scale, before.target)).apply_range(before.write.reverse())
        last = last.apply_range(read_of(before, top.target))
        earlier = self.prove_sum(total)
        elements, first = total.start.write.range(), self.first_part(total)
        everywhere = scaled.union(relative)
        require(bool(scaled.is_single_valued()) and bool(everywhere.is_single_valued()), old)
        require(bool(elements.subtract(first).is_subset(scaled.domain())), old)
        # What is relative to the maximum before is that of the part before, where anything was summed until then.
        behind = earlier.apply_range(everywhere)
        require(bool(behind.is_subset(last)) and bool(last.is_single_valued()), old)
