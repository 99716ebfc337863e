"""Pass: add up the terms of a sum of products one after another, each as a contraction of its own.

``C(i,j) +=! A(j,k) * B(i,k) + B(j,k) * A(i,k)`` becomes ``T(i,j) +=! A(j,k) * B(i,k)``, ``C(i,j) = T(i,j)`` and
``C(i,j) += B(j,k) * A(i,k)``, for a register tile multiplies two operands.  This reassociates the sum, as every
schedule may.  A term that is subtracted has an operand negated, ``(-D(j,k)) * E(i,k)``, which ``outlining.py``
computes ahead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.errors import LegalityError
from tcomp.grammar.ranges.ranges import Box
from tcomp.grammar.tree.function import Binary, Expr, Read, Unary
from tcomp.grammar.tree.terms import Term, products_of
from tcomp.mapping.fusion.outlining import operands_ahead
from tcomp.mapping.machines.fitted.cpufusion import DISTRIBUTING
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.operations import indices_in, recognise_contraction
from tcomp.mapping.plan.schedule import scheduled_anew
from tcomp.mapping.plan.values import Plan
from tcomp.model.accesses import Frame, reads_with_subscripts
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.storages import Storage, contiguous_strides
from tcomp.model.terms.unions import extents, union_map


def distribute_terms(plan: Plan, options: MappingOptions) -> Plan:
    """Give each term of a sum an update of its own where all of them are contractions then."""
    scop, done = plan.scop, list[str]()
    for name in plan.scop.by_name:
        if can_distribute(scop, name) and _is_worth_it(scop, name):
            scop, done = distributed(scop, name), [*done, name]
    return plan if not done else replace(scheduled_anew(plan, scop), distributed=tuple(done))


def can_distribute(scop: Scop, name: str) -> bool:
    """Whether the terms of a statement can be added up one after another, in the type of the sum."""
    statement = scop.by_name[name]
    return (
        statement.kind == "update"
        and statement.reduction == "+"
        and statement.plain
        and not statement.tile_rank
        and f"{name}i" in scop.by_name
        and scop.storages[statement.target].dtype == statement.value.dtype
        and len(products_of(statement.value)) > 1
    )


def distributed(scop: Scop, name: str) -> Scop:
    """The program in which each term of a statement is an update that begins with what the one before has left.

    The last one is called as the statement was.  Raises LegalityError if they would read or write anything else than
    before.
    """
    return _Distribution(scop, scop.by_name[name]).apply()


@dataclass(frozen=True, eq=False)
class _Distribution:
    """One statement whose terms become updates."""

    scop: Scop
    statement: ScopStatement

    def apply(self) -> Scop:
        *earlier, last = products_of(self.statement.value)
        start = self.scop.by_name[f"{self.statement.name}i"]
        storages, made = dict(self.scop.storages), list[ScopStatement]()
        begin = start.value
        for number, term in enumerate(earlier):
            kept = self._storage(number)
            storages[kept.name] = kept
            boxes = {s.name: s.box for s in storages.values()}
            name = self._name(number)
            made.append(self._like(start, f"{name}i", kept.name, begin, boxes))
            made.append(self._like(self.statement, name, kept.name, self._value(term), boxes))
            begin = Read(kept.name, start.subscripts, kept.dtype, start.value.span)
        boxes = {s.name: s.box for s in storages.values()}
        made.append(self._like(start, start.name, start.target, begin, boxes))
        made.append(self._like(self.statement, self.statement.name, start.target, self._value(last), boxes))
        self._prove_the_same([s for s in made if s.kind == "update"])
        statements = [s for s in self.scop.statements if s is not start]
        place = statements.index(self.statement)
        statements[place : place + 1] = made
        return Scop(storages, tuple(statements), self.scop.sizes, around=self.scop.around)

    def _name(self, number: int) -> str:
        name = f"{self.statement.name}t{number}"
        while name in self.scop.by_name:
            name += "t"
        return name

    def _storage(self, number: int) -> Storage:
        """Where the sum of the first few terms is kept."""
        own = self.scop.storages[self.statement.target]
        name = f"{own.name}_t{number}"
        while name in self.scop.storages:
            name += "_"
        elements = self.scop.by_name[f"{self.statement.name}i"].write.range()
        low = tuple(elements.dim_min_val(d).to_python() for d in range(len(own.box.extent)))
        box = Box(low, extents(elements))
        return Storage(name, own.dtype, box, "temporary", contiguous_strides(box.extent))

    def _like(
        self, model: ScopStatement, name: str, target: str, value: Expr, boxes: Mapping[str, Box]
    ) -> ScopStatement:
        """A statement over the instances of another, with another name, target and value."""
        domain = model.domain.set_tuple_name(name)
        frame = Frame(domain, self.scop.sizes, boxes)
        write = model.write.set_tuple_name(isl.dim_type.in_, name).set_tuple_name(isl.dim_type.out, target)
        reads = reads_with_subscripts(frame, value, model.subscripts)
        return replace(model, name=name, target=target, value=value, domain=domain, write=write, reads=reads)

    def _prove_the_same(self, parts: Sequence[ScopStatement]) -> None:
        """Raise LegalityError unless the terms together read what their sum read, in each instance."""
        reads = [r.set_tuple_name(isl.dim_type.in_, self.statement.name) for part in parts for r in part.reads]
        if not union_map(reads).is_equal(union_map(list(self.statement.reads))):
            raise LegalityError(f"pass 'distribute' lets {self.statement.name} read other elements than before")

    def _value(self, term: Term) -> Expr:
        """A term as something that is added: what is subtracted has its smaller operand negated."""
        sign, value = term
        if sign > 0 or not isinstance(value, Binary):
            return value
        lengths = dict(zip(self.statement.indices, self.statement.extents, strict=True))
        left, right = (math.prod(lengths[i] for i in indices_in(side)) for side in (value.lhs, value.rhs))
        if left <= right:
            return replace(value, lhs=Unary("-", value.lhs, value.lhs.dtype, value.lhs.span))
        return replace(value, rhs=Unary("-", value.rhs, value.rhs.dtype, value.rhs.span))


def _is_worth_it(scop: Scop, name: str) -> bool:
    """Whether each term is a contraction with rows and columns, of so many steps that loading its sums shows little."""
    trial = distributed(scop, name)
    made = [s for s in trial.statements if s.kind == "update" and (s.name == name or s.name not in scop.by_name)]
    return all(_is_product(trial, s) for s in made)


def _is_product(scop: Scop, statement: ScopStatement) -> bool:
    trial = operands_ahead(scop, statement.name)
    bundles = recognise_contraction(trial.by_name[statement.name])
    if bundles is None:
        return False
    lengths = dict(zip(statement.indices, statement.extents, strict=True))
    rows, columns, steps = (math.prod(lengths[i] for i in side) for side in (bundles.m, bundles.n, bundles.k))
    return rows > 1 and columns > 1 and steps >= DISTRIBUTING.least_steps
