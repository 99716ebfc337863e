"""Weights in shares of their steps, each with all that makes its scores, so that a share runs in turns itself.

``parts.py`` says why parts combine exactly.  With s(i,share,j) in place of s(i,j),

    ms(i,share)  max= s(i,share,j)                         p(i,share,j) = exp(c*(s(i,share,j) - ms(i,share)))
    z(i,share)   += p(i,share,j)                           O(i,share,e) += p(i,share,j) * V(j,e)
    m(i)         max= ms(i,share)                          w(share,i)   = exp(c*(ms(i,share) - m(i)))
    z(i)         += z(i,share) * w(share,i)                O(i,e)       += O(i,share,e) * w(share,i)

What is done for a share has the form of what was done for a row.  So the weights of shares are weights again, whose
maximum runs on from turn to turn (``running.py``).  It begins with the lowest number, so it is finite where a mask
makes a whole share of ``s`` infinite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.grammar.ranges.ranges import Box
from tcomp.grammar.tree.function import Binary, Cast, Constant, Expr, Index, Read, walk
from tcomp.mapping.rescaling.building import Instances, is_bijective, read_of, replaced
from tcomp.mapping.rescaling.inturn import InTurn, Running, as_of, plain_name, require
from tcomp.mapping.rescaling.running import running
from tcomp.mapping.rescaling.weights import Weights, scores_of, weights_of
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.storages import Storage, contiguous_strides
from tcomp.values.operators import REDUCTIONS


@dataclass(frozen=True, slots=True)
class Shared:
    """A program whose weights come in shares that run in turns, and the ``storages`` that these leave."""

    running: Running
    storages: frozenset[str]


def shared_in_turns(scop: Scop, weights: Weights, share: int, steps: int) -> Shared | None:
    """The program with weights in shares of some steps, each of which runs in turns of fewer.

    None if a share is no longer than a turn, or its weights are none that can run so.  Raises LegalityError if it would
    not sum what the program does.
    """
    if not 1 <= steps < share:
        return None
    made, name, storages = _Sharing(scop, weights, share).done()
    own = weights_of(made, name)
    if own is None or not scores_of(made, own):
        return None
    return Shared(running(made, own, steps), storages)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A reduction in parts: its start, its update, and what combines the parts."""

    own: Instances
    start: ScopStatement
    update: ScopStatement


