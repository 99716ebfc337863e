"""Cutting the text of a kernel in two, so that two compilers work at it: some of its loops become a function.

What a compiler will need is estimated from lines and loops.  Of all runs of statements the one is taken that leaves the
two most alike and stands in no loop over register tiles: what gcc makes of a tile depends on all that is around it.
What it uses of what is declared around it becomes parameters; where a declaration is of a kind that is not known here,
or the statements set a variable that lives on, another run is taken, or none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from tcomp.backends.host.toolchain import HALF
from tcomp.mapping.machines.fitted.cputext import HALVES

_STEP = "  "
_WORD = re.compile(r"\b[A-Za-z_]\w*")
_LEAVES = re.compile(r"\b(?:return|goto|break|continue)\b")
_ELEMENT = re.compile(r" *(?!tc_)\w+\[.*?\] = ")
_CHANGED = re.compile(r"\b(\w+) *(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)|(?:\+\+|--) *(\w+)|&(\w+)\b(?!\[)")
_TYPE = r"((?:(?:const|unsigned|signed|long|volatile) )*\w+)"
_POINTER = re.compile(rf"{_TYPE} (\*(?:restrict |const )?)(\w+)(?: = [^&]*)?;$")
_ARRAY = re.compile(rf"{_TYPE} (\w+)\[\d+\](?: __attribute__\(\(aligned\(\d+\)\)\))?(?: = .*)?;$")
_SCALARS = re.compile(rf"{_TYPE} (\w+(?: = .*)?);$")
_DECLARATOR = re.compile(r"(?:^|, )(\w+)(?= = |$)")
_OTHER = re.compile(r"\w+ (?:[^=\[(;]*[ *])?(\w+) ?[=\[(;]")
_INDEX = re.compile(r" *for \(long c\d+ ")
_COUNTERS = re.compile(rf"for \({_TYPE} (\w+[^;]*);")

_Block = tuple[int, int]
"""Lines from the first up to the second."""


@dataclass(frozen=True, slots=True)
class _Statement:
    """Lines from ``first`` up to ``end``; ``blocks`` are those inside, of each of its branches."""

    first: int
    end: int
    blocks: tuple[_Block, ...]


@dataclass(frozen=True, slots=True)
class _Run:
    """Statements in a row, the weight of the ``larger`` half if they are one, and what stands ``around`` them.

    That is, from the outside in, what heads each block and its statements before the run; ``after`` is where the
    innermost block ends.
    """

    larger: float
    first: int
    end: int
    around: tuple[_Block, ...]
    after: int


@dataclass(frozen=True, slots=True)
class _Declared:
    """A variable as a parameter; ``may_change`` if it is no constant."""

    parameter: str
    may_change: bool


def in_halves(lines: Sequence[str], name: str, other: Sequence[str] = ()) -> list[str]:
    """The lines of a function, perhaps in two halves: the second calls the first, a function of that ``name``.

    The lines are a head, a brace, and what is between it and the last one, each two blanks deeper than what it is in.
    Those of ``other`` functions stand in front of them.
    """
    text = _Text(lines, sum(map(_weight, other)))
    found = text.best()
    if found is None:
        return [*other, *lines]
    run, taken = found
    blanks = " " * text.depths[run.first]
    part = [_STEP + line[len(blanks) :] for line in lines[run.first : run.end]]
    head = f"TC_PART void {name}({', '.join(p.parameter for p in taken.values()) or 'void'})"
    first = [head, "{", *part, "}"]
    second = [*lines[: run.first], f"{blanks}{name}({', '.join(taken)});", *lines[run.end :]]
    inside = text.weight(run.first, run.end)
    if inside + inside < text.weight(0, len(lines)):
        first = [*other, *first]
    else:
        second = [*other, *second]
    return [
        *(f"#ifdef {HALF}", '#define TC_PART __attribute__((visibility("hidden")))'),
        *("#else", "#define TC_PART static __attribute__((noinline))", "#endif"),
        f"{head};",
        *(f"#if {HALF} != 2", *first, "#endif"),
        *(f"#if {HALF} != 1", *second, "#endif"),
    ]


def _weight(line: str) -> float:
    """What a compiler does with a line, in lines."""
    if "for (" in line:
        return HALVES.loop_weight
    return HALVES.element_weight if _ELEMENT.match(line) else 1.0


class _Text:
    """The lines of a function, with so much weight ``beside`` them."""

    def __init__(self, lines: Sequence[str], beside: float) -> None:
        self.lines = lines
        self.beside = beside
        self.depths = [len(line) - len(line.lstrip()) for line in lines]
        self.sums = [0.0, *accumulate(map(_weight, lines))]

    def weight(self, first: int, end: int) -> float:
        return self.sums[end] - self.sums[first]

    def best(self) -> tuple[_Run, Mapping[str, _Declared]] | None:
        """The run that leaves the halves most alike, and what it uses, if there is one that is worth it."""
        whole, last = self.sums[-1] + self.beside, len(self.lines) - 1
        if whole < HALVES.least_weight or not all(self._is_plain(at) for at in range(2, last)):
            return None
        for run in sorted(self._runs((2, last), ((0, 2),), 0), key=lambda run: run.larger):
            taken = self._parameters(run)
            if taken is not None:
                return run, taken
        return None

    def _is_plain(self, at: int) -> bool:
        """Whether a line is one of those that are understood here."""
        return self.depths[at] >= len(_STEP) and not self.lines[at].startswith("#i", self.depths[at])

    def _runs(self, block: _Block, around: tuple[_Block, ...], loops: int) -> Iterator[_Run]:
        """The runs of statements of a block in so many loops, and of blocks in it, that leave no half too large."""
        whole = self.sums[-1]
        most = HALVES.most_uneven * (whole + self.beside)
        statements = self._statements(*block)
        compound = [n for n, s in enumerate(statements) if s.blocks]
        for number, i in enumerate(compound):
            for j in compound[number:]:
                first, end = statements[i].first, statements[j].end
                less, more = sorted((self.weight(first, end), whole - self.weight(first, end)))
                larger = max(less + self.beside, more)
                if larger <= most:
                    yield _Run(larger, first, end, (*around, (block[0], first)), block[1])
        for statement in statements:
            if self.lines[statement.first].startswith("#pragma omp simd", self.depths[statement.first]):
                continue
            for inner in statement.blocks:
                if whole - self.weight(*inner) <= most:
                    heads = (block[0], statement.first), (statement.first, inner[0])
                    inside = loops + (_INDEX.match(self.lines[inner[0] - 1]) is not None)
                    if inside <= HALVES.most_loops:
                        yield from self._runs(inner, (*around, *heads), inside)

    def _statements(self, first: int, end: int) -> list[_Statement]:
        """What stands side by side in a block."""
        depth, at, found = self.depths[first], first, []
        while at < end:
            start, blocks = at, []
            while at < end:
                head, inner = self.lines[at].strip(), at + 1
                at = inner
                while at < end and self.depths[at] > depth:
                    at += 1
                if at > inner:
                    blocks.append((inner, at))
                goes_on = at < end and self.lines[at].startswith(("}", "else"), self.depths[at])
                if not goes_on and not head.startswith("#pragma") and not head.endswith("else"):
                    break
            found.append(_Statement(start, at, tuple(blocks)))
        return found

    def _parameters(self, run: _Run) -> Mapping[str, _Declared] | None:
        """What a run of statements uses of what is declared around it, by name; None if it cannot be a function."""
        text = "\n".join(self.lines[run.first : run.end])
        if "for (" not in text or _LEAVES.search(text) or text.count("{") != text.count("}"):
            return None
        declared, unclear = self._declared(run.first, run.end, counters=False)
        behind = set(_WORD.findall("\n".join(self.lines[run.end : run.after])))
        if not behind.isdisjoint(declared.keys() | unclear):
            return None
        declared, unclear = {}, set()
        for block in run.around:
            found, others = self._declared(*block)
            declared |= found
            unclear = (unclear - found.keys()) | others
        mentioned = set(_WORD.findall(text))
        if not mentioned.isdisjoint(unclear):
            return None
        changed = {name for names in _CHANGED.findall(text) for name in names}
        taken = {name: how for name, how in declared.items() if name in mentioned}
        return None if any(how.may_change and name in changed for name, how in taken.items()) else taken

    def _declared(self, first: int, end: int, *, counters: bool = True) -> tuple[dict[str, _Declared], set[str]]:
        """The variables that a block declares, or the head of one, and those whose declaration is of no known kind."""
        declared: dict[str, _Declared] = {}
        unclear: set[str] = set()
        depth = min(self.depths[first:end], default=0)
        for at in range(first, end):
            if self.depths[at] != depth:
                continue
            for line in self._declarations(at):
                if found := _COUNTERS.match(line):
                    for name in _DECLARATOR.findall(found[2]) if counters else ():
                        declared[name] = _Declared(f"{found[1]} {name}", True)
                elif not line.endswith(";") or line.startswith(("}", "else", "if ", "#")):
                    continue
                elif found := _POINTER.match(line):
                    pointer = found[2] if found[2].endswith("restrict ") else "*"
                    declared[found[3]] = _Declared(f"{found[1]} {pointer}{found[3]}", "*const" not in line)
                elif found := _ARRAY.match(line):
                    declared[found[2]] = _Declared(f"{found[1]} *restrict {found[2]}", False)
                elif found := _SCALARS.match(line):
                    for name in _DECLARATOR.findall(found[2]):
                        declared[name] = _Declared(f"{found[1]} {name}", not line.startswith("const "))
                elif found := _OTHER.match(line):
                    unclear.add(found[1])
        return declared, unclear

    def _declarations(self, at: int) -> list[str]:
        """What a line may declare, each with a semicolon: parameters, loop counters, or variables."""
        line = self.lines[at].strip()
        if not at:
            return [f"{p};" for p in line.partition("(")[2].removesuffix(")").split(", ")]
        if line.count(";") < 2 or line.startswith("for "):
            return [line]
        return [f"{part.removesuffix(';')};" for part in line.split("; ")]
