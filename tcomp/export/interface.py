"""What callers of an exported kernel see: its name, its sizes, its arrays as C parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tcomp.backends.source import Argument, IndexCheck, Source
from tcomp.errors import TcompError
from tcomp.export.naming import identifier, identifiers
from tcomp.grammar.tree.function import Function
from tcomp.grammar.tree.limits import MAX_INDICES

ABI = 1
"""Changes when the meaning of exported functions does; headers say it as ``NAME_ABI``."""

REPORT_WORDS = 3 + MAX_INDICES
"""64-bit words in which a kernel tells which subscript was outside its tensor."""

TYPES = {
    "float8_e4m3fn": "uint8_t",
    "float8_e5m2": "uint8_t",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "bool": "uint8_t",
}
"""How headers, which C++ reads as well, call an element; floats of 8 and 16 bits are their bits there."""

_OWN: tuple[str, ...] = (
    "scratch",
    "stream",
    "message",
    "size",
    "module",
    "folder",
    "report",
    "status",
    "error",
    "memory",
    "most",
)
_OWN += ("checks", "passed")
"""What the functions of a folder call things of their own."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One kernel of an export: the values of its sizes, and its text."""

    sizes: dict[str, int]
    source: Source

    @property
    def suffix(self) -> str:
        """What tells its function and its file from those of other sizes."""
        return "".join(f"_{name}{value}".replace("-", "m") for name, value in self.sizes.items())


@dataclass(frozen=True, slots=True)
class Interface:
    """The functions of a folder.

    ``name`` is the C name of the def, ``variants`` its kernels, ``parameters`` the C names of arrays by their names
    in the program, ``size_names`` those of sizes.
    """

    function: Function
    name: str
    variants: tuple[Variant, ...]
    parameters: dict[str, str]
    size_names: dict[str, str]

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """The arrays, as the first variant takes them: others differ in shapes and strides alone."""
        return self.variants[0].source.called

    @property
    def several(self) -> bool:
        """Whether one function chooses among several kernels by their sizes."""
        return len(self.variants) > 1

    def symbol(self, variant: Variant) -> str:
        """The C name of a variant's function."""
        return f"{self.name}{variant.suffix}" if self.several else self.name

    def pointers(self) -> list[str]:
        """The declarations of array parameters."""
        return [f"{declared(a)} *{self.parameters[a.name]}" for a in self.arguments]

    def numbers(self) -> list[str]:
        """The declarations of size parameters, of a function that chooses by them."""
        return [f"long {name}" for name in self.size_names.values()]


def interface_of(
    function: Function, variants: Sequence[Variant], name: str | None, own: Sequence[str] = ()
) -> Interface:
    """The interface of kernels of one def; ``name`` is what its function is called instead of as the def.

    ``own`` are names that the functions of a folder have for themselves, beside the usual ones.

    Raises TcompError for kernels that cannot be called alone, two of the same sizes, and a name that is none.
    """
    if any(v.source.bound for v in variants):
        raise TcompError(f"{function.name} has bound arguments, which are not exported: compile it with all arguments")
    if name is not None and not (name.isidentifier() and name.isascii()):
        raise TcompError(f"{name!r} is no name of a C function")
    sizes = [tuple(v.sizes.items()) for v in variants]
    if len(set(sizes)) < len(sizes):
        raise TcompError(f"two kernels of {function.name} have the same sizes")
    symbol = identifier(name or function.name)
    taken = {symbol, *_OWN, *own}
    parameters = identifiers([a.name for a in variants[0].source.called], taken)
    named = identifiers(variants[0].sizes, {*taken, *parameters.values()})
    return Interface(function, symbol, tuple(variants), parameters, named)


def declared(argument: Argument) -> str:
    """The C type of what an array's pointer points to."""
    return f"{'const ' if argument.role == 'input' else ''}{TYPES[argument.dtype.name]}"


def described(argument: Argument) -> str:
    """An array in words: ``input, float32, 64 x 32, strides 32, 1``."""
    shape = " x ".join(map(str, argument.shape)) or "one element"
    strides = f", strides {', '.join(map(str, argument.strides))}" if argument.shape else ""
    role = {"inout": "read and written"}.get(argument.role, argument.role)
    return f"{role}, {argument.dtype}, {shape}{strides}"


def demanded(check: IndexCheck) -> str:
    """What a subscript that depends on data must fulfil, in words."""
    end = check.origin + check.extent
    if check.part == "turns":
        return f"the range {check.subscript} must not end before it starts"
    if check.part:
        return f"{check.subscript}, where a range {check.part}, must be from {check.origin} on and below {end}"
    place = f"dimension {check.dimension} of {check.tensor}"
    return f"{check.subscript}, {place}, must be from {check.origin} on and below {end}"


def extent(argument: Argument) -> tuple[int, int]:
    """Elements from the first to the last that an array spans, and how many of them precede that at index zero."""
    if 0 in argument.shape:
        return 0, 0
    reach = [(n - 1) * s for n, s in zip(argument.shape, argument.strides, strict=True)]
    return 1 + sum(map(abs, reach)), -sum(r for r in reach if r < 0)


def title(interface: Interface) -> list[str]:
    """What stands at the head of each file: the program, and where the text comes from."""
    program = [f"   {line}".rstrip() for line in str(interface.function).replace("*/", "* /").splitlines()]
    return ["/*", *program, "", "   Made by tcomp.  Parts that come from tcomp: Apache License 2.0.", "*/"]
