"""The loop over the turns of a tile, which may begin behind the first and end before the last of all."""

from __future__ import annotations

from dataclasses import replace

from tcomp.backends.gpu.words.spelling import expression_text
from tcomp.backends.gpu.writer import KernelWriter
from tcomp.grammar.tree.function import Binary, Index
from tcomp.loops.codegen import quasi_affine_expression
from tcomp.loops.indexing import Ranges
from tcomp.loops.ir import For, Operation, Scope, Variable
from tcomp.mapping.plan.values import Group
from tcomp.mapping.rescaling.inturn import begins
from tcomp.model.scop import ScopStatement
from tcomp.values.operators import INT64


def turns_of_tile(writer: KernelWriter, node: For, depth: int, ranges: Ranges) -> tuple[For, Ranges]:
    """A loop, over those turns alone of which its tile sees anything if that is what it runs over.

    The first of them is declared in front of it, and what begins anew in the first turn of all begins anew there.
    """
    body = node.body
    if not isinstance(body, Scope) or not body.name.startswith("turn"):
        return node, ranges
    group = writer.plan.groups[int(body.name.removeprefix("turn"))]
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
