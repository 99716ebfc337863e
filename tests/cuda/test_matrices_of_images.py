"""Convolutions, and contractions with several indices a side, by instructions that multiply matrices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.gpu.matrices.warps import digits
from tcomp.errors import LegalityError
from tcomp.mapping.gpu.matrices.deals import deals_of_columns, deals_of_rows
from tcomp.mapping.plan.deals import Deal
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.proof.threads import prove_memories
from tests.cuda.machine_code import busiest_loop, loops_of
from tests.cuda.simulated import NEEDS_COMPILER

TEXTS = {
    "channels last": """def f(float16(N,H,W,C) I, float16(3,3,C,F) K) -> (O) {
        O(n,h,w,f) +=! constant_exterior(I, float16(0))(n,h+kh-1,w+kw-1,c) * K(kh,kw,c,f)
            where n in 0:N, h in 0:H, w in 0:W }""",
    "channels first": """def f(float16(N,C,H,W) I, float16(F,C,3,3) K) -> (O) {
        O(n,f,h,w) +=! constant_exterior(I, float16(0))(n,c,h+kh-1,w+kw-1) * K(f,c,kh,kw)
            where n in 0:N, h in 0:H, w in 0:W }""",
    "every other pixel": """def f(float16(N,H,W,C) I, float16(3,3,C,F) K) -> (O) {
        O(n,h,w,f) +=! I(n,2*h+kh,2*w+kw,c) * K(kh,kw,c,f) }""",
    "taps last": """def f(float16(N,H,W,C) I, float16(F,C,3,3) K) -> (O) {
        O(n,h,w,f) +=! constant_exterior(I, float16(0))(n,h+kh-1,w+kw-1,c) * K(f,c,kh,kw)
            where n in 0:N, h in 0:H, w in 0:W }""",
    "single pixels": "def f(float16(N,C,H,W) I, float16(F,C) K) -> (O) { O(n,f,h,w) +=! I(n,c,h,w) * K(f,c) }",
    "rows of two indices": "def f(float16(A,B,K) X, float16(K,N) Y) -> (O) { O(a,b,n) +=! X(a,b,k) * Y(k,n) }",
}


def arrays_of(text: str, *shapes: tuple[int, ...]) -> tuple[Any, list[np.ndarray[Any, Any]]]:
    rng = np.random.default_rng(0)
    return tc.define(text).f, [rng.integers(-2, 3, s).astype(np.float16) for s in shapes]


def plan_of(name: str, options: tc.MappingOptions | None = None, target: str = "cuda:sm_90", **sizes: int) -> Plan:
    return tc.define(TEXTS[name]).f.compile(sizes=sizes, target=target, options=options).compilation.plan


@NEEDS_COMPILER
@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("channels last", [(1, 9, 12, 40), (3, 3, 40, 32)]),
        ("channels first", [(2, 16, 7, 10), (32, 16, 3, 3)]),
        ("taps last", [(2, 24, 24, 32), (32, 32, 3, 3)]),
        ("every other pixel", [(1, 17, 19, 32), (3, 3, 32, 16)]),
        ("single pixels", [(2, 32, 6, 12), (32, 32)]),
        ("rows of two indices", [(7, 12, 48), (48, 32)]),
    ],
)
def test_results_are_those_of_the_interpreter(name: str, shapes: list[tuple[int, ...]]) -> None:
    operation, arrays = arrays_of(TEXTS[name], *shapes)
    assert "tc_mma_f16" in operation.compile(*arrays, target="simulator").source
    np.testing.assert_array_equal(operation(*arrays, target="simulator"), operation.reference(*arrays))


def test_warps_share_rows_of_several_indices() -> None:
    """Eight rows for the lanes of each warp; each has whole atoms of two rows."""
    options = tc.MappingOptions()
    assert deals_of_rows([8, 8], options) == (Deal(8, 2, 1, 0), Deal(8, 8, 1, 1))
    assert deals_of_rows([7, 7], options) == (Deal(7, 2, 1, 0), Deal(7, 8, 1, 1))
    assert deals_of_rows([2, 32], options) == (Deal(2, 2, 1, 0), Deal(32, 8, 1, 1))
    assert deals_of_rows([3, 8], options) == (Deal(3, 2, 1, 0), Deal(8, 8, 1, 1))
    assert deals_of_rows([1, 8], options) is None
    assert deals_of_rows([8, 8], replace(options, threads=(4, 8))) is None
    assert deals_of_columns([2, 8], 1) == (Deal(2, 1, 2, None), Deal(8, 4, 2, 1))
    assert deals_of_columns([3, 8], 1) is None


@pytest.mark.parametrize("radices", [[1, 4], [2, 3], [4, 2, 2], [3, 1, 4], [1, 1]])
def test_digits_of_a_number(radices: list[int]) -> None:
    for even, rest in [(n, r) for n in range(0, int(np.prod(radices)) // 2 * 2, 2) for r in (0, 1)]:
        texts = digits("even", "rest", radices)
        found = [eval(text.replace("/", "//"), {"even": even, "rest": rest}) for text in texts]
        number = even + rest
        for radix, digit in zip(radices, found, strict=True):
            assert digit == number % radix
            number //= radix


class TestPlan:
    @pytest.mark.parametrize(
        ("name", "sizes"),
        [
            ("channels last", {"N": 1, "H": 14, "W": 14, "C": 32, "F": 64}),
            ("channels first", {"N": 1, "H": 14, "W": 14, "C": 32, "F": 64}),
        ],
    )
    def test_all_taps_share_what_is_fetched(self, name: str, sizes: dict[str, int]) -> None:
        plan = plan_of(name, **sizes)
        (copy,) = (c for c in plan.copies if c.storage == "I")
        assert len([e for e in copy.shape if e >= 8 + 2]) >= 2

    def test_weights_are_turned_once_where_many_blocks_share_them(self) -> None:
        plan = plan_of("taps last", N=16, H=24, W=24, C=32, F=32)
        assert [(s, order) for s, _, order in plan.unfolded] == [("S0", ("kh", "kw", "f", "c"))]
        assert plan.pipelines or all(c.vector == 8 for c in plan.copies)
        assert not plan_of("taps last", N=1, H=24, W=24, C=32, F=32).unfolded

    def test_plans_with_turned_weights_are_read_again(self) -> None:
        f, sizes = tc.define(TEXTS["taps last"]).f, {"N": 16, "H": 24, "W": 24, "C": 32, "F": 32}
        made = f.compile(sizes=sizes, target="cuda:sm_90")
        again = f.compile(sizes=sizes, target="cuda:sm_90", plan=made.stages["barriers"])
        assert again.source == made.source

    def test_what_the_text_would_misread_is_refused(self) -> None:
        plan = plan_of("channels last", N=1, H=16, W=16, C=32, F=32)
        (mark,) = plan.operations
        cluster = plan.phases[mark].cluster
        dealt = plan.dealt[cluster]
        image, taps = (next(c for c in plan.copies if c.storage == s) for s in "IK")

        def but(**changes: Any) -> Plan:
            new = replace(image, **changes)
            return replace(plan, copies=tuple(new if c is image else c for c in plan.copies))

        moved = image.lower.set_at(2, image.lower.get_at(2).add_constant_val(1))
        wrong = [
            but(lower=moved),
            but(shape=(*image.shape[:2], image.shape[2] - 1, image.shape[3])),
            but(order=(0, 3, 1, 2)),
            but(padding=image.padding + 1),
            replace(plan, copies=tuple(replace(taps, order=(3, 2, 1, 0)) if c is taps else c for c in plan.copies)),
            replace(
                plan,
                dealt={**plan.dealt, cluster: replace(dealt, deals=tuple(replace(d, vector=1) for d in dealt.deals))},
            ),
        ]
        prove_memories(plan, "test")
        for changed in wrong:
            with pytest.raises(LegalityError):
                prove_memories(changed, "test")

    def test_other_values_outside_and_floats_are_multiplied_one_by_one(self) -> None:
        ones = TEXTS["channels last"].replace("float16(0)", "float16(1)")
        floats = TEXTS["channels last"].replace("float16", "float")
        for text in (ones, floats):
            sizes = {"N": 1, "H": 16, "W": 16, "C": 32, "F": 32}
            plan = tc.define(text).f.compile(sizes=sizes, target="cuda:sm_90").compilation.plan
            assert not plan.operations


def test_windows_with_gaps_between_them_have_no_box_that_begins_with_them() -> None:
    """Their copies begin before what is read, so lanes would not find it: such products run one by one."""
    f = tc.define("""def f(float16(H,C) I, float16(3,C,F) K) -> (O) {
        O(h,f) +=! I(4*h+kh,c) * K(kh,c,f) where h in 0:64 }""").f
    plan = f.schedule(sizes={"H": 258, "C": 32, "F": 32}, target="cuda:sm_80").compilation.plan
    assert not any(operation.atom for operation in plan.operations.values())


def test_machine_code() -> None:
    """Nine taps of 32 channels for 32 pixels and 64 filters of each warp."""
    sizes = {"N": 16, "H": 56, "W": 56, "C": 64, "F": 64}
    options = tc.MappingOptions(warpgroups=False)
    kernel = tc.define(TEXTS["channels last"]).f.compile(sizes=sizes, target="cuda:sm_90", options=options)
    loop = busiest_loop(loops_of(kernel.compilation.source)["f_0"], "HMMA")
    assert loop.count("HMMA") == 288 and loop.total <= 600
    assert loop.count("LDSM") == 108 and loop.count("LDGSTS") <= 43 and loop.count("BAR") == 1
    assert loop.count("STL", "LDL", "STS", "LDG") == 0
