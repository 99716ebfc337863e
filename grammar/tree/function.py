"""The checked program: names resolved, lets inlined, every expression typed, every conversion explicit.

``checking/check.py`` makes these values from the syntax tree; the interpreter, range inference and the polyhedral model
read them.  They hold no sizes: a ``Function`` is good for all sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tcomp.errors import Diagnostic, SourceText, Span
from tcomp.grammar.tree import syntax
from tcomp.values.operators import DType


@dataclass(frozen=True, slots=True)
class Constant:
    """A number.  ``exact`` is what was written, in double precision, where ``value`` is that rounded to float32."""

    value: float | int | bool
    dtype: DType
    span: Span = field(compare=False)
    exact: float | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Index:
    """An index variable of the statement, int32 when used as a value."""

    name: str
    dtype: DType
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Size:
    """A size symbol, or a ``const`` parameter: an integer that is known when a kernel is built."""

    name: str
    dtype: DType
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Boundary:
    """What a read outside the tensor gives: ``constant_exterior`` (with ``value``), ``repeat_edge``,
    ``mirror_image``, ``mirror_interior`` or ``repeat_image``."""

    kind: str
    value: Expr | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """A tensor element; 0-D tensors have no subscripts.  Subscripts are integer expressions that may hold reads."""

    tensor: str
    subscripts: tuple[Expr, ...]
    dtype: DType
    span: Span = field(compare=False)
    boundary: Boundary | None = None


@dataclass(frozen=True, slots=True)
class Unary:
    """``-`` on a number, ``!`` on a bool; the operand has the type of the node."""

    op: str
    operand: Expr
    dtype: DType
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Binary:
    """``+ - * / %``, ``min max``, ``< <= > >= == !=`` or ``&& ||``; both operands have one type.

    ``/`` and ``%`` of integers are floor division and its remainder.  Integer arithmetic wraps.
    """

    op: str
    lhs: Expr
    rhs: Expr
    dtype: DType
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Within(Binary):
    """``lower <= index && index < upper``: whether an index is in a range whose ends data give.

    Where it is evaluated, the ends are checked: they must be in order, and inside of ``box``, half-open, which is known
    with the sizes.
    """

    box: tuple[int, int] | None = None

    @property
    def lower(self) -> Expr:
        """The first value of the range."""
        return _operands(self.lhs)[0]

    @property
    def upper(self) -> Expr:
        """The value behind the last one."""
        return _operands(self.rhs)[1]

    @property
    def index(self) -> Expr:
        """The index, or what stands for it, without the conversion to the type of an end."""
        compared = _operands(self.rhs)[0]
        return compared.operand if isinstance(compared, Cast) else compared


@dataclass(frozen=True, slots=True)
class Select:
    """``condition ? then : otherwise``; only the chosen branch is evaluated."""

    condition: Expr
    then: Expr
    otherwise: Expr
    dtype: DType
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """A built-in function; arguments have the type of the node."""

    intrinsic: str
    arguments: tuple[Expr, ...]
    dtype: DType
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Cast:
    """A conversion, written or implied: floats to integers truncate, to narrower floats round to nearest even."""

    operand: Expr
    dtype: DType
    span: Span = field(compare=False)


Expr = Constant | Index | Size | Read | Unary | Binary | Select | Call | Cast


def _operands(expr: Expr) -> tuple[Expr, Expr]:
    assert isinstance(expr, Binary)
    return expr.lhs, expr.rhs


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct operands of an expression, in evaluation order."""
    match expr:
        case Read():
            value = expr.boundary.value if expr.boundary else None
            return expr.subscripts if value is None else (*expr.subscripts, value)
        case Unary():
            return (expr.operand,)
        case Binary():
            return (expr.lhs, expr.rhs)
        case Select():
            return (expr.condition, expr.then, expr.otherwise)
        case Call():
            return expr.arguments
        case Cast():
            return (expr.operand,)
        case _:
            return ()


