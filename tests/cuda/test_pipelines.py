"""Loops over tiles of steps whose operands arrive asynchronously, several tiles ahead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tcomp as tc
from tcomp.errors import LegalityError, PlanError
from tcomp.mapping.gpu import barriers as gpubarriers
from tcomp.mapping.gpu.barriers import COPIED
from tcomp.mapping.gpu.pipelines import AHEAD
from tcomp.mapping.plan.values import Pipeline, Plan
from tcomp.mapping.proof import fetches as gpufetches
from tcomp.mapping.proof.threads import prove_barriers
from tests.cuda.machine_code import busiest_loop, loops_of
from tests.cuda.simulated import NEEDS_COMPILER
from tests.cuda.test_prefetch import BATCHES, CONVOLUTION, HALVES, MM, NT, integers

pytestmark = pytest.mark.sweep(2)


def plan_of(text: str, options: tc.MappingOptions | None = None, target: str = "cuda:sm_90", **sizes: int) -> Plan:
    (name,) = module = tc.define(text)
    return module[name].compile(sizes=sizes, target=target, options=options).compilation.plan


def source(text: str, options: tc.MappingOptions | None = None, target: str = "cuda:sm_90", **sizes: int) -> str:
    (name,) = module = tc.define(text)
    return module[name].compile(sizes=sizes, target=target, options=options).source


@NEEDS_COMPILER
@pytest.mark.parametrize("stages", [None, 2, 4])
@pytest.mark.parametrize(
    ("text", "shapes", "dtype"),
    [
        (MM, [(70, 50), (50, 68)], "float32"),
        (MM, [(64, 128), (128, 64)], "float64"),
        (NT, [(33, 97), (40, 97)], "float32"),
        (BATCHES, [(3, 20, 37), (3, 37, 24)], "float32"),
        (CONVOLUTION, [(9, 14, 13), (8, 9, 3, 3)], "float32"),
        (HALVES, [(48, 40), (40, 64)], "float16"),
    ],
    ids=["mm", "doubles", "nt", "batches", "convolution", "halves"],
)
def test_results_are_those_of_the_interpreter(
    text: str, shapes: list[tuple[int, ...]], dtype: str, stages: int | None
) -> None:
    (name,) = module = tc.define(text.replace("float(", "double(") if dtype == "float64" else text)
    arrays = [integers(*shape, dtype=dtype) for shape in shapes]
    options = tc.MappingOptions(reduction_tile=8, tile_sizes=(32, 32), stages=stages)
    ahead = "tc_ask" in module[name].compile(*arrays, target="simulator", options=options).source
    assert ahead or text in (CONVOLUTION, HALVES), "a band of three loops, elements of two bytes"
    found = module[name](*arrays, target="simulator", options=options)
    np.testing.assert_array_equal(found, module[name].reference(*arrays))


@NEEDS_COMPILER
@pytest.mark.parametrize("steps", [1, 8, 9, 16, 17, 24, 40])
def test_there_may_be_fewer_tiles_than_stages(steps: int) -> None:
    a, b = integers(33, steps), integers(steps, 36)
    options = tc.MappingOptions(reduction_tile=8, tile_sizes=(32, 32), stages=4)
    np.testing.assert_array_equal(tc.define(MM).mm(a, b, target="simulator", options=options), a @ b)


@NEEDS_COMPILER
def test_parts_of_a_reduction_and_blocks_with_several_tiles() -> None:
    a, b = integers(70, 131), integers(131, 66)
    options = tc.MappingOptions(
        reduction_tile=8, tile_sizes=(32, 32), split_reduction=3, blocks=(2, 1), max_shared_memory=200_000
    )
    np.testing.assert_array_equal(tc.define(MM).mm(a, b, target="simulator", options=options), a @ b)


@NEEDS_COMPILER
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_arrays_may_begin_anywhere(dtype: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, 64 * 64 + 1).astype(dtype)[1:].reshape(64, 64) for _ in range(2))
    mm = tc.define(HALVES if dtype == "float16" else MM).mm
    options = tc.MappingOptions(tile_sizes=(32, 32), reduction_tile=16)
    np.testing.assert_array_equal(mm(a, b, target="simulator", options=options), mm.reference(a, b))


class TestPlan:
    def test_copies_run_ahead_where_the_device_makes_them(self) -> None:
        plan = plan_of(MM, M=512, N=512, K=512)
        assert list(plan.pipelines.values()) == [Pipeline(3, 2)]
        (mark,) = plan.pipelines
        assert mark not in plan.barriers and plan.barriers[mark + COPIED] == "block"

    @pytest.mark.parametrize(
        ("options", "target"),
        [
            (tc.MappingOptions(stages=1), "cuda:sm_90"),
            (tc.MappingOptions(prefetch=False), "cuda:sm_90"),
            (tc.MappingOptions(max_shared_memory=9000), "cuda:sm_90"),
            (None, "cuda:sm_75"),
        ],
        ids=["one stage", "no prefetch", "no room", "sm_75"],
    )
    def test_elsewhere_they_do_not(self, options: tc.MappingOptions | None, target: str) -> None:
        assert not plan_of(MM, options, target, M=512, N=512, K=512).pipelines
        assert "tc_ask" not in source(MM, options, target, M=512, N=512, K=512)

    def test_elements_of_two_bytes_that_are_no_whole_vectors_do_not(self) -> None:
        assert not plan_of(HALVES, M=64, N=63, K=256).pipelines

    def test_one_tile_alone_is_no_loop(self) -> None:
        assert not plan_of(MM, tc.MappingOptions(reduction_tile=64), M=128, N=128, K=64).pipelines

    def test_a_loop_that_begins_again_waits_in_front(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """No pass of tcomp puts such a loop into another one, but plans by hand may."""
        for room in (gpubarriers, gpufetches):
            monkeypatch.setattr(room, "begins_again", lambda *_: True)
        monkeypatch.setenv("TCOMP_CACHE", "0")
        plan = plan_of(MM, M=512, N=512, K=512)
        (mark,) = plan.pipelines
        assert plan.barriers[mark + AHEAD] == "block"
        rest = {place: level for place, level in plan.barriers.items() if place != mark + AHEAD}
        with pytest.raises(LegalityError, match="while it is being read"):
            prove_barriers(replace(plan, barriers=rest), "test")
        text = source(MM, M=512, N=512, K=512).partition('extern "C"')[2]
        assert text.index("__syncthreads();") < text.index("// the first tiles") < text.index("tc_copy_async_wait")

    def test_a_place_in_use_is_not_filled(self) -> None:
        plan = plan_of(MM, M=512, N=512, K=512)
        (mark,) = plan.pipelines
        with pytest.raises(LegalityError, match="asks for B at phase0_1 3 tiles ahead, where one is still in use"):
            prove_barriers(replace(plan, pipelines={mark: Pipeline(3, 3)}), "test")

    def test_the_device_turns_no_vectors(self) -> None:
        plan = plan_of(MM, M=512, N=512, K=512)
        turned = tuple(replace(c, order=(1, 0)) if c.vector > 1 else c for c in plan.copies)
        assert turned != plan.copies
        with pytest.raises(LegalityError, match="cannot fetch B asynchronously"):
            prove_barriers(replace(plan, copies=turned), "test")

    def test_it_is_text(self) -> None:
        mm, sizes = tc.define(MM).mm, {"M": 256, "N": 256, "K": 256}
        options = tc.MappingOptions(tile_sizes=(64, 64), reduction_tile=16)

        def compiled(plan: str | None = None) -> tc.Kernel:
            return mm.compile(sizes=sizes, target="cuda:sm_90", options=options, plan=plan)

        kernel = compiled()
        text = kernel.stages["barriers"]
        assert '[[pipeline]]\nphase = "phase0_1"\nstages = 3\ndistance = 2' in text
        assert compiled(text).source == kernel.source
        assert "_tile[2][" in compiled(text.replace("stages = 3\ndistance = 2", "stages = 2\ndistance = 1")).source
        with pytest.raises(PlanError, match="no copies for a pipeline at phase0_0"):
            compiled(text.replace('[[pipeline]]\nphase = "phase0_1"', '[[pipeline]]\nphase = "phase0_0"'))
        with pytest.raises(PlanError, match="distance must be 1 or more"):
            compiled(text.replace("distance = 2", "distance = 0"))


class TestDevices:
    """What a device lacks is told in the words of the plan."""

    @staticmethod
    def given(text: str, plan: str, target: str, **sizes: int) -> None:
        (name,) = module = tc.define(text)
        module[name].compile(sizes=sizes, target=target, plan=plan)

    def test_no_asynchronous_copies(self) -> None:
        sizes = {"M": 512, "N": 512, "K": 512}
        plan = tc.define(MM).mm.compile(sizes=sizes, target="cuda:sm_90").stages["barriers"]
        with pytest.raises(PlanError, match="the pipeline at phase0_1 has 3 stages, but sm_75 has no asynchronous"):
            self.given(MM, plan, "cuda:sm_75", **sizes)

    def test_no_matrices_of_halves(self) -> None:
        text, sizes = MM.replace("float(", "half("), {"M": 256, "N": 256, "K": 256}
        options = tc.MappingOptions(stages=1)
        plan = tc.define(text).mm.compile(sizes=sizes, target="cuda:sm_80", options=options).stages["barriers"]
        with pytest.raises(PlanError, match=r"multiplies by mma.m16n8k16.f16, which sm_75 has not"):
            self.given(text, plan, "cuda:sm_75", **sizes)

    def test_too_little_shared_memory(self) -> None:
        sizes = {"M": 512, "N": 512, "K": 512}
        options = tc.MappingOptions(tile_sizes=(128, 128), max_shared_memory=200_000, stages=8, split_reduction=1)
        plan = tc.define(MM).mm.compile(sizes=sizes, target="cuda:sm_90", options=options).stages["barriers"]
        with pytest.raises(
            PlanError, match=r"group 0 takes \d+ bytes of shared memory, but a block of sm_86 has 101376"
        ):
            self.given(MM, plan, "cuda:sm_86", **sizes)


class TestMachineCode:
    """What the design asks of the loop of a large product, without a device."""

    @pytest.mark.parametrize(("side", "share"), [(4096, 0.9), (777, 0.875)])
    def test_a_tile_has_one_barrier_and_no_stores_to_shared_memory(self, side: int, share: float) -> None:
        options = tc.MappingOptions(reduction_tile=8)
        kernel = tc.define(MM).mm.compile(sizes={"M": side, "N": side, "K": side}, target="cuda:sm_90", options=options)
        loop = busiest_loop(loops_of(kernel.compilation.source)["mm_0"], "FFMA")
        assert loop.count("BAR") == 1 and loop.count("STS") == loop.count("LDG") == 0
        assert loop.count("LDGSTS") > 0 and loop.share("FFMA") > share
        assert loop.count("STL", "LDL") == 0
