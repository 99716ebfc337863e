"""Expressions of kernels: elements of private, shared and global memory, and integer expressions for readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tcomp.backends.dialect import bare, load
from tcomp.backends.gpu.words.dialect import DeviceDialect
from tcomp.backends.source import REPORT
from tcomp.backends.spelling import CHECK, Speller
from tcomp.backends.subscripts import fixed_value
from tcomp.grammar.ranges.affine import step_parameter
from tcomp.grammar.tree.function import Binary, Cast, Expr, Index, Read, Unary, depends_on_data
from tcomp.loops.indexing import Ranges
from tcomp.loops.ir import LoopExpr, Number, Operation, Variable
from tcomp.mapping.plan.deals import Deal
from tcomp.mapping.plan.values import Buffer, Copy
from tcomp.model.terms.storages import contiguous_strides

_PRECEDENCE = {"||": 1, "&&": 2, "==": 3, "<": 4, "<=": 4, ">": 4, ">=": 4, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6}


def expression_text(expr: LoopExpr, ranges: Ranges, around: int = 0) -> str:
    """A loop expression with no more parentheses than it needs; ``around`` is the precedence that surrounds it."""
    match expr:
        case Number(value=value):
            return str(value) if abs(value) < 2**31 else f"{value}LL"
        case Variable(name=name):
            return name
        case Operation(operator="?:", operands=(condition, then, otherwise)):
            parts = [expression_text(e, ranges, 1) for e in (condition, then, otherwise)]
            return f"({parts[0]} ? {parts[1]} : {parts[2]})"
        case Operation(operator="floordiv" | "mod" as name, operands=(a, b)):
            bounds = ranges.bounds(a)
            if bounds is not None and bounds[0] >= 0 and isinstance(b, Number) and b.value > 0:
                return _binary("/" if name == "floordiv" else "%", a, b, ranges, around)
            return f"tc_{name}({expression_text(a, ranges)}, {expression_text(b, ranges)})"
        case Operation(operator="min" | "max" as name, operands=(a, b)):
            return f"tc_{name}({expression_text(a, ranges)}, {expression_text(b, ranges)})"
        case Operation(operator="-", operands=(Number(value=0), b)):
            return f"(-{expression_text(b, ranges, 7)})"
        case Operation(operator=operator, operands=(a, b)):
            return _binary(operator, a, b, ranges, around)
    raise AssertionError(expr)


def _binary(operator: str, a: LoopExpr, b: LoopExpr, ranges: Ranges, around: int) -> str:
    own = _PRECEDENCE[operator]
    text = f"{expression_text(a, ranges, own)} {operator} {expression_text(b, ranges, own + 1)}"
    return f"({text})" if own < around else text


@dataclass(frozen=True, slots=True, eq=False)
class Fetched:
    """A copy that is in force: its name, and the corner of its box in the loops around it."""

    copy: Copy
    name: str
    corner: tuple[LoopExpr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Local:
    """A buffer that is in force: its name, and the corner of its box in the loops around it."""

    buffer: Buffer
    name: str
    corner: tuple[LoopExpr, ...]


class UsedIndices(dict[str, str]):
    """The C names of indices; remembers which were asked for."""

    def __init__(self, names: Mapping[str, str]) -> None:
        super().__init__(names)
        self.asked: dict[str, None] = {}

    def __getitem__(self, key: str) -> str:
        self.asked[key] = None
        return super().__getitem__(key)


@dataclass(frozen=True, slots=True)
class DeviceSpeller(Speller):
    """Spells one statement instance in a kernel; ``arguments`` are the values of its indices in the loops around it."""

    statement: str = ""
    arguments: Mapping[str, LoopExpr] = field(default_factory=dict)
    ranges: Ranges = field(default_factory=lambda: Ranges({}))
    locals: Mapping[str, Local] = field(default_factory=dict)
    fetched: tuple[Fetched, ...] = ()
    used: dict[str, None] = field(default_factory=dict)
    loaded: Mapping[tuple[str, Read], str] = field(default_factory=dict)
    rounded: frozenset[str] = frozenset()

    @property
    def device(self) -> DeviceDialect:
        """The language of the kernel."""
        assert isinstance(self.dialect, DeviceDialect)
        return self.dialect

    def function_name(self, intrinsic: str, c_type: str) -> str:
        """What a kernel calls for a built-in function."""
        if intrinsic == "exp2" and c_type == "float" and self.statement in self.rounded:
            return "tc_power_of_two"
        return self.device.function(intrinsic, c_type)

    def checked_subscript(self, text: str, origin: int, extent: str, number: int) -> str:
        """A data-dependent subscript, replaced and reported where it is outside."""
        self.used[REPORT] = None
        values = [self.subscript(value) for _, value in self.reported]
        return self.device.check(f"{bare(text)}, {origin}, {extent}, {number}, report", values)

    def target(self, storage: str, subscripts: tuple[Expr, ...]) -> str:
        """The lvalue that a statement writes."""
        local = self.locals.get(storage)
        if local is not None:
            places = self.written_subscripts(storage, subscripts) if any(map(depends_on_data, subscripts)) else ()
            text = self._local_at(local, [
                Variable(places[d]) if depends_on_data(s) else self.loop_expression(s) for d, s in enumerate(subscripts)
            ])  # fmt: skip
            unmoving = [place for place in places if CHECK in place and place not in text]
            return f"*({', '.join(unmoving)}, &{text})" if unmoving else text
        self.used[storage] = None
        return self.element(storage, self.written_subscripts(storage, subscripts))

    def read(self, expr: Read) -> str:
        """A tensor element as a value; its subscripts are not spelled where a place in a tile stands for them."""
        if expr.boundary is None and not any(depends_on_data(s) for s in expr.subscripts):
            place = self._near(expr, ())
            if place is not None:
                return load(place, expr.dtype, self.dialect)
        return Speller.read(self, expr)

    def element_read(self, expr: Read, subscripts: tuple[str, ...]) -> str:
        """The element that a read names: from registers, from shared memory, or from where it lies."""
        place = self._near(expr, subscripts)
        if place is not None:
            return place
        self.used[expr.tensor] = None
        return self.element(expr.tensor, subscripts)

    def _near(self, expr: Read, texts: Sequence[str]) -> str | None:
        """The place of an element in registers or shared memory, if it is there, or was loaded before.

        ``texts`` are the subscripts as they were spelled, with their checks: needed where one depends on data.
        """
        if (self.statement, expr) in self.loaded:
            return self.loaded[self.statement, expr]
        subscripts = [
            Variable(texts[d]) if depends_on_data(s) else self.loop_expression(s) for d, s in enumerate(expr.subscripts)
        ]
        for fetched in self.fetched:
            if fetched.copy.statement == self.statement and expr in fetched.copy.reads:
                return self._fetched(fetched, subscripts)
        local = self.locals.get(expr.tensor)
        return None if local is None else self._local_at(local, subscripts)

    def folded_element(self, storage: str, subscripts: tuple[str, ...]) -> str:
        """The element whose subscripts a boundary has folded back into the tensor."""
        local = self.locals.get(storage)
        if local is not None:
            return self._local_at(local, [Variable(text) for text in subscripts])
        self.used[storage] = None
        return self.element(storage, subscripts)

    def _fetched(self, fetched: Fetched, subscripts: Sequence[LoopExpr]) -> str:
        offsets = self._offsets(subscripts, fetched.corner)
        room = dict(zip(fetched.copy.order, fetched.copy.room, strict=True))
        places = [offsets[d] for d in fetched.copy.order if room[d] > 1]
        return fetched.name + "".join(f"[{expression_text(p, self.ranges)}]" for p in places)

    def _local_at(self, local: Local, subscripts: Sequence[LoopExpr]) -> str:
        """The place of an element in a buffer that is in force."""
        buffer = local.buffer
        if not buffer.shape:
            return f"{local.name}[0]" if buffer.space == "block" else local.name
        offsets = self._offsets(subscripts, local.corner)
        if buffer.space == "private":
            places = [self._share(o, buffer.deals[d]) for d, o in enumerate(offsets) if buffer.shape[d] > 1]
            return local.name + "".join(f"[{expression_text(p, self.ranges)}]" for p in places)
        if buffer.space == "block":
            strides = contiguous_strides(buffer.shape)
            flat: LoopExpr = Number(0)
            for offset, stride in zip(offsets, strides, strict=True):
                flat = Operation("+", (flat, Operation("*", (offset, Number(stride)))))
            return f"{local.name}[{expression_text(self.ranges.simplify(flat), self.ranges)}]"
        places = [o for o, extent in zip(offsets, buffer.shape, strict=True) if extent > 1]
        return local.name + "".join(f"[{expression_text(p, self.ranges)}]" for p in places)

    def _share(self, offset: LoopExpr, deal: Deal) -> LoopExpr:
        """Which of a thread's own elements lies at an offset."""
        if deal.dimension is None:
            return offset
        chunk = Operation("floordiv", (offset, Number(deal.threads * deal.vector)))
        element = Operation("mod", (offset, Number(deal.vector)))
        return self.ranges.simplify(Operation("+", (Operation("*", (chunk, Number(deal.vector))), element)))

    def distances(self, subscripts: Sequence[Expr], corner: tuple[LoopExpr, ...]) -> list[LoopExpr]:
        """The distance of affine subscripts from a corner."""
        return self._offsets([self.loop_expression(s) for s in subscripts], corner)

    def places(self, local: Local, subscripts: Sequence[Expr]) -> list[LoopExpr]:
        """Where in the part of a buffer that a thread keeps an element lies."""
        offsets = self.distances(subscripts, local.corner)
        return [self._share(o, deal) for o, deal in zip(offsets, local.buffer.deals, strict=True)]

    def _offsets(self, subscripts: Sequence[LoopExpr], corner: tuple[LoopExpr, ...]) -> list[LoopExpr]:
        """The distance of each subscript from a corner."""
        return [self.ranges.simplify(Operation("-", (s, c))) for s, c in zip(subscripts, corner, strict=True)]

    def loop_expression(self, expr: Expr) -> LoopExpr:
        """An affine subscript in the iterators of the loops around."""
        number = fixed_value(expr, self.scop.sizes)
        if number is not None:
            return Number(number)
        match expr:
            case Index(name=name):
                return self.arguments.get(name, Variable(step_parameter(name)))
            case Unary(op="-"):
                return Operation("-", (Number(0), self.loop_expression(expr.operand)))
            case Binary(op="+" | "-" | "*" | "min" | "max"):
                return Operation(expr.op, (self.loop_expression(expr.lhs), self.loop_expression(expr.rhs)))
            case Binary(op="/" | "%"):
                name = "floordiv" if expr.op == "/" else "mod"
                return Operation(name, (self.loop_expression(expr.lhs), self.loop_expression(expr.rhs)))
            case Cast() if expr.operand.dtype.is_integer and not depends_on_data(expr.operand):
                return self.loop_expression(expr.operand)
            case _:
                return Variable(self.subscript(expr))