def map_children(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with ``change`` applied to its direct operands; the same object where it has none."""
    match expr:
        case Read():
            boundary = expr.boundary
            if boundary is not None and boundary.value is not None:
                boundary = replace(boundary, value=change(boundary.value))
            return replace(expr, subscripts=tuple(change(s) for s in expr.subscripts), boundary=boundary)
        case Unary() | Cast():
            return replace(expr, operand=change(expr.operand))
        case Binary():
            return replace(expr, lhs=change(expr.lhs), rhs=change(expr.rhs))
        case Select():
            return replace(
                expr,
                condition=change(expr.condition),
                then=change(expr.then),
                otherwise=change(expr.otherwise),
            )
        case Call():
            return replace(expr, arguments=tuple(change(a) for a in expr.arguments))
        case _:
            return expr


_LEAVES = frozenset({Constant, Index, Size})


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and everything below it, parents first."""
    stack = [expr]
    while stack:
        node = stack.pop()
        yield node
        # Half of all nodes, of which all patterns of ``children`` would be tried.
        if type(node) not in _LEAVES:
            stack.extend(reversed(children(node)))


def with_indices(expr: Expr, places: Mapping[str, Expr]) -> Expr:
    """The expression with other values of some of its indices, of the types that these have."""
    if isinstance(expr, Index) and expr.name in places:
        place = places[expr.name]
        return place if place.dtype == expr.dtype else Cast(place, expr.dtype, expr.span)
    return map_children(expr, lambda child: with_indices(child, places))


PROVED = ("abs", "relu")
"""Functions of integers that are affine in pieces."""


def depends_on_data(expr: Expr) -> bool:
    """Whether an integer expression is known only when it runs: it holds tensor elements, functions or floats.

    All other integer expressions are proved about in unbounded integers, so they are computed in 64 bits.  Those of
    functions that proofs know are ``PROVED``.
    """
    if type(expr) in _LEAVES:
        return expr.dtype.is_float
    return any(
        isinstance(e, Read) or (isinstance(e, Call) and e.intrinsic not in PROVED) or e.dtype.is_float
        for e in walk(expr)
    )


def is_indirect(subscript: Expr) -> bool:
    """Whether a subscript depends on the content of a tensor, so that only a run-time check can bound it."""
    if type(subscript) in _LEAVES:
        return False
    return any(isinstance(node, Read) for node in walk(subscript))


def boxed(expr: Expr, hull: Mapping[str, tuple[int, int]]) -> Expr:
    """The expression with the bounds of the indices, inclusive, in each ``Within``."""
    if not any(isinstance(node, Within) for node in walk(expr)):
        return expr
    inside = map_children(expr, lambda child: boxed(child, hull))
    if not isinstance(inside, Within):
        return inside
    index = inside.index.operand if isinstance(inside.index, Cast) else inside.index
    low, high = hull[index.name] if isinstance(index, Index) else (0, -1)
    return replace(inside, box=(low, high + 1))


@dataclass(frozen=True, slots=True)
class Range:
    """``where index in lower:upper`` (half-open); bounds are integer expressions over sizes, literals and indices."""

    index: str
    lower: Expr
    upper: Expr
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Step:
    """A ``for`` around a statement: its index takes one value after another.

    ``number`` tells the blocks of a function apart.  The bounds (half-open) are integer expressions over sizes and the
    indices of the steps around it; both are None where they are inferred.
    """

    index: str
    number: int
    lower: Expr | None
    upper: Expr | None
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Statement:
    """One assignment.

    ``reduction`` is None for ``=``, else a key of ``REDUCTIONS``; ``initialise`` is True for ``op!``.  ``value`` has
    the type ``accumulator``: the type of the target unless a sum accumulates wider, in which case the target's
    previous content is widened first and the result is rounded once, when the statement ends.  ``indices`` lists every
    index variable: those of the ``steps`` around the statement, outermost first, those of the left-hand side in order,
    then the reduction indices in order of discovery; ``ranges`` has those of the steps, too.  What stands
    on the left only where data choose the element, as ``i`` in ``O(I(i), d)``, names no element: it is reduced over.
    """

    target: str
    subscripts: tuple[Expr, ...]
    reduction: str | None
    initialise: bool
    value: Expr
    accumulator: DType
    ranges: tuple[Range, ...]
    exists: tuple[Read, ...]
    indices: tuple[str, ...]
    reduction_indices: tuple[str, ...]
    span: Span = field(compare=False)
    steps: tuple[Step, ...] = ()

    @property
    def scatters(self) -> bool:
        """Whether data choose the elements that are written."""
        return any(map(is_indirect, self.subscripts))

    def expressions(self) -> Iterator[Expr]:
        """The value, the left-hand subscripts and the ``exists`` reads."""
        yield self.value
        yield from self.subscripts
        yield from self.exists


@dataclass(frozen=True, slots=True)
class Tensor:
    """A parameter, output or temporary.

    ``dims`` holds one integer expression over sizes per dimension; None where the extents are inferred from the
    statements (outputs without annotation, temporaries).  A ``const`` parameter is a 0-D integer whose value is part
    of the specialisation; ``default`` is the value that it has where a call gives none.
    """

    name: str
    dtype: DType
    rank: int
    dims: tuple[Expr, ...] | None
    role: str  # "input", "const", "output" or "temporary"
    span: Span = field(compare=False)
    default: int | None = None


@dataclass(frozen=True, slots=True)
class Inlined:
    """A call that was inlined: the def, where it is called, where the def is written, and the calls in it."""

    name: str
    span: Span
    body: Span
    calls: tuple[Inlined, ...]

    def leading_to(self, place: Span) -> Iterator[tuple[Inlined, ...]]:
        """The calls on every way to a place in an inlined text, the innermost first."""
        if self.body.start <= place.start < self.body.end:
            yield (self,)
        for call in self.calls:
            yield from ((*way, self) for way in call.leading_to(place))


@dataclass(frozen=True, slots=True)
class Agreement:
    """Two expressions over sizes that a call needs to be equal; the texts say what each of them is.

    ``what`` is the dimension of the def as it is written there, at ``parameter``.
    """

    what: str
    first: Expr
    second: Expr
    first_text: str
    second_text: str
    span: Span = field(compare=False)
    parameter: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Passed:
    """The extents that a call takes a tensor to have before the statement ``position``.

    Only inference for given sizes can confirm them.
    """

    position: int
    tensor: str
    origin: tuple[Expr, ...]
    extents: tuple[Expr, ...]
    span: Span = field(compare=False)


@dataclass(frozen=True, slots=True)
class Function:
    """A checked ``def``, calls of other defs inlined.

    ``sizes`` names the size symbols in order of appearance.  ``needs_content`` names the outputs whose previous
    content the program reads, so that the caller must pass them as ``out=``.  ``inlined``, ``agreements`` and
    ``passed`` say what was called and what has to hold for it.
    """

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    temporaries: tuple[Tensor, ...]
    sizes: tuple[str, ...]
    statements: tuple[Statement, ...]
    needs_content: tuple[str, ...]
    warnings: tuple[Diagnostic, ...]
    definition: syntax.Definition
    source: SourceText
    inlined: tuple[Inlined, ...] = ()
    agreements: tuple[Agreement, ...] = ()
    passed: tuple[Passed, ...] = ()

    def __str__(self) -> str:
        return str(self.definition)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name: inputs (``const`` ones included), outputs, temporaries."""
        return {t.name: t for t in (*self.inputs, *self.outputs, *self.temporaries)}

    @property
    def recurs(self) -> bool:
        """Whether there are steps that run one after another."""
        return any(statement.steps for statement in self.statements)

    @property
    def defaults(self) -> dict[str, int]:
        """The values of ``const`` parameters that a call need not give."""
        return {t.name: t.default for t in self.inputs if t.default is not None}

    def completed(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Arguments with the defaults of those that are left out at the end, if all of them have one."""
        missing = self.inputs[len(arguments) :]
        if not missing or any(tensor.default is None for tensor in missing):
            return tuple(arguments)
        return (*arguments, *(tensor.default for tensor in missing))

    def accesses(self) -> Iterator[tuple[str, int, Expr]]:
        """Every subscript of the program with the tensor and the dimension that it is of, read or written."""
        for statement in self.statements:
            yield from ((statement.target, d, subscript) for d, subscript in enumerate(statement.subscripts))
            for expression in statement.expressions():
                for read in (node for node in walk(expression) if isinstance(node, Read)):
                    yield from ((read.tensor, d, subscript) for d, subscript in enumerate(read.subscripts))
