"""Rows that several statements read are copied into a temporary first, which threads can keep in registers.

``M(n) max= X(n,d)`` and ``E(n,d) = exp(X(n,d) - M(n))`` become ``R(n,d) = X(n,d)`` and readers of ``R``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import islpy as isl

from tcomp.grammar.ranges.ranges import Box
from tcomp.grammar.tree.function import Expr, Index, Read, map_children, walk
from tcomp.mapping.fusion.inlining import prove_the_same
from tcomp.model.accesses import Frame, element_map, reads_of, reads_with_subscripts
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.storages import Storage, contiguous_strides
from tcomp.model.terms.unions import extents, storage_of
from tcomp.values.operators import INT64


def can_keep(scop: Scop, storage: str, readers: Sequence[str]) -> bool:
    """Whether some statements may read a storage from a temporary that is filled ahead of them."""
    known = all(name in scop.by_name for name in readers) and storage in scop.storages
    return known and len({*readers}) == len(readers) > 0 and _kept_domain(scop, storage, readers) is not None


def kept(scop: Scop, storage: str, readers: Sequence[str]) -> Scop:
    """The program in which statements read a storage from a temporary of its own.

    It holds what they read, a box, and is filled directly ahead of the first of them (``copy_of``).  Raises
    LegalityError if one would read anything else than before.
    """
    domain = _kept_domain(scop, storage, readers)
    assert domain is not None
    source, first = scop.storages[storage], scop.by_name[_first(scop, readers)]
    pattern = next(e for e in walk(first.value) if isinstance(e, Read) and e.tensor == storage)
    indices = tuple(s.name for s in pattern.subscripts if isinstance(s, Index))
    low = tuple(domain.dim_min_val(d).to_python() for d in range(len(indices)))
    box = Box(low, extents(domain))
    own = Storage(_fresh(scop, f"{storage}_row"), source.dtype, box, "temporary", contiguous_strides(box.extent))
    boxes = {s.name: s.box for s in (*scop.storages.values(), own)}
    name = copy_of(first.name)
    domain = domain.set_tuple_name(name)
    for position, index in enumerate(indices):
        domain = domain.set_dim_name(isl.dim_type.set, position, index)
    frame = Frame(domain, scop.sizes, boxes)
    subscripts = tuple(Index(i, INT64, pattern.span) for i in indices)
    value = Read(storage, subscripts, source.dtype, pattern.span)
    copy = ScopStatement(
        name, "assign", domain, indices, own.name, subscripts, value, None, element_map(frame, own.name, subscripts),
        tuple(reads_of(frame, value)), first.origin,
    )  # fmt: skip
    statements: list[ScopStatement] = []
    for s in scop.statements:
        if s is first:
            statements.append(copy)
        statements.append(_reading(scop, s, copy, storage, boxes) if s.name in readers else s)
    return Scop({**scop.storages, own.name: own}, tuple(statements), scop.sizes, around=scop.around)


def copy_of(first: str) -> str:
    """The name of the statement that fills what ``first`` and others read."""
    return f"{first}r"


def _first(scop: Scop, readers: Sequence[str]) -> str:
    return next(s.name for s in scop.statements if s.name in readers)


def _kept_domain(scop: Scop, storage: str, readers: Sequence[str]) -> isl.Set | None:
    """What each of some statements reads of a storage, if that is one box, and nothing writes it behind the first."""
    found: isl.Set | None = None
    first = _first(scop, readers)
    begun = False
    for s in scop.statements:
        begun = begun or s.name == first
        if begun and s.target == storage:
            return None
        if s.name not in readers:
            continue
        own = [e for e in walk(s.value) if isinstance(e, Read) and e.tensor == storage]
        maps = [r for r in s.reads if storage_of(r) == storage]
        if not own or not maps or s.tile_rank or not all(_is_plain(e, s) for e in own) or not s.plain:
            return None
        for access in maps:
            elements = access.range().coalesce()
            if found is not None and not elements.is_equal(found):
                return None
            found = elements
    if found is None or not found.is_box() or copy_of(first) in scop.by_name:
        return None
    return found.reset_tuple_id()


def _is_plain(read: Read, statement: ScopStatement) -> bool:
    """Whether the subscripts of a read are indices, each another one."""
    names = [s.name for s in read.subscripts if isinstance(s, Index) and s.name in statement.indices]
    return read.boundary is None and len({*names}) == len(names) == len(read.subscripts) > 0


def _reading(
    scop: Scop, reader: ScopStatement, copy: ScopStatement, storage: str, boxes: dict[str, Box]
) -> ScopStatement:
    value = _renamed(reader.value, storage, copy.target)
    reads = reads_with_subscripts(Frame(reader.domain, scop.sizes, boxes), value, reader.subscripts)
    changed = replace(reader, value=value, reads=reads)
    prove_the_same("rows", copy, changed, reader)
    return changed


def _renamed(expr: Expr, old: str, new: str) -> Expr:
    changed = map_children(expr, lambda child: _renamed(child, old, new))
    return replace(changed, tensor=new) if isinstance(changed, Read) and changed.tensor == old else changed


def _fresh(scop: Scop, name: str) -> str:
    while name in scop.storages:
        name += "_"
    return name
