"""Blocks in strips of rows that run one behind the other in each strip, as sweeps forward and back do.

Where no row of a block needs another row of those beside it, a strip may go through all of them before the next strip
begins.  What they hand to one another, if nobody else reads it, is then kept for a strip only, by each thread: it stays
in a cache.  What a strip reads of such a tensor and does not write itself is copied there first.  All of it is asked of
isl, and again, as a proof, of the pieces that are compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.errors import LegalityError
from tcomp.grammar.tree.function import Expr, Index, Read, Statement, walk
from tcomp.model.accesses import Frame, element_map, guarded_reads
from tcomp.model.stepwise.cutting import Cutter, Part
from tcomp.model.stepwise.distances import accesses_of
from tcomp.model.stepwise.pieces import Item, OwnStrip, Pieces, Repeat, TimeTiles
from tcomp.model.stepwise.tiling import Room, Shape, Tileable, beside_each_other, block_of, blocks_of, range_of
from tcomp.model.terms.storages import Storage, contiguous_strides

_SET, _IN = isl.dim_type.set, isl.dim_type.in_

MOST_COPIED = 4
"""Slices that a strip copies of a tensor, at most."""


@dataclass(frozen=True, slots=True, eq=False)
class _Chain:
    """Tiles beside each other in a body, and what is known of their blocks."""

    tiles: tuple[TimeTiles, ...]
    blocks: tuple[Tileable, ...]

    @property
    def statements(self) -> list[tuple[int, int, str | int]]:
        """The number of each statement, the block that it is in, and its row."""
        return [
            (number, place, row)
            for place, block in enumerate(self.blocks)
            for number, row in zip(block.piece.numbers, block.rows, strict=True)
        ]

    @property
    def depth(self) -> int:
        """How many steps are around the blocks."""
        return len(self.blocks[0].piece.steps) - 1


def run_together(
    cutter: Cutter, pieces: Pieces, room: Room, shapes: Mapping[int, Shape] | None = None
) -> Pieces:  # fmt: skip
    """The pieces, with tiles beside each other run strip by strip where a tensor between them is kept in strips.

    ``shapes`` says which blocks do so instead.
    """
    chains: list[_Chain] = []
    for body in _bodies(pieces.body):
        chains += [chain for run in _neighbours(body) for chain in _chains(cutter, pieces, run)]
    if shapes is not None:
        wanted = {id(tiles) for tiles in _followers(pieces, shapes)}
        chains = [chain for chain in chains if _is_wanted(chain, wanted)]
        if len(wanted) != sum(len(chain.tiles) - 1 for chain in chains):
            raise LegalityError("the plan has blocks that run with those before, but do not fit together")
    kept = _kept(cutter, pieces, chains)
    while shapes is None and not all(
        widths := [_width(pieces, *facts, room) for facts in zip(chains, kept, strict=True)]
    ):
        # What one chain keeps must not be read by one that runs block by block.
        chains = [chain for chain, width in zip(chains, widths, strict=True) if width]
        kept = _kept(cutter, pieces, chains)
    changed: dict[int, TimeTiles] = {}
    storages = dict(pieces.storages)
    for chain, own in zip(chains, kept, strict=True):
        rows = _rows(cutter, chain)
        width = chain.tiles[0].width if shapes is not None else _width(pieces, chain, own, room)
        made = _made(cutter, replace(pieces, storages=storages), chain, own, rows, width)
        changed |= {id(old): new for old, new in zip(chain.tiles, made[0], strict=True)}
        storages |= made[1]
    return replace(pieces, body=tuple(_with(pieces.body, changed)), storages=storages) if changed else pieces


def prove_together(cutter: Cutter, pieces: Pieces) -> None:
    """Raise LegalityError where blocks that run strip by strip need other rows, or lose what somebody reads."""
    runs = [run for body in _bodies(pieces.body) for run in runs_of(body) if len(run) > 1]
    loose = [tile for body in _bodies(pieces.body) for run in runs_of(body) for tile in run if len(run) == 1]
    chains = [_chain(cutter, pieces, run) for run in runs]
    right = not any(tile.own for tile in loose)
    whole = [chain for chain in chains if chain is not None]
    right = right and len(whole) == len(chains)
    if right:
        allowed = _kept(cutter, pieces, whole)
        for chain, possible in zip(whole, allowed, strict=True):
            first = chain.tiles[0]
            known = {(own.tensor, own.dimension, own.copied) for own in possible}
            right = right and all((own.tensor, own.dimension, own.copied) in known for own in first.own)
            right = right and all(t.rows == first.rows and t.width == first.width for t in chain.tiles)
            right = right and _rows(cutter, chain) == first.rows and not any(t.own for t in chain.tiles[1:])
    if not right:
        names = ", ".join(tile.repeat.index for run in runs for tile in run)
        raise LegalityError(f"blocks over {names} do not run together, strip by strip")


def runs_of(body: Sequence[Item]) -> list[list[TimeTiles]]:
    """The tiles of a body, those that run together as one."""
    found: list[list[TimeTiles]] = []
    for item in body:
        if isinstance(item, TimeTiles):
            if item.follows and found:
                found[-1].append(item)
            else:
                found.append([item])
    return found


def _bodies(body: Sequence[Item]) -> Iterator[Sequence[Item]]:
    yield body
    for item in body:
        if isinstance(item, Repeat):
            yield from _bodies(item.body)


def _neighbours(body: Sequence[Item]) -> Iterator[list[TimeTiles]]:
    """Tiles with nothing between them."""
    run: list[TimeTiles] = []
    for item in (*body, None):
        if isinstance(item, TimeTiles):
            run.append(item)
        elif run:
            yield run
            run = []


def _followers(pieces: Pieces, shapes: Mapping[int, Shape]) -> Iterator[TimeTiles]:
    """The tiles of which a text says that they follow others."""
    for number, block in enumerate(blocks_of(pieces.body)):
        if isinstance(block, TimeTiles) and number in shapes and shapes[number].follows:
            yield block


def _is_wanted(chain: _Chain, followers: Collection[int]) -> bool:
    """Whether a text says that all of a chain run together, in strips of as many rows."""
    follow = [id(tiles) in followers for tiles in chain.tiles]
    return follow == [False] + [True] * (len(follow) - 1) and len({tiles.width for tiles in chain.tiles}) == 1


def _with(body: Sequence[Item], changed: Mapping[int, TimeTiles]) -> Iterator[Item]:
    for item in body:
        if isinstance(item, Repeat):
            yield replace(item, body=tuple(_with(item.body, changed)))
        else:
            yield changed.get(id(item), item) if isinstance(item, TimeTiles) else item


def _chains(cutter: Cutter, pieces: Pieces, run: Sequence[TimeTiles]) -> Iterator[_Chain]:
    """As many neighbours together as may be."""
    start = 0
    while start < len(run):
        end, found = start + 1, None
        while end < len(run) and (longer := _chain(cutter, pieces, run[start : end + 1])) is not None:
            end, found = end + 1, longer
        if found is not None:
            yield found
        start = end


def _chain(cutter: Cutter, pieces: Pieces, run: Sequence[TimeTiles]) -> _Chain | None:
    """Tiles as a chain, if each has straight edges and all steps, and no row needs another row of the others."""
    blocks = []
    for tiles in run:
        block = block_of(cutter, pieces, tiles.repeat)
        plain = not tiles.leans and tiles.lanes is None and tiles.columns is None
        if block is None or not plain or not block.stays or tiles.height < block.length:
            return None
        blocks.append(block)
    chain = _Chain(tuple(run), tuple(blocks))
    touched = [
        (place, list(accesses_of(cutter, pieces, number, cutter.function.statements[number], row)))
        for number, place, row in chain.statements
    ]
    for place, earlier in touched:
        for other, later in touched:
            if place < other and any(_leaves(a, b, chain.depth) for a, w in earlier for b, v in later if w or v):
                return None
    return chain


def _leaves(one: isl.Map, other: isl.Map, depth: int) -> bool:
    """Whether two accesses meet in an element in one turn of the steps around, but in different rows."""
    if one.get_tuple_name(isl.dim_type.out) != other.get_tuple_name(isl.dim_type.out):
        return False
    meeting = one.apply_range(other.reverse())
    names = [f"a{d}" for d in range(meeting.dim(_IN))], [f"b{d}" for d in range(meeting.dim(isl.dim_type.out))]
    same = [f"{a} = {b}" for a, b in zip(names[0][:depth], names[1][:depth], strict=True)]
    apart = " and ".join([*same, f"{names[0][-1]} != {names[1][-1]}"])
    where = isl.Map(f"{{ [{', '.join(names[0])}] -> [{', '.join(names[1])}] : {apart} }}")
    return not meeting.intersect(where).is_empty()


def _rows(cutter: Cutter, chain: _Chain) -> tuple[int, int]:
    ends = [range_of(block, cutter, block.rows) for block in chain.blocks]
    return min(low for low, _ in ends), max(high for _, high in ends)


@dataclass(frozen=True, slots=True, eq=False)
class _Use:
    """How a chain uses a tensor: along which dimension its rows lie, what it writes, and what it reads of others."""

    dimension: int
    written: isl.Set
    copied: isl.Set


def _kept(cutter: Cutter, pieces: Pieces, chains: Sequence[_Chain]) -> list[tuple[OwnStrip, ...]]:
    """For each chain the tensors that it may keep in strips."""
    found: list[list[OwnStrip]] = [[] for _ in chains]
    for storage in pieces.storages.values():
        if storage.role != "temporary" or storage.name in pieces.folds or len(storage.strides) < 2:
            continue
        uses = [_use(cutter, chain, storage.name) for chain in chains]
        inside = {n for chain, use in zip(chains, uses, strict=True) if use for n, _, _ in chain.statements}
        written = [use.written for use in uses if use is not None]
        if not written:
            continue
        whole = functools.reduce(isl.Set.union, written)
        outside = [use.copied for use in uses if use is not None]
        others = [_touched(cutter, n, storage.name) for n in range(len(cutter.function.statements)) if n not in inside]
        if any(o is None or not o.is_disjoint(whole) for o in (*others, *outside)):
            continue
        for number, use in enumerate(uses):
            copied = None if use is None else _slices(use)
            if use is not None and copied is not None:
                found[number].append(OwnStrip(storage.name, use.dimension, copied))
    return [tuple(own) for own in found]


def _touched(cutter: Cutter, number: int, tensor: str) -> isl.Set | None:
    """What a statement reads of a tensor; None where that is not known."""
    statement = cutter.function.statements[number]
    if statement.target == tensor and (statement.reduction is not None or statement.scatters):
        return None
    frame = Frame(cutter.ranges.domains[number].domain, cutter.values, cutter.ranges.boxes)
    found = _nothing(cutter, tensor)
    for expr in statement.expressions():
        for read in (e for e in walk(expr) if isinstance(e, Read) and e.tensor == tensor):
            if read.boundary is not None:
                return None
            found = found.union(element_map(frame, tensor, read.subscripts).range())
    return found


def _nothing(cutter: Cutter, tensor: str) -> isl.Set:
    rank = len(cutter.ranges.boxes[tensor].extent)
    return isl.Set(f"{{ {tensor}[{', '.join(f'x{d}' for d in range(rank))}] : false }}")


def _use(cutter: Cutter, chain: _Chain, tensor: str) -> _Use | None:
    """How a chain uses a tensor, if each row writes and reads its own, and what is written is written first."""
    along: set[int] = set()
    for number, place, row in chain.statements:
        statement, fixed = cutter.function.statements[number], chain.blocks[place].piece.slices
        for subscripts in _subscripts(statement, tensor):
            dims = [d for d, s in enumerate(subscripts) if isinstance(s, Index) and s.name == row]
            cut = next((c for c in fixed.values() if c.tensor == tensor), None)
            if len(dims) != 1 or cut is None or len(cut.at) != len(subscripts) - 1:
                return None
            along |= {*dims}
    writers = [n for n, _, _ in chain.statements if cutter.function.statements[n].target == tensor]
    if len(along) != 1 or not writers:
        return None
    rows = {n: row for n, _, row in chain.statements}
    writes = {n: _places(cutter, n, rows[n], tensor, cutter.function.statements[n].subscripts) for n in writers}
    written = functools.reduce(isl.Set.union, [w.range() for w in writes.values()])
    copied = _nothing(cutter, tensor)
    order = {n: (place, k) for k, (n, place, _) in enumerate(chain.statements)}
    for number, _, _ in chain.statements:
        statement = cutter.function.statements[number]
        frame = Frame(cutter.ranges.domains[number].domain, cutter.values, cutter.ranges.boxes)
        for read, where in guarded_reads(frame, statement.value):
            if read.tensor != tensor:
                continue
            access = _places(cutter, number, rows[number], tensor, read.subscripts, where)
            copied = copied.union(access.range().subtract(written))
            wanted = access.intersect_range(written).domain()
            for writer, write in writes.items():
                pairs = access.apply_range(write.reverse())
                before = _before(chain.depth, order[writer], order[number])
                wanted = wanted.subtract(pairs.intersect(before).domain())
            if not wanted.is_empty():
                return None
    return _Use(along.pop(), written, copied)


def _subscripts(statement: Statement, tensor: str) -> Iterator[Sequence[object]]:
    if statement.target == tensor:
        yield statement.subscripts
    for expr in statement.expressions():
        for read in walk(expr):
            if isinstance(read, Read) and read.tensor == tensor:
                yield read.subscripts


def _places(
    cutter: Cutter, number: int, row: str | int, tensor: str, subscripts: tuple[Expr, ...], where: Frame | None = None
) -> isl.Map:
    """From steps and row of a statement to the element at some subscripts."""
    statement, domain = cutter.function.statements[number], cutter.ranges.domains[number].domain
    names = [f"i{d}" for d in range(domain.dim(_SET))]
    own = row if isinstance(row, int) else names[statement.indices.index(row)]
    at = ", ".join([*names[: len(statement.steps)], str(own)])
    text = f"{{ {domain.get_tuple_name()}[{', '.join(names)}] -> [{at}] }}"
    frame = where or Frame(domain, cutter.values, cutter.ranges.boxes)
    access = element_map(frame, tensor, subscripts)
    return isl.Map(text).intersect_domain(frame.domain).reverse().apply_range(access)


def _before(depth: int, writer: tuple[int, int], reader: tuple[int, int]) -> isl.Map:
    """From instances of a reader to those of a writer that come before them, in one turn of the steps around."""
    around = [f"t{d}" for d in range(depth)]
    if writer[0] == reader[0]:
        when = "b <= a" if writer[1] < reader[1] else "b < a"
    else:
        when = "true" if writer[0] < reader[0] else "false"
    one, other = ", ".join([*around, "a", "r"]), ", ".join([*around, "b", "s"])
    return isl.Map(f"{{ [{one}] -> [{other}] : {when} }}")


def _slices(use: _Use) -> tuple[tuple[int, ...], ...] | None:
    """The slices that a strip copies: their coordinates in all dimensions but that of the rows; None for too many."""
    left = use.copied.project_out(_SET, use.dimension, 1)
    found: list[tuple[int, ...]] = []
    while not left.is_empty():
        if len(found) == MOST_COPIED:
            return None
        point = left.sample_point()
        found.append(tuple(point.get_coordinate_val(_SET, d).to_python() for d in range(left.dim(_SET))))
        left = left.subtract(isl.Set.from_point(point))
    return tuple(sorted(found))


def _width(pieces: Pieces, chain: _Chain, own: Sequence[OwnStrip], room: Room) -> int:
    """How many rows a strip has, so that what it keeps stays in a cache; 0 for too few, or where it keeps nothing."""
    row = sum(pieces.storages[o.tensor].bytes // pieces.storages[o.tensor].box.extent[o.dimension] for o in own)
    strips = all(tile.width < tile.rows[1] - tile.rows[0] for tile in chain.tiles)
    width = min(*(tile.width for tile in chain.tiles), room.tile // max(1, row))
    beside = max(beside_each_other(block, pieces, room) for block in chain.blocks)
    return width // beside * beside if own and strips else 0


def _made(
    cutter: Cutter, pieces: Pieces, chain: _Chain, own: Sequence[OwnStrip], rows: tuple[int, int], width: int
) -> tuple[list[TimeTiles], dict[str, Storage]]:  # fmt: skip
    """The tiles that run together, with pieces that see what a strip keeps, and how that lies."""
    storages, named = dict[str, Storage](), dict[str, str]()
    kept: list[OwnStrip] = []
    for each in own:
        storage, name = pieces.storages[each.tensor], f"{each.tensor}_of_strip"
        while name in {*cutter.tensors, *cutter.values, *pieces.storages}:
            name += "_"
        others = tuple(d for d in range(len(storage.strides)) if d != each.dimension)
        extent = tuple(width if d == each.dimension else e for d, e in enumerate(storage.box.extent))
        storages[name] = replace(storage, name=name, strides=contiguous_strides(extent, others))
        named[each.tensor] = name
        kept.append(replace(each, name=name))
    seen = {tensor: replace(storages[name], name=tensor) for tensor, name in named.items()}
    made = []
    for place, (tiles, block) in enumerate(zip(chain.tiles, chain.blocks, strict=True)):
        parts = []
        for number, row in zip(block.piece.numbers, block.rows, strict=True):
            piece = cutter.piece((number,), cutter.function.statements[number].steps, Part((row,)), seen)
            assert piece is not None, "the same part was made before"
            slices = {v: replace(c, tensor=named.get(c.tensor, c.tensor)) for v, c in piece.slices.items()}
            parts.append(replace(piece, slices=slices))
        first = place == 0
        made.append(
            replace(tiles, pieces=tuple(parts), rows=rows, width=width, follows=not first, own=tuple(kept) * first)
        )
    return made, storages
