"""Classes of ``tcomp.records`` behave as those that the standard library makes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tcomp import records

Decorator = Callable[..., Any]


def _point(dataclass: Decorator) -> Any:
    @dataclass(frozen=True, slots=True)
    class Point:
        """A place."""

        x: int
        y: float = 0.5
        names: list[str] = dataclasses.field(default_factory=list)
        place: str = dataclasses.field(default="there", compare=False, repr=False)
        total: float = dataclasses.field(init=False)
        count: int = dataclasses.field(init=False, default=3)
        scale: int = dataclasses.field(default=1, kw_only=True)
        others: tuple[int, ...] = dataclasses.field(default_factory=tuple, kw_only=True, hash=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.x + self.y)

        def moved(self) -> Any:
            """Another one."""
            return dataclasses.replace(self, x=self.x + 1)

    return Point


def _derived(dataclass: Decorator) -> Any:
    base = _point(dataclass)

    @dataclass(frozen=True, slots=True)
    class Derived(base):  # type: ignore[misc]
        x: int
        last: Any = None

    return Derived


def _empty(dataclass: Decorator) -> Any:
    @dataclass(frozen=True, slots=True)
    class Empty:
        """Nothing."""

    return Empty


def _one(dataclass: Decorator) -> Any:
    @dataclass(frozen=True, slots=True)
    class One:
        """One value."""

        value: Any

    return One


def _identical(dataclass: Decorator) -> Any:
    @dataclass(frozen=True, slots=True, eq=False)
    class Identical:
        """Equal to nothing else."""

        value: int = 1

    return Identical


def _own(dataclass: Decorator) -> Any:
    @dataclass(frozen=True, slots=True)
    class Own:
        """With methods of its own."""

        value: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self))

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "own"

    return Own


def _changing(dataclass: Decorator) -> Any:
    @dataclass(slots=True)
    class Changing:
        """With values that change."""

        value: int = 2

    return Changing


NAN = float("nan")
MADE: dict[str, tuple[Callable[[Decorator], Any], list[tuple[tuple[Any, ...], dict[str, Any]]]]] = {
    "point": (
        _point,
        [((1,), {}), ((1,), {"scale": 2}), ((1, 0.5, ["a"], "here"), {}), ((), {"x": 1, "others": (3,)}), ((1.0,), {})],
    ),
    "derived": (_derived, [((1,), {}), ((1,), {"last": 2}), ((2, 3.0, ["a"], "here", None), {"scale": 5})]),
    "empty": (_empty, [((), {})]),
    "one": (_one, [((1,), {}), ((1.0,), {}), ((NAN,), {}), ((NAN,), {}), ((-NAN,), {}), (((1,),), {})]),
    "identical": (_identical, [((), {}), ((1,), {}), ((2,), {})]),
    "own": (_own, [((1,), {}), ((2,), {})]),
    "changing": (_changing, [((), {}), ((2,), {}), ((3,), {})]),
}


def hashed(value: object) -> object:
    """Whether a value has a hash; equal ones have the same."""
    try:
        return hash(value) is not None
    except TypeError as error:
        return str(error)


@pytest.mark.parametrize("name", MADE)
def test_values_behave_alike(name: str) -> None:
    make, calls = MADE[name]
    ours, theirs = make(records.dataclass), make(dataclasses.dataclass)
    mine, standard = ([cls(*a, **k) for a, k in calls] for cls in (ours, theirs))
    for m, s in zip(mine, standard, strict=True):
        assert repr(m).rpartition(".")[2] == repr(s).rpartition(".")[2]
        assert hashed(m) == hashed(s)
        assert dataclasses.asdict(m) == dataclasses.asdict(s) or NAN in dataclasses.astuple(m)
        assert repr(copy.deepcopy(m)) == repr(m)
        assert repr(copy.copy(m)) == repr(m)
        assert not hasattr(m, "__dict__")
        changed = {f.name: getattr(m, f.name) for f in dataclasses.fields(m) if f.init}
        assert repr(dataclasses.replace(m, **changed)) == repr(m)
        assert m != s or name == "own"
    assert [[a == b for a in mine] for b in mine] == [[a == b for a in standard] for b in standard]
    if hashed(mine[0]) is True:
        assert len(set(mine)) == len(set(standard))


@pytest.mark.parametrize("name", MADE)
def test_classes_look_alike(name: str) -> None:
    make, _ = MADE[name]
    ours, theirs = make(records.dataclass), make(dataclasses.dataclass)
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert ours.__match_args__ == theirs.__match_args__
    assert ours.__slots__ == theirs.__slots__
    assert ours.__module__ == theirs.__module__
    assert ours.__qualname__.rpartition(".")[2] == theirs.__qualname__.rpartition(".")[2]
    assert [str(f) for f in dataclasses.fields(ours)] == [str(f) for f in dataclasses.fields(theirs)]
    assert {n for n in vars(theirs) if callable(getattr(theirs, n))} <= set(dir(ours))
    assert ours.__init__.__annotations__ == theirs.__init__.__annotations__


@pytest.mark.parametrize("name", [name for name in MADE if name != "changing"])
def test_nothing_changes(name: str) -> None:
    make, calls = MADE[name]
    value = make(records.dataclass)(*calls[0][0], **calls[0][1])
    for field in dataclasses.fields(value):
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{field.name}'"):
            setattr(value, field.name, 1)
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot delete field '{field.name}'"):
            delattr(value, field.name)
    with pytest.raises(AttributeError):
        value.another = 1


@pytest.mark.parametrize("name", MADE)
def test_wrong_arguments_are_refused_alike(name: str) -> None:
    make, _ = MADE[name]
    messages = []
    for cls in (make(records.dataclass), make(dataclasses.dataclass)):
        for arguments, named in (((), {"nothing": 1}), (tuple(range(9)), {})):
            with pytest.raises(TypeError) as caught:
                cls(*arguments, **named)
            messages.append(str(caught.value).rpartition(".")[2])
    assert messages[:2] == messages[2:]


@records.dataclass(frozen=True, slots=True)
class Kept:
    """Found by its name when it is unpickled."""

    first: int
    second: tuple[Any, ...] = ()


class Named(Kept):
    """With attributes beside its fields, which change."""


def test_values_are_pickled() -> None:
    for value in (Kept(1), Kept(2, (Kept(3),))):
        assert pickle.loads(pickle.dumps(value)) == value


def test_a_subclass_has_attributes_that_change() -> None:
    value: Any = Named(1)
    value.label = "one"
    value.label = "two"
    assert value.label == "two"
    del value.label
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.first = 2


def test_what_contains_itself_is_shown() -> None:
    inside: list[Any] = []
    value = Kept(1, (inside,))
    inside.append(value)
    assert repr(value) == "Kept(first=1, second=([...],))"


def test_values_match_patterns() -> None:
    match Kept(4, (5,)):
        case Kept(first, (second,)):
            assert (first, second) == (4, 5)
        case _:
            pytest.fail("no match")
