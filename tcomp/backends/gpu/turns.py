"""The loop over the turns of a tile, which may begin behind the first and end before the last of all.

What a turn leaves for the next one, the first has from in front of the loop.  The program chooses, ``part > 0 ?
O(part-1) * scale(part) : 0``; of such a choice for each element the compiler makes one that clears all registers of a
sum in every turn and jumps over their scaling in the first.  So they are cleared in front of the loop, the scale is
zero in the first turn, and nothing is chosen.  A maximum so far begins as the lowest number there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tcomp.backends.dialect import bare, constant_text, store
from tcomp.backends.gpu.words.spelling import expression_text
from tcomp.backends.gpu.writer import KernelWriter
from tcomp.grammar.tree.function import Binary, Constant, Expr, Index, Read, Select
from tcomp.loops.codegen import quasi_affine_expression
from tcomp.loops.indexing import Ranges
from tcomp.loops.ir import For, Number, Operation, Scope, Variable
from tcomp.mapping.plan.values import Group
from tcomp.mapping.rescaling.inturn import begins
from tcomp.model.scop import ScopStatement
from tcomp.values.operators import FLOAT32, INT64


def turns_of_tile(writer: KernelWriter, node: For, depth: int, ranges: Ranges) -> tuple[For, Ranges]:
    """A loop, over those turns alone of which its tile sees anything if that is what it runs over.

    What the first turn of all takes in place of what one before it left is put in front of it where threads keep that.
    The first turn that a tile sees is declared there, too, and what else begins anew in the first turn does so in it.
    """
    body = node.body
    if not isinstance(body, Scope) or not body.name.startswith("turn"):
        return node, ranges
    group = writer.plan.groups[int(body.name.removeprefix("turn"))]
    assert ranges.simplify(node.lower) == Number(0), "a tile has one loop over all turns"
    _hand_on(writer, group, depth, ranges)
    if group.seen is not None:
        node = replace(node, upper=Operation("min", (node.upper, quasi_affine_expression(group.seen, body.around))))
    if group.first is None:
        return node, ranges
    first = ranges.simplify(quasi_affine_expression(group.first, body.around))
    turns = ranges.bounds(node.lower), ranges.bounds(node.upper)
    assert turns[0] is not None and turns[1] is not None, "tiles are of turns that are counted"
    # It is proved to be one of them.
    bounds = turns[0][0], turns[1][1] - 1
    name = writer.fresh("first")
    writer.put(depth, f"const {writer.dialect.index} {name} = {expression_text(first, ranges)};")
    writer.firsts |= {name: Variable(name)}
    writer.statements = {**writer.statements, **_begun(writer, group, name)}
    return replace(node, lower=Variable(name)), ranges.knowing(name, *bounds)


def _begun(writer: KernelWriter, group: Group, first: str) -> dict[str, ScopStatement]:
    """The statements that begin anew in the first turn, with the name of that in their conditions."""
    found: dict[str, ScopStatement] = {}
    for name in (s for c in group.turns for s in writer.plan.clusters[c].statements):
        statement = writer.statements[name]
        value = begins(statement)
        if value is not None:
            test = value.condition
            assert isinstance(test, Binary)
            test = replace(test, rhs=Index(first, INT64, test.span))
            found[name] = replace(statement, value=replace(value, condition=test))
    return found


def _hand_on(writer: KernelWriter, group: Group, depth: int, ranges: Ranges) -> None:
    """Put in front of the loop what the first turn takes, and leave out choices between that and what others take."""
    own = [writer.statements[s] for c in group.turns for s in writer.plan.clusters[c].statements]
    starts = {s.name: found for s in own if (found := _start(writer, s)) is not None}
    scales = {start.scale for start in starts.values()} - {None}
    made = {s.target: s for s in own if s.target in scales}
    changed: dict[str, ScopStatement] = {}
    for name, start in starts.items():
        if start.scale is not None and not _becomes_zero(writer, made[start.scale], starts):
            continue
        statement = writer.statements[name]
        changed[name] = replace(statement, value=start.others)
        if start.scale is not None:
            scale = made[start.scale]
            zero = Constant(0.0, FLOAT32, scale.value.span)
            value = replace(start.choice, then=scale.value, otherwise=zero, dtype=FLOAT32)
            changed[scale.name] = replace(scale, value=value)
            writer.chosen |= {scale.name}
        _begin(writer, start, depth, ranges)
    writer.statements = {**writer.statements, **changed}


@dataclass(frozen=True, slots=True)
class _Start:
    """What a statement makes of a ``carried`` storage, times a ``scale`` or as it is, and takes in the first turn."""

    choice: Select
    carried: str
    scale: str | None

    @property
    def others(self) -> Expr:
        """The value in all turns but the first."""
        return self.choice.then


def _start(writer: KernelWriter, statement: ScopStatement) -> _Start | None:
    """How a statement goes on from the turn before, if threads have what that has left in registers."""
    choice = begins(statement)
    if choice is None or not isinstance(choice.otherwise, Constant):
        return None
    match choice.then:
        case Read(tensor=carried) if carried != statement.target:
            scale = None
        case Binary(op="*", lhs=Read(tensor=carried), rhs=Read(tensor=scale)) if choice.otherwise.value == 0:
            pass
        case _:
            return None
    local = writer.locals.get(carried)
    kept = local is not None and local.buffer.space == "private" and bool(local.buffer.folded)
    return _Start(choice, carried, scale) if kept else None


def _becomes_zero(writer: KernelWriter, scale: ScopStatement, starts: Mapping[str, _Start]) -> bool:
    """Whether a scale may be zero in the first turn: only sums that are zero then take it, and no branch is needed."""
    users = {s.name for s in writer.plan.scop.users[scale.target]} - {scale.name}
    alone = all(name in starts and starts[name].scale == scale.target for name in users)
    clusters = {phase.cluster for phase in writer.plan.phases.values() if phase.everywhere}
    everywhere = any(scale.name in writer.plan.clusters[number].statements for number in clusters)
    return alone and everywhere and writer.dialect.lanes > 0 and scale.value.dtype == FLOAT32


def _begin(writer: KernelWriter, start: _Start, depth: int, ranges: Ranges) -> None:
    """The first values of what is carried, in registers."""
    local, first = writer.locals[start.carried], start.choice.otherwise
    assert isinstance(first, Constant)
    extents = [e for e in local.buffer.shape if e > 1]
    element, comment = local.name, "  // in front of the first turn"
    for number, extent in enumerate(extents):
        i = writer.unlike(f"own_{number}" if number else "own", ranges)
        writer.put(depth, "#pragma unroll")
        writer.put(depth, f"for ({writer.dialect.index} {i} = 0; {i} < {extent}; ++{i}) {{{comment}")
        element, depth, comment = f"{element}[{i}]", depth + 1, ""
    value = constant_text(first.value, local.buffer.dtype, writer.dialect)
    writer.put(depth, f"{element} = {bare(store(value, local.buffer.dtype, writer.dialect))};{comment}")
    for _ in extents:
        depth -= 1
        writer.put(depth, "}")
