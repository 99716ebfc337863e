"""The proof of a rule: both sides compute the same.

Sides that only move elements are compared as maps, exactly: from the elements of the result to those of the argument.
Others are computed in rational numbers, which round nothing, for arguments at random.  Functions such as ``exp`` and
``erf`` give numbers at random, but equal ones for equal arguments, so that a rule may move but not invent them.  What
differs as a quotient of polynomials of degree d differs for random numbers of 31 bits but for d in 2^31 of them
(Schwartz and Zippel), and each element is a trial of its own.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import islpy as isl

from tcomp.engine import define
from tcomp.errors import Diagnostic, NetworkError
from tcomp.grammar.ranges.ranges import infer
from tcomp.grammar.tree import function as tree
from tcomp.model.build import build
from tcomp.model.terms.sizes import Sizes
from tcomp.networks.network import Definition
from tcomp.networks.rewriting.exact import Numbers, computed
from tcomp.networks.rewriting.rules import Rule, Sample, texts

_TRIALS, _TRIALS_OF_LAYERS = 5, 1
_AXES = (1, 2)


@dataclass(frozen=True, slots=True)
class Proof:
    """``how`` is ``moves`` or ``algebra``; ``instances`` is for how many defs and numbers of axes it was tried."""

    rule: str
    how: str
    instances: int


@dataclass(frozen=True, slots=True)
class Pair:
    """Both sides as program text, with extents by which to try them, and the shapes of parameters that these give."""

    before: str
    after: str
    sizes: Mapping[str, int]
    shapes: tuple[tuple[int, ...], ...]


def pairs(rule: Rule) -> list[Pair]:
    """Both sides for each def that a word may be, and for one axis or two."""
    made = []
    for samples in itertools.product(*(word.samples() for word in rule.words.values())):
        choice = dict(zip(rule.words, (s.definition for s in samples), strict=True))
        told = [s.axes for s in samples if s.axes is not None]
        for axes in told[:1] or (_AXES if not samples else _AXES[:1]):
            made.append(_pair(rule, choice, samples, axes))
    return made


def _pair(rule: Rule, choice: Mapping[str, Definition], samples: tuple[Sample, ...], axes: int) -> Pair:
    numbers = {s.definition.name: s.numbers for s in samples}
    sizes = {name: extent for s in samples for name, extent in s.sizes.items()}
    parameters = rule.parameters
    if parameters == "float(I) X" and choice:
        first = re.search(r"float(\([^)]*\))", next(iter(choice.values())).text)
        assert first is not None
        parameters = parameters.replace("float(I) X", f"float{first[1]} X", 1)
    changed = Rule(rule.name, parameters, rule.before, rule.after, rule.words, rule.derived)
    before = texts(changed, choice, axes, "before")
    text = _whole(choice.values(), _with_numbers(before, numbers))
    operation = define(text)["before"]
    shapes = {t.name: tuple(_extent(d, sizes) for d in t.dims or ()) for t in operation.function.inputs}
    derived = {}
    for word, make in rule.derived.items():
        derived[word] = make(choice, {**shapes, "Y": _result(operation.function, sizes)})
    after = texts(changed, choice, axes, "after")
    for word, definition in derived.items():
        after = re.sub(rf"\b{word}\(", f"{definition.name}(", after)
        source = choice.get("layer")
        if source is not None:
            numbers[definition.name] = numbers[source.name]
    return Pair(
        text,
        _whole((*choice.values(), *derived.values()), _with_numbers(after, numbers)),
        sizes,
        tuple(shapes.values()),
    )


def _whole(definitions: Iterable[Definition], text: str) -> str:
    """A def after those that it calls."""
    used = {d.name: d.text for d in definitions if re.search(rf"\b{d.name}\(", text)}
    return "\n\n".join([*used.values(), text])


def _with_numbers(text: str, numbers: Mapping[str, Mapping[str, int]]) -> str:
    """Numbers for the ``const`` parameters of what is called, in extents, too."""
    for name, given in numbers.items():
        if given:
            for number, k in given.items():
                text = re.sub(rf"\b{number}(?=\*)", str(k), text)
            told = ", ".join(f"{n}={k}" for n, k in given.items())
            text = re.sub(rf"= {name}\(([^()]*)\)", rf"= {name}(\1, {told})", text)
    return text


def prove(rule: Rule) -> Proof:
    """The proof that a rule holds.  Raises NetworkError with the defs for which it does not."""
    every = pairs(rule)
    if not every:
        raise NetworkError(f"the rule {rule.name} has no def to try it by")
    ways = {_proved(rule, pair) for pair in every}
    return Proof(rule.name, "moves" if ways == {"moves"} else "algebra", len(every))


def _proved(rule: Rule, pair: Pair) -> str:
    before, after = (define(text)[side].function for text, side in ((pair.before, "before"), (pair.after, "after")))
    if all(_moves(side) for side in (before, after)):
        maps = [_map(side, pair.sizes) for side in (before, after)]
        if not maps[0].is_equal(maps[1]):
            raise _refuted(rule, pair)
        return "moves"
    for trial in range(_TRIALS_OF_LAYERS if "layer" in rule.words else _TRIALS):
        numbers = Numbers(trial)
        given = {
            t.name: numbers.truths(shape) if t.dtype.name == "bool" else numbers.tensor(shape)
            for t, shape in zip(before.inputs, pair.shapes, strict=True)
        }
        for name, value in rule.when.items():
            given[name] = {(): Fraction(value)}
        one, two = (computed(side, given, _all_sizes(side, pair.sizes), numbers) for side in (before, after))
        if one != two:
            raise _refuted(rule, pair)
    return "algebra"


def _refuted(rule: Rule, pair: Pair) -> NetworkError:
    hint = f"it was tried by\n{pair.before}\n\n{pair.after}"
    return NetworkError(Diagnostic(f"the two sides of the rule {rule.name} differ", hint=hint))


def _extent(dim: tree.Expr, sizes: Mapping[str, int]) -> int:
    """An extent: that of the sample, or one that its name tells: 2 or 3."""
    match dim:
        case tree.Constant():
            return int(dim.value)
        case tree.Size():
            return _size(dim.name, sizes)
        case tree.Binary(op="*"):
            return _extent(dim.lhs, sizes) * _extent(dim.rhs, sizes)
        case tree.Cast():
            return _extent(dim.operand, sizes)
    raise NetworkError("extents of a rule's parameters are names, numbers and products of these")


def _size(name: str, sizes: Mapping[str, int]) -> int:
    if name in ("KH", "KW", "G", "N"):
        return sizes.get(name, 2)
    return sizes.get(name, 2 + sum(map(ord, name)) % 2)


def _all_sizes(function: tree.Function, sizes: Mapping[str, int]) -> dict[str, int]:
    return {name: _size(name, sizes) for name in function.sizes}


def _result(function: tree.Function, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return infer(function, _all_sizes(function, sizes)).boxes["Y"].extent


def _moves(function: tree.Function) -> bool:
    """Whether each statement takes an element from elsewhere."""
    return all(
        s.reduction is None and isinstance(s.value, tree.Read) and s.value.boundary is None for s in function.statements
    )


def _map(function: tree.Function, sizes: Mapping[str, int]) -> isl.Map:
    """From the elements of the result to those of the argument."""
    found: dict[str, isl.Map] = {}
    for statement in build(function, Sizes(_all_sizes(function, sizes))).statements:
        read = statement.write.reverse().apply_range(statement.reads[0])
        name = statement.reads[0].get_tuple_name(isl.dim_type.out)
        found[statement.target] = read.apply_range(found[name]) if name in found else read
    return found["Y"]
