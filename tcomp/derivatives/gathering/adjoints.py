"""The adjoints of tensors as sums of what their readers contribute."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from tcomp.derivatives.derivation import statement_of
from tcomp.derivatives.expressions import Adjoint
from tcomp.derivatives.gathering.firstsums import first_sum
from tcomp.derivatives.gathering.folds import FOLDS, folded, read_inside
from tcomp.derivatives.gathering.gathers import Contribution, Place, contribution, range_of
from tcomp.derivatives.reductions import Reductions
from tcomp.derivatives.steps.blocks import Group, at_the_step
from tcomp.derivatives.text import (
    ZERO,
    Expr,
    element,
    name,
    range_text,
    target_subscripts,
    to_syntax,
    total,
)
from tcomp.derivatives.versions import Version
from tcomp.grammar.ranges.linear import Linear, linear
from tcomp.grammar.ranges.polynomials import greatest, least
from tcomp.grammar.ranges.symbolic import Span
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import Constant, Function, Index, Size, Tensor
from tcomp.values.operators import INTRINSICS


class Adjoints(Reductions):
    """The adjoint of each version of a tensor: a sum of what its readers contribute, written down when all have."""

    def __init__(self, function: Function, wrt: tuple[str, ...], ties: str, without: Collection[str]) -> None:
        super().__init__(function, wrt, ties)
        self.outputs = {version: t for version, t in self.outputs.items() if t.name not in without}
        self.adjoints: dict[str, str] = {}
        self.sums: dict[str, list[Contribution]] = {}
        self.left_over: dict[str, int] = {}
        """The version that a statement left in part as it was, and the position of the statement."""
        self.inside: dict[str, int] = {}
        """The versions of the block that is gone through, and the positions of their statements."""
        self.cotangents = {version: self.fresh(f"d_{tensor.name}") for version, tensor in self.outputs.items()}
        for given in wrt:
            self.adjoints[given] = self.fresh(f"d_{given}")

    def has_adjoint(self, version: str) -> bool:
        return version in self.outputs or version in self.sums

    def settle(self, version: Version, wanted: str | None = None) -> None:
        """Write down the adjoint of a version, all of whose readers have been gone through."""
        tensor = self.function.tensors[version.tensor]
        if version.name not in self.sums and wanted is None:
            self.adjoints[version.name] = self.cotangents[version.name]
            return
        self.sums.setdefault(version.name, [])
        box = self.box(version.tensor)
        if version.name in self.outputs:
            own = wanted or self.fresh(f"all_d_{version.tensor}")
            indices = self.dimensions_of(version.name, len(box))
            shifted = tuple(self._rebased(name(i), span) for i, span in zip(indices, box, strict=True))
            ranges = tuple(range_text(i, span) for i, span in zip(indices, box, strict=True))
            copied = Contribution(
                tuple(map(name, indices)), element(self.cotangents[version.name], shifted), ranges, gathered=True
            )
            self.sums[version.name].insert(0, copied)
        else:
            own = wanted or self.fresh(f"d_{version.name}")
        self.adjoints[version.name] = own
        self.write_sum(own, tensor, box, version.name)

    def _rebased(self, index: Expr, span: Span) -> Expr:
        """A coordinate of an array that is handed out from 0."""
        return index if not span[0].terms else syntax.Binary("-", index, span[0].syntax())

    def dimensions_of(self, version: str, rank: int) -> tuple[str, ...]:
        """Names for the dimensions: those of the first gather, where there is one, in blocks those of the statement."""
        if version in self.inside:
            subscripts = self.function.statements[self.inside[version]].subscripts
            plain = tuple(s.name for s in subscripts if isinstance(s, Index))
            if len(set(plain)) == rank:
                return plain
        for part in self.sums.get(version, ()):
            if part.gathered and len(set(part.indices)) == rank:
                return part.indices
        found: list[str] = []
        for letter in "ijklmnopqrstuvw"[:rank]:
            found.append(self.fresh(letter, keep=False))
        return tuple(found)

    def write_sum(self, own: str, tensor: Tensor, box: tuple[Span, ...], version: str) -> None:
        parts = self.sums.get(version, [])
        group = Group(f"{own}: the adjoint of {version}", is_adjoint=True)
        indices = self.dimensions_of(version, len(box))
        pointwise = [p.renamed(indices) for p in parts if p.is_pointwise]
        others = [p for p in parts if not p.is_pointwise]
        ranges = tuple(range_text(i, span) for i, span in zip(indices, box, strict=True))
        subscripts = tuple(map(name, indices))
        if version in self.left_over:
            group.is_adjoint = False
            group.statements += self._left_over(own, self.left_over[version])
            others, pointwise = [*pointwise, *others], []
        is_declared = version in self.wrt and own == self.adjoints[version]
        if is_declared and len(others) == len(parts) and others and _reaches_all(others[0], box):
            first, *others = others
            group.statements.append(statement_of(own, first.subscripts, "+=!", first.value, first.ranges))
        needs_zero = not group.statements and not pointwise and (not others or not others[0].gathered)
        if needs_zero:
            zero: Expr = ZERO if tensor.dtype.name != "float64" else syntax.Cast("double", ZERO)
            group.statements.append(statement_of(own, subscripts, "=", zero, ranges))
        elif pointwise:
            value = pointwise[0].value
            for part in pointwise[1:]:
                value = total(value, part.value)
            group.statements.append(statement_of(own, subscripts, "=", value, ranges))
        others.sort(key=lambda part: not part.gathered)
        for part in others:
            operator = "+=" if group.statements else "+=!"
            group.statements.append(statement_of(own, part.subscripts, operator, part.value, part.ranges))
        beside_doubles = any(t.dtype.name == "float64" for t in self.function.tensors.values())
        if len(group.statements) > 1 and tensor.dtype.bits < 64 and beside_doubles and not is_declared:
            # What is added may be doubles, and the first statement tells the type.
            begun, *later = group.statements
            group.statements = [replace(begun, value=syntax.Cast("double", begun.value)), *later]
        self.groups.append(group)

    def as_handed_out(self, version: Version, adjoint: str, subscripts: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Subscripts of an adjoint, which for that of an output is an array that begins at 0."""
        if adjoint not in self.cotangents.values():
            return subscripts
        return tuple(self._rebased(s, span) for s, span in zip(subscripts, self.box(version.tensor), strict=True))

    def _left_over(self, own: str, position: int) -> list[syntax.Statement]:
        """The adjoint of what a statement left as it was, with zeros where it wrote, or times what it multiplied by."""
        version, statement = self.versions[position], self.function.statements[position]
        indices, ranges = self.whole(version.tensor)
        source = self.adjoints[version.name]
        kept = statement_of(own, indices, "=", element(source, self.as_handed_out(version, source, indices)), ranges)
        written = target_subscripts(statement, version.reads)
        if statement.reduction == "*" and not statement.initialise:
            value = to_syntax(statement.value, version.reads)
            return [kept, statement_of(own, written, "*=", value, self.bounds(position))]
        zero: Expr = ZERO
        if self.function.tensors[version.tensor].dtype.name == "float64":
            zero = syntax.Cast("double", ZERO)
        outer = tuple(r for r in self.bounds(position) if r.index.name not in statement.reduction_indices)
        plain = all(isinstance(s, Index | Constant | Size) for s in statement.subscripts)
        operator = "=" if plain or statement.reduction is None else "+=!"
        return [kept, statement_of(own, written, operator, zero, outer)]

    def add(self, version: Version, place: Place, adjoints: Iterable[Adjoint]) -> None:
        """What reads contribute to the adjoints of what they read."""
        for adjoint in adjoints:
            read = version.reads[adjoint.read.tensor]
            if read not in self.active:
                continue
            boundary = adjoint.read.boundary
            if boundary is not None and boundary.kind in FOLDS:
                self._fold(boundary.kind, adjoint, place, read)
                continue
            forms = None
            if read in self.inside:
                steps, time = self.steps_of(self.inside[read]) or (None, 0)
                assert steps is not None
                ends = {index for low, high in place.dependent.values() for index in low.indices() | high.indices()}
                adjoint = at_the_step(adjoint, steps, time, self.function.source, is_bounded=steps.index in ends)
            elif self._is_in_a_block(read):
                forms, place = self._forms_to_compare(adjoint, read), replace(place, boxes={})
            left, where = (adjoint, place) if self.function.recurs else self._summed_first(adjoint, place)
            part = contribution(left, where, self.box(adjoint.read.tensor), frozenset(self.taken), forms)
            self.positive |= part.positive
            self.sums.setdefault(read, []).append(part)

    def _is_in_a_block(self, read: str) -> bool:
        return any(v.name == read and s.steps for v, s in zip(self.versions, self.function.statements, strict=True))

    def _forms_to_compare(self, adjoint: Adjoint, read: str) -> list[Linear | None]:
        """The forms of subscripts; what reads one step of a block, from outside, is compared with all steps."""
        position = next(p for p, v in enumerate(self.versions) if v.name == read)
        _, time = self.steps_of(position) or (None, 0)
        forms = [linear(subscript) for subscript in adjoint.read.subscripts]
        return [None if d == time and form is not None and not form.terms else form for d, form in enumerate(forms)]

    def _summed_first(self, adjoint: Adjoint, place: Place) -> tuple[Adjoint, Place]:
        """What an adjoint adds once the sums that may come first are written down, and where from."""
        found = first_sum(adjoint, place)
        if found is None or any(t.dtype.is_float and t.dtype.bits < 32 for t in self.function.tensors.values()):
            return adjoint, place  # A sum of 16 bits would be rounded to them.
        own = self.fresh(f"each_d_{adjoint.read.tensor}")
        ranges = tuple(range_of(index, place, {}) for index in place.indices)
        group = Group(f"{own}: what each element adds to the adjoint of {adjoint.read.tensor}", is_adjoint=True)
        subscripts = tuple(map(name, found.indices))
        group.statements.append(statement_of(own, subscripts, "+=!", adjoint.value, ranges))
        self.groups.append(group)
        return found.adjoint(adjoint, own), found.place(place, own)

    def _fold(self, kind: str, adjoint: Adjoint, place: Place, read: str) -> None:
        """The adjoint at logical coordinates, and what it adds to that of the tensor, a dimension at a time."""
        tensor, inside = self.function.tensors[adjoint.read.tensor], self.box(adjoint.read.tensor)
        if any((last - first + 1).constant == 0 for first, last in inside):
            return  # there is nothing to read
        forms = [linear(subscript) for subscript in adjoint.read.subscripts]
        spans = [None if form is None else form.interval(place.ranges) for form in forms]
        if None in spans:
            self.sums.setdefault(read, []).append(self._compared(kind, adjoint, place, forms, spans))
            return
        known = [span for span in spans if span is not None]
        box = [(least([a, first]), greatest([b, last])) for (a, b), (first, last) in zip(known, inside, strict=True)]
        plain = replace(adjoint, read=replace(adjoint.read, boundary=None))
        parts = [contribution(plain, place, tuple(box), frozenset(self.taken))]
        self.positive |= parts[0].positive
        for dimension in [d for d, span in enumerate(inside) if box[d] != span]:
            wide = self.fresh(f"wide_d_{tensor.name}")
            self.sums[wide] = parts
            indices = self.dimensions_of(wide, len(box))
            self.write_sum(wide, tensor, tuple(box), wide)
            self.groups[-1].comment = f"{wide}: the adjoint of {read}, outside it, too"
            parts = folded(kind, wide, indices, box, dimension, inside[dimension])
            box[dimension] = inside[dimension]
        self.sums.setdefault(read, []).extend(parts)

    def _compared(
        self, kind: str, adjoint: Adjoint, place: Place, forms: Sequence[Linear | None], spans: Sequence[Span | None]
    ) -> Contribution:
        """What a read with a boundary adds, where it is not known how far outside it reads."""
        box = self.box(adjoint.read.tensor)
        subscripts, kept = list(adjoint.subscripts), list(forms)
        for d, (span, (first, last)) in enumerate(zip(spans, box, strict=True)):
            if span is not None and (span[0] - first).is_nonnegative() and (last - span[1]).is_nonnegative():
                continue
            subscripts[d], kept[d] = read_inside(kind, subscripts[d], (first, last)), None
        plain = replace(adjoint, read=replace(adjoint.read, boundary=None), subscripts=tuple(subscripts))
        found = contribution(plain, place, box, frozenset(self.taken), kept)
        self.positive |= found.positive
        return found


def _reaches_all(part: Contribution, box: tuple[Span, ...]) -> bool:
    """Whether data choose among all elements where what reads add up goes: then it can start from 0 everywhere."""
    ranges = {r.index.name: r for r in part.ranges}
    bare = [s.name for s in part.subscripts if isinstance(s, syntax.Name)]
    if part.gathered or len(bare) == len(part.subscripts) or len(set(bare)) < len(bare):
        return False
    return all(
        ranges.get(s.name) == range_text(s.name, span) if isinstance(s, syntax.Name) else _reads(s)
        for s, span in zip(part.subscripts, box, strict=True)
    )


def _reads(expr: Expr) -> bool:
    """Whether the subscript of a read names a tensor; functions of indices are solved, or are no scatter."""
    names_a_tensor = isinstance(expr, syntax.Apply) and expr.function.name not in {*INTRINSICS, "min", "max"}
    return names_a_tensor or any(map(_reads, syntax.children(expr)))
