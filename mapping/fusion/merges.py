"""Two indices of a program as one: all that changes with them, and the proof that nothing else does.

Where neighbouring dimensions of a tensor lie in memory like one, the tensor is declared anew with that one dimension,
and ``A(a,b,k)`` is ``A(a * 56 + b, k)`` there.  A statement in which the two indices occur only so, and take all their
values, gets one index in their place; others may go on with the sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.errors import LegalityError
from tcomp.grammar.ranges.ranges import Box
from tcomp.grammar.tree.forms import interval, to_form
from tcomp.grammar.tree.function import (
    Binary,
    Constant,
    Expr,
    Index,
    Read,
    children,
    depends_on_data,
    map_children,
    walk,
    with_indices,
)
from tcomp.mapping.fusion.reading import is_askew
from tcomp.model.accesses import Frame, box_set, element_map, reads_of
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.storages import OpenBox, Storage
from tcomp.model.terms.unions import map_from_text, storage_of
from tcomp.values.operators import INT64

Pair = tuple[str, str]
"""Two indices of a statement, of which the second moves faster."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Everything that has to change with two indices, the ``seed``, of one statement.

    ``pairs`` are the indices of each statement that become one, ``dimensions`` those of each storage that are merged
    with the one behind them.
    """

    seed: Pair
    pairs: Mapping[str, frozenset[Pair]]
    dimensions: Mapping[str, frozenset[int]]

    @classmethod
    def of(cls, scop: Scop, name: str, seed: Pair) -> Merge | None:
        """The merge that begins with two indices of a statement; None where they cannot be one."""
        pairs: dict[str, set[Pair]] = {name: {seed}}
        dimensions: dict[str, set[int]] = {}
        waiting = [(scop.by_name[name], seed)]
        while waiting:
            statement, pair = waiting.pop()
            for storage, d in _dimensions(scop, statement, pair) or {("", 0)}:
                if not storage or not _lies_as_one(scop.storages[storage], d):
                    return None
                if d in dimensions.setdefault(storage, set()):
                    continue
                dimensions[storage].add(d)
                for user, access in _accesses(scop, storage):
                    if any(map(depends_on_data, access[0][d : d + 2])):
                        return None
                    other = _names(access[0][d : d + 2])
                    if other is not None and _dimensions(scop, user, other):
                        if other not in pairs.setdefault(user.name, set()):
                            pairs[user.name].add(other)
                            waiting.append((user, other))
                    elif not _may_stay(scop, user, storage, d, access):
                        return None
        if any(_overlap([i for p in found for i in p]) for found in pairs.values()):
            return None
        if any(_overlap([e for d in found for e in (d, d + 1)]) for found in dimensions.values()):
            return None
        return cls(
            seed,
            {s: frozenset(found) for s, found in pairs.items() if found},
            {s: frozenset(found) for s, found in dimensions.items()},
        )

    def apply(self, scop: Scop) -> Scop:
        """The program with merged indices.  Raises LegalityError if an instance would touch anything else."""
        storages = {key: self._storage(s) for key, s in scop.storages.items()}
        elements = {key: self._elements(scop.storages[key]) for key in self.dimensions}
        for key, correspond in elements.items():
            prove_same_addresses(scop.storages[key], storages[key], correspond)
        boxes = {s.name: s.box for s in storages.values()}
        touched = {s.name for storage in self.dimensions for s in scop.users[storage]}
        statements = []
        for statement in scop.statements:
            if statement.name in touched:
                changed = self._statement(scop, statement, boxes)
                prove_merged(statement, changed, self._instances(statement), elements)
                statement = changed
            statements.append(statement)
        return Scop(storages, tuple(statements), scop.sizes, around=scop.around)

    def _elements(self, storage: Storage) -> isl.Map:
        """Each element of a storage as it was, to what it is called now."""
        pairs = {d: (d + 1, storage.box.extent[d + 1]) for d in self.dimensions[storage.name]}
        numbering = _numbering(storage.name, len(storage.strides), pairs)
        return numbering.intersect_domain(box_set(storage.name, storage.box))

    def _instances(self, statement: ScopStatement) -> isl.Map:
        """Each instance of a statement as it was, to what it is now."""
        place = statement.indices.index
        pairs = {place(o): (place(i), _extent(statement, i)) for o, i in self.pairs.get(statement.name, ())}
        return _numbering(statement.name, len(statement.indices), pairs).intersect_domain(statement.domain)

    def _names(self, statement: ScopStatement) -> dict[Pair, str]:
        """The indices of a statement that stand for two."""
        found: dict[Pair, str] = {}
        for pair in sorted(self.pairs.get(statement.name, ())):
            name = "_".join(pair)
            while name in statement.indices or name in found.values():
                name += "_"
            found[pair] = name
        return found

    def _storage(self, storage: Storage) -> Storage:
        if storage.name not in self.dimensions:
            return storage
        origin, extent, strides = list(storage.box.origin), list(storage.box.extent), list(storage.strides)
        for d in sorted(self.dimensions[storage.name], reverse=True):
            step = strides[d] if extent[d + 1] == 1 else strides[d + 1]
            extent[d : d + 2], strides[d : d + 2] = [extent[d] * extent[d + 1]], [step]
            del origin[d]
        opened = storage.opened
        if opened is not None:
            left = [e for d, e in enumerate(opened.extents) if d - 1 not in self.dimensions[storage.name]]
            elements = opened.elements.apply(self._elements(storage)).set_tuple_name(storage.name)
            opened = OpenBox(tuple(left), elements)
        box = Box(tuple(origin), tuple(extent))
        return replace(storage, box=box, strides=tuple(strides), called=storage.argument, opened=opened)

    def _statement(self, scop: Scop, statement: ScopStatement, boxes: Mapping[str, Box]) -> ScopStatement:
        renumbered = statement.reported
        changed = replace(
            statement,
            subscripts=self._subscripts(scop, statement, statement.target, statement.subscripts),
            value=self._value(scop, statement, statement.value),
        )
        for pair, name in self._names(statement).items():
            inner = _extent(statement, pair[1])
            changed = _with_one_index(changed, pair, name)
            whole = Index(name, INT64, statement.value.span)
            places = {pair[0]: _binary("/", whole, inner), pair[1]: _binary("%", whole, inner)}
            renumbered = tuple((i, with_indices(value, places)) for i, value in renumbered)
        frame = Frame(changed.domain, scop.sizes, boxes)
        return replace(
            changed,
            write=element_map(frame, statement.target, changed.subscripts),
            reads=tuple(reads_of(frame, changed.value)),
            renumbered=renumbered if self.pairs.get(statement.name) else statement.renumbered,
        )

    def _value(self, scop: Scop, statement: ScopStatement, expr: Expr) -> Expr:
        changed = map_children(expr, lambda child: self._value(scop, statement, child))
        if not isinstance(changed, Read):
            return changed
        return replace(changed, subscripts=self._subscripts(scop, statement, changed.tensor, changed.subscripts))

    def _subscripts(
        self, scop: Scop, statement: ScopStatement, storage: str, subscripts: tuple[Expr, ...]
    ) -> tuple[Expr, ...]:
        extent, names = scop.storages[storage].box.extent, self._names(statement)
        found = list(_without_zeros(statement, subscripts))
        for d in sorted(self.dimensions.get(storage, ()), reverse=True):
            pair = _names(found[d : d + 2])
            if pair is not None and pair in names:
                found[d : d + 2] = [Index(names[pair], found[d].dtype, found[d].span)]
            else:
                far = _binary("*", found[d], extent[d + 1])
                found[d : d + 2] = [Binary("+", far, found[d + 1], INT64, far.span)]
        return tuple(found)


Access = tuple[tuple[Expr, ...], Read | None]
"""Subscripts, and the read that has them, if it is one."""


def _accesses(scop: Scop, storage: str) -> Iterator[tuple[ScopStatement, Access]]:
    """The statements that touch a storage, with each way in which they do."""
    for user in scop.users[storage]:
        if user.target == storage:
            yield user, (user.subscripts, None)
        for expr in walk(user.value):
            if isinstance(expr, Read) and expr.tensor == storage:
                yield user, (_without_zeros(user, expr.subscripts), expr)


def _without_zeros(statement: ScopStatement, subscripts: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Subscripts without indices that are always 0: ``h + kh`` in a convolution by one pixel."""

    def is_zero(expr: Expr) -> bool:
        if not isinstance(expr, Index) or expr.name not in statement.indices:
            return False
        return _bounds(statement, statement.indices.index(expr.name)) == (0, 0)

    def without(expr: Expr) -> Expr:
        match expr:
            case Binary(op="+", lhs=lhs, rhs=rhs):
                return lhs if is_zero(rhs) else rhs if is_zero(lhs) else expr
            case _:
                return expr

    return tuple(map(without, subscripts))


