"""How far apart in memory neighbouring instances touch: the basis for choosing the vector loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from weakref import WeakKeyDictionary

from tcomp.grammar.tree.dataranges import inside_ranges
from tcomp.grammar.tree.function import Binary, Cast, Constant, Expr, Index, Read, Size, Unary, depends_on_data, walk
from tcomp.model.scop import Scop, ScopStatement

Strides = tuple[int | None, ...]
"""The strides of the dimensions of an array; None for those that calls say."""


def coefficient(expr: Expr, index: str, sizes: Mapping[str, int]) -> int | None:
    """The coefficient of an index in an affine expression; 0 where it does not occur, None if it is not linear."""
    match expr:
        case Index():
            return int(expr.name == index)
        case Constant() | Size():
            return 0
        case Binary(op="+" | "-"):
            a, b = coefficient(expr.lhs, index, sizes), coefficient(expr.rhs, index, sizes)
            if a is None or b is None:
                return None
            return a + b if expr.op == "+" else a - b
    if not any(isinstance(e, Index) and e.name == index for e in walk(expr)):
        return 0
    match expr:
        case Cast() if _keeps_integers(expr):
            return coefficient(expr.operand, index, sizes)
        case Unary(op="-"):
            inner = coefficient(expr.operand, index, sizes)
            return None if inner is None else -inner
        case Binary(op="*"):
            return _scaled(expr.lhs, expr.rhs, index, sizes)
        case Binary(op="/") if constant_value(expr.rhs, sizes) == 1:
            return coefficient(expr.lhs, index, sizes)
        case Binary(op="%") if constant_value(expr.rhs, sizes) == 1:
            return 0
        case _:
            return None


def _scaled(lhs: Expr, rhs: Expr, index: str, sizes: Mapping[str, int]) -> int | None:
    for factor, other in ((lhs, rhs), (rhs, lhs)):
        value = constant_value(factor, sizes)
        inner = coefficient(other, index, sizes)
        if value is not None and inner is not None:
            return value * inner
    return None


def _keeps_integers(expr: Cast) -> bool:
    """Whether a conversion leaves what subscripts may be as it is."""
    return expr.dtype.is_integer and expr.dtype.bits >= 32 and expr.operand.dtype.is_integer


def constant_value(expr: Expr, sizes: Mapping[str, int]) -> int | None:
    """The value of a literal, size or const parameter, or a product of such; None for anything else."""
    match expr:
        case Constant(value=int() as value):
            return int(value)
        case Size():
            return sizes[expr.name]
        case Cast() if _keeps_integers(expr):
            return constant_value(expr.operand, sizes)
        case Binary(op="*"):
            a, b = constant_value(expr.lhs, sizes), constant_value(expr.rhs, sizes)
            return None if a is None or b is None else a * b
        case _:
            return None


def access_stride(
    scop: Scop, storage: str, subscripts: tuple[Expr, ...], index: str, sizes: Mapping[str, int]
) -> int | None:
    """Elements between the accesses of neighbouring values of ``index``; None where that is not constant."""
    return stride_of(subscripts, scop.storages[storage].strides, index, sizes)


def strides_along(scop: Scop, statement: ScopStatement, index: str, *, certain: bool = False) -> Strides:
    """The stride of the write, then of each read; with open sizes those of the largest arrays, unless they are to be
    ``certain``.

    Where no panel may be made of it, a quotient and rest that address one element count as what is divided.
    """
    return _along(scop, _addresses(scop, statement, certain), index)


def strides_of(scop: Scop, statement: ScopStatement) -> tuple[tuple[int | None, ...], ...]:
    """What ``strides_along`` gives for each index.  Several passes ask for the same."""
    known = _KNOWN.setdefault(scop, {})
    if statement not in known:
        addresses = list(_addresses(scop, statement))
        known[statement] = tuple(_along(scop, addresses, index) for index in statement.indices)
    return known[statement]


_KNOWN: WeakKeyDictionary[Scop, dict[ScopStatement, tuple[tuple[int | None, ...], ...]]] = WeakKeyDictionary()


Address = tuple[tuple[Expr | None, ...], Strides]
"""Subscripts, and the strides of their dimensions."""


def _along(scop: Scop, addresses: Iterable[Address], index: str) -> tuple[int | None, ...]:
    return tuple(stride_of(subscripts, strides, index, scop.sizes) for subscripts, strides in addresses)


def _addresses(scop: Scop, statement: ScopStatement, certain: bool = False) -> Iterator[Address]:
    """What the write addresses, then each read."""
    target = scop.storages[statement.target]
    yield statement.subscripts, target.known_strides if certain else target.strides
    for expr in walk(inside_ranges(statement.value)):
        if isinstance(expr, Read):
            storage = scop.storages[expr.tensor]
            strides: Strides = storage.known_strides if certain else storage.strides
            subscripts: tuple[Expr | None, ...] = expr.subscripts
            if statement.kind != "update" and expr.boundary is None:
                subscripts = flattened(subscripts, storage.box.extent, strides, scop.sizes)
            yield subscripts, strides


def flattened(
    subscripts: tuple[Expr | None, ...],
    extents: tuple[int, ...],
    strides: Strides,
    sizes: Mapping[str, int],
) -> tuple[Expr | None, ...]:
    """Subscripts that address the same element, where a quotient and the rest beside it are one: the rest's dividend.

    ``x / D`` and ``x % D`` address what ``x`` does where the strides of their dimensions are in the proportion of
    ``D``; the quotient is then None.  What depends on data stays, since each of its subscripts is checked.  So does a
    rest in a dimension of one element: it is 0, and nothing is said of that dimension in addresses.
    """
    found = list(subscripts)
    pairs = [(q, r) for q in range(len(found)) for r in range(len(found)) if q != r and extents[r] > 1]
    while True:
        met = ((q, r, _dividend(found[q], found[r], strides[q], strides[r], sizes)) for q, r in pairs)
        quotient, rest, dividend = next((m for m in met if m[2] is not None), (0, 0, None))
        if dividend is None:
            return tuple(found)
        found[quotient], found[rest] = None, dividend


def _dividend(
    quotient: Expr | None, rest: Expr | None, far: int | None, near: int | None, sizes: Mapping[str, int]
) -> Expr | None:
    """The number of which two subscripts are quotient and rest, if neighbouring numbers address neighbours.

    ``far`` and ``near`` are the strides of their dimensions.  The rest may be that of a quotient itself, or the number
    in the quotient a rest.
    """
    match quotient, rest:
        case Binary(op="/", lhs=whole, rhs=by), Binary(op="%", lhs=part, rhs=extent):
            divisor, count = constant_value(by, sizes), constant_value(extent, sizes)
            if not divisor or not count or min(divisor, count) < 0 or depends_on_data(whole):
                return None
            if far is None or near is None or far != count * near:
                return None
            if divisor == count and (whole == part or _is_rest(whole, part, count, sizes)):
                return whole
            inner = constant_value(part.rhs, sizes) if isinstance(part, Binary) and part.op == "/" else None
            nested = isinstance(part, Binary) and part.lhs == whole and inner is not None and inner > 0
            return part if nested and divisor == (inner or 0) * count else None
    return None


def _is_rest(whole: Expr, part: Expr, count: int, sizes: Mapping[str, int]) -> bool:
    """Whether a number is what another leaves by a multiple of ``count``."""
    if not (isinstance(whole, Binary) and whole.op == "%" and whole.lhs == part):
        return False
    by = constant_value(whole.rhs, sizes)
    return by is not None and by > 0 and by % count == 0


def stride_of(
    subscripts: tuple[Expr | None, ...], strides: Strides, index: str, sizes: Mapping[str, int]
) -> int | None:
    """Elements between the accesses of neighbouring values of ``index``; None where that is not constant."""
    total = 0
    for subscript, stride in zip(subscripts, strides, strict=True):
        step = 0 if subscript is None else coefficient(subscript, index, sizes)
        if step is None or (step and stride is None):
            return None
        total += step * (stride or 0)
    return total
