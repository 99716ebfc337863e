"""Adjoints of sums over ranges whose ends data give: sums over ranges again, or over entries that know their row.

Of ``Y(i) +=! V(e) * X(col(e)) where e in row(i):row(i+1)`` each entry ``e`` adds to two adjoints.  As pairs of a row
and an entry, most of which are not in each other, that would be all rows times all entries.  Where the adjoint has
``i`` for an index, or neither, the sum runs over the range as it stands; where it has ``e``, or what ``e`` reads, there
is one ``i`` at most, which is written down first: ``i_of_e``, or -1 where no row has the entry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from tcomp.derivatives.gathering.gathers import Contribution
from tcomp.derivatives.text import ZERO, Expr, element, name, names_in, substitute, to_syntax
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.dataranges import are_rows
from tcomp.grammar.tree.function import Index, Within, walk

NOWHERE = syntax.Unary("-", syntax.Number("1"))
"""The row of an entry that is in none."""


@dataclass(frozen=True, slots=True)
class Owner:
    """What ``statements`` write down of ``entry``: the ``row`` that it is in, in the tensor ``known``."""

    row: str
    entry: str
    known: str
    statements: tuple[syntax.Statement, ...]


def range_clauses(ranges: Sequence[Within], renamed: Mapping[str, str], left: Set[str]) -> list[syntax.Range] | None:
    """Ranges as clauses of a statement that has some indices on the left; None where one of those has such a range."""
    found = []
    for within in ranges:
        if not isinstance(within.index, Index) or within.index.name in left:
            return None
        lower, upper = (to_syntax(bound, renamed) for bound in (within.lower, within.upper))
        found.append(syntax.Range(name(within.index.name), lower, upper))
    return found


def in_ranges(
    part: Contribution,
    ranges: Sequence[Within],
    renamed: Mapping[str, str],
    owner_of: Callable[[Within, str, str], Owner],
) -> Contribution | None:
    """A contribution, made as if ranges had all values, cut to them; None where it has to ask in each instance.

    ``owner_of`` gives what knows the row of an entry, from a range and the names of the two.
    """
    for within in ranges:
        ends = [e.name for bound in (within.lower, within.upper) for e in walk(bound) if isinstance(e, Index)]
        index, own = within.index, part.kept & {r.index.name for r in part.ranges}
        if not isinstance(index, Index) or not {index.name, *ends} <= own:
            return None
        left = set().union(*map(names_in, part.subscripts))
        clauses = range_clauses([within], renamed, left)
        if clauses is not None:
            part = replace(part, ranges=(*part.ranges, *clauses))
        elif are_rows(within, {}) and not left & set(ends):
            owner = owner_of(within, index.name, ends[0])
            known: Expr = element(owner.known, (name(owner.entry),))
            value = substitute(part.value, {owner.row: known})
            is_none = syntax.Binary("<", known, syntax.Number("0"))
            kept = tuple(r for r in part.ranges if r.index.name != owner.row)
            part = replace(part, value=syntax.Conditional(is_none, ZERO, value), ranges=kept)
        else:
            return None
    return part


def written_down(
    within: Within, renamed: Mapping[str, str], ranges: dict[str, syntax.Range], known: str, step: str
) -> tuple[syntax.Statement, ...]:
    """What writes the row of each entry in ``known``; ``ranges`` are those of the two indices."""
    entry, row = (next(iter(ranges.values())), next(reversed(ranges.values())))
    lower, upper = (to_syntax(bound, renamed) for bound in (within.lower, within.upper))
    everywhere = syntax.Statement(name(known), (entry.index,), "=", NOWHERE, None, (entry,))
    length = syntax.Range(name(step), syntax.Number("0"), syntax.Binary("-", upper, lower))
    at, most = syntax.Binary("+", lower, name(step)), replace(entry, index=name(step))
    update = syntax.Statement(name(known), (at,), "max=", row.index, None, (length, most, row))
    return everywhere, update
