"""Derived gradients against central differences, in float64, and the text of some."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import tcomp
from tcomp import cli, shipped
from tcomp.grammar.ranges.ranges import infer
from tcomp.model.evaluation import numpy_dtype
from tcomp.values.operators import INTRINSICS

pytestmark = pytest.mark.sweep(2)

SIZES = {
    "N": 5,
    "M": 4,
    "K": 3,
    "C": 4,
    "F": 4,
    "G": 2,
    "H": 9,
    "W": 8,
    "KH": 3,
    "KW": 2,
    "S": 2,
    "D": 6,
    "B": 2,
    "P": 1,
    "R1": 4,
}

PROGRAMS = {
    "matmul": "def f(double(M,K) A, double(K,N) B) -> (C) { C(m,n) +=! A(m,kk) * B(kk,n) }",
    "bias": "def f(double(M,K) A, double(K,N) B, double(N) b) -> (C) "
    "{ C(m,n) +=! A(m,kk) * B(kk,n)  C(m,n) = relu(C(m,n) + b(n)) }",
    "convolution": "def f(double(N,C,H,W) I, double(F,C,KH,KW) K) -> (O) "
    "{ O(n,f,h,w) +=! I(n,c,h+kh,w+kw) * K(f,c,kh,kw) }",
    "strided": "def f(double(H) I, double(KH) K, const int S) -> (O) { O(h) +=! I(S*h+2*kh) * K(kh) }",
    "padded": "def f(double(H) I, double(KH) K) -> (O) "
    "{ O(h) +=! constant_exterior(I, 0)(h+kh-1) * K(kh) where h in 0:H }",
    "windows_of_exp": "def f(double(H) I) -> (O) { O(h) +=! exp(I(h+k)) * I(h) where k in 0:3 }",
    "softmax": "def f(double(N,D) X) -> (Y) { m(n) max=! X(n,d)  E(n,d) = exp(X(n,d)-m(n))  s(n) +=! E(n,d)  "
    "Y(n,d) = E(n,d)/s(n) }",
    "layer_norm": "def f(double(N,D) X, double(D) g) -> (Y) { a(n) +=! X(n,d)  a(n) = a(n)/D  "
    "v(n) +=! (X(n,d)-a(n))*(X(n,d)-a(n))  Y(n,d) = (X(n,d)-a(n))*rsqrt(v(n)/D + 0.5)*g(d) }",
    "pooling": "def f(double(H,W) I) -> (O) { O(h,w) max=! I(2*h+i,2*w+j) where i in 0:2, j in 0:2 }",
    "smallest": "def f(double(N,D) X) -> (O) { O(n) min=! X(n,d) * X(n,d) }",
    "product": "def f(double(N,D) X) -> (O) { O(n) *=! X(n,d) }",
    "reversed": "def f(double(N) X) -> (O) { O(i) = X(N-1-i) * X(i) }",
    "diagonal": "def f(double(N,N) X) -> (O) { O(i) = X(i,i) * X(0,i) }",
    "transposed": "def f(double(N,M) X) -> (O) { O(i,j) = tanh(X(j,i)) }",
    "upsampled": "def f(double(N) X) -> (O) { O(i) = X(i/3) * i }",
    "prefix": "def f(double(N) X) -> (O) { O(i) +=! X(j)*X(j) where i in 0:N, j in 0:i+1 }",
    "chosen": "def f(double(N) X, int(N) P) -> (O) { O(i) = P(i) > 0 ? exp(X(i)) : X(i)/3.0 }",
    "looked_up": "def f(double(N,D) T, int(M) P) -> (O) { O(m,d) = T(P(m),d) * T(P(m),d) }",
    "shifted_output": "def f(double(N) X) -> (O) { O(i) = X(i-2) * X(i-2) }",
    "two_outputs": "def f(double(N) X, double(N) Z) -> (O, P) { O(i) = X(i)*Z(i)  P(i) = sin(O(i)) }",
    "accumulated": "def f(double(N) X, double(N) Z) -> (O) { O(i) = X(i)*Z(i)  O(i) += Z(i)*Z(i) }",
    "scalar": "def f(double(N) X, double a) -> (o) { o +=! X(i) * a * a }",
    "clamped": "def f(double(N) X) -> (O) { O(i) = min(max(X(i), -0.5), 0.5) * X(i) }",
    "quotients": "def f(double(N) X, double(N) Z) -> (O) { O(i) = X(i)/(2.0 + Z(i)*Z(i)) - pow(2.0 + X(i), Z(i)) }",
    "transposed_convolution": "def f(double(H) X, double(KH) K) -> (O) { O(2*h+kh) +=! X(h) * K(kh) }",
    "sums_of_skewed": "def f(double(N,N) X) -> (O) { O(i) +=! X(i+j, i-j+2) where i in 0:2, j in 0:3 }",
    "redefined": "def f(double(N) X) -> (O) { t(i) = X(i)*X(i)  u(i) = t(i)+X(i)  t(i) = u(i)*t(i)  O(i) = t(i)*u(i) }",
    "strided_and_padded": "def f(double(H) I, double(KH) K, const int S) -> (O) "
    "{ O(h) +=! constant_exterior(I, 0)(S*h+2*kh-1) * K(kh) where h in 0:(H-KH)/S+1 }",
    "concatenated": "def f(double(N) X, double(M) Z) -> (O) { O(i) = X(i)*X(i)  O(N+j) = Z(j)*Z(j) }",
    "interleaved": "def f(double(N) X, double(N) Z) -> (O) { T(2*i) = X(i)  T(2*i+1) = sin(Z(i))  O(i) = T(i)*T(i) }",
    "read_twice": "def f(double(N) X) -> (O, P) { O(i) = X(i)*X(i)  P(i) = O(i)*X(i) where i in 0:N  }",
    "suffixes": "def f(double(N) X) -> (O) { O(i) +=! X(i)*X(j) where i in 0:N, j in i:N }",
    "triangle": "def f(double(N,N) X) -> (O) { O(j) +=! X(i,j)*X(j,i) where j in 0:N, i in 0:j+1 }",
    "names_that_are_taken": "def f(double(N) d_X, double(N) X) -> (d_O, O) "
    "{ d_O(i) = d_X(i)*X(i)  O(i) = d_O(i)*X(i) }",
    "read_outside": "def f(double(N) X) -> (O) { O(i) = exp(constant_exterior(X, 0)(i+1)) * X(i) where i in 0:N }",
    "attention": "def f(double(B,N,D) Q, double(B,M,D) K, double(B,M,D) V) -> (O) { s(b,i,j) +=! Q(b,i,d)*K(b,j,d)  "
    "m(b,i) max=! s(b,i,j)  p(b,i,j) = exp(s(b,i,j)-m(b,i))  z(b,i) +=! p(b,i,j)  "
    "O(b,i,d) +=! p(b,i,j)*V(b,j,d)/z(b,i) }",
    "a_column": "def f(double(N,W) X, int(K) P) -> (O) { O(i) = X(i,K) * X(i,K) where i in 0:N }",
    "repeated_edge": "def f(double(N) X, double(KW) K) -> (O) { O(i) +=! repeat_edge(X)(i+k-1) * K(k) where i in 0:N }",
    "mirrored": "def f(double(H,W) X) -> (O) { O(i,j) = mirror_image(X)(i-2,j+1) * X(i,j) where i in 0:H, j in 0:W }",
    "mirrored_inside": "def f(double(H,W) X) -> (O) "
    "{ O(i,j) = mirror_interior(X)(i-1,j) + mirror_interior(X)(i+1,2*j)*X(i,j) where i in 0:H, j in 0:W }",
    "repeated": "def f(double(N) X) -> (O) { O(i) = repeat_image(X)(i-3) * repeat_image(X)(i+2) where i in 0:N }",
    "part_again": "def f(double(N) X) -> (O) { O(i) = X(i)*X(i)  O(0) = sin(X(1)) }",
    "part_again_and_read": "def f(double(H,W) X) -> (O, P) { T(i,j) = X(i,j)*X(i,j)  P(i) +=! T(i,j)  "
    "T(i,1) = exp(X(i,0)) where i in 1:H  T(2,j) +=! X(i,j)*X(j,i) where i in 0:W, j in 0:W  O(i,j) = T(i,j)*X(i,j) }",
    "part_in_numbers": "def f(double(N) X) -> (O) { T(i) = double(1) where i in 0:N  T(i) = X(i)*X(i) where i in 0:3  "
    "O(i) = T(i)*X(i)  O(1) = X(0) }",
    "narrower": "def f(double(N) X) -> (O) { O(i) = X(i)*X(i+1) where i in 1:4 }",
}


def made_up(function: Any, sizes: Mapping[str, int], seed: int, lowest: float) -> list[Any]:
    """Arguments with values away from kinks and ties."""
    rng, boxes = np.random.default_rng(seed), infer(function, sizes).boxes
    result: list[Any] = []
    for tensor in function.inputs:
        if tensor.role == "const":
            result.append(sizes[tensor.name])
            continue
        shape = boxes[tensor.name].extent
        if tensor.name == "row":
            # The ends of the rows of all entries.
            entries = sizes["E"]
            result.append(np.linspace(0, entries, shape[0]).astype(numpy_dtype(tensor.dtype)))
        elif tensor.dtype.is_float:
            result.append(rng.uniform(lowest, 1, shape).astype(numpy_dtype(tensor.dtype)))
        else:
            result.append(rng.integers(0, 2, shape).astype(numpy_dtype(tensor.dtype)))
    return result


def check(operation: tcomp.Operation, sizes: Mapping[str, int], seed: int = 0, lowest: float = -1) -> None:
    """<w, (f(x + hv) - f(x - hv)) / 2h> = <gradient(x, w), v>."""
    function = operation.function
    known = {n: sizes.get(n, 3) for n in (*function.sizes, *(t.name for t in function.inputs if t.role == "const"))}
    gradient = operation.gradient()
    arguments, rng = made_up(function, known, seed, lowest), np.random.default_rng(seed + 1)
    # Where types are parameters, those made up are floats; differences want doubles.
    arguments = [a.astype(np.float64) if getattr(a, "dtype", None) == np.float32 else a for a in arguments]
    outputs = operation(*arguments)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    floats = [o for o, t in zip(outputs, function.outputs, strict=True) if t.dtype.is_float]
    cotangents = [rng.uniform(-1, 1, o.shape).astype(o.dtype) for o in floats]
    found = gradient(*arguments, *cotangents)
    found = found if isinstance(found, tuple) else (found,)
    names = [t.name for t in function.inputs]
    for name, got in zip(gradient.wrt, found, strict=True):
        x = arguments[names.index(name)]
        assert got.shape == x.shape, name
        direction, step = rng.uniform(-1, 1, x.shape), 1e-6
        sides = []
        for sign in (1, -1):
            moved = [x + sign * step * direction if n == name else a for n, a in zip(names, arguments, strict=True)]
            results = operation(*moved)
            results = results if isinstance(results, tuple) else (results,)
            kept = [o for o, t in zip(results, function.outputs, strict=True) if t.dtype.is_float]
            sides.append(sum(float(np.sum(w * o)) for w, o in zip(cotangents, kept, strict=True)))
        expected = (sides[0] - sides[1]) / (2 * step)
        scale = 1 + sum(float(np.sum(np.abs(w))) for w in cotangents)
        assert abs(expected - float(np.sum(got * direction))) < 1e-7 * scale, (name, gradient.text)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_against_differences(program: str) -> None:
    check(tcomp.define(program).f, SIZES)


LIBRARY = {
    definition.group(1): re.sub(r"=(\s+)0(\.0)?(?= where|$)", r"=\1double(0)", double, flags=re.M)
    for text in shipped.texts().values()
    for double in [re.sub(r"\bfloat\b", "double", text)]
    for definition in re.finditer(r"^def (\w+)", text, re.M)
}
"""The library's files with doubles, by def."""

