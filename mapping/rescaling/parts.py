"""Sums of weights that are relative to a maximum, in parts that have maxima of their own.

Attention reads ``p(i,j) = exp(c*(s(i,j) - m(i)))`` where ``m(i)`` is the maximum of ``s(i,j)`` over all ``j``.  So no
weight is known before a whole row of ``s`` is, and long rows do not stay in a cache.  In parts of some ``j`` each,

    mp(i,part)   max= s(i,j)                               a(i,part) = max(mp(i,part), lowest)
    p(i,part,j)  = exp(c*(s(i,j) - a(i,part)))             z(i,part) += p(i,part,j)
    O(i,part,e)  += p(i,part,j) * V(j,e)                   divided by z(i,part) where that is above 0

need a part of a row only.  They are combined by ``w(i,part) = exp(c*(a(i,part) - m(i))) * z(i,part)``:
``z(i) += w(i,part)`` and ``O(i,e) += O(i,part,e) * w(i,part)``.  This is exact but for rounding whatever ``a`` is, for
``exp(x) exp(y)`` is ``exp(x + y)``; ``a`` is finite where a mask makes a whole part of ``s`` infinite.  The sum of such
a part is 0, as is that of a part all of whose weights a condition makes 0.

Where a condition on indices makes weights 0, as that of causal attention, and the maximum is one of low numbers there,
parts of which a row sees no step are left out, with all that is made of them; so they are where scores are low numbers
there, if each row has others.  Of the others the steps that a row does not see are left out, too, if one system of
inequalities tells which these are.  If not, the condition makes scores infinite there instead of weights 0: so a row's
maximum is read in the whole part.

The rescaling is that of online softmax (Milakov and Gimelshein, 2018), in parts as in Flash-Decoding (Dao and others,
2023).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import islpy as isl
import numpy as np

from tcomp.errors import LegalityError
from tcomp.grammar.ranges.ranges import Box
from tcomp.grammar.tree.function import Binary, Constant, Expr, Index, Read, Select, walk
from tcomp.mapping.rescaling.building import Builder, Instances, is_bijective, read_of, replaced
from tcomp.mapping.rescaling.weights import Weights, unconditional
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.storages import Storage, contiguous_strides
from tcomp.values.operators import BOOL, REDUCTIONS


def rescaled(scop: Scop, weights: Weights, steps: int) -> tuple[Scop, frozenset[str]]:
    """The program with weights and their sums in parts of so many steps, and the storages of what parts leave.

    Raises LegalityError if it would not sum what the program does.
    """
    return Rescaling(scop, weights, steps).done()


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """What computes the parts of a sum or a maximum: the update, and what makes their ``storage`` of it."""

    own: Instances
    update: ScopStatement
    statements: tuple[ScopStatement, ...]
    storage: str


class Rescaling(Builder):
    """A program while weights are computed in parts."""

    def __init__(self, scop: Scop, weights: Weights, steps: int) -> None:
        super().__init__(scop, weights.statement, weights.steps, steps)
        self.weights = weights
        self.seen = self.seen_parts()
        self.seen_steps = None if self.seen is None else self._seen_steps()

    def done(self) -> tuple[Scop, frozenset[str]]:
        weights = self.weights
        maximum = self._parts(weights.maximum, weights.maximum.indices[:-1], weights.maximum.indices[-1], {}, None)
        top = self._top(maximum)
        own, instances = self._weights(top)
        read = Read(own.target, self.subscripts(own.indices), self.storages[own.target].dtype, self.span)
        total = None if weights.total is None else self._weighted(weights.total, read, None)
        scale = self._scale(top, total)
        sums = {s.name: self._weighted(s, read, total) for s in weights.sums if s is not weights.total}
        combined = {s.name: self._combined(s, sums.get(s.name), scale) for s in weights.sums}
        highest = self._combined(weights.maximum, maximum, None)
        self._prove(own, instances, top, scale, [(p, combined[name]) for name, p in sums.items()])
        if total is not None and weights.total is not None:
            through = total.own.whole.reverse().apply_range(total.update.write)
            through = through.apply_range(read_of(scale, total.storage).reverse()).apply_range(scale.write)
            through = through.apply_range(read_of(combined[weights.total.name], scale.target).reverse())
            through = through.apply_range(combined[weights.total.name].write)
            _require(is_bijective(total.own.whole, weights.total.domain), weights.total)
            taken = self._taken(total, weights.total)
            _require(bool(through.is_equal(weights.total.write.intersect_domain(taken))), weights.total)
        before = {weights.maximum.name: (*maximum.statements, top)} | {n: p.statements for n, p in sums.items()}
        instead = {weights.statement.name: (own, *(() if total is None else total.statements), scale)}
        instead |= {weights.maximum.name: (highest,)} | {name: (s,) for name, s in combined.items()}
        statements: list[ScopStatement] = []
        for s in self.scop.statements:
            name = s.name[:-1] if s.kind == "init" else s.name
            statements += before.pop(name, ())
            statements += instead.get(s.name, (s,))
        storages = {k: s for k, s in self.storages.items() if k != weights.statement.target}
        left = [
            maximum.storage,
            top.target,
            *([] if total is None else [total.storage]),
            *(p.storage for p in sums.values()),
        ]
        return Scop(storages, tuple(statements), self.scop.sizes, self.scop.warnings, self.scop.around), frozenset(left)

    def _parts(
        self,
        statement: ScopStatement,
        rows: tuple[str, ...],
        step: str,
        instead: Mapping[str, Read],
        total: _Parts | None,
    ) -> _Parts:
        """A reduction in parts; each divided by its ``total``, if there is one."""
        own = self.instances(statement, rows, step)
        assert statement.reduction is not None
        parts = self._only_seen(own.whole.domain())
        domain = self._only_seen_steps(parts, own.indices.index(step))
        elements = parts.project_out(isl.dim_type.set, len(own.results), len(own.indices) - len(own.results))
        storage = self.storage(f"{statement.target}_parts", statement.target, own.results, statement)
        kept = storage if total is None else self.stored(replace(storage, name=self.free(f"{storage.name}_acc")))
        identity = Constant(REDUCTIONS[statement.reduction].identity(kept.dtype), kept.dtype, self.span)
        start = self.statement(own.name + "i", "init", elements, own.results, kept, own.results, identity, None)
        update = self.statement(
            own.name,
            "update",
            domain,
            own.indices,
            kept,
            own.results,
            own.value(statement.value, instead),
            statement.reduction,
        )
        reported = tuple((i, own.value(value, {})) for i, value in statement.reported)
        update = replace(update, renumbered=reported, origin=statement.origin)
        statements: tuple[ScopStatement, ...] = (start, update)
        if total is not None:
            one = Constant(1.0, kept.dtype, self.span)
            found = self.read(total.storage, own.results[: len(rows) + 1])
            zero = Constant(0.0, kept.dtype, self.span)
            least = Select(Binary(">", found, zero, BOOL, self.span), found, one, kept.dtype, self.span)
            value = Binary("/", self.read(kept.name, own.results), least, kept.dtype, self.span)
            finish = self.statement(own.name + "f", "finish", elements, own.results, storage, own.results, value, None)
            statements = (*statements, finish)
        return _Parts(own, update, tuple(replace(s, origin=statement.origin) for s in statements), storage.name)

    def _weighted(self, statement: ScopStatement, weights: Read, total: _Parts | None) -> _Parts:
        """A sum of weights in parts."""
        found = next(
            e for e in walk(statement.value) if isinstance(e, Read) and e.tensor == self.weights.statement.target
        )
        names = [s.name for s in found.subscripts if isinstance(s, Index)]
        own = dict(zip(self.weights.statement.indices, names, strict=True))
        rows, step = tuple(own[r] for r in self.weights.rows), own[self.weights.step]
        read = replace(weights, subscripts=self.subscripts((*rows, self.part, step)))
        return self._parts(statement, rows, step, dict.fromkeys((found.tensor,), read), total)

    def seen_parts(self) -> isl.Set | None:
        """The rows and parts with weights that are not 0; None where these are all, or the maximum needs others."""
        weights = self.weights
        needs_all = weights.shown is not None or self._hands_out_maximum()
        if not weights.lowered or not weights.hides or (needs_all and not weights.sees_all_rows):
            return None
        found = self._in_parts(weights.seen)
        count = len(self.weights.rows) + 1
        found = found.project_out(isl.dim_type.set, count, found.dim(isl.dim_type.set) - count)
        return found.reset_tuple_id().remove_divs().coalesce()

    def _seen_steps(self) -> isl.Set | None:
        """The rows, parts and steps of weights that are not 0; None if loops over them would need more than bounds."""
        found = self._in_parts(self.weights.seen).coalesce()
        basic = found.get_basic_sets()
        return found if len(basic) == 1 and basic[0].dim(isl.dim_type.div) == 0 else None

    def _in_parts(self, instances: isl.Set) -> isl.Set:
        """Some instances of the weights as those of parts."""
        weights = self.weights
        own = Instances(weights.statement, "part", weights.rows, weights.step, self.part, self.first, self.steps)
        return own.whole.intersect_range(instances).domain()

    def _hands_out_maximum(self) -> bool:
        """Whether a maximum is also for others than the weights: of a row that sees nothing it is a low number then."""
        names = {self.weights.top, self.weights.maximum.target}
        users = {s.name for name in names for s in self.scop.users[name] if s.target not in names}
        role = self.storages[self.weights.top].role
        return role != "temporary" or users != {self.weights.statement.name}

    def _only_seen(self, domain: isl.Set) -> isl.Set:
        """Those of some instances that belong to rows and parts that are seen, which are their first indices."""
        if self.seen is None:
            return domain
        count = len(self.weights.rows) + 1
        more = domain.dim(isl.dim_type.set) - count
        seen = self.seen.insert_dims(isl.dim_type.set, count, more).set_tuple_name(domain.get_tuple_name())
        return domain.intersect(seen)

    def _only_seen_steps(self, domain: isl.Set, step: int) -> isl.Set:
        """Those of some instances whose weights are not 0, where that is known of steps; ``step`` is their position."""
        if self.seen_steps is None:
            return domain
        count = domain.dim(isl.dim_type.set)
        names = [f"i{d}" for d in range(count)]
        known = ", ".join([*names[: len(self.weights.rows) + 1], names[step]])
        own = isl.Map(f"{{ {domain.get_tuple_name()}[{', '.join(names)}] -> part[{known}] }}")
        return domain.intersect(self.seen_steps.apply(own.reverse()))

    def _taken(self, parts: _Parts, old: ScopStatement) -> isl.Set:
        """The instances of a sum that parts take.  Raises LegalityError if one of the others has a weight not 0."""
        taken = parts.update.domain.apply(parts.own.whole)
        weights = self.weights.statement
        left = read_of(old, weights.target).intersect_domain(old.domain.subtract(taken))
        _require(bool(left.apply_range(weights.write.reverse()).range().is_disjoint(self.weights.seen)), old)
        return taken

    def _top(self, maximum: _Parts) -> ScopStatement:
        """What the weights of a part are relative to: its maximum, or the lowest number where that is infinite."""
        dtype = self.storages[maximum.storage].dtype
        lowest = Constant(float(np.finfo(dtype.name).min), dtype, self.span)
        storage = self.stored(replace(self.storages[maximum.storage], name=self.free(f"{maximum.storage}_top")))
        value = Binary("max", self.read(maximum.storage, maximum.own.results), lowest, dtype, self.span)
        domain = maximum.statements[0].domain
        name = self.name(f"{self.weights.maximum.name}t")
        return self.statement(name, "assign", domain, maximum.own.results, storage, maximum.own.results, value, None)

    def _weights(self, top: ScopStatement) -> tuple[ScopStatement, Instances]:
        """The weights of parts."""
        statement, rows, step = self.weights.statement, self.weights.rows, self.weights.step
        own = Instances(statement, statement.name, rows, step, self.part, self.first, self.steps)
        own = replace(own, name=self.name(f"{statement.name}r"))
        indices = (*rows, self.part, step)
        storage = self.storage(f"{statement.target}_parts", statement.target, indices, statement, step)
        read = self.read(top.target, (*rows, self.part))
        value = own.value(self._seen_or_zero(), {self.weights.top: read})
        domain = self._only_seen_steps(self._only_seen(own.whole.domain()), len(indices) - 1)
        made = self.statement(own.name, "assign", domain, indices, storage, indices, value, None)
        reported = tuple((i, own.value(value, {})) for i, value in statement.reported)
        return replace(made, renumbered=reported), own

    def _seen_or_zero(self) -> Expr:
        """A weight, where a condition makes it 0 by a score of -infinity: so the maximum is read everywhere."""
        weights, value = self.weights, self.weights.statement.value
        condition, seen = unconditional(value)
        if condition is None or seen != weights.core:
            return value
        dtype = weights.score.dtype
        hidden = Constant(float("-inf"), dtype, self.span)
        return replaced(seen, weights.score, Select(condition, weights.score, hidden, dtype, self.span))

    def _scale(self, top: ScopStatement, total: _Parts | None) -> ScopStatement:
        """What the sums of a part count in those of all: their maximum against that of all, times their total.

        Its indices are in another order than those of the parts, so that it is computed with those of all.
        """
        rows, dtype = self.weights.rows, self.weights.core.dtype
        top_box = self.storages[top.target].box
        box = Box((0, *top_box.origin[:-1]), (self.count, *top_box.extent[:-1]))
        name = self.free(f"{self.weights.statement.target}_scale")
        storage = self.stored(Storage(name, dtype, box, "temporary", contiguous_strides(box.extent)))
        value = replaced(self.weights.core, self.weights.score, self.read(top.target, (*rows, self.part)))
        if total is not None:
            value = Binary("*", value, self.read(total.storage, (*rows, self.part)), dtype, self.span)
        indices = (self.part, *rows)
        domain = top.domain.apply(_turn(top, (*rows, self.part), indices))
        name = self.name(f"{self.weights.statement.name}s")
        return self.statement(name, "assign", domain, indices, storage, indices, value, None)

    def _combined(self, statement: ScopStatement, parts: _Parts | None, scale: ScopStatement | None) -> ScopStatement:
        """What reduces the parts: scaled, if there is a ``scale``, which alone is that of a total."""
        results = statement.indices[: statement.coordinates]
        value: Expr
        if scale is not None and parts is None:
            order: tuple[str, ...] = (self.part, *self._rows_of(statement))
            made, value = scale, self.read(scale.target, order)
        else:
            assert parts is not None
            order, made = parts.own.results, parts.statements[0]
            value = self.read(parts.storage, order)
        if scale is not None and parts is not None:
            factor = self.read(scale.target, (self.part, *parts.own.rows))
            value = Binary("*", value, factor, value.dtype, self.span)
        indices = (*results, self.part)
        domain = made.domain.apply(_turn(made, order, indices))
        storage = self.storages[statement.target]
        combined = self.statement(
            statement.name, "update", domain, indices, storage, results, value, statement.reduction
        )
        return replace(combined, origin=statement.origin)

    def _rows_of(self, statement: ScopStatement) -> tuple[str, ...]:
        """The indices of a total that are the rows of the weights."""
        assert isinstance(statement.value, Read)
        own = dict(zip(self.weights.statement.indices, statement.value.subscripts, strict=True))
        return tuple(s.name for s in (own[r] for r in self.weights.rows) if isinstance(s, Index))

    def _prove(
        self,
        own: ScopStatement,
        instances: Instances,
        top: ScopStatement,
        scale: ScopStatement,
        sums: list[tuple[_Parts, ScopStatement]],
    ) -> None:
        """Raise LegalityError unless every weight is summed once, and scaled by what it is relative to."""
        before = self.weights.statement
        _require(is_bijective(instances.whole, before.domain), before)
        for parts, combined in sums:
            whole, old = parts.own.whole, parts.own.statement
            _require(is_bijective(whole, old.domain), old)
            through = parts.update.write
            for finish in parts.statements[2:]:
                through = through.apply_range(read_of(finish, parts.update.target).reverse()).apply_range(finish.write)
            at = through.apply_range(read_of(combined, parts.storage).reverse())
            taken = self._taken(parts, old)
            written = whole.reverse().apply_range(at).apply_range(combined.write).intersect_domain(taken)
            _require(bool(written.is_equal(old.write.intersect_domain(taken))), old)
            used = read_of(parts.update, own.target).apply_range(own.write.reverse())
            whole_used = whole.reverse().apply_range(used).apply_range(instances.whole)
            needed = read_of(old, before.target).apply_range(before.write.reverse())
            _require(bool(whole_used.is_equal(needed.intersect_domain(taken))), old)
            # Of instances of parts, in which steps need no quotients, and coalesced: else unions take isl seconds.
            scaled = at.apply_range(read_of(combined, scale.target)).apply_range(scale.write.reverse())
            scaled = scaled.apply_range(read_of(scale, top.target)).coalesce()
            # Where a condition makes a weight 0 it is relative to nothing.
            relative = used.apply_range(read_of(own, top.target))
            _require(bool(scaled.is_single_valued()) and bool(relative.is_subset(scaled)), old)


def _require(sound: bool, statement: ScopStatement) -> None:
    if not sound:
        raise LegalityError(
            f"pass 'rescale' does not take every step of {statement.name} once, relative to its maximum"
        )


def _turn(statement: ScopStatement, order: tuple[str, ...], into: tuple[str, ...]) -> isl.Map:
    """Instance of a statement, its indices named in their order, to the same with them in another order."""
    names = {index: f"i{d}" for d, index in enumerate(order)}
    turned = ", ".join(names[index] for index in into)
    return isl.Map(f"{{ {statement.name}[{', '.join(names.values())}] -> [{turned}] }}")
