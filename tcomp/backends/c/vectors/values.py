"""Values of neighbouring iterations as C text in vector types, for expressions of arithmetic and extrema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tcomp.backends.c.vectors.extrema import magnitude, of_vectors
from tcomp.backends.c.vectors.types import vector_type
from tcomp.backends.c.vectors.widening import widened
from tcomp.backends.spelling import Speller
from tcomp.grammar.tree.function import Binary, Call, Cast, Constant, Expr, Index, Read, Unary, depends_on_data, walk
from tcomp.loops.ir import Execute, For, Variable, variables
from tcomp.mapping.tiles.strides import coefficient, flattened, stride_of
from tcomp.model.scop import ScopStatement
from tcomp.values.operators import FLOAT32, DType

ELEMENTS = ("float32", "float64", "int32", "uint32", "int64", "uint64")
"""Element types of vectors: those whose arithmetic C does without promoting them."""


def computed_type(dtype: DType) -> DType:
    """The type in which values of an element type are computed: float32 for shorter floats."""
    return FLOAT32 if dtype.is_short_float else dtype


@dataclass(frozen=True, slots=True)
class VectorSpeller:
    """Spells expressions for ``lanes`` iterations at once, which are neighbouring values of the index ``along``.

    ``loaded`` has the names of vectors that hold what some reads give.
    """

    scalar: Speller
    along: str
    lanes: int
    loaded: Mapping[Expr, str] = field(default_factory=dict)

    def value(self, expr: Expr, dtype: DType) -> str | None:
        """The C text of a vector of ``dtype``; None if the expression is none, or needs more than arithmetic."""
        if dtype.name not in ELEMENTS or not self.moves(expr):
            return None
        return self._text(expr, dtype)

    def moves(self, expr: Expr) -> bool:
        """Whether an expression names the index."""
        return any(isinstance(e, Index) and e.name == self.along for e in walk(expr))

    def _text(self, expr: Expr, dtype: DType) -> str | None:
        if computed_type(expr.dtype) != dtype:
            return None
        if not self.moves(expr):
            return self.scalar.value(expr)
        if expr in self.loaded:
            return self.loaded[expr]
        match expr:
            case Read() if (element := self.first(expr)) is not None:
                if expr.dtype != dtype:
                    return widened(f"&{element}", expr.dtype, self.lanes)
                return f"*(const {vector_type(dtype, self.lanes)} *)&{element}"
            case Read(dtype=own) if own == dtype and (element := self.first(expr, -1)) is not None:
                # What the first lane reads is the last of these.
                loaded = f"*(const {vector_type(dtype, self.lanes)} *)(&{element} - {self.lanes - 1})"
                order = ", ".join(map(str, reversed(range(self.lanes))))
                return f"__builtin_shufflevector({loaded}, {loaded}, {order})"
            case Cast() if expr.dtype == dtype:
                return self._text(expr.operand, dtype)
            case Unary(op="-"):
                operand = self._text(expr.operand, dtype)
                return None if operand is None else f"(-{operand})"
            case Binary(op="+" | "-" | "*") | Binary(op="/", dtype=DType(kind="float")):
                sides = [self._text(side, dtype) for side in (expr.lhs, expr.rhs)]
                return None if None in sides else f"({sides[0]} {expr.op} {sides[1]})"
            case Binary(op="min" | "max"):
                return self._called(of_vectors(expr.op, dtype, self.lanes), (expr.lhs, expr.rhs), dtype)
            case Call(intrinsic="relu"):
                zero = Constant(0.0 if dtype.is_float else 0, dtype, expr.span)
                return self._called(of_vectors("max", dtype, self.lanes), (zero, expr.arguments[0]), dtype)
            case Call(intrinsic="abs" | "fabs") if dtype.is_float:
                return self._called(lambda x: magnitude(x, dtype, self.lanes), expr.arguments, dtype)
            case _:
                return None

    def _called(self, function: Callable[..., str], arguments: tuple[Expr, ...], dtype: DType) -> str | None:
        """The C text of a function of vectors; what is the same in all lanes becomes one by subtracting zeros."""
        texts = [self._text(a, dtype) for a in arguments]
        zeros = f"({vector_type(dtype, self.lanes)}){{}}"
        if None in texts:
            return None
        wide = (t if self.moves(a) else f"({t} - {zeros})" for a, t in zip(arguments, texts, strict=True))
        return function(*wide)

    def first(self, read: Read, step: int = 1) -> str | None:
        """The C text of the element that the first lane reads, if the other lanes read its neighbours, each ``step``
        behind the one before: -1 where they go backwards."""
        panel = self.scalar.panels.get(read)
        if panel is not None:
            neighbour = (
                panel.stride([coefficient(s, self.along, self.scalar.scop.sizes) for s in read.subscripts]) == step
            )
            return panel.element([self.scalar.subscript(s) for s in read.subscripts]) if neighbour else None
        if read.boundary is not None or self._stride(read.tensor, read.subscripts) != step:
            return None
        if any(depends_on_data(s) and self.moves(s) for s in read.subscripts):
            return None  # each of them is checked
        return self.scalar.element_read(read, self.scalar.read_subscripts(read))

    def write_stride(self, statement: ScopStatement) -> int | None:
        """Elements in memory between what neighbouring iterations write; None if that is not constant."""
        return self._stride(statement.target, statement.subscripts)

    def _stride(self, storage: str, subscripts: tuple[Expr, ...]) -> int | None:
        buffer = self.scalar.buffers.get(storage)
        if buffer is not None and buffer.space == "register":
            return None
        own, sizes = self.scalar.scop.storages[storage], self.scalar.scop.sizes
        extents, strides = (own.box.extent, own.known_strides) if buffer is None else (buffer.shape, buffer.strides)
        if buffer is not None and any(self.moves(subscripts[d]) for d in buffer.folded):
            return None
        return stride_of(flattened(subscripts, extents, strides, sizes), strides, self.along, sizes)


def neighbours(loop: For, call: Execute, statement: ScopStatement) -> str | None:
    """The index of which the iterations of a loop are neighbouring values; None if they are no such values."""
    if loop.step != 1:
        return None
    own = list(zip(statement.indices, call.arguments, strict=True))[statement.tile_rank :]
    moving = [(index, argument) for index, argument in own if loop.iterator in variables(argument)]
    return moving[0][0] if [a for _, a in moving] == [Variable(loop.iterator)] else None


def moves_target(loop: For, call: Execute, statement: ScopStatement) -> bool:
    """Whether the element that is written depends on the iterator of a loop."""
    arguments = zip(statement.indices, call.arguments, strict=True)
    moving = {index for index, argument in arguments if loop.iterator in variables(argument)}
    return any(isinstance(e, Index) and e.name in moving for s in statement.subscripts for e in walk(s))
