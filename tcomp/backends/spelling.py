"""Expressions of the program as C text.

Two readings of an integer expression are kept apart: as a *value* it has the type and the wrap-around of the program;
as a *subscript*, or where no data are in it and it is compared or widened to 64 bits, it is computed in 64 bits, as it
was proved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from tcomp.backends.dataranges import indices_told, range_checks
from tcomp.backends.dialect import (
    C_VALUE_TYPES,
    HOST_C,
    Dialect,
    bare,
    constant_text,
    convert,
    load,
    narrow,
    type_suffix,
)
from tcomp.backends.openextents import end_text, extent_text, stride_text
from tcomp.backends.source import IndexCheck
from tcomp.backends.subscripts import fixed_value, may_be_truth
from tcomp.errors import SourceText
from tcomp.grammar.ranges.affine import step_parameter
from tcomp.grammar.tree.function import (
    PROVED,
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
    Within,
    depends_on_data,
)
from tcomp.loops.ir import LoopExpr, Number, Operation, Variable
from tcomp.mapping.plan.values import Buffer, Copy
from tcomp.mapping.tiles.strides import flattened
from tcomp.model.scop import Scop
from tcomp.values.intrinsics import row_of
from tcomp.values.operators import DType

CHECK = "tc_check"
"""How the functions begin that check subscripts: what they give is inside, and they must stay though nothing moves."""

_EXACT = {"bfloat16": 256, "float8_e4m3fn": 16, "float8_e5m2": 8}
_EXACT_ELSE = 2048
"""Integers below are exact in a float type."""


def loop_text(expr: LoopExpr) -> str:
    """A loop expression in C; every operand is a ``long``."""
    match expr:
        case Number():
            return str(expr.value) if abs(expr.value) < 2**28 else f"{expr.value}L"  # eight of them add up in an int
        case Variable():
            return expr.name
        case Operation(operator="?:", operands=(condition, then, otherwise)):
            return f"({loop_text(condition)} ? {loop_text(then)} : {loop_text(otherwise)})"
        case Operation(operator="floordiv" | "mod" | "min" | "max" as name, operands=(a, b)):
            return f"tc_{name}({loop_text(a)}, {loop_text(b)})"
        case Operation(operator="-", operands=(Number(value=0), b)):
            return negated(loop_text(b))
        case Operation(operator=operator, operands=(a, b)):
            return f"({loop_text(a)} {operator} {loop_text(b)})"
    raise AssertionError(expr)


def negated(text: str) -> str:
    """The negative of a C expression, which may begin with a sign itself."""
    return f"(-({text}))" if text.startswith("-") else f"(-{text})"


@dataclass(slots=True)
class Needs:
    """What the text of a kernel turned out to need, gathered while expressions are spelled."""

    calls: dict[tuple[str, str], None] = field(default_factory=dict)
    checks: list[IndexCheck] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Gather:
    """A subscript that depends on data: of which tensor, and of which of its dimensions."""

    tensor: str
    dimension: int
    subscript: Expr


class CopiedBox(Protocol):
    """The copy of a box of a tensor, in which some reads find their elements."""

    @property
    def copy(self) -> Copy:
        """What is copied, as the plan has it."""
        ...

    @property
    def strides(self) -> tuple[int, ...]:
        """How far apart neighbours along each dimension of the tensor lie in the copy; see ``steps``."""
        ...

    @property
    def steps(self) -> tuple[int, ...]:
        """How far apart in the tensor the neighbours are."""
        ...

    def stride(self, coefficients: Sequence[int | None]) -> int | None:
        """Elements of the copy between those of an index with such coefficients in the subscripts, if constant."""
        ...

    def element(self, subscripts: Sequence[str]) -> str:
        """The C text of an element, from that of its subscripts in the tensor."""
        ...


@dataclass(frozen=True, slots=True)
class Speller:
    """Spells expressions of one statement instance; ``indices`` gives each index its C text.

    ``known`` names the variables that hold subscripts which were computed, and checked, before; ``panels`` are the
    copies in which some reads are found, and ``held`` what has the values of some expressions.  ``reported`` are the
    indices of the program that a failed check tells.
    """

    scop: Scop
    buffers: Mapping[str, Buffer]
    indices: Mapping[str, str]
    needs: Needs
    checked: bool
    source: SourceText
    dialect: Dialect = HOST_C
    known: Mapping[Gather, str] = field(default_factory=dict, kw_only=True)
    panels: Mapping[Read, CopiedBox] = field(default_factory=dict, kw_only=True)
    held: Mapping[Expr, str] = field(default_factory=dict, kw_only=True)
    reported: tuple[tuple[str, Expr], ...] = field(default=(), kw_only=True)

    def value(self, expr: Expr) -> str:
        """The expression as a value of its type."""
        return self.held[expr] if self.held and expr in self.held else self._computed(expr)

    def _computed(self, expr: Expr) -> str:
        match expr:
            case Constant():
                return constant_text(expr.value, expr.dtype, self.dialect)
            case Index() if expr.dtype.name == "int32" and self.dialect.index == "int":
                return self._index(expr.name)
            case Index():
                return f"(({C_VALUE_TYPES[expr.dtype.name]}){self._index(expr.name)})"
            case Size():
                return f"(({C_VALUE_TYPES[expr.dtype.name]}){self.scop.sizes[expr.name]}LL)"
            case Read():
                return self.read(expr)
            case Unary(op="!"):
                return f"(!{self.value(expr.operand)})"
            case Unary():
                return narrow(negated(self.value(expr.operand)), expr.dtype)
            case Binary():
                return self._within(expr) if isinstance(expr, Within) else self._binary(expr)
            case Select():
                branches = f"{self.value(expr.then)} : {self.value(expr.otherwise)}"
                return f"({self.value(expr.condition)} ? {branches})"
            case Call():
                return self._call(expr)
            case Cast(dtype=DType(bits=64)) if all(e.dtype.is_integer for e in (expr, expr.operand)) and not (
                depends_on_data(expr.operand)
            ):
                return f"(({C_VALUE_TYPES[expr.dtype.name]}){self._integer(expr.operand)})"
            case Cast(dtype=DType(kind="float")) if isinstance(expr.operand, Constant | Size) and (
                (number := fixed_value(expr.operand, self.scop.sizes)) is not None
                and expr.operand.dtype.is_integer
                and abs(number) < _EXACT.get(expr.dtype.name, _EXACT_ELSE)
            ):
                return constant_text(number, expr.dtype, self.dialect)
            case Cast():
                return convert(self.value(expr.operand), expr.operand.dtype, expr.dtype, self.dialect)

    def _as_index(self, expr: Expr) -> str:
        """The value of an expression in the type of indices, or in 64 bits where its own type is wider than that."""
        if expr.dtype.name == "int32" and self.dialect.index == "int":
            return self.value(expr)
        fits = expr.dtype.bits < 32 or expr.dtype.name == "int32"
        return f"(({self.dialect.index if fits else self.dialect.wide}){self.value(expr)})"

    def _binary(self, expr: Binary) -> str:
        dtype = expr.lhs.dtype
        if expr.dtype.kind == "bool" and dtype.is_integer and not depends_on_data(expr):
            return f"({self._integer(expr.lhs)} {expr.op} {self._integer(expr.rhs)})"
        a, b = self.value(expr.lhs), self.value(expr.rhs)
        match expr.op:
            case "min" | "max":
                return f"tc_{expr.op}_{type_suffix(dtype)}({a}, {b})"
            case "/" | "%" if dtype.is_integer:
                return f"tc_{'div' if expr.op == '/' else 'rem'}_{type_suffix(dtype)}({a}, {b})"
            case "%":
                self.needs.calls[("fmod", C_VALUE_TYPES[dtype.name])] = None
                name = self.function_name("fmod", C_VALUE_TYPES[dtype.name])
                return f"tc_floormod_{type_suffix(dtype)}({name}({a}, {b}), {b})"
            case "+" if dtype.kind == "bool":
                return f"({a} | {b})"
            case "*" if dtype.kind == "bool":
                return f"({a} & {b})"
            case _:
                return narrow(f"({a} {expr.op} {b})", expr.dtype)

    def _call(self, expr: Call) -> str:
        c_type = C_VALUE_TYPES[expr.dtype.name]
        self.needs.calls[(expr.intrinsic, c_type)] = None
        arguments = ", ".join(bare(self.value(a)) for a in expr.arguments)
        return f"{self.function_name(expr.intrinsic, c_type)}({arguments})"

    def function_name(self, intrinsic: str, c_type: str) -> str:
        """What a kernel calls for a built-in function."""
        return row_of(intrinsic).c_name(c_type)

    def subscript(self, expr: Expr) -> str:
        """The expression as the 64-bit place of an element; what depends on data keeps the arithmetic of its type."""
        return self._hidden(expr, self._integer(expr))

    def _hidden(self, expr: Expr, text: str) -> str:
        """The text of a subscript, from which no compiler can tell that it is a truth value, if it may be one."""
        return f"tc_hidden({text})" if self.dialect.hides_truths and may_be_truth(expr) else text

    def _integer(self, expr: Expr) -> str:
        """The expression as a 64-bit integer; what depends on data keeps the arithmetic of its own type."""
        if depends_on_data(expr):
            return self._as_index(expr)
        number = fixed_value(expr, self.scop.sizes)
        if number is not None:
            return str(number) if abs(number) < 2**31 else f"{number}{self.dialect.suffix}"
        match expr:
            case Index():
                text = self._index(expr.name)
                return f"{text}{self.dialect.suffix}" if text.lstrip("-").isdigit() else text
            case Unary(op="-"):
                return negated(self._integer(expr.operand))
            case Binary(op="+" | "-" | "*"):
                return f"({self._integer(expr.lhs)} {expr.op} {self._integer(expr.rhs)})"
            case Binary(op="/" | "%"):
                name = "floordiv" if expr.op == "/" else "mod"
                return f"tc_{name}({self._integer(expr.lhs)}, {self._integer(expr.rhs)})"
            case Binary(op="min" | "max"):
                return f"tc_{expr.op}({self._integer(expr.lhs)}, {self._integer(expr.rhs)})"
            case Select():
                branches = f"{self._integer(expr.then)} : {self._integer(expr.otherwise)}"
                return f"({self.value(expr.condition)} ? {branches})"
            case Call(intrinsic=intrinsic, arguments=(argument,)) if intrinsic in PROVED:
                text = self._integer(argument)
                return f"tc_max({text}, {negated(text) if intrinsic == 'abs' else 0})"
            case Cast() if expr.operand.dtype.is_integer and expr.dtype.bits >= 32:
                return self._integer(expr.operand)
            case _:
                return self._as_index(expr)

    def _index(self, name: str) -> str:
        """The text of an index of the statement, or of a step around it."""
        return self.indices[name] if name in self.indices else step_parameter(name)

    def element(self, storage: str, subscripts: tuple[str, ...]) -> str:
        """The C lvalue of an element, from the text of its logical coordinates."""
        buffer, suffix = self.buffers.get(storage), self.dialect.suffix
        if buffer is not None and buffer.space == "register":
            return self.dialect.name(storage)
        if buffer is None:
            own = self.scop.storages[storage]
            corner, shape = tuple(str(o) for o in own.box.origin), own.box.extent
            strides = tuple(stride_text(own, d, suffix) for d in range(len(own.strides)))
        else:
            corner, shape, strides = buffer_corner(buffer), buffer.shape, tuple(f"{s}{suffix}" for s in buffer.strides)
        terms = []
        folded = () if buffer is None else buffer.folded
        for d, (text, lower, extent, stride) in enumerate(zip(subscripts, corner, shape, strides, strict=True)):
            offset = text if lower == "0" else f"({text} - {lower})"
            if extent == 1 and CHECK in text:
                terms.append(offset)
            elif stride != f"0{suffix}" and extent > 1 and (text.removesuffix(suffix), lower) != ("0", "0"):
                offset = f"({offset} % {extent})" if d in folded else offset
                terms.append(offset if stride == f"1{suffix}" else f"{offset} * {stride}")
        return f"{self.dialect.name(storage)}[{' + '.join(terms) or '0'}]"

    def read(self, expr: Read) -> str:
        """A tensor element as a value, boundary rules and run-time checks included."""
        dtype = expr.dtype
        storage = self.scop.storages[expr.tensor]
        panel = self.panels.get(expr)
        if panel is not None:
            return load(panel.element([self.subscript(s) for s in expr.subscripts]), dtype, self.dialect)
        if expr.boundary is not None:
            return self._boundary_read(expr)
        texts = self.read_subscripts(expr)
        failed = [
            self.checked and depends_on_data(subscript) and extent == 0
            for subscript, extent in zip(expr.subscripts, storage.box.extent, strict=True)
        ]
        if any(failed):
            return f"({', '.join(texts)}, ({C_VALUE_TYPES[dtype.name]})0)"
        element = self.element_read(expr, texts)
        # What does not move the element is not in its text, but is checked all the same.
        left_out = [text for text in self._checks(expr, texts) if text not in element]
        if left_out:
            return f"({', '.join(left_out)}, {load(element, dtype, self.dialect)})"
        return load(element, dtype, self.dialect)

    def _checks(self, expr: Read, texts: tuple[str, ...]) -> list[str]:
        """The texts of those subscripts of a read that are checked where they stand."""
        known = self.known.values()
        return [
            text
            for text, subscript in zip(texts, expr.subscripts, strict=True)
            if self.checked and depends_on_data(subscript) and text not in known
        ]

    def read_subscripts(self, expr: Read) -> tuple[str, ...]:
        """The C texts of the subscripts of a read, with run-time checks where they are not known."""
        subscripts: tuple[Expr | None, ...] = expr.subscripts
        storage = self.scop.storages[expr.tensor]
        if expr.tensor not in self.buffers and not any(storage.box.origin):
            subscripts = flattened(subscripts, storage.box.extent, storage.known_strides, self.scop.sizes)
        return tuple(
            "0"
            if subscript is None
            else self.known.get(Gather(expr.tensor, d, subscript)) or self.gathered(expr.tensor, d, subscript)
            for d, subscript in enumerate(subscripts)
        )

    def gathered(self, tensor: str, dimension: int, subscript: Expr) -> str:
        """A subscript of a tensor, with its run-time check where it depends on data."""
        text = self._integer(subscript)
        if not (self.checked and depends_on_data(subscript)):
            return self._hidden(subscript, text)
        box, span = self.scop.storages[tensor].box, subscript.span
        number = len(self.needs.checks)
        origin, extent = box.origin[dimension], box.extent[dimension]
        there = self.source.text[span.start : span.end]
        names = tuple(index for index, _ in self.reported)
        unsigned = subscript.dtype.kind == "uint"
        check = IndexCheck(tensor, dimension, extent, origin, there, span.start, span.end, names, unsigned)
        self.needs.checks.append(check)
        room = extent_text(self.scop.storages[tensor], dimension, "")
        return self._hidden(subscript, self.checked_subscript(text, origin, room, number))

    def range_ends(self, expr: Within) -> tuple[str, str, str]:
        """The C texts of the ends of a range that data give, checked, and that of a check of their order, if any."""
        told = indices_told(expr, self.reported)
        speller = replace(self, reported=told)
        ends = [speller.value_in_64_bits(bound) for bound in (expr.lower, expr.upper)]
        values = {"starts": ends[0], "ends": ends[1], "turns": f"({ends[1]} - {ends[0]})"}
        checks = range_checks(expr, self.source, tuple(name for name, _ in told)) if self.checked else {}
        for part, check in checks.items():
            number = len(self.needs.checks)
            self.needs.checks.append(check)
            values[part] = speller.checked_subscript(values[part], check.origin, str(check.extent), number)
        return values["starts"], values["ends"], values["turns"] if checks else ""

    def value_in_64_bits(self, expr: Expr) -> str:
        """An integer in 64 bits, made in the arithmetic of its own type where it depends on data."""
        return f"(({self.dialect.wide}){self.value(expr)})" if depends_on_data(expr) else self._integer(expr)

    def _within(self, expr: Within) -> str:
        lower, upper, order = self.range_ends(expr)
        index = self._integer(expr.index)
        text = f"({lower} <= {index} && {index} < {upper})"
        return f"({order}, {text})" if order else text

    def written(self, storage: str, subscripts: tuple[Expr, ...]) -> str:
        """The C lvalue of the element that a statement writes, with run-time checks where data choose it."""
        return self.element(storage, self.written_subscripts(storage, subscripts))

    def written_subscripts(self, storage: str, subscripts: tuple[Expr, ...]) -> tuple[str, ...]:
        """The C texts of the subscripts of an element that is written."""
        return tuple(
            self.known.get(Gather(storage, d, s)) or self.gathered(storage, d, s) for d, s in enumerate(subscripts)
        )

    def element_read(self, expr: Read, subscripts: tuple[str, ...]) -> str:
        """The C text of the element that a read names, from that of its subscripts."""
        return self.element(expr.tensor, subscripts)

    def checked_subscript(self, text: str, origin: int, extent: str, number: int) -> str:
        """A data-dependent subscript, replaced and reported where it is outside."""
        room = f"{extent}L" if extent.isdigit() else extent
        values = ", ".join(self._integer(value) for _, value in self.reported)
        place = f"(const long[]){{{values or '0'}}}, {len(self.reported)}"
        return f"{CHECK}({text}, {origin}L, {room}, {number}, report, {place})"

    def bordered(self, expr: Read) -> tuple[list[str], str]:
        """The C text of an element that is read with a boundary, and of what must hold for it to be in the tensor.

        Where a boundary folds subscripts back into the tensor, nothing must.
        """
        assert expr.boundary is not None
        storage, suffix = self.scop.storages[expr.tensor], self.dialect.suffix
        texts = [self.subscript(s) for s in expr.subscripts]
        ends = [(t, o, d) for d, (t, o) in enumerate(zip(texts, storage.box.origin, strict=True))]
        if expr.boundary.kind == "constant_exterior":
            inside = [f"{t} >= {o} && {t} < {end_text(storage, d)}" for t, o, d in ends]
            return inside, self.element_read(expr, tuple(texts))
        kind = expr.boundary.kind
        folded = tuple(f"tc_{kind}({t}, {o}{suffix}, {extent_text(storage, d, suffix)})" for t, o, d in ends)
        return [], self.folded_element(expr.tensor, folded)

    def _boundary_read(self, expr: Read) -> str:
        assert expr.boundary is not None
        box = self.scop.storages[expr.tensor].box
        c_type = C_VALUE_TYPES[expr.dtype.name]
        if expr.boundary.kind == "constant_exterior":
            assert expr.boundary.value is not None
            outside = self.value(expr.boundary.value)
            if 0 in box.extent:
                return f"(({c_type}){outside})"
            inside, element = self.bordered(expr)
            return f"({' && '.join(inside) or '1'} ? {load(element, expr.dtype, self.dialect)} : {outside})"
        if 0 in box.extent:
            return f"(({c_type})0)"
        return load(self.bordered(expr)[1], expr.dtype, self.dialect)

    def folded_element(self, storage: str, subscripts: tuple[str, ...]) -> str:
        """The element whose subscripts a boundary has folded back into the tensor."""
        return self.element(storage, subscripts)


def buffer_corner(buffer: Buffer) -> tuple[str, ...]:
    """The C text of the logical coordinates of a buffer's first element: numbers, or constants declared at its mark."""
    if buffer.lower is None:
        return tuple(str(o) for o in buffer.origin)
    names = []
    for d in range(len(buffer.shape)):
        corner = buffer.lower.get_at(d)
        names.append(str(corner.get_constant_val()) if corner.is_cst() else f"at{d}_{buffer.storage}")
    return tuple(names)
