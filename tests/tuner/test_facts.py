from __future__ import annotations

import math
import random
from itertools import product

import pytest

import tcomp as tc
from tcomp.driver import Compilation, lower
from tcomp.grammar import define
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.kernel import Kernel
from tcomp.runtime.registry import backend_of
from tcomp.runtime.specialisation import Specialisation
from tcomp.tuner.model.cpufacts import CpuFacts
from tcomp.tuner.model.description import describe
from tcomp.tuner.model.features import ESTIMATE, facts_of
from tcomp.tuner.space.outline import Band, heaviest, outline, tiles_of_bands, unfused
from tcomp.tuner.space.space import space_of
from tests.programs import PROGRAMS
from tests.targets import CPU

MM = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
CONV = "def f(float(C,W) I, float(F,C,KW) K) -> (O) { O(f,w) +=! I(c,2*w+kw) * K(f,c,kw) }"
SOFTMAX = """def f(float(N,D) X) -> (Y) {
  m(n) max=! X(n,d)   e(n,d) = exp(X(n,d) - m(n))   s(n) +=! e(n,d)   Y(n,d) = e(n,d) / s(n)
}"""
GPU = "cuda:sm_80"
LARGE = {"M": 256, "N": 256, "K": 256}


def compiled(text: str, target: str = "cpu", options: MappingOptions | None = None, **sizes: int) -> Compilation:
    return lower(define(text)["f"], Sizes(sizes), options or MappingOptions(), backend_of(target))


def bands(text: str, **sizes: int) -> tuple[Band, ...]:
    return outline(unfused(compiled(text, **sizes)))


def cycles(text: str, options: MappingOptions, **sizes: int) -> float:
    made = lower(define(text)["f"], Sizes(sizes), MappingOptions(), CPU)
    facts = CpuFacts(outline(unfused(made)), tiles_of_bands(made), CPU.machine)
    return 2.0 ** facts(options)[ESTIMATE]


class TestOutline:
    def test_a_matrix_product(self) -> None:
        (band,) = bands(MM, M=40, N=64, K=9)
        assert band.extents == (40, 64) and (band.row, band.vector) == (0, 1)
        assert band.steps == 9 and band.flops == 18 and band.contraction and band.shared_vectors
        assert {a.tensor: a.vector_stride for a in band.accesses} == {"C": 1, "A": 0, "B": 1}

    def test_a_tile_touches_what_its_instances_touch(self) -> None:
        (band,) = bands(CONV, C=3, W=41, F=5, KW=4)
        subscripts = {
            "O": lambda f, w, c, k: (f, w),
            "I": lambda f, w, c, k: (c, 2 * w + k),
            "K": lambda f, w, c, k: (f, c, k),
        }
        for tile in ((1, 1), (2, 5), (5, 19), band.extents):
            for access in band.accesses:
                touched = {subscripts[access.tensor](*i) for i in product(*map(range, (*tile, 3, 4)))}
                boxes = math.prod(len(set(dimension)) for dimension in zip(*touched, strict=True))
                hull = math.prod(max(d) - min(d) + 1 for d in zip(*touched, strict=True))
                assert 4 * boxes <= access.bytes(tile) == 4 * hull <= access.line_bytes(tile)

    def test_runs_of_neighbours_begin_with_a_line_and_join_where_dimensions_are_whole(self) -> None:
        (band,) = bands(MM, M=40, N=64, K=9)
        found = {a.tensor: a for a in band.accesses}
        assert {name: a.line_bytes((2, 17)) for name, a in found.items()} == {"C": 256, "A": 128, "B": 9 * 128}
        assert found["C"].runs((2, 17)) == (2, 4 * 17, False)
        assert found["C"].runs((2, 64)) == (1, 4 * 2 * 64, True)
        assert found["C"].runs((1, 17)) == (1, 4 * 17, True)
        assert found["A"].runs((2, 17)) == (1, 4 * 2 * 9, True)

    def test_a_subscript_that_is_not_affine_touches_an_element_for_each_instance(self) -> None:
        text = "def f(float(E,D) T, int32(B,L) I) -> (O) { O(b,d) +=! T(I(b,l),d) }"
        (band,) = bands(text, E=1000, D=8, B=20, L=5)
        table = next(a for a in band.accesses if a.tensor == "T")
        assert table.bytes((3, 2)) == 4 * 3 * 5 * 2 and table.bytes(band.extents) == 4 * 20 * 5 * 8

    def test_the_heaviest_band_has_the_reduction(self) -> None:
        text = f"{MM[:-2]} D(m) +=! C(m,n) * B(0,n) }}".replace("(C)", "(D)")
        found = bands(text, M=16, N=32, K=64)
        assert heaviest(found) == max(found, key=lambda b: b.instances) and heaviest(()) is None


