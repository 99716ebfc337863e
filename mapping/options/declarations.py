"""How a mapping option is declared: the values it takes, what it is for, and where and when it matters."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, SupportsIndex

from tcomp.errors import TcompError

_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_SEPARATOR = re.compile(r"[x*]")


def _whole(value: object) -> object:
    """A whole number of any library as Python's own; everything else, truth values too, as it is."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return value
    try:
        return operator.index(value)
    except TypeError:  # an array of several elements
        return value


def _number(value: object) -> float:
    """A number of any library as Python's float, perhaps infinite; NaN for everything else, truth values too."""
    if isinstance(value, bool):
        return math.nan
    try:
        return float(value) if isinstance(value, Real) else math.nan
    except OverflowError:
        return -math.inf if isinstance(value, int) and value < 0 else math.inf


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    @property
    def choices(self) -> tuple[object, ...] | None:
        """All values, where they can be listed."""
        return (True, False)

    def check(self, name: str, value: object) -> object:
        """The value as it is kept; raises TcompError."""
        if not isinstance(value, bool):
            raise TcompError(f"{name} is {value!r}; it must be true or false")
        return value

    def read(self, text: str) -> object:
        """The value that a text stands for, or the text, which ``check`` then rejects."""
        return {"true": True, "false": False}.get(text.lower(), text)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some names."""

    names: tuple[str, ...]

    @property
    def choices(self) -> tuple[object, ...] | None:
        """All values, where they can be listed."""
        return self.names

    def check(self, name: str, value: object) -> object:
        """The value as it is kept; raises TcompError."""
        if not isinstance(value, str) or value not in self.names:
            raise TcompError(f"{name} is {value!r}; it must be one of {', '.join(self.names)}")
        return value

    def read(self, text: str) -> object:
        """The value that a text stands for, or the text, which ``check`` then rejects."""
        return text


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number of at least ``least``; those above ``usual`` are legal, but hardly worth trying."""

    least: int
    usual: int

    @property
    def choices(self) -> tuple[object, ...] | None:
        """All values, where they can be listed."""
        return None

    def check(self, name: str, value: object) -> object:
        """The value as it is kept; raises TcompError."""
        whole = _whole(value)
        if type(whole) is not int or whole < self.least:
            raise TcompError(f"{name} is {value!r}; it must be an integer of at least {self.least}")
        return whole

    def read(self, text: str) -> object:
        """The value that a text stands for, or the text, which ``check`` then rejects."""
        return int(text) if _INTEGER.fullmatch(text) else text


@dataclass(frozen=True, slots=True)
class Ratio:
    """A number of at least ``least``, kept as a float."""

    least: int

    @property
    def choices(self) -> tuple[object, ...] | None:
        """All values, where they can be listed."""
        return None

    def check(self, name: str, value: object) -> object:
        """The value as it is kept; raises TcompError."""
        number = _number(value)
        if not number >= self.least:
            raise TcompError(f"{name} is {value!r}; it must be a number of at least {self.least}")
        return number

    def read(self, text: str) -> object:
        """The value that a text stands for, or the text, which ``check`` then rejects."""
        try:
            return float(text)
        except ValueError:
            return text


@dataclass(frozen=True, slots=True)
class Integers:
    """Whole numbers of at least ``least``, from ``fewest`` to ``longest`` of them, kept as a tuple.

    ``what`` says what they are, where a wrong number of them needs explaining.
    """

    least: int
    fewest: int = 0
    longest: int | None = None
    what: str = ""

    @property
    def choices(self) -> tuple[object, ...] | None:
        """All values, where they can be listed."""
        return None

    def check(self, name: str, value: object) -> object:
        """The value as it is kept; raises TcompError."""
        numbers = tuple(map(_whole, value)) if isinstance(value, tuple | list) else None
        if numbers is None or any(type(v) is not int or v < self.least for v in numbers):
            raise TcompError(f"{name} is {value!r}; it must be a list of integers of at least {self.least}")
        if len(numbers) < self.fewest or (self.longest is not None and len(numbers) > self.longest):
            wanted = self.what or f"have {self.fewest} to {self.longest} values"
            raise TcompError(f"{name} is {value!r}; it must {wanted}")
        return numbers

    def read(self, text: str) -> object:
        """The value that a text such as ``32x8`` stands for, or the text, which ``check`` then rejects."""
        parts = _SEPARATOR.split(text) if text != "()" else []
        return tuple(int(part) for part in parts) if all(_INTEGER.fullmatch(part) for part in parts) else text


