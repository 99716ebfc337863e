"""The C text of one instance of a statement, where no vectors are made of several."""

from __future__ import annotations

from collections.abc import Callable

from tcomp.backends.c.atomics import atomic_update
from tcomp.backends.c.vectors.values import computed_type
from tcomp.backends.c.vectors.widening import NARROWED
from tcomp.backends.dialect import combine, load, store
from tcomp.backends.spelling import Speller, loop_text
from tcomp.backends.stretches import PLACE, sent
from tcomp.grammar.tree.dataranges import inside_ranges, ranges_of
from tcomp.grammar.tree.function import Cast
from tcomp.loops.ir import Execute, Operation
from tcomp.model.scop import Scop
from tcomp.values.operators import FLOAT32


def executed(node: Execute, scop: Scop, speller_of: Callable[[str, dict[str, str]], Speller]) -> str:
    """The text of a call of a statement; ``speller_of`` spells its instance with some indices."""
    statement = scop.by_name[node.statement]
    bound: dict[str, str] = {}
    declared: list[str] = []
    for position, (index, argument) in enumerate(zip(statement.indices, node.arguments, strict=True)):
        if position < statement.tile_rank:
            continue
        text = loop_text(argument)
        if isinstance(argument, Operation):
            declared.append(f"const long i_{index} = {text};")
            text = f"i_{index}"
        bound[index] = text
    speller = speller_of(statement.name, bound)
    inside = ""
    way = sent(statement, speller)
    if way is not None:
        declared.append(f"const long {PLACE} = {way.place};")
        inside, speller = f"if ({way.inside}) ", way.speller
    dtype = scop.storages[statement.target].dtype
    target = speller.written(statement.target, statement.subscripts)
    expr, asked = statement.value, ""
    if statement.scatters and ranges_of(expr):
        asked = " && ".join(map(speller.value, ranges_of(expr)))
        expr = inside_ranges(expr)
    if isinstance(expr, Cast) and expr.dtype == dtype in NARROWED and computed_type(expr.operand.dtype) == FLOAT32:
        expr = expr.operand  # storing it is the conversion
    value = speller.value(expr)
    if statement.reduction is not None and statement.atomic:
        text = atomic_update(statement.reduction, target, value, dtype)
    else:
        if statement.reduction is not None:
            value = combine(statement.reduction, load(target, dtype), value, dtype)
        text = f"{target} = {store(value, dtype)};"
    text = f"{inside}{'if (' * bool(asked)}{asked}{') ' * bool(asked)}{text}"
    return f"{{ {' '.join(declared)} {text} }}" if declared else text