NOT_YET = {
    "matmul_half",  # floats of 16 bits, which differences cannot check
    "space_to_depth", "depth_to_space",  # sizes that divide
}  # fmt: skip


@pytest.mark.sweep(20, rest=4)
@pytest.mark.parametrize("name", sorted(LIBRARY.keys() - NOT_YET))
def test_the_library_against_differences(name: str) -> None:
    operation = getattr(tcomp.define(LIBRARY[name]), name)
    if not any(tensor.dtype.is_float for tensor in operation.function.inputs):
        pytest.skip("it has no inputs of floats")
    check(operation, SIZES, lowest=0.2)


def test_second_derivatives_of_maxima() -> None:
    """The number of ties is the double it is, though only what is compared with it tells so in its text."""
    gradient = tcomp.define("def f(double(N,D) X) -> (O) { O(n) max=! X(n,d) * X(n,d) }").f.gradient()
    second = gradient.gradient("X")
    assert "ties_O(n) +=! double(X(n, d) * X(n, d) == O(n) ? 1.0 : 0.0)" in second.text
    x, w, v = np.array([[1.0, -3.0, 3.0], [2.0, 0.5, 1.0]]), np.array([5.0, 7.0]), np.ones((2, 3))
    np.testing.assert_allclose(second(x, w, v), [[0, 5, 5], [14, 0, 0]])


