"""Packed panels: where there are some, that they are right at every edge, and that a wrong one is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.driver import lower
from tcomp.errors import LegalityError
from tcomp.grammar import define
from tcomp.mapping.machines.cpu import this_machine
from tcomp.mapping.machines.fitted.cpucontractions import COLUMNS
from tcomp.mapping.plan.values import Copy, Plan
from tcomp.mapping.proof.legality import prove
from tcomp.model.terms.sizes import Sizes
from tests.targets import CPU

Use = Callable[..., None]

pytestmark = pytest.mark.sweep(5)

Array = np.ndarray[Any, np.dtype[Any]]
TRANSPOSED = "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }"
PERMUTED = "def f(float(A,E,B,F) X, float(D,F,C,E) Y) -> (Z) { Z(a,b,c,d) +=! X(a,e,b,f) * Y(d,f,c,e) }"


def integers(shape: tuple[int, ...], dtype: Any = np.float32, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).integers(-3, 4, shape).astype(dtype)


def plan_of(text: str, sizes: dict[str, int]) -> Plan:
    return lower(define(text)["f"], Sizes(sizes), tc.MappingOptions(), CPU).plan


def copied(text: str, sizes: dict[str, int], lanes: int) -> list[str]:
    """What is packed on a processor whose vectors have so many floats."""
    machine = replace(CPU.machine, vector_bytes=4 * lanes, datapath_bytes=4 * lanes, registers=2 * lanes)
    plan = lower(define(text)["f"], Sizes(sizes), tc.MappingOptions(), replace(CPU, machine=machine)).plan
    return [copy.storage for copy in plan.copies]


@pytest.mark.parametrize("depth", [1, 7, 16, 33, 100])
@pytest.mark.parametrize("columns", [5, 16, 31, 50, 129])
def test_a_transposed_operand(columns: int, depth: int) -> None:
    f = tc.define(TRANSPOSED)["f"]
    A, B = integers((40, depth)), integers((columns, depth))
    assert (f(A, B) == A @ B.T).all()


@pytest.mark.parametrize("dtype", ["double", "int32", "int16"])
def test_elements_of_other_widths(dtype: str) -> None:
    f = tc.define(TRANSPOSED.replace("float", dtype))["f"]
    numpy = {"double": np.float64, "int32": np.int32, "int16": np.int16}[dtype]
    A, B = integers((24, 41), numpy), integers((53, 41), numpy)
    assert (f(A, B) == A @ B.T).all()


def test_four_permuted_dimensions() -> None:
    X, Y = integers((5, 6, 9, 7)), integers((37, 7, 3, 6))
    f = tc.define(PERMUTED)["f"]
    assert (f(X, Y) == np.einsum("aebf,dfce->abcd", X, Y)).all()
    assert "_of_S0" in f.compile(X, Y).source


def test_strided_operands_are_packed_from_where_they_lie() -> None:
    f = tc.define(TRANSPOSED)["f"]
    A, B = integers((40, 80)), integers((120, 80))
    assert (f(A[:, ::2], B[::3, ::2]) == A[:, ::2] @ B[::3, ::2].T).all()
    assert (f(A, B[::-1, ::-1]) == A @ B[::-1, ::-1].T).all()


def test_rows_far_apart_are_brought_together() -> None:
    """Columns are contiguous, but each step of the reduction is another page."""
    text = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
    assert plan_of(text, {"M": 512, "K": 512, "N": 1024}).copies
    assert not plan_of(text, {"M": 512, "K": 512, "N": 64}).copies


def test_a_tile_packs_all_its_columns_at_once_where_they_fit_the_second_cache() -> None:
    """Each panel then serves all rows of a tile; otherwise each register tile's columns are packed alone."""
    function = define("def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }")["f"]
    for cache, width in ((1 << 20, 128), (512 << 10, 64), (64 << 10, 32)):
        backend = replace(CPU, machine=replace(CPU.machine, nearest_cache=48 << 10, middle_cache=cache))
        plan = lower(function, Sizes({"M": 1024, "K": 1024, "N": 1024}), tc.MappingOptions(), backend).plan
        assert [c.shape for c in plan.copies] == [(1024, width)]


def test_few_steps_leave_room_for_more_columns_in_the_nearest_cache() -> None:
    """Results are then written in longer rows."""
    text = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
    machine = replace(CPU.machine, vector_bytes=32, registers=16, nearest_cache=32 << 10, middle_cache=512 << 10)
    backend = replace(CPU, machine=replace(machine, datapath_bytes=32))
    for steps, width in ((8, 512), (16, 256), (32, 128), (64, 64), (128, 64)):
        plan = lower(define(text)["f"], Sizes({"M": 2048, "K": steps, "N": 2048}), tc.MappingOptions(), backend).plan
        assert [c.shape for c in plan.copies] == [(steps, width)]
    A, B = integers((700, 8)), integers((8, 1100))
    assert (tc.define(text)["f"](A, B) == A @ B).all()


