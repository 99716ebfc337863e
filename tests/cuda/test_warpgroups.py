"""Products of halves by warpgroups (sm_90a): results, layouts, plans, proofs, faults in texts, machine code."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.cuda.tools.images import compile_image
from tcomp.backends.gpu.fetches.boxes import straight_place
from tcomp.backends.simulator.report import FindingKind, SimulationError
from tcomp.backends.simulator.simulation import Settings
from tcomp.backends.source import Source
from tcomp.driver import Compilation
from tcomp.errors import LegalityError, PlanError
from tcomp.grammar import define
from tcomp.loops.indexing import Ranges
from tcomp.loops.ir import Number
from tcomp.mapping.plan.layouts import Swizzle
from tcomp.mapping.plan.values import Copy, Pipeline, Plan
from tcomp.mapping.proof.threads import prove_barriers, prove_memories
from tests.cuda.compiled import compiled, data_for, run
from tests.cuda.machine_code import busiest_loop, loops_of
from tests.cuda.simulated import NEEDS_COMPILER
from tests.cuda.test_matrices import TEXTS, arrays_for, multiplied, plan_of
from tests.cuda.texts import Text

pytestmark = pytest.mark.sweep(3)

SIMULATOR, DEVICE = "simulator:sm_90a", "cuda:sm_90a"

WHOLE = tc.MappingOptions(split_reduction=1, route="async")
"""Each block makes all steps of its tile, whose operands threads fetch."""

SIZES = [(128, 256, 192), (130, 72, 100), (97, 131, 200)]
"""Rows, columns, steps: whole tiles with products under way, torn ones, odd ones."""


@NEEDS_COMPILER
@pytest.mark.sweep(8)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", TEXTS)
def test_results_are_those_of_the_interpreter(name: str, sizes: tuple[int, int, int]) -> None:
    text, shapes = TEXTS[name]
    operation, arrays = tc.define(text).f, arrays_for(shapes(*sizes))
    if (name, sizes) != ("rows of an image", SIZES[0]):  # its windows end in the tensor, and tiles of steps must not
        assert "tc_wgmma_f16_n" in operation.compile(*arrays, target=SIMULATOR).source
    np.testing.assert_array_equal(operation(*arrays, target=SIMULATOR), operation.reference(*arrays))


@NEEDS_COMPILER
def test_bfloat16() -> None:
    operation = tc.define(TEXTS["nt"][0].replace("float16", "bfloat16")).f
    arrays = arrays_for([(100, 136), (72, 136)], brain=True)
    assert "tc_wgmma_bf16_n64<0, 0>" in operation.compile(*arrays, target=SIMULATOR).source
    found, expected = (
        np.asarray(x, np.float32) for x in (operation(*arrays, target=SIMULATOR), operation.reference(*arrays))
    )
    np.testing.assert_array_equal(found, expected)


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("dtype", "sums", "steps"), [("float16", "float", 33), ("int8", "int32", 100)])
def test_tiles_of_fewer_steps_than_a_row_are_for_single_warps(dtype: str, sums: str, steps: int) -> None:
    """A row of a warpgroup's operand would have held steps of the next tile, too."""
    text = f"def f({dtype}(M,K) A, {dtype}(N,K) B) -> (C) {{ C(m,n) +=! {sums}(A(m,k)) * {sums}(B(n,k)) }}"
    source = compiled(define(text)["f"], {"M": 128, "N": 128, "K": steps}, architecture="sm_90a").source.text
    assert "tc_mma_" in source and "tc_wgmma_fence" not in source


@NEEDS_COMPILER
@pytest.mark.parametrize(
    "options",
    [
        tc.MappingOptions(stages=1),
        tc.MappingOptions(stages=2),
        tc.MappingOptions(stages=3),
        tc.MappingOptions(prefetch=False),
        tc.MappingOptions(split_reduction=2),
        tc.MappingOptions(tile_sizes=(64, 64)),
        tc.MappingOptions(tile_sizes=(256, 128)),
        tc.MappingOptions(tile_sizes=(256, 64), threads=(4, 32)),
        tc.MappingOptions(reduction_tile=128),
        tc.MappingOptions(blocks=(1, 1), tile_sizes=(64, 64)),
        tc.MappingOptions(max_shared_memory=50_000),
    ],
    ids=lambda o: o.to_text(),
)
@pytest.mark.parametrize("name", ["nn", "tn"])
def test_every_option_gives_the_same(name: str, options: tc.MappingOptions) -> None:
    text, shapes = TEXTS[name]
    operation, arrays = tc.define(text).f, arrays_for(shapes(264, 136, 512))
    assert "tc_wgmma" in operation.compile(*arrays, target=SIMULATOR, options=options).source
    np.testing.assert_array_equal(operation(*arrays, target=SIMULATOR, options=options), operation.reference(*arrays))


