"""A reduction whose result others read from memory accumulates in a storage of its own, and stores it when done.

``S(i,j) += f(i,j,k)`` into a temporary that a later kernel reads becomes ``own(i,j) += f(i,j,k)`` and ``S(i,j) =
own(i,j)``: what the model does for outputs (``tcomp/model/build.py``) and splitting for parts (``splitting.py``).  A
tile may then keep the sums in registers, whoever reads them later.
"""

from __future__ import annotations

from dataclasses import replace

import islpy as isl

from tcomp.grammar.tree.function import Read
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.storages import Storage, contiguous_strides


def can_accumulate_apart(scop: Scop, name: str) -> bool:
    """Whether an update may have a storage of its own: it alone writes its target, after what starts every element."""
    statement = scop.by_name[name]
    writers = [s for s in scop.users[statement.target] if s.target == statement.target]
    return (
        statement.kind == "update"
        and statement.plain
        and statement.tile_rank == 0
        and scop.storages[statement.target].role == "temporary"
        and [s.kind for s in writers] == ["init", "update"]
        and all(s.plain and s.tile_rank == 0 for s in writers)
        and statement.write.range().is_subset(writers[0].write.range())
        and finish_of(name) not in scop.by_name
    )


def finish_of(name: str) -> str:
    """The name of the statement that stores what an update has accumulated."""
    return f"{name}f"


def accumulated_apart(scop: Scop, name: str) -> Scop:
    """The program with an update that accumulates in a storage of its own, from which all elements are then stored."""
    update = scop.by_name[name]
    target = scop.storages[update.target]
    own = replace(target, name=_fresh(scop, target.name), strides=contiguous_strides(target.box.extent))
    statements: list[ScopStatement] = []
    for s in scop.statements:
        statements.append(_into(s, own) if s.target == target.name else s)
        if s.name == name:
            start = next(o for o in statements if o.kind == "init" and o.target == own.name)
            statements.append(_finish(finish_of(name), start, target))
    return Scop({**scop.storages, own.name: own}, tuple(statements), scop.sizes, around=scop.around)


def _fresh(scop: Scop, target: str) -> str:
    name = f"{target}_apart"
    while name in scop.storages:
        name += "_"
    return name


def _into(statement: ScopStatement, own: Storage) -> ScopStatement:
    write = statement.write.set_tuple_name(isl.dim_type.out, own.name)
    return replace(statement, target=own.name, write=write)


def _finish(name: str, start: ScopStatement, target: Storage) -> ScopStatement:
    """What stores each element that ``start`` starts."""
    domain = start.domain.set_tuple_name(name)
    read = start.write.set_tuple_name(isl.dim_type.in_, name)
    write = read.set_tuple_name(isl.dim_type.out, target.name)
    value = Read(start.target, start.subscripts, target.dtype, start.value.span)
    return replace(
        start, name=name, kind="finish", domain=domain, target=target.name, value=value, write=write, reads=(read,)
    )