def _names(subscripts: Sequence[Expr]) -> Pair | None:
    """The indices that two subscripts are, if they are different ones."""
    match subscripts:
        case (Index(name=outer), Index(name=inner)) if outer != inner:
            return outer, inner
        case _:
            return None


def _dimensions(scop: Scop, statement: ScopStatement, pair: Pair) -> frozenset[tuple[str, int]] | None:
    """The storages that two indices subscript together, with the dimension of the first.

    None if they occur in any other way, or do not take all their values together.
    """
    if statement.tile_rank or (statement.kind == "update" and not statement.plain):
        return None
    found: set[tuple[str, int]] = set()
    if not _collect(statement, statement.target, statement.subscripts, pair, found):
        return None
    if not _collect_all(statement, statement.value, pair, found):
        return None
    return frozenset(found) if _take_all(scop, statement, pair, found) else None


def _collect(
    statement: ScopStatement, storage: str, subscripts: tuple[Expr, ...], pair: Pair, found: set[tuple[str, int]]
) -> bool:
    subscripts, d = _without_zeros(statement, subscripts), 0
    while d < len(subscripts):
        if _names(subscripts[d : d + 2]) == pair:
            found.add((storage, d))
            d += 1
        elif not _collect_all(statement, subscripts[d], pair, found):
            return False
        d += 1
    return True


