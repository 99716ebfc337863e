"""Products by warpgroups that a warp of its own feeds by tensor copies: results, faults, proofs, machine code, maps."""

from __future__ import annotations

import ctypes
import functools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.cuda import tensormaps
from tcomp.backends.cuda.tools import sass
from tcomp.backends.cuda.tools.images import compile_image
from tcomp.backends.simulator.report import FindingKind
from tcomp.backends.simulator.simulation import Settings
from tcomp.backends.source import TensorMap
from tcomp.driver import Compilation
from tcomp.errors import LegalityError, PlanError, TargetError
from tcomp.grammar import define
from tcomp.mapping.plan.values import BARRIERS, TENSOR, Pipeline, Plan
from tcomp.mapping.proof.legality import prove_complete
from tcomp.runtime.specialisation import _decode, _encode
from tcomp.values.operators import DTYPES
from tests.cuda.compiled import compiled, data_for, run
from tests.cuda.feedings import wrong_feedings
from tests.cuda.machine_code import busiest_loop, loops_of
from tests.cuda.simulated import NEEDS_COMPILER
from tests.cuda.test_matrices import TEXTS, arrays_for
from tests.cuda.test_thread_proof import refused
from tests.cuda.texts import Text

SIMULATOR, DEVICE = "simulator:sm_90a", "cuda:sm_90a"
FED = tc.MappingOptions(split_reduction=1, route="tensor")


def _compilation(name: str, options: tc.MappingOptions = FED, **sizes: int) -> Compilation:
    return compiled(define(TEXTS[name][0])["f"], sizes, options, architecture="sm_90a")


@NEEDS_COMPILER
@pytest.mark.parametrize(
    ("name", "sizes", "options"),
    [
        ("nn", (130, 72, 200), FED),
        ("nt", (300, 136, 520), FED),
        ("batches", (130, 72, 200), FED),
        ("with what follows", (128, 128, 192), FED),
        ("nn", (300, 264, 256), replace(FED, blocks=(1, 1), tile_sizes=(128, 128))),
        ("nn", (136, 72, 256), replace(FED, stages=2)),
        ("nt", (264, 136, 256), replace(FED, tile_sizes=(256, 64), threads=(4, 32), reduction_tile=128)),
        ("nn", (72, 136, 512), replace(FED, split_reduction=2)),
    ],
    ids=str,
)
def test_results_are_those_of_the_interpreter(
    name: str, sizes: tuple[int, int, int], options: tc.MappingOptions
) -> None:
    text, shapes = TEXTS[name]
    operation, arrays = tc.define(text).f, arrays_for(shapes(*sizes))
    assert "tc_tensor_copy" in operation.compile(*arrays, target=SIMULATOR, options=options).source
    np.testing.assert_array_equal(operation(*arrays, target=SIMULATOR, options=options), operation.reference(*arrays))


@NEEDS_COMPILER
def test_arrays_that_begin_elsewhere_are_fetched_by_threads() -> None:
    a, b = (x.reshape(-1)[1:].reshape(64, 128) for x in arrays_for([(64 * 128 + 1, 1), (64 * 128 + 1, 1)]))
    operation = tc.define(TEXTS["nt"][0]).f
    np.testing.assert_array_equal(operation(a, b, target=SIMULATOR, options=FED), operation.reference(a, b))


@pytest.mark.parametrize(
    ("name", "sizes", "target"),
    [("tn", (128, 128, 128), "sm_90a"), ("nn", (128, 128, 100), "sm_90a"), ("nn", (128, 128, 128), "sm_100")],
)
def test_what_no_tensor_copy_brings_threads_fetch(name: str, sizes: tuple[int, int, int], target: str) -> None:
    """Rows that neighbours of lie together and are in groups, rows of 200 bytes, other generations."""
    sized = dict(zip("MNK", sizes, strict=True))
    made = compiled(define(TEXTS[name][0])["f"], sized, FED, architecture=target)
    assert not made.source.launches[0].maps and made.source.otherwise is None
    assert all(not c.route for c in made.plan.copies) and made.plan.pipelines


