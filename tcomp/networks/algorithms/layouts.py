"""Images with their channels innermost: what can be computed of them, and the texts that do."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tcomp.networks.lowering.rebuilding import Parts
from tcomp.networks.network import Call, Definition, Network, Value, retyped
from tcomp.networks.texts import elements

Array = np.ndarray[Any, np.dtype[Any]]

_LAST, _FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
"""N x C x H x W with channels last, and back."""

_MOVES = re.compile(r"(max|avg)_pool2d|(mean|sum)_4d_over_cd|concat_\d+_4d_axis|upsample_nearest2d")
_FOUR = re.compile(r"\(" + ",".join([r"([^(),]+)"] * 4) + r"\)")


def last(shape: Sequence[int]) -> tuple[int, ...]:
    """The extents of an image with channels last."""
    return tuple(shape[k] for k in _LAST)


def turned(array: Array, order: Sequence[int] = _LAST) -> Array:
    """An array of four axes with the second one last."""
    return np.ascontiguousarray(array.transpose(order))


def turned_weight(parts: Parts, value: Value, name: str, *, swapped: bool = False) -> str:
    """The name of a weight of four axes with the second one last; ``swapped``: with the first one last."""
    order = (1, 2, 3, 0) if swapped else _LAST
    shape = [value.shape[k] for k in order]
    return parts.later(name, value.dtype, shape, lambda: turned(parts.weights[value.name], order))


def channels_last(definition: Definition) -> Definition:
    """The same def for images with channels last: every four subscripts and extents are put into that order."""
    if definition.pointwise and {"".join(four).lower() for four in _FOUR.findall(definition.text)} == {"abcd"}:
        return definition  # which axis is which does not matter
    name = f"{definition.name}_last"
    text = definition.text.replace(f"def {definition.name}(", f"def {name}(", 1)
    return replace(definition, name=name, text=_FOUR.sub(r"(\1,\3,\4,\2)", text), biased=None)


def depthwise_last(definition: Definition) -> Definition:
    """The same of a convolution of each channel by itself, whose kernel is ``1 x KH x KW x C`` then."""
    text = definition.text.replace("float(C,1,KH,KW)", "float(1,C,KH,KW)").replace("K(f,0,kh,kw)", "K(0,f,kh,kw)")
    return channels_last(replace(definition, text=text))


def goes_either_way(network: Network, call: Call, values: Mapping[str, Value]) -> bool:
    """Whether a call that is no convolution makes of images with channels last what it makes of others."""
    definition, shapes = network.definitions[call.function], [values[name].shape for name in call.arguments]
    if definition.outside is not None or definition.view or not shapes:
        return False
    tensors = [shape for shape in shapes if shape]
    if definition.pointwise:
        return all(len(shape) == 4 for shape in (*tensors, values[call.results[0]].shape))
    known = _MOVES.match(definition.name) is not None and len(shapes[0]) == 4
    return known and all(len(shape) in (2, 4) for shape in tensors)


class Images:
    """The values of a network that is written anew, in the layout in which each call wants them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._names: dict[tuple[str, bool], str] = {}
        self._known = parts.source.by_name

    def read(self, name: str, innermost: bool) -> str:
        """The name under which an image lies with channels innermost, or as it was; it is turned where it must be."""
        parts = self._parts
        if name in parts.weights:
            return self._weight(name) if innermost else name
        if not innermost and (name, True) not in self._names:
            return name
        if (name, innermost) not in self._names:
            value = self._known[name]
            shape = last(value.shape) if innermost else value.shape
            made = parts.temporary(f"{name}_{'last' if innermost else 'first'}", value.dtype, shape)
            self._turn(self._names.get((name, not innermost), name), made, innermost)
            self._names[name, innermost] = made
        return self._names[name, innermost]

    def _weight(self, name: str) -> str:
        return turned_weight(self._parts, self._known[name], f"{name}_last")

    def make(self, name: str, innermost: bool) -> str:
        """The name under which a call makes an image; where that is an output, ``made`` turns it."""
        if not innermost:
            return name
        value = self._known[name]
        if value.role == "output":
            self._names[name, True] = self._parts.temporary(f"{name}_last", value.dtype, last(value.shape))
        else:
            self._names[name, True] = name
            self._parts.values[name] = replace(value, shape=last(value.shape))
        return self._names[name, True]

    def made(self, name: str, innermost: bool) -> None:
        """The call that makes an image has been written."""
        if innermost and self._known[name].role == "output":
            self._turn(self._names[name, True], name, False)
            self._names[name, False] = name

    def _turn(self, source: str, result: str, innermost: bool) -> None:
        order = _LAST if innermost else _FIRST
        definition = retyped(elements.permute(order), self._parts.values[result].dtype)
        self._parts.call(definition, Call(definition.name, (source,), (), (result,)))
