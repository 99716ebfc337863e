"""An index of which something reads the quotient, as two: the quotient, and what is left of it.

Heads that share keys read these by ``K(b/4,j,d)``.  So no tile of several heads is a product of matrices there, though
they multiply the same keys.  With ``b = 4*g + h`` it is ``K(g,j,d)``, and ``h`` is an index of rows.  What is made of
``b`` gets two dimensions in its place, the caller's tensors where they lie so in memory, and all statements that go
through these elements get two indices.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.grammar.ranges.ranges import Box
from tcomp.grammar.tree.forms import to_form
from tcomp.grammar.tree.function import Binary, Constant, Expr, Index, Read, map_children, walk
from tcomp.mapping.fusion.merges import prove_merged, prove_same_addresses
from tcomp.model.accesses import Frame, box_set, element_map, reads_of
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.storages import Storage
from tcomp.model.terms.unions import map_from_text
from tcomp.values.operators import DType


def quotients_of(scop: Scop, name: str) -> Iterator[tuple[str, int]]:
    """Indices of a statement that it reads the quotient of, with the numbers that they are divided by."""
    for expr in walk(scop.by_name[name].value):
        if isinstance(expr, Binary) and expr.op == "/" and isinstance(expr.lhs, Index):
            number = _number(scop, expr.rhs)
            if number > 1:
                yield expr.lhs.name, number


def can_part(scop: Scop, name: str, index: str, number: int) -> bool:
    """Whether an index of a statement can be two, the second with so many values."""
    known = name in scop.by_name and index in scop.by_name[name].indices
    return known and number > 1 and _Parting.of(scop, name, index, number) is not None


def parted(scop: Scop, name: str, index: str, number: int) -> Scop:
    """The program in which an index of a statement, which ``can_part``, is two.

    Raises LegalityError if an instance would touch anything else.
    """
    found = _Parting.of(scop, name, index, number)
    assert found is not None
    return found.apply(scop)


def _number(scop: Scop, expr: Expr) -> int:
    """What an expression of sizes is; 0 for others."""
    form = to_form(expr, scop.sizes)
    return form.constant if form is not None and not form.terms else 0


Access = tuple[str, tuple[Expr, ...], bool]
"""A storage, the subscripts with which a statement touches it, and whether that may be outside."""


def _accesses(statement: ScopStatement) -> Iterator[Access]:
    yield statement.target, statement.subscripts, False
    for expr in walk(statement.value):
        if isinstance(expr, Read):
            yield expr.tensor, expr.subscripts, expr.boundary is not None


@dataclass(frozen=True, slots=True)
class _Parting:
    """All that changes: the index of each statement, and the dimension of each storage, that becomes two."""

    number: int
    indices: Mapping[str, str]
    dimensions: Mapping[str, int]

    @classmethod
    def of(cls, scop: Scop, name: str, index: str, number: int) -> _Parting | None:
        """What changes with an index of a statement; None where something would have to stay as it is."""
        indices, dimensions = dict[str, str](), dict[str, int]()
        waiting = [(name, index)]
        while waiting:
            user, own = waiting.pop()
            if user in indices:
                if indices[user] != own:
                    return None
                continue
            statement = scop.by_name[user]
            if not _has_whole_parts(statement, own, number):
                return None
            indices[user] = own
            for storage, subscripts, _ in _accesses(statement):
                found = [d for d, s in enumerate(subscripts) if _is(s, own)]
                if not found or scop.storages[storage].role != "temporary":
                    continue
                others = _indices_at(scop, storage, found[0])
                if others is None or dimensions.setdefault(storage, found[0]) != found[0] or len(found) > 1:
                    return None
                waiting += others
        for storage in dict.fromkeys(t for user in indices for t, _, _ in _accesses(scop.by_name[user])):
            if storage not in dimensions:
                for d in range(len(scop.storages[storage].strides)):
                    others = _indices_at(scop, storage, d)
                    if others and all(indices.get(user) == own for user, own in others):
                        dimensions.setdefault(storage, d)
        if any(not _is_whole(scop.storages[storage], d, number) for storage, d in dimensions.items()):
            return None
        return cls(number, indices, dimensions)

    def apply(self, scop: Scop) -> Scop:
        """The program with two indices.  Raises LegalityError if an instance would touch anything else."""
        storages = {key: self._storage(s) for key, s in scop.storages.items()}
        elements = {
            key: _numbering(key, len(scop.storages[key].strides), d, self.number).intersect_domain(
                box_set(key, scop.storages[key].box)
            )
            for key, d in self.dimensions.items()
        }
        for key, correspond in elements.items():
            prove_same_addresses(scop.storages[key], storages[key], correspond)
        boxes = {s.name: s.box for s in storages.values()}
        statements = []
        for statement in scop.statements:
            if statement.name in self.indices:
                place = statement.indices.index(self.indices[statement.name])
                instances = _numbering(statement.name, len(statement.indices), place, self.number)
                instances = instances.intersect_domain(statement.domain)
                changed = self._statement(scop, statement, boxes, instances)
                prove_merged(statement, changed, instances, elements)
                statement = changed
            statements.append(statement)
        return Scop(storages, tuple(statements), scop.sizes, scop.warnings, scop.around)

    def _storage(self, storage: Storage) -> Storage:
        d = self.dimensions.get(storage.name)
        if d is None:
            return storage
        origin, extent, strides = storage.box.origin, storage.box.extent, storage.strides
        box = Box((*origin[:d], 0, *origin[d:]), (*extent[:d], extent[d] // self.number, self.number, *extent[d + 1 :]))
        far = (*strides[:d], strides[d] * self.number, *strides[d:])
        return replace(storage, box=box, strides=far, called=storage.argument)

    def _statement(
        self, scop: Scop, statement: ScopStatement, boxes: Mapping[str, Box], instances: isl.Map
    ) -> ScopStatement:
        own, span = self.indices[statement.name], statement.value.span
        names = []
        for end in ("group", "rest"):
            name = f"{own}_{end}"
            while name in statement.indices:
                name += "_"
            names.append(name)

        def pair(dtype: DType) -> tuple[Index, Index]:
            return Index(names[0], dtype, span), Index(names[1], dtype, span)

        def whole(dtype: DType) -> Expr:
            group, rest = pair(dtype)
            return Binary("+", Binary("*", group, Constant(self.number, dtype, span), dtype, span), rest, dtype, span)

        def in_two(expr: Expr) -> Expr:
            quotient = isinstance(expr, Binary) and expr.op in ("/", "%") and _is(expr.lhs, own)
            if isinstance(expr, Binary) and quotient and _number(scop, expr.rhs) == self.number:
                return pair(expr.dtype)[expr.op == "%"]
            if _is(expr, own):
                return whole(expr.dtype)
            if isinstance(expr, Read):
                changed = map_children(replace(expr, subscripts=()), in_two)
                assert isinstance(changed, Read)
                return replace(changed, subscripts=subscripts(expr.tensor, expr.subscripts))
            return map_children(expr, in_two)

        def subscripts(storage: str, old: tuple[Expr, ...]) -> tuple[Expr, ...]:
            d = self.dimensions.get(storage)
            return tuple(new for n, s in enumerate(old) for new in (pair(s.dtype) if n == d else (in_two(s),)))

        place = statement.indices.index(own)
        indices = (*statement.indices[:place], *names, *statement.indices[place + 1 :])
        domain = statement.domain.apply(instances).set_tuple_name(statement.name)
        for position, index in enumerate(indices):
            domain = domain.set_dim_name(isl.dim_type.set, position, index)
        frame, value = Frame(domain, scop.sizes, boxes), in_two(statement.value)
        written = subscripts(statement.target, statement.subscripts)
        return replace(
            statement,
            domain=domain,
            indices=indices,
            subscripts=written,
            value=value,
            write=element_map(frame, statement.target, written),
            reads=tuple(reads_of(frame, value)),
            renumbered=tuple((i, in_two(e)) for i, e in statement.reported),
        )


def _is(expr: Expr, index: str) -> bool:
    return isinstance(expr, Index) and expr.name == index


def _indices_at(scop: Scop, storage: str, d: int) -> list[tuple[str, str]] | None:
    """The statements that touch a storage, with the index that each has at a dimension; None where one has another."""
    found: list[tuple[str, str]] = []
    for user in scop.users[storage]:
        for _, subscripts, outside in (a for a in _accesses(user) if a[0] == storage):
            own = subscripts[d]
            if not isinstance(own, Index) or outside:
                return None
            found.append((user.name, own.name))
    return found


def _has_whole_parts(statement: ScopStatement, index: str, number: int) -> bool:
    """Whether an index begins with 0 and takes a multiple of so many values, whatever the others are."""
    place = statement.indices.index(index)
    first = statement.domain.dim_min_val(place).to_python()
    simple = statement.domain.is_box() and statement.tile_rank == 0 and not statement.scatters
    return simple and first == 0 and statement.extents[place] % number == 0


def _is_whole(storage: Storage, d: int, number: int) -> bool:
    return storage.opened is None and storage.box.origin[d] == 0 and storage.box.extent[d] % number == 0


def _numbering(name: str, rank: int, place: int, number: int) -> isl.Map:
    """Points to points with two coordinates in place of one: its quotient and the rest."""
    names = [f"i{d}" for d in range(rank)]
    new = [*names[:place], f"floor({names[place]}/{number})", f"{names[place]} mod {number}", *names[place + 1 :]]
    return map_from_text(f"{{ {name}[{', '.join(names)}] -> {name}[{', '.join(new)}] }}")