class TestPlan:
    def test_it_is_chosen_where_there_are_tiles_enough(self) -> None:
        for steps, given, fed in ((512, None, True), (448, None, False), (512, "async", False), (128, "tensor", True)):
            options = tc.MappingOptions(split_reduction=1, route=given)
            plan = _compilation("nn", options, M=256, N=256, K=steps).plan
            assert {p.kind == BARRIERS for p in plan.pipelines.values()} == {fed}

    def test_it_is_written_and_read(self) -> None:
        f, sizes = tc.define(TEXTS["nn"][0]).f, {"M": 192, "N": 256, "K": 512}
        made = f.compile(sizes=sizes, target=DEVICE, options=FED)
        text = made.stages["barriers"]
        assert text.count('route = "tensor"') == 2 and 'kind = "barriers"' in text and "[[barrier]]" not in text
        assert f.compile(sizes=sizes, target=DEVICE, options=FED, plan=text).source == made.source
        with pytest.raises(PlanError, match="kind is barriers, or left out"):
            f.compile(sizes=sizes, target=DEVICE, plan=text.replace('kind = "barriers"', 'kind = "barrier"'))
        with pytest.raises(LegalityError, match="fills every stage that is empty: 2"):
            f.compile(sizes=sizes, target=DEVICE, plan=text.replace("distance = 2", "distance = 3"))

    def test_each_fact_has_words(self) -> None:
        plan = _compilation("nn", M=256, N=256, K=512).plan
        ((mark, pipeline),) = plan.pipelines.items()
        assert pipeline == Pipeline(4, 2, 1, BARRIERS) and {c.route for c in plan.copies} == {TENSOR}
        for changed, words in (
            (replace(plan, pipelines={mark: replace(pipeline, flight=2, distance=1)}), "none is ever given back"),
            (replace(plan, pipelines={mark: replace(pipeline, kind="")}), "or without"),
            (replace(plan, barriers={mark: "block"}), "stays away"),
        ):
            with pytest.raises(LegalityError, match=words):
                prove_complete(changed, "test")


@functools.cache
def _plans() -> tuple[Plan, ...]:
    by_threads = replace(FED, route="async")
    sizes = {"nn": {"M": 256, "N": 256, "K": 512}, "nt": {"M": 264, "N": 128, "K": 320}}
    return tuple(_compilation(n, o, **s).plan for n, s in sizes.items() for o in (FED, by_threads))


def _refused(plan: Plan) -> Counter[str]:
    """How many changes of a plan are refused, by kind; there are no others."""
    count = Counter[str]()
    for mutant in wrong_feedings(plan):
        assert refused(mutant.plan), str(mutant)
        count[mutant.kind] += 1
    return count


def test_wrong_pipelines_and_deals_are_refused() -> None:
    assert set(_refused(_plans()[0])) == {"pipeline", "barrier", "copy", "deal"}


@pytest.mark.exhaustive
def test_all_wrong_pipelines_and_deals_are_refused() -> None:
    count = sum((_refused(plan) for plan in _plans()), Counter[str]())
    assert count.total() >= 220, count


_FAULTS = [
    ("tc_barrier_wait(&full[stage], parity);", "", FindingKind.UNINITIALISED),
    ("tc_barrier_wait(&empty[stage], parity);", "", FindingKind.RACE),
    ("tc_barriers_visible();", "", FindingKind.UNFENCED_MEMORY),
    ("tc_barrier_init(&empty[stage], 4);", "tc_barrier_init(&empty[stage], 5);", FindingKind.DEADLOCK),
    ("tc_barrier_expect(&full[stage], 24576);", "tc_barrier_expect(&full[stage], 24640);", FindingKind.DEADLOCK),
    ("tc_wgmma_wait<1>(C_acc);", "tc_wgmma_wait<2>(C_acc);", FindingKind.RACE),
    ("box < 8;", "box < 7;", FindingKind.DEADLOCK),
    ("int stage = 0, parity = 1;", "int stage = 0, parity = 0;", FindingKind.DEADLOCK),
    ("64 * k_tile, 8 * box", "64 * k_tile, 8 * box + 8", None),
    ("1024 * (box % 4) + 512 * (8 * box / 32)", "512 * box", None),
]  # fmt: skip
"""What is changed in a text, and what is found: None where the results differ."""


