"""What each statement writes and reads, once a tensor that is written anew has another name each time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

from tcomp.errors import DerivativeError, Diagnostic
from tcomp.grammar.ranges.linear import linear
from tcomp.grammar.ranges.polynomials import greatest, least
from tcomp.grammar.ranges.symbolic import Span, Symbolic
from tcomp.grammar.tree.dataranges import ranges_of
from tcomp.grammar.tree.function import Function, Index, Range, Read, Statement, is_indirect, walk


@dataclass(frozen=True, slots=True)
class Version:
    """The content of a tensor that a statement makes or adds to: ``name`` is its own in derived text.

    ``reads`` says for every tensor which version this statement sees.  ``is_only_write`` says that no other statement
    writes the version.  ``base`` is the version of which this one overwrites a part, or to which it adds, multiplies or
    compares; None if it overwrites all.  ``before`` is the box of what was written until then, if it is known.
    ``gaps`` is the box from which a later version goes on, where this one is not known to write all of it: the rest
    is nothing that anybody reads, but must be there to be copied.
    """

    tensor: str
    name: str
    reads: Mapping[str, str]
    is_only_write: bool
    base: str | None = None
    before: tuple[Span, ...] | None = None
    gaps: tuple[Span, ...] | None = None


def versions_of(function: Function, symbolic: Symbolic) -> tuple[Version, ...]:
    """One per statement; the last version of a tensor keeps its name.

    Raises DerivativeError for content that the caller passes.
    """
    if function.needs_content:
        message = f"{function.needs_content[0]} is read before it is written, so it has no derivative here yet"
        raise DerivativeError(Diagnostic(message, function.source, function.tensors[function.needs_content[0]].span))
    numbers: list[int] = []
    current: dict[str, int] = {}
    seen: set[tuple[str, int]] = set()
    partial: set[tuple[str, int]] = set()
    for position, statement in enumerate(function.statements):
        seen |= {(tensor, current[tensor]) for tensor in tensors_read(statement) if tensor in current}
        target = statement.target
        same = [p for p in range(position) if numbers[p] == current.get(target) and _target(function, p) == target]
        is_new, keeps = True, False
        if statement.reduction is None or statement.initialise:
            beside = bool(same) and all(are_disjoint(function, symbolic, position, p) for p in same)
            beside = beside and (target, current[target]) not in partial
            is_new = not beside or (target, current[target]) in seen
            keeps = bool(same) and is_new and not writes_all(position, function, symbolic)
        else:
            # A sum goes on in the version that it adds to, unless something reads what was there.
            read = (target, current[target]) in seen or any(_is_read_back(function, p) for p in same)
            is_new = keeps = statement.reduction != "+" or read
        if is_new:
            current[target] = current.get(target, -1) + 1
        if keeps:
            partial.add((target, current[target]))
        numbers.append(current[target])
    taken = {*function.tensors, *function.sizes, *(i for s in function.statements for i in s.indices)}
    names: dict[tuple[str, int], str] = {}
    for target, number in dict.fromkeys(zip((s.target for s in function.statements), numbers, strict=True)):
        names[target, number] = target if number == current[target] else _fresh(f"{target}_{number + 1}", taken)
    bases = {names[key]: names[key[0], key[1] - 1] for key in partial}
    return tuple(_versions(function, symbolic, numbers, names, bases))


def _versions(
    function: Function,
    symbolic: Symbolic,
    numbers: list[int],
    names: Mapping[tuple[str, int], str],
    bases: Mapping[str, str],
) -> list[Version]:
    result: list[Version] = []
    reads = {tensor.name: tensor.name for tensor in function.tensors.values()}
    written = [names[s.target, n] for s, n in zip(function.statements, numbers, strict=True)]
    boxes: dict[str, tuple[Span, ...] | None] = {}
    for position, (statement, own) in enumerate(zip(function.statements, written, strict=True)):
        base = bases.get(own)
        before = boxes.get(base) if base is not None else None
        result.append(Version(statement.target, own, dict(reads), written.count(own) == 1, base, before))
        boxes[own] = _with_written(position, function, symbolic, boxes.get(own, before))
        reads[statement.target] = own
    goes_on = {v.base: v.before for v in result if v.base is not None and v.before is not None}
    return [
        replace(v, gaps=goes_on[v.name])
        if v.name in goes_on and not _fills(v.name, goes_on[v.name], result, function, symbolic)
        else v
        for v in result
    ]


def _fills(
    own: str, box: tuple[Span, ...], versions: Sequence[Version], function: Function, symbolic: Symbolic
) -> bool:
    """Whether the statements of a version write all of a box, as far as that is plain: one, or some side by side."""
    boxes = [v.before for v in versions if v.name == own and v.before is not None][:1]
    for position, version in enumerate(versions):
        if version.name == own:
            written = _box_of(position, function, symbolic)
            if written is not None and writes_all(position, function, symbolic, written):
                boxes.append(written)
    while True:
        if box in boxes:
            return True
        pairs = [(a, b) for a in boxes for b in boxes if a is not b and _joined(a, b) not in (None, *boxes)]
        if not pairs:
            return False
        joined = _joined(*pairs[0])
        assert joined is not None
        boxes.append(joined)


def _joined(first: tuple[Span, ...], second: tuple[Span, ...]) -> tuple[Span, ...] | None:
    """Two boxes as one, if the second begins in one dimension right behind the first, and the others are the same."""
    different = [d for d, (a, b) in enumerate(zip(first, second, strict=True)) if a != b]
    if len(different) != 1 or first[different[0]][1] + 1 != second[different[0]][0]:
        return None
    (d,) = different
    last = greatest([first[d][1], second[d][1]])
    return (*first[:d], (first[d][0], last), *first[d + 1 :])


def _with_written(
    position: int, function: Function, symbolic: Symbolic, before: tuple[Span, ...] | None
) -> tuple[Span, ...] | None:
    """The box of what a statement writes and what was written before; None where that cannot be said."""
    known = _box_of(position, function, symbolic)
    if known is None or before is None:
        return known
    return tuple((least([a[0], b[0]]), greatest([a[1], b[1]])) for a, b in zip(before, known, strict=True))


def _box_of(position: int, function: Function, symbolic: Symbolic) -> tuple[Span, ...] | None:
    """Between which elements a statement writes, if that is known."""
    forms = [linear(subscript) for subscript in function.statements[position].subscripts]
    spans = [None if form is None else form.reach(symbolic.ranges[position]) for form in forms]
    known = tuple(span for span in spans if span is not None)
    return known if len(known) == len(spans) else None


def writes_all(position: int, function: Function, symbolic: Symbolic, box: tuple[Span, ...] | None = None) -> bool:
    """Whether a statement writes every element of its tensor, or of a box, as far as that is plain."""
    statement = function.statements[position]
    box = box or symbolic.boxes.get(statement.target)
    if box is None or any(depends_on_indices(given) for given in statement.ranges):
        return False
    if statement.reduction is None and ranges_of(statement.value):
        return False  # elements outside of a range that data give stay as they are
    seen: list[str] = []
    for subscript, whole in zip(statement.subscripts, box, strict=True):
        form = linear(subscript)
        if is_indirect(subscript) and statement.initialise:
            continue
        if form is None or [c.constant for _, c in form.terms] not in ([1], [-1], []):
            return False
        if form.interval(symbolic.ranges[position]) != whole:
            return False
        seen += form.indices()
    return len(set(seen)) == len(seen)


def _target(function: Function, position: int) -> str:
    return function.statements[position].target


def _is_read_back(function: Function, position: int) -> bool:
    """Whether the derivative of a reduction compares with its result."""
    return function.statements[position].reduction not in (None, "+")


def are_disjoint(function: Function, symbolic: Symbolic, first: int, second: int) -> bool:
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


def depends_on_indices(given: Range) -> bool:
    """Whether other indices bound a range."""
    return any(isinstance(e, Index) for bound in (given.lower, given.upper) for e in walk(bound))


def tensors_read(statement: Statement) -> set[str]:
    """The tensors whose elements a statement mentions on its right-hand side or in its subscripts."""
    return {e.tensor for expr in statement.expressions() for e in walk(expr) if isinstance(e, Read)}


def _fresh(wanted: str, taken: set[str]) -> str:
    while wanted in taken:
        wanted += "_"
    taken.add(wanted)
    return wanted
