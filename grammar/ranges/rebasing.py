"""Which dimensions of a tensor begin in memory where a statement first writes them, and not at 0."""

from __future__ import annotations

from collections import Counter

from tcomp.grammar.tree.function import Binary, Constant, Expr, Function, Index, Size, Statement, children, walk


def rebased_dimensions(function: Function, statement: Statement) -> list[bool]:
    """For each subscript on the left, whether it names an index alone, or one that is moved by numbers and sizes.

    The latter counts only where no other statement writes the tensor, nor the caller: what is below belongs to them.
    """
    names = [{e.name for e in walk(s) if isinstance(e, Index)} for s in statement.subscripts]
    mentioned = Counter(name for own in names for name in own)
    plain = [s.name if isinstance(s, Index) else None for s in statement.subscripts]
    alone = None in plain and _writes_alone(function, statement)
    moved = [_moved_index(s) if alone else None for s in statement.subscripts]
    return [
        (name is not None and plain.count(name) == 1) or (other is not None and mentioned[other] == 1)
        for name, other in zip(plain, moved, strict=True)
    ]


def _writes_alone(function: Function, statement: Statement) -> bool:
    """Whether nobody else writes what a statement does."""
    writers = sum(other.target == statement.target for other in function.statements)
    return writers == 1 and statement.target not in function.needs_content


def _moved_index(subscript: Expr) -> str | None:
    """The one index of a sum of it and what has none."""
    match subscript:
        case Index():
            return subscript.name
        case Binary(op="+"):
            sides = ((subscript.lhs, subscript.rhs), (subscript.rhs, subscript.lhs))
            return next((_moved_index(one) for one, other in sides if _is_fixed(other)), None)
        case Binary(op="-") if _is_fixed(subscript.rhs):
            return _moved_index(subscript.lhs)
        case Binary(op="-") if _is_fixed(subscript.lhs):
            return _moved_index(subscript.rhs)
        case _:
            return None


def _is_fixed(expr: Expr) -> bool:
    """Whether an expression is made of numbers and sizes alone."""
    return isinstance(expr, Constant | Size) or (bool(children(expr)) and all(map(_is_fixed, children(expr))))