def test_a_block_of_a_long_reduction_packs_all_columns_of_a_tile() -> None:
    """Else what the rows read, which exceeds the second cache, would be read for each register tile's columns."""
    text = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
    machine = replace(CPU.machine, vector_bytes=32, registers=16, nearest_cache=32 << 10, middle_cache=512 << 10)
    backend = replace(CPU, machine=replace(machine, datapath_bytes=32))
    for sizes, width in (({"M": 2000, "K": 2000, "N": 2000}, 64), ({"M": 60, "K": 2000, "N": 2000}, 16)):
        plan = lower(define(text)["f"], Sizes(sizes), tc.MappingOptions(), backend).plan
        (copy,) = plan.copies
        assert copy.shape[0] < 2000 and copy.shape[1] == width
    text = "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }"
    A, B = integers((523, 1500)), integers((70, 1500))
    assert (tc.define(text)["f"](A, B) == A @ B.T).all()
    B = integers((1500, 530))
    assert (tc.define(text.replace("N,K", "K,N").replace("n,k", "k,n"))["f"](A, B) == A @ B).all()


CONVOLUTION = "def f(float(N,C,H,W) I, float(F,C,Y,X) K) -> (O) { O(n,f,h,w) +=! I(n,c,h+y,w+x) * K(f,c,y,x) }"
DEPTHWISE = "def f(float(N,C,H,W) I, float(C,Y,X) K) -> (O) { O(n,c,h,w) +=! I(n,c,h+y,w+x) * K(c,y,x) }"


@pytest.mark.parametrize("images", [1, 4])
def test_images_are_brought_together_where_channels_are_added_up(images: int) -> None:
    """However many images there are: one alone is not a step that lies far away."""
    image = {"N": images, "H": 58, "W": 58, "Y": 3, "X": 3}
    assert [c.storage for c in plan_of(CONVOLUTION, image | {"C": 64, "F": 64}).copies] == ["I"]
    assert not plan_of(CONVOLUTION, image | {"C": 4, "F": 64}).copies
    assert not plan_of(DEPTHWISE, image | {"C": 64}).copies


def test_rows_that_lie_far_apart_are_fetched_ahead() -> None:
    text = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
    far, near = integers((160, 1100)), integers((160, 90))
    f = tc.define(text)["f"]
    for B in (far, far[:, 500:], far[::-1], near):
        A = integers((70, len(B)), seed=3)
        assert (f(A, B) == A @ B).all()
    A = integers((70, 160), seed=3)
    assert "__builtin_prefetch" in f.compile(A, far).source
    assert "__builtin_prefetch" not in f.compile(A, near).source


def test_what_few_rows_use_is_not_packed() -> None:
    assert plan_of(TRANSPOSED, {"M": 64, "K": 64, "N": 64}).copies
    assert not plan_of(TRANSPOSED, {"M": 2, "K": 64, "N": 64}).copies


@pytest.mark.parametrize("columns", range(1, 10))
def test_few_results_a_row_have_their_vectors_across_the_rows(columns: int) -> None:
    """From half a vector on bringing the rows together costs more than columns that do not fill one."""
    text = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
    A, B = integers((70, 130)), integers((130, columns))
    assert (tc.define(text)["f"](A, B) == A @ B).all()
    expected = {2: ["A"], 3: ["A"], 5: ["B"], 6: ["B"], 7: ["B"]}.get(columns, [])
    assert copied(text, {"M": 70, "K": 130, "N": columns}, 8) == expected


@pytest.mark.parametrize(("columns", "lanes"), [(5, 8), (7, 8), (9, 16), (15, 16)])
def test_columns_that_fill_no_vector_are_packed_for_one_that_reaches_past_them(columns: int, lanes: int) -> None:
    """Elsewhere two that overlap would cover them."""
    text = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
    assert copied(text, {"M": 70, "K": 130, "N": columns}, lanes) == ["B"]
    assert copied(text, {"M": 70, "K": 130, "N": lanes}, lanes) == []
    assert copied(text, {"M": 70, "K": 130, "N": lanes + 1}, lanes) == []
    assert copied(text, {"M": 9, "K": 130, "N": columns}, lanes) == [], "too few rows"


