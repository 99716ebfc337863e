"""Windows over channels that are innermost: what lies outside the image is a row of its own, and no copy is made."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.driver import lower
from tcomp.grammar import define
from tcomp.model.terms.sizes import Sizes
from tests.targets import CPU

Array = np.ndarray[Any, np.dtype[Any]]

WINDOWS = """
def f({dtype}(N,H,W,C) I, {dtype}(KH,KW,C) K) -> (O) {{
  O(n,h,w,c) +=! {boundary}(n,{s}*h+{d}*i-{p},{s}*w+{d}*j-{p},c) * K(i,j,c)
    where n in 0:N, h in 0:(H+2*{p}-{d}*(KH-1)-1)/{s}+1, w in 0:(W+2*{p}-{d}*(KW-1)-1)/{s}+1
}}
"""


def text(dtype: str = "float", boundary: str = "constant_exterior(I, 0)", s: int = 1, d: int = 1, p: int = 1) -> str:
    return WINDOWS.format(dtype=dtype, boundary=boundary, s=s, d=d, p=p)


def expected(image: Array, kernel: Array, s: int, d: int, p: int, mode: str = "constant", outside: float = 0) -> Array:
    """The sums of a window, tap by tap over a padded image."""
    given = {"constant_values": outside} if mode == "constant" else {}
    padded = np.pad(image, ((0, 0), (p, p), (p, p), (0, 0)), mode, **given)  # type: ignore[call-overload]
    rows, columns = ((e - d * (k - 1) - 1) // s + 1 for e, k in zip(padded.shape[1:3], kernel.shape[:2], strict=True))
    found = np.zeros((len(image), rows, columns, image.shape[3]), image.dtype)
    for i, j in np.ndindex(kernel.shape[:2]):
        found += padded[:, d * i :: s, d * j :: s][:, :rows, :columns] * kernel[i, j]
    return found


def integers(shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    return np.random.default_rng([*shape]).integers(-3, 4, shape).astype(dtype)


@pytest.mark.parametrize("channels", [1, 7, 16, 40, 100])
@pytest.mark.parametrize(
    ("k", "s", "d", "p"), [(3, 1, 1, 1), (3, 2, 1, 1), (5, 1, 1, 2), (3, 1, 2, 2), (5, 2, 3, 6), (2, 3, 1, 1)]
)
def test_windows(channels: int, k: int, s: int, d: int, p: int) -> None:
    image, kernel = integers((2, 11, 14, channels)), integers((k, k, channels))
    f = tc.define(text(s=s, d=d, p=p))["f"]
    assert (f(image, kernel) == expected(image, kernel, s, d, p)).all()


def test_images_smaller_than_their_windows() -> None:
    image, kernel = integers((1, 2, 1, 33)), integers((7, 7, 33))
    f = tc.define(text(p=3))["f"]
    assert (f(image, kernel) == expected(image, kernel, 1, 1, 3)).all()


@pytest.mark.parametrize(
    ("boundary", "mode", "outside"),
    [
        ("constant_exterior(I, 2.5)", "constant", 2.5),
        ("constant_exterior(I, -1)", "constant", -1),
        ("repeat_edge(I)", "edge", 0),
        ("mirror_interior(I)", "reflect", 0),
    ],
)
def test_other_boundaries(boundary: str, mode: str, outside: float) -> None:
    image, kernel = integers((1, 9, 9, 48)), integers((3, 3, 48))
    f = tc.define(text(boundary=boundary))["f"]
    assert (f(image, kernel) == expected(image, kernel, 1, 1, 1, mode, outside)).all()


@pytest.mark.parametrize("dtype", ["double", "int32", "half"])
def test_other_elements(dtype: str) -> None:
    numpy = {"double": np.float64, "int32": np.int32, "half": np.float16}[dtype]
    image, kernel = integers((1, 8, 9, 70), numpy), integers((3, 3, 70), numpy)
    f = tc.define(text(dtype))["f"]
    assert (f(image, kernel) == expected(image, kernel, 1, 1, 1)).all()


def test_narrow_images_are_widened() -> None:
    image, kernel = integers((1, 8, 9, 70), np.float16), integers((3, 3, 70))
    program = text().replace("float(N,H,W,C) I", "half(N,H,W,C) I").replace("constant", "float(constant")
    program = program.replace("-1,c) *", "-1,c)) *")
    found = tc.define(program)["f"](image, kernel)
    assert (found == expected(image.astype(np.float32), kernel, 1, 1, 1)).all()


def test_zeros_outside_meet_infinite_weights_as_the_program_says() -> None:
    image, kernel = np.ones((1, 3, 3, 32), np.float32), np.ones((3, 3, 32), np.float32)
    kernel[0, 1] = np.inf
    found = tc.define(text())["f"](image, kernel)
    assert np.isnan(found[0, 0]).all() and np.isinf(found[0, 1:]).all()


def test_strided_images_are_read_as_they_lie() -> None:
    image, kernel = integers((2, 20, 9, 64)), integers((3, 3, 64))
    f = tc.define(text())["f"]
    part = image[:, ::2, :, 16:48]
    assert (f(part, kernel[:, :, :32]) == expected(part, kernel[:, :, :32], 1, 1, 1)).all()


def copied(program: str, lanes: int = 16) -> set[str]:
    machine = replace(CPU.machine, vector_bytes=4 * lanes, datapath_bytes=4 * lanes, registers=2 * lanes)
    sizes = Sizes({"N": 1, "H": 28, "W": 28, "C": 96, "KH": 3, "KW": 3})
    plan = lower(define(program)["f"], sizes, tc.MappingOptions(), replace(CPU, machine=machine)).plan
    return {copy.storage for copy in plan.copies}


def test_whole_pixels_are_not_copied() -> None:
    assert copied(text()) == copied(text(boundary="repeat_edge(I)")) == copied(text(s=2), lanes=8) == set()


@pytest.mark.parametrize(
    ("lanes", "registers", "side", "channels"),
    [(8, 16, 56, 128), (8, 16, 14, 512), (8, 16, 28, 144), (8, 16, 7, 24), (16, 32, 14, 512), (4, 32, 14, 100)],
)
def test_sums_of_whole_pixels_stay_in_registers(lanes: int, registers: int, side: int, channels: int) -> None:
    """Beside a vector of each operand: with all of a row, or in plain loops, they took up to 15 times as long."""
    machine = replace(CPU.machine, vector_bytes=4 * lanes, datapath_bytes=4 * lanes, registers=registers)
    sizes = Sizes({"N": 1, "H": side, "W": side, "C": channels, "KH": 3, "KW": 3})
    source = lower(define(text())["f"], sizes, tc.MappingOptions(), replace(CPU, machine=machine)).source.text
    assert ": 0.0f" not in source
    tiles = [re.findall(r"tc_(b0|c\d+)_(\d+) [+]?= [^{]", tile) for tile in source.split("tc_free_registers();")[1:]]
    for tile in tiles:
        vectors = [int(v) for name, v in tile if name == "b0"]
        sums = [int(v) for name, v in tile if name != "b0"]
        assert sums == sorted(sums) and {*sums} == {*vectors} and len(sums) + 2 <= registers
        assert [v for v, _ in itertools.groupby(int(v) for _, v in tile)] == vectors
    assert len(tiles) >= 1


def test_windows_that_reach_past_channels_are_copied() -> None:
    assert copied(text().replace(",c) * K", ",c+1) * K")) == {"I"}


def test_what_data_give_outside_is_no_row() -> None:
    program = text().replace("KH,KW,C) K", "KH,KW,C) K, float(C) E").replace("(I, 0)", "(I, E(c))")
    image, kernel, edge = integers((1, 6, 7, 32)), integers((3, 3, 32)), integers((32,))
    f = tc.define(program)["f"]
    padded = np.broadcast_to(edge, (1, 8, 9, 32)).copy()
    padded[:, 1:-1, 1:-1] = image
    assert (f(image, kernel, edge) == expected(padded, kernel, 1, 1, 0)).all()


CONVOLUTION = """
def f(float(N,H,W,C) I, float(F,KH,KW,C) K) -> (O) {{
  O(n,h,w,f) +=! constant_exterior(I, {outside})(n,{s}*h+i-1,{s}*w+j-1,c) * K(f,i,j,c)
    where n in 0:N, h in 0:(H+2-KH)/{s}+1, w in 0:(W+2-KW)/{s}+1
}}
"""


@pytest.mark.parametrize(("channels", "filters", "s"), [(80, 70, 2), (128, 96, 1), (65, 33, 3)])
@pytest.mark.parametrize("outside", [0, 2])
def test_images_with_their_border_are_copied_once_for_all_filters(
    channels: int, filters: int, s: int, outside: int
) -> None:
    image, kernel = integers((2, 23, 21, channels)), integers((filters, 3, 3, channels))
    f = tc.define(CONVOLUTION.format(s=s, outside=outside))["f"]
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=outside)
    rows, columns = ((e - 1) // s + 1 for e in image.shape[1:3])
    wanted = np.zeros((2, rows, columns, filters), np.float32)
    for i, j in np.ndindex(3, 3):
        wanted += padded[:, i::s, j::s][:, :rows, :columns] @ kernel[:, i, j].T
    assert (f(image, kernel) == wanted).all()


@pytest.mark.parametrize(
    ("taps", "channels", "middle", "mark"),
    [
        (3, 128, 2 << 20, "group"),
        (3, 128, 128 << 10, "group"),
        (1, 2048, 128 << 10, "block"),
    ],
    ids=["window, large cache", "window, small cache", "pixel, small cache"],
)
def test_a_border_is_copied_for_a_tile_if_that_stays_in_a_cache(
    taps: int, channels: int, middle: int, mark: str
) -> None:
    """Tiles with other filters read the same.  So do blocks of a window, each of which would copy most of it again."""
    program = define(CONVOLUTION.format(s=2, outside=0))["f"]
    sizes = Sizes({"N": 1, "H": 56, "W": 56, "C": channels, "F": 128, "KH": taps, "KW": taps})
    machine = replace(CPU.machine, vector_bytes=64, datapath_bytes=64, registers=32, middle_cache=middle)
    plan = lower(program, sizes, tc.MappingOptions(), replace(CPU, machine=machine)).plan
    assert next(copy.mark for copy in plan.copies if copy.storage == "I").rstrip("0123456789") == mark


@pytest.mark.parametrize("outside", [0, 2])
def test_a_panel_of_one_slice_may_lie_outside_with_all_of_it(outside: int) -> None:
    """Each step has a panel of its own: behind the last slice there was what the one before had left."""
    program = (
        f"def f(float(T,N,K) X, float(K,M) W) -> (O) {{ for t in 0:T {{ O(t,n,m) +=! constant_exterior(X, {outside})"
        "(t+1,n,k) * W(k,m) where n in 0:N, k in 0:K } }"
    )
    X, W = integers((2, 16, 330)), integers((330, 330))
    assert (tc.define(program).f(X, W) == [X[1] @ W, np.full_like(X[0], outside) @ W]).all()
