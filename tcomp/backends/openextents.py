"""Extents and strides of arrays that follow from open sizes, as names in the text of a kernel."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tcomp.grammar.ranges.affine import step_parameter
from tcomp.grammar.ranges.polynomials import Atom, Polynomial, Quotient
from tcomp.model.scop import Scop
from tcomp.model.terms.storages import Storage


def extent_text(storage: Storage, dimension: int, suffix: str = "L") -> str:
    """The extent of a dimension: a number, or the name of what is computed where the kernel begins."""
    extent = storage.box.extent[dimension]
    return f"extent{dimension}_{storage.name}" if storage.is_open(dimension) else f"{extent}{suffix}"


def end_text(storage: Storage, dimension: int) -> str:
    """The first coordinate behind a dimension."""
    origin = storage.box.origin[dimension]
    if not storage.is_open(dimension):
        return str(origin + storage.box.extent[dimension])
    extent = extent_text(storage, dimension)
    return f"({origin} + {extent})" if origin else extent


def stride_text(storage: Storage, dimension: int, suffix: str = "L") -> str:
    """The stride of a dimension, likewise."""
    known = storage.known_strides[dimension]
    return f"stride{dimension}_{storage.name}" if known is None else f"{known}{suffix}"


def open_declarations(scop: Scop, body: str, integer: str = "long") -> list[str]:
    """The lines that compute those extents and strides which some text names."""
    steps = () if scop.around is None else scop.around.steps
    words = {name: step_parameter(name) if name in steps else f"{value}L" for name, value in scop.sizes.items()}
    lines: list[str] = []
    for storage in scop.storages.values():
        formulas = () if storage.opened is None else storage.opened.extents
        for d, formula in enumerate(formulas):
            if formula is not None:
                lines.append(f"const {integer} {extent_text(storage, d)} = {_text(formula, words)};")
        for d in reversed([d for d, stride in enumerate(storage.known_strides) if stride is None]):
            behind = f"{extent_text(storage, d + 1, '')} * {stride_text(storage, d + 1, '')}"
            lines.append(f"const {integer} {stride_text(storage, d)} = {behind};")
    kept: list[str] = []
    for line in reversed(lines):
        if re.search(rf"\b{line.split()[2]}\b", "\n".join([*kept, body])):
            kept.insert(0, line)
    return kept


def _text(formula: Polynomial, words: Mapping[str, str]) -> str:
    terms = [
        " * ".join([*([f"{factor}L"] if factor != 1 or not monomial else []), *(_atom(a, words) for a in monomial)])
        for monomial, factor in formula.terms
    ]
    return " + ".join(terms) or "0L"


def _atom(atom: Atom, words: Mapping[str, str]) -> str:
    match atom:
        case str():
            return words[atom]
        case Quotient():
            return f"tc_floordiv({_text(atom.numerator, words)}, {_text(atom.divisor, words)})"
        case _:
            text, *others = (_text(operand, words) for operand in atom.operands)
            for other in others:
                text = f"tc_{atom.op}({text}, {other})"
            return text