@pytest.mark.parametrize(
    ("filters", "taps", "lanes", "packed"), [(8, 3, 8, "F"), (8, 7, 16, "I"), (128, 7, 8, "F"), (128, 1, 8, "I")]
)
def test_strided_columns_of_an_image_give_way_to_filters_that_fill_vectors(
    filters: int, taps: int, lanes: int, packed: str
) -> None:
    """What is brought together of an image has to serve many filters."""
    text = "def f(float(N,C,H,W) I, float(K,C,R,S) F) -> (O) { O(n,k,h,w) +=! I(n,c,2*h+r,2*w+s) * F(k,c,r,s) }"
    sizes = {"N": 2, "C": 16, "H": 57, "W": 57, "K": filters, "R": taps, "S": taps}
    assert copied(text, sizes, lanes) == [packed]


def test_rows_of_an_image_pass_by_a_few_channels_at_a_time() -> None:
    """Else each register tile reads lines of all channels, which nothing fetches ahead from a small second cache."""
    text = "def f(float(N,C,H,W) I, float(K,C,R,S) F) -> (O) { O(n,k,h,w) +=! I(n,c,2*h+r,2*w+s) * F(k,c,r,s) }"
    machine = replace(CPU.machine, vector_bytes=32, registers=16, datapath_bytes=32, nearest_cache=32 << 10)
    for channels, cache, together in ((100, 32, 5), (6, 32, 6), (100, 512, 100)):
        sizes = {"N": 1, "C": channels, "H": 36, "W": 126, "K": 24, "R": 3, "S": 3}
        backend = replace(CPU, machine=replace(machine, middle_cache=cache << 10))
        loops = lower(define(text)["f"], Sizes(sizes), tc.MappingOptions(), backend).stages["loops"]
        assert ("(5 * c" in loops) == (together == 5), loops
    image, F = integers((1, 60, 15, 126)), integers((24, 60, 3, 3))
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), (2, 3))[:, :, ::2, ::2]
    assert (tc.define(text)["f"](image, F) == np.einsum("nchwrs,kcrs->nkhw", windows, F)).all()


def test_a_chain_packs_the_weights_of_every_layer() -> None:
    text = """def f(float(B,M) I, float(N,M) V, float(O,N) W) -> (Y) {
        h(b,n) +=! I(b,m) * V(n,m)
        Y(b,o) +=! h(b,n) * W(o,n) }"""
    sizes = {"B": 256, "M": 40, "N": 48, "O": 32}
    plan = plan_of(text, sizes)
    assert len(plan.groups) == 1
    assert {c.storage for c in plan.copies} == {"V", "W"}
    x, V, W = integers((64, 40)), integers((48, 40), seed=1), integers((32, 48), seed=2)
    assert (tc.define(text)["f"](x, V, W) == x @ V.T @ W.T).all()


def changed(copy: Copy, name: str) -> Copy:
    match name:
        case "too small":
            return replace(copy, shape=(copy.shape[0], copy.shape[1] - 1))
        case "an order that is none":
            return replace(copy, order=(0, 0))
        case _:
            return replace(copy, mark="cluster7")


@pytest.mark.parametrize("name", ["too small", "an order that is none", "nowhere"])
def test_a_wrong_panel_is_refused(name: str) -> None:
    plan = plan_of(TRANSPOSED, {"M": 64, "K": 64, "N": 64})
    prove(plan, "pack")
    (copy,) = plan.copies
    with pytest.raises(LegalityError, match="pass 'mutation'"):
        prove(replace(plan, copies=(changed(copy, name),)), "mutation")


def test_a_panel_of_what_the_tile_writes_is_refused() -> None:
    plan = plan_of(TRANSPOSED, {"M": 64, "K": 64, "N": 64})
    (copy,) = plan.copies
    with pytest.raises(LegalityError, match="written meanwhile"):
        prove(replace(plan, copies=(replace(copy, storage="C_acc0"),)), "mutation")


PADDED = """def f(float(C,H,W) I, float(O,C,KH,KW) K) -> (Y) {
    Y(o,h,w) +=! constant_exterior(I, BORDER)(c,h+kh-1,w+kw-2) * K(o,c,kh,kw) where c in 0:C, h in 0:H, w in 0:W }"""


@pytest.mark.parametrize("border", ["0", "-2.5"])
@pytest.mark.parametrize("shape", [(3, 5, 5), (4, 12, 31), (2, 20, 70)])
def test_what_lies_around_an_image_is_in_the_panel(shape: tuple[int, int, int], border: str) -> None:
    f = tc.define(PADDED.replace("BORDER", border))["f"]
    pixels, K = integers(shape), integers((9, shape[0], 3, 4))
    wide = np.pad(pixels, ((0, 0), (1, 1), (2, 1)), constant_values=float(border))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 4), (1, 2))
    kernel = f.compile(pixels, K)
    assert "_of_S0" in kernel.source
    assert (kernel(pixels, K) == np.einsum("chwij,ocij->ohw", windows, K)).all()


