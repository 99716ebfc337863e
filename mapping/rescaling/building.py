"""What programs whose sums come in parts are built of: statements over parts of steps, and the storages between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import islpy as isl

from tcomp.grammar.ranges.ranges import Box
from tcomp.grammar.tree.function import Binary, Constant, Expr, Index, Read, map_children, with_indices
from tcomp.model.accesses import Frame, element_map, prune_reads, reads_of
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.storages import Storage, contiguous_strides
from tcomp.model.terms.unions import storage_of
from tcomp.values.operators import INT64


@dataclass(frozen=True, slots=True, eq=False)
class Instances:
    """The instances of a statement as those of a statement of parts: ``rows``, the part, the other results, the rest.

    ``step`` is counted from 0 in each part.
    """

    statement: ScopStatement
    name: str
    rows: tuple[str, ...]
    step: str
    part: str
    first: int
    steps: int

    @property
    def results(self) -> tuple[str, ...]:
        """The indices of what a part leaves."""
        own = self.statement.indices[: self.statement.coordinates]
        return (*self.rows, self.part, *(i for i in own if i not in self.rows and i != self.step))

    @property
    def indices(self) -> tuple[str, ...]:
        """All indices of the statement of parts."""
        return (*self.results, *(i for i in self.statement.indices if i not in self.results))

    @property
    def whole(self) -> isl.Map:
        """Instance of the statement of parts to that of the statement of the program."""
        names = {index: f"i{d}" for d, index in enumerate(self.indices)}
        own, part = names[self.step], names[self.part]
        into = [
            names[i] if i != self.step else f"{own} + {self.first} + {self.steps}*{part}"
            for i in self.statement.indices
        ]
        text = (
            f"{{ {self.name}[{', '.join(names.values())}] -> {self.statement.name}[{', '.join(into)}] : "
            f"0 <= {own} < {self.steps} }}"
        )
        return isl.Map(text).intersect_range(self.statement.domain)

    def value(self, expr: Expr, instead: Mapping[str, Read]) -> Expr:
        """An expression of the statement in the indices of parts, with other reads of some tensors."""
        if isinstance(expr, Read) and expr.tensor in instead:
            return instead[expr.tensor]
        if isinstance(expr, Index) and expr.name == self.step:
            return with_indices(expr, {self.step: self._place(expr)})
        return map_children(expr, lambda child: self.value(child, instead))

    def _place(self, step: Index) -> Expr:
        span = step.span
        start = Binary("*", Index(self.part, INT64, span), Constant(self.steps, INT64, span), INT64, span)
        start = Binary("+", start, Constant(self.first, INT64, span), INT64, span)
        return Binary("+", start, Index(self.step, INT64, span), INT64, span)


class Builder:
    """A program while some of it is computed in parts of so many ``steps``: its storages, and names that are free.

    ``reach`` has the first step and the number of them; errors are told at the place of the statement ``like``.
    """

    def __init__(self, scop: Scop, like: ScopStatement, reach: tuple[int, int], steps: int) -> None:
        self.scop, self.like, self.steps = scop, like, steps
        self.first, extent = reach
        self.count = -(-extent // steps)
        self.storages = dict(scop.storages)
        self.names = {*scop.by_name}
        self.span = like.value.span
        self.part = "part"
        while any(self.part in s.indices for s in scop.statements):
            self.part += "_"

    def instances(self, statement: ScopStatement, rows: tuple[str, ...], step: str) -> Instances:
        return Instances(statement, self.name(f"{statement.name}r"), rows, step, self.part, self.first, self.steps)

    def statement(
        self,
        name: str,
        kind: str,
        domain: isl.Set,
        indices: tuple[str, ...],
        storage: Storage,
        written: tuple[str, ...],
        value: Expr,
        reduction: str | None,
    ) -> ScopStatement:
        domain = domain.set_tuple_name(name)
        for position, index in enumerate(indices):
            domain = domain.set_dim_name(isl.dim_type.set, position, index)
        frame = Frame(domain, self.scop.sizes, {s.name: s.box for s in self.storages.values()})
        subscripts = self.subscripts(written)
        temporaries = {s.name for s in self.storages.values() if s.role == "temporary"}
        value, reads = prune_reads(value, tuple(reads_of(frame, value)), temporaries)
        write = element_map(frame, storage.name, subscripts)
        return ScopStatement(
            name, kind, domain, indices, storage.name, subscripts, value, reduction, write, reads,
            self.like.origin,
        )  # fmt: skip

    def storage(
        self, name: str, like: str, indices: tuple[str, ...], statement: ScopStatement, step: str | None = None
    ) -> Storage:
        """A temporary over some indices: those of the elements of another storage, the part, and a step of it."""
        old = self.scop.storages[like]
        places = {s.name: d for d, s in enumerate(statement.subscripts) if isinstance(s, Index)}
        known = {self.part: (0, self.count)} | ({} if step is None else {step: (0, self.steps)})
        sides = [known[i] if i in known else (old.box.origin[places[i]], old.box.extent[places[i]]) for i in indices]
        box = Box(tuple(o for o, _ in sides), tuple(e for _, e in sides))
        return self.stored(Storage(self.free(name), old.dtype, box, "temporary", contiguous_strides(box.extent)))

    def stored(self, storage: Storage) -> Storage:
        self.storages[storage.name] = storage
        return storage

    def free(self, name: str) -> str:
        while name in self.storages:
            name += "_"
        return name

    def name(self, name: str) -> str:
        while {name, name + "i", name + "f"} & self.names:
            name += "r"
        self.names |= {name, name + "i", name + "f"}
        return name

    def subscripts(self, indices: tuple[str, ...]) -> tuple[Expr, ...]:
        return tuple(Index(i, INT64, self.span) for i in indices)

    def read(self, storage: str, indices: tuple[str, ...]) -> Read:
        return Read(storage, self.subscripts(indices), self.storages[storage].dtype, self.span)


def is_bijective(whole: isl.Map, domain: isl.Set) -> bool:
    return bool(whole.is_bijective()) and bool(whole.range().is_equal(domain))


def read_of(statement: ScopStatement, storage: str) -> isl.Map:
    """What a statement reads of a storage, which it does once."""
    (read,) = [r for r in statement.reads if storage_of(r) == storage]
    return read


def replaced(expr: Expr, part: Expr, instead: Expr) -> Expr:
    return instead if expr is part else map_children(expr, lambda child: replaced(child, part, instead))
