"""How gradients are asked for and called: names, orders of arguments, cotangents that are missing."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import tcomp as tc

TEXT = """
def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,kk) * B(kk,n) }
def several(float(N) X, int(N) I) -> (Y, J, Z) {
    Y(i) = exp(X(i))
    J(i) = 2 * I(i)
    Z(i) = X(i) * X(i)
}
def loss(float(N) X) -> (L) { L +=! X(i) * X(i) }
"""


@pytest.fixture(scope="module")
def ops() -> tc.Module:
    return tc.define(TEXT)


def test_arguments_in_order(ops: tc.Module) -> None:
    g = ops.mm.gradient("A", "statistics", "even", "by_rows")
    assert g.backward.name == "by_rows" and g.wrt == ("A",)
    assert repr(g) == "<gradient of mm by A>"
    assert ops.mm.gradient(wrt=["B", "A"]).wrt == ("B", "A")


def test_a_missing_cotangent_drops_what_needs_it(ops: tc.Module) -> None:
    x, i = np.linspace(0, 1, 5, dtype="f4"), np.arange(5, dtype="i4")
    d_y, d_z = np.linspace(1, 2, 5, dtype="f4"), np.linspace(3, 5, 5, dtype="f4")
    g = ops.several.gradient()
    by_y, by_z = d_y * np.exp(x), 2 * d_z * x
    np.testing.assert_allclose(g(x, i, d_y, d_z), by_y + by_z, rtol=1e-6)
    np.testing.assert_allclose(g(x, i, d_y, None), by_y, rtol=1e-6)
    np.testing.assert_allclose(g(x, i, None, d_z), by_z, rtol=1e-6)
    assert not g(x, i, None, None).any()
    assert g.without(frozenset("Y")).backward.function.statements != g.backward.function.statements
    assert "d_Y" not in g.without(frozenset("Y")).text
    _, alone = ops.several.value_and_grad()(x, i, cotangents=(None, d_z))
    np.testing.assert_allclose(alone, by_z, rtol=1e-6)


def test_constants_between_inputs_go_by_name_or_are_left_out() -> None:
    f = tc.define(
        "def f(float(H) I, const int S = 2, float(K) W, const int D = 1) -> (O) { O(h) +=! I(S*h + k) * W(k) }"
    ).f
    i, w, d = np.arange(9, dtype="f4"), np.ones(3, "f4"), np.ones(4, "f4")
    g = f.gradient()
    expected = g(i, 2, w, 1, d)
    calls = (g(I=i, W=w, d_O=d), g(i, 2, w, d), g(i, 2, w, d_O=d), f.value_and_grad()(i, W=w, cotangents=d)[1])
    for found in calls:
        for own, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(own, other)
    assert str(f.batched((0, None, None))) == str(f.batched((0, None, None, None)))
    with pytest.raises(TypeError, match="there is no argument for d_O"):
        g(I=i, W=w)
    with pytest.raises(TypeError, match="I is given by position and by name"):
        g(i, I=i, W=w, d_O=d)
    with pytest.raises(tc.ShapeError, match="expected 5 arguments, I, S, W, D, d_O, but got 2"):
        g(i, d)


def test_one_cotangent_needs_no_tuple(ops: tc.Module) -> None:
    a, b, d_c = np.ones((4, 3), "f4"), np.ones((3, 5), "f4"), np.ones((4, 5), "f4")
    for cotangents in (d_c, (d_c,), [d_c]):
        value, (d_a, _) = ops.mm.value_and_grad()(a, b, cotangents=cotangents)
        np.testing.assert_array_equal(value, a @ b)
        np.testing.assert_array_equal(d_a, d_c @ b.T)
    with pytest.raises(tc.ShapeError, match="expected d_C as cotangents, but got 2"):
        ops.mm.value_and_grad()(a, b, cotangents=(d_c, d_c))


@pytest.mark.parametrize(
    ("wrt", "message"),
    [((), "names no input of mm"), (("A", "A"), "names A twice"), (3, "with respect to 3"), ("M", "with respect to M")],
)
def test_what_wrt_cannot_be(ops: tc.Module, wrt: object, message: str) -> None:
    with pytest.raises(tc.DerivativeError, match=message):
        ops.mm.gradient(wrt)  # type: ignore[arg-type]


def test_an_input_without_a_gradient_is_shown(ops: tc.Module) -> None:
    with pytest.raises(tc.DerivativeError, match=r"3:32: error: several has no gradient with respect to I"):
        ops.several.gradient("I")


@pytest.mark.parametrize("save", [3, "total", ("nothing",)])
def test_what_save_cannot_be(ops: tc.Module, save: object) -> None:
    with pytest.raises(tc.DerivativeError, match=r"save is 'statistics'|has no nothing to save"):
        ops.mm.gradient(save=save)  # type: ignore[arg-type]


def test_gradients_are_copied_and_pickled(ops: tc.Module) -> None:
    a, b, d_c = np.ones((4, 3), "f4"), np.ones((3, 5), "f4"), np.ones((4, 5), "f4")
    g = ops.mm.gradient(("B", "A"), name="back")
    for copied in (pickle.loads(pickle.dumps(g)), copy.deepcopy(g)):
        assert copied.text == g.text
        np.testing.assert_array_equal(copied(a, b, d_c)[1], d_c @ b.T)
    assert pickle.loads(pickle.dumps(g.gradient())).text == g.gradient().text
    generic = tc.define("def twice<T>(T(N) X) -> (T(N) Y) { Y(n) = T(2) * X(n) }").twice.gradient()
    for dtype in ("f4", "f8"):
        found = pickle.loads(pickle.dumps(generic))(np.ones(3, dtype), np.ones(3, dtype))
        np.testing.assert_array_equal(found, np.full(3, 2, dtype), strict=True)
    value, _ = pickle.loads(pickle.dumps(ops.mm.value_and_grad()))(a, b, cotangents=d_c)
    np.testing.assert_array_equal(value, a @ b)


def test_gradients_without_cotangents_are_arrays_of_the_kind_of_inputs() -> None:
    torch = pytest.importorskip("torch")
    f = tc.define("def f(float(N) X, float(N) Z) -> (Y) { Y(n) = X(n) * Z(n) }").f
    x = torch.ones(3)
    found = f.gradient()(x, x, None)
    assert all(torch.equal(d, torch.zeros(3)) for d in found)
    assert isinstance(f.gradient("X")(np.ones(3, "f4"), np.ones(3, "f4"), None), np.ndarray)
    _, found = f.value_and_grad("Z")(x, x, cotangents=(None,))
    assert torch.equal(found, torch.zeros(3))


def test_values_with_gradients_need_all_inputs() -> None:
    f = tc.define("def f(float(N) X, float(N) Z) -> (L) { L +=! X(n) * Z(n) }").f
    x = np.ones(3, "f4")
    for arguments in ((x,), (x, x, x)):
        with pytest.raises(tc.ShapeError, match=rf"f: expected 2 inputs, X, Z, but got {len(arguments)}"):
            f.value_and_grad()(*arguments)
