"""Dataclasses that are made in a fifth of the time: two hundred of them took a third of what importing tcomp takes.

The standard library compiles a text for each of the six methods of a frozen class.  Here only ``__init__`` has a text;
the others are the same code for all classes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: bool = False, slots: bool = False, eq: bool = True) -> Callable[[type], type]:
        """``dataclasses.dataclass``; classes have the same methods and attributes.

        Not for fields that are only handed to ``__post_init__`` (``InitVar``).
        """
        if frozen and slots:
            return lambda cls: _frozen(cls, eq)
        return dataclasses.dataclass(frozen=frozen, slots=slots, eq=eq)


class _Factory:
    """Stands for values that are made for each object in signatures."""

    def __repr__(self) -> str:
        return "<factory>"


_MADE = _Factory()


def _frozen(plain: type, eq: bool) -> Any:
    """A class with a slot for each field, which only ``__init__`` sets."""
    own = vars(plain)
    if plain.__doc__ is None:
        plain.__doc__ = (
            plain.__name__
        )  # the standard library would make up a signature, which takes as long as the rest
    cls: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(plain)
    made = fields(cls)
    if "__init__" not in own:
        cls.__init__ = _initialiser(cls, made)
    cls.__setattr__, cls.__delattr__ = _refusals(cls, frozenset(f.name for f in made))
    if "__getstate__" not in own:
        cls.__getstate__ = _get_state
    if "__setstate__" not in own:
        cls.__setstate__ = _set_state
    if "__repr__" not in own:
        cls.__repr__ = _repr
    if eq and "__eq__" not in own:
        cls.__eq__ = _equality(_values(f.name for f in made if f.compare))
    if eq and own.get("__hash__") is None:
        cls.__hash__ = _hash(_values(f.name for f in made if (f.compare if f.hash is None else f.hash)))
    return cls


def _initialiser(cls: type, made: tuple[Field[Any], ...]) -> Callable[..., None]:
    """``__init__``, which sets slots by their descriptors, for ``__setattr__`` refuses."""
    names: dict[str, Any] = {"made_": _MADE}
    ordered, by_name, lines = ["self"], ["*"], []
    for f in made:
        value = f.name
        if f.default is not MISSING:
            names[f"default_{f.name}"] = f.default
        elif f.default_factory is not MISSING:
            names[f"default_{f.name}"] = f.default_factory
        if f.init:
            parameters = by_name if f.kw_only else ordered
            if f.default_factory is not MISSING:
                parameters.append(f"{f.name}=made_")
                value = f"default_{f.name}() if {f.name} is made_ else {f.name}"
            else:
                parameters.append(f"{f.name}=default_{f.name}" if f.default is not MISSING else f.name)
        elif f.default is not MISSING:
            value = f"default_{f.name}"
        elif f.default_factory is not MISSING:
            value = f"default_{f.name}()"
        else:
            continue
        names[f"set_{f.name}"] = getattr(cls, f.name).__set__
        lines.append(f" set_{f.name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    signature = ", ".join(ordered + by_name * (len(by_name) > 1))
    exec("\n".join([f"def __init__({signature}):", *lines, " return"]), names)
    function: Callable[..., None] = names["__init__"]
    function.__annotations__ = {f.name: f.type for f in made if f.init} | {"return": None}
    function.__qualname__ = f"{cls.__qualname__}.__init__"
    function.__module__ = cls.__module__
    return function


def _refusals(cls: Any, names: frozenset[str]) -> tuple[Callable[..., None], Callable[..., None]]:
    """``__setattr__`` and ``__delattr__``: subclasses may have other attributes, which change."""

    def refuse_value(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def refuse_end(self: object, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return refuse_value, refuse_end


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for f, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)


@recursive_repr("...")
def _repr(self: Any) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{type(self).__qualname__}({shown})"


def _values(names: Iterable[str]) -> Callable[[Any], tuple[Any, ...]]:
    """What gives the values of some fields."""
    match tuple(names):
        case ():
            return lambda _: ()
        case (name,):
            value = attrgetter(name)
            return lambda self: (value(self),)
        case several:
            return attrgetter(*several)


def _equality(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, object], Any]:
    def equal(self: Any, other: object) -> Any:
        if other.__class__ is self.__class__:
            return values(self) == values(other)
        return NotImplemented

    return equal


def _hash(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    return lambda self: hash(values(self))
