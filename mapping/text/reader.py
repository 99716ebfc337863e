"""A ``Plan`` from its text (``writer.py``), so that people may change a schedule by hand.

What is read is checked for form here and in ``structure.py``; whether it computes what the program says is the affair
of the proofs (``proof/legality.py``), as for every plan.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import islpy as isl

from tcomp.errors import PlanError
from tcomp.grammar.ranges.affine import step_parameter
from tcomp.mapping.machines.atoms import BY_NAME
from tcomp.mapping.memory.places import places
from tcomp.mapping.memory.references import references
from tcomp.mapping.plan.deals import Deal, Dealt, Phase, Share
from tcomp.mapping.plan.layouts import StepGroups, Swizzle
from tcomp.mapping.plan.operations import TileOperation, recognise_contraction
from tcomp.mapping.plan.tree import nodes_of
from tcomp.mapping.plan.values import (
    BARRIERS,
    LARGEST,
    TENSOR,
    Buffer,
    Cluster,
    Copy,
    Footprint,
    Group,
    Pipeline,
    Plan,
)
from tcomp.mapping.text.replay import replay
from tcomp.mapping.text.rewriting import rewritten
from tcomp.mapping.text.rows import Row, read_toml
from tcomp.mapping.text.tree import read_tree
from tcomp.mapping.text.writer import tree_text
from tcomp.mapping.tiles.scans import scanned_position
from tcomp.model.scop import Scop
from tcomp.model.terms.storages import Storage
from tcomp.values.operators import DTYPES

Key = TypeVar("Key", str, int)
Value = TypeVar("Value")

_NUMBER = re.compile(r"(?<!\w)\d+")
_SPACES = ("global", "tile", "register", "shared", "block", "private")
_READABLE = {isl.schedule_node_type.domain, isl.schedule_node_type.band, isl.schedule_node_type.sequence,
             isl.schedule_node_type.filter, isl.schedule_node_type.mark, isl.schedule_node_type.leaf}  # fmt: skip


def read_plan(text: str, scop: Scop) -> tuple[str, Plan]:
    """The pass after which a plan was written, and the plan.  Raises PlanError."""
    source = read_toml(text)
    stage = source.text("stage")
    notes = source.texts("notes")
    tree = _atomic(source.parsed("tree", read_tree), frozenset(map(step_parameter, scop.steps)))
    _check_numbers(tree_text(tree), "the tree")
    plan = rewritten(source, scop, tree)
    tiled = replay(plan.program, tree)
    clusters = tuple(_cluster(tiled, number, row) for number, row in enumerate(source.rows("cluster")))
    plan = replace(plan, scop=tiled, clusters=clusters, notes=notes)
    plan = replace(plan, groups=tuple(_group(plan, number, row) for number, row in enumerate(source.rows("group"))))
    plan = replace(
        plan,
        buffers=_named("buffer", [(b.storage, b) for b in (_buffer(tiled, row) for row in source.rows("buffer"))]),
        operations=_named("operation", [(o.mark, o) for o in (_operation(tiled, r) for r in source.rows("operation"))]),
        phases=_named("phase", [(p.mark, p) for p in (_phase(plan, row) for row in source.rows("phase"))]),
        dealt=_named("dealt", [(row.number("cluster"), _dealt(row)) for row in source.rows("dealt")]),
        copies=tuple(_copy(tiled, row) for row in source.rows("copy")),
        pipelines=_named("pipeline", [(row.text("phase"), _pipeline(row)) for row in source.rows("pipeline")]),
        orders=_named("order", [(row.number("group"), row.number("rows")) for row in source.rows("order")]),
        persistent=_named("persistent", [(r.number("group"), r.number("blocks")) for r in source.rows("persistent")]),
        barriers=_named("barrier", [(row.text("before"), _level(row)) for row in source.rows("barrier")]),
    )
    source.done()
    return stage, plan


def _check_numbers(text: str, what: str) -> None:
    """Raise PlanError for numbers that loops, whose integers have 64 bits, do not hold; also those that divide."""
    if any(len(n) > len(str(LARGEST)) or int(n) > LARGEST for n in _NUMBER.findall(text)):
        raise PlanError(f"{what} has a number that is larger than {LARGEST}")


def _named(table: str, pairs: list[tuple[Key, Value]]) -> Mapping[Key, Value]:
    result: dict[Key, Value] = {}
    for name, value in pairs:
        if name in result:
            raise PlanError(f"there are two entries of {table} for {name}")
        result[name] = value
    return result


def _atomic(tree: isl.Schedule, steps: frozenset[str]) -> isl.Schedule:
    """The tree with loops that isl may not take apart, as those of ``plan/tree.py``; its parameters are ``steps``."""
    for node in nodes_of(tree):
        if node.get_type() not in _READABLE:
            raise PlanError(f"a plan's tree has no nodes of type {isl.schedule_node_type.find_value(node.get_type())}")

    # isl makes no map of a tree whose domain alone has parameters.
    spaces = [part().get_space() for part in (tree.get_domain, tree.get_map)]
    parameters = {s.get_dim_name(isl.dim_type.param, d) for s in spaces for d in range(s.dim(isl.dim_type.param))}
    if not parameters <= steps:
        raise PlanError("a plan's tree has no parameters but the steps around it")

    def close(node: isl.ScheduleNode) -> isl.ScheduleNode:
        if node.get_type() == isl.schedule_node_type.band:
            for member in range(node.band_n_member()):
                node = node.band_member_set_ast_loop_type(member, isl.ast_loop_type.atomic)
        return node

    return tree.map_schedule_node_bottom_up(close)


def _cluster(scop: Scop, number: int, row: Row) -> Cluster:
    statements = row.table("statements")
    coordinates = {}
    for name in list(statements.entries):
        coordinates[name] = statements.numbers(name)
        known = scop.by_name.get(name)
        if known is None or any(p >= len(known.indices) for p in coordinates[name]):
            raise PlanError(f"{row.where}: {name} has no such indices")
    if len({len(c) for c in coordinates.values()}) > 1:
        raise PlanError(f"{row.where}: its statements must have equally many coordinates")
    return Cluster(number, tuple(coordinates), coordinates or {"": ()})


def _group(plan: Plan, number: int, row: Row) -> Group:
    clusters = row.numbers("clusters")
    ratios = row.table("recompute")
    if not clusters or any(c >= len(plan.clusters) for c in clusters):
        raise PlanError(f"{row.where} must have clusters, by number")
    place = next((p for p in places(plan.tree) if p.mark == f"group{number}"), None)
    if place is None:
        raise PlanError(f"{row.where} has no mark group{number} in the tree")
    members, shared = row.numbers("members"), row.number("shared", 0)
    if shared > len(members) or (shared and not number):
        raise PlanError(f"{row.where} shares {shared} loops with the group before it, which is not possible")
    together = row.numbers("together", ())
    if 0 in together or len(together) > len(members) or (together and shared and len(together) != shared):
        raise PlanError(f"{row.where} must say for each loop that it shares how many tiles are together at a point")
    tiles = {s: _behind(prefix, len(together)) for s, prefix in place.prefixes.items()}
    turns = row.numbers("turns", ())
    if turns != clusters[: len(turns)] or len(turns) == len(clusters):
        raise PlanError(f"{row.where} must have the clusters that run in turns first, and another behind them")
    in_turns = next((p.prefixes for p in places(plan.tree) if p.mark == f"turn{number}"), {})
    prefixes = {c: in_turns if c in turns else tiles for c in clusters}
    footprints = {c: _footprint(plan.scop, plan.clusters[c], prefixes[c], ratios.ratio(str(c))) for c in clusters}
    ratios.done()
    seen, first = (_turn(row, entry, len(members)) for entry in ("seen", "first"))
    backwards = bool(row.number("backwards", 0))
    return Group(clusters, members, row.numbers("sizes"), footprints, shared, together, turns, seen, first, backwards)


def _turn(row: Row, entry: str, members: int) -> isl.PwAff | None:
    """The number of a turn as a function of the loops over tiles, if the row has that entry."""
    if entry not in row.entries:
        return None
    turn, kinds = row.parsed(entry, isl.PwAff), isl.dim_type
    if turn.dim(kinds.in_) != members or turn.dim(kinds.param) or turn.get_space().has_tuple_name(kinds.in_):
        raise PlanError(f"{row.where}: {entry} must be a function of {members} numbers")
    _check_numbers(str(turn), f"{row.where}: {entry}")
    return turn


def _behind(prefix: isl.Map, points: int) -> isl.Map:
    """The tile of each instance, behind the point of the loops that its group shares."""
    return prefix.project_out(isl.dim_type.out, 0, min(points, prefix.dim(isl.dim_type.out)))


def _footprint(scop: Scop, cluster: Cluster, prefixes: Mapping[str, isl.Map], ratio: float) -> Footprint:
    """The coordinates of a cluster in each tile, from the tiles of its instances."""
    tiles: isl.Map | None = None
    for name in cluster.statements:
        if name not in prefixes:
            raise PlanError(f"cluster {cluster.number} has {name}, which is not below the mark of its group")
        names = [f"i{d}" for d in range(len(scop.by_name[name].indices))]
        picked = ", ".join(names[p] for p in cluster.coordinates[name])
        own = prefixes[name].reverse().apply_range(isl.Map(f"{{ {name}[{', '.join(names)}] -> [{picked}] }}"))
        tiles = own if tiles is None else tiles.union(own)
    if tiles is None:
        return Footprint(isl.Map("{ [] -> [] }"), True, 1.0, ())
    expanded = any(scop.by_name[s].tile_rank for s in cluster.statements)
    return Footprint(tiles.coalesce(), not expanded, ratio, ())


def _storage(scop: Scop, row: Row) -> Storage:
    name = row.text("storage")
    if name not in scop.storages:
        raise PlanError(f"{row.where}: the program has no {name}")
    return scop.storages[name]


def _buffer(scop: Scop, row: Row) -> Buffer:
    storage = _storage(scop, row)
    space, mark = row.text("space"), row.text("mark", "")
    if storage.role != "temporary":
        raise PlanError(f"{row.where}: {storage.name} is no temporary")
    if space not in _SPACES:
        raise PlanError(f"{row.where}: space must be one of {', '.join(_SPACES)}")
    shape = row.numbers("shape", () if space == "register" else None)
    lower = _corner(row, len(shape), scop) if "lower" in row.entries else None
    origin = row.numbers("origin", (0,) * len(shape) if lower is None and shape else (), signed=True)
    if space != "register" and len(shape) != len(storage.box.extent):
        raise PlanError(f"{row.where}: shape must have {len(storage.box.extent)} numbers")
    if space not in ("global", "register") and lower is None:
        raise PlanError(f"{row.where} lacks 'lower'")
    if lower is None and len(origin) != len(shape):
        raise PlanError(f"{row.where}: origin must have {len(shape)} numbers")
    deals = tuple(_deal(r) for r in row.rows("deals"))
    if len(deals) != (len(shape) if space == "private" else 0):
        raise PlanError(f"{row.where}: a private buffer has deals for each dimension, another none")
    order = row.numbers("order", ())
    if order and (space != "tile" or sorted(order) != list(range(len(shape)))):
        raise PlanError(f"{row.where}: order must name every dimension of a tile once")
    folded = row.numbers("folded", ())
    places = {"shared": 1, "private": 1, "tile": LARGEST}.get(space, 0)
    if any(d >= len(shape) or not 1 <= shape[d] <= places for d in folded) or (len(folded) > 1 and space == "tile"):
        raise PlanError(
            f"{row.where}: tiles have folded dimensions, on a processor one, for threads of a GPU with one place each"
        )
    return Buffer(storage.name, storage.dtype, space, shape, origin, lower, mark, deals, order, folded)


def _corner(row: Row, rank: int, scop: Scop) -> isl.MultiAff:
    """The first element of a box, as whole numbers that follow from the bands around its mark, and steps."""
    lower = row.parsed("lower", isl.MultiAff)
    plain = isl.Space.alloc(lower.get_ctx(), 0, lower.dim(isl.dim_type.in_), rank)
    space, kind = lower.get_space(), isl.dim_type.param
    named = {space.get_dim_name(kind, d) for d in range(space.dim(kind))}
    if not named <= set(map(step_parameter, scop.steps)) or not space.drop_all_params().is_equal(plain):
        raise PlanError(f"{row.where}: lower must have {rank} numbers, and no names but those of bands")
    parts = [lower.get_at(d) for d in range(rank)]
    if any(part.is_nan() or not part.get_denominator_val().is_one() for part in parts):
        raise PlanError(f"{row.where}: lower must be whole numbers")
    _check_numbers(str(lower), f"{row.where}: lower")
    return lower


def _operation(scop: Scop, row: Row) -> TileOperation:
    mark, kind, name = row.text("mark"), row.text("kind"), row.text("statement")
    statement = scop.by_name.get(name)
    if statement is None or statement.kind != "update":
        raise PlanError(f"{row.where}: {name} is no update of the program")
    contraction = recognise_contraction(statement) if kind == "contract" else None
    scans = kind != "scan" or scanned_position(scop, statement) is not None
    if kind not in ("reduce", "scan", "contract") or not scans or (kind == "contract" and contraction is None):
        raise PlanError(f"{row.where}: {name} is not of the kind {kind!r}")
    atom = row.text("atom", "")
    if atom and (atom not in BY_NAME or kind != "contract"):
        raise PlanError(f"{row.where}: {atom} is no instruction for matrices")
    whole = (row.number("overhang", 0) > 0, row.number("shifted", 0) > 0)
    return TileOperation(mark, kind, name, contraction, atom, *whole)


def _phase(plan: Plan, row: Row) -> Phase:
    mark, lanes, cluster = row.text("mark"), row.text("lanes"), row.number("cluster")
    place = next((p for p in places(plan.tree) if p.mark == lanes), None)
    if place is None:
        raise PlanError(f"{row.where} has no mark {lanes} in the tree")
    statements = [plan.scop.by_name[s] for s in place.prefixes]
    reads = frozenset(r.get_tuple_name(isl.dim_type.out) for s in statements for r in s.all_reads)
    writes = frozenset(s.target for s in statements)
    everywhere = row.number("everywhere", 0) > 0
    return Phase(mark, lanes, cluster, row.numbers("shape"), row.numbers("dimensions"), reads, writes, everywhere)


def _dealt(row: Row) -> Dealt:
    form = row.text("form")
    if form not in ("pointwise", "serial", "shared"):
        raise PlanError(f"{row.where}: form must be pointwise, serial or shared")
    shares = tuple(
        Share(r.number("position"), _some(r, "threads"), r.number("dimension"), _some(r, "vector", 1))
        for r in row.rows("shares")
    )
    return Dealt(form, tuple(_deal(r) for r in row.rows("deals")), shares, row.numbers("shape"))


def _deal(row: Row) -> Deal:
    return Deal(row.number("extent"), _some(row, "threads"), _some(row, "vector"), row.optional_number("dimension"))


def _some(row: Row, key: str, default: int | None = None) -> int:
    value = row.number(key, default)
    if value < 1:
        raise PlanError(f"{row.where}: {key} must be 1 or more")
    return value


def _copy(scop: Scop, row: Row) -> Copy:
    storage, mark, name = _storage(scop, row), row.text("mark"), row.text("statement")
    if name not in scop.by_name:
        raise PlanError(f"{row.where}: the program has no {name}")
    known = references(scop.by_name[name], storage.name)
    chosen = row.numbers("reads")
    if not chosen or any(r >= len(known) for r in chosen):
        raise PlanError(f"{row.where}: {name} reads {storage.name} in {len(known)} places")
    reads = tuple(known[r] for r in chosen)
    if not storage.box.extent:
        raise PlanError(f"{row.where}: {storage.name} is a single number, of which there are no copies")
    shape, order = row.numbers("shape"), row.numbers("order")
    if len(shape) != len(storage.box.extent):
        raise PlanError(f"{row.where}: shape must have {len(storage.box.extent)} numbers")
    lower = _corner(row, len(shape), scop)
    dtype = row.text("dtype", storage.dtype.name)
    if dtype not in DTYPES:
        raise PlanError(f"{row.where}: dtype must be an element type")
    return Copy(storage.name, DTYPES[dtype], mark, name, reads, shape, lower, order, row.number("padding"),
                _some(row, "vector"), _some(row, "step", 1), _groups(row.table("groups")),
                row.number("ahead", 0) > 0, _swizzle(row.table("swizzle")), _one_of(row, "route", TENSOR))  # fmt: skip


def _pipeline(row: Row) -> Pipeline:
    return Pipeline(
        _some(row, "stages"), _some(row, "distance"), row.number("flight", 0), _one_of(row, "kind", BARRIERS)
    )


def _one_of(row: Row, key: str, word: str) -> str:
    """The word, or nothing."""
    found = row.text(key, "")
    if found not in ("", word):
        raise PlanError(f"{row.where}: {key} is {word}, or left out")
    return found


def _swizzle(row: Row) -> Swizzle | None:
    if not row.entries:
        return None
    swizzle = Swizzle(row.number("side"), row.number("step"), row.number("warps", 0), row.numbers("around", ()))
    row.done()
    return swizzle


def _groups(row: Row) -> StepGroups | None:
    if not row.entries:
        return None
    summed = row.numbers("summed") if "summed" in row.entries else None
    groups = StepGroups(row.number("dimension"), _some(row, "size"), row.number("step"), row.number("flipped", 0) > 0,
                        summed, row.number("depth", 0))  # fmt: skip
    row.done()
    return groups


def _level(row: Row) -> str:
    level = row.text("level")
    if level not in ("warp", "block"):
        raise PlanError(f"{row.where}: level must be warp or block")
    return level
