"""Random accesses: subscripts that stay inside a tensor, and ways to read outside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tcomp.fuzzing.programs.choices import Choices
from tcomp.grammar.ranges.ranges import Box
from tcomp.values.operators import DType

BOUNDARIES = ("repeat_edge", "mirror_image", "mirror_interior", "repeat_image")


@dataclass(frozen=True, slots=True)
class Known:
    """A tensor that can be read: no finite element is larger in magnitude than ``bound``."""

    name: str
    dtype: DType
    box: Box
    bound: float


@dataclass(frozen=True, slots=True)
class Span:
    """An index with its values ``low`` to ``high``, both included, and the text ``lower:upper`` that states them."""

    name: str
    low: int
    high: int
    lower: str
    upper: str


@dataclass(frozen=True, slots=True)
class Term:
    """An integer expression and the interval that it stays in."""

    text: str
    low: int
    high: int


def term(choices: Choices, spans: Sequence[Span], integer_tensors: Sequence[Known]) -> Term:
    """A random integer expression over indices; over elements of integer tensors, too, where there are any."""
    first = choices.pick(spans)
    second = choices.pick(spans)
    a, b = Term(first.name, first.low, first.high), Term(second.name, second.low, second.high)
    factor = choices.integer(2, 3)
    match choices.pick("iiiiiii++ss-rdmmlhcpxqt"):
        case "i":
            return a
        case "+":
            return Term(f"{a.text} + {b.text}", a.low + b.low, a.high + b.high)
        case "s":
            return Term(f"{factor}*{a.text} + {b.text}", factor * a.low + b.low, factor * a.high + b.high)
        case "-":
            return Term(f"{a.text} - {b.text}", a.low - b.high, a.high - b.low)
        case "r":
            return Term(f"-{a.text}", -a.high, -a.low)
        case "d":
            a = _dividend(choices, a)
            return Term(f"{a.text} / {factor}", a.low // factor, a.high // factor)
        case "m":
            return Term(f"{_dividend(choices, a).text} % {factor}", 0, factor - 1)
        case "l":
            top = choices.integer(0, 4)
            return Term(f"min({a.text}, {top})", min(a.low, top), min(a.high, top))
        case "h":
            total = f"({a.text} + {b.text}) / {factor}"
            return Term(total, (a.low + b.low) // factor, (a.high + b.high) // factor)
        case "p" if a.low >= 0 and b.low >= 0:
            return Term(f"{a.text} * {b.text}", a.low * b.low, a.high * b.high)
        case "q":
            test = choices.integer(a.low, max(a.low, a.high))
            return Term(f"({a.text} >= {test} ? {a.text} : {b.text})", min(a.low, b.low), max(a.high, b.high))
        case "t":
            return _truth(choices, [a, b], integer_tensors, spans)
        case "x" if integer_tensors:
            return _element(choices, choices.pick(integer_tensors), spans)
        case _:
            return Term("0", 0, 0)


def _dividend(choices: Choices, of: Term) -> Term:
    """What is divided: often less than zero at some points."""
    by = choices.integer(0, 4)
    return Term(f"({of.text} - {by})", of.low - by, of.high - by) if by else of


def _truth(choices: Choices, of: Sequence[Term], integer_tensors: Sequence[Known], spans: Sequence[Span]) -> Term:
    """Zero, or where two comparisons hold a small number; what is compared are elements where there are any."""
    tests = []
    for number in range(2):
        compared = of[number]
        if integer_tensors and not choices.chance(30):
            compared = _element(choices, choices.pick(integer_tensors), spans)
        limit = choices.integer(compared.low, max(compared.low, compared.high))
        tests.append(f"{compared.text} {choices.pick(('>', '<=', '=='))} {limit}")
    most = choices.integer(1, 2)
    match choices.pick("*&i"):
        case "*":
            text = f"({tests[0]} ? 1 : 0) * ({tests[1]} ? {most} : 0)"
        case "&":
            text = f"({tests[0]} && {tests[1]} ? {most} : 0)"
        case _:
            text = f"{most} * int32({tests[0]} && {tests[1]})"
    return Term(text, 0, most)


def _element(choices: Choices, tensor: Known, spans: Sequence[Span]) -> Term:
    """An element of an integer tensor, brought into a small range; its subscripts may hold elements, too."""
    modulus = choices.integer(1, 8)
    subscripts = []
    for origin, extent in zip(tensor.box.origin, tensor.box.extent, strict=True):
        subscript = inside(choices, origin, extent, spans, ())
        if choices.chance(15):
            place = [
                inside(choices, o, e, spans, ()) for o, e in zip(tensor.box.origin, tensor.box.extent, strict=True)
            ]
            subscript = shifted(f"{_access(tensor.name, place)} % {extent}", origin)
        subscripts.append(subscript)
    return Term(f"{_access(tensor.name, subscripts)} % {modulus}", 0, modulus - 1)


def _access(name: str, subscripts: Sequence[str]) -> str:
    return f"{name}({', '.join(subscripts)})" if subscripts else name


def shifted(text: str, by: int) -> str:
    """The text of a sum with a constant."""
    if by == 0:
        return text
    return f"{text} + {by}" if by > 0 else f"{text} - {-by}"


def inside(choices: Choices, origin: int, extent: int, spans: Sequence[Span], integer_tensors: Sequence[Known]) -> str:
    """A subscript that stays inside ``origin`` to ``origin + extent - 1``."""
    if extent == 0:
        return next((s.name for s in spans if s.high < s.low), str(origin))
    matching = [s.name for s in spans if (s.low, s.high) == (origin, origin + extent - 1)]
    if matching and not choices.chance(50):
        return choices.pick(matching)
    for _ in range(3 if spans else 0):
        found = term(choices, spans, integer_tensors)
        least, most = origin - found.low, origin + extent - 1 - found.high
        if least > most:
            continue
        shift = 0 if least <= 0 <= most and not choices.chance(30) else choices.integer(least, most)
        return shifted(found.text, shift)
    if spans and choices.chance(30):
        return shifted(f"({term(choices, spans, integer_tensors).text}) % {extent}", origin)
    return str(origin + choices.integer(0, extent - 1))


def element_inside(choices: Choices, origin: int, extent: int, spans: Sequence[Span], tensor: Known) -> str:
    """The same, chosen by an integer tensor."""
    return shifted(f"{plain_read(choices, tensor, spans, ())} % {extent}", origin)


def plain_read(choices: Choices, tensor: Known, spans: Sequence[Span], integer_tensors: Sequence[Known]) -> str:
    """A read inside the tensor."""
    box = zip(tensor.box.origin, tensor.box.extent, strict=True)
    return _access(tensor.name, [inside(choices, o, e, spans, integer_tensors) for o, e in box])


def read(
    choices: Choices, tensor: Known, spans: Sequence[Span], integer_tensors: Sequence[Known], otherwise: str
) -> str:
    """A read of any kind; ``otherwise`` is the value where a guarded or bounded read finds nothing."""
    kind = choices.pick("rrrrrrrbbg") if spans and tensor.box.extent else "r"
    if kind == "r":
        return plain_read(choices, tensor, spans, integer_tensors)
    if kind == "b":
        return _boundary_read(choices, tensor, spans, otherwise)
    return _guarded_read(choices, tensor, spans, integer_tensors, otherwise)


def _boundary_read(choices: Choices, tensor: Known, spans: Sequence[Span], otherwise: str) -> str:
    kind = choices.pick([*BOUNDARIES, "constant_exterior", "constant_exterior"])
    value = f", {otherwise}" if kind == "constant_exterior" else ""
    offsets = [choices.integer(0, 4) - 2 + origin for origin in tensor.box.origin]
    subscripts = [shifted(term(choices, spans, ()).text, offset) for offset in offsets]
    return f"{kind}({tensor.name}{value})({', '.join(subscripts)})"


def _guarded_read(
    choices: Choices, tensor: Known, spans: Sequence[Span], integer_tensors: Sequence[Known], otherwise: str
) -> str:
    """One subscript may leave the tensor, where a condition keeps the read from happening."""
    guarded = choices.integer(0, len(tensor.box.extent) - 1)
    subscripts, condition, negated = [], "", ""
    for d, (origin, extent) in enumerate(zip(tensor.box.origin, tensor.box.extent, strict=True)):
        if d != guarded:
            subscripts.append(inside(choices, origin, extent, spans, integer_tensors))
            continue
        found = term(choices, spans, ())
        shift = choices.integer(0, 4) - 2
        text = shifted(found.text, shift)
        tests = []
        if found.low + shift < origin:
            tests.append((f"{text} >= {origin}", f"{text} < {origin}"))
        if found.high + shift >= origin + extent or not tests:
            tests.append((f"{text} < {origin + extent}", f"{text} >= {origin + extent}"))
        condition, negated = " && ".join(t[0] for t in tests), " || ".join(t[1] for t in tests)
        subscripts.append(text)
    access = _access(tensor.name, subscripts)
    if choices.chance(30):
        return f"({negated} ? {otherwise} : {access})"
    return f"({condition} ? {access} : {otherwise})"
