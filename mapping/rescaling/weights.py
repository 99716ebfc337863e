"""Which statements are weights relative to a maximum, ``p(i,j) = exp(c*(s(i,j) - m(i)))``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.errors import SourceText
from tcomp.grammar.tree.function import Binary, Call, Cast, Constant, Expr, Index, Read, Size, map_children, walk
from tcomp.model.evaluation import Frame as Values
from tcomp.model.evaluation import evaluate
from tcomp.model.scop import Scop, ScopStatement
from tcomp.values.operators import INT64


@dataclass(frozen=True, slots=True)
class Weights:
    """A statement of weights, the maximum that they are relative to, and the sums that use them.

    ``rows`` are the indices of the weights that the maximum has, in its order, ``step`` is the one it is taken over.
    ``top`` is the tensor that the maximum is read from.  ``total`` is the sum of the weights alone, if there is one.
    """

    statement: ScopStatement
    maximum: ScopStatement
    rows: tuple[str, ...]
    step: str
    score: Expr
    top: str
    sums: tuple[ScopStatement, ...]
    total: ScopStatement | None

    @property
    def steps(self) -> tuple[int, int]:
        """The first step, and how many there are."""
        position = self.statement.indices.index(self.step)
        return self.statement.domain.dim_min_val(position).to_python(), self.statement.extents[position]


def weights_of(scop: Scop, name: str) -> Weights | None:
    """What is to be known of weights to compute them in parts; None if they are none, or not only summed."""
    statement = scop.by_name[name]
    exponent = _exponent(statement.value)
    core = None if exponent is None else _difference(exponent, scop)
    if (
        core is None
        or statement.kind != "assign"
        or not statement.plain
        or statement.coordinates != len(statement.subscripts)
        or scop.storages[statement.target].role != "temporary"
        or statement.domain.is_empty()
    ):
        return None
    score, top = core
    maximum = _maximum(scop, top.tensor)
    if maximum is None or maximum.reduction != "max" or not maximum.plain or maximum.reduction_rank != 1:
        return None
    rows = tuple(s.name for s in top.subscripts if isinstance(s, Index))
    left = [i for i in statement.indices if i not in rows]
    if not rows or len(rows) != len(top.subscripts) or len({*rows}) != len(rows) or len(left) != 1:
        return None
    names = dict(zip(maximum.indices, (*rows, left[0]), strict=True))
    if not _same_values(maximum, statement, names, score):
        return None
    users = [s for s in scop.users[statement.target] if s is not statement]
    if not users or not all(_is_weighted_sum(s, statement, rows, left[0]) for s in users):
        return None
    total = next((s for s in users if isinstance(s.value, Read) and s.reduction_rank == 1), None)
    return Weights(statement, maximum, rows, left[0], score, top.tensor, tuple(users), total)


def _maximum(scop: Scop, tensor: str) -> ScopStatement | None:
    """The update that takes a maximum which is then read from a tensor: one that is stored there as it is, or it."""
    for statement in scop.statements:
        if statement.target == tensor and statement.kind == "update":
            return statement
        if statement.target == tensor and statement.kind == "finish" and isinstance(statement.value, Read):
            value = statement.value
            return _maximum(scop, value.tensor) if value.subscripts == statement.subscripts else None
    return None


def _exponent(value: Expr) -> Expr | None:
    return value.arguments[0] if isinstance(value, Call) and value.intrinsic == "exp" and value.dtype.is_float else None


def _difference(expr: Expr, scop: Scop) -> tuple[Expr, Read] | None:
    """The score and the read of the maximum in ``(score - maximum)``, times what is known and positive."""
    if isinstance(expr, Binary) and expr.op in ("*", "/"):
        if _is_positive(expr.rhs, scop):
            return _difference(expr.lhs, scop)
        return _difference(expr.rhs, scop) if expr.op == "*" and _is_positive(expr.lhs, scop) else None
    if isinstance(expr, Binary) and expr.op == "-" and isinstance(expr.rhs, Read) and expr.rhs.boundary is None:
        return expr.lhs, expr.rhs
    return None


def _is_positive(expr: Expr, scop: Scop) -> bool:
    """Whether an expression of constants and sizes is a positive number."""
    if not all(isinstance(e, Constant | Size | Cast | Binary | Call) for e in walk(expr)):
        return False
    value = float(evaluate(expr, Values({}, scop.sizes, {}, SourceText(""))))
    return 0 < value < float("inf")


def _same_values(maximum: ScopStatement, weights: ScopStatement, names: Mapping[str, str], score: Expr) -> bool:
    """Whether a maximum is that of the scores of some weights, of all of them and of no others."""
    indices = {old: Index(new, INT64, score.span) for old, new in names.items()}
    if _renamed(maximum.value, indices) != score:
        return False
    order = ", ".join(f"i{weights.indices.index(names[old])}" for old in maximum.indices)
    own = ", ".join(f"i{d}" for d in range(len(weights.indices)))
    turn = isl.Map(f"{{ {weights.name}[{own}] -> {maximum.name}[{order}] }}")
    return bool(weights.domain.apply(turn).is_equal(maximum.domain))


def _renamed(expr: Expr, indices: Mapping[str, Index]) -> Expr:
    if isinstance(expr, Index) and expr.name in indices:
        return replace(expr, name=indices[expr.name].name)
    return map_children(expr, lambda child: _renamed(child, indices))


def _is_weighted_sum(statement: ScopStatement, weights: ScopStatement, rows: tuple[str, ...], step: str) -> bool:
    """Whether a statement sums weights, times what does not depend on them, over their steps."""
    reads = [e for e in walk(statement.value) if isinstance(e, Read) and e.tensor == weights.target]
    if statement.kind != "update" or statement.reduction != "+" or not statement.plain or len(reads) != 1:
        return False
    names = [s.name for s in reads[0].subscripts if isinstance(s, Index)]
    if len({*names}) != len(weights.indices) or not _is_factor(statement.value, reads[0]):
        return False
    own = dict(zip(weights.indices, names, strict=True))
    results = statement.indices[: statement.coordinates]
    return own[step] not in results and all(own[row] in results for row in rows)


def _is_factor(expr: Expr, read: Read) -> bool:
    if expr is read:
        return True
    if not isinstance(expr, Binary) or expr.op != "*":
        return False
    return _is_factor(expr.lhs, read) or _is_factor(expr.rhs, read)
