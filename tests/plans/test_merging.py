"""Indices that run together through all that a contraction touches are one index."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import islpy as isl
import numpy as np
import pytest

import tcomp as tc
from tcomp.driver import Compilation, lower
from tcomp.grammar import define
from tcomp.mapping.fusion import merges
from tcomp.mapping.fusion.merges import Merge
from tcomp.mapping.fusion.merging import can_merge
from tcomp.mapping.fusion.unfolding import window_of
from tcomp.model.build import build
from tcomp.model.scop import Scop
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.registry import backend_of

pytestmark = pytest.mark.sweep(4)

Array = np.ndarray[Any, np.dtype[Any]]

SIZES = {"A": 3, "B": 5, "C": 4, "D": 7, "E": 2, "F": 6, "K": 8, "N": 9}
PRODUCT = "def f(float(A,B,K) X, float(K,N) Y) -> (Z) { Z(a,b,n) +=! X(a,b,k) * Y(k,n) }"
LOCAL = """def f(float(N,F,H,W) G, float(N,C,H+2,W+2) I) -> (K) {
  K(h,w,f,c,kh,kw) +=! G(n,f,h,w) * I(n,c,h+kh,w+kw) where kh in 0:3, kw in 0:3
}"""
CONVOLUTION = "def f(float(N,C,H,W) I, float(F,C,3,3) K) -> (O) { O(n,f,h,w) +=! I(n,c,h+kh,w+kw) * K(f,c,kh,kw) }"


def compiled(
    text: str, sizes: Mapping[str, int], plan: str | None = None, options: tc.MappingOptions | None = None
) -> Compilation:
    return lower(define(text)["f"], Sizes(sizes), options or tc.MappingOptions(), backend_of("cpu"), True, plan)


def modelled(text: str, sizes: Mapping[str, int], strides: Mapping[str, tuple[int, ...]] | None = None) -> Scop:
    return build(define(text)["f"], Sizes(sizes, strides or {}))


def integers(*shape: int) -> Array:
    return np.random.default_rng(list(shape)).integers(-4, 5, shape).astype(np.float32)


@pytest.mark.parametrize(
    ("arguments", "statements", "expected"),
    [
        ("float(A,B,K) X, float(K,N) Y", "Z(a,b,n) +=! X(a,b,k) * Y(k,n)", [("a", "b")]),
        ("float(A,K) X, float(K,N,B) Y", "Z(a,n,b) +=! X(a,k) * Y(k,n,b)", [("n", "b")]),
        ("float(A,K,C) X, float(K,C,N) Y", "Z(a,n) +=! X(a,k,c) * Y(k,c,n)", [("k", "c")]),
        ("float(A,B,N,K) X, float(A,B,K,D) Y", "Z(a,b,n,d) +=! X(a,b,n,k) * Y(a,b,k,d)", [("a", "b")]),
        ("float(A,B,C,K) X, float(K,N) Y", "Z(a,b,c,n) +=! X(a,b,c,k) * Y(k,n)", [("a", "b"), ("a_b", "c")]),
        ("float(A,B,K) X, float(K,C,D) Y", "Z(a,b,c,d) +=! X(a,b,k) * Y(k,c,d)", [("a", "b"), ("c", "d")]),
        ("float(A,B,K) X, float(K,N) Y, float(A,B) v",
         "Z(a,b,n) +=! X(a,b,k) * Y(k,n)  Z(a,b,n) = fmax(Z(a,b,n) + v(a,b), 0)", [("a", "b")]),
        ("float(A,B,K) X, float(K,N) Y",
         "Z(a,b,n) +=! X(a,b,k) * Y(k,n)  S(n) +=! Z(a,b,n)", [("a", "b")]),
        ("float(A,B,K) X, float(K,N) Y", "Z(a,b,n) +=! X(a,b,k) * Y(k,n)  S(b,k,a) = X(a,b,k)", [("a", "b")]),
        ("float(A,B,K) X", "Z(a,b,c,d) +=! X(a,b,k) * X(c,d,k)", [("a", "b")]),
        ("float(K,A,B) X, float(N,K) Y",
         "Z(n,a,b) +=! X(k,a+u,v+b) * Y(n,k) where u in 0:1, v in 0:1", [("a", "b")]),
    ],
    ids=["rows", "columns", "steps", "batches", "three", "both sides", "epilogue", "reduced results",
         "another reader", "one operand twice", "a window of one"],
)  # fmt: skip
def test_indices_merge(arguments: str, statements: str, expected: list[tuple[str, str]]) -> None:
    outputs = ", ".join(name for name in ("Z", "S") if f"{name}(" in statements)
    text = f"def f({arguments}) -> ({outputs}) {{ {statements} }}"
    made = compiled(text, {k: v for k, v in SIZES.items() if k in arguments})
    assert [(o, i) for _, o, i in made.plan.merged] == expected
    assert compiled(text, {k: v for k, v in SIZES.items() if k in arguments}, made.stages["nest"]).plan.merged


@pytest.mark.parametrize(
    ("arguments", "statements"),
    [
        ("float(B,A,K) X, float(K,N) Y", "Z(a,b,n) +=! X(b,a,k) * Y(k,n)"),
        ("float(A,B,K) X, float(K,N) Y", "Z(a,n,b) +=! X(a,b,k) * Y(k,n)"),
        ("float(A,K,C) X, float(C,K,N) Y", "Z(a,n) +=! X(a,k,c) * Y(c,k,n)"),
        ("float(A,B,K) X, float(K,N) Y", "Z(a,b,n) +=! X(a,b,k) * Y(k,n) * b"),
        ("float(A,B,K) X, float(K,N) Y", "Z(a,b,n) +=! X(a,b,k) * Y(k,n) where b in 0:B-1"),
        ("float(A,B,K) X, float(K,N) Y", "Z(a,b,n) +=! X(a,b+1,k) * Y(k,n) where b in 0:B-1"),
        ("float(A,A,K) X, float(A,A,N) Y", "Z(k,n) +=! X(a,b,k) * Y(a,b,n) where a in 0:A, b in 0:a+1"),
        ("float(A,B,K) X, float(K,N) Y, float(A) v",
         "Z(a,b,n) +=! X(a,b,k) * Y(k,n)  Z(a,b,n) = Z(a,b,n) + v(a)"),
        ("float(A,B,K) X, float(K,N) Y", "Z(a,b,n) +=! X(a,b,k) * Y(k,n)  S(a) +=! Z(a,b,n)"),
        ("float(A,B,K) X, float(K,N) Y", "Z(a,b,n) +=! X(a,b,k) * Y(k,n)  S(a,k) +=! X(a,b,k)"),
        ("float(A,B,K) X, float(K,N) Y, int32(N) p",
         "Z(a,b,n) +=! X(a,b,k) * Y(k,n)  S(n) = X(p(n),0,0)"),
        ("float(A,B,K) X, float(K,N) Y",
         "Z(a,b,n) +=! X(a,b,k) * Y(k,n)  S(a,b) = constant_exterior(X, 0)(a,b-1,0) where a in 0:A, b in 0:B"),
    ],
    ids=["turned", "apart in the result", "steps in another order", "a value", "part of a dimension", "shifted",
         "a triangle", "one in the epilogue", "one reduced", "one in another update", "chosen by data", "a boundary"],
)  # fmt: skip
def test_other_indices_stay(arguments: str, statements: str) -> None:
    outputs = ", ".join(name for name in ("Z", "S") if f"{name}(" in statements)
    made = compiled(
        f"def f({arguments}) -> ({outputs}) {{ {statements} }}", {k: v for k, v in SIZES.items() if k in arguments}
    )
    assert made.plan.merged == ()


def test_tile_sizes_count_the_indices_of_the_program() -> None:
    sizes = {k: SIZES[k] for k in "ABKN"}
    assert compiled(PRODUCT, sizes, options=tc.MappingOptions(tile_sizes=(2, 2, 4))).plan.merged == ()
    assert len(compiled(PRODUCT, sizes, options=tc.MappingOptions(register_tile=(2, 4))).plan.merged) == 1


@pytest.mark.parametrize(
    ("view", "merges_there"),
    [
        (lambda X: X, True),
        (lambda X: np.asfortranarray(X), False),
        (lambda X: np.repeat(X, 2, axis=2)[:, :, ::2], True),
        (lambda X: np.repeat(X, 2, axis=1)[:, ::2], True),
        (lambda X: np.repeat(X, 2, axis=0)[::2], False),
        (lambda X: X[::-1], False),
        (lambda X: X[:, ::-1], False),
        (lambda X: X[::-1, ::-1], True),
        (lambda X: np.broadcast_to(X[:1], X.shape), False),
        (lambda X: np.concatenate([X, X], axis=1)[:, : X.shape[1]], False),
    ],
    ids=["whole", "turned", "every other step", "every other row", "every other matrix", "matrices backwards",
         "rows backwards", "both backwards", "one for all", "half of the rows"],
)  # fmt: skip
def test_strides_say_whether_dimensions_lie_as_one(view: Callable[[Array], Array], merges_there: bool) -> None:
    X, Y = view(integers(3, 5, 8)), integers(8, 9)
    kernel = tc.define(PRODUCT).f.compile(X, Y)
    assert ("[[merged]]" in kernel.stages["merge"]) == merges_there
    np.testing.assert_array_equal(kernel(X, Y), X @ Y)


def test_what_goes_on_with_the_results_is_right() -> None:
    f = tc.define("""def f(float(A,B,K) X, float(K,C,D) Y, float(A,B) u, float(C,D) v) -> (Z, S, T, M) {
      Z(a,b,c,d) +=! X(a,b,k) * Y(k,c,d)
      Z(a,b,c,d) = fmax(Z(a,b,c,d) + u(a,b) * v(c,d), 0)
      S(a,b) +=! Z(a,b,c,d)
      T(k,a,b) = X(a,b,k) + k
      M(c,d) max=! Z(a,b,c,d)
    }""").f
    X, Y, u, v = integers(3, 5, 8), integers(8, 4, 7), integers(3, 5), integers(4, 7)
    assert f.compile(X, Y, u, v).stages["merge"].count("[[merged]]") == 2
    Z = np.maximum(np.tensordot(X, Y, 1) + np.multiply.outer(u, v), 0)
    T = X.transpose(2, 0, 1) + np.arange(8, dtype=np.float32)[:, None, None]
    for found, expected in zip(f(X, Y, u, v), (Z, Z.sum((2, 3)), T, Z.max((0, 1))), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_the_indices_of_the_program_are_told_where_an_instance_fails() -> None:
    text = """def f(float(A,B,K) X, float(K,N) Y, float(P) v, int32(N) p) -> (Z) {
      Z(a,b,n) +=! X(a,b,k) * Y(k,n)
      Z(a,b,n) = Z(a,b,n) + v(p(n))
    }"""
    arrays = [integers(3, 5, 8), integers(8, 9), integers(4), np.full(9, 2, np.int32)]
    kernel = tc.define(text).f.compile(*arrays)
    assert "[[merged]]" in kernel.stages["merge"]
    kernel(*arrays)
    arrays[3][6] = 77
    with pytest.raises(tc.TcompError, match=r"a = 0, b = 0, n = 6"):
        kernel(*arrays)


def drawn(seed: int) -> tuple[str, list[tuple[str, tuple[int, ...], tuple[int, ...]]]]:
    """Some random contractions as one program: statement by statement, formula and shapes."""
    rng = random.Random(seed)
    inputs, statements, outputs, found = list[str](), list[str](), list[str](), []
    for number in range(6):
        names = iter("abcdefghijkl")
        sides = [[next(names) for _ in range(rng.randint(low, 3))] for low in (0, 1, 1, 1)]
        batch, rows, columns, steps = sides
        extent = {i: rng.randint(1, 6) for side in sides for i in side}
        operands = []
        for parts in ((batch, rows, steps), (batch, steps, columns), (batch, rows, columns)):
            order = list(parts)
            if rng.random() < 0.6:
                rng.shuffle(order)
            flat = [i for part in order for i in part]
            if rng.random() < 0.15:
                rng.shuffle(flat)
            operands.append(flat)
        x, y, z = operands
        dims = [", ".join(str(extent[i]) for i in operand) for operand in (x, y)]
        inputs += [f"float({dims[0]}) X{number}", f"float({dims[1]}) Y{number}"]
        statements.append(f"Z{number}({','.join(z)}) +=! X{number}({','.join(x)}) * Y{number}({','.join(y)})")
        outputs.append(f"Z{number}")
        found.append((f"{''.join(x)},{''.join(y)}->{''.join(z)}", tuple(extent[i] for i in x),
                      tuple(extent[i] for i in y)))  # fmt: skip
    body = "\n  ".join(statements)
    return f"def f({', '.join(inputs)}) -> ({', '.join(outputs)}) {{\n  {body}\n}}", found


@pytest.mark.parametrize("seed", range(16))
def test_random_contractions(seed: int) -> None:
    text, contractions = drawn(seed)
    arrays = [integers(*shape) for _, *shapes in contractions for shape in shapes]
    kernel = tc.define(text)["f"].compile(*arrays)
    assert "[[merged]]" in kernel.stages["merge"]
    for number, (formula, *_) in enumerate(contractions):
        expected = np.einsum(formula, *arrays[2 * number : 2 * number + 2])
        np.testing.assert_array_equal(kernel(*arrays)[number], expected)


def test_windows_of_columns_are_copied_ahead() -> None:
    sizes = {"N": 8, "F": 16, "C": 16, "H": 16, "W": 16}
    made = compiled(LOCAL, sizes)
    assert made.plan.unfolded == (("S0", made.plan.unfolded[0][1], ("h", "w", "n", "c", "kh", "kw")),)
    assert made.plan.program.by_name["S0"].indices == ("h_w", "f", "c_kh_kw", "n")
    assert compiled(LOCAL, sizes, made.stages["nest"]).source == made.source
    G, I = integers(8, 16, 16, 16), integers(8, 16, 18, 18)  # noqa: E741 - the name in the program
    windows = np.lib.stride_tricks.sliding_window_view(I, (3, 3), (2, 3))
    expected = np.einsum("nfhw,nchwkl->hwfckl", G, windows, optimize=True)
    np.testing.assert_array_equal(tc.define(LOCAL).f(G, I), expected)


def test_windows_are_not_copied_for_few_rows() -> None:
    assert compiled(LOCAL, {"N": 8, "F": 1, "C": 16, "H": 16, "W": 16}).plan.unfolded == ()


@pytest.mark.parametrize("images", [1, 4])
def test_windows_of_convolutions_stay(images: int) -> None:
    sizes = {"N": images, "F": 32, "C": 16, "H": 9, "W": 9}
    scop = modelled(CONVOLUTION, sizes)
    assert window_of(scop, scop.by_name["S0"]) is None
    assert compiled(CONVOLUTION, sizes).plan.merged == ()


def test_a_plan_that_merges_what_cannot_be_merged_is_refused() -> None:
    sizes = {k: SIZES[k] for k in "ABKN"}
    text = compiled(PRODUCT, sizes).stages["nest"]
    for wrong in (("a", "n"), ("b", "a"), ("a", "a"), ("a", "k"), ("a", "q")):
        changed = text.replace('outer = "a"\ninner = "b"', f'outer = "{wrong[0]}"\ninner = "{wrong[1]}"')
        assert changed != text
        with pytest.raises(tc.PlanError, match="cannot be one index"):
            compiled(PRODUCT, sizes, changed)
    window = compiled(LOCAL, {"N": 8, "F": 16, "C": 16, "H": 16, "W": 16}).stages["nest"]
    with pytest.raises(tc.PlanError, match="cannot be copied ahead"):
        compiled(
            LOCAL, {"N": 8, "F": 16, "C": 16, "H": 16, "W": 16}, window.replace('["h", "w", "n"', '["h", "h", "n"')
        )


def test_indices_that_another_statement_needs_apart_stay() -> None:
    text = """def f(float(A,B,K) X, float(K,N) Y) -> (Z, S) {
      Z(a,b,n) +=! X(a,b,k) * Y(k,n)
      S(b,a,n) = Z(a,b,n)
    }"""
    scop = modelled(text, {k: SIZES[k] for k in "ABKN"})
    assert not can_merge(scop, "S0", "a", "b")
    assert not can_merge(scop, "S0", "b", "n")


MUTANTS: dict[str, Callable[[Merge], Merge]] = {
    "a pair turned": lambda m: replace(m, pairs={**m.pairs, "S0": frozenset({("b", "a")})}),
    "another pair": lambda m: replace(m, pairs={**m.pairs, "S0": frozenset({("b", "n")})}),
    "another dimension": lambda m: replace(m, dimensions={**m.dimensions, "X": frozenset({1})}),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_proof_refuses_wrong_merges(name: str) -> None:
    scop = modelled(PRODUCT, {k: SIZES[k] for k in "ABKN"})
    found = Merge.of(scop, "S0", ("a", "b"))
    assert found is not None
    with pytest.raises(tc.LegalityError):
        MUTANTS[name](found).apply(scop)


def test_the_proof_refuses_dimensions_that_lie_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    scop = modelled(PRODUCT, {k: SIZES[k] for k in "ABKN"}, {"X": (80, 8, 1)})
    assert Merge.of(scop, "S0", ("a", "b")) is None
    monkeypatch.setattr(merges, "_lies_as_one", lambda storage, d: True)
    found = Merge.of(scop, "S0", ("a", "b"))
    assert found is not None
    with pytest.raises(tc.LegalityError, match="elsewhere in memory"):
        found.apply(scop)


def test_the_proof_refuses_other_reads_and_instances() -> None:
    scop = modelled(PRODUCT, {k: SIZES[k] for k in "ABKN"})
    found = Merge.of(scop, "S0", ("a", "b"))
    assert found is not None
    before, after = scop.by_name["S0"], found.apply(scop).by_name["S0"]
    instances = found._instances(before)
    elements = {key: found._elements(scop.storages[key]) for key in found.dimensions}
    merges.prove_merged(before, after, instances, elements)
    fewer = after.domain.upper_bound_val(isl.dim_type.set, 0, isl.Val(13))
    wrong = [
        replace(after, domain=fewer),
        replace(after, reads=after.reads[::-1]),
        replace(after, write=after.write.intersect_domain(fewer)),
    ]
    for changed in wrong:
        with pytest.raises(tc.LegalityError, match="other elements than before"):
            merges.prove_merged(before, changed, instances, elements)


FOLDED = """def f(float(N,F,H) G, float(H,F,C,3) K) -> (D) {
  each(h,n,c,kh) +=! G(n,f,h) * K(h,f,c,kh)
  D(n,c,h) +=! constant_exterior(each, 0.0)(h-kh,n,c,kh) where n in 0:N, c in 0:C, h in 0:H+2, kh in 0:3
}"""


def test_a_sum_may_gather_what_is_merged() -> None:
    """The gradient of a locally connected layer: what each place adds is a product of matrices with 3 C columns."""
    sizes = {"N": 8, "F": 16, "H": 10, "C": 16}
    compilation = compiled(FOLDED, sizes)
    assert "c_kh" in compilation.plan.scop.by_name["S0"].indices
    assert compilation.plan.scop.by_name["S1"].indices == ("n", "c", "h", "kh")
    G, K = integers(8, 16, 10), integers(10, 16, 16, 3)
    each = np.einsum("nfh,hfck->hnck", G, K)
    expected = np.zeros((8, 16, 12), np.float32)
    for k in range(3):
        expected[:, :, k : k + 10] += each[..., k].transpose(1, 2, 0)
    np.testing.assert_array_equal(tc.define(FOLDED).f(G, K), expected)


def test_sums_of_what_is_merged_keep_their_indices_where_they_share_loops() -> None:
    text = FOLDED.replace("constant_exterior(each, 0.0)(h-kh,n,c,kh)", "each(h,n,c,kh)").replace(", h in 0:H+2", "")
    assert "c_kh" not in compiled(text, {"N": 8, "F": 16, "H": 10, "C": 16}).plan.scop.by_name["S0"].indices


def test_elements_that_share_a_range_run_together() -> None:
    """What data choose is another dimension, which stays; the index of the ranges does, too."""
    text = """def f(float(C,H,W) X, int32(R) row, int32(E) at, float(E) V) -> (Y) {
  Y(i,h,w) +=! V(e) * X(at(e),h,w) where e in row(i):row(i+1), h in 0:H, w in 0:W
}"""
    made = compiled(text, {"C": 4, "H": 5, "W": 6, "R": 4, "E": 7})
    assert [pair[1:] for pair in made.plan.merged] == [("h", "w")]
    row, at, V = np.int32([0, 3, 3, 7]), np.int32([3, 0, 1, 2, 2, 0, 3]), integers(7)
    X = integers(4, 5, 6)
    expected = np.stack([sum((V[e] * X[at[e]] for e in range(row[i], row[i + 1])), np.zeros((5, 6))) for i in range(3)])
    assert (tc.define(text).f(X, row, at, V, target="cpu") == expected).all()
