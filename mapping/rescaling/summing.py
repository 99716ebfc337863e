"""Sums of what products of matrices make, while parts of the steps pass by.

The backward pass of attention computes scores and weights again, and makes of them, for each query ``i`` and key ``j``,
what it sums over keys in one place and over queries in others:

    ds(i,j)  = (dp(i,j) - r(i)) * p(i,j)
    dQ(i,d) += ds(i,j) * K(j,d)         dK(j,d) += ds(i,j) * Q(i,d)         dV(j,e) += p(i,j) * dO(i,e)

In parts of some ``j`` each (``parts.py`` has the names), with s(i,part,j) in place of s(i,j) and so on,

    dQ(i,part,d) = dQ(i,part-1,d)       dQ(i,part,d) += ds(i,part,j) * K(j,d)

and no element for a query and a key is needed beyond its part.  Sums over the same steps go together; those over others
have all of it for themselves, computed once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tcomp.grammar.tree.function import Expr, Index, Read, walk
from tcomp.mapping.plan.operations import recognise_contraction
from tcomp.mapping.rescaling.building import is_bijective
from tcomp.mapping.rescaling.inturn import InTurn, Running, Sum, require
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.unions import storage_of

LEAST_PRODUCTS = 2
"""With fewer products behind a sum, storing what they make costs no more than making it again."""


@dataclass(frozen=True, slots=True)
class Summed:
    """Sums over the same steps, and the temporaries ``made`` for them by products.

    Each dimension of these is one of the rows of the sums, by number, or -1 for the step.  ``reach`` has the first step
    and how many there are.
    """

    sums: tuple[ScopStatement, ...]
    made: Mapping[str, tuple[int, ...]]
    reach: tuple[int, int]

    @property
    def rank(self) -> int:
        """How many rows there are."""
        return len(next(iter(self.made.values()))) - 1

    def read_of(self, statement: ScopStatement) -> Read:
        """What one of the sums reads of what is made for it."""
        return next(e for e in walk(statement.value) if isinstance(e, Read) and e.tensor in self.made)

    @staticmethod
    def names(read: Read) -> list[str]:
        """The indices of such a read."""
        return [s.name for s in read.subscripts if isinstance(s, Index)]


def summed_of(scop: Scop, name: str) -> Summed | None:
    """The sums over the same steps as a statement, itself the first one, that may run in turn; None if it may not."""
    known = {s.name: found for s in scop.statements if (found := _sum_of(scop, s)) is not None}
    if name not in known:
        return None
    own, together = known[name], {name}
    made = dict(own.made)
    while more := [n for n, found in known.items() if n not in together and _goes_with(found, made, own.reach)]:
        together |= {*more}
        made |= {storage: places for n in more for storage, places in known[n].made.items()}
    sums = tuple(s for s in scop.statements if s.name in together)
    products = _products(scop, made)
    contracted = all(recognise_contraction(s) is not None for s in products)
    if sums[0].name != name or len(products) < LEAST_PRODUCTS or not contracted:
        return None
    return Summed(sums, made, own.reach)


def summed(scop: Scop, found: Summed, steps: int) -> Running:
    """The program with such sums in parts of so many steps that run in turn.

    Raises LegalityError if it would not sum what the program does.
    """
    return _Summing(scop, found, steps).done()


def _products(scop: Scop, made: Iterable[str]) -> list[ScopStatement]:
    """The reductions that make some temporaries."""
    return [s for name in made for s in scop.users[name] if s.target == name and s.kind == "update"]


def _goes_with(found: Summed, made: Mapping[str, tuple[int, ...]], reach: tuple[int, int]) -> bool:
    """Whether some of what is made for a sum is made for others, all of that with the same rows and steps."""
    common = found.made.keys() & made.keys()
    return bool(common) and found.reach == reach and all(found.made[n] == made[n] for n in common)


def _sum_of(scop: Scop, statement: ScopStatement) -> Summed | None:
    """A sum over one index of products of elements of a temporary, which has that index and rows of the sum alone."""
    contraction = recognise_contraction(statement)
    if contraction is None or statement.reduction != "+" or not statement.plain or len(contraction.k) != 1:
        return None
    if not statement.domain.is_box() or statement.domain.is_empty():
        return None
    (step,), results = contraction.k, statement.indices[: statement.coordinates]
    for read in (e for e in walk(statement.value) if isinstance(e, Read)):
        names = [s.name for s in read.subscripts if isinstance(s, Index)]
        rows = tuple(i for i in results if i in names)
        if scop.storages[read.tensor].role != "temporary" or read.boundary is not None or len(rows) + 1 != len(names):
            continue
        if len({*names}) == len(read.subscripts) and step in names:
            made = _made(scop, read, {i: n for n, i in enumerate(rows)} | {step: -1})
            others = [e for e in walk(statement.value) if isinstance(e, Read) and e is not read]
            if _products(scop, made) and not any(e.tensor in made for e in others):
                position = statement.indices.index(step)
                first = statement.domain.dim_min_val(position).to_python()
                return Summed((statement,), made, (first, statement.extents[position]))
    return None


def _made(scop: Scop, first: Read, named: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """The temporaries that an element is made of which have all of some rows and steps and nothing else.

    Empty where one of them is not made element by element.
    """
    found: dict[str, tuple[int, ...]] = {}
    waiting: list[tuple[Expr, Mapping[str, int]]] = [(first, named)]
    while waiting:
        expr, own = waiting.pop()
        for read in (e for e in walk(expr) if isinstance(e, Read)):
            names = [s.name for s in read.subscripts if isinstance(s, Index)]
            numbers = tuple(own[n] for n in names if n in own)
            if scop.storages[read.tensor].role != "temporary" or sorted(numbers) != sorted(named.values()):
                continue
            if len(numbers) != len(read.subscripts) or read.boundary is not None:
                return {}
            if read.tensor in found:
                if found[read.tensor] != numbers:
                    return {}
                continue
            found[read.tensor] = numbers
            for writer in (s for s in scop.users[read.tensor] if s.target == read.tensor):
                if not _writes_elements(writer):
                    return {}
                waiting.append((writer.value, dict(zip(writer.indices, numbers, strict=False))))
    writers = (s for name in found for s in scop.users[name] if s.target == name)
    return found if all(_reads_once(s, found) for s in writers) else {}


def _writes_elements(statement: ScopStatement) -> bool:
    return statement.plain and not statement.scatters and not statement.tile_rank and bool(statement.domain.is_box())


def _reads_once(statement: ScopStatement, storages: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether a statement reads each of some storages in one way, and its own not at all."""
    read = [storage_of(r) for r in statement.reads if storage_of(r) in storages]
    return len(read) == len({*read}) and statement.target not in read


