"""Convolutions by 3 x 3 pixels as products of transformed tiles (Winograd 1980; Lavin and Gray 2015).

``F(m, 3)`` computes tiles of ``m x m`` results of ``m + 2`` squared products, where the sums have ``9 m^2``: 2.25 times
as few for ``m = 2``, 4 times for ``m = 4``.  Kernels are transformed when the network is compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tcomp.networks.network import Definition

Array = np.ndarray[Any, np.dtype[Any]]
Matrix = Sequence[Sequence[int]]

_IMAGE: dict[int, Matrix] = {
    2: ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    4: (
        *((4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0)),
        *((0, -2, -1, 2, 1, 0), (0, 2, -1, -2, 1, 0), (0, 4, 0, -5, 0, 1)),
    ),
}
_RESULT: dict[int, Matrix] = {
    2: ((1, 1, 1, 0), (0, 1, -1, -1)),
    4: ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
}
_KERNEL = {
    2: np.array(((2, 0, 0), (1, 1, 1), (1, -1, 1), (0, 0, 2))) / 2,
    4: np.array(((6, 0, 0), (-4, -4, -4), (-4, 4, -4), (1, 2, 4), (1, -2, 4), (0, 0, 24))) / 24,
}

TILES = tuple(_IMAGE)
"""The sides of tiles of results."""

_FILTERS = 16
"""Filters that are transformed at a time, so that what is computed in float64 stays in a cache."""


def kernel(tile: int, array: Array) -> Array:
    """Kernels ``F x C x 3 x 3`` transformed: ``(m+2) x (m+2) x F x C``, computed in float64."""
    matrix, (filters, channels) = _KERNEL[tile], array.shape[:2]
    made = np.empty((tile + 2, tile + 2, filters, channels), array.dtype)
    for first in range(0, filters, _FILTERS):
        some = array[first : first + _FILTERS]
        pixels = np.ascontiguousarray(some.transpose(3, 2, 0, 1), np.float64)
        columns = [_times(matrix, column) for column in pixels]  # kw, i
        for i, row in enumerate(zip(*columns, strict=True)):
            for j, place in enumerate(_times(matrix, row)):
                made[i, j, first : first + len(some)] = place
    return made


def _times(matrix: Array, arrays: Sequence[Array]) -> list[Array]:
    """A small matrix times a column of arrays."""
    return [functools.reduce(np.add, (c * a for c, a in zip(row, arrays, strict=True) if c)) for row in matrix]


def image(tile: int, last: bool = False) -> Definition:
    """Tiles of an image, which overlap by two pixels, transformed: first along columns, then along rows.

    The border is written first, once: each pixel is read by several sums, which would ask whether it is inside.
    ``last``: channels are the innermost axis of images and tiles, else the first one.
    """

    def pixel(k: int) -> str:
        row = f"{tile}*t{f'+{k}' if k else ''},w"
        return f"P({f'n,{row},c' if last else f'n,c,{row}'})"

    def column(k: int) -> str:
        return at("X", "i", f"n,t,{tile}*u{f'+{k}' if k else ''}")

    def at(name: str, first: str, place: str) -> str:
        return f"{name}({first},{f'{place},c' if last else f'c,{place}'})"

    name = f"winograd{tile}_image{'_last' if last else ''}"
    border, inside = ("n,h,w,c", "n,h-PH,w-PW,c") if last else ("n,c,h,w", "n,c,h-PH,w-PW")
    ranges = f"n in 0:N, c in 0:C, h in 0:{tile}*TH+2, w in 0:{tile}*TW+2"
    lines = [f"  P({border}) = constant_exterior(I, 0)({inside}) where {ranges}"]
    lines += [
        f"  {at('X', str(i), 'n,t,w')} = {_sum(row, pixel)} where t in 0:TH" for i, row in enumerate(_IMAGE[tile])
    ]
    lines += [
        f"  {at('V', f'i,{j}', 'n,t,u')} = {_sum(row, column)} where i in 0:{tile + 2}, u in 0:TW"
        for j, row in enumerate(_IMAGE[tile])
    ]
    numbers = ", ".join(f"const int {name}" for name in ("TH", "TW", "PH", "PW"))
    head = f"def {name}(float({'N,H,W,C' if last else 'N,C,H,W'}) I, {numbers}) -> (V) {{"
    return Definition(name, "\n".join([head, *lines, "}"]))


def product(last: bool = False) -> Definition:
    """The product of kernels and images for each place in a tile."""
    if last:
        head = "def winograd_product_last(float(A,B,F,C) U, float(A,B,N,T,S,C) V) -> (M) {"
        body = "  M(a,b,n,t,s,f) +=! V(a,b,n,t,s,c) * U(a,b,f,c)"
        return Definition("winograd_product_last", "\n".join([head, body, "}"]))
    head = "def winograd_product(float(A,B,F,C) U, float(A,B,C,N,T,S) V) -> (M) {"
    body = "  M(a,b,f,n,t,s) +=! U(a,b,f,c) * V(a,b,c,n,t,s)"
    return Definition("winograd_product", "\n".join([head, body, "}"]))


def result(tile: int, bias: bool, last: bool = False) -> Definition:
    """Tiles of results of these products, and the bias."""
    name = f"winograd{tile}_result{'_bias' if bias else ''}{'_last' if last else ''}"

    def product_of(k: int) -> str:
        return f"M(i,{k},n,t,u,f)" if last else f"M(i,{k},f,n,t,u)"

    def column(k: int) -> str:
        return middle(str(k), "w")

    def middle(first: str, across: str) -> str:
        return f"Z({first},n,t,{across},f)" if last else f"Z({first},n,f,t,{across})"

    rows = _RESULT[tile]
    lines = [
        f"  {middle('i', f'{tile}*u' + (f'+{y}' if y else ''))} = {_sum(row, product_of)}" for y, row in enumerate(rows)
    ]
    for x, row in enumerate(rows):
        body = _sum(row, column) + (" + b(f)" if bias else "")
        count = f"(H+{tile - 1 - x})/{tile}" if x < tile - 1 else f"H/{tile}"
        place = f"{tile}*t{f'+{x}' if x else ''},w"
        lines.append(f"  O({f'n,{place},f' if last else f'n,f,{place}'}) = {body} where t in 0:{count}, w in 0:W")
    parameters = [
        f"float({'A,B,N,T,U,F' if last else 'A,B,F,N,T,U'}) M",
        *(["float(F) b"] if bias else []),
        "const int H",
        "const int W",
    ]
    return Definition(name, "\n".join([f"def {name}({', '.join(parameters)}) -> (O) {{", *lines, "}"]))


def _sum(row: Sequence[int], term: Callable[[int], str]) -> str:
    """The terms of a row of a matrix that are not zero."""
    text = ""
    for k, factor in enumerate(row):
        if factor:
            sign = (" - " if factor < 0 else " + ") if text else ("-" if factor < 0 else "")
            text += sign + (term(k) if abs(factor) == 1 else f"{abs(factor)} * {term(k)}")
    return text
