"""Pieces of messages: program text, the sizes that matter, sample elements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import islpy as isl

from tcomp.errors import Span
from tcomp.grammar.ranges.accesses import Access
from tcomp.grammar.tree.forms import variables
from tcomp.grammar.tree.function import Expr, Function, Read, Size, Statement, walk

_LONGEST = 60
_MOST_QUOTED = 4


def text_of(function: Function, span: Span) -> str:
    """The program text of a span on one line, shortened where it is long."""
    text = " ".join(function.source.text[span.start : span.end].split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def mentioned_sizes(function: Function, statement: Statement, sizes: Mapping[str, int]) -> str:
    """`` (N=4, KH=3)``: the sizes that a statement's ranges depend on; empty if there are none.

    All of them where it reads a tensor whose extents are inferred.
    """
    tensors = function.tensors
    expressions: list[Expr] = [*statement.expressions()]
    expressions += [bound for given in statement.ranges for bound in (given.lower, given.upper)]
    read = {node.tensor for expr in expressions for node in walk(expr) if isinstance(node, Read)}
    dims = [tensors[name].dims for name in (*read, statement.target)]
    expressions += [extent for extents in dims for extent in extents or ()]
    names = {node.name for expr in expressions for node in walk(expr) if isinstance(node, Size)}
    inferred = any(tensors[name].dims is None for name in read)
    shown = [f"{name}={value}" for name, value in sizes.items() if inferred or name in names]
    return f" ({', '.join(shown)})" if shown else ""


def quoted_reads(function: Function, reads: Iterable[Access], names: set[str]) -> str:
    """The texts of the reads whose subscripts mention one of ``names``."""
    texts = [
        text_of(function, access.read.span)
        for access in reads
        if any(form is not None and variables(form) & names for form in access.forms)
    ]
    return ", ".join(dict.fromkeys(texts))


def sample_element(tensor: str, elements: isl.Set) -> str:
    """``O(0, 3)``: the lexicographically first element of a non-empty bounded set."""
    point = elements.lexmin().sample_point()
    rank = elements.dim(isl.dim_type.set)
    coordinates = [str(point.get_coordinate_val(isl.dim_type.set, d)) for d in range(rank)]
    return f"{tensor}({', '.join(coordinates)})" if coordinates else tensor


def quoted_statements(function: Function, numbers: Sequence[int]) -> str:
    """``line 3: `t(i) = A(i)```, and so on for the first few statements."""
    quoted: list[str] = []
    for number in numbers[:_MOST_QUOTED]:
        span = function.statements[number].span
        line, _ = function.source.position(span.start)
        file = function.source.name_at(span.start)
        elsewhere = "" if file == function.source.name else f" of {file}"
        quoted.append(f"line {line}{elsewhere}: `{text_of(function, span)}`")
    if len(numbers) > _MOST_QUOTED:
        quoted.append(f"and {len(numbers) - _MOST_QUOTED} more")
    return "; ".join(quoted)


def elements_of(first: int, last: int) -> str:
    """How many elements a dimension has, and which if not from 0 on."""
    count = last - first + 1
    if count == 0:
        return "no elements"
    return f"{count} elements" if first == 0 else f"elements {first} to {last}"