class TestCpu:
    @pytest.mark.parametrize(
        ("better", "worse"),
        [
            ({}, {"tile_sizes": (1, 1)}),
            ({}, {"tile_sizes": (64, 2)}),
            ({"register_tile": (8, 48)}, {"register_tile": (14, 128)}),
            ({"register_tile": (8, 48)}, {"register_tile": (1, 16)}),
            ({"tile_sizes": (128, 128)}, {"tile_sizes": (4, 128)}),
            ({"tile_sizes": (64, 64), "parallel": True}, {"tile_sizes": (64, 64), "parallel": False}),
            ({"tile_sizes": (128, 256), "parallel": True}, {"tile_sizes": (0, 0), "parallel": True}),
        ],
    )
    def test_it_knows_better_from_worse(self, better: dict[str, object], worse: dict[str, object]) -> None:
        first, second = (cycles(MM, MappingOptions(**o), **LARGE) for o in (better, worse))  # type: ignore[arg-type]
        assert 1.3 * first < second

    def test_what_a_fused_tile_has_read_is_near(self) -> None:
        """Two passes over each row, which should stay in a cache meanwhile."""
        text = "def f(float(N,D) X) -> (Y) { s(n) +=! X(n,d)   Y(n,d) = X(n,d) - s(n) }"
        near, far = (cycles(text, MappingOptions(tile_sizes=(rows, 0)), N=8192, D=2048) for rows in (4, 4096))
        assert 1.1 * near < far

    def test_the_default_is_not_hopeless(self) -> None:
        for text, sizes in (
            (MM, LARGE),
            (SOFTMAX, {"N": 512, "D": 512}),
            (CONV, {"C": 32, "W": 260, "F": 32, "KW": 3}),
        ):
            made = compiled(text, **sizes)
            facts, rng = facts_of(made, "cpu"), random.Random(1)
            space = space_of(made, MappingOptions(), "cpu")
            best = min(facts(space.drawn(rng))[ESTIMATE] for _ in range(300))
            assert facts(MappingOptions())[ESTIMATE] < best + 1


class TestGpu:
    @pytest.mark.parametrize(
        ("better", "worse"),
        [
            ({}, {"tile_sizes": (1, 1)}),
            ({}, {"use_shared_memory": False}),
            ({"tile_sizes": (64, 64)}, {"tile_sizes": (64, 64), "use_private_memory": False}),
            ({"tile_sizes": (64, 64), "threads": (16, 16)}, {"tile_sizes": (64, 64), "threads": (1, 2)}),
            ({"tile_sizes": (64, 64)}, {"tile_sizes": (512, 512)}),
        ],
    )
    def test_it_knows_better_from_worse(self, better: dict[str, object], worse: dict[str, object]) -> None:
        facts = facts_of(compiled(MM, GPU, M=1024, N=1024, K=1024), GPU)
        first, second = (facts(MappingOptions(**options))[ESTIMATE] for options in (better, worse))  # type: ignore[arg-type]
        assert first + 0.3 < second

    def test_neighbouring_threads_should_read_neighbours(self) -> None:
        text = "def f(float(N,D) X) -> (Y) { Y(n,d) = X(n,d) + 1 }"
        facts = facts_of(compiled(text, GPU, N=4096, D=4096), GPU)
        options = MappingOptions(tile_sizes=(64, 64), threads=(32, 8))
        across = MappingOptions(tile_sizes=(64, 64), threads=(1, 64))
        assert facts(options)["sectors"] + 2 < facts(across)["sectors"]
        assert facts(options)[ESTIMATE] < facts(across)[ESTIMATE]


class TestDescription:
    @pytest.mark.parametrize("target", ["cpu", GPU])
    def test_all_candidates_have_the_same_facts_in_numbers(self, target: str) -> None:
        made = compiled(SOFTMAX, target, N=64, D=64)
        space, rng = space_of(made, MappingOptions(), target), random.Random(2)
        facts = facts_of(made, target)
        rows = [facts(space.drawn(rng)) for _ in range(20)]
        assert {tuple(row) for row in rows} == {tuple(rows[0])}
        assert all(math.isfinite(value) for row in rows for value in row.values())

    def test_a_kernel_tells_more_than_was_known_before(self) -> None:
        function = define(SOFTMAX)["f"]
        found = []
        for options in (MappingOptions(), MappingOptions(fusion_strategy="min")):
            kernel = Kernel(Specialisation(function, Sizes({"N": 64, "D": 64}), options, "cpu", False))
            before = facts_of(kernel.compilation, "cpu")(options)
            found.append(dict(describe(kernel)))
            assert before.items() <= found[-1].items() and len(found[-1]) > len(before)
        assert found[0]["groups"] < found[1]["groups"] and list(found[0]) == list(found[1])


@pytest.mark.parametrize("target", ["cpu", GPU])
def test_every_program_has_a_space_and_facts(target: str) -> None:
    found = {name: tc.define(text)["f"].compile(*inputs).specialisation for name, (text, inputs, _) in PROGRAMS.items()}
    empty, scalar = "def f(float(N) A) -> (B) { B(n) = A(n) }", "def f(float A, float B) -> (C) { C = A + B }"
    found["empty"] = tc.define(empty)["f"].compile(sizes={"N": 0}).specialisation
    found["scalar"] = tc.define(scalar)["f"].compile(sizes={}).specialisation
    for name, made in found.items():
        compilation = lower(made.function, made.sizes, MappingOptions(), backend_of(target))
        space, rng = space_of(compilation, MappingOptions(), target), random.Random(name)
        facts = facts_of(compilation, target)
        candidates = [space.base, *(space.drawn(rng) for _ in range(8)), *space.neighbours(space.base)]
        rows = [facts(options) for options in candidates]
        assert {tuple(row) for row in rows} == {tuple(rows[0])}, name
        assert all(math.isfinite(value) for row in rows for value in row.values()), name
