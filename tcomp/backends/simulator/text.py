"""What the simulator reads off a CUDA text, and the few words that it changes, without moving a line."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tcomp.errors import TargetError

FILE = "kernel.cu"
"""The name under which the compiler knows the text."""

_DYNAMIC = re.compile(r"\bextern\s+__shared__(?P<type>[^;\[]*?)\b(?P<name>\w+)\s*\[\s*\]")
_SHARED = re.compile(
    r"\b__shared__\s+(?:__align__\s*\(\s*\d+\s*\)\s*)?(?P<type>[\w ]+?)\s+"
    r"(?P<name>\w+)(?P<shape>(?:\s*\[[^\]]+\])*)\s*;"
)
_EXTENT = re.compile(r"\[\s*(\d+)\s*\]")
_TYPE_BYTES = {
    "char": 1, "signed char": 1, "unsigned char": 1, "bool": 1, "short": 2, "unsigned short": 2, "int": 4,
    "unsigned": 4, "unsigned int": 4, "float": 4, "double": 8, "long long": 8, "unsigned long long": 8,
    "float2": 8, "float4": 16, "int2": 8, "int4": 16, "uint2": 8, "uint4": 16, "double2": 16,
}  # fmt: skip
_GUARD = re.compile(r"(?:if|for|while)\s*\(")
_DECLARATION = re.compile(r"(?:[A-Za-z_]\w*\s+)+\*?\s*[A-Za-z_]\w*\s*[=;\[]|\{")
_STATEMENT = re.compile(r"(?!(?:return|break|continue|else|do|switch|case|goto)\b)[A-Za-z_(*+-].*;")


@dataclass(frozen=True, slots=True)
class SharedArray:
    """A declaration of shared memory: extents of its dimensions and the bytes of an element."""

    name: str
    element_bytes: int
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return self.element_bytes * math.prod(self.shape)


def dynamic_names(text: str) -> tuple[str, ...]:
    """The names under which kernels declare dynamic shared memory."""
    return tuple(dict.fromkeys(found["name"] for found in _DYNAMIC.finditer(text)))


def shared_arrays(text: str) -> dict[tuple[str, int], SharedArray]:
    """The static shared variables by name and bytes, for messages; what is declared in unusual ways is left out."""
    found = {}
    for declaration in _SHARED.finditer(text):
        element = " ".join(declaration["type"].split())
        extents = tuple(int(n) for n in _EXTENT.findall(declaration["shape"]))
        if element in _TYPE_BYTES and len(extents) == declaration["shape"].count("["):
            array = SharedArray(declaration["name"], _TYPE_BYTES[element], extents)
            found[array.name, array.bytes] = array
    return found


def simulated_text(text: str, line_flops: Mapping[int, int]) -> str:
    """The text for g++: ``extern __shared__`` becomes ``extern`` alone, as a shared variable is static elsewhere.

    The statement on each line of ``line_flops`` (counted from 1) tells the runtime that it is executed.  Raises
    TargetError for such a line that is neither an expression nor a declaration.
    """
    text = _DYNAMIC.sub(lambda m: f"extern{m['type']}{m['name']}[]", text)
    if not line_flops:
        return text
    lines = text.split("\n")
    for number in line_flops:
        lines[number - 1] = _counted(lines[number - 1], number)
    return "\n".join(lines)


def _counted(line: str, number: int) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    bare = line.lstrip()
    head = _guard_length(bare)
    guard, bare = bare[:head], bare[head:]
    if _DECLARATION.match(bare):
        counted = f"tc_sim_executed({number}); {bare}"
        return f"{indent}{guard}{{ {counted} }}" if guard else f"{indent}{counted}"
    if _STATEMENT.match(bare):
        return f"{indent}{guard}tc_sim_executed({number}), {bare}"
    raise TargetError(f"the executions of line {number} cannot be counted: {line.strip()}")


def _guard_length(text: str) -> int:
    """How long the ``if (...)`` or ``for (...)`` in front of a statement on the same line is."""
    length = 0
    while found := _GUARD.match(text, length):
        depth, at = 1, found.end()
        while depth and at < len(text):
            depth += (text[at] == "(") - (text[at] == ")")
            at += 1
        while at < len(text) and text[at] == " ":
            at += 1
        length = at
    return length