class _Sharing(InTurn):
    """A program while its weights are shared."""

    suffix = "_shared"

    def __init__(self, scop: Scop, weights: Weights, steps: int) -> None:
        super().__init__(scop, weights.statement, weights.steps, steps)
        self.weights = weights
        self.part = "share"
        while any(self.part in s.indices for s in scop.statements):
            self.part += "_"

    def done(self) -> tuple[Scop, str, frozenset[str]]:
        """The program, proved, the statement of weights, and the storages that shares leave."""
        weights = self.weights
        moved = self.move(scores_of(self.scop, weights))
        maximum = weights.maximum
        top = self._part(maximum, maximum.indices[:-1], maximum.indices[-1], {})
        own, made = self._weights(top)
        sums = {s.name: self._sum(s, made) for s in weights.sums}
        scale = self._scale(top)
        combined = {name: self._combined(part, scale) for name, part in sums.items()}
        highest = self._combined(top, None)
        for instances, _ in moved.values():
            require(is_bijective(instances.whole, instances.statement.domain), instances.statement)
        require(is_bijective(own.whole, weights.statement.domain), weights.statement)
        self.same_reads(own, made, moved)
        require(is_bijective(top.own.whole, maximum.domain), maximum)
        self.same_reads(top.own, top.update, moved)
        for name, part in sums.items():
            self._prove_sum(own, made, top, part, scale, combined[name])
        instead: dict[str, tuple[ScopStatement, ...]] = {name: (s,) for name, (_, s) in moved.items()}
        # The maximum of all is known once parts are done.
        late = [s for s in self.writers(weights.top) if s.kind == "finish"]
        instead[maximum.name] = (top.start, top.update)
        instead |= {s.name: () for s in late}
        instead[weights.statement.name] = (made, highest, *late, scale)
        instead |= {name: (p.start, p.update, combined[name]) for name, p in sums.items()}
        statements = [new for s in self.scop.statements for new in instead.get(s.name, (s,))]
        gone = {weights.statement.target, *self.moved}
        storages = {k: s for k, s in self.storages.items() if k not in gone}
        scop = Scop(storages, tuple(statements), self.scop.sizes, self.scop.warnings, self.scop.around)
        left = {top.update.target, *(p.update.target for p in sums.values())}
        return scop, made.name, frozenset(left)

    def _part(self, statement: ScopStatement, rows: tuple[str, ...], step: str, instead: Mapping[str, Read]) -> _Part:
        own = self.instances(statement, rows, step)
        storage = self.storage(f"{plain_name(statement.target)}{self.suffix}", statement.target, own.results, statement)
        assert statement.reduction is not None
        identity = Constant(REDUCTIONS[statement.reduction].identity(storage.dtype), storage.dtype, self.span)
        start = self.statement(
            own.name + "i", "init", self.elements(own), own.results, storage, own.results, identity, None
        )
        value = own.value(statement.value, {**self.instead(statement.value), **instead})
        update = self.statement(
            own.name, "update", own.whole.domain(), own.indices, storage, own.results, value, statement.reduction
        )
        return _Part(own, replace(start, origin=statement.origin), as_of(own, update, statement))

    def _sum(self, statement: ScopStatement, made: ScopStatement) -> _Part:
        """A sum of weights in parts."""
        found = next(
            e for e in walk(statement.value) if isinstance(e, Read) and e.tensor == self.weights.statement.target
        )
        names = [s.name for s in found.subscripts if isinstance(s, Index)]
        named = dict(zip(self.weights.statement.indices, names, strict=True))
        rows, step = tuple(named[r] for r in self.weights.rows), named[self.weights.step]
        return self._part(statement, rows, step, {found.tensor: self.read(made.target, (*rows, self.part, step))})

    def _weights(self, top: _Part) -> tuple[Instances, ScopStatement]:
        """The weights of parts, relative to the maxima of these."""
        statement, rows, step = self.weights.statement, self.weights.rows, self.weights.step
        own = self.instances(statement, rows, step)
        indices = (*rows, self.part, step)
        storage = self.storage(
            f"{plain_name(statement.target)}{self.suffix}", statement.target, indices, statement, step
        )
        read = self.read(top.update.target, (*rows, self.part))
        value = own.value(statement.value, self.instead(statement.value) | {self.weights.top: read})
        made = self.statement(own.name, "assign", own.whole.domain(), indices, storage, indices, value, None)
        return own, as_of(own, made, statement)

    def _scale(self, top: _Part) -> ScopStatement:
        """What the sums of a part count in those of all: its maximum against that of all.

        Its indices are in another order than those of the parts, so that it is computed with what combines these.
        """
        rows, core = self.weights.rows, self.weights.core
        box = self.storages[top.update.target].box
        box = Box((0, *box.origin[:-1]), (self.count, *box.extent[:-1]))
        name = self.free(f"{plain_name(self.weights.statement.target)}_share")
        storage = self.stored(Storage(name, core.dtype, box, "temporary", contiguous_strides(box.extent)))
        value = replaced(core, self.weights.score, self.read(top.update.target, (*rows, self.part)))
        order = (self.part, *rows)
        domain = _turned(top.start, (*rows, self.part), order)
        name = self.name(f"{self.weights.statement.name}s")
        return self.statement(name, "assign", domain, order, storage, order, value, None)

    def _combined(self, part: _Part, scale: ScopStatement | None) -> ScopStatement:
        """What reduces the parts: scaled, if there is a ``scale``."""
        statement, order = part.own.statement, part.own.results
        results = statement.indices[: statement.coordinates]
        storage = self.scop.storages[statement.target]
        value: Expr = self.read(part.update.target, order)
        if scale is not None:
            factor: Expr = self.read(scale.target, (self.part, *part.own.rows))
            factor = factor if factor.dtype == storage.dtype else Cast(factor, storage.dtype, self.span)
            value = Binary("*", value, factor, storage.dtype, self.span)
        indices = (*results, self.part)
        domain = _turned(part.start, order, indices)
        made = self.statement(statement.name, "update", domain, indices, storage, results, value, statement.reduction)
        return replace(made, origin=statement.origin)

    def _prove_sum(
        self,
        own: Instances,
        made: ScopStatement,
        top: _Part,
        part: _Part,
        scale: ScopStatement,
        combined: ScopStatement,
    ) -> None:
        """A sum takes every step, and each part is scaled by the maximum that its weights are relative to."""
        whole, old, weights = part.own.whole, part.own.statement, self.weights.statement
        require(is_bijective(whole, old.domain), old)
        used = whole.reverse().apply_range(read_of(part.update, made.target)).apply_range(made.write.reverse())
        needed = read_of(old, weights.target).apply_range(weights.write.reverse())
        require(bool(used.apply_range(own.whole).is_equal(needed)), old)
        taken = whole.reverse().apply_range(part.update.write)
        taken = taken.apply_range(read_of(combined, part.update.target).reverse())
        require(bool(taken.apply_range(combined.write).is_equal(old.write)), old)
        # Where a condition makes a weight 0 it is relative to nothing.
        relative = used.apply_range(read_of(made, top.update.target))
        scaled = taken.apply_range(read_of(combined, scale.target)).apply_range(scale.write.reverse())
        scaled = scaled.apply_range(read_of(scale, top.update.target))
        require(bool(scaled.is_single_valued()) and bool(relative.is_subset(scaled)), old)


def _turned(statement: ScopStatement, order: tuple[str, ...], into: tuple[str, ...]) -> isl.Set:
    """The instances of a statement, its indices named in their order, with them in another order."""
    names = {index: f"i{d}" for d, index in enumerate(order)}
    turned = ", ".join(names[index] for index in into)
    return statement.domain.apply(isl.Map(f"{{ {statement.name}[{', '.join(names.values())}] -> [{turned}] }}"))