def test_second_derivatives() -> None:
    """Of a sum of cubes: 3 x^2, then 6 x."""
    gradient = tcomp.define("def f(double(N) X) -> (o) { o +=! X(i) * X(i) * X(i) }").f.gradient()
    x = np.linspace(-1, 2, 7)
    np.testing.assert_allclose(gradient(x, np.array(1.0)), 3 * x * x)
    second = gradient.gradient("X")
    np.testing.assert_allclose(second(x, np.array(1.0), np.ones(7)), 6 * x)


def test_text_of_a_convolution() -> None:
    """Two contractions; the one for the image reads the cotangent as 0 outside."""
    assert tcomp.define("library:conv2d").conv2d.gradient().text.splitlines()[-6:] == [
        "    # d_I: the adjoint of I",
        "    d_I(n, c, h, w) +=! constant_exterior(d_O, 0.0)(n, f, h - kh, w - kw) * K(f, c, kh, kw)",
        "        where n in 0:N, h in 0:H, w in 0:W",
        "    # d_K: the adjoint of K",
        "    d_K(f, c, kh, kw) +=! d_O(n, f, h, w) * I(n, c, h + kh, w + kw)",
        "}",
    ]


def test_products_with_zeros() -> None:
    f = tcomp.define("def f(double(N) X) -> (o) { o *=! X(i) }").f
    for x, expected in (([2.0, 0.0, 3.0], [0, 6, 0]), ([0.0, 0.0, 3.0], [0, 0, 0])):
        np.testing.assert_array_equal(f.gradient()(np.array(x), np.array(1.0)), expected)