class _Summing(InTurn):
    """A program while some of its sums are made to run in turn."""

    def __init__(self, scop: Scop, found: Summed, steps: int) -> None:
        super().__init__(scop, found.sums[0], found.reach, steps)
        self.found = found

    def done(self) -> Running:
        """The program, proved; what nothing reads any more is left out."""
        moved = self.move(self.found.made)
        sums = [self._sum(s) for s in self.found.sums]
        for own, made in moved.values():
            require(is_bijective(own.whole, own.statement.domain), own.statement)
            self.same_reads(own, made, moved)
        for total in sums:
            self.prove_sum(total)
            self.same_reads(total.own, total.update, moved)
        gone = self._unread()
        instead = {name: (made,) if name in gone else (own.statement, made) for name, (own, made) in moved.items()}
        return self.finished(instead, sums, gone - {*instead}, (), {})

    def _sum(self, statement: ScopStatement) -> Sum:
        """A sum in parts."""
        read = self.found.read_of(statement)
        places, names = self.found.made[read.tensor], self.found.names(read)
        rows = tuple(names[places.index(row)] for row in range(len(places) - 1))
        own = self.instances(statement, rows, names[places.index(-1)])
        return self.sum_in_turn(own, own.value(statement.value, self.instead(statement.value)), None)

    def _unread(self) -> set[str]:
        """The statements that make what the sums alone have read."""
        gone: set[str] = set()
        without = {s.name for s in self.found.sums}
        while more := [name for name in self.moved if not self._readers(name) <= without | gone]:
            new = {s.name for name in self.moved if name not in more for s in self.writers(name)}
            if new <= gone:
                return gone
            gone |= new
        return {s.name for name in self.moved for s in self.writers(name)}

    def _readers(self, storage: str) -> set[str]:
        return {s.name for s in self.scop.users[storage] if s.target != storage}
