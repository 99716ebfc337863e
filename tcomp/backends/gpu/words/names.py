"""Names in generated CUDA: those of the program wherever they may stand; iterators are named after indices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace

from tcomp.loops.ir import Block, Execute, For, If, Let, LoopExpr, LoopNode, Operation, Scope, Variable, variables, walk
from tcomp.model.scop import ScopStatement

_RESERVED = frozenset(
    word
    for line in (
        "alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept const",
        "consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do",
        "double dynamic_cast else enum explicit export extern false float for friend goto if inline int long",
        "mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register",
        "reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch",
        "template this thread_local throw true try typedef typeid typename union unsigned using virtual void",
        "volatile wchar_t while xor xor_eq char8_t char16_t char32_t threadIdx blockIdx blockDim gridDim warpSize",
        "dim3 thread report main min max abs NULL float1 float2 float3 float4 int1 int2 int3 int4 uint1 uint2",
        "uint3 uint4 double1 double2 double3 double4 char1 char2 char3 char4 short1 short2 short3 short4 long1",
        "long2 long3 long4 longlong1 longlong2 longlong3 longlong4 half half2 ushort1 ushort2 ushort3 ushort4",
        "uchar1 uchar2 uchar3 uchar4 size_t ptrdiff_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t",
        "uint64_t wchar_t clock clock64 signbit isnan isinf isfinite",
    )
    for word in line.split()
)


def identifiers(names: Iterable[str], functions: Iterable[str]) -> dict[str, str]:
    """A C++ identifier for each program name: the name itself, but for words that mean something already.

    ``functions`` are the built-in functions.  A trailing underscore sets names apart; such a name of the program's
    own gets two.  The number of an accumulator is left out where no other tensor has the name without.
    """
    taken = _RESERVED | set(functions)
    result = {}
    wanted = {name: re.sub(r"_acc\d+$", "_acc", name) for name in names}
    for original, short in wanted.items():
        alone = list(wanted.values()).count(short) == 1 and (short == original or short not in wanted)
        name = short if alone else original
        reserved = name in taken or name.startswith(("tc_", "_", "b_", "t_")) or "__" in name
        macro = name.isupper() and "_" in name
        result[original] = f"{name}_" if reserved or macro or name.endswith("_") else name
    return result


def unlike(name: str, taken: Set[str]) -> str:
    """The name, or one like it that is not taken."""
    base, number = name, 0
    while name in taken:
        number += 1
        name = f"{base}_{number}"
    return name


@dataclass(slots=True)
class IteratorNames:
    """Gives every loop a readable iterator: the index that it runs over, behind a prefix or with a number.

    ``prefixes`` are those of iterators on blocks and threads, by the names that isl gave them below a mark; isl uses a
    name again in the next loop nest, so names are given loop by loop.
    """

    statements: Mapping[str, ScopStatement]
    indices: Mapping[str, str]
    taken: frozenset[str]

    def rename(self, node: LoopNode, names: Mapping[str, str], role: str = "") -> LoopNode:
        """The nest with new names, given those of the iterators around; ``role`` is the prefix of loops here."""

        def expression(expr: LoopExpr) -> LoopExpr:
            return renamed(expr, names)

        match node:
            case Block():
                return Block(tuple(self.rename(c, names, role) for c in node.children))
            case For() | Let():
                inner = {**names, node.iterator: self._name(node, role, frozenset(names.values()))}
                body = self.rename(node.body, inner, role)
                if isinstance(node, Let):
                    return Let(inner[node.iterator], expression(node.value), body)
                lower, upper = expression(node.lower), expression(node.upper)
                return replace(node, iterator=inner[node.iterator], lower=lower, upper=upper, body=body)
            case If():
                otherwise = None if node.otherwise is None else self.rename(node.otherwise, names, role)
                return If(expression(node.condition), self.rename(node.then, names, role), otherwise)
            case Scope():
                around = tuple(expression(e) for e in node.around)
                return replace(node, around=around, body=self.rename(node.body, names, _role(node.name, role)))
            case Execute():
                return Execute(node.statement, tuple(expression(a) for a in node.arguments))

    def _name(self, loop: For | Let, role: str, around: frozenset[str]) -> str:
        base = self._base(loop, role)
        own = {base} if self._is_index(loop, base) else set()
        return unlike(base, {*self.indices.values()} - own | around | self.taken)

    def _is_index(self, loop: For | Let, name: str) -> bool:
        """Whether statements below have an index of that name, and none needs the name for a value of its own."""
        found = [
            argument
            for execute in walk(loop.body)
            if isinstance(execute, Execute)
            for index, argument in zip(self.statements[execute.statement].indices, execute.arguments, strict=True)
            if self.indices[index] == name
        ]
        return bool(found) and all(isinstance(a, Variable) for a in found)

    def _base(self, loop: For | Let, role: str) -> str:
        """The index that an iterator is, or is part of; the index of a loop inside that it bounds."""
        part = None
        for execute in (n for n in walk(loop.body) if isinstance(n, Execute)):
            statement = self.statements[execute.statement]
            own = list(zip(statement.indices, execute.arguments, strict=True))[statement.tile_rank :]
            for index, argument in own:
                if argument == Variable(loop.iterator):
                    return f"{role}{self.indices[index]}"
                if part is None and loop.iterator in variables(argument):
                    part = index
        if part is not None:
            return f"{role}{part}" if role else f"{part}_part"
        for inner in (n for n in walk(loop.body) if isinstance(n, For)):
            if loop.iterator in variables(inner.lower) | variables(inner.upper):
                return f"{self._base(inner, '').removesuffix('_part')}_tile"
        return f"{role}tile"


def _role(mark: str, around: str) -> str:
    """The prefix of the loops directly below a mark."""
    if mark.startswith("parallel"):
        return "b_"
    if mark.startswith(("phase", "reduce")):
        return "t_"
    return "" if mark.startswith(("group", "turn", "round", "lanes", "steps")) else around


def renamed(expr: LoopExpr, names: Mapping[str, str]) -> LoopExpr:
    """An expression with other names for its iterators."""
    match expr:
        case Variable(name=name):
            return Variable(names.get(name, name))
        case Operation():
            return Operation(expr.operator, tuple(renamed(o, names) for o in expr.operands))
        case _:
            return expr
