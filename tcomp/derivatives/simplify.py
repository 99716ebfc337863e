"""Derived statements as a person would write them: factors leave sums, adjoints go to their only reader.

One pass from the first statement to the last.  A tensor that is changed or dropped tells its readers, all of which
come later, what stands for its elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tcomp.derivatives.algebra import Product, Value, at, common, match, normal, product_of, with_known_values
from tcomp.derivatives.steps.blocks import Group
from tcomp.derivatives.text import Expr, element, name, names_in, total, with_children
from tcomp.grammar.tree import syntax

_FEW = 2
"""Factors of a value that may be computed at every step of a sum that reads it."""


def simplified(groups: Sequence[Group], results: Iterable[str], values: Sequence[Value]) -> list[Group]:
    """The same results from fewer statements.  ``values`` are tensors of the forward pass that may be read."""
    return _Pass(list(groups), frozenset(results), values).run()


@dataclass(slots=True)
class _Pass:
    groups: list[Group]
    results: frozenset[str]
    values: Sequence[Value]
    stands_for: dict[str, tuple[tuple[str, ...], Expr]] = field(default_factory=dict)
    kept_values: list[tuple[str, tuple[str, ...], Expr]] = field(default_factory=list)

    def run(self) -> list[Group]:
        kept: list[Group] = []
        for number, group in enumerate(self.groups):
            left: list[syntax.Statement] = []
            for target in dict.fromkeys(s.target.name for s in group.statements):
                own = [replace(s, value=self._value(s.value)) for s in group.statements if s.target.name == target]
                reads = _reads(target, [*_statements(self.groups[number + 1 :]), *group.statements])
                if not group.is_adjoint:
                    left += own
                    continue
                own = [self._known(s) for s in _merged(own)]
                own = own if target in self.results else self._tensor(own, reads)
                self._keep(own)
                left += own
            if left:
                kept.append(replace(group, statements=left))
        return kept

    def _known(self, statement: syntax.Statement) -> syntax.Statement:
        """A statement that reads an earlier adjoint where it has the same value, other than a product of few."""
        if _is_small(statement.value):
            return statement
        for tensor, indices, value in self.kept_values:
            places = match(value, statement.value, indices)
            if places is not None and set(places) == set(indices):
                read = element(tensor, tuple(name(places[i]) for i in indices))
                return replace(statement, value=read)
        return statement

    def _keep(self, own: list[syntax.Statement]) -> None:
        """Remember what the elements of an adjoint are, if one statement says that of all."""
        if len(own) == 1 and own[0].operator == "=" and _is_gather(own[0]) and own[0].subscripts:
            indices = tuple(s.name for s in own[0].subscripts if isinstance(s, syntax.Name))
            self.kept_values.append((own[0].target.name, indices, own[0].value))

    def _value(self, expr: Expr) -> Expr:
        return with_known_values(normal(self._replaced(expr)), self.values)

    def _replaced(self, expr: Expr) -> Expr:
        match expr:
            case syntax.Name() if expr.name in self.stands_for:
                return self.stands_for[expr.name][1]
            case syntax.Apply() if expr.function.name in self.stands_for:
                indices, value = self.stands_for[expr.function.name]
                return at(value, indices, [self._replaced(a) for a in expr.arguments])
            case syntax.Boundary(arguments=(syntax.Name(name=read), *_)) if read in self.stands_for:
                _, value = self.stands_for[read]
                assert isinstance(value, syntax.Apply)
                return replace(expr, arguments=(value.function, *expr.arguments[1:]))
            case _:
                return with_children(expr, [self._replaced(child) for child in syntax.children(expr)])

    def _tensor(self, own: list[syntax.Statement], reads: list[_Reading]) -> list[syntax.Statement]:
        """What is left of the statements that write one adjoint."""
        indices = tuple(s.name for s in own[0].subscripts or () if isinstance(s, syntax.Name))
        target = own[0].target.name
        if not reads or any(not _is_gather(s) or len(s.subscripts or ()) != len(indices) for s in own):
            return own
        if len(own) == 1 and _is_copy(own[0], indices):
            self.stands_for[target] = indices, own[0].value
            return []
        if any(reading.is_boundary for reading in reads):
            return own
        if any(map(_is_reduction, own)):
            return self._sum(own, indices, len(reads) == 1)
        if len(own) == 1 and len(reads) == 1 and (not _is_reduction(reads[0].by) or _is_small(own[0].value)):
            self.stands_for[target] = indices, own[0].value
            return []
        return own

    def _sum(self, own: list[syntax.Statement], indices: tuple[str, ...], read_once: bool) -> list[syntax.Statement]:
        """Common factors without an index of a sum, and if it is read once what is no sum, go to the readers."""
        target = own[0].target.name
        own = _merged([_renamed(s, indices) for s in own])
        shared = common([_outer(s, indices) for s in own])
        if shared != Product():
            own = [replace(s, value=_divided(s.value, shared).text()) for s in own]
        read: Expr = element(target, tuple(map(name, indices)))
        if read_once and not _is_reduction(own[0]) and own[0].operator == "=" and len(own) > 1:
            read = total(read, own[0].value)
            own = [replace(own[1], operator="+=!"), *own[2:]]
        if read != element(target, tuple(map(name, indices))) or shared != Product():
            self.stands_for[target] = indices, (Product((read,)) * shared).text()
        return own


@dataclass(frozen=True, slots=True)
class _Reading:
    by: syntax.Statement
    is_boundary: bool


def _statements(groups: Iterable[Group]) -> list[syntax.Statement]:
    return [statement for group in groups for statement in group.statements]


def _reads(tensor: str, statements: Iterable[syntax.Statement]) -> list[_Reading]:
    return [_Reading(s, boundary) for s in statements for boundary in _occurrences(tensor, s.value)]


def _occurrences(tensor: str, expr: Expr) -> list[bool]:
    """For each read of a tensor whether it is through a boundary."""
    found: list[bool] = []
    if isinstance(expr, syntax.Name) and expr.name == tensor:
        found.append(False)
    if isinstance(expr, syntax.Apply) and expr.function.name == tensor:
        found.append(False)
    children = syntax.children(expr)
    if isinstance(expr, syntax.Boundary):
        found += [True] * (isinstance(expr.arguments[0], syntax.Name) and expr.arguments[0].name == tensor)
        children = children[1:]
    return found + [f for child in children for f in _occurrences(tensor, child)]


def _indices(statement: syntax.Statement) -> set[str]:
    return {clause.index.name for clause in statement.clauses if isinstance(clause, syntax.Range)}


def _is_gather(statement: syntax.Statement) -> bool:
    """Whether each element is written by the instances whose index it is."""
    names = [s.name for s in statement.subscripts or () if isinstance(s, syntax.Name)]
    return len(set(names)) == len(statement.subscripts or ()) and set(names) <= _indices(statement)


def _is_reduction(statement: syntax.Statement) -> bool:
    own = {s.name for s in statement.subscripts or () if isinstance(s, syntax.Name)}
    return statement.operator != "=" and bool(_indices(statement) - own)


def _is_copy(statement: syntax.Statement, indices: tuple[str, ...]) -> bool:
    value = statement.value
    same = isinstance(value, syntax.Apply) and value.arguments == tuple(map(name, indices))
    return statement.operator == "=" and same


def _is_small(value: Expr) -> bool:
    product = product_of(value)
    return len(product.over) + len(product.under) <= _FEW and not any(
        isinstance(f, syntax.Binary | syntax.Conditional) for f in (*product.over, *product.under)
    )


def _renamed(statement: syntax.Statement, indices: tuple[str, ...]) -> syntax.Statement:
    """The same with other names of the indices on the left-hand side; as it is where these are taken."""
    own = tuple(s.name for s in statement.subscripts or () if isinstance(s, syntax.Name))
    if own == indices or (_indices(statement) - set(own)) & set(indices):
        return statement
    places: dict[str, Expr] = {old: name(new) for old, new in zip(own, indices, strict=True)}
    new_names = dict(zip(own, map(name, indices), strict=True))
    clauses = tuple(
        replace(c, index=new_names.get(c.index.name, c.index), lower=_at(c.lower, places), upper=_at(c.upper, places))
        for c in statement.clauses
        if isinstance(c, syntax.Range)
    )
    return replace(statement, subscripts=tuple(map(name, indices)), value=_at(statement.value, places), clauses=clauses)


def _at(expr: Expr, places: dict[str, Expr]) -> Expr:
    return at(expr, tuple(places), tuple(places.values()))


def _outer(statement: syntax.Statement, indices: tuple[str, ...]) -> Product:
    """The factors of a statement's value that need none but the given indices; none of a sum."""
    if tuple(s.name for s in statement.subscripts or () if isinstance(s, syntax.Name)) != indices:
        return Product()
    others = _indices(statement) - set(indices)
    product = product_of(statement.value)
    over = tuple(f for f in product.over if not names_in(f) & others)
    under = tuple(f for f in product.under if not names_in(f) & others)
    return Product(over, under, product.negative)


def _merged(statements: list[syntax.Statement]) -> list[syntax.Statement]:
    """Sums over the same indices as one, where each reads something at all of them: one pass in place of several.

    Products whose factors have fewer indices each are contractions, which are faster alone.
    """
    kept: list[syntax.Statement] = []
    for statement in statements:
        same = [
            n
            for n, other in enumerate(kept)
            if other.clauses == statement.clauses and other.subscripts == statement.subscripts
        ]
        if same and all(_is_reduction(s) and _reads_everywhere(s) for s in (statement, kept[same[0]])):
            other = kept[same[0]]
            kept[same[0]] = replace(other, value=normal(total(other.value, statement.value)))
        else:
            kept.append(statement)
    return kept


def _reads_everywhere(statement: syntax.Statement) -> bool:
    indices = _indices(statement)
    return any(indices <= names_in(factor) for factor in product_of(statement.value).over)


def _divided(value: Expr, shared: Product) -> Product:
    return product_of(value).without(shared)