def test_ties_share_evenly() -> None:
    f = tcomp.define("def f(float(N) X) -> (o) { o max=! X(i) }").f
    found = f.gradient()(np.array([1, 3, 3], "f4"), np.array(1, "f4"))
    np.testing.assert_array_equal(found, [0, 0.5, 0.5])


def test_the_first_of_equals() -> None:
    f = tcomp.define("def f(float(N) X) -> (o) { o max=! X(i) }").f
    found = f.gradient(ties="first")(np.array([1, 3, 3], "f4"), np.array(1, "f4"))
    np.testing.assert_array_equal(found, [0, 1, 0])
    moved = f.tangent(ties="first")(np.array([1, 3, 3], "f4"), np.array([0, 0.5, 1], "f4"))
    assert moved == 0.5
    with pytest.raises(tcomp.DerivativeError, match="not 'last'"):
        f.gradient(ties="last")


@pytest.mark.parametrize("name", ["max_pool2d", "max_pool1d", "max_pool2d_2x2"])
def test_pooling_of_equals_is_that_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    pool = tcomp.library[name]
    x = torch.randint(0, 3, (2, 3, 9, 8)[: 4 if "2d" in name else 3]).float().requires_grad_()
    constants = {"max_pool2d": (3, 2, 1), "max_pool1d": (3, 2), "max_pool2d_2x2": ()}[name]
    theirs = getattr(torch.nn.functional, name.replace("_2x2", ""))(x, *(constants or (2,)))
    d = torch.rand_like(theirs)
    (expected,) = torch.autograd.grad(theirs, x, d)
    found = pool.gradient(ties="first")(x.detach(), *constants, d)
    torch.testing.assert_close(found, expected)


