"""Forward mode: from a def, the text of a def that takes its inputs and their tangents and gives those of the outputs.

Each statement that depends on what moves gets a second one beside it, for how far its result moves.  Every read is
where it was, so nothing has to be solved for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tcomp.derivatives.derivation import Derivative, checked, spelling, statement_of
from tcomp.derivatives.expressions import Adjoint
from tcomp.derivatives.reductions import Reductions
from tcomp.derivatives.restating.bounds import with_linear_bounds
from tcomp.derivatives.restating.indices import with_own_indices
from tcomp.derivatives.steps.alongside import tangent_in_place
from tcomp.derivatives.steps.blocks import Group
from tcomp.derivatives.steps.unrolled import with_steps_as_subscripts
from tcomp.derivatives.text import (
    ONE,
    ZERO,
    Expr,
    element,
    name,
    names_in,
    product,
    range_text,
    target_subscripts,
    to_syntax,
    total,
)
from tcomp.derivatives.versions import Version
from tcomp.derivatives.wish import chosen_inputs
from tcomp.errors import CompileError, DerivativeError
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.dataranges import inside_ranges
from tcomp.grammar.tree.function import Function, Index, Tensor


def tangent_text(function: Function, wrt: Sequence[str] | None = None, ties: str = "even") -> Derivative:
    """The def ``NAME_jvp``: how far the outputs of floats move if the inputs ``wrt`` do, by default all of floats.

    Raises:
        DerivativeError: ``wrt`` names no input of floats, there is no output of floats, or a statement has no
            derivative here.
    """
    if not any(tensor.dtype.is_float for tensor in function.outputs):
        raise DerivativeError(f"{function.name} has no output of floats that could move")
    function = with_own_indices(function)
    if not function.recurs:
        return _tangent_text(function, wrt, ties)
    try:
        return checked(_tangent_text(function, wrt, ties))
    except CompileError:
        return tangent_in_place(function, wrt, ties)


def _tangent_text(function: Function, wrt: Sequence[str] | None, ties: str) -> Derivative:
    function = with_linear_bounds(with_steps_as_subscripts(function))
    return _Forward(function, chosen_inputs(function, wrt), ties).run()


class _Forward(Reductions):
    def __init__(self, function: Function, wrt: tuple[str, ...], ties: str) -> None:
        super().__init__(function, wrt, ties)
        self.tangents = {given: self.fresh(f"t_{given}") for given in wrt}
        self.results = {version: self.fresh(f"t_{tensor.name}") for version, tensor in self.outputs.items()}
        for version in self.versions:
            if version.name in self.active and version.name not in self.tangents:
                own = self.results.get(version.name)
                if own is not None and self._is_narrow(self.outputs[version.name]):
                    own = self.fresh(f"wide_{own}")
                self.tangents[version.name] = own or self.fresh(f"t_{version.name}")

    def run(self) -> Derivative:
        for position, version in enumerate(self.versions):
            if version.name in self.active:
                self._write(position, version)
        for final, own in self.results.items():
            if self.tangents.get(final) != own:
                self._write_result(final, own)
        results = [self._result(tensor, self.results[final]) for final, tensor in self.outputs.items()]
        given = [self.parameter(self.inputs[moved], self.tangents[moved]) for moved in self.wrt]
        return self.assemble(f"{self.function.name}_jvp", results, given, takes_all=True)

    def _result(self, tensor: Tensor, own: str) -> syntax.Parameter:
        """An output, whose extents follow from its statements if it does not begin at 0."""
        begins_at_zero = all(not first.terms for first, _ in self.box(tensor.name))
        return self.parameter(tensor, own) if begins_at_zero else syntax.Parameter(name(own))

    def _write(self, position: int, version: Version) -> None:
        own = self.tangents[version.name]
        statement, rule = self.function.statements[position], self.rule(position, version)
        seed = self.seed(position, version, rule, ONE)
        first = all(earlier.name != version.name for earlier in self.versions[:position])
        if first and version.gaps is not None:
            self.groups.append(Group("", [self.empty(version, own)]))
        if first and version.base is not None:
            self.groups.append(Group("", self._kept(position, version, own)))
        ranged = self._clauses(position) if statement.reduction in ("+", "max", "min") and not statement.steps else None
        adjoints = rule.push(inside_ranges(statement.value) if ranged else statement.value, *seed)
        parts = [
            self._part(adjoint, version) for adjoint in adjoints if version.reads[adjoint.read.tensor] in self.active
        ]
        adds_up = statement.reduction is not None
        if not parts and adds_up and not statement.initialise:
            return
        value: Expr = ZERO
        bounds = self.bounds(position)
        if parts:
            value = parts[0]
            for part in parts[1:]:
                value = total(value, part)
        elif all(isinstance(s, Index) for s in statement.subscripts):
            adds_up = False
            bounds = tuple(b for b in bounds if b.index.name not in statement.reduction_indices)
        tensor = self.function.tensors[version.tensor]
        if not parts and tensor.dtype.bits == 64:
            value = syntax.Cast(spelling(tensor), value)
        operator = "=" if not adds_up else "+=!" if statement.initialise else "+="
        subscripts = target_subscripts(statement, version.reads)
        steps, time = self.steps_of(position) or (None, 0)
        group = Group(f"{own}: how {version.name} moves", steps=steps, time=time)
        if statement.scatters and adds_up:
            zero = syntax.Cast(spelling(tensor), ZERO)
            group.statements += self.reduced(position, own, subscripts, operator, value, zero)
        else:
            group.statements.append(statement_of(own, subscripts, operator, value, bounds))
        if ranged and parts:
            update = group.statements[-1]
            group.statements[-1] = replace(update, clauses=(*update.clauses, *ranged))
        group.statements = [self._with_bounds(position, s) for s in group.statements]
        self.groups.append(group)

    def _with_bounds(self, position: int, statement: syntax.Statement) -> syntax.Statement:
        """A statement with the reads that bound its indices, where their ranges are not known for all sizes."""
        indices = {*self.function.statements[position].indices}
        own = {n for s in statement.subscripts or () for n in names_in(s)}.union(
            names_in(statement.value), (c.index.name for c in statement.clauses if isinstance(c, syntax.Range))
        )
        exists = (e for e in self.unsaid(position) if names_in(e.read) & indices <= own)
        return replace(statement, clauses=(*statement.clauses, *exists))

    def _kept(self, position: int, version: Version, own: str) -> list[syntax.Statement]:
        """How what was there before moves a version that goes on from it, or overwrites a part."""
        assert version.base is not None
        statement = self.function.statements[position]
        copied = self.copied(version, own, self.tangents.get(version.base, ""))
        if version.base not in self.active:
            return [replace(copied, value=syntax.Cast(spelling(self.function.tensors[version.tensor]), ZERO))]
        if statement.initialise or statement.reduction in (None, "+"):
            return [copied]
        if statement.reduction == "*":
            subscripts = target_subscripts(statement, version.reads)
            value = to_syntax(statement.value, version.reads)
            return [copied, statement_of(own, subscripts, "*=", value, self.bounds(position))]
        return [replace(copied, value=self.kept(version, copied.subscripts or (), copied.value))]

    def _part(self, adjoint: Adjoint, version: Version) -> Expr:
        """What the movement of one read contributes."""
        own = self.tangents[version.reads[adjoint.read.tensor]]
        moved = element(own, adjoint.subscripts)
        if adjoint.read.boundary is not None:
            outside = () if adjoint.read.boundary.value is None else (ZERO,)
            kind = name(adjoint.read.boundary.kind)
            moved = syntax.Boundary(kind, (name(own), *outside), adjoint.subscripts)
        value = product(moved, adjoint.value)
        for guard in reversed(adjoint.guards):
            value = syntax.Conditional(guard, value, ZERO)
        return value

    def _write_result(self, final: str, own: str) -> None:
        """The tangent of an output that does not move, or one narrower than what was added up, rounded once."""
        tensor = self.outputs[final]
        box = self.box(tensor.name)
        indices = [self.fresh(letter, keep=False) for letter in "ijklmnopqrstuvw"[: len(box)]]
        subscripts = tuple(map(name, indices))
        value = ZERO if final not in self.active else element(self.tangents[final], subscripts)
        ranges = tuple(range_text(i, span) for i, span in zip(indices, box, strict=True))
        statement = statement_of(own, subscripts, "=", syntax.Cast(spelling(tensor), value), ranges)
        self.groups.append(Group("", [statement]))

    def _is_narrow(self, tensor: Tensor) -> bool:
        """Whether what is added up for a tensor has more bits than it has."""
        return tensor.dtype.bits < max(32, *(t.dtype.bits for t in self.function.tensors.values() if t.dtype.is_float))
