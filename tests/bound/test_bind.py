"""Operations with some arguments bound: the results, what is done once, what is kept, and who may write meanwhile."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import tcomp as tc
from tcomp.bound.kernels import Shared

TEXT = """
def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
def linear(float(M,K) A, float(N,K) W, float(N) b) -> (C) {
    C(m,n) +=! A(m,k) * W(n,k)
    C(m,n) = max(C(m,n) + b(n), 0.0)
}
def folded(float(N,C,H,W) I, float(F,C) K, float(F) g, float(F) e) -> (O) {
    L(f,c) = K(f,c) * g(f)
    O(n,f,h,w) +=! I(n,c,h,w) * L(f,c)
    O(n,f,h,w) = O(n,f,h,w) + e(f)
}
def strided(float(N) X, float(K) W, const int S) -> (Y) { Y(i) +=! X(S*i+k) * W(k) }
def scaled(float(N) X, float s) -> (Y) { Y(i) = X(i) * s }
def looked_up(float(N) X, float(E) T, int32(L) at) -> (Y) {
    V(l) = T(at(l))
    Y(i) +=! X(i) * V(l)
}
def added(float(N) X, float(N) W) -> (Y) { Y(i) += X(i) * W(i) }
def alone(float(N) W) -> (A, B) {
    square(i) = W(i) * W(i)
    A(i) = square(i) + 1.0
    B +=! square(i)
}
"""


@pytest.fixture(scope="module")
def ops() -> tc.Module:
    return tc.define(TEXT)


def f4(*shape: int) -> np.ndarray:
    """Small integers: sums of their products are exact."""
    return np.random.default_rng(sum(shape)).integers(-3, 4, shape).astype(np.float32)


@pytest.mark.parametrize("target", ["cpu", "simulator"])
def test_results_are_those_of_the_operation(ops: tc.Module, target: str) -> None:
    image, K, g, e = f4(2, 5, 3, 4), f4(7, 5), f4(7), f4(7) + 1
    bound = ops.folded.bind(K=K, g=g, e=e)
    for _ in range(3):
        np.testing.assert_array_equal(bound(image, target=target), ops.folded(image, K, g, e, target=target))
    np.testing.assert_array_equal(bound.reference(image), ops.folded.reference(image, K, g, e))


@pytest.mark.parametrize("M", [1, 2, 5, 8, 33, 64])
def test_products_are_the_same_to_the_bit(ops: tc.Module, M: int) -> None:
    random = np.random.default_rng(M)
    A, B = (random.random(shape, np.float32) for shape in ((M, 96), (96, 80)))
    np.testing.assert_array_equal(ops.mm.bind(B=B)(A), ops.mm(A, B))


def test_the_first_operand_may_be_the_bound_one(ops: tc.Module) -> None:
    A, B = f4(48, 64), f4(64, 72)
    np.testing.assert_array_equal(ops.mm.bind(A=A)(B), A @ B)
    np.testing.assert_array_equal(ops.mm.bind(A=A, B=B)(), A @ B)


def test_strides_of_bound_arrays_do_not_matter(ops: tc.Module) -> None:
    A, B = f4(16, 64), f4(48, 128)[:, ::2].T
    np.testing.assert_array_equal(ops.mm.bind(B=B)(A), A @ B)


def test_a_later_write_changes_nothing(ops: tc.Module) -> None:
    A, B = f4(4, 32), f4(32, 32)
    before = B.copy()
    bound = ops.mm.bind(B=B)
    B[...] = 7
    np.testing.assert_array_equal(bound(A), A @ before)
    B[...] = 8
    np.testing.assert_array_equal(bound(A), A @ before)
    np.testing.assert_array_equal(bound(np.concatenate([A, A])), np.concatenate([A, A]) @ before)


def test_outputs_that_depend_on_nothing_else_are_new_in_each_call(ops: tc.Module) -> None:
    W = f4(9)
    bound = ops.alone.bind(W=W)
    first, total = bound()
    first[...] = 0
    again, _ = bound()
    np.testing.assert_array_equal(again, W * W + 1)
    assert total == (W * W).sum()
    tensor, _ = ops.alone.bind(W=torch.from_numpy(W))()
    assert isinstance(tensor, torch.Tensor) and tensor.tolist() == again.tolist()


def test_out_receives_the_results(ops: tc.Module) -> None:
    A, B, C = f4(3, 20), f4(20, 11), np.empty((3, 11), np.float32)
    bound = ops.mm.bind(B=B)
    for _ in range(3):
        C[...] = np.nan
        assert bound(A, out=C) is C
        np.testing.assert_array_equal(C, A @ B)
    Y = np.ones(6, np.float32)
    added = ops.added.bind(W=f4(6))
    for count in (1, 2, 3):
        added(f4(6), out=Y)
        np.testing.assert_array_equal(Y, 1 + count * f4(6) * f4(6))


def test_constants_numbers_and_names(ops: tc.Module) -> None:
    X, W = f4(21), f4(3)
    expected = ops.strided(X, W, 2)
    bound = ops.strided.bind(S=2)
    np.testing.assert_array_equal(bound(X, W), expected)
    np.testing.assert_array_equal(bound(W=W, X=X), expected)
    np.testing.assert_array_equal(bound.bind(W=W)(X), expected)
    np.testing.assert_array_equal(bound.bind(W=W)(X=X), expected)
    np.testing.assert_array_equal(ops.scaled.bind(s=3)(X), 3 * X)


def test_sizes_share_what_does_not_depend_on_them(ops: tc.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []
    compute = Shared._computed

    def noted(self: Shared, *arguments: Any) -> Any:
        computed.append("once")
        return compute(self, *arguments)

    monkeypatch.setattr(Shared, "_computed", noted)
    K, g, e = f4(64, 32), f4(64), f4(64)
    bound = ops.folded.bind(K=K, g=g, e=e)
    for side in (7, 9, 7, 12):
        image = f4(1, 32, side, side)
        np.testing.assert_array_equal(bound(image), ops.folded(image, K, g, e))
    assert computed == ["once"]
    assert bound.explain().count("computed once: ") == 1


def test_panels_are_packed_once_for_all_calls_and_shared(ops: tc.Module) -> None:
    B = f4(256, 192)
    bound = ops.mm.bind(B=B)
    for M in (8, 16, 8, 16):
        np.testing.assert_array_equal(bound(f4(M, 256)), f4(M, 256) @ B)
    assert len(bound._shared.panels) == 1
    report = bound.explain()
    assert f"copied: B, {B.nbytes} bytes" in report
    assert "packed once: " in report and "in all: " in report


def test_a_kernel_says_what_is_bound(ops: tc.Module) -> None:
    bound = ops.folded.bind(K=f4(64, 32), g=f4(64), e=f4(64))
    kernel = bound.compile(sizes={"N": 1, "H": 7, "W": 7})
    assert "bound L_1: float32[64, 32], computed once, 8192 bytes" in kernel.explain()
    image = f4(1, 32, 7, 7)
    np.testing.assert_array_equal(kernel(image), bound(image))
    np.testing.assert_array_equal(kernel(I=image), bound(image))
    assert "  packed once: B by float32[" in ops.mm.bind(B=f4(96, 64)).compile(f4(8, 96)).explain()


def test_a_plan_that_packs_ahead_what_is_not_bound_is_refused(ops: tc.Module) -> None:
    kernel = ops.mm.compile(sizes={"M": 64, "K": 1024, "N": 1024})
    plan = kernel.stages["pack"]
    assert "[[copy]]" in plan and ops.mm.compile(sizes={"M": 64, "K": 1024, "N": 1024}, plan=plan)
    wrong = plan.replace("[[copy]]\n", "[[copy]]\nahead = 1\n")
    with pytest.raises(tc.LegalityError, match="copies B ahead at panel0, but it is not bound"):
        ops.mm.compile(sizes={"M": 64, "K": 1024, "N": 1024}, plan=wrong)


def test_plans_that_pack_ahead_are_read_again(ops: tc.Module) -> None:
    made = ops.mm.bind(B=f4(96, 64)).compile(f4(8, 96)).specialisation
    plan = made.lower().stages["pack"]
    assert "ahead = 1" in plan
    assert replace(made, plan=plan).lower().source.text == made.lower().source.text


@pytest.mark.parametrize("names", [("A",), ("B",), ("A", "B")])
def test_narrow_operands_are_packed_in_groups(names: tuple[str, ...]) -> None:
    ops = tc.define("def mm(int8(M,K) A, int8(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }")
    random = np.random.default_rng(1)
    given = {n: random.integers(-100, 100, (64, 160)).astype(np.int8) for n in "AB"}
    bound = ops.mm.bind(**{n: given[n] for n in names})
    result = bound(*(a for n, a in given.items() if n not in names))
    np.testing.assert_array_equal(result, given["A"].astype(np.int32) @ given["B"].T.astype(np.int32))


def test_bfloat16_weights() -> None:
    ops = tc.define("def mm(bfloat16(M,K) A, bfloat16(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }")
    A, B = (torch.from_numpy(f4(*s)).to(torch.bfloat16) for s in ((32, 64), (64, 48)))
    assert torch.equal(ops.mm.bind(B=B)(A), ops.mm(A, B))


def test_from_several_threads(ops: tc.Module) -> None:
    B = f4(128, 64)
    bound = ops.mm.bind(B=B)
    wrong: list[int] = []

    def calls(number: int) -> None:
        for M in (1, 3, 8, 17):
            A = f4(M, 128) + number
            if not np.array_equal(bound(A), A @ B):
                wrong.append(M)

    threads = [threading.Thread(target=calls, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(bound._kernels.values()) == 4


def test_pickled(ops: tc.Module) -> None:
    A, B = f4(4, 8), f4(8, 8)
    again = pickle.loads(pickle.dumps(ops.mm.bind(B=B)))
    np.testing.assert_array_equal(again(A), A @ B)
    with pytest.raises(TypeError, match="belongs to a bound operation"):
        pickle.dumps(again.compile(A))


class TestTorch:
    def test_tensors_in_and_out(self, ops: tc.Module) -> None:
        A, W, b = (torch.from_numpy(f4(*s)) for s in ((5, 64), (32, 64), (32,)))
        bound = ops.linear.bind(W=W, b=b)
        before = torch.relu(A @ W.T + b)
        W.zero_()
        for _ in range(3):
            result = bound(A)
            assert isinstance(result, torch.Tensor)
            assert torch.equal(result, before)

    def test_gradients_of_what_is_bound_are_refused(self, ops: tc.Module) -> None:
        W = torch.rand(4, 4, requires_grad=True)
        with pytest.raises(tc.ShapeError, match=r"B requires a gradient.*\n(.*\n)*  help: bind B.detach\(\)"):
            ops.mm.bind(B=W)
        with torch.no_grad():
            assert ops.mm.bind(B=W)(torch.ones(2, 4)).shape == (2, 4)

    def test_gradients_of_the_others_are_refused(self, ops: tc.Module) -> None:
        bound = ops.mm.bind(B=torch.rand(4, 4))
        X = torch.rand(2, 4)
        bound(X), bound(X)
        with pytest.raises(tc.ShapeError, match="A requires a gradient"):
            bound(X.requires_grad_())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"X": f4(2, 2)}, "mm has no parameter X"),
        ({"C": f4(2, 2)}, "it is an output"),
        ({"B": np.ones((2, 2))}, "input B: expected type float32 but found float64"),
        ({"B": np.ones(2, np.float32)}, "input B: expected a tensor with 2 dimensions"),
        ({"A": "x", "B": 3.0}, "input A: .*"),
    ],
)
def test_what_cannot_be_bound(ops: tc.Module, given: dict[str, Any], message: str) -> None:
    with pytest.raises(tc.ShapeError, match=message):
        ops.mm.bind(**given)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda b: b(f4(2, 9)), "Mismatched sizes for dimension K"),
        (lambda b: b(), "expected 1 input but found 0"),
        (lambda b: b(f4(2, 8), f4(8, 8)), "expected 1 input but found 2"),
        (lambda b: b(f4(2, 8), B=f4(8, 8)), "mm has no parameter B|expected 1 input"),
        (lambda b: b.bind(B=f4(8, 8)), "B is bound already"),
        (lambda b: b.compile(sizes={"Q": 3}), "the size M is not given"),
    ],
)
def test_calls_that_do_not_fit(ops: tc.Module, call: Callable[[Any], object], message: str) -> None:
    with pytest.raises(tc.ShapeError, match=message):
        call(ops.mm.bind(B=f4(8, 8)))


def test_names_and_counts_that_do_not_fit_are_type_errors(ops: tc.Module) -> None:
    bound = ops.mm.bind(B=f4(8, 8))
    for call in (lambda: bound(), lambda: bound(Z=1), lambda: ops.mm.bind(Z=1), lambda: bound.bind(B=1)):
        with pytest.raises(TypeError):
            call()


def test_subscripts_that_are_outside_are_found_when_they_are_used_once(ops: tc.Module) -> None:
    X, T = f4(5), f4(10)
    at = np.array([0, 9, 3], np.int32)
    np.testing.assert_array_equal(ops.looked_up.bind(T=T, at=at)(X), ops.looked_up(X, T, at))
    at[1] = 10
    with pytest.raises(tc.ShapeError, match=r"indirect subscript at\(l\) of T in dimension 0 is 10 at l = 1"):
        ops.looked_up.bind(T=T, at=at)(X)


def test_more_arrays_than_direct_calls_take() -> None:
    names = [f"W{n}" for n in range(9)]
    weights, total = ", ".join(f"float(N) {n}" for n in names), " + ".join(f"{n}(i)" for n in names)
    ops = tc.define(f"def f(float(N) X, {weights}) -> (Y) {{ Y(i) = X(i) * ({total}) }}")
    given = {n: f4(6) + k for k, n in enumerate(names)}
    bound = ops.f.bind(**given)
    for _ in range(3):
        np.testing.assert_array_equal(bound(f4(6)), f4(6) * sum(given.values()))
