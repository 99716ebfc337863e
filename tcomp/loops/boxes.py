"""The loops of plans whose statements are boxes, tile in tile, without isl's generator: most plans, and at once.

Of such a plan every bound is known: a loop over index floor(i/s) within a tile floor(i/S), where s divides S, begins at
S/s times the number of the tile.  What comes out is what isl's generator gives, node by node; for a plan with anything
else in it there is no result, and isl is asked.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import lru_cache

import islpy as isl

from tcomp.loops.ir import Block, Execute, For, LoopExpr, LoopNode, Number, Operation, Scope, Variable
from tcomp.model.terms.remembered import remembered
from tcomp.model.terms.unions import sets_of

_MEMBER = re.compile(r"\{ (.*?) \}")
_ROW = re.compile(r"(\w+)\[([^]]*)\] -> \[\((?:(i\d+)|floor\(\((i\d+)\)/(\d+)\)|(-?\d+))\)\](?: : (.*))?")
_LIMITS = re.compile(r"(-?\d+) <= (i\d+) <= (-?\d+)|(i\d+) = (-?\d+)")


@dataclass(frozen=True, slots=True)
class _Row:
    """A band member of a statement: an index divided by ``size``, or a ``number``; ``limits`` say of which instances.

    These are the position of an index, the first and the last value that it may have.
    """

    position: int
    size: int
    number: int | None
    limits: tuple[tuple[int, int, int], ...]

    def runs(self, indices: tuple[_Index, ...]) -> bool:
        """Whether it says where all instances of the statement run."""
        return all(low <= indices[at].first and indices[at].last <= high for at, low, high in self.limits)


class _NoBoxesError(Exception):
    """There is something in the plan of which isl must make loops."""


@dataclass(frozen=True, slots=True)
class _Index:
    """An index from ``first`` to ``last`` and the finest tile that it is known to lie in, if it is.

    The ``tile`` is the index divided by ``size``, one from ``low`` to ``high``.
    """

    first: int
    last: int
    tile: LoopExpr | None = None
    size: int = 0
    low: int = 0
    high: int = 0

    def within(self, size: int, iterator: str) -> tuple[_Index, LoopExpr, tuple[LoopExpr, LoopExpr] | None]:
        """The index in a tile of another size, its number, and the bounds of a loop over these if there are several.

        Raises _NoBoxesError.
        """
        low, high = self.first // size, self.last // size
        if low != high and isinstance(self.tile, Number):
            begin, end = self.tile.value * self.size, (self.tile.value + 1) * self.size - 1
            if begin % size and begin // size != end // size:
                raise _NoBoxesError
            low, high = max(low, begin // size), min(high, end // size)
        if low == high:
            finer = self if 0 < self.size <= size else self._tile(Number(low), size, low, high)
            return finer, Number(low), None
        if self.tile is None or isinstance(self.tile, Number):
            bounds: tuple[LoopExpr, LoopExpr] = Number(low), Number(high + 1)
            return self._tile(Variable(iterator), size, low, high), Variable(iterator), bounds
        if size == self.size:
            return self, self.tile, None
        count = self.size // size
        if self.size % size or low != count * self.low:
            raise _NoBoxesError
        lower = Operation("*", (Number(count), self.tile))
        upper: LoopExpr = Operation("+", (lower, Number(count)))
        if count * (self.high + 1) > high + 1:
            upper = Operation("min", (Number(high + 1), upper))
        return self._tile(Variable(iterator), size, low, high), Variable(iterator), (lower, upper)

    def _tile(self, value: LoopExpr, size: int, low: int, high: int) -> _Index:
        return _Index(self.first, self.last, value, size, low, high)

    @property
    def value(self) -> LoopExpr:
        """What it is at an instance.  Raises _NoBoxesError."""
        if self.first == self.last:
            return Number(self.first)
        if self.tile is None or self.size != 1:
            raise _NoBoxesError
        return self.tile


_Known = Mapping[str, tuple[_Index, ...]]
"""The indices of the statements at a node."""


def loops_of_boxes(tree: isl.Schedule, told: Container[str]) -> LoopNode | None:
    """The loops of a schedule, with the values of the band members around the marks ``told``; None if isl must say."""
    known: dict[str, tuple[_Index, ...]] = {}
    for domain in sets_of(tree.get_domain()):
        box = _box(domain)
        if box is None or domain.get_tuple_name() in known:
            return None
        known[domain.get_tuple_name()] = tuple(_Index(*ends) for ends in box)
    try:
        return _block(_below(tree.get_root().child(0), known, (), told))
    except _NoBoxesError:
        return None


@remembered
def _box(domain: isl.Set) -> tuple[tuple[int, int], ...] | None:
    """The first and last value of each index, if these say all of a domain that is not empty."""
    if domain.dim(isl.dim_type.param) or domain.is_empty() or not domain.is_box():
        return None
    rank = range(domain.dim(isl.dim_type.set))
    return tuple((domain.dim_min_val(d).to_python(), domain.dim_max_val(d).to_python()) for d in rank)


@lru_cache(maxsize=1000)
def _members(schedule: str) -> tuple[dict[str, _Row], ...]:
    """The rows of a partial schedule, statement by statement; none where one is other than an index in tiles."""
    members = []
    for text in _MEMBER.findall(schedule):
        own: dict[str, _Row] = {}
        for piece in text.split("; "):
            row = _ROW.fullmatch(piece)
            if row is None or row.group(1) in own:
                return ()
            name, names, plain, divided, size, number, condition = row.groups()
            positions = {index: position for position, index in enumerate(names.split(", "))}
            limits = []
            for clause in condition.split(" and ") if condition else ():
                limit = _LIMITS.fullmatch(clause)
                if limit is None:
                    return ()
                low, index, high, fixed, value = limit.groups()
                limits.append((positions[index or fixed], int(low or value), int(high or value)))
            position = positions[plain or divided] if number is None else -1
            own[name] = _Row(position, int(size or 1), None if number is None else int(number), tuple(limits))
        members.append(own)
    return tuple(members)


def _below(node: isl.ScheduleNode, known: _Known, around: tuple[LoopExpr, ...], told: Container[str]) -> list[LoopNode]:
    """The loops of a node, one behind the other, with the values of the band members ``around`` it.

    Raises _NoBoxesError.
    """
    kinds = isl.schedule_node_type
    match node.get_type():
        case kinds.band:
            return _band(node, known, around, told)
        case kinds.mark:
            name = node.mark_get_id().get_name()
            inside = _block(_below(node.child(0), known, around, told))
            return [Scope(name, around if name in told else (), inside)]
        case kinds.sequence:
            parts = (node.child(number) for number in range(node.n_children()))
            return [n for part in parts for n in _below(part.child(0), _filtered(part, known), around, told)]
        case kinds.leaf if len(known) == 1:
            ((name, indices),) = known.items()
            return [Execute(name, tuple(index.value for index in indices))]
    raise _NoBoxesError


def _band(node: isl.ScheduleNode, known: _Known, around: tuple[LoopExpr, ...], told: Container[str]) -> list[LoopNode]:
    members = _members(node.band_get_partial_schedule().to_str())
    if len(members) != node.band_n_member():
        raise _NoBoxesError
    loops: list[tuple[str, tuple[LoopExpr, LoopExpr]]] = []
    for rows in members:
        iterator, inside = f"c{len(around)}", {}
        steps: set[tuple[LoopExpr, tuple[LoopExpr, LoopExpr] | None]] = set()
        for name, indices in known.items():
            row = rows.get(name)
            if row is None or not row.runs(indices):
                raise _NoBoxesError
            if row.number is not None:
                steps.add((Number(row.number), None))
                inside[name] = indices
                continue
            at = row.position
            index, value, bounds = indices[at].within(row.size, iterator)
            steps.add((value, bounds))
            inside[name] = (*indices[:at], index, *indices[at + 1 :])
        if len(steps) != 1:
            raise _NoBoxesError
        ((value, bounds),) = steps
        if bounds is not None:
            loops.append((iterator, bounds))
        known, around = inside, (*around, value)
    nodes = _below(node.child(0), known, around, told)
    for iterator, (lower, upper) in reversed(loops):
        nodes = [For(iterator, lower, upper, 1, _block(nodes))]
    return nodes


def _filtered(part: isl.ScheduleNode, known: _Known) -> dict[str, tuple[_Index, ...]]:
    """The statements of a part of a sequence.  Raises _NoBoxesError if not all of their instances run there."""
    inside = {}
    for instances in sets_of(part.filter_get_filter()):
        indices = known.get(name := instances.get_tuple_name())
        if indices is not None:
            whole = instances.plain_is_universe() or _box(instances) == tuple((i.first, i.last) for i in indices)
            if not whole or name in inside:
                raise _NoBoxesError
            inside[name] = indices
    return inside


def _block(nodes: list[LoopNode]) -> LoopNode:
    return nodes[0] if len(nodes) == 1 else Block(tuple(nodes))
