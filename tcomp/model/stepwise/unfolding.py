"""Programs written so that their blocks may run in tiles over time: with a tensor for what a step computes in place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tcomp.grammar.tree.function import Function, Read, Statement, Tensor, walk


def with_tensors_between(function: Function) -> Function:
    """The function with two statements where a block writes what it reads at other elements: compute, then store.

    ``U(i) = U(i-1) + U(i+1)`` becomes ``U_next(i) = U(i-1) + U(i+1)`` and ``U(i) = U_next(i)``, which is what it means.
    """
    statements: list[Statement] = []
    made: list[Tensor] = []
    taken = set(function.tensors) | set(function.sizes)
    for statement in function.statements:
        if not _moves(statement):
            statements.append(statement)
            continue
        tensor = function.tensors[statement.target]
        name = f"{tensor.name}_next"
        while name in taken:
            name += "_"
        taken.add(name)
        made.append(Tensor(name, tensor.dtype, tensor.rank, None, "temporary", tensor.span))
        stored = Read(name, statement.subscripts, tensor.dtype, statement.span)
        statements += (replace(statement, target=name), replace(statement, value=stored))
    if not made:
        return function
    return replace(function, statements=tuple(statements), temporaries=(*function.temporaries, *made))


def _moves(statement: Statement) -> bool:
    """Whether a statement of a block reads its own target elsewhere, with indices alone as subscripts on the left."""
    if statement.reduction is not None or len(statement.steps) != 1:
        return False
    own = [r for r in _reads(statement) if r.tensor == statement.target]
    steps = {step.index for step in statement.steps}
    mentioned = {e.name for s in statement.subscripts for e in walk(s) if hasattr(e, "name")}
    return any(r.subscripts != statement.subscripts for r in own) and not mentioned & steps


def _reads(statement: Statement) -> Iterator[Read]:
    yield from (e for e in walk(statement.value) if isinstance(e, Read))
