"""What code generators take for granted of a plan, checked where a plan was not made by the passes.

The proofs (``proof/legality.py``) say that a plan computes what the program says, if its marks and tables mean what
they mean to the backends.  That is what is looked at here: every fact of the tables has its place in the tree, and
once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

import islpy as isl

from tcomp.errors import PlanError
from tcomp.grammar.tree.function import Read
from tcomp.mapping.gpu.barriers import COPIED
from tcomp.mapping.gpu.pipelines import AHEAD, loop_of_tiles
from tcomp.mapping.memory.owners import BLOCK_LEVEL
from tcomp.mapping.memory.places import Place, places
from tcomp.mapping.options.choices import MOST_THREADS
from tcomp.mapping.plan.deals import Dealt, Phase
from tcomp.mapping.plan.tree import below, nodes_of
from tcomp.mapping.plan.values import LARGEST, Buffer, Plan
from tcomp.mapping.tiles.sizes import reduction_positions
from tcomp.model.terms.unions import sets_of

_KINDS = isl.schedule_node_type
_MOST_IN_32_BITS = 2**31 - 2**16
"""Up to here indices may be integers of 32 bits on a GPU, with room for what loops run past their bounds by."""

_OF_GPUS = ("shared", "block", "private")


def check_structure(plan: Plan, buffered: bool) -> None:
    """Raise PlanError, naming the mark or the table, if a pass or a backend could not make sense of a plan.

    ``buffered`` says whether temporaries must have buffers already; otherwise they may have none.
    """
    _check_bands(plan.tree)
    names = Counter(_mark(n) for n in nodes_of(plan.tree) if n.get_type() == _KINDS.mark)
    for name, count in names.items():
        _require(count == 1, f"the tree has {count} marks {name}")
    _check_groups(plan)
    _check_orders(plan)
    marks = {p.mark: p for p in places(plan.tree)}
    for operation in plan.operations.values():
        place = _place(marks, operation.mark, "operation")
        inside = ", ".join(sorted(place.prefixes))
        _require(set(place.prefixes) == {operation.statement}, f"operation {operation.mark} has {inside} below it")
        written = place.prefixes[operation.statement].reverse()
        written = written.apply_range(plan.scop.by_name[operation.statement].write)
        single = operation.kind == "contract" or bool(plan.phases) or bool(written.is_single_valued())
        _require(single, f"operation {operation.mark} reduces into several elements")
    for storage in {s.target: plan.scop.storages[s.target] for s in plan.scop.statements}.values():
        if storage.role == "temporary":
            held = storage.name in plan.buffers
            _require(held == buffered, f"{storage.name} has {'already a' if held else 'no'} buffer")
    for buffer in plan.buffers.values():
        _check_buffer(plan, buffer, marks)
    _check_copies(plan, marks)
    if plan.phases:
        _check_phases(plan, marks)
    for mark in plan.pipelines:
        _require(any(c.mark == mark for c in plan.copies), f"there are no copies for a pipeline at {mark}")
        _require(loop_of_tiles(plan, mark) is not None, f"no loop around {mark} has tiles for a pipeline")
    for before in plan.barriers:
        copied = any(c.mark + COPIED == before for c in plan.copies)
        copied = copied or any(mark + AHEAD == before for mark in plan.pipelines)
        _require(before in plan.phases or copied, f"a barrier stands before {before}, which is no phase")


def _check_bands(tree: isl.Schedule) -> None:
    """What bands count by fits the integers that hold the indices of the program."""
    largest = max((abs(v) for s in sets_of(tree.get_domain()) for v in _extremes(s)), default=0)
    most = LARGEST if largest >= _MOST_IN_32_BITS else _MOST_IN_32_BITS
    for node in nodes_of(tree):
        if node.get_type() == _KINDS.band:
            partial = node.band_get_partial_schedule_union_map().intersect_domain(node.get_domain())
            counted = [abs(v) for values in sets_of(partial.range()) for v in _extremes(values)]
            _require(max(counted, default=0) <= most, f"a band of the tree counts beyond {most}")


def _extremes(values: isl.Set) -> list[int]:
    """The least and the largest value along each dimension."""
    if values.is_empty():
        return []
    dimensions = range(values.dim(isl.dim_type.set))
    return [v.to_python() for d in dimensions for v in (values.dim_min_val(d), values.dim_max_val(d))]


def _check_orders(plan: Plan) -> None:
    """Blocks take the tiles of a group in rows where it has two loops over tiles; each order has every tile once."""
    for number, rows in plan.orders.items():
        _require(bool(plan.phases), "blocks have no order: this is no GPU")
        fits = number < len(plan.groups) and len(plan.groups[number].members) > 1
        _require(fits, f"blocks of group {number} cannot take rows of tiles: it has no two loops over tiles")
        _require(rows > 0, f"blocks of group {number} cannot take {rows} rows of tiles together")
    for number, group in enumerate(plan.groups):
        fits = not group.backwards or (bool(plan.phases) and number not in plan.orders.keys() | plan.persistent.keys())
        _require(fits, f"blocks of group {number} cannot take tiles backwards, and in another order, too")
    for number, blocks in plan.persistent.items():
        _require(number < len(plan.groups) and bool(plan.phases), f"there is no group {number} with tiles for blocks")
        _require(0 < blocks <= _MOST_IN_32_BITS, f"{blocks} blocks cannot take the tiles of group {number} in turn")


def _check_groups(plan: Plan) -> None:
    """Groups run one after another in the order of their numbers, each under its marks, each statement in one."""
    homes = Counter(s for g in plan.groups for c in g.clusters for s in plan.clusters[c].statements)
    for statement in plan.scop.statements:
        count = homes[statement.name]
        _require(count == 1, f"{statement.name} belongs to {count} clusters of groups, not to one")
    _require(set(homes) <= set(plan.scop.by_name), "a cluster has statements that the tree does not run")
    tops = _tops(plan.tree.get_root().child(0))
    _require(len(tops) == len(plan.nests), f"the tree has {len(tops)} nests for groups with {len(plan.nests)}")
    for top, nest in zip(tops, plan.nests, strict=True):
        for number, node, members in _groups_of_nest(plan, top, nest):
            inner = _tile_of_group(node, number, members)
            found = {s.get_tuple_name() for s in sets_of(inner.get_domain())}
            own = {s for c in plan.groups[number].clusters for s in plan.clusters[c].statements}
            _require(found == own, f"below group{number} the tree has {', '.join(sorted(found))}")
            _check_turns(plan, number, inner)
    kinds = ("group", "parallel", "nest", "turn")
    for node in nodes_of(plan.tree):
        if node.get_type() == _KINDS.mark and _mark(node).startswith(kinds):
            known = _mark(node) in {f"{kind}{n}" for n in range(len(plan.groups)) for kind in kinds}
            _require(known, f"there is no group for the mark {_mark(node)}")


def _check_turns(plan: Plan, number: int, node: isl.ScheduleNode) -> None:
    """The clusters of a group that run in turns, and no others, stand below one loop of its own."""
    group = plan.groups[number]
    turns = [n for n in below(node) if n.get_type() == _KINDS.mark and _mark(n).startswith("turn")]
    _require(len(turns) == bool(group.turns), f"group {number} has {len(turns)} marks of turns")
    for turn in turns:
        loop = turn.parent()
        inside = loop.get_type() == _KINDS.band and loop.band_n_member() == 1
        while inside and loop.get_tree_depth() > node.get_tree_depth() + 1:
            loop = loop.parent()
            inside = loop.get_type() in (_KINDS.filter, _KINDS.sequence)
        _require(inside and _mark(turn) == f"turn{number}", f"turns of group {number} must be one loop in its tile")
        found = {s.get_tuple_name() for s in sets_of(turn.get_domain())}
        own = {s for c in group.turns for s in plan.clusters[c].statements}
        _require(found == own, f"below turn{number} the tree has {', '.join(sorted(found))}")


def _tops(node: isl.ScheduleNode) -> list[isl.ScheduleNode]:
    """The nests of a tree, in order."""
    if node.get_type() != _KINDS.sequence:
        return [node]
    return [node.child(n).child(0) for n in range(node.n_children())]


def _groups_of_nest(plan: Plan, top: isl.ScheduleNode, nest: range) -> Iterator[tuple[int, isl.ScheduleNode, int]]:
    """The groups of a nest, below what they share: their numbers, where they begin, and how many loops they have."""
    first, shared = nest[0], plan.groups[nest[-1]].shared
    _require(all(plan.groups[n].shared == shared for n in nest[1:]), f"groups of nest {first} share different loops")
    loops = shared or len(plan.groups[first].members)
    node = top
    if loops:
        _require(_is_mark(node, f"parallel{first}"), f"nest {first} must begin with the mark parallel{first}")
        node = node.child(0)
        _require(_members(node) == loops, f"below parallel{first} there must be a band of {loops} members")
        node = node.child(0)
    for number in nest:
        told = plan.groups[number].together
        _require(len(told) in (0, shared), f"group {number} tells of {len(told)} loops that it shares, not of {shared}")
    if not shared:
        yield first, node, 0
        return
    _require(_is_mark(node, f"nest{first}"), f"the mark nest{first} must stand below what groups share")
    tops = _tops(node.child(0))
    _require(len(tops) == len(nest), f"nest {first} has {len(tops)} parts for {len(nest)} groups")
    for number, part in zip(nest, tops, strict=True):
        group = plan.groups[number]
        yield number, part, len(group.members) - (0 if group.together else shared)


def _members(node: isl.ScheduleNode) -> int:
    """The members of a band; 0 if a node is none."""
    return node.band_n_member() if node.get_type() == _KINDS.band else 0


def _tile_of_group(top: isl.ScheduleNode, number: int, members: int) -> isl.ScheduleNode:
    """The node of the mark of a group, below so many loops of its own over tiles."""
    node = top
    if members:
        _require(_members(node) == members, f"group {number} must have a band of {members} members for itself")
        node = node.child(0)
    _require(_is_mark(node, f"group{number}"), f"the mark group{number} must stand below the tiles of nest {number}")
    inside = [_mark(n) for n in below(node)[1:] if n.get_type() == _KINDS.mark]
    _require(not any(m.startswith("parallel") for m in inside), f"nest {number} has a mark parallel inside")
    return node


def _check_buffer(plan: Plan, buffer: Buffer, marks: dict[str, Place]) -> None:
    name = buffer.storage
    _require(bool(plan.phases) or buffer.space not in _OF_GPUS, f"{name} cannot be {buffer.space}: this is no GPU")
    if buffer.space == "global":
        _require(not buffer.mark and buffer.lower is None, f"{name} is global, so it has neither mark nor lower")
        return
    place = _place(marks, buffer.mark, f"buffer {name}")
    users = {s.name for s in plan.scop.users[name]}
    outside = sorted(users - set(place.prefixes))
    _require(not outside, f"buffer {name} is declared at {buffer.mark}, but {', '.join(outside)} uses it elsewhere")
    _require(not buffer.mark.startswith("parallel"), f"buffer {name} cannot be declared at {buffer.mark}")
    if buffer.folded and buffer.space == "tile":
        whole = {o.statement for o in plan.operations.values()} & users
        _require(not plan.phases, f"{name} is folded, but not onto one place: this is a GPU")
        _require(not whole, f"{name} is folded, but {', '.join(sorted(whole))} is an operation")
    if buffer.lower is not None:
        _check_corner(buffer.lower, place, f"buffer {name}")
    around = {m for o in plan.operations for m in _marks_below(plan, o)}
    _require(buffer.mark not in around, f"buffer {name} is declared inside an operation")
    if plan.phases:
        together = buffer.mark.startswith(BLOCK_LEVEL)
        _require(buffer.space != "tile" or not together, f"{name} is a tile of a thread, so {buffer.mark} is too high")
        _require(buffer.space not in _OF_GPUS or together, f"{name} is {buffer.space}, so {buffer.mark} is too deep")
        inside = {m for p in plan.phases.values() for m in _marks_below(plan, p.lanes)}
        _require(together or buffer.mark in inside, f"buffer {name} cannot be declared at {buffer.mark}")


def _check_corner(lower: isl.MultiAff, place: Place, what: str) -> None:
    """A box begins where the bands around its mark say."""
    depth = next((p.dim(isl.dim_type.out) for p in place.prefixes.values()), 0)
    _require(lower.dim(isl.dim_type.in_) == depth, f"lower of {what} must depend on the {depth} rows around its mark")


def _check_copies(plan: Plan, marks: dict[str, Place]) -> None:
    """What a statement reads is copied once, where the backends look for copies."""
    inside = {m for o in plan.operations for m in _marks_below(plan, o)}
    known: set[tuple[str, Read]] = set()
    for copy in plan.copies:
        what = f"the copy of {copy.storage} at {copy.mark}"
        if plan.phases:
            _require(copy.mark in plan.phases or copy.mark.startswith("group"), f"{what} is before no phase")
        else:
            _require(copy.mark not in inside, f"{what} is inside an operation")
            _require(not copy.mark.startswith("parallel"), f"{what} is outside all tiles")
        _check_corner(copy.lower, _place(marks, copy.mark, what), what)
        for read in copy.reads:
            _require((copy.statement, read) not in known, f"{what} is not the only one of what {copy.statement} reads")
            known.add((copy.statement, read))
    for panel, count in Counter(copy.panel for copy in plan.copies).items():
        _require(bool(plan.phases) or count == 1, f"{count} copies {panel} would have one name")


def _check_phases(plan: Plan, marks: dict[str, Place]) -> None:
    running = Counter(s for p in plan.phases.values() for s in _place(marks, p.lanes, "phase").prefixes)
    for statement in plan.scop.statements:
        count = running[statement.name]
        _require(count == 1, f"{statement.name} runs in {count} phases, not in one")
    nodes = {_mark(n): n for n in nodes_of(plan.tree) if n.get_type() == _KINDS.mark}
    for group in plan.groups:
        for number in group.clusters:
            dealt = plan.dealt.get(number)
            if dealt is None:
                raise PlanError(f"cluster {number} is not dealt to threads")
            _check_dealt(plan, number, dealt)
    for phase in plan.phases.values():
        _place(marks, phase.mark, "phase")
        _check_phase(plan, phase, nodes[phase.mark], set(marks[phase.lanes].prefixes))


def _check_dealt(plan: Plan, number: int, dealt: Dealt) -> None:
    cluster = plan.clusters[number]
    shape = dealt.shape
    fits = all(0 < n <= most for n, most in zip(reversed(shape), MOST_THREADS, strict=False))
    fits = fits and 0 < len(shape) <= len(MOST_THREADS) and math.prod(shape) <= MOST_THREADS[0]
    _require(fits, f"cluster {number} is dealt to {list(shape)} threads")
    _require(len(dealt.deals) == cluster.rank, f"cluster {number} must have {cluster.rank} deals")
    dimensions = [d.dimension for d in dealt.deals if d.dimension is not None] + [s.dimension for s in dealt.shares]
    known = len(set(dimensions)) == len(dimensions) and all(d < len(shape) for d in dimensions)
    _require(known, f"the deals of cluster {number} need a dimension of threads each")
    alone = all(d.threads == 1 for d in dealt.deals if d.dimension is None)
    within = all(d.threads <= shape[d.dimension] for d in dealt.deals if d.dimension is not None)
    _require(alone and within, f"the deals of cluster {number} need threads that are not there")
    if not dealt.shares:
        _require(dealt.form != "shared", f"cluster {number} is shared by no threads")
        return
    _require(dealt.form == "shared", f"cluster {number} is {dealt.form}, so it has no shares")
    last = set(range(len(shape) - len(dealt.shares), len(shape)))
    _require({s.dimension for s in dealt.shares} == last, f"the shares of cluster {number} must be dealt innermost")
    equal = all(s.threads == shape[s.dimension] and s.threads & (s.threads - 1) == 0 for s in dealt.shares)
    _require(equal, f"the shares of cluster {number} must be all threads of a dimension, a power of two")
    updates = [plan.scop.by_name[s] for s in cluster.statements if plan.scop.by_name[s].kind == "update"]
    steps = [set(reduction_positions(cluster, s)) for s in updates]
    _require(all({s.position for s in dealt.shares} <= p for p in steps), f"cluster {number} shares no reduction")


def _check_phase(plan: Plan, phase: Phase, node: isl.ScheduleNode, statements: set[str]) -> None:
    mark = phase.mark
    _require(phase.cluster < len(plan.clusters), f"phase {mark} has no cluster {phase.cluster}")
    _require(statements <= set(plan.clusters[phase.cluster].statements), f"phase {mark} runs other clusters, too")
    _require(phase.shape == plan.dealt[phase.cluster].shape, f"phase {mark} and its cluster have different threads")
    unique = len(set(phase.dimensions)) == len(phase.dimensions)
    _require(unique and all(d < len(phase.shape) for d in phase.dimensions), f"phase {mark} has no such dimensions")
    inner = node.child(0)
    if phase.dimensions:
        members = inner.band_n_member() if inner.get_type() == _KINDS.band else 0
        _require(members == len(phase.dimensions), f"below {mark} there must be a band of {len(phase.dimensions)}")
        inner = inner.child(0)
    _require(_is_mark(inner, phase.lanes), f"the mark {phase.lanes} must stand below the threads of {mark}")
    shared = mark in plan.operations and plan.operations[mark].kind != "contract"
    dealt = plan.dealt[phase.cluster]
    _require(
        shared == (bool(dealt.shares) and _updates(plan, statements)), f"phase {mark} must be an operation to share"
    )
    used = {d.dimension for d in dealt.deals if d.dimension is not None}
    used |= {s.dimension for s in dealt.shares} if shared else set()
    _require(set(phase.dimensions) == used, f"phase {mark} must be dealt along {sorted(used)}")


def _updates(plan: Plan, statements: set[str]) -> bool:
    return any(plan.scop.by_name[s].kind == "update" for s in statements)


def _marks_below(plan: Plan, mark: str) -> set[str]:
    """A mark and those below it."""
    top = next(n for n in nodes_of(plan.tree) if n.get_type() == _KINDS.mark and _mark(n) == mark)
    return {_mark(n) for n in below(top) if n.get_type() == _KINDS.mark}


def _place(marks: dict[str, Place], mark: str, what: str) -> Place:
    if mark not in marks:
        raise PlanError(f"{what} has no mark {mark!r} in the tree")
    return marks[mark]


def _is_mark(node: isl.ScheduleNode, name: str) -> bool:
    return bool(node.get_type() == _KINDS.mark and _mark(node) == name)


def _mark(node: isl.ScheduleNode) -> str:
    return str(node.mark_get_id().get_name())


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise PlanError(otherwise)