def test_floats_beside_doubles() -> None:
    f = tcomp.define("def f(float(N) X, double(N) Z) -> (O) { O(i) = X(i)*Z(i) }").f
    x, z, d = np.arange(3, dtype="f4"), np.linspace(0, 1, 3), np.array([1.0, 2.0, 3.0])
    d_x, d_z = f.gradient()(x, z, d)
    assert (d_x.dtype, d_z.dtype) == (np.float32, np.float64)
    np.testing.assert_array_equal(d_x, (d * z).astype("f4"))
    np.testing.assert_array_equal(d_z, d * x)


@pytest.mark.parametrize(
    ("statement", "by_x", "by_content"),
    [
        ("O(i) += X(i) * X(i)", lambda x, c: 2 * x, lambda x, c: np.ones(4)),
        ("O(i) *= X(i)", lambda x, c: c, lambda x, c: x),
        ("O(i) max= X(i) * X(i)", lambda x, c: 2 * x * (x * x > c), lambda x, c: 1.0 * (x * x < c)),
        ("O(i) = O(i) * O(i) * X(i)", lambda x, c: c * c, lambda x, c: 2 * c * x),
    ],
)
def test_content_that_the_caller_passes(statement: str, by_x: Any, by_content: Any) -> None:
    """It is an input behind the others, and has a gradient."""
    f = tcomp.define(f"def f(double(N) X) -> (double(N) O) {{ {statement} }}").f
    x, content, move = np.linspace(-1, 1, 4), np.linspace(0.5, 0.8, 4), np.linspace(0.2, 0.4, 4)
    gradient = f.gradient()
    assert gradient.wrt == ("X", "O_in")
    d_x, d_content = gradient(x, content, np.ones(4))
    np.testing.assert_allclose(d_x, by_x(x, content))
    np.testing.assert_allclose(d_content, by_content(x, content))
    np.testing.assert_allclose(f.tangent("O_in")(x, content, move), by_content(x, content) * move)


def test_a_dilated_stride_sums_over_residues() -> None:
    """No step of the sum is in vain: ``r`` goes through those of one remainder, for all ``l`` of one together."""
    f = tcomp.define("def f(float(L) X, float(R) W) -> (Y) { Y(l) +=! X(2*l+3*r) * W(r) }").f
    assert f.gradient("X").text.splitlines()[-4:] == [
        "    d_X_phases(l_rest, l_step) +=! constant_exterior(d_Y, 0.0)(l_step - 3 * u) * W(l_rest + 2 * u)",
        "        where l_rest in 0:2, l_step in 0:(L - 1) / 2 + 1, u in 0:(R - 1 - l_rest) / 2 + 1",
        ("    d_X(l) = constant_exterior(d_X_phases, 0.0)(l % 2, (l - 3 * (l % 2)) / 2) where l in 0:L"),
        "}",
    ]


def test_constants_are_as_exact_as_the_program() -> None:
    """Literals are floats, so a program of doubles calls functions of doubles."""
    text = "def f({0}(N) X) -> (Y) {{ Y(i) = exp2(X(i)) }}"
    assert "0.6931472 * " in tcomp.define(text.format("float")).f.gradient().text
    assert "log(double(2.0)) * " in tcomp.define(text.format("double")).f.gradient().text


def test_empty_sizes() -> None:
    f = tcomp.define(PROGRAMS["matmul"]).f
    d_a, d_b = f.gradient()(np.zeros((4, 0)), np.zeros((0, 3)), np.ones((4, 3)))
    assert (d_a.shape, d_b.shape) == ((4, 0), (0, 3))


