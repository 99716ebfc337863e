"""Long functions of C in parts: compilers take time that grows faster than what stands in one function.

Nests that stand beside each other become functions of their own, which are not inlined.  What they use of the function
around them they take as parameters.  Nothing else changes: neither what runs nor in which order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tcomp.mapping.machines.fitted.cputext import FUNCTIONS

_WORD = re.compile(r"[A-Za-z_]\w*")
_TYPE = r"(?:const )?(?:(?:unsigned|long|short) )*\w+"
_INITIAL = r"(?: = [^;]*)?;?$"
_ARRAY = re.compile(rf"({_TYPE}) ([A-Za-z_]\w*)\[[^\]]*\](?: __attribute__\(\(aligned\(\d+\)\)\))?;$")
_POINTER = re.compile(rf"({_TYPE}) \*(restrict )?([A-Za-z_]\w*){_INITIAL}")
_VALUE = re.compile(rf"(const {_TYPE}) ([A-Za-z_]\w*){_INITIAL}")
_NAME = r"((?!(?:long|short|unsigned|const|restrict)\b)[A-Za-z_]\w*)(?= = |\[|;|,| \{|$)"
_DECLARED = re.compile(rf"(?<![\w.])(?!return |goto |else ){_TYPE} \*?(?:const |restrict )*{_NAME}")
_ALSO = re.compile(rf"[,}}] \*?{_NAME}")
_CALL = re.compile(r"\([^()]*\)")


@dataclass(slots=True)
class Outlined:
    """The lines of a function in which calls stand for some nests, and those of the functions that they call."""

    lines: list[str]
    functions: list[str] = field(default_factory=list)


def outlined(lines: Sequence[str], parameters: Sequence[str], name: str) -> Outlined:
    """The body of a function with some ``parameters`` in parts, if it is long; their names begin with ``name``.

    Lines are indented by two spaces a block.  What uses a name that no parameter can stand for stays where it is.
    """
    if len(lines) <= FUNCTIONS.longest:
        return Outlined(list(lines))
    known = dict(taken for taken in map(_taken, parameters) if taken is not None)
    cut = _Cut(name, frozenset(_declared([*parameters, *lines])))
    return Outlined(cut.parts(lines, known), cut.functions)


@dataclass(slots=True)
class _Cut:
    """A function that is being cut: all names that it declares anywhere, and the functions that became of it so far."""

    name: str
    declared: frozenset[str]
    functions: list[str] = field(default_factory=list)
    count: int = 0

    def parts(self, lines: Sequence[str], known: dict[str, str]) -> list[str]:
        """Lines of a block in parts, to which names that are ``known`` are handed as the parameters that they have."""
        known, kept, waiting = dict(known), list[str](), list[str]()
        for item in _items(lines):
            nest = len(item) > 1
            opened = nest and item[0].strip().startswith("{") and item[-1].strip() == "}"
            moves = nest and not (opened and len(item) > FUNCTIONS.part) and self._may_move(item, known)
            if moves:
                waiting += item
            if waiting and (not moves or len(waiting) >= FUNCTIONS.part):
                kept.append(self._call(waiting, known))
                waiting = []
            if moves:
                continue
            kept += [item[0], *self.parts(item[1:-1], known), item[-1]] if opened else item
            if not nest:
                for name in _declared(item):
                    known.pop(name, None)
                taken = _taken(item[0].strip())
                if taken is not None:
                    known[taken[0]] = taken[1]
        return kept if not waiting else [*kept, self._call(waiting, known)]

    def _may_move(self, item: Sequence[str], known: dict[str, str]) -> bool:
        """Whether lines use nothing that is declared around them but what is known."""
        return not (_words(item) & self.declared) - known.keys() - _declared(item)

    def _call(self, lines: Sequence[str], known: dict[str, str]) -> str:
        """The call of a new function with some lines."""
        words = _words(lines)
        used = [name for name in known if name in words]
        indent = len(lines[0]) - len(lines[0].lstrip())
        own = f"{self.name}_part{self.count}"
        self.count += 1
        parameters = ", ".join(known[name] for name in used) or "void"
        self.functions += [f"static __attribute__((noinline)) void {own}({parameters})", "{"]
        self.functions += [line[indent - 2 :] if indent >= 2 else "  " + line for line in lines]
        self.functions.append("}")
        return " " * indent + f"{own}({', '.join(used)});"


def _items(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    """The lines of a block by what stands in it: statements and declarations, nests, and what stands before those."""
    item, depth = list[str](), 0
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        item.append(line)
        depth += line.count("{") - line.count("}")
        if not depth and line.endswith((";", "}", "*/")) and not following.lstrip().startswith("else"):
            yield item
            item = []
    if item:
        yield item


def _declared(lines: Sequence[str]) -> set[str]:
    """The names that lines declare, each behind its type or in a row with others."""
    found = set[str]()
    for line in lines:
        names = _DECLARED.findall(line)
        if names:
            found.update(names)
            while (plain := _CALL.sub("", line)) != line:
                line = plain
            found.update(_ALSO.findall(line))
    return found


def _words(lines: Sequence[str]) -> set[str]:
    return {word for line in lines for word in _WORD.findall(line)}


def _taken(declaration: str) -> tuple[str, str] | None:
    """The name that is declared, and the parameter that stands for it in another function; None if none can."""
    if array := _ARRAY.match(declaration):
        return array[2], f"{array[1]} *restrict {array[2]}"
    if pointer := _POINTER.match(declaration):
        return pointer[3], f"{pointer[1]} *{pointer[2] or ''}{pointer[3]}"
    if (value := _VALUE.match(declaration)) and len(_declared([declaration])) == 1:
        return value[2], f"{value[1]} {value[2]}"
    return None
