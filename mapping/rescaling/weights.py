"""Which statements are weights relative to a maximum, ``p(i,j) = exp(c*(s(i,j) - m(i)))``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import islpy as isl

from tcomp.errors import SourceText
from tcomp.grammar.ranges.affine import to_set
from tcomp.grammar.tree.function import (
    Binary,
    Call,
    Cast,
    Constant,
    Expr,
    Index,
    Read,
    Select,
    Size,
    Unary,
    map_children,
    walk,
)
from tcomp.model.evaluation import Frame as Values
from tcomp.model.evaluation import evaluate
from tcomp.model.scop import Scop, ScopStatement
from tcomp.values.operators import BOOL, INT64

LOW = 1e30
"""A score that is below all others by so much counts nothing."""


@dataclass(frozen=True, slots=True)
class Weights:
    """A statement of weights, the maximum that they are relative to, and the sums that use them.

    ``rows`` are the indices of the weights that the maximum has, in its order, ``step`` is the one it is taken over.
    ``core`` is ``exp(c*(score - maximum))``, which is the weight, perhaps where a condition holds, and 0 elsewhere.
    ``top`` is the tensor that the maximum is read from.  ``total`` is the sum of the weights alone, if there is one.
    ``rounded`` says that scores, weights or what sums take of these are floats of different types.  ``lowered`` says
    that the maximum is one of low numbers where the condition makes weights 0, or that scores themselves are.
    ``shown`` is where these are not, None for everywhere.
    """

    statement: ScopStatement
    maximum: ScopStatement
    rows: tuple[str, ...]
    step: str
    core: Expr
    score: Expr
    top: str
    sums: tuple[ScopStatement, ...]
    total: ScopStatement | None
    rounded: bool = False
    lowered: bool = False
    shown: Expr | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def seen(self) -> isl.Set:
        """The instances whose weights are not 0, as far as conditions on indices tell.

        Scores that are low numbers give weights that are 0 where a row has others.
        """
        found = self.statement.domain
        for position, index in enumerate(self.statement.indices):
            found = found.set_dim_name(isl.dim_type.set, position, index)
        for condition in (unconditional(unrounded(self.statement.value))[0], self.shown):
            where = None if condition is None else to_set(condition, found.get_space(), self.sizes)
            found = found if where is None else found.intersect(where)
        return found

    @property
    def hides(self) -> bool:
        """Whether a condition on indices makes weights 0."""
        return not self.seen.is_equal(self.statement.domain)

    @property
    def sees_all_rows(self) -> bool:
        """Whether each row has weights that are not made 0."""
        step = self.statement.indices.index(self.step)
        rows, seen = (s.project_out(isl.dim_type.set, step, 1) for s in (self.statement.domain, self.seen))
        return bool(rows.is_equal(seen))

    @property
    def steps(self) -> tuple[int, int]:
        """The first step, and how many there are."""
        position = self.statement.indices.index(self.step)
        return self.statement.domain.dim_min_val(position).to_python(), self.statement.extents[position]


def weights_of(scop: Scop, name: str) -> Weights | None:
    """What is to be known of weights to compute them in parts; None if they are none, or not only summed."""
    statement = scop.by_name[name]
    condition, core = unconditional(unrounded(statement.value))
    core = unrounded(core)
    exponent = _exponent(core)
    difference = None if exponent is None else _difference(exponent, scop)
    if (
        difference is None
        or statement.kind != "assign"
        or not statement.plain
        or statement.coordinates != len(statement.subscripts)
        or scop.storages[statement.target].role != "temporary"
        or statement.domain.is_empty()
    ):
        return None
    score, top, factor = difference
    maximum = _maximum(scop, top.tensor)
    if maximum is None or maximum.reduction != "max" or not maximum.plain or maximum.reduction_rank != 1:
        return None
    rows = tuple(s.name for s in top.subscripts if isinstance(s, Index))
    left = [i for i in statement.indices if i not in rows]
    if not rows or len(rows) != len(top.subscripts) or len({*rows}) != len(rows) or len(left) != 1:
        return None
    names = dict(zip(maximum.indices, (*rows, left[0]), strict=True))
    if not _same_values(maximum, statement, names, score, condition):
        return None
    users = [s for s in scop.users[statement.target] if s is not statement]
    if not users or not all(_is_weighted_sum(s, statement, rows, left[0]) for s in users):
        return None
    total = next((s for s in users if isinstance(_unconverted(s.value), Read) and s.reduction_rank == 1), None)
    casts = [e for s in users for e in walk(s.value) if isinstance(e, Cast)]
    rounded = len({score.dtype, core.dtype, statement.value.dtype}) > 1 or any(
        isinstance(e := _unconverted(cast), Read) and e.tensor == statement.target for cast in casts
    )
    hidden = lowered(score) if _counts_nothing(factor) else None
    low, shown = not _is_plain(maximum, names, score) or hidden is not None, hidden and hidden.condition
    return Weights(
        statement, maximum, rows, left[0], core, score, top.tensor, tuple(users), total, rounded, low, shown, scop.sizes
    )


def scores_of(scop: Scop, weights: Weights) -> dict[str, tuple[int, ...]]:
    """The temporaries that scores are made of, for weights and their maximum alone.

    For each of its dimensions, which of the rows of the weights it is, by number, or -1 for their step.  Some of what
    they are made of is no such temporary; then it is computed before.
    """
    found: dict[str, tuple[int, ...]] = {}
    known = {weights.statement.name, weights.maximum.name}
    waiting = [(weights.score, {r: n for n, r in enumerate(weights.rows)} | {weights.step: -1})]
    while waiting:
        expr, named = waiting.pop()
        for read in (e for e in walk(expr) if isinstance(e, Read)):
            places = _places(scop, read, named)
            if places is None or read.tensor in found:
                continue
            writers = [s for s in scop.users[read.tensor] if s.target == read.tensor]
            if sorted(places) == list(range(-1, len(weights.rows))) and all(map(_writes_elements, writers)):
                found[read.tensor] = places
                known |= {s.name for s in writers}
                waiting += [(s.value, dict(zip(s.indices, places, strict=False))) for s in writers]
    while strange := [n for n in found if any(not _reads_alike(s, n, known) for s in scop.users[n])]:
        for name in strange:
            del found[name]
            known -= {s.name for s in scop.users[name] if s.target == name}
    return found


def _places(scop: Scop, read: Read, named: Mapping[str, int]) -> tuple[int, ...] | None:
    """Which of the named indices each subscript of what is read of a temporary is; None if one is none."""
    names = [s.name for s in read.subscripts if isinstance(s, Index)]
    if scop.storages[read.tensor].role != "temporary" or read.boundary is not None:
        return None
    fits = len(names) == len(read.subscripts) and all(n in named for n in names)
    return tuple(named[n] for n in names) if fits else None


def _writes_elements(statement: ScopStatement) -> bool:
    return statement.plain and not statement.scatters and statement.tile_rank == 0


def _reads_alike(statement: ScopStatement, storage: str, known: set[str]) -> bool:
    """Whether a statement is known, and reads a storage in one way."""
    reads = {e for e in walk(statement.value) if isinstance(e, Read) and e.tensor == storage}
    return statement.name in known and len(reads) <= 1


def _maximum(scop: Scop, tensor: str) -> ScopStatement | None:
    """The update that takes a maximum which is then read from a tensor: one that is stored there as it is, or it."""
    for statement in scop.statements:
        if statement.target == tensor and statement.kind == "update":
            return statement
        if statement.target == tensor and statement.kind == "finish" and isinstance(statement.value, Read):
            value = statement.value
            return _maximum(scop, value.tensor) if value.subscripts == statement.subscripts else None
    return None


def unconditional(value: Expr) -> tuple[Expr | None, Expr]:
    """Where a weight is not 0, None for everywhere, and what it is there."""
    if isinstance(value, Select) and isinstance(value.otherwise, Constant) and value.otherwise.value == 0:
        return value.condition, value.then
    return None, value


def unrounded(value: Expr) -> Expr:
    """A float before it was rounded to a shorter one: by a share of itself, whatever it is relative to."""
    if isinstance(value, Cast) and _is_converted(value) and value.dtype.bits < value.operand.dtype.bits:
        return unrounded(value.operand)
    return value


def _unconverted(value: Expr) -> Expr:
    """A float before it was converted to other floats."""
    return _unconverted(value.operand) if isinstance(value, Cast) and _is_converted(value) else value


def _is_converted(value: Cast) -> bool:
    return value.dtype.is_float and value.operand.dtype.is_float


def _exponent(value: Expr) -> Expr | None:
    return value.arguments[0] if isinstance(value, Call) and value.intrinsic == "exp" and value.dtype.is_float else None


def _difference(expr: Expr, scop: Scop) -> tuple[Expr, Read, float] | None:
    """The score and the read of the maximum in ``(score - maximum)``, times what is known and positive, and that.

    Both may be halves that are read as longer floats, which changes no value.
    """
    if isinstance(expr, Binary) and expr.op in ("*", "/"):
        for rest, other in ((expr.lhs, expr.rhs), (expr.rhs, expr.lhs))[: 2 if expr.op == "*" else 1]:
            factor = _positive(other, scop)
            if factor is not None:
                found = _difference(rest, scop)
                return found and (*found[:2], found[2] * factor if expr.op == "*" else found[2] / factor)
        return None
    if not isinstance(expr, Binary) or expr.op != "-":
        return None
    score, top = expr.lhs, expr.rhs
    while isinstance(score, Cast) and isinstance(top, Cast) and _is_widened(score) and _is_widened(top):
        score, top = score.operand, top.operand
    return (score, top, 1.0) if isinstance(top, Read) and top.boundary is None and score.dtype == top.dtype else None


def _counts_nothing(factor: float) -> bool:
    """Whether a score of a low number has a weight of 0 in a row with one half as low, for a factor of both."""
    return math.exp(-factor * LOW / 2) == 0


def _is_widened(value: Cast) -> bool:
    return _is_converted(value) and value.dtype.bits > value.operand.dtype.bits


def _positive(expr: Expr, scop: Scop) -> float | None:
    """The value of an expression of constants and sizes that is a positive number, as a float of its type."""
    if not all(isinstance(e, Constant | Size | Cast | Binary | Call) for e in walk(expr)):
        return None
    value = float(evaluate(expr, Values({}, scop.sizes, {}, SourceText(""))))
    return value if 0 < value < float("inf") else None


def _same_values(
    maximum: ScopStatement, weights: ScopStatement, names: Mapping[str, str], score: Expr, condition: Expr | None
) -> bool:
    """Whether a maximum is that of the scores of some weights, of all of them and of no others.

    Where weights are 0 under a condition, it may be that of a number there which is below every score.
    """
    indices = {old: Index(new, INT64, score.span) for old, new in names.items()}
    value = _renamed(maximum.value, indices)
    if condition is not None and isinstance(value, Select) and value.condition == condition:
        value = value.then if is_low(value.otherwise) else value
    if value != score:
        return False
    order = ", ".join(f"i{weights.indices.index(names[old])}" for old in maximum.indices)
    own = ", ".join(f"i{d}" for d in range(len(weights.indices)))
    turn = isl.Map(f"{{ {weights.name}[{own}] -> {maximum.name}[{order}] }}")
    return bool(weights.domain.apply(turn).is_equal(maximum.domain))


def _is_plain(maximum: ScopStatement, names: Mapping[str, str], score: Expr) -> bool:
    """Whether a maximum is that of the scores themselves."""
    return _renamed(maximum.value, {old: Index(new, INT64, score.span) for old, new in names.items()}) == score


def lowered(score: Expr) -> Select | None:
    """A score that is a low number where a condition does not hold, and none where it does.

    Of one within another the condition is that both hold: a row of which all others see low numbers has no others.
    """
    if not isinstance(score, Select) or not is_low(score.otherwise):
        return None
    inner = lowered(score.then)
    if inner is not None:
        both = Binary("&&", score.condition, inner.condition, BOOL, score.span)
        return Select(both, inner.then, score.otherwise, score.dtype, score.span)
    return None if any(map(is_low, walk(score.then))) else score


def is_low(expr: Expr) -> bool:
    """Whether an expression is a number that stands for a score which counts nothing."""
    if isinstance(expr, Unary) and expr.op == "-" and isinstance(expr.operand, Constant):
        return expr.operand.value >= LOW
    return isinstance(expr, Constant) and expr.value <= -LOW


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
    if _unconverted(expr) is read:
        return True
    if not isinstance(expr, Binary) or expr.op != "*":
        return False
    return _is_factor(expr.lhs, read) or _is_factor(expr.rhs, read)
