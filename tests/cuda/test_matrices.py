"""Products of 16-bit floats by instructions that multiply matrices: results, plans, proofs, machine code."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.simulator.simulation import Settings
from tcomp.errors import LegalityError, PlanError
from tcomp.mapping.gpu.matrices.deals import warps_of
from tcomp.mapping.gpu.matrices.products import product_at
from tcomp.mapping.machines.atoms import BY_NAME
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.proof.threads import prove_memories
from tcomp.model.tolerance import Model, error_bounds
from tests.agreement import assert_agrees
from tests.cuda.compiled import compiled_text, data_for, run
from tests.cuda.machine_code import busiest_loop, loops_of
from tests.cuda.simulated import NEEDS_COMPILER
from tests.cuda.texts import Text

pytestmark = pytest.mark.sweep(4)

SIMULATOR = "simulator:sm_80"
"""What multiplies halves by single warps; `test_warpgroups.py` has those of sm_90."""

Shapes = Callable[[int, int, int], list[tuple[int, ...]]]

TEXTS: dict[str, tuple[str, Shapes]] = {
    "nn": (
        "def f(float16(M,K) A, float16(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
        lambda m, n, k: [(m, k), (k, n)],
    ),
    "nt": (
        "def f(float16(M,K) A, float16(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }",
        lambda m, n, k: [(m, k), (n, k)],
    ),
    "tn": (
        "def f(float16(K,M) A, float16(K,N) B) -> (C) { C(m,n) +=! A(k,m) * B(k,n) }",
        lambda m, n, k: [(k, m), (k, n)],
    ),
    "turned result": (
        "def f(float16(K,M) A, float16(N,K) B) -> (C) { C(n,m) +=! A(k,m) * B(n,k) }",
        lambda m, n, k: [(k, m), (n, k)],
    ),
    "batches": (
        "def f(float16(B,M,K) A, float16(B,K,N) X) -> (C) { C(b,m,n) +=! A(b,m,k) * X(b,k,n) }",
        lambda m, n, k: [(2, m, k), (2, k, n)],
    ),
    "with what follows": (
        """def f(float16(M,K) A, float16(K,N) B, float(N) c) -> (float(M,N) D) {
            P(m,n) +=! A(m,k) * B(k,n)
            D(m,n) = fmax(P(m,n) + c(n), 0) }""",
        lambda m, n, k: [(m, k), (k, n), (n,)],
    ),
    "one tensor": (
        "def f(float16(M,K) A) -> (C) { C(m,n) +=! A(m,k) * A(n,k) }",
        lambda m, n, k: [(m + n, k)],
    ),
    "rows of an image": (
        """def f(float16(H,W,C) I, float16(3,3,C,F) K) -> (O) {
            O(h,w,f) +=! I(h+kh,w+kw,c) * K(kh,kw,c,f) }""",
        lambda m, n, k: [(4, m + 2, k), (3, 3, k, n)],
    ),
}
SIZES = [(64, 64, 64), (70, 50, 48), (33, 47, 50), (130, 72, 100)]
"""Rows, columns, steps: whole tiles, whole vectors, odd ones."""


def arrays_for(shapes: list[tuple[int, ...]], brain: bool = False) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    half = pytest.importorskip("ml_dtypes").bfloat16 if brain else np.float16
    return [rng.integers(-2, 3, s).astype(np.float32 if len(s) == 1 else half) for s in shapes]


def plan_of(text: str, options: tc.MappingOptions | None = None, target: str = "cuda:sm_80", **sizes: int) -> Plan:
    return tc.define(text).f.compile(sizes=sizes, target=target, options=options).compilation.plan


def multiplied(plan: Plan) -> list[str]:
    return [mark for mark, operation in plan.operations.items() if operation.kind == "contract"]


@NEEDS_COMPILER
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", TEXTS)
def test_results_are_those_of_the_interpreter(name: str, sizes: tuple[int, int, int]) -> None:
    text, shapes = TEXTS[name]
    operation, arrays = tc.define(text).f, arrays_for(shapes(*sizes))
    assert "tc_mma_f16" in operation.compile(*arrays, target=SIMULATOR).source
    np.testing.assert_array_equal(operation(*arrays, target=SIMULATOR), operation.reference(*arrays))


@NEEDS_COMPILER
@pytest.mark.parametrize("name", ["nn", "nt"])
def test_bfloat16(name: str) -> None:
    text, shapes = TEXTS[name]
    operation = tc.define(text.replace("float16", "bfloat16")).f
    arrays = arrays_for(shapes(48, 80, 64), brain=True)
    assert "tc_mma_bf16" in operation.compile(*arrays, target=SIMULATOR).source
    found, expected = (
        np.asarray(x, np.float32) for x in (operation(*arrays, target=SIMULATOR), operation.reference(*arrays))
    )
    np.testing.assert_array_equal(found, expected)


@NEEDS_COMPILER
@pytest.mark.parametrize("sizes", [(64, 64, 64), (70, 50, 50)], ids=str)
@pytest.mark.parametrize(
    ("dtype", "name"), [("int8", "nt"), ("uint8", "nt"), ("float64", "nn"), ("float64", "nt"), ("float64", "tn")]
)
def test_bytes_and_doubles(dtype: str, name: str, sizes: tuple[int, int, int]) -> None:
    text, shapes = TEXTS[name]
    operation, rng = (
        tc.define(text.replace("float16", "double" if dtype == "float64" else dtype)).f,
        np.random.default_rng(0),
    )
    arrays = [rng.integers(0 if dtype == "uint8" else -100, 100, s).astype(dtype) for s in shapes(*sizes)]
    assert "tc_mma" in operation.compile(*arrays, target=SIMULATOR).source
    np.testing.assert_array_equal(operation(*arrays, target=SIMULATOR), operation.reference(*arrays))


class TestFloatsOf8Bits:
    """Instructions keep 14 bits of their sums, so these leave after each tile; sm_89 has them first."""

    @NEEDS_COMPILER
    @pytest.mark.parametrize("sizes", [(64, 64, 64), (70, 50, 96)], ids=str)
    @pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
    def test_products(self, kind: str, sizes: tuple[int, int, int]) -> None:
        """All of them are small integers, so no bit is lost."""
        dtype = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}[kind]
        operation = tc.define(TEXTS["nt"][0].replace("float16", dtype).replace("-> (C)", "-> (float(M,N) C)")).f
        storage, rng = getattr(pytest.importorskip("ml_dtypes"), dtype), np.random.default_rng(0)
        arrays = [rng.integers(-4, 5, s).astype(storage) for s in TEXTS["nt"][1](*sizes)]
        assert f"tc_mma_{kind}" in operation.compile(*arrays, target="simulator:sm_89").source
        assert "tc_mma" not in operation.compile(*arrays, target=SIMULATOR).source
        np.testing.assert_array_equal(operation(*arrays, target="simulator:sm_89"), operation.reference(*arrays))

    @NEEDS_COMPILER
    def test_sums_leave_after_each_tile(self) -> None:
        """In one instruction after another 14 bits of a sum of 1,024 terms would be left: 2^-10 would be lost."""
        text = TEXTS["nt"][0].replace("float16", "float8_e4m3fn").replace("-> (C)", "-> (float(M,N) C)")
        storage, rng = pytest.importorskip("ml_dtypes").float8_e4m3fn, np.random.default_rng(0)
        a, b = (rng.random((64, 1024)).astype(storage) for _ in range(2))
        found = tc.define(text).f(a, b, target="simulator:sm_89", options=tc.MappingOptions(split_reduction=1))
        exact = a.astype(np.float64) @ b.astype(np.float64).T
        assert_agrees(tc.define(text).f.function, {"A": a, "B": b}, {"C": found}, matrix_units=True)
        assert 2.0**-14 < (np.abs(found - exact) / exact).max() < 2.0**-12

    @pytest.mark.parametrize(
        ("architecture", "instruction"), [("sm_89", "QMMA.16832.F32.E4M3.E4M3"), ("sm_90", "HMMA")]
    )
    def test_machine_code(self, architecture: str, instruction: str) -> None:
        """On Hopper these instructions are those of halves; only warpgroups have others."""
        text, sizes = TEXTS["nt"][0].replace("float16", "float8_e4m3fn"), {"M": 2048, "N": 2048, "K": 2048}
        options = tc.MappingOptions(warpgroups=False)
        kernel = tc.define(text).f.compile(sizes=sizes, target=f"cuda:{architecture}", options=options)
        loop = busiest_loop(loops_of(kernel.compilation.source, architecture)["f_0"], instruction)
        assert loop.count(instruction) >= 32 and loop.count("STL", "LDL", "FFMA", "LDG") == 0


class TestMath:
    """Floats are multiplied one by one unless a user asks for less: with operands of 11 bits, or sums of two such."""

    @staticmethod
    def error(name: str, math: str, data: list[np.ndarray[Any, Any]]) -> float:
        """The largest error, in units of 2^-24 of the largest result; it is in its bound."""
        operation = tc.define(TEXTS[name][0].replace("float16", "float")).f
        found = operation(*data, target=SIMULATOR, options=tc.MappingOptions(math=math))
        inputs = dict(zip((t.name for t in operation.function.inputs), data, strict=True))
        (tolerance,) = error_bounds(
            operation.function, inputs, model=Model.RANDOM_ORDER, matrix_units=True, math=math
        ).values()
        assert tolerance.shares(found).max() <= 1
        return float(tolerance.differences(found).max() / np.abs(tolerance.reference).max() * 2**24)

    @NEEDS_COMPILER
    @pytest.mark.parametrize("name", ["nn", "nt", "tn"])
    @pytest.mark.parametrize("sizes", [(48, 80, 96), (70, 50, 50)], ids=str)
    def test_errors(self, name: str, sizes: tuple[int, int, int]) -> None:
        rng = np.random.default_rng(0)
        data = [rng.standard_normal(s).astype(np.float32) for s in TEXTS[name][1](*sizes)]
        exact, three, one = (self.error(name, math, data) for math in ("exact", "tf32x3", "tf32"))
        assert exact < 10 and three < 10 and 500 < one < 20_000

    @NEEDS_COMPILER
    def test_what_is_left_of_floats_is_not_lost(self) -> None:
        """1 + 2^-12 times itself is 1 + 2^-11 + 2^-24: operands of 11 bits would leave 1."""
        a = np.full((64, 64), 1 + 2.0**-12, np.float32)
        mm, eye = tc.define(TEXTS["nn"][0].replace("float16", "float")).f, np.eye(64, dtype=np.float32)
        three = mm(a, eye, target=SIMULATOR, options=tc.MappingOptions(math="tf32x3"))
        one = mm(a, eye, target=SIMULATOR, options=tc.MappingOptions(math="tf32"))
        assert (three == a).all() and (one == 1).all()

    def test_it_is_asked_for(self) -> None:
        text = TEXTS["nn"][0].replace("float16", "float")
        assert not multiplied(plan_of(text, M=128, N=128, K=128))
        for math in ("tf32", "tf32x3"):
            plan = plan_of(text, tc.MappingOptions(math=math), M=128, N=128, K=128)
            assert [o.atom for o in plan.operations.values() if o.kind == "contract"] == [f"mma.m16n8k8.{math}"]


@NEEDS_COMPILER
@pytest.mark.parametrize(
    "options",
    [
        tc.MappingOptions(stages=1),
        tc.MappingOptions(prefetch=False),
        tc.MappingOptions(split_reduction=2),
        tc.MappingOptions(tile_sizes=(48, 32)),
        tc.MappingOptions(tile_sizes=(32, 16), threads=(4, 8)),
        tc.MappingOptions(blocks=(1, 1)),
        tc.MappingOptions(matrix_units=False),
    ],
    ids=lambda o: o.to_text(),
)
def test_every_option_gives_the_same(options: tc.MappingOptions) -> None:
    operation, arrays = tc.define(TEXTS["nn"][0]).f, arrays_for([(100, 128), (128, 64)])
    source = operation.compile(*arrays, target=SIMULATOR, options=options).source
    assert ("tc_mma" in source) == options.matrix_units
    np.testing.assert_array_equal(operation(*arrays, target=SIMULATOR, options=options), operation.reference(*arrays))


@NEEDS_COMPILER
def test_arrays_may_begin_anywhere() -> None:
    a, b = (x.reshape(-1)[1:].reshape(64, 64) for x in arrays_for([(64 * 64 + 1, 1), (64 * 64 + 1, 1)]))
    operation = tc.define(TEXTS["nn"][0]).f
    np.testing.assert_array_equal(operation(a, b, target=SIMULATOR), operation.reference(a, b))


@NEEDS_COMPILER
def test_sums_stay_in_their_bounds_and_are_cut_off() -> None:
    text = "def f(float16(M,K) A, float16(K,N) B) -> (float(M,N) C) { C(m,n) +=! A(m,k) * B(k,n) }"
    operation, rng = tc.define(text).f, np.random.default_rng(0)
    a, b = rng.random((64, 1024)).astype(np.float16), rng.random((1024, 64)).astype(np.float16)
    found = operation(a, b, target=SIMULATOR, options=tc.MappingOptions(split_reduction=1))
    assert_agrees(operation.function, {"A": a, "B": b}, {"C": found}, matrix_units=True)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert (found <= exact).all() and (found < exact).mean() > 0.9


@NEEDS_COMPILER
def test_lanes_that_fetch_fragments_meet_in_no_bank() -> None:
    """Rows of four chunks, five apart, meet once when they arrive: that is one access for each four that read them."""
    options = tc.MappingOptions(warpgroups=False)
    compilation = compiled_text(Text(TEXTS["nn"][0], {"M": 128, "N": 128, "K": 128}), options)
    report, _ = run(
        compilation.source,
        data_for(Text(TEXTS["nn"][0], {"M": 128, "N": 128, "K": 128}), compilation),
        Settings(counting=True),
    )
    assert not report.findings, str(report)
    (kernel,) = report.kernels
    fragments = list(kernel.select("shared", "read"))
    assert fragments and all(a.wavefronts == a.ideal_wavefronts and a.bytes_per_lane == 16 for a in fragments)
    assert all(a.wavefronts <= 2 * a.ideal_wavefronts for a in kernel.select("shared"))


class TestPlan:
    @pytest.mark.parametrize(
        ("text", "target"),
        [
            (TEXTS["nn"][0], "cuda:sm_75"),
            (TEXTS["nn"][0].replace("float16", "float"), "cuda:sm_90"),
            (TEXTS["nn"][0].replace("float16", "double"), "cuda:sm_89"),
            (TEXTS["nn"][0].replace("float16", "int8"), "cuda:sm_90"),
            (
                TEXTS["nn"][0].replace("float16(K,N)", "bfloat16(K,N)").replace("-> (C)", "-> (float(M,N) C)"),
                "cuda:sm_90",
            ),
            (TEXTS["nn"][0].replace("+=!", "max=!"), "cuda:sm_90"),
            (TEXTS["nn"][0].replace("A(m,k) *", "A(m,2*k) *"), "cuda:sm_90"),
            (TEXTS["nn"][0].replace("}", "where k in 0:m+1 }"), "cuda:sm_90"),
        ],
        ids=[
            "sm_75",
            "floats",
            "doubles",
            "bytes to be turned",
            "two types",
            "maxima",
            "every other",
            "triangle",
        ],
    )
    def test_others_are_multiplied_one_by_one(self, text: str, target: str) -> None:
        assert not multiplied(plan_of(text, None, target, M=128, N=128, K=256))

    def test_the_proof_sees_results_in_other_lanes_and_rows_cut_short(self) -> None:
        plan = plan_of(TEXTS["nn"][0], M=128, N=128, K=128)
        (mark,) = multiplied(plan)
        phase, own = plan.phases[mark], [c for c in plan.copies if c.mark == mark]
        assert product_at(plan, phase, own, BY_NAME[plan.operations[mark].atom]) is not None
        shorter = tuple(replace(c, padding=c.padding + 1) for c in plan.copies)
        cluster = plan.dealt[phase.cluster]
        elsewhere = {phase.cluster: replace(cluster, deals=tuple(replace(d, vector=1) for d in cluster.deals))}
        for wrong in (replace(plan, copies=shorter), replace(plan, dealt={**plan.dealt, **elsewhere})):
            with pytest.raises(LegalityError, match="multiplies matrices at phase0_1, whose lanes do not hold them"):
                prove_memories(wrong, "test")

    def test_parts_of_a_reduction_are_as_fast_instructions_want_them(self) -> None:
        halves, floats = (plan_of(TEXTS["nn"][0].replace("float16", t), M=512, N=512, K=512) for t in ("half", "float"))
        parts = [p.scop.storages["C_acc0_parts"].box.extent[0] for p in (halves, floats)]
        assert 1 < parts[0] < parts[1]

    def test_groups_whose_clusters_are_dealt_otherwise_multiply_one_by_one(self) -> None:
        text = """def f(float16(M,K) A, float16(K,N) B) -> (float(M) R) {
            P(m,n) +=! A(m,k) * B(k,n)
            R(m) +=! float(P(m,n)) }"""
        plan = plan_of(text, M=512, N=64, K=64)
        shared = [g for g in plan.groups if len(g.clusters) > 1]
        assert all(len({plan.dealt[c].shape for c in g.clusters}) == 1 or not multiplied(plan) for g in shared)

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("[(64i0), (32i2)]", "[(11i0), (32i2)]"),
            ("[(64i0), (32i2)]", "[(64i0), (31i2)]"),
            ("(15 - (-1 - i0) mod 16)", "((-1 - i0) mod 16)"),
            ('lower = "{ [i0, i1] -> [(64i0), (0)] }"', 'lower = "{ [i0, i1] -> [(-32 + 64i0), (0)] }"'),
        ],
        ids=["another corner", "another step", "other threads", "other registers"],
    )
    def test_plans_that_the_text_would_misread_are_refused(self, old: str, new: str) -> None:
        f, sizes = tc.define(TEXTS["nn"][0]).f, {"M": 75, "N": 64, "K": 63}
        options = tc.MappingOptions(tile_sizes=(64, 64), stages=1)
        text = f.compile(sizes=sizes, target=SIMULATOR, options=options).stages["barriers"]
        changed = text.replace(old, new)
        assert changed != text
        if "registers" in new or "-32" in new:
            changed = changed.replace("shape = [4, 16]", "shape = [6, 16]")
        with pytest.raises((LegalityError, PlanError)):
            f.compile(sizes=sizes, target=SIMULATOR, options=options, plan=changed)

    @pytest.mark.parametrize(
        ("dtype", "product"),
        [
            ("float16", "float(int32(A(m,k))) * float(int32(B(n,k)))"),
            ("uint8", "int32(int8(A(m,k))) * int32(int8(B(n,k)))"),
            ("float16", "float(bfloat16(A(m,k))) * float(bfloat16(B(n,k)))"),
            ("double", "double(float(A(m,k))) * double(float(B(n,k)))"),
            ("float", "float(float16(A(m,k))) * float(float16(B(n,k)))"),
        ],
    )
    def test_conversions_that_change_values_are_no_operands(self, dtype: str, product: str) -> None:
        sums = {"uint8": "int32", "double": "double"}.get(dtype, "float")
        text = f"def f({dtype}(M,K) A, {dtype}(N,K) B) -> ({sums}(M,N) C) {{ C(m,n) +=! {product} }}"
        assert not multiplied(plan_of(text, tc.MappingOptions(math="tf32x3"), M=64, N=64, K=64))

    @pytest.mark.parametrize(("wanted", "steps"), [(None, 32), (16, 16), (64, 64), (100, 64), (1, 16)])
    def test_users_say_how_many_steps_a_tile_has(self, wanted: int | None, steps: int) -> None:
        options = tc.MappingOptions(reduction_tile=wanted, tile_sizes=(64, 64), split_reduction=1)
        plan = plan_of(TEXTS["nt"][0], options, M=512, N=512, K=512)
        assert {c.shape for c in plan.copies} == {(64, steps)} and multiplied(plan)

    def test_rows_begin_at_multiples_of_16_bytes(self) -> None:
        source = tc.define(TEXTS["nn"][0]).f.compile(sizes={"M": 127, "N": 127, "K": 127}, target="cuda:sm_80").source
        arrays = re.findall(r"__shared__ (.*)unsigned short \w+_tile", source)
        assert "tc_mma" in source and arrays and set(arrays) == {"__align__(16) "}

    def test_room_for_rows_is_within_the_budget(self) -> None:
        options = tc.MappingOptions(tile_sizes=(64, 64), max_shared_memory=9300, stages=1)
        assert sum(c.bytes for c in plan_of(TEXTS["nn"][0], options, M=512, N=512, K=512).copies) <= 9300

    def test_the_budget_is_that_of_a_block_not_of_all_kernels(self) -> None:
        texts = " ".join(f"C{n}(m,n) +=! A{n}(m,k) * B{n}(k,n)" for n in range(8))
        inputs = ", ".join(f"float16(M,K) A{n}, float16(K,N) B{n}" for n in range(8))
        text = f"def f({inputs}) -> ({', '.join(f'C{n}' for n in range(8))}) {{ {texts} }}"
        options = tc.MappingOptions(tile_sizes=(64, 64), split_reduction=1, max_shared_memory=20_000)
        assert len(multiplied(plan_of(text, options, M=128, N=128, K=128))) == 8

    def test_it_is_text(self) -> None:
        f, sizes = tc.define(TEXTS["nn"][0]).f, {"M": 128, "N": 128, "K": 128}
        kernel = f.compile(sizes=sizes, target="cuda:sm_80")
        text = kernel.stages["barriers"]
        assert 'kind = "contract"\nstatement = "S0"\natom = "mma.m16n8k16.f16"' in text
        assert f.compile(sizes=sizes, target="cuda:sm_80", plan=text).source == kernel.source

    @pytest.mark.parametrize(
        ("rows", "warps"), [(16, 1), (32, 2), (48, 1), (64, 2), (128, 4), (256, 8), (8, 0), (40, 0)]
    )
    def test_warps_have_two_atoms_of_rows_where_there_are_enough(self, rows: int, warps: int) -> None:
        assert warps_of(rows, tc.MappingOptions()) == warps


class TestNarrowRows:
    """Rows of halves that are no multiples of 16 bytes come asynchronously, by 8 or 4 bytes; odd ones do not."""

    @pytest.mark.parametrize(("k", "n", "vectors"), [(100, 92, (4, 4)), (98, 92, (2, 4)), (100, 90, (4, 2))])
    def test_vectors_are_as_long_as_rows_allow(self, k: int, n: int, vectors: tuple[int, int]) -> None:
        plan = plan_of(TEXTS["nn"][0], M=128, N=n, K=k)
        assert tuple(next(c.vector for c in plan.copies if c.storage == s) for s in "AB") == vectors
        assert bool(plan.pipelines)

    def test_odd_rows_do_not_come_ahead(self) -> None:
        assert not plan_of(TEXTS["nn"][0], M=128, N=92, K=99).pipelines

    def test_floats_come_two_by_two(self) -> None:
        plan = plan_of(TEXTS["nn"][0].replace("float16", "float"), M=778, N=778, K=778)
        assert {c.vector for c in plan.copies if c.storage == "B"} == {2}

    @NEEDS_COMPILER
    @pytest.mark.parametrize("moved", [0, 1])
    @pytest.mark.parametrize("name", ["nn", "nt", "tn"])
    @pytest.mark.parametrize("sizes", [(70, 50, 102), (66, 52, 100)], ids=str)
    def test_results_are_those_of_the_interpreter(self, name: str, sizes: tuple[int, int, int], moved: int) -> None:
        text, shapes = TEXTS[name]
        arrays = []
        for array in arrays_for(shapes(*sizes)):
            room = np.zeros(array.size + 1, array.dtype)
            room[moved:][: array.size] = array.ravel()
            arrays.append(room[moved:][: array.size].reshape(array.shape))
        operation = tc.define(text).f
        source = operation.compile(*arrays, target=SIMULATOR).source
        assert "tc_ask4" in source or "tc_ask8" in source
        np.testing.assert_array_equal(operation(*arrays, target=SIMULATOR), operation.reference(*arrays))

    def test_the_proof_refuses_narrow_vectors_that_threads_would_fetch(self) -> None:
        plan = plan_of(TEXTS["nn"][0], M=128, N=92, K=100)
        prove_memories(plan, "test")
        with pytest.raises(LegalityError, match=r"fetches vectors of . that are half outside"):
            prove_memories(replace(plan, pipelines={}), "test")

    def test_the_proof_refuses_vectors_longer_than_rows_allow(self) -> None:
        plan = plan_of(TEXTS["nn"][0], M=128, N=90, K=98)
        longer = tuple(replace(c, vector=4) for c in plan.copies)
        with pytest.raises(LegalityError, match=r"fetches vectors of . that are half outside"):
            prove_memories(replace(plan, copies=longer), "test")


class TestMachineCode:
    def test_doubles_before_sm_90(self) -> None:
        """Eight products of 8 rows and 4 steps for each of 16 rows and 16 steps."""
        text, counts = TEXTS["nn"][0].replace("float16", "double"), []
        for architecture in ("sm_80", "sm_90"):
            operation = tc.define(text).f
            options = tc.MappingOptions(tile_sizes=(64, 64))
            kernel = operation.compile(
                sizes={"M": 512, "N": 512, "K": 4096}, target=f"cuda:{architecture}", options=options
            )
            loops = [x for of in loops_of(kernel.compilation.source, architecture).values() for x in of]
            counts.append(max(sum(n for i, n in x.counts.items() if i.startswith("DMMA")) for x in loops))
            assert all(x.count("LDL", "STL", "DFMA") == 0 for x in loops)
        assert counts[0] == 8 * counts[1] > 0

    @pytest.mark.parametrize("name", ["nn", "nt"])
    def test_more_than_four_in_ten_instructions_multiply_matrices(self, name: str) -> None:
        sizes, options = {"M": 4096, "N": 4096, "K": 4096}, tc.MappingOptions(warpgroups=False)
        kernel = tc.define(TEXTS[name][0]).f.compile(sizes=sizes, target="cuda:sm_90", options=options)
        loop = busiest_loop(loops_of(kernel.compilation.source)["f_0"], "HMMA")
        assert loop.count("HMMA") == 64 and loop.total <= 150
        assert loop.count("LDSM") == 20 and loop.count("LDGSTS") == 8 and loop.count("BAR") == 1
        assert loop.count("STL", "LDL", "STS", "LDG") == 0

    @pytest.mark.parametrize(
        ("name", "dtype", "math", "device", "instruction"),
        [
            ("nt", "int8", "exact", "sm_80", "IMMA.16832.S8.S8"),
            ("nn", "double", "exact", "sm_90", "DMMA."),
            ("nt", "float", "tf32", "sm_90", "HMMA.1688.F32.TF32"),
            ("nn", "float", "tf32x3", "sm_90", "HMMA.1688.F32.TF32"),
        ],
    )
    def test_other_types(self, name: str, dtype: str, math: str, device: str, instruction: str) -> None:
        options = tc.MappingOptions(math=math)
        operation = tc.define(TEXTS[name][0].replace("float16", dtype)).f
        kernel = operation.compile(sizes={"M": 2048, "N": 2048, "K": 2048}, target=f"cuda:{device}", options=options)
        loop = max(loops_of(kernel.compilation.source)["f_0"], key=lambda loop: loop.counts[instruction])
        assert loop.counts[instruction] >= 16 and loop.count("STL", "LDL", "FFMA", "DFMA", "IDP") == 0
