"""A rule: two defs with the same parameters, and what must hold so that the second may stand for the first."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from string import Template

from tcomp.errors import SourceText
from tcomp.grammar.parsing.parser import parse_recovering
from tcomp.grammar.tree import syntax
from tcomp.networks.network import Definition

Shapes = Mapping[str, tuple[int, ...]]
Choice = Mapping[str, Definition]
"""The defs that words of a rule stand for."""

MOST_AXES = 5
_BUNDLES = "ij"


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a rule that stands for several defs: those that it ``accepts``; a proof tries the ``samples``."""

    accepts: Callable[[Definition], bool]
    samples: Callable[[], Sequence[Sample]]


Look = Word | tuple[str, ...]
"""What a call must be: one of a word, or a function of elements by these operators and functions."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A def that a word may stand for: numbers for its ``const`` parameters, extents, how many axes ``i`` is."""

    definition: Definition
    numbers: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    axes: int | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """``before`` may be replaced by ``after``, which are bodies of defs with these parameters and the result ``Y``.

    An index ``i`` or ``j`` stands for any number of axes, and ``I`` and ``J`` for their extents.  ``$word`` is a def
    that the word stands for.  Each statement of ``before`` is one call.

    Args:
        name: by which it is told, and left out.
        parameters: tensors and numbers; ``$layer`` stands for a layer's: ``X``, the kernel ``Z``, perhaps ``b``.
        before: what is looked for.
        after: what is written for it.
        words: what words stand for.
        derived: words of ``after`` that follow from other words and from the shapes of tensors.
        when: what numbers are.
        weights: parameters that must be known before any input, so that what is made of them alone costs nothing.
        numbers: scalars that must be known, since they become numbers in the text.
        reassociates: whether results may be rounded otherwise, since sums or products are made in another order, or are
            zeros of another sign.
    """

    name: str
    parameters: str
    before: str
    after: str
    words: Mapping[str, Word] = field(default_factory=dict)
    derived: Mapping[str, Callable[[Choice, Shapes], Definition]] = field(default_factory=dict)
    when: Mapping[str, float] = field(default_factory=dict)
    weights: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    reassociates: bool = False

    def __str__(self) -> str:
        told = [f"{name} = {value:g}" for name, value in self.when.items()]
        told += [f"{', '.join(sorted(self.weights))} known"] if self.weights else []
        told += ["rounded otherwise"] if self.reassociates else []
        condition = f"    where {'; '.join(told)}\n" if told else ""
        before, after = ("\n".join(f"    {line}" for line in _lines(text)) for text in (self.before, self.after))
        return f"{self.name}({self.parameters})\n{before}\n  =>\n{after}\n{condition}"

    @property
    def root_axes(self) -> int:
        """Axes of the result besides those of ``i``, or -1 where the last statement is a call."""
        target = re.match(r"Y\(([^)]*)\) =", _lines(self.before)[-1])
        return -1 if target is None else sum(c not in _BUNDLES for c in target[1].split(","))

    def looks(self) -> tuple[tuple[Look, ...], bool]:
        """What calls there must be for it to hold, the last one first; whether that must take a weight or a number.

        It costs no parser, so a network in which no rule holds is left as it is quickly.
        """
        names = set(re.findall(r"\w+", self.parameters)) - {"float"} | {"X"}
        statements = [line.partition(" = ") for line in _lines(self.before)]
        names |= {target.partition("(")[0] for target, _, _ in statements}
        found: list[Look] = [look(value, names) if "$" not in value else self.words[value[1:].partition("(")[0]]
                             for _, _, value in reversed(statements)]  # fmt: skip
        own = set(re.findall(r"\w+", statements[-1][2]))
        scalars = set(re.findall(r"float (\w+)", self.parameters))
        return tuple(found), bool(own & (self.weights | self.numbers | scalars))