def _collect_all(statement: ScopStatement, expr: Expr, pair: Pair, found: set[tuple[str, int]]) -> bool:
    if isinstance(expr, Index):
        return expr.name not in pair
    if isinstance(expr, Read):
        outside = None if expr.boundary is None else expr.boundary.value
        return _collect(statement, expr.tensor, expr.subscripts, pair, found) and (
            outside is None or _collect_all(statement, outside, pair, found)
        )
    return all(_collect_all(statement, child, pair, found) for child in children(expr))


def _take_all(scop: Scop, statement: ScopStatement, pair: Pair, found: set[tuple[str, int]]) -> bool:
    """Whether the inner index runs over all of its dimensions and the outer one within its own, whatever others do."""
    outer, inner = (statement.indices.index(i) for i in pair)
    boxes = [(scop.storages[storage].box, d) for storage, d in found]
    first, last = _bounds(statement, inner)
    if any(box.origin[d : d + 2] != (0, 0) or first != 0 or last != box.extent[d + 1] - 1 for box, d in boxes):
        return False
    low, high = _bounds(statement, outer)
    if any(low < 0 or high >= box.extent[d] for box, d in boxes):
        return False
    domain = statement.domain
    if domain.is_box():
        return True
    others = domain
    for position, (least, most) in ((outer, (low, high)), (inner, (first, last))):
        others = others.project_out(isl.dim_type.set, position, 1).insert_dims(isl.dim_type.set, position, 1)
        others = others.lower_bound_val(isl.dim_type.set, position, isl.Val(least))
        others = others.upper_bound_val(isl.dim_type.set, position, isl.Val(most))
    return bool(others.reset_tuple_id().is_equal(domain.reset_tuple_id()))


def _bounds(statement: ScopStatement, position: int) -> tuple[int, int]:
    low = statement.domain.dim_min_val(position).to_python()
    return low, low + statement.extents[position] - 1


def _extent(statement: ScopStatement, index: str) -> int:
    return statement.extents[statement.indices.index(index)]


def _lies_as_one(storage: Storage, d: int) -> bool:
    """Whether a dimension and the one behind it are in memory as one dimension is, whatever size is open."""
    if storage.opened is not None and any(e is not None for e in storage.opened.extents[d:]):
        return False
    (far, near), (outer, inner) = storage.strides[d : d + 2], storage.box.extent[d : d + 2]
    return outer == 1 or inner == 1 or far == inner * near


def _may_stay(scop: Scop, statement: ScopStatement, storage: str, d: int, access: Access) -> bool:
    """Whether a statement may go on with two subscripts added up.

    That is so for what an assignment reads of the caller's tensors: nobody asks there which subscript moves.  Updates
    choose their columns by that, and what is read of temporaries says which statements share a loop.  A copy into a
    temporary that cannot merge itself may stay, too: it is made for who reads it.  So may a sum that gathers elements
    of a temporary beyond its borders: it has no columns to choose, and shares no loop with who writes them.
    """
    subscripts, read = access
    role = scop.storages[storage].role
    copies = role == "temporary" and read is None and isinstance(statement.value, Read)
    known = copies or (role == "input" and read is not None and read.boundary is None)
    if role == "temporary" and read is not None and _is_gather(statement) and is_askew(read):
        if read.boundary is not None:
            return _stays_inside(scop, statement, storage, subscripts, d)
        whole = box_set(storage, scop.storages[storage].box)
        return all(bool(r.range().is_subset(whole)) for r in statement.reads if storage_of(r) == storage)
    return statement.kind == "assign" and known and _stays_inside(scop, statement, storage, subscripts, d)


