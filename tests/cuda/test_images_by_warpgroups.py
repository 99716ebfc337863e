"""Convolutions by warpgroups (sm_90a): a device brings pixels of a tile, one tap at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.cuda.tools.images import compile_image
from tcomp.backends.simulator.report import FindingKind
from tcomp.backends.simulator.simulation import Settings
from tcomp.grammar import define
from tcomp.mapping.gpu.matrices.deals import deals_of_rows, follow_each_other, warps_of_rows
from tcomp.mapping.plan.deals import Deal
from tcomp.mapping.plan.layouts import Swizzle
from tcomp.mapping.plan.values import Plan
from tests.cuda.compiled import compiled, data_for, run
from tests.cuda.feedings import wrong_feedings
from tests.cuda.machine_code import busiest_loop, loops_of
from tests.cuda.simulated import NEEDS_COMPILER
from tests.cuda.test_matrices_of_images import TEXTS, arrays_of
from tests.cuda.test_thread_proof import refused
from tests.cuda.texts import Text

pytestmark = pytest.mark.sweep(3)

SIMULATOR, DEVICE = "simulator:sm_90", "cuda:sm_90"
WHOLE = tc.MappingOptions(split_reduction=1)
SIZES = {"N": 1, "H": 16, "W": 16, "C": 64, "F": 64}


def plan_of(name: str, options: tc.MappingOptions = WHOLE, **sizes: int) -> Plan:
    return tc.define(TEXTS[name]).f.compile(sizes=sizes or SIZES, target=DEVICE, options=options).compilation.plan


def atoms(plan: Plan) -> set[str]:
    return {o.atom for o in plan.operations.values() if o.atom}


@NEEDS_COMPILER
@pytest.mark.parametrize(
    ("name", "shapes", "tile"),
    [
        ("channels last", [(1, 19, 21, 64), (3, 3, 64, 64)], (16, 8, 64)),
        ("channels last", [(2, 17, 13, 136), (3, 3, 136, 72)], (1, 8, 8, 64)),
        ("channels last", [(1, 11, 20, 64), (3, 3, 64, 64)], (8, 16, 64)),
        ("channels last", [(1, 20, 40, 64), (3, 3, 64, 128)], None),
        ("taps last", [(2, 24, 24, 64), (64, 64, 3, 3)], (1, 16, 8, 64)),
        ("rows of two indices", [(13, 16, 200), (200, 64)], (8, 8, 64)),
    ],
)
def test_results_are_those_of_the_interpreter(
    name: str, shapes: list[tuple[int, ...]], tile: tuple[int, ...] | None
) -> None:
    operation, arrays = arrays_of(TEXTS[name], *shapes)
    options = replace(WHOLE, tile_sizes=tile, route="tensor")
    source = operation.compile(*arrays, target=SIMULATOR, options=options).source
    assert "tc_wgmma_f16_n" in source and "tc_tensor_copy" in source
    found = operation(*arrays, target=SIMULATOR, options=options)
    np.testing.assert_array_equal(found, operation.reference(*arrays))


@NEEDS_COMPILER
def test_threads_fetch_from_arrays_that_begin_elsewhere() -> None:
    operation, (image, taps) = arrays_of(TEXTS["channels last"], (1, 9, 12, 64), (3, 3, 64, 64))
    room = np.zeros(image.size + 1, np.float16)
    room[1:] = image.ravel()
    moved = room[1:].reshape(image.shape)
    options = replace(WHOLE, route="tensor")
    found = operation(moved, taps, target=SIMULATOR, options=options)
    np.testing.assert_array_equal(found, operation.reference(image, taps))


@pytest.mark.parametrize(
    ("extents", "deals"),
    [
        ((16, 8), (Deal(16, 8, 1, 0), Deal(8, 8, 1, 1))),
        ((1, 8, 16), (Deal(1, 1, 1, None), Deal(8, 4, 1, 0), Deal(16, 16, 1, 1))),
        ((2, 64), (Deal(2, 1, 2, None), Deal(64, 64, 1, 0))),
        ((16, 12), None),
        ((2, 8, 8), None),
        ((15, 8), None),
    ],
)
def test_groups_of_eight_pixels_belong_to_warps_in_turn(
    extents: tuple[int, ...], deals: tuple[Deal, ...] | None
) -> None:
    found = deals_of_rows(extents, tc.MappingOptions(), True)
    assert found == deals
    if found is not None:
        assert follow_each_other(found) and warps_of_rows(found) % 4 == 0
        assert not follow_each_other((*found[:-1], replace(found[-1], threads=found[-1].threads // 2)))


class TestPlan:
    def test_pixels_of_several_lines_are_rows_of_a_copy(self) -> None:
        plan = plan_of("channels last")
        (own,) = (c for c in plan.copies if c.storage == "I")
        assert atoms(plan) == {"wgmma.m64k16.f16"} and own.route == "tensor" and own.swizzle is not None
        assert own.swizzle == Swizzle(2, 3, own.swizzle.warps, (1,))
        lines, pixels = own.shape[1:3]
        rows = [own.swizzle.place(r, c, own.shape, False, 2) for r in range(lines * pixels) for c in range(64)]
        assert sorted(rows) == list(range(64 * lines * pixels))

    @pytest.mark.parametrize(
        ("name", "sizes", "options"),
        [
            ("every other pixel", {"N": 1, "H": 33, "W": 33, "C": 64, "F": 64}, WHOLE),
            ("channels first", SIZES, WHOLE),
            ("channels last", SIZES | {"C": 48}, WHOLE),
            ("channels last", SIZES | {"C": 68}, WHOLE),
            ("channels last", SIZES, replace(WHOLE, route="async")),
            ("channels last", SIZES, replace(WHOLE, warpgroups=False)),
        ],
        ids=["every other pixel", "channels first", "few channels", "rows of 136 bytes", "threads", "warps"],
    )
    def test_others_are_multiplied_by_warps(self, name: str, sizes: dict[str, int], options: tc.MappingOptions) -> None:
        assert all(not atom.startswith("wgmma") for atom in atoms(plan_of(name, options, **sizes)))

    def test_it_is_written_and_read(self) -> None:
        f = tc.define(TEXTS["channels last"]).f
        made = f.compile(sizes=SIZES, target=DEVICE, options=WHOLE)
        text = made.stages["barriers"]
        assert "around = [1]" in text
        assert f.compile(sizes=SIZES, target=DEVICE, options=WHOLE, plan=text).source == made.source

    def test_wrong_pipelines_copies_and_deals_are_refused(self) -> None:
        plan = plan_of("channels last", replace(WHOLE, tile_sizes=(16, 8, 64)))
        assert not refused(plan)
        mutants = [m for m in wrong_feedings(plan) if m.kind != "deal"]
        assert len(mutants) > 30
        for mutant in mutants:
            assert refused(mutant.plan), str(mutant)
        for number, copy in enumerate(plan.copies):
            for around in (
                (0,),
                (0, 1),
                (1, 0),
                (2,),
                (3,),
                (7,),
                () if copy.swizzle and copy.swizzle.around else (1,),
            ):
                assert copy.swizzle is not None
                wrong = replace(copy, swizzle=replace(copy.swizzle, around=around))
                copies = tuple(wrong if n == number else c for n, c in enumerate(plan.copies))
                assert refused(replace(plan, copies=copies)), str(around)
        ((cluster, dealt),) = plan.dealt.items()
        for n, deal in enumerate(dealt.deals):
            for wrong_deal in (replace(deal, threads=2 * deal.threads), replace(deal, vector=3 - min(2, deal.vector))):
                changed = replace(dealt, deals=tuple(wrong_deal if k == n else d for k, d in enumerate(dealt.deals)))
                if wrong_deal != deal and deal.dimension is not None:
                    assert refused(replace(plan, dealt={cluster: changed})), str(wrong_deal)


_FAULTS = [
    ("tc_barrier_wait(&full[stage], parity);", "", FindingKind.UNINITIALISED),
    ("tc_barrier_wait(&empty[stage], parity);", "", FindingKind.RACE),
    ("tc_wgmma_wait<1>(O_acc);", "tc_wgmma_wait<2>(O_acc);", FindingKind.RACE),
    ("tc_wgmma_wait<0>(O_acc);", "", FindingKind.REGISTERS_IN_FLIGHT),
    ("line < 16;", "line < 15;", FindingKind.DEADLOCK),
    ("1024 * (line % 8)", "512 * (line % 8)", None),
    ("kh + 16 * b_h + line - 1", "kh + 16 * b_h + line", None),
    ("O_acc[0], O_acc[1]", "O_acc[1], O_acc[0]", None),
]
"""What is changed in a text, and what is found: None where the results differ."""


@NEEDS_COMPILER
@pytest.mark.parametrize("fault", _FAULTS, ids=lambda f: f"{f[0][:40]} {f[1][:20]}")
def test_faults_in_texts_are_found(fault: tuple[str, str, FindingKind | None]) -> None:
    old, new, kind = fault
    sizes = SIZES | {"H": 20}
    options = replace(WHOLE, tile_sizes=(16, 8, 64), route="tensor")
    compilation = compiled(define(TEXTS["channels last"])["f"], sizes, options, architecture="sm_90a")
    source = compilation.source
    assert source.text.count(old) == 1, source.text[source.text.index("extern") :]
    data = data_for(Text(TEXTS["channels last"], sizes), compilation)
    report, results = run(replace(source, text=source.text.replace(old, new)), data, Settings(seed=1))
    found = {f.kind for f in report.findings}
    assert kind in found if kind else any((results[n] != e).any() for n, e in data.expected.items()), str(report)


@pytest.mark.parametrize(
    ("sizes", "products", "most"),
    [
        ({"N": 16, "H": 56, "W": 56, "C": 64, "F": 64}, 4, 90),
        ({"N": 8, "H": 64, "W": 64, "C": 320, "F": 320}, 8, 125),
        ({"N": 16, "H": 14, "W": 14, "C": 256, "F": 256}, 4, 90),
    ],
    ids=str,
)
def test_machine_code(sizes: dict[str, int], products: int, most: int) -> None:
    """Threads that multiply do nothing else: nobody copies but the device."""
    source = compiled(define(TEXTS["channels last"])["f"], sizes, None, architecture="sm_90").source
    loop = max(
        (busiest_loop(loops, "HGMMA") for loops in loops_of(source, "sm_90").values() if loops),
        key=lambda own: own.count("HGMMA"),
    )
    image = compile_image(source, "sm_90")
    tiles = loop.count("WARPGROUP.ARRIVE")  # of few channels the loop over taps is unrolled
    assert loop.count("HGMMA") == products * tiles and loop.count("LDGSTS", "BAR", "HMMA", "LDSM") == 0
    assert loop.total <= most * tiles, loop
    assert all(k.spill_stores == 0 for k in image.kernels) and "C75" not in image.log