@NEEDS_COMPILER
def test_arrays_may_begin_anywhere() -> None:
    a, b = (x.reshape(-1)[1:].reshape(64, 128) for x in arrays_for([(64 * 128 + 1, 1), (64 * 128 + 1, 1)]))
    operation = tc.define(TEXTS["nt"][0]).f
    np.testing.assert_array_equal(operation(a, b, target=SIMULATOR), operation.reference(a, b))


class TestLayout:
    @pytest.mark.parametrize("along_side", [False, True])
    @pytest.mark.parametrize(("side", "step", "warps"), [(64, 64, 4), (128, 64, 8), (256, 128, 8), (192, 64, 0)])
    def test_every_element_has_a_place_and_texts_name_it(
        self, side: int, step: int, warps: int, along_side: bool
    ) -> None:
        plan = plan_of(TEXTS["nn"][0], None, DEVICE, M=256, N=256, K=256)
        order = (1, 0) if along_side else (0, 1)
        copy = replace(plan.copies[0], shape=(side, step), order=order, swizzle=Swizzle(0, 1, warps))
        assert copy.swizzle is not None
        places = np.array(
            [[copy.swizzle.place(s, k, copy.shape, along_side, 2) for k in range(step)] for s in range(side)]
        )
        assert (np.sort(places.ravel()) == np.arange(side * step)).all()
        for s, k in ((0, 0), (9, 17), (side - 1, step - 1), (side // 2 + 11, 40)):
            straight = Ranges({}).simplify(straight_place(copy, Number(s), Number(k)))
            assert isinstance(straight, Number)
            assert straight.value ^ (straight.value >> 6 & 7) << 3 == places[s, k]

    def test_rows_of_a_warp_lie_one_group_behind_the_other(self) -> None:
        """Row 16 w + 8 h + g of an instruction is row 8 (W h + w) + g of its 16 W rows of a tile."""
        swizzle = Swizzle(0, 1, 8)
        for block, warp, half, row in ((0, 0, 0, 0), (0, 3, 1, 5), (1, 6, 0, 7), (1, 7, 1, 2)):
            position = 128 * block + 8 * (8 * half + warp) + row
            assert swizzle.stands_for(position) == 128 * block + 16 * warp + 8 * half + row


class TestPlan:
    @pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_89", "cuda:sm_100", "cuda:sm_120"])
    def test_other_architectures_multiply_by_warps(self, target: str) -> None:
        plan = plan_of(TEXTS["nn"][0], None, target, M=256, N=256, K=256)
        assert {o.atom for o in plan.operations.values() if o.atom} == {"mma.m16n8k16.f16"}

    @pytest.mark.parametrize(
        ("sizes", "options"),
        [
            ({"M": 64, "N": 48, "K": 128}, None),
            ({"M": 48, "N": 64, "K": 128}, None),
            ({"M": 64, "N": 64, "K": 48}, None),
            ({"M": 64, "N": 64, "K": 64}, tc.MappingOptions(tile_sizes=(32, 64))),
            ({"M": 64, "N": 64, "K": 64}, tc.MappingOptions(threads=(4, 8))),
        ],
        ids=str,
    )
    def test_small_tiles_are_multiplied_by_warps(
        self, sizes: dict[str, int], options: tc.MappingOptions | None
    ) -> None:
        plan = plan_of(TEXTS["nn"][0], options, DEVICE, **sizes)
        assert {o.atom for o in plan.operations.values() if o.atom} == {"mma.m16n8k16.f16"}

    def test_large_ones_have_four_stages(self) -> None:
        plan = plan_of(TEXTS["nn"][0], tc.MappingOptions(route="async"), DEVICE, M=1024, N=1024, K=1024)
        (mark,) = multiplied(plan)
        assert plan.operations[mark].atom == "wgmma.m64k16.f16"
        assert list(plan.pipelines.values()) == [Pipeline(4, 2, 1)]
        assert [c.swizzle for c in plan.copies] == [Swizzle(0, 1, 8), Swizzle(1, 0)]

    @pytest.mark.parametrize(
        "pipeline", [Pipeline(4, 3, 1), Pipeline(4, 2, 2), Pipeline(3, 2, 1), Pipeline(2, 1, 1), Pipeline(4, 0, 1)]
    )
    def test_stages_whose_products_are_under_way_are_not_filled(self, pipeline: Pipeline) -> None:
        plan = plan_of(TEXTS["nn"][0], WHOLE, DEVICE, M=256, N=256, K=512)
        prove_barriers(plan, "test")
        with pytest.raises(LegalityError, match="tiles ahead, where one is still in use"):
            prove_barriers(replace(plan, pipelines=dict.fromkeys(plan.pipelines, pipeline)), "test")

    def test_only_warpgroups_leave_products_under_way(self) -> None:
        plan = plan_of(TEXTS["nn"][0], WHOLE, "cuda:sm_100", M=256, N=256, K=512)
        with pytest.raises(LegalityError, match="products under way at phase0_1, which no warpgroup makes"):
            prove_barriers(replace(plan, pipelines=dict.fromkeys(plan.pipelines, Pipeline(4, 2, 1))), "test")

    @pytest.mark.parametrize("side", [0, 1])
    @pytest.mark.parametrize(
        "change",
        [
            lambda c: replace(c, swizzle=None),
            lambda c: replace(c, swizzle=replace(c.swizzle, warps=4)),
            lambda c: replace(c, swizzle=replace(c.swizzle, warps=12 - c.swizzle.warps)),
            lambda c: replace(c, swizzle=replace(c.swizzle, side=c.swizzle.step, step=c.swizzle.side)),
            lambda c: replace(c, swizzle=replace(c.swizzle, side=5)),
            lambda c: replace(c, swizzle=replace(c.swizzle, step=c.swizzle.side)),
            lambda c: replace(c, padding=8),
            lambda c: replace(c, order=(0, 0)),
            lambda c: replace(c, shape=tuple(e // 2 for e in c.shape)),
            lambda c: replace(c, shape=tuple(e + 8 for e in c.shape)),
            lambda c: replace(c, step=2),
        ],
        ids=["none", "4 warps", "others", "swapped", "no side", "one", "padding", "order", "half", "more", "apart"],
    )
    def test_copies_that_lie_otherwise_are_refused(self, side: int, change: object) -> None:
        plan = plan_of(TEXTS["nn"][0], WHOLE, DEVICE, M=256, N=256, K=512)
        assert callable(change)
        changed: Copy = change(plan.copies[side])
        copies = tuple(changed if n == side else c for n, c in enumerate(plan.copies))
        with pytest.raises(LegalityError):
            prove_memories(replace(plan, copies=copies), "test")

    def test_swizzles_are_for_warpgroups_alone(self) -> None:
        for target in ("cuda:sm_100", "cuda:sm_75"):
            plan: Plan = plan_of(TEXTS["nn"][0], None, target, M=256, N=256, K=512)
            copies = tuple(replace(c, padding=0, swizzle=Swizzle(0, 1)) for c in plan.copies)
            with pytest.raises(LegalityError):
                prove_memories(replace(plan, copies=copies), "test")

    def test_a_plan_is_written_and_read(self) -> None:
        f, sizes = tc.define(TEXTS["nn"][0]).f, {"M": 192, "N": 256, "K": 512}
        made = f.compile(sizes=sizes, target=DEVICE, options=WHOLE)
        text = made.stages["barriers"]
        assert "swizzle = { side = 0, step = 1, warps = " in text and "flight = 1" in text
        again = f.compile(sizes=sizes, target=DEVICE, options=WHOLE, plan=text)
        assert again.source == made.source
        with pytest.raises(PlanError, match="which sm_100 has not"):
            f.compile(sizes=sizes, target="cuda:sm_100", options=WHOLE, plan=text)


def _compilation(name: str, **sizes: int) -> Compilation:
    return compiled(define(TEXTS[name][0])["f"], sizes, WHOLE, architecture="sm_90a")


_FAULTS = [
    ("tc_proxy_fence();", "", FindingKind.UNFENCED_MEMORY),
    ("tc_wgmma_fence(C_acc);", "", FindingKind.UNFENCED_REGISTERS),
    ("  tc_wgmma_wait<0>(C_acc);", "", FindingKind.REGISTERS_IN_FLIGHT),
    ("tc_wgmma_wait<1>(C_acc);", "tc_wgmma_wait<2>(C_acc);", FindingKind.RACE),
    ("tc_wgmma_commit();", "", FindingKind.REGISTERS_IN_FLIGHT),
    ("next_stage = 2;", "next_stage = 3;", FindingKind.UNINITIALISED),
    ("next_stage + 1 == 4", "next_stage + 1 == 3", FindingKind.RACE),
    ("tc_copy_async_wait<1>();", "tc_copy_async_wait<2>();", FindingKind.UNINITIALISED),
    ("    __syncthreads();", "", FindingKind.RACE),
    ("tc_swizzled(const int place) { return place ^ ((place >> 6 & 7) << 3); }",
     "tc_swizzled(const int place) { return place; }", None),
    ("4096 * (thread / 128)", "2048 * (thread / 128)", None),
    ("128, 1024), ", "128, 2048), ", None),
    ("<0, 1>(C_acc", "<0, 0>(C_acc", None),
    ("(C_acc[0], C_acc[1]", "(C_acc[1], C_acc[0]", None),
]  # fmt: skip
"""What is changed in a text, and what is found: None where the results differ."""


@NEEDS_COMPILER
@pytest.mark.parametrize("fault", _FAULTS, ids=lambda f: f"{f[0][:40]} {f[1][:20]}")
def test_faults_in_texts_are_found(fault: tuple[str, str, FindingKind | None]) -> None:
    old, new, kind = fault
    compilation = _compilation("nn", M=128, N=64, K=512)
    source: Source = compilation.source
    assert source.text.count(old) == 1, source.text.count(old)
    data = data_for(Text(TEXTS["nn"][0], {"M": 128, "N": 64, "K": 512}), compilation)
    report, results = run(replace(source, text=source.text.replace(old, new)), data, Settings(seed=1))
    found = {f.kind for f in report.findings}
    assert kind in found if kind else any((results[n] != e).any() for n, e in data.expected.items()), str(report)


@NEEDS_COMPILER
def test_findings_are_errors_with_words() -> None:
    compilation = _compilation("nn", M=128, N=64, K=128)
    data = data_for(Text(TEXTS["nn"][0], {"M": 128, "N": 64, "K": 128}), compilation)
    text = compilation.source.text.replace("tc_proxy_fence();", "")
    report, _ = run(replace(compilation.source, text=text), data)
    assert "read of shared memory without a fence of its proxy" in str(SimulationError(report))


_FOLLOWED = """def f(float16(M,K) A, float16(K,N) B, float16(N) c) -> ({dtype}(M,N) D) {{
    P(m,n) +=! A(m,k) * B(k,n)
    D(m,n) = {value} }}"""


class TestMachineCode:
    @pytest.mark.parametrize("name", ["nn", "nt", "tn"])
    def test_a_tile_of_4096(self, name: str) -> None:
        source = _compilation(name, M=4096, N=4096, K=4096).source
        ((kernel, loops),) = loops_of(source, "sm_90a").items()
        loop = busiest_loop(loops, "HGMMA")
        assert kernel == "f_0" and loop.count("HGMMA") == 4 and loop.count("LDGSTS") == 12 and loop.count("BAR") == 1
        assert loop.total <= 140
        image = compile_image(source, "sm_90a")
        assert image.kernels[0].spill_stores == 0 and image.kernels[0].registers <= 168
        assert "C75" not in image.log

    @pytest.mark.parametrize(
        ("dtype", "value"),
        [
            ("float16", "P(m,n)"),
            ("float16", "float16(fmax(P(m,n) + c(n), 0))"),
            ("float", "float(P(m,n)) * 2"),
            ("float16", "P(m,n) * P(m,n)"),
            ("float16", "float16(tanh(float(P(m,n))))"),
            ("bfloat16", "bfloat16(float(P(m,n)))"),
        ],
    )
    def test_products_run_while_threads_go_on(self, dtype: str, value: str) -> None:
        """Where sums are used too early, ptxas makes threads wait for each product, and says so."""
        text = _FOLLOWED.format(dtype=dtype, value=value)
        source = compiled(define(text)["f"], {"M": 1024, "N": 1024, "K": 1024}, architecture="sm_90a").source
        loops_of(source, "sm_90a")
        image = compile_image(source, "sm_90a")
        assert "HGMMA" not in image.log and not re.search(r"C75\d\d", image.log), image.log
        assert all(kernel.spill_stores == 0 for kernel in image.kernels)

    @pytest.mark.parametrize(
        ("target", "warpgroups"), [("cuda:sm_90", True), ("cuda:sm_90", False), (DEVICE, True)], ids=str
    )
    def test_code_of_one_generation_is_compiled_and_exported_for_its_text_alone(
        self, target: str, warpgroups: bool, tmp_path: Path
    ) -> None:
        options = replace(WHOLE, warpgroups=warpgroups)
        kernel = tc.define(TEXTS["nn"][0]).f.compile(
            sizes={"M": 128, "N": 128, "K": 128}, target=target, options=options
        )
        source = kernel.compilation.source
        loops_of(source, target.removeprefix("cuda:"))
        assert compile_image(source, "sm_90").architecture == ("sm_90a" if warpgroups else "sm_90")
        kernel.export(tmp_path / "f")
        readme = (tmp_path / "f" / "README.md").read_text()
        assert ("Newer devices compile the PTX" in readme) != warpgroups
        names = {re.sub(r".*_sm_", "", file.stem) for file in (tmp_path / "f").rglob("*.cubin")}
        assert "90" in names and "90a" not in names and ("80" in names) != warpgroups
