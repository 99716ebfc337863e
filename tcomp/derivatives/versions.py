"""What each statement writes and reads, once a tensor that is written anew has another name each time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd

from tcomp.errors import DerivativeError, Diagnostic
from tcomp.grammar.ranges.linear import linear
from tcomp.grammar.ranges.symbolic import Symbolic
from tcomp.grammar.tree.function import Constant, Function, Index, Read, Size, Statement, walk


@dataclass(frozen=True, slots=True)
class Version:
    """The content of a tensor that a statement makes or adds to: ``name`` is its own in derived text.

    ``reads`` says for every tensor which version this statement sees.  ``is_only_write`` says that no other statement
    writes the version.  ``base`` is the version of which this one overwrites a part; None if it overwrites all.
    """

    tensor: str
    name: str
    reads: Mapping[str, str]
    is_only_write: bool
    base: str | None = None


def versions_of(function: Function, symbolic: Symbolic) -> tuple[Version, ...]:
    """One per statement; the last version of a tensor keeps its name.

    Raises DerivativeError for content that the caller passes, and for tensors that are added to after they were read.
    """
    if function.needs_content:
        message = f"{function.needs_content[0]} is read before it is written, so it has no derivative here yet"
        raise DerivativeError(Diagnostic(message, function.source, function.tensors[function.needs_content[0]].span))
    numbers: list[int] = []
    current: dict[str, int] = {}
    seen: set[tuple[str, int]] = set()
    partial: set[tuple[str, int]] = set()
    for position, statement in enumerate(function.statements):
        reads = tensors_read(statement)
        seen |= {(tensor, current[tensor]) for tensor in reads if tensor in current}
        target = statement.target
        if statement.reduction is None or statement.initialise:
            same = [p for p in range(position) if numbers[p] == current.get(target) and _target(function, p) == target]
            beside = same and all(_are_disjoint(function, symbolic, position, p) for p in same)
            beside = beside and (target, current[target]) not in partial
            if same and not beside and not _writes_all(position, function, symbolic):
                if (
                    not all(isinstance(s, Index | Constant | Size) for s in statement.subscripts)
                    and statement.reduction
                ):
                    _refuse(function, statement, f"part of {target} is written again")
                partial.add((target, current[target] + 1))
            if beside and (target, current[target]) in seen:
                _refuse(function, statement, f"{target} is read before the rest of it is written")
            current[target] = current.get(target, -1) + (0 if beside else 1)
        elif statement.reduction != "+":
            _refuse(function, statement, f"`{statement.reduction}=` without `!`")
        elif (target, current[target]) in seen:
            _refuse(function, statement, f"{target} is read before it is added to")
        elif any(_is_read_back(function, p) for p in range(position) if _target(function, p) == target):
            _refuse(function, statement, f"{target} is added to after its extremes or products were found")
        numbers.append(current[target])
    taken = {*function.tensors, *function.sizes, *(i for s in function.statements for i in s.indices)}
    names: dict[tuple[str, int], str] = {}
    for target, number in dict.fromkeys(zip((s.target for s in function.statements), numbers, strict=True)):
        names[target, number] = target if number == current[target] else _fresh(f"{target}_{number + 1}", taken)
    bases = {names[key]: names[key[0], key[1] - 1] for key in partial}
    return tuple(_versions(function, numbers, names, bases))


def _versions(
    function: Function, numbers: list[int], names: Mapping[tuple[str, int], str], bases: Mapping[str, str]
) -> list[Version]:
    result: list[Version] = []
    reads = {tensor.name: tensor.name for tensor in function.tensors.values()}
    written = [names[s.target, n] for s, n in zip(function.statements, numbers, strict=True)]
    for statement, own in zip(function.statements, written, strict=True):
        result.append(Version(statement.target, own, dict(reads), written.count(own) == 1, bases.get(own)))
        reads[statement.target] = own
    return result


def _writes_all(position: int, function: Function, symbolic: Symbolic) -> bool:
    statement = function.statements[position]
    forms = [linear(subscript) for subscript in statement.subscripts]
    spans = [None if form is None else form.interval(symbolic.ranges[position]) for form in forms]
    plain = all(form is not None and [c.constant for _, c in form.terms] in ([1], [-1], []) for form in forms)
    return plain and tuple(spans) == symbolic.boxes.get(statement.target)


def _target(function: Function, position: int) -> str:
    return function.statements[position].target


def _is_read_back(function: Function, position: int) -> bool:
    """Whether the derivative of a reduction compares with its result."""
    return function.statements[position].reduction not in (None, "+")


def _are_disjoint(function: Function, symbolic: Symbolic, first: int, second: int) -> bool:
    """Whether two statements write different elements of a tensor, whatever the sizes, as far as that is plain."""
    pairs = zip(function.statements[first].subscripts, function.statements[second].subscripts, strict=True)
    for one, other in pairs:
        a, b = linear(one), linear(other)
        if a is None or b is None:
            continue
        here, there = a.interval(symbolic.ranges[first]), b.interval(symbolic.ranges[second])
        if here and there and any((x[0] - y[1] - 1).is_nonnegative() for x, y in ((here, there), (there, here))):
            return True
        steps = [coefficient.constant for _, coefficient in (*a.terms, *b.terms)]
        apart = (a.constant - b.constant).constant
        known = [step for step in steps if step is not None]
        if apart is not None and known and len(known) == len(steps) and apart % gcd(*known) != 0:
            return True
    return False


def tensors_read(statement: Statement) -> set[str]:
    """The tensors whose elements a statement mentions on its right-hand side or in its subscripts."""
    return {e.tensor for expr in statement.expressions() for e in walk(expr) if isinstance(e, Read)}


def _refuse(function: Function, statement: Statement, what: str) -> None:
    raise DerivativeError(Diagnostic(f"{what}, which has no derivative here yet", function.source, statement.span))


def _fresh(wanted: str, taken: set[str]) -> str:
    while wanted in taken:
        wanted += "_"
    taken.add(wanted)
    return wanted
