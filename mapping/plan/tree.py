"""Schedule trees from a description: bands, sequences and marks over isl's own tree."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from functools import lru_cache

import islpy as isl

from tcomp.model.scop import ScopStatement
from tcomp.model.terms.unions import map_from_text, union_map
from tcomp.storage.memo import Recent


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """A permutable band whose first ``coincident`` members carry no dependence."""

    rows: isl.UnionMap
    coincident: int
    child: Subtree = None


@dataclass(frozen=True, slots=True, eq=False)
class Sequence:
    """Children executed one after another, each over its own instances."""

    children: tuple[tuple[isl.UnionSet, Subtree], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """A named bookmark for later passes and the code generator."""

    name: str
    child: Subtree


Subtree = Band | Sequence | Mark | None


def plant(domain: isl.UnionSet, subtree: Subtree) -> isl.Schedule:
    """The schedule of ``domain`` with ``subtree`` below its root."""
    leaf = isl.Schedule.from_domain(domain).get_root().child(0)
    return _grow(leaf, subtree).get_schedule()


def _grow(leaf: isl.ScheduleNode, subtree: Subtree) -> isl.ScheduleNode:
    """Insert ``subtree`` at a leaf; the node returned stands where the leaf stood."""
    match subtree:
        case None:
            return leaf
        case Mark():
            return _grow(leaf.insert_mark(isl.Id(subtree.name)).child(0), subtree.child).parent()
        case Band():
            node = leaf.insert_partial_schedule(_schedule(subtree.rows)).band_set_permutable(1)
            for member in range(subtree.coincident):
                node = node.band_member_set_coincident(member, 1)
            for member in range(node.band_n_member()):
                node = node.band_member_set_ast_loop_type(member, isl.ast_loop_type.atomic)
            return _grow(node.child(0), subtree.child).parent()
        case Sequence(children=[]):
            return leaf
        case Sequence(children=[(_, only)]):
            return _grow(leaf, only)
        case Sequence():
            filters = isl.UnionSetList.alloc(leaf.get_ctx(), len(subtree.children))
            for instances, _ in subtree.children:
                filters = filters.add(instances)
            node = leaf.insert_sequence(filters)
            for position, (_, child) in enumerate(subtree.children):
                node = _grow(node.child(position).child(0), child).parent().parent()
            return node


def _schedule(relation: isl.UnionMap) -> isl.MultiUnionPwAff:
    """The partial schedule that a relation says; kept for ``rows``, of which passes plant the same ones again."""
    kept = _schedules.get(id(relation))
    if kept is None or kept[0] is not relation:
        kept = _schedules[id(relation)] = relation, isl.MultiUnionPwAff.from_union_map(relation)
    return kept[1]


_schedules: Recent[int, tuple[isl.UnionMap, isl.MultiUnionPwAff]] = Recent(1000)


def nodes_of(tree: isl.Schedule) -> list[isl.ScheduleNode]:
    """All nodes, parents first."""
    return below(tree.get_root())


def below(top: isl.ScheduleNode) -> list[isl.ScheduleNode]:
    """A node and everything below it, parents first."""
    nodes: list[isl.ScheduleNode] = []

    def collect(node: isl.ScheduleNode) -> bool:
        nodes.append(node.copy())
        return True

    top.foreach_descendant_top_down(collect)
    return nodes


def rows(parts: Iterable[tuple[ScopStatement, Items[int | str]]]) -> isl.UnionMap:
    """A partial schedule.  A row is the position of an index, or isl text over ``i0, i1, ...``."""
    texts = []
    for statement, expressions in parts:
        inputs = ", ".join(f"i{d}" for d in range(len(statement.indices)))
        outputs = ", ".join(f"i{e}" if isinstance(e, int) else e for e in expressions)
        texts.append(f"{{ {statement.name}[{inputs}] -> [{outputs}] }}")
    return _rows(tuple(texts))


@lru_cache(maxsize=1000)
def _rows(texts: tuple[str, ...]) -> isl.UnionMap:
    return union_map([*map(map_from_text, texts)])
