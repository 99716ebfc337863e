"""What backward passes take of the forward pass, and that results do not depend on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tests.derivatives.test_gradients import PROGRAMS, SIZES, made_up


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("save", [(), "all", "statistics"])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_gradients_are_the_same(program: str, save: Any) -> None:
    operation = tc.define(program).f
    function = operation.function
    known = {n: SIZES.get(n, 3) for n in (*function.sizes, *(t.name for t in function.inputs if t.role == "const"))}
    arguments, rng = made_up(function, known, 0, -1), np.random.default_rng(1)
    outputs = _tuple(operation(*arguments))
    cotangents = [rng.uniform(-1, 1, o.shape) for o in outputs]
    expected = _tuple(operation.gradient(save=())(*arguments, *cotangents))
    gradient = operation.gradient(save=save)
    assert save != () or gradient.saved == ()
    for got, right in zip(_tuple(gradient(*arguments, *cotangents)), expected, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-11, atol=1e-11)


def test_softmax_is_that_of_the_textbooks() -> None:
    gradient = tc.library.softmax.gradient()
    assert gradient.text == (
        "def softmax_grad(float(N, D) Y, float(N, D) d_Y) -> (float(N, D) d_X) {\n"
        "    # d_total: the adjoint of total\n"
        "    d_total(n) +=! d_Y(n, d) * Y(n, d)\n"
        "    # d_X: the adjoint of X\n"
        "    d_X(n, d) = (d_Y(n, d) - d_total(n)) * Y(n, d)\n"
        "}\n"
    )
    assert gradient.saved == ("Y",) and gradient.forward is tc.library.softmax


def test_what_a_row_shares_is_divided_before_it_meets_the_row() -> None:
    """One quotient a row, and none an element; a sum of a row over its length is left as it was written."""
    text = tc.library.cross_entropy.gradient().text
    shared = [line for line in text.splitlines() if "/" in line and "exp" in line]
    assert len(shared) == 1 and shared[0].index("/") < shared[0].index("exp")
    f = tc.define("def f(float(N,D) X, float(N) z) -> (Y) { Y(n,d) = X(n,d) * X(n,d) / z(n) }").f
    assert "2.0 * d_Y(n, d) * X(n, d) / z(n)" in f.gradient("X").text


def test_attention_is_that_of_flash_attention() -> None:
    lines = tc.library.attention.gradient().text.splitlines()
    assert "    d_total(b, h, l) +=! d_O(b, h, l, e) * O(b, h, l, e)" in lines
    assert not any("ties" in line or "max=!" in line for line in lines[: lines.index("}")])


def test_statistics_are_handed_out_by_a_def_of_their_own() -> None:
    gradient = tc.library.layer_norm.gradient()
    assert gradient.saved == ("mean", "var")
    assert gradient.forward.name == "layer_norm_saving"
    assert [t.name for t in gradient.forward.function.outputs] == ["Y", "mean", "var"]
    assert "float(N) mean: temporary, 4 * (N) bytes" in gradient.explain()
    assert "takes nothing" in tc.library.matmul.gradient().explain()


def test_named_values_are_saved() -> None:
    f = tc.define("def f(float(N) X) -> (Y) { H(n) = exp(X(n))  Y(n) = H(n) * sin(X(n)) }").f
    assert f.gradient().saved == ()
    gradient = f.gradient(save=("H",))
    assert gradient.saved == ("H",) and gradient.forward.name == "f_saving"
    with pytest.raises(tc.DerivativeError, match="no G to save; it writes H, Y"):
        f.gradient(save=("G",))
    with pytest.raises(tc.DerivativeError, match="'statistics', 'all', 'auto' or a tuple of names"):
        f.gradient(save="everything")


def test_shapes_are_taken_as_numbers() -> None:
    """An image whose gradient does not depend on it is not kept for its height."""
    gradient = tc.library.conv2d.gradient("I")
    assert (gradient.inputs, gradient.sizes) == (("K",), ("H", "W"))
    rng = np.random.default_rng(0)
    image, kernel = rng.random((2, 3, 6, 7), "f4"), rng.random((4, 3, 3, 2), "f4")
    cotangent = rng.random((2, 4, 4, 6), "f4")
    np.testing.assert_allclose(
        gradient(image, kernel, cotangent), tc.library.conv2d.gradient()(image, kernel, cotangent)[0], rtol=1e-5
    )


def test_strides_below_one() -> None:
    """The text for all strides takes them for at least 1; calls derive it for their own."""
    f = tc.define("def f(float(H) I, float(K) W, const int S) -> (O) { O(h) +=! I(S*h+k+8) * W(k) where h in 0:3 }").f
    image, kernel = np.ones(20, "f4"), np.ones(2, "f4")
    assert f(image, kernel, -2).shape == (3,)
    with pytest.raises(tc.ShapeError, match="takes S, which is -2, for at least 1"):
        f.gradient().arguments({"I": image, "W": kernel, "S": -2}, {"H": 20, "K": 2}, (np.ones(3, "f4"),))
    d_image, _ = f.gradient()(image, kernel, -2, np.ones(3, "f4"))
    assert np.flatnonzero(d_image).tolist() == [4, 5, 6, 7, 8, 9] and d_image.sum() == 6
    assert f.gradient()(image, kernel, 2, np.ones(3, "f4"))[0].sum() == 6


def test_value_and_grad() -> None:
    f = tc.define("def f(double(N) X, double(N) Z) -> (L) { L +=! X(i) * X(i) * Z(i) }").f
    x, z = np.linspace(-1, 1, 5), np.linspace(0, 2, 5)
    value, (d_x, d_z) = f.value_and_grad()(x, z)
    assert value == pytest.approx((x * x * z).sum())
    np.testing.assert_allclose((d_x, d_z), (2 * x * z, x * x))
    value, d_z = f.value_and_grad("Z")(x, z, cotangents=(np.array(2.0),))
    np.testing.assert_allclose(d_z, 2 * x * x)
    two = tc.define("def f(double(N) X) -> (Y, J) { Y(i) = X(i) * X(i)  J(i) = i where i in 0:N }").f
    with pytest.raises(tc.ShapeError, match="f is no loss"):
        two.value_and_grad()(x)
    (y, j), d_x = two.value_and_grad()(x, cotangents=(z,))
    np.testing.assert_allclose(y, x * x)
    np.testing.assert_allclose(d_x, 2 * x * z)
    assert j.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", ["softmax", "conv2d_strided", "layer_norm", "max_pool2d", "attention"])
def test_derived_programs_run_on_the_simulator(name: str) -> None:
    """A GPU's kernels of the backward pass give what those of the processor give."""
    simulator = tc.targets()["simulator"]
    if not simulator:
        pytest.skip(simulator.detail)
    operation = tc.library[name]
    sizes = {"N": 3, "D": 5, "C": 3, "F": 2, "H": 6, "W": 5, "KH": 3, "KW": 2, "B": 1, "L": 4, "S": 2, "E": 3}
    known = {"SH": 2, "SW": 1, "K": 3, "P": 1} | sizes
    names = (*operation.function.sizes, *(t.name for t in operation.function.inputs if t.role == "const"))
    arguments = made_up(operation.function, {n: known[n] for n in names}, 0, 0.2)
    outputs = _tuple(operation(*arguments))
    cotangents = [np.ones_like(o) for o in outputs]
    gradient = operation.gradient()
    found = _tuple(gradient(*arguments, *cotangents, target="simulator"))
    for got, expected in zip(found, _tuple(gradient(*arguments, *cotangents)), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_maxima_of_many_values_are_saved_where_sizes_are_known() -> None:
    """They are no statistics of a result that is one number, and finding them is a pass over all of the input."""
    text = """
    def loss(float(N,C) X, int64(N) label) -> (L) {
      m(n) max=! X(n,c)
      z(n) +=! exp(X(n,c) - m(n))
      L +=! log(z(n)) + m(n) - X(n,label(n))
    }"""
    gradient = tc.define(text).loss.gradient(save="auto", sizes={"N": 50, "C": 1000})
    assert gradient.saved == ("m", "z")
    assert not any("max=!" in line for line in gradient.text.split("def loss_saving")[0].splitlines())


def test_extrema_are_not_saved_without_the_rounded_values_that_they_are_compared_with() -> None:
    """Scores that another kernel adds up may be none of them the saved maximum, whose adjoint would be lost."""
    f = tc.define("""
        def f(float(L,D) Q, float(S,D) K, float(S,E) V) -> (O) {
            s(i,j) +=! Q(i,d) * K(j,d)
            m(i) max=! s(i,j)
            O(i,e) +=! exp(s(i,j) - m(i)) * V(j,e)
        }""").f
    assert f.gradient().saved == f.gradient(save=("m",)).saved == ()
    assert f.gradient(save=("s", "m")).saved == ("s", "m")
    pool = tc.define("def f(float(N,H) I) -> (O) { O(n,h) max=! relu(-I(n,2*h+k)) where k in 0:2 }").f
    assert pool.gradient().saved == ("O",)
    again = tc.define("def f(float(N,H) I) -> (O) { O(n) = 0.5 * I(n,0)  O(n) max= I(n,h) }").f
    assert again.gradient().saved == ()
