"""The program that the tiles of a schedule tree run, found from the tree alone.

Fusion rewrites the program so that every instance belongs to one tile (``tiles/expand.py``).  Who has only the tree, as
the reader of a plan's text does, finds the same program again: a statement with more dimensions than it has indices
carries the tile in front, and the band above a group's mark says to which tile any other instance belongs.
"""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from tcomp.errors import PlanError
from tcomp.mapping.memory.places import places
from tcomp.mapping.tiles.expand import Placement, placed
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.unions import sets_of


def replay(program: Scop, tree: isl.Schedule) -> Scop:
    """The program as the tiles run it.  Raises PlanError if the tree holds what the program does not have."""
    domains = _domains(tree)
    unknown = sorted(set(domains) - set(program.by_name))
    if unknown:
        raise PlanError(f"the tree runs {', '.join(unknown)}, which the program does not have")
    tiles = {s: prefix for p in places(tree) if p.mark.startswith("group") for s, prefix in p.prefixes.items()}
    running = [s for s in program.statements if s.name in domains]
    expanded = {s.name for s in running if domains[s.name].dim(isl.dim_type.set) != len(s.indices)}
    copies = {s.target for s in running if s.name in expanded}
    statements = []
    for s in running:
        if s.name not in tiles:
            raise PlanError(f"the tree has {s.name} below no mark that is named group and a number")
        placement = _placement(s, domains[s.name], tiles[s.name], expanded)
        statements.append(placed(program, s, placement, copies))
    return Scop(program.storages, tuple(statements), program.sizes, around=program.around)


def _domains(tree: isl.Schedule) -> Mapping[str, isl.Set]:
    found = sets_of(tree.get_domain())
    names = [s.get_tuple_name() for s in found]
    if None in names or len(set(names)) < len(names):
        raise PlanError("the tree runs something without a name, or two things of one name")
    return dict(zip(names, found, strict=True))


def _placement(statement: ScopStatement, domain: isl.Set, tile_of: isl.Map, expanded: set[str]) -> Placement:
    name, rank = statement.name, domain.dim(isl.dim_type.set)
    members = tile_of.dim(isl.dim_type.out)
    if name not in expanded:
        extra = domain.subtract(statement.domain)
        if not extra.is_empty():
            raise PlanError(f"the tree runs {extra.sample_point()}, which the program does not have")
        return Placement(domain, tile_of, 0)
    if rank != members + len(statement.indices):
        wanted = f"{len(statement.indices)}, or {members} more for a tile in front"
        raise PlanError(f"the tree gives {name} {rank} dimensions, but it has {wanted}")
    indices = domain.project_out(isl.dim_type.set, 0, members).set_tuple_name(name)
    extra = indices.subtract(statement.domain)
    if not extra.is_empty():
        raise PlanError(f"the tree runs {extra.sample_point()} behind a tile, which the program does not have")
    names = [f"i{d}" for d in range(rank)]
    front = isl.Map(f"{{ {name}[{', '.join(names)}] -> [{', '.join(names[:members])}] }}").intersect_domain(domain)
    if not front.is_equal(tile_of):
        raise PlanError(f"the tiles of {name} in its band are not those in front of its indices")
    return Placement(domain, tile_of, members)