def test_a_panel_without_what_lies_around_is_refused() -> None:
    plan = plan_of(PADDED.replace("BORDER", "0"), {"C": 3, "H": 8, "W": 16, "O": 9, "KH": 3, "KW": 4})
    (copy,) = plan.copies
    assert copy.shape[2] == 19
    with pytest.raises(LegalityError, match="fetches too little of I"):
        prove(replace(plan, copies=(replace(copy, shape=(*copy.shape[:2], 18)),)), "mutation")


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that lie some steps apart are brought together for few filters, too."""
    monkeypatch.setattr("tcomp.mapping.contraction.columns.COLUMNS", replace(COLUMNS, stepped=0.5))
    monkeypatch.setenv("TCOMP_CACHE", "0")


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("boundary", ["repeat_edge", "repeat_image", "mirror_image", "mirror_interior"])
def test_what_a_boundary_repeats_is_in_the_panel(boundary: str, step: int) -> None:
    text = f"""def f(float(C,H,W) I, float(O,C,KH,KW) K) -> (Y) {{
        Y(o,h,w) +=! {boundary}(I)(c,{step}*h+kh-1,{step}*w+kw-5) * K(o,c,kh,kw)
        where c in 0:C, h in 0:H/{step}+1, w in 0:W/{step}+5 }}"""
    f = tc.define(text)["f"]
    for shape in ((2, 1, 1), (4, 5, 6), (2, 20, 71)):
        pixels, K = integers(shape), integers((9, shape[0], 3, 4))
        kernel = f.compile(pixels, K)
        (copy,) = [c for c in kernel.compilation.plan.copies if c.storage == "I"]
        assert copy.step == step
        assert "_of_S0" in kernel.source
        assert (kernel(pixels, K) == f.reference(pixels, K)).all()


def test_a_boundary_of_a_value_is_right_without_a_panel() -> None:
    f = tc.define(PADDED.replace("BORDER", "K(0,0,0,0)"))["f"]
    pixels, K = integers((2, 9, 17)), integers((5, 2, 3, 4))
    assert (f(pixels, K) == f.reference(pixels, K)).all()


STRIDED = """def f(float(C,H,W) I, float(O,C,KH,KW) K, const int S, const int D) -> (Y) {
    Y(o,h,w) +=! I(c,S*h+D*kh,S*w+D*kw) * K(o,c,kh,kw) }"""


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("dtype", ["float", "double"])
@pytest.mark.parametrize(("step", "dilation", "window"), [(2, 1, 7), (2, 3, 2), (3, 1, 3), (4, 3, 3), (8, 1, 5)])
def test_strided_columns_are_brought_together(step: int, dilation: int, window: int, dtype: str) -> None:
    f = tc.define(STRIDED.replace("float", dtype))["f"]
    numpy = np.float32 if dtype == "float" else np.float64
    for size in (140, 167):
        pixels, K = integers((3, 29, size), numpy), integers((10, 3, window, window), numpy)
        kernel = f.compile(pixels, K, step, dilation)
        assert kernel.compilation.plan.copies[0].step == step
        windows = np.lib.stride_tricks.sliding_window_view(
            pixels, (dilation * (window - 1) + 1,) * 2, (1, 2)
        )[:, ::step, ::step, ::dilation, ::dilation]  # fmt: skip
        assert (kernel(pixels, K, step, dilation) == np.einsum("chwij,ocij->ohw", windows, K)).all()


def test_a_panel_in_steps_reads_back_from_its_text_and_is_proved() -> None:
    f = tc.define(STRIDED)["f"]
    pixels, K = integers((3, 29, 67)), integers((10, 3, 3, 3))
    kernel = f.compile(pixels, K, 2, 1)
    plan = kernel.compilation.plan
    again = f.compile(pixels, K, 2, 1, plan=kernel.stages["pack"])
    assert again.source == kernel.source
    (copy,) = plan.copies
    for step in (0, 1000):
        with pytest.raises(LegalityError, match="has no place for every element"):
            prove(replace(plan, copies=(replace(copy, step=step),)), "mutation")


LEFT_TRANSPOSED = "def f(float(K,M) A, float(K,N) B) -> (C) { C(m,n) +=! A(k,m) * B(k,n) }"


@pytest.mark.parametrize("rows", [1024, 1000])
def test_rows_whose_steps_collide_are_packed(rows: int) -> None:
    """Steps of 4096 bytes fall into one set of the nearest cache; steps of 4000 do not."""
    packed = {c.storage for c in plan_of(LEFT_TRANSPOSED, {"M": rows, "K": 600, "N": 96}).copies}
    assert ("A" in packed) == (rows == 1024)
    A, B = integers((600, rows)), integers((600, 96))
    assert (tc.define(LEFT_TRANSPOSED)["f"](A, B) == A.T @ B).all()


def test_a_tensor_may_be_panel_and_rows() -> None:
    f = tc.define("def f(float(K,M) A) -> (C) { C(m,n) +=! A(k,m) * A(k,n) }")["f"]
    A = integers((600, 1024))
    assert len({c.mark for c in plan_of("def f(float(K,M) A) -> (C) { C(m,n) +=! A(k,m) * A(k,n) }",
                                        {"K": 600, "M": 1024}).copies}) == 2  # fmt: skip
    assert (f(A) == A.T @ A).all()


def test_packed_rows_that_are_too_few_are_refused() -> None:
    plan = plan_of(LEFT_TRANSPOSED, {"M": 1024, "K": 600, "N": 96})
    copy = next(c for c in plan.copies if c.storage == "A")
    few = replace(copy, shape=(copy.shape[0] - 1, copy.shape[1]))
    with pytest.raises(LegalityError, match="fetches too little of A"):
        prove(replace(plan, copies=(few,)), "mutation")


WINDOWS = {
    "maxima": "Y(c,h,w) max=! constant_exterior(I, -99)(c,S*h+i-1,S*w+j-2)",
    "sums": "Y(c,h,w) +=! constant_exterior(I, 0)(c,S*h+i-1,S*w+j-2)",
    "products at an edge": "Y(c,h,w) +=! repeat_edge(I)(c,S*h+i-1,S*w+j-2) * K(c,i,j)",
    "differences from a mirror": "Y(c,h,w) +=! mirror_interior(I)(c,S*h+i-1,S*w+j-2) - K(c,i,j)",
    "what is no arithmetic": "Y(c,h,w) +=! abs(mirror_image(I)(c,S*h+i-1,S*w+j-2) - K(c,i,j))",
}


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_other_updates(name: str, step: int) -> None:
    ranges = "where c in 0:C, h in 0:H/S, w in 0:W/S, i in 0:3, j in 0:4"
    text = f"def f(float(C,H,W) I, float(C,3,4) K) -> (Y) {{ {WINDOWS[name]} {ranges} }}".replace("S", str(step))
    f = tc.define(text)["f"]
    for shape in ((1, 9, 17), (2, 33, 70), (3, 7, 300)):
        pixels, K = integers(shape), integers((shape[0], 3, 4), seed=1)
        kernel = f.compile(pixels, K)
        (copy,) = kernel.compilation.plan.copies
        assert copy.step == step
        assert (kernel(pixels, K) == f.reference(pixels, K)).all()


def test_windows_are_reduced_in_vectors() -> None:
    text = "def f(float(C,H,W) I) -> (Y) { Y(c,h,w) max=! I(c,2*h+i,2*w+j) where i in 0:3, j in 0:3 }"
    source = tc.define(text)["f"].compile(sizes={"C": 2, "H": 65, "W": 65}).source
    assert source.count("tc_sum0_0 = tc_max_float32_x") > 0
    assert "*)&v_I[" not in source


def test_what_stands_apart_in_memory_is_not_packed_for_a_sum_of_its_rows() -> None:
    assert not plan_of("def f(float(N,D) X) -> (Y) { Y(n) +=! X(n,d) }", {"N": 100, "D": 100}).copies
    assert not plan_of("def f(float(N,D) X) -> (Y) { Y(n) +=! X(2*n,d) }", {"N": 100, "D": 100}).copies


def test_what_is_computed_from_a_contraction_has_its_tiles() -> None:
    """A cell of a recurrent network reads several products; in tiles of few rows their weights would not be packed."""
    text = """def f(float(B,I) X, float(B,H) c, float(2,H,I) W, float(2,H) b) -> (Y) {
        g(k,n,j) +=! X(n,i) * W(k,j,i)
        Y(n,j) = max(g(0,n,j) + b(0,j), 0.0) * c(n,j) + g(1,n,j) }"""
    plan = plan_of(text, {"B": 32, "I": 100, "H": 200})
    assert len(plan.groups) == 1
    assert {c.storage for c in plan.copies} == {"W"}
    X, c, W, b = integers((33, 40)), integers((33, 70)), integers((2, 70, 40)), integers((2, 70))
    first, second = np.einsum("ni,kji->knj", X, W)
    assert (tc.define(text)["f"](X, c, W, b) == np.maximum(first + b[0], 0) * c + second).all()


def test_what_a_contraction_packs_is_stored_before() -> None:
    """Panels are made of what is in global memory; read from a tile, the border would stop the vectors."""
    text = """def f(float(C,H,W) I, float(F,C,3,3) K, float(F,F,3,3) L) -> (Y) {
        A(f,h,w) +=! constant_exterior(I,0)(c,h+i-1,w+j-1) * K(f,c,i,j) where c in 0:C, h in 0:H, w in 0:W
        A(f,h,w) = max(A(f,h,w), 0.0)
        Y(g,h,w) +=! constant_exterior(A,0)(f,h+i-1,w+j-1) * L(g,f,i,j) where f in 0:F, h in 0:H, w in 0:W }"""
    plan = plan_of(text, {"C": 3, "H": 40, "W": 40, "F": 8})
    assert {c.storage for c in plan.copies} == {"I", "A_2"}
    assert any("packs it" in note for note in plan.notes)
    pixels, K, L = integers((3, 20, 33)), integers((5, 3, 3, 3)), integers((5, 5, 3, 3))
    f = tc.define(text)["f"]
    assert (f(pixels, K, L) == f.reference(pixels, K, L)).all()


def test_pooling_keeps_the_rows_of_the_convolution_before_it() -> None:
    text = """def f(float(C,H,W) I, float(F,C,3,3) K) -> (Y) {
        A(f,h,w) +=! I(c,h+i,w+j) * K(f,c,i,j)
        A(f,h,w) = max(A(f,h,w), 0.0)
        Y(f,h,w) max=! A(f,2*h+i,2*w+j) where i in 0:3, j in 0:3 }"""
    plan = plan_of(text, {"C": 8, "H": 67, "W": 67, "F": 32})
    (group,) = plan.groups
    assert group.recompute < 1.2
    buffer = plan.buffers["A_2"]
    assert buffer.shape[0] == 32
    f = tc.define(text)["f"]
    for shape in ((8, 67, 67), (3, 9, 20)):
        pixels, K = integers(shape), integers((9, shape[0], 3, 3))
        assert (f(pixels, K) == f.reference(pixels, K)).all()


TURNED = {
    "a transposition": "Y(m,n) = X(n,m)",
    "a sum with it": "Y(n,m) = X(n,m) + X(m,n) * 2 where n in 0:32, m in 0:32",
    "a shifted part": "Y(m,n) = X(n+3,m+2) where n in 0:N-3, m in 0:M-2",
    "channels last": "Y(j,n,i) = X(n,20*i+j) where j in 0:20, i in 0:M/20",
}


@pytest.mark.parametrize("dtype", ["float", "double", "int32", "half", "int8"])
@pytest.mark.parametrize("name", TURNED)
def test_transposed_operands_are_turned_in_registers(name: str, dtype: str) -> None:
    """Elements of fewer bits are turned one by one."""
    f = tc.define(f"def f({dtype}(N,M) X) -> (Y) {{ {TURNED[name]} }}")["f"]
    numpy = {"float": np.float32, "double": np.float64, "int32": np.int32, "half": np.float16, "int8": np.int8}[dtype]
    for shape in ((32, 40), (517, 70), (100, 333)):
        X = integers(shape, numpy)
        kernel = f.compile(X)
        assert (kernel(X) == f.reference(X)).all()
    if this_machine().vector_bytes >= 32 and X.itemsize >= 4:
        assert ("tc_transpose_" in kernel.source) == (name != "channels last")


def test_what_is_turned_is_proved() -> None:
    plan = plan_of("def f(float(N,M) X) -> (Y) { Y(m,n) = X(n,m) }", {"N": 100, "M": 200})
    (copy,) = plan.copies
    with pytest.raises(LegalityError, match="fetches too little of X"):
        prove(replace(plan, copies=(replace(copy, shape=(copy.shape[0], copy.shape[1] - 1)),)), "mutation")


@pytest.mark.parametrize("dtype", ["float", "double", "int32"])
@pytest.mark.parametrize("columns", range(3, 16))
def test_few_columns_take_a_vector_that_reaches_past_them(machine: Use, columns: int, dtype: str) -> None:
    machine(datapath_bytes=this_machine().vector_bytes)
    f = tc.define(PADDED.replace("BORDER", "0").replace("float", dtype))["f"]
    numpy = {"float": np.float32, "double": np.float64, "int32": np.int32}[dtype]
    for depth in (3, 300):
        pixels, K = integers((depth, 6, columns), numpy), integers((9, depth, 3, 4), numpy)
        wide = np.pad(pixels, ((0, 0), (1, 1), (2, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 4), (1, 2))
        assert (f(pixels, K) == np.einsum("chwij,ocij->ohw", windows, K)).all()
    text = f.compile(pixels, K).source
    if this_machine().vector_bytes == 64 and dtype == "float" and columns in (7, 13):
        assert f"_x{8 if columns == 7 else 16} tc_c0_0 = " in text


def test_a_vector_that_reaches_past_its_columns_begins_where_the_last_block_ended(machine: Use) -> None:
    """A reduction in blocks loads what it has summed so far, in halves that overlap."""
    machine(datapath_bytes=this_machine().vector_bytes)
    f = tc.define(PADDED.replace("BORDER", "0"))["f"]
    pixels, K = integers((1000, 5, 13)), integers((9, 1000, 3, 4))
    kernel = f.compile(pixels, K)
    if this_machine().vector_bytes == 64:
        assert "__builtin_shufflevector(*(const tc_float32_x8 *)(tc_c" in kernel.source
    wide = np.pad(pixels, ((0, 0), (1, 1), (2, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 4), (1, 2))
    assert (kernel(pixels, K) == np.einsum("chwij,ocij->ohw", windows, K)).all()


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("side", [5, 7, 9])
def test_a_small_image_with_a_border_has_its_vectors_across_the_channels(side: int, stride: int) -> None:
    """Rows are shorter than vectors there; what lies around the image is in a copy of it, the filters are turned."""
    text = """def f(float(N,C,H,W) I, float(F,C,3,3) K, const int S) -> (Y) {
        Y(n,f,h,w) +=! constant_exterior(I,0)(n,c,S*h+i-1,S*w+j-1) * K(f,c,i,j)
            where n in 0:N, c in 0:C, h in 0:H/S, w in 0:W/S }"""
    f = tc.define(text)["f"]
    pixels, K = integers((2, 20, side, side)), integers((40, 20, 3, 3))
    assert (f(pixels, K, stride) == f.reference(pixels, K, stride)).all()
    kernel = f.compile(pixels, K, stride)
    if stride == 1:
        assert {c.storage for c in kernel.compilation.plan.copies} == {"I", "K"}
        assert "tc_transpose_32_x" in kernel.source


@pytest.mark.parametrize("boundary", ["constant_exterior(I,-1.5)", "repeat_edge(I)", "mirror_interior(I)"])
def test_channels_last_with_a_border_have_vectors(boundary: str) -> None:
    text = f"""def f(float(H,W,C) I, float(3,3,C,F) K) -> (Y) {{
        Y(h,w,f) +=! {boundary}(h+i-1,w+j-1,c) * K(i,j,c,f) where h in 0:H, w in 0:W, c in 0:C }}"""
    f = tc.define(text)["f"]
    pixels, K = integers((6, 9, 5)), integers((3, 3, 5, 37))
    kernel = f.compile(pixels, K)
    assert (kernel(pixels, K) == f.reference(pixels, K)).all()
    assert [c.storage for c in kernel.compilation.plan.copies] == ["I"]
    assert "tc_float32_x" in kernel.source


def test_a_pool_with_a_border_has_what_it_reads_in_memory() -> None:
    """In the tiles of the pool the convolution would run element by element, and the pool test every read."""
    text = """def f(float(C,H,W) X, float(F,C,3,3) K) -> (Y) {
        T(f,h,w) +=! constant_exterior(X,0)(c,h+i-1,w+j-1) * K(f,c,i,j) where c in 0:C, h in 0:H, w in 0:W
        T(f,h,w) = relu(T(f,h,w))
        Y(f,h,w) max=! constant_exterior(T,-9)(f,2*h+i-1,2*w+j-1)
            where f in 0:F, h in 0:H/2, w in 0:W/2, i in 0:3, j in 0:3 }"""
    f = tc.define(text)["f"]
    pixels, K = integers((3, 20, 22)), integers((5, 3, 3, 3))
    kernel = f.compile(pixels, K)
    assert (kernel(pixels, K) == f.reference(pixels, K)).all()
    assert {c.statement for c in kernel.compilation.plan.copies} == {"S0", "S2"}


def test_results_are_turned_where_a_contraction_goes_on_with_them() -> None:
    """Channels are the columns though pixels are neighbours, whatever is done to the sums in the same tile."""
    text = """def f(float(C,H,W) X, float(F,C,3,3) K, float(F) b, float(F,H,W) R) -> (Y) {
        Y(f,h,w) +=! constant_exterior(X,0)(c,h+i-1,w+j-1) * K(f,c,i,j) where c in 0:C, h in 0:H, w in 0:W
        Y(f,h,w) = relu(Y(f,h,w) + b(f) + R(f,h,w)) }"""
    f = tc.define(text)["f"]
    arguments = [integers(shape) for shape in ((20, 7, 7), (40, 20, 3, 3), (40,), (40, 7, 7))]
    kernel = f.compile(*arguments)
    assert (kernel(*arguments) == f.reference(*arguments)).all()
    assert {c.storage for c in kernel.compilation.plan.copies} == {"X", "K"}


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("weights", ["K,C,R,S", "R,S,C,K"])
def test_images_whose_channels_come_last_are_not_turned_for_few_filters(stride: int, weights: str) -> None:
    """Neighbouring columns of the image are lines apart: eight filters do not pay for bringing them together."""
    text = (
        f"def f(float(N,H,W,C) I, float({weights}) F) -> (O) "
        f"{{ O(n,h,w,k) +=! I(n,{stride}*h+r,{stride}*w+s,c) * F({weights.lower()}) where h in 0:10, w in 0:48 }}"
    )
    sizes = {"N": 1, "H": 9 * stride + 3, "W": 47 * stride + 3, "C": 16, "K": 8, "R": 3, "S": 3}
    assert all(copy.storage == "F" for copy in plan_of(text, sizes).copies)
    I, F = integers((1, sizes["H"], sizes["W"], 16)), integers(tuple(sizes[x] for x in weights.split(",")))  # noqa: E741
    windows = np.lib.stride_tricks.sliding_window_view(I, (3, 3), (1, 2))[:, ::stride, ::stride]
    expected = np.einsum(f"nhwcrs,{weights.lower().replace(',', '')}->nhwk", windows, F)
    np.testing.assert_array_equal(tc.define(text).f(I, F), expected)


@pytest.mark.parametrize(("filters", "packs"), [(4, True), (16, False), (64, False)])
def test_strided_images_are_brought_together_only_where_filters_fill_no_vector(filters: int, packs: bool) -> None:
    """Bringing columns together that lie two apart takes as long as the products of many filters."""
    text = "def f(float(C,H,W) I, float(F,C,Y,X) K) -> (O) { O(f,h,w) +=! I(c,2*h+y,2*w+x) * K(f,c,y,x) }"
    assert ("I" in copied(text, {"C": 100, "H": 57, "W": 57, "F": filters, "Y": 3, "X": 3}, 16)) == packs
    image, K = integers((20, 13, 57)), integers((filters, 20, 3, 3))
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(1, 2))[:, ::2, ::2]
    assert (tc.define(text)["f"](image, K) == np.einsum("chwyx,fcyx->fhw", windows, K)).all()


def test_short_runs_within_a_reduction_are_no_dot_products() -> None:
    """Their lanes would be added up for each run, not once at the end: even half a vector of columns is better."""
    few = "def f(float(U,Q,V,P,T) A, float(S,U,V,R,T) B) -> (O) { O(v,p,q,r,s) +=! A(u,q,v,p,t) * B(s,u,v,r,t) }"
    assert plan_of(few, {"P": 8, "Q": 20, "R": 20, "S": 8, "T": 12, "U": 32, "V": 4}).copies
    text = "def f(float(P,T,Q,U) A, float(R,T,S,U) B) -> (O) { O(s,p,q,r) +=! A(p,t,q,u) * B(r,t,s,u) }"
    sizes = {"P": 20, "T": 32, "Q": 16, "U": 12, "R": 20, "S": 8}
    assert copied(text, sizes, 8) == ["A"] and copied(text, sizes, 16) == ["B"]
    A, B = integers((20, 32, 16, 12)), integers((20, 32, 8, 12))
    assert (tc.define(text)["f"](A, B) == np.einsum("ptqu,rtsu->spqr", A, B)).all()


@pytest.mark.parametrize(
    ("rows", "columns", "steps", "packed"),
    [
        (512, 512, 512, True),
        (300, 640, 700, True),
        (100, 512, 512, False),
        (512, 500, 512, False),
        (512, 256, 512, False),
        (512, 512, 256, False),
        (512, 512, 2048, False),
        (20000, 512, 512, False),
    ],
    ids=["many", "odd", "few rows", "parts of lines", "near steps", "stays near", "blocks", "read from memory"],
)
def test_lines_that_many_rows_read_from_the_second_cache_are_packed(
    rows: int, columns: int, steps: int, packed: bool
) -> None:
    """An array may begin within a line, so that each vector straddles two."""
    text = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
    machine = replace(CPU.machine, nearest_cache=48 << 10, last_cache=32 << 20)
    sizes = Sizes({"M": rows, "N": columns, "K": steps})
    plan = lower(define(text)["f"], sizes, tc.MappingOptions(), replace(CPU, machine=machine)).plan
    assert [copy.storage for copy in plan.copies] == ["B"] * packed