def test_half_is_summed_wide_and_rounded_once() -> None:
    f = tcomp.define("def f(half(N,M) X, half(M) v) -> (Y) { Y(n) +=! X(n,m) * v(m) }").f
    rng = np.random.default_rng(0)
    x, v, d = (rng.uniform(-1, 1, shape).astype("f2") for shape in ((300, 5), (5,), (300,)))
    expected = (x.astype("f4") * d.astype("f4")[:, None]).sum(0)
    np.testing.assert_allclose(f.gradient("v")(x, v, d).astype("f4"), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("text", "wrt", "message"),
    [
        ("def f(float(N) X, int(N) I) -> (O) { O(i) = X(i) * I(i) }", "I", "no gradient with respect to I"),
        ("def f(float(N) X) -> (O) { O(i) = X(i) }", "Z", "its inputs of floats are X"),
        ("def f(int(N) X) -> (O) { O(i) = X(i) }", None, "no input of floats"),
        ("def f(float(N) X) -> (O) { O(i) = tetragamma(X(i)) }", None, "tetragamma has no derivative"),
        ("def f(float(N) sin, float(N) X) -> (O) { O(i) = sin(i)*cos(X(i)) }", None, "the name of a tensor here"),
        (
            "def f(float(N) X) -> (O) { O(i) += X(i) where i in 0:(N > 3 ? 4 : 2) }",
            None,
            "O is read before it is written, and its extents",
        ),
    ],
)
def test_refusals(text: str, wrt: str | None, message: str) -> None:
    with pytest.raises(tcomp.DerivativeError, match=message):
        tcomp.define(text).f.gradient(wrt)


def test_a_wrong_number_of_arguments() -> None:
    gradient = tcomp.define(PROGRAMS["matmul"]).f.gradient()
    with pytest.raises(tcomp.ShapeError, match="expected 3 arguments, A, B, d_C, but got 2"):
        gradient(np.zeros((2, 2)), np.zeros((2, 2)))


def test_the_command_prints_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["gradient", "library:matmul", "--def", "matmul", "--wrt", "B"]) == 0
    assert "d_B(k, n) +=! d_C(m, n) * A(m, k)" in capsys.readouterr().out
    assert cli.main(["gradient", "library:softmax", "--def", "softmax"]) == 0
    assert "def softmax_grad(float(N, D) Y, float(N, D) d_Y)" in capsys.readouterr().out
    for save, taken in (("none", "float(N, D) X"), ("largest", "float(N) largest"), ("all", "float(N, D) Y")):
        assert cli.main(["gradient", "library:softmax", "--def", "softmax", "--save", save]) == 0
        assert taken in capsys.readouterr().out
    assert cli.main(["gradient", "library:matmul", "--def", "matmul", "--tangent"]) == 0
    assert "t_C(m, n) +=! t_A(m, k) * B(k, n) + t_B(k, n) * A(m, k)" in capsys.readouterr().out
    assert cli.main(["gradient", "library:matmul", "--def", "matmul", "--wrt", "Z"]) == 1
    assert "no gradient with respect to Z" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(name for name, row in INTRINSICS.items() if row.partials))
def test_partials_of_functions(name: str) -> None:
    """Where a function is smooth: each argument in (1.1, 1.9), which some take scaled into their domain."""
    row = INTRINSICS[name]
    inside = {"acos", "asin", "atanh", "erfinv", "normcdfinv", "erfcinv"}
    arguments = ["X(i)", "Y(i)", "Z(i)", "W(i)"][: row.arity]
    arguments = [f"{a} / 2.0" for a in arguments] if name in inside else arguments
    arguments = [f"1.0 + {a}" for a in arguments] if name == "acosh" else arguments
    inputs = ", ".join(f"double(N) {a}" for a in "XYZW"[: row.arity])
    operation = tcomp.define(f"def f({inputs}) -> (O) {{ O(i) = {name}({', '.join(arguments)}) }}").f
    check(operation, {"N": 6}, lowest=0.3)
