"""Rows of the tables in a plan's text, with what is expected of each entry."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import islpy as isl

from tcomp.errors import PlanError
from tcomp.mapping.plan.values import LARGEST
from tcomp.model.islbounds import gave_up

Value = TypeVar("Value")

_DEEPEST, _WIDEST, _LONGEST_PRODUCT = 100, 300, 1000
_MARKS = re.compile(r"[](){}[,;]")
_ENDS_OF_PRODUCTS = re.compile(r"[](){}[,;:<>=+]")


@dataclass(slots=True)
class Row:
    """One table of TOML; ``where`` names it in errors, such as "buffer 2".  What nobody asks for is an error."""

    where: str
    entries: dict[str, Any]

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self._take(key, default)
        if not isinstance(value, str):
            raise self._unfit(key, "a string")
        return value

    def number(self, key: str, default: int | None = None) -> int:
        """A whole number that is not negative."""
        value = self._take(key, default)
        if not _is_number(value):
            raise self._unfit(key, "a whole number")
        return int(value)

    def optional_number(self, key: str) -> int | None:
        """A whole number that is not negative, or None where there is none."""
        return self.number(key) if key in self.entries else None

    def numbers(self, key: str, default: tuple[int, ...] | None = None, signed: bool = False) -> tuple[int, ...]:
        """A list of whole numbers, which may be negative if ``signed``."""
        value = self._take(key, default)
        if not isinstance(value, list | tuple) or not all(_is_number(v, signed) for v in value):
            raise self._unfit(key, "a list of whole numbers")
        return tuple(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings; none if it is not there."""
        value = self._take(key, ())
        if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
            raise self._unfit(key, "a list of strings")
        return tuple(value)

    def ratio(self, key: str) -> float:
        """A number of times, 1 if it is not there."""
        value = self._take(key, 1.0)
        if type(value) not in (int, float) or not 0 <= value <= LARGEST:
            raise self._unfit(key, "a number")
        return float(value)

    def rows(self, key: str) -> Iterator[Row]:
        """A list of tables; none if it is not there."""
        value = self._take(key, [])
        if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
            raise self._unfit(key, "a list of tables")
        for number, entries in enumerate(value):
            own = Row(f"{self.where} {key} {number}".strip(), dict(entries))
            yield own
            own.done()

    def table(self, key: str) -> Row:
        """A table; empty if it is not there."""
        value = self._take(key, {})
        if not isinstance(value, dict):
            raise self._unfit(key, "a table")
        return Row(f"{self.where} {key}".strip(), dict(value))

    def parsed(self, key: str, parse: Callable[[str], Value]) -> Value:
        """What isl makes of a string."""
        text = self.text(key)
        try:
            check_isl_text(text, self.where or key)
            return parse(text)
        except isl.Error as error:
            if gave_up():
                raise  # it may be told to go on
            raise PlanError(
                f"{self.where + ': ' if self.where else ''}isl cannot read {key}: {_reason(error)}"
            ) from None

    def done(self) -> None:
        """Raise PlanError if there is an entry that nobody asked for."""
        if self.entries:
            raise PlanError(f"{self.where or 'the plan'} has no entry {next(iter(self.entries))!r}")

    def _take(self, key: str, default: Any) -> Any:
        if key not in self.entries and default is None:
            raise PlanError(f"{self.where or 'the plan'} lacks {key!r}")
        return self.entries.pop(key, default)

    def _unfit(self, key: str, wanted: str) -> PlanError:
        return PlanError(f"{self.where + ': ' if self.where else ''}{key} must be {wanted}")


def check_isl_text(text: str, where: str) -> None:
    """Raise PlanError for what isl, whose reader is recursive, has no stack for, or takes minutes to read."""
    members = [0]
    for mark in _MARKS.finditer(text):
        if mark[0] in "([{":
            members.append(0)
        elif mark[0] in ",;":
            members[-1] = members[-1] + 1 if mark[0] == "," else 0
        elif len(members) > 1:
            members.pop()
        if len(members) > _DEEPEST:
            raise PlanError(f"{where}: brackets are nested more than {_DEEPEST} deep")
        if members[-1] > _WIDEST:
            raise PlanError(f"{where}: a bracket holds more than {_WIDEST} parts")
    if any(part.count("*") > _LONGEST_PRODUCT for part in _ENDS_OF_PRODUCTS.split(text)):
        raise PlanError(f"{where}: a product has more than {_LONGEST_PRODUCT} factors")


def read_toml(text: str) -> Row:
    """The entries of a plan's text.  Raises PlanError with the line where it is no TOML."""
    try:
        return Row("", tomllib.loads(text))
    except (ValueError, RecursionError) as error:
        raise PlanError(f"the text of the plan is not TOML: {error}") from None


def _is_number(value: object, signed: bool = False) -> bool:
    return type(value) is int and (-LARGEST if signed else 0) <= value <= LARGEST


def _reason(error: isl.Error) -> str:
    return str(error).split("failed: ")[-1].split(" in /")[0]