def _is_gather(statement: ScopStatement) -> bool:
    """Whether a statement does nothing but reduce elements, as they are read."""
    return statement.kind == "update" and statement.plain and isinstance(statement.value, Read)


def _stays_inside(scop: Scop, statement: ScopStatement, storage: str, subscripts: tuple[Expr, ...], d: int) -> bool:
    """Whether two subscripts are sums of indices that name nothing outside of their dimensions."""
    hull = {i: _bounds(statement, p) for p, i in enumerate(statement.indices)}
    box = scop.storages[storage].box
    for dimension in (d, d + 1):
        form = to_form(subscripts[dimension], scop.sizes)
        if form is None or any(term not in hull for term, _ in form.terms):
            return False
        low, high = interval(form, hull)
        if box.origin[dimension] != 0 or low < 0 or high >= box.extent[dimension]:
            return False
    return True


def _overlap(names: Sequence[object]) -> bool:
    return len({*names}) < len(names)


def _binary(op: str, expr: Expr, number: int) -> Binary:
    return Binary(op, expr, Constant(number, INT64, expr.span), INT64, expr.span)


def _with_one_index(statement: ScopStatement, pair: Pair, name: str) -> ScopStatement:
    """The statement with its domain over one index, where the outer one was, instead of two."""
    outer, inner = (statement.indices.index(i) for i in pair)
    extent = _extent(statement, pair[1])
    low, high = _bounds(statement, outer)
    domain = statement.domain.project_out(isl.dim_type.set, outer, 1).insert_dims(isl.dim_type.set, outer, 1)
    domain = domain.lower_bound_val(isl.dim_type.set, outer, isl.Val(low * extent))
    domain = domain.upper_bound_val(isl.dim_type.set, outer, isl.Val((high + 1) * extent - 1))
    domain = domain.project_out(isl.dim_type.set, inner, 1).set_tuple_name(statement.name)
    indices = tuple(name if i == pair[0] else i for i in statement.indices if i != pair[1])
    for position, index in enumerate(indices):
        domain = domain.set_dim_name(isl.dim_type.set, position, index)
    return replace(statement, domain=domain, indices=indices)


def prove_merged(
    before: ScopStatement, after: ScopStatement, instances: isl.Map, elements: Mapping[str, isl.Map]
) -> None:
    """Raise LegalityError unless a statement touches in each instance the memory that it did before.

    ``instances`` and, for each storage that changes, ``elements`` say which one after stands for which before.
    """
    same = bool(instances.is_injective()) and bool(instances.range().is_equal(after.domain))
    for was, now in zip((before.write, *before.reads), (after.write, *after.reads), strict=True):
        moved = was.apply_domain(instances)
        if storage_of(was) in elements:
            moved = moved.apply_range(elements[storage_of(was)])
        same = same and bool(moved.is_equal(now))
    if not same:
        raise LegalityError(f"pass 'merge' lets {before.name} touch other elements than before")


def prove_same_addresses(before: Storage, after: Storage, elements: isl.Map) -> None:
    """Raise LegalityError unless each element has its own place in memory, and the one that it had."""
    whole = box_set(after.name, after.box)
    address = elements.apply_range(_address(after))
    if not (elements.is_injective() and elements.range().is_equal(whole) and address.is_equal(_address(before))):
        raise LegalityError(f"pass 'merge' puts elements of {before.name} elsewhere in memory")


def _address(storage: Storage) -> isl.Map:
    """Element to how far it lies from the first one."""
    names = [f"i{d}" for d in range(len(storage.strides))]
    places = zip(storage.strides, names, storage.box.origin, strict=True)
    far = " + ".join(f"{stride} * ({name} - ({origin}))" for stride, name, origin in places) or "0"
    text = f"{{ {storage.name}[{', '.join(names)}] -> [{far}] }}"
    return isl.Map(text).intersect_domain(box_set(storage.name, storage.box))


def _numbering(name: str, rank: int, pairs: Mapping[int, tuple[int, int]]) -> isl.Map:
    """Points to points in which some coordinates are one with another, which goes in steps of 1 within so many."""
    names = [f"i{d}" for d in range(rank)]
    gone = {inner for inner, _ in pairs.values()}
    new = [
        f"{n} * {i} + i{pairs[d][0]}" if d in pairs else i
        for d, (i, n) in enumerate((i, pairs[d][1] if d in pairs else 1) for d, i in enumerate(names))
        if d not in gone
    ]
    return map_from_text(f"{{ {name}[{', '.join(names)}] -> {name}[{', '.join(new)}] }}")
