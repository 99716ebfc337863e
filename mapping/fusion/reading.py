"""What the clusters of a tile read from memory, and what they hand on to one another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Items

import islpy as isl

from tcomp.grammar.tree.function import Read, walk
from tcomp.mapping.plan.operations import indices_in, recognise_contraction
from tcomp.mapping.plan.values import Cluster, Footprint
from tcomp.mapping.tiles.footprint import as_map, box_hull, coordinate_map, volume
from tcomp.mapping.tiles.sizes import main_statement
from tcomp.model.scop import Scop
from tcomp.model.terms.unions import storage_of, union_map


def bytes_read_again(
    scop: Scop, clusters: tuple[Cluster, ...], footprints: Mapping[int, Footprint], number: int, most: int
) -> int:
    """Bytes that a tile reads in one cluster of what its others read, too, of tensors of the caller with more than
    ``most`` bytes."""
    others = {storage for n in footprints if n != number for storage in _inputs(scop, clusters[n])}
    again = sorted(s for s in _inputs(scop, clusters[number]) & others if scop.storages[s].bytes > most)
    return sum(bytes_read(scop, clusters[number], footprints[number], storage) for storage in again)


def bytes_read(scop: Scop, cluster: Cluster, footprint: Footprint, storage: str) -> int:
    """How much of a storage a cluster reads in a tile, as a box."""
    reads = [r for s in cluster.statements for r in scop.by_name[s].reads if storage_of(r) == storage]
    instances = isl.UnionMap.from_map(footprint.tiles).apply_range(coordinate_map(scop, cluster).reverse())
    elements = instances.apply_range(union_map([r.reset_tuple_id(isl.dim_type.out) for r in reads]))
    rank = len(scop.storages[storage].box.extent)
    tile = as_map(elements, footprint.tiles.dim(isl.dim_type.in_), rank)
    return volume(box_hull(tile).shape) * scop.storages[storage].dtype.itemsize


def _inputs(scop: Scop, cluster: Cluster) -> set[str]:
    """What a cluster reads of the caller's tensors that are not written."""
    reads = {storage_of(r) for s in cluster.statements for r in scop.by_name[s].reads}
    return {r for r in reads if scop.storages[r].role == "input"}


def is_read_askew(scop: Scop, clusters: Items[Cluster], number: int, consumers: Iterable[int]) -> bool:
    """Whether a reduction among its consumers reads a cluster's results as ``P(a + 2*u, q - u)``, ``u`` in both.

    Its tiles would cut them along all of these dimensions, and a contraction would lose its register tiles.
    """
    written = {scop.by_name[s].target for s in clusters[number].statements}
    statements = (scop.by_name[s] for c in consumers for s in clusters[c].statements)
    reads = (e for s in statements if s.kind == "update" for e in walk(s.value) if isinstance(e, Read))
    return any(is_askew(read) for read in reads if read.tensor in written)


def is_askew(read: Read) -> bool:
    """Whether an index moves a read along several dimensions."""
    indices = [i for s in read.subscripts for i in indices_in(s)]
    return len(indices) > len({*indices})


def is_spread(scop: Scop, cluster: Cluster) -> bool:
    """Whether a cluster's coordinates are not those of the elements that it finishes."""
    statements = [scop.by_name[s] for s in cluster.statements]
    return any(s.kind == "finish" and not s.plain for s in statements)


def prepares(scop: Scop, clusters: Items[Cluster], number: int, others: Iterable[int]) -> bool:
    """Whether a cluster does nothing but change elements that a contraction among others then reads."""
    statements = [scop.by_name[s] for s in clusters[number].statements]
    read = [scop.storages[storage_of(r)].role for s in statements for r in s.reads]
    if not all(s.kind == "assign" for s in statements) or "temporary" in read:
        return False
    return any(recognise_contraction(main_statement(scop, clusters[other])) is not None for other in others)


def shared_storages(scop: Scop, clusters: tuple[Cluster, ...], number: int, readers: set[int]) -> dict[str, isl.Map]:
    """Temporaries that a cluster writes and others read, each with the map from coordinates to elements."""
    cluster = clusters[number]
    read_elsewhere = {
        r.get_tuple_name(isl.dim_type.out)
        for c in readers
        for s in clusters[c].statements
        for r in scop.by_name[s].reads
    }
    result: dict[str, isl.Map] = {}
    coordinates = coordinate_map(scop, cluster)
    for name in cluster.statements:
        statement = scop.by_name[name]
        if statement.target in read_elsewhere and scop.storages[statement.target].role == "temporary":
            elements = isl.UnionMap.from_map(statement.write.reset_tuple_id(isl.dim_type.out))
            relation = coordinates.reverse().apply_range(elements)
            found = relation.extract_map(
                isl.Space.alloc(relation.get_ctx(), 0, cluster.rank, len(statement.subscripts))
            )
            result[statement.target] = (
                found if statement.target not in result else result[statement.target].union(found)
            )
    return result