@NEEDS_COMPILER
@pytest.mark.parametrize("fault", _FAULTS, ids=lambda f: f"{f[0][:40]} {f[1][:20]}")
def test_faults_in_texts_are_found(fault: tuple[str, str, FindingKind | None]) -> None:
    old, new, kind = fault
    sizes = {"M": 64, "N": 128, "K": 448}
    compilation = _compilation("nn", **sizes)
    source = compilation.source
    assert source.text.count(old) == 1, source.text[source.text.index("extern") :]
    data = data_for(Text(TEXTS["nn"][0], sizes), compilation)
    report, results = run(replace(source, text=source.text.replace(old, new)), data, Settings(seed=1))
    found = {f.kind for f in report.findings}
    assert kind in found if kind else any((results[n] != e).any() for n, e in data.expected.items()), str(report)


_FOLLOWED = """def f(float16(M,K) A, float16(K,N) B, float16(N) c, float16(M,N) R) -> (float16(M,N) D) {
    P(m,n) +=! A(m,k) * B(k,n)
    D(m,n) = float16(float(R(m,n)) + tanh(float(P(m,n)) + float(c(n)))) }"""


@pytest.mark.parametrize(("text", "panels"), [(_FOLLOWED, 4), (TEXTS["nt"][0], 1)], ids=["followed", "nt"])
def test_machine_code_of_a_tile_of_4096(text: str, panels: int) -> None:
    """One thread asks: of 82 instructions for a tile 4 multiply, none copies, and nobody meets.

    Of 128 results of a thread pairs are exchanged, and eight stored at a time.
    """
    source = compiled(define(text)["f"], {"M": 4096, "N": 4096, "K": 4096}, FED, architecture="sm_90").source
    ((_, loops),) = loops_of(source, "sm_90a").items()
    loop = busiest_loop(loops, "HGMMA")
    assert loop.count("HGMMA") == 4 and loop.count("LDGSTS", "BAR") == 0 and loop.count("SYNCS") == 2
    assert loop.total <= 90
    image = compile_image(source, "sm_90a")
    code = sass.disassemble(image)
    assert code.count("STG.E") == code.count("STG.E.128") == 16 and code.count("SHFL.BFLY") == 64
    assert code.count("UTMALDG.2D") == 16 + panels and code.count("USETMAXREG") == 2
    assert image.kernels[0].spill_stores == 0 and image.kernels[0].registers == 168 and "C75" not in image.log


def test_what_is_kept_is_what_was_made() -> None:
    """Maps, and the kernel for devices without them, are in the cache, too."""
    source = _compilation("nn", M=128, N=128, K=256).source
    assert source.otherwise is not None and source.launches[0].maps
    assert _decode(_encode(source)) == source


class TestMaps:
    OWN = TensorMap("A", DTYPES["float16"], (512, 256), (1, 512), (64, 8))

    def test_they_are_made_once_for_an_address(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[int] = []

        def encode(own: TensorMap, address: int) -> bytes:
            made.append(address)
            return address.to_bytes(8, "little") * 16

        monkeypatch.setattr(tensormaps, "encode", encode)
        maps = tensormaps.Maps([(1, self.OWN), (0, self.OWN)])
        memory, start = maps.room()
        written = [0, 0]
        for values in ([16, 32], [16, 32], [48, 32], [16, 32]):
            maps.fill(start, values, written)
        assert made == [32, 16, 48] and written == [32, 16] and start % tensormaps.MAP_ALIGNMENT == 0
        assert bytes(memory)[start - _address_of(memory) :][:8] == (32).to_bytes(8, "little")

    def test_a_refusal_names_the_other_route(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tensormaps, "_function", lambda: lambda *_: 1)
        with pytest.raises(TargetError, match="makes no map of A: cuTensorMapEncodeTiled gave error 1"):
            tensormaps.encode(self.OWN, 16)


def _address_of(memory: object) -> int:
    return ctypes.addressof(memory)  # type: ignore[arg-type]