@dataclass(frozen=True, slots=True)
class BlockShape:
    """Threads in x, y, z: at most ``most`` of each, and ``in_all`` together.  A number is that in x."""

    most: tuple[int, ...]
    in_all: int

    @property
    def choices(self) -> tuple[object, ...] | None:
        """All values, where they can be listed."""
        return None

    def check(self, name: str, value: object) -> object:
        """The value as it is kept; raises TcompError."""
        whole = _whole(value)
        shape = Integers(1, 1, len(self.most)).check(name, (whole,) if type(whole) is int else value)
        assert isinstance(shape, tuple)
        if math.prod(shape) > self.in_all or any(t > most for t, most in zip(shape, self.most, strict=False)):
            most = ", ".join(map(str, self.most))
            raise TcompError(f"{name} is {shape!r}; it must be at most {most} in x, y, z and {self.in_all} in all")
        return shape

    def read(self, text: str) -> object:
        """The value that a text such as ``32x8`` stands for, or the text, which ``check`` then rejects."""
        return Integers(1).read(text)


@dataclass(frozen=True, slots=True)
class OfParts:
    """Options of parts of a program by their names, kept in the order of these; ``read_part`` checks one."""

    read_part: Callable[[str, object], object]

    @property
    def choices(self) -> tuple[object, ...] | None:
        """All values, where they can be listed."""
        return None

    def check(self, name: str, value: object) -> object:
        """The value as it is kept; raises TcompError."""
        try:
            given = dict(value)  # type: ignore[call-overload]
        except (TypeError, ValueError):
            raise TcompError(f"{name} is {value!r}; it must have options by the names of tensors") from None
        for key in given:
            if not (isinstance(key, str) and key.isidentifier()):
                raise TcompError(f"{name} has options of {key!r}; the names of parts are those of tensors")
        return tuple((key, self.read_part(key, given[key])) for key in sorted(given))

    def read(self, text: str) -> object:
        """The text, which ``check`` rejects: options of parts are written ``A3.tile=8x32``; ``()`` is none."""
        return () if text == "()" else text


Kind = Flag | Choice | Integer | Ratio | Integers | BlockShape | OfParts


@dataclass(frozen=True, slots=True)
class Condition:
    """That an option has one of some values."""

    option: str
    values: tuple[object, ...]

    def __str__(self) -> str:
        return f"{self.option} is {' or '.join(str(v) for v in self.values)}"


@dataclass(frozen=True, slots=True)
class Option:
    """All there is to know of an option.

    ``default`` is kept where the user says nothing; where it is None, a model of the target chooses.  The option
    matters on ``targets`` (empty: on all) under all conditions of ``when``; where it does not, every value gives the
    same code.  ``method`` is the one of ``MappingOptions`` that sets it, ``original`` what Tensor Comprehensions calls
    it; both are empty where there is none.  ``planted`` says that the option speaks through the plan alone once the
    passes that make its tree are done: what comes after them does not look at it, but on the targets on which it is
    ``granted``: there it bounds what a kernel may take, no plan depends on it, and no search changes it.
    """

    kind: Kind
    default: object
    help: str
    targets: tuple[str, ...]
    when: tuple[Condition, ...]
    method: str
    original: str
    planted: bool
    granted: tuple[str, ...]

    def is_for(self, target: str) -> bool:
        """Whether it matters on a target such as ``cuda:sm_90``, under its conditions."""
        return not self.targets or target.partition(":")[0] in self.targets

    def is_searched(self, target: str) -> bool:
        """Whether another value may make a faster kernel for a target."""
        return self.is_for(target) and not self.is_granted(target)

    def is_granted(self, target: str) -> bool:
        """Whether it bounds what a kernel for a target may take."""
        return target.partition(":")[0] in self.granted

    def is_planted(self, target: str) -> bool:
        """Whether kernels for a target have the same code if their plans are the same before the last passes."""
        return self.planted and not self.is_granted(target)

    def check(self, name: str, value: object) -> object:
        """The value as it is kept; raises TcompError."""
        return None if value is None and self.default is None else self.kind.check(name, value)

    def describe(self) -> tuple[str, str, str]:
        """Default, help, and where and when it matters, in words."""
        default = "the model's choice" if self.default is None else f"`{self.default!r}`"
        where = ", ".join(self.targets) or "everywhere"
        conditions = " and ".join(map(str, self.when))
        return default, self.help, f"{where}, if {conditions}" if conditions else where

    def read(self, name: str, text: str) -> object:
        """The value that a text stands for; ``model`` gives the choice back.  Raises TcompError."""
        if self.default is None and text == "model":
            return None
        return self.check(name, self.kind.read(text))


_KEY = "option"


def declare(
    kind: Kind,
    default: object,
    help: str,  # noqa: A002 - what argparse and the debug table call it, too
    *,
    targets: tuple[str, ...] = (),
    when: tuple[Condition, ...] = (),
    method: str = "",
    original: str = "",
    planted: bool = False,
    granted: tuple[str, ...] = (),
) -> Any:
    """A field of a dataclass of options."""
    option = Option(kind, default, help, targets, when, method, original, planted, granted)
    return field(default=default, metadata={_KEY: option})


def declaration(metadata: Any) -> Option:
    """What was declared, from the metadata of the field."""
    found = metadata[_KEY]
    assert isinstance(found, Option)
    return found