@dataclass(frozen=True, slots=True)
class Instance:
    """A rule for so many axes and such defs: ``before`` and ``after`` parsed."""

    rule: Rule
    choice: Choice
    before: syntax.Definition
    after: syntax.Definition
    parameters: tuple[str, ...]

    @property
    def kinds(self) -> dict[str, str]:
        """The types of those parameters that are no floats."""
        every = {parameter.name.name: parameter.type or "float" for parameter in self.before.inputs}
        return {name: kind for name, kind in every.items() if kind != "float"}


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def instance(rule: Rule, choice: Choice, axes: int) -> Instance:
    """The rule for defs that its words stand for, and ``axes`` axes for ``i`` where those do not say it."""
    before, after = (texts(rule, choice, axes, side) for side in ("before", "after"))
    parsed = [_parsed(text) for text in (before, after)]
    names = tuple(parameter.name.name for parameter in parsed[0].inputs)
    return Instance(rule, choice, parsed[0], parsed[1], names)


def texts(rule: Rule, choice: Choice, axes: int, side: str) -> str:
    """One side as a def."""
    layer = choice.get("layer")
    given = {word: definition.name for word, definition in choice.items()}
    given |= {word: word for word in rule.derived}
    counts = {"i": axes, "j": 1}
    if layer is not None:
        kinds = tensors(layer)
        counts |= {"i": kinds[0].count(",") - (1 if layer.name.startswith("conv") else 0), "j": kinds[1].count(",")}
    body = rule.before if side == "before" else rule.after
    text = f"def {side}({rule.parameters}) -> (Y) {{\n{body.strip()}\n}}"
    if layer is not None:
        named = zip(tensors(layer), ("X", "Z", "b"), strict=False)
        text = text.replace("$layer, ", ", ".join(f"{kind} {name}" for kind, name in named) + ", ", 1)
        text = text.replace("$F", filters(layer))
    return spread(Template(text).substitute(given), counts)


def tensors(layer: Definition) -> list[str]:
    """The types of the tensors that a layer takes."""
    head = layer.text.partition("->")[0]
    return re.findall(r"(float\([^)]*\)) \w+", head)


def filters(layer: Definition) -> str:
    """The extent of a layer's filters: the first of its kernel."""
    return tensors(layer)[1].partition("(")[2].partition(",")[0]


def spread(text: str, counts: Mapping[str, int]) -> str:
    """The text with so many axes for each index that stands for several."""
    for bundle, count in counts.items():
        for name in (bundle, bundle.upper()):
            names = ",".join(f"{name}{k}" for k in range(count))
            if names:
                text = re.sub(rf"(?<=[(,]){name}(?=[,)])", names, text)
            else:
                text = re.sub(rf",{name}(?=[,)])|(?<=\(){name},|\({name}\)", "", text)
    return text


@lru_cache(maxsize=2048)
def _parsed(text: str) -> syntax.Definition:
    return parse_recovering(SourceText(text, "rule")).definitions[0]


def parsed(definition: Definition) -> syntax.Definition | None:
    """The def of a network as a tree; None where it has no text."""
    return None if definition.outside is not None else _parsed(definition.text)


def look(expression: str, names: set[str]) -> tuple[str, ...]:
    """The operators and functions of an expression, sorted; ``names`` are tensors."""
    plain = re.sub(r"(?<![\w.])\d+\.?\d*(?:[eE][+-]?\d+)?", "", expression)
    functions = [name for name in re.findall(r"[A-Za-z_]\w*(?=\()", plain) if name not in names]
    return tuple(sorted([*functions, *re.findall(r"[-+*/%<>=!&|?:]+", plain)]))


@lru_cache(maxsize=2048)
def look_of(definition: Definition) -> tuple[str, ...] | None:
    """Those of a function of elements; None for what is none, or has clauses."""
    if not definition.pointwise or " where " in definition.text:
        return None
    head, _, body = definition.text.partition("{")
    return look(body.partition(" = ")[2].rpartition("}")[0], set(re.findall(r"\w+", head)))
