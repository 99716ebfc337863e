"""Reverse mode: from a def, the text of a def that takes its inputs and cotangents and gives gradients.

Statements are gone through from the last to the first; the adjoint of what a statement writes goes down its right-hand
side by the chain rule, to an adjoint of each tensor that is read there.  Values of the forward pass are computed anew.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from tcomp.derivatives.algebra import Value, product_of
from tcomp.derivatives.derivation import Derivative, checked, names_of, spelling, statement_of
from tcomp.derivatives.expressions import Adjoint
from tcomp.derivatives.gathering.adjoints import Adjoints
from tcomp.derivatives.gathering.datarows import Owner, in_ranges
from tcomp.derivatives.gathering.gathers import Contribution, Place, contribution, dependent_ranges, rigid_indices
from tcomp.derivatives.gathering.phases import in_phases
from tcomp.derivatives.invariance import shifts_that_cancel
from tcomp.derivatives.restating.bounds import with_linear_bounds
from tcomp.derivatives.restating.indices import with_own_indices
from tcomp.derivatives.saving import CheapToSave, Save, compared, saveable, without_rounded
from tcomp.derivatives.sharing import sharing_sums
from tcomp.derivatives.simplify import simplified
from tcomp.derivatives.steps.backwards import gradient_in_place
from tcomp.derivatives.steps.blocks import Group
from tcomp.derivatives.steps.unrolled import with_steps_as_subscripts
from tcomp.derivatives.text import (
    Expr,
    element,
    name,
    negated,
    product,
    range_text,
    to_syntax,
)
from tcomp.derivatives.versions import Version, tensors_read, writes_all
from tcomp.derivatives.wish import Wish, chosen_inputs
from tcomp.errors import CompileError, DerivativeError, Diagnostic, UnsaidError
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.dataranges import inside_ranges, ranges_of
from tcomp.grammar.tree.function import Binary, Function, Index, Within, walk


def gradient_text(function: Function, wish: Wish = Wish()) -> Derivative:  # noqa: B008  (it cannot change)
    """The def that computes the gradients of ``function``.

    Raises:
        DerivativeError: ``wrt`` names no input of floats, ``save`` nothing that can be saved, or a statement has no
            derivative here.
    """
    function = with_own_indices(function)
    if not function.recurs:
        return _gradient_text(function, wish)
    try:
        return checked(_gradient_text(function, wish))
    except CompileError:
        return gradient_in_place(function, wish)


def _gradient_text(function: Function, wish: Wish) -> Derivative:
    function, save = with_linear_bounds(with_steps_as_subscripts(function)), wish.save
    if save == "auto":
        if wish.sizes is None:
            raise DerivativeError("save='auto' decides by sizes: pass sizes=")
        save = CheapToSave(function).names(wish.sizes)
    reverse = _Reverse(function, chosen_inputs(function, wish.wrt), wish.ties, wish.without)
    return reverse.run(wish.name or f"{function.name}_grad", save)


class _Reverse(Adjoints):
    def __init__(self, function: Function, wrt: tuple[str, ...], ties: str, without: Collection[str]) -> None:
        super().__init__(function, wrt, ties, without)
        if not self.function.recurs:
            self.active -= shifts_that_cancel(self.function, self.versions)

    def run(self, wanted: str, save: Save) -> Derivative:
        may_save = saveable(self.function, self.versions, self.symbolic, save)
        for position in reversed(range(len(self.versions))):
            version, steps = self.versions[position], self.function.statements[position].steps
            if steps:
                if position + 1 == len(self.versions) or self.function.statements[position + 1].steps[:1] != steps:
                    self._block([p for p in range(position + 1) if self.function.statements[p].steps[:1] == steps])
                continue
            if version.name not in self.active or not self.has_adjoint(version.name):
                continue
            if all(later.name != version.name for later in self.versions[position + 1 :]):
                self.settle(version)
            self._push(position, version)
            first = all(earlier.name != version.name for earlier in self.versions[:position])
            if version.base in self.active and first:
                self._keep(position, version)
        for given in self.wrt:
            self._write_result(given)
        self.groups = simplified(self.groups, self.adjoints_of_inputs(), self._values())
        declared = {p.name.name: p.dims for p in self.function.definition.inputs if p.dims}
        if all(t.dtype.bits >= 32 for t in self.function.tensors.values() if t.dtype.is_float):
            self.groups = sharing_sums(self.groups)
        self.groups = in_phases(self.groups, declared, self.fresh)
        results = [self.parameter(self.inputs[n], self.adjoints[n]) for n in self.wrt]
        cotangents = [self.parameter(tensor, self.cotangents[v]) for v, tensor in self.outputs.items()]
        may_save = without_rounded(
            self.function, self.versions, may_save, self.sought | compared(self.function, self.versions)
        )
        derivative = self.assemble(wanted, results, cotangents, may_save)
        handed_out = {v.name for v in self.versions if self._is_output(v)}
        extra = [name for name in derivative.saved if name not in handed_out]
        if not extra:
            return derivative
        own = self.fresh(f"{self.function.name}_saving")
        return replace(derivative, text=f"{derivative.text}\n{self.saving(own, extra)}", forward=own)

    def _block(self, positions: Sequence[int]) -> None:
        """The adjoints of what a block writes, in a block that takes its steps from the last to the first.

        An element of a step is read in that step and in later ones, so its adjoint is a sum over what is known by then.
        """
        own = [p for p in positions if self.versions[p].name in self.active]
        reached = {self.versions[p].name for p in own if self.has_adjoint(self.versions[p].name)}
        while True:
            more = {
                self.versions[q].name
                for p in own
                if self.versions[p].name in reached
                for q in own
                if self.versions[q].tensor in tensors_read(self.function.statements[p])
            }
            if more <= reached:
                break
            reached |= more
        own = [p for p in own if self.versions[p].name in reached]
        inner = {self.versions[q].name for p in own for q in own if self._reads(p, q)}
        for p in own:
            version = self.versions[p]
            copies = version.name in self.outputs and version.name not in self.sums and version.name not in inner
            self.adjoints[version.name] = (
                self.cotangents[version.name] if copies else self.fresh(self._adjoint_name(version))
            )
        self.inside = {self.versions[p].name: p for p in own}
        for p in reversed(own):
            self._push(p, self.versions[p])
        groups: list[Group] = []
        self.groups, before = groups, self.groups
        for p in reversed(own):
            version = self.versions[p]
            if self.adjoints[version.name] not in self.cotangents.values():
                self.settle(version, self.adjoints[version.name])
                steps, time = self.steps_of(p, backwards=True) or (None, 0)
                self._check_steps(p, groups[-1], time)
                groups[-1].steps, groups[-1].time = steps, time
        for number, group in enumerate(groups):
            targets = {s.target.name for s in group.statements}
            earlier = [n for g in groups[: number + 1] for s in g.statements for n in names_of(s)]
            group.is_adjoint = not targets & set(earlier)
        self.inside = {}
        self.groups = [*before, *groups]

    def _check_steps(self, position: int, group: Group, time: int) -> None:
        """Raises DerivativeError where an adjoint is added to at a step that data choose, as by ``L = y(n)``."""
        if any(not isinstance((s.subscripts or ())[time], syntax.Name) for s in group.statements):
            statement = self.function.statements[position]
            message = f"data choose which step of {statement.target} is read, so it has no adjoint a step"
            raise DerivativeError(Diagnostic(message, self.function.source, statement.span))

    def _adjoint_name(self, version: Version) -> str:
        return f"all_d_{version.tensor}" if version.name in self.outputs else f"d_{version.name}"

    def _reads(self, reader: int, written: int) -> bool:
        return self.versions[written].tensor in tensors_read(self.function.statements[reader])

    def _is_output(self, version: Version) -> bool:
        return version.name == version.tensor and self.function.tensors[version.tensor].role == "output"

    def adjoints_of_inputs(self) -> set[str]:
        return {self.adjoints[given] for given in self.wrt}

    def _values(self) -> list[Value]:
        """Products and quotients that the elements of a tensor of the forward pass are."""
        found: list[Value] = []
        for version, statement in zip(self.versions, self.function.statements, strict=True):
            indices = tuple(s.name for s in statement.subscripts if isinstance(s, Index))
            plain = len(set(indices)) == len(statement.subscripts) and set(indices) == set(statement.indices)
            if statement.reduction is not None or not version.is_only_write or version.base or not plain:
                continue
            product = product_of(to_syntax(statement.value, version.reads))
            if len(product.over) + len(product.under) > 1:
                found.append(Value(version.name, indices, product))
        return found

    def _write_result(self, given: str) -> None:
        """A gradient; narrower ones than what is added up are rounded once, at the end."""
        tensor, own, box = self.inputs[given], self.adjoints[given], self.box(given)
        widest = max(t.dtype.bits for t in self.function.tensors.values() if t.dtype.is_float)
        if given not in self.sums or tensor.dtype.bits == max(32, widest):
            self.write_sum(own, tensor, box, given)
            return
        wide = self.fresh(f"wide_{own}")
        self.write_sum(wide, tensor, box, given)
        subscripts = tuple(map(name, self.dimensions_of(given, len(box))))
        ranges = tuple(range_text(i.name, span) for i, span in zip(subscripts, box, strict=True))
        rounded = syntax.Cast(spelling(tensor), element(wide, subscripts))
        self.groups[-1].statements.append(statement_of(own, subscripts, "=", rounded, ranges))

    def _keep(self, position: int, version: Version) -> None:
        """What the first statement of a version passes on to the adjoint of what was there before."""
        assert version.base is not None
        statement, source = self.function.statements[position], self.adjoints[version.name]
        indices, ranges = self.whole(version.tensor)
        overwrites = statement.reduction is None or statement.initialise
        if overwrites or (statement.reduction == "*" and not self._multiplies_all(position, version)):
            self.left_over[version.base] = position
            self.sums.setdefault(version.base, [])
            return
        if statement.reduction == "*":
            indices = tuple(to_syntax(s, version.reads) for s in statement.subscripts)
            ranges = self.bounds(position)
        value: Expr = element(source, self.as_handed_out(version, source, indices))
        if statement.reduction == "*":
            value = product(value, to_syntax(statement.value, version.reads))
        elif statement.reduction in ("max", "min"):
            value = self.kept(version, indices, value)
        self.sums.setdefault(version.base, []).append(Contribution(indices, value, ranges, gathered=True))

    def _multiplies_all(self, position: int, version: Version) -> bool:
        return self.multiplies_once(position) and writes_all(position, self.function, self.symbolic)

    def _push(self, position: int, version: Version) -> None:
        statement = self.function.statements[position]
        place, rule = self._place(position, version), self.rule(position, version)
        quotient = self._quotient_of_a_sum(position, version)
        if quotient is not None:
            # Of d/dz sum(v)/z = -(sum(v)/z)/z the sum is there already.
            whole = element(version.name, tuple(to_syntax(s, version.reads) for s in statement.subscripts))
            divisor = rule.text(quotient.rhs)
            above, below = syntax.Binary("/", place.seed, divisor), product(place.seed, whole)
            self.add(version, place, rule.push(quotient.lhs, above))
            outer = replace(place, indices=tuple(i for i in place.indices if i in place.outer))
            self.add(version, outer, rule.push(quotient.rhs, negated(syntax.Binary("/", below, divisor))))
            return
        seed = self.seed(position, version, rule, place.seed)
        adjoints = rule.push(statement.value, *seed)
        if statement.reduction not in ("+", "max", "min") or statement.steps or not ranges_of(statement.value):
            self.add(version, place, adjoints)
            return
        for guarded, bare in zip(adjoints, rule.push(inside_ranges(statement.value), *seed), strict=True):
            self._add_in_ranges(position, place, guarded, bare)

    def _add_in_ranges(self, position: int, place: Place, guarded: Adjoint, bare: Adjoint) -> None:
        """What a read adds inside of ranges that data give: it is ``bare`` there, and ``guarded`` anywhere."""
        version, value = self.versions[position], self.function.statements[position].value
        read, part = version.reads[bare.read.tensor], None
        if read in self.active and bare.read.boundary is None:
            whole = contribution(bare, place, self.box(bare.read.tensor), frozenset(self.taken))

            def owner_of(within: Within, entry: str, row: str) -> Owner:
                return self.owner(position, within, entry, row)

            part = in_ranges(whole, ranges_of(value), version.reads, owner_of)
        if part is None:
            self.add(version, place, [guarded])
            return
        self.positive |= part.positive
        self.sums.setdefault(read, []).append(part)

    def _quotient_of_a_sum(self, position: int, version: Version) -> Binary | None:
        """The value of a sum whose divisor is the same in all of it."""
        statement = self.function.statements[position]
        match statement.value:
            case Binary(op="/") as quotient if (
                statement.reduction == "+" and version.is_only_write and not version.base and not statement.scatters
            ):
                used = {e.name for e in walk(quotient.rhs) if isinstance(e, Index)}
                return None if used & set(statement.reduction_indices) else quotient
        return None

    def _is_whole(self, version: Version) -> bool:
        """Whether one statement alone makes a version."""
        return version.is_only_write and version.base is None

    def _place(self, position: int, version: Version) -> Place:
        statement = self.function.statements[position]
        ranges = self.symbolic.ranges[position]
        missing = [index for index in statement.indices if index not in ranges]
        if missing:
            message = f"the range of {missing[0]} cannot be said for all sizes, so there is no derivative"
            hint = f"add a range, such as `where {missing[0]} in 0:3`; with sizes=, it is derived for these alone"
            raise UnsaidError(Diagnostic(message, self.function.source, statement.span, hint))
        box = self.box(version.tensor)
        own = self.adjoints[version.name]
        subscripts = tuple(to_syntax(s, version.reads) for s in statement.subscripts)
        subscripts = self.as_handed_out(version, own, subscripts)
        boxes = {new: self.symbolic.boxes[old] for old, new in version.reads.items() if old in self.symbolic.boxes}
        if not statement.steps:  # in blocks it is written at formulas of the step, and begins nowhere but there
            boxes[own] = box
        outer = frozenset(set(statement.indices) - set(statement.reduction_indices))
        dependent = dependent_ranges(statement)
        seed, rigid = element(own, subscripts), rigid_indices(statement)
        return Place(statement.indices, outer, ranges, dependent, seed, boxes, rigid)
