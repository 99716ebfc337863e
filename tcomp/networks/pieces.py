"""Pieces of values: one taken out, several put one behind the other or along an axis of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tcomp.networks.importing import Builder, Node
from tcomp.networks.network import Value, retyped
from tcomp.networks.texts import elements, parts

_AT_ONCE = 64
"""So many pieces are put together by one def, in whose text the place of each is a sum over all before it."""


def swapped(b: Builder, n: Node, x: Value) -> Value:
    """The first two axes of three the other way round."""
    shape = (x.shape[1], x.shape[0], x.shape[2])
    return b.call(replace(n, name=f"{n.name}_swapped", shape=shape, dtype=x.dtype), elements.permute([1, 0, 2]), [x])


def picked(b: Builder, n: Node, x: Value, at: int, axis: int = 0) -> Value:
    """One slice along an axis, without it."""
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    inner = replace(n, name=f"{n.name}_{x.name}_{at}", shape=shape, dtype=x.dtype)
    return b.call(inner, parts.select(len(x.shape), axis), [x], AT=at)


def behind(b: Builder, n: Node, pieces: Sequence[Value], axis: int) -> Value:
    """Pieces one behind the other along an axis: many in parts first, since each place is a sum of all before it."""
    if len(pieces) == 1:
        return pieces[0]
    if len(pieces) > _AT_ONCE:
        step = max(_AT_ONCE, -(-len(pieces) // _AT_ONCE))
        runs = [pieces[first : first + step] for first in range(0, len(pieces), step)]
        named = [replace(n, name=f"{n.name}_part{k}") for k in range(len(runs))]
        pieces = [behind(b, node, run, axis) for node, run in zip(named, runs, strict=True)]
    rank, first = len(pieces[0].shape), pieces[0]
    shape = tuple(sum(p.shape[k] for p in pieces) if k == axis else e for k, e in enumerate(first.shape))
    made = retyped(elements.concat(rank, axis, len(pieces)), first.dtype)
    return b.call(replace(n, shape=shape, dtype=first.dtype), made, pieces)


def stacked(b: Builder, n: Node, pieces: Sequence[Value], axis: int) -> Value:
    """Pieces along an axis that they do not have yet."""
    shape = (*pieces[0].shape[:axis], 1, *pieces[0].shape[axis:])
    names = [f"{n.name}_{k}" for k in range(len(pieces))] if len(pieces) > 1 else [n.name]
    wide = [
        b.call(replace(n, name=name, shape=shape, dtype=p.dtype), elements.reshape(p.shape, shape), [p])
        for p, name in zip(pieces, names, strict=True)
    ]
    return behind(b, n, wide, axis)
