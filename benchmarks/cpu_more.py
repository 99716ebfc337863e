"""A second suite: other sizes, layouts and operators than the 18 workloads have.

Nothing here was looked at when the compiler's models were made; it shows whether they hold elsewhere.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from benchmarks.cpu_case import Case, Convolution, Input, contraction
from benchmarks.cpu_cases import CONV2D
from benchmarks.gpu_cases import LAYER_NORM, SOFTMAX

CONV2D_STRIDED = """
def conv2d_strided(float(N,C,H,W) I, float(F,C,KH,KW) K, const int S, const int D) -> (O) {
  O(n,f,h,w) +=! I(n,c,S*h+D*kh,S*w+D*kw) * K(f,c,kh,kw)
}
"""
DEPTHWISE_STRIDED = """
def depthwise_strided(float(N,C,H,W) I, float(C,KH,KW) K, const int S) -> (O) {
  O(n,c,h,w) +=! I(n,c,S*h+kh,S*w+kw) * K(c,kh,kw)
}
"""
CONV1D = "def conv1d(float(N,C,W) I, float(F,C,KW) K) -> (O) { O(n,f,w) +=! I(n,c,w+kw) * K(f,c,kw) }"
LOG_SOFTMAX = """
def log_softmax(float(N,D) X) -> (Y) {
  largest(n) max=! X(n,d)
  total(n)   +=!   exp(X(n,d) - largest(n))
  Y(n,d)      =    X(n,d) - largest(n) - log(total(n))
}
"""
RMS_NORM = """
def rms_norm(float(N,D) X, float(D) gamma) -> (Y) {
  squares(n) +=! X(n,d) * X(n,d)
  Y(n,d)      =  X(n,d) * rsqrt(squares(n) / D + 0.00001) * gamma(d)
}
"""
RESIDUAL_NORM = """
def residual_norm(float(N,D) X, float(N,D) R, float(D) gamma, float(D) beta) -> (Y) {
  Z(n,d)   =  X(n,d) + R(n,d)
  mean(n) +=! Z(n,d)
  mean(n)  =  mean(n) / D
  var(n)  +=! (Z(n,d) - mean(n)) * (Z(n,d) - mean(n))
  var(n)   =  var(n) / D
  Y(n,d)   =  (Z(n,d) - mean(n)) * rsqrt(var(n) + 0.00001) * gamma(d) + beta(d)
}
"""
GROUP_NORM = """
def group_norm(float(N,G,C,S) X, float(G,C) gamma, float(G,C) beta) -> (Y) {
  mean(n,g) +=! X(n,g,c,s)
  mean(n,g)  =  mean(n,g) / (C * S)
  var(n,g)  +=! (X(n,g,c,s) - mean(n,g)) * (X(n,g,c,s) - mean(n,g))
  var(n,g)   =  var(n,g) / (C * S)
  Y(n,g,c,s) =  (X(n,g,c,s) - mean(n,g)) * rsqrt(var(n,g) + 0.00001) * gamma(g,c) + beta(g,c)
}
"""
BATCH_NORM_RELU = """
def batch_norm_relu(float(N,C,H,W) X, float(C) mean, float(C) spread, float(C) gamma, float(C) beta) -> (Y) {
  Y(n,c,h,w) = relu((X(n,c,h,w) - mean(c)) * rsqrt(spread(c) * spread(c) + 0.00001) * gamma(c) + beta(c))
}
"""
GELU_LAYER = """
def gelu_layer(float(M,K) X, float(K,N) W, float(N) B) -> (O) {
  Y(m,n) +=! X(m,k) * W(k,n)
  Y(m,n)  =  Y(m,n) + B(n)
  O(m,n)  =  0.5 * Y(m,n) * (1 + tanh(0.79788456 * (Y(m,n) + 0.044715 * Y(m,n) * Y(m,n) * Y(m,n))))
}
"""
SWIGLU = "def swiglu(float(N,D) X, float(N,D) Y) -> (O) { O(n,d) = X(n,d) * sigmoid(X(n,d)) * Y(n,d) }"
COLUMN_MEANS = """
def column_means(float(N,D) X) -> (Y) {
  Y(d) +=! X(n,d)
  Y(d)  =  Y(d) / N
}
"""
ROW_SUMS = "def row_sums(float(N,D) X) -> (Y) { Y(n) +=! X(n,d) }"
TRANSPOSE = "def transpose(float(N,D) X) -> (Y) { Y(d,n) = X(n,d) }"


def _product(title: str, subscripts: str, *extents: int) -> Case:
    letters = dict.fromkeys(letter for letter in subscripts if letter.isalpha())
    sizes = list(zip(letters, extents, strict=True))
    return contraction("", f"{title} {'x'.join(map(str, extents))}", subscripts, sizes)


def _transposed_views(m: int, k: int, n: int) -> Case:
    """A product of arrays that lie in memory the other way round."""
    made = _product("A.T @ B.T, views", "mk,kn->mn", m, k, n)
    return replace(made, inputs=tuple(replace(i, order=(1, 0)) for i in made.inputs))


def _conv2d(n: int, c: int, f: int, size: int, k: int, stride: int = 1, dilation: int = 1) -> Case:
    extent = (size - dilation * (k - 1) - 1) // stride + 1
    out = (n, f, extent, extent)
    general = stride > 1 or dilation > 1
    return Case(
        "", f"conv {k}x{k} {c}->{f}, {extent}^2, stride {stride}, dilation {dilation}, batch {n}",
        CONV2D_STRIDED if general else CONV2D, Convolution(stride, dilation),
        (Input((n, c, size, size)), Input((f, c, k, k))), out, 2 * prod(out) * c * k * k,
        constants=(stride, dilation) if general else (),
    )  # fmt: skip


def _depthwise(c: int, size: int, k: int, stride: int) -> Case:
    extent = (size - k) // stride + 1
    out = (1, c, extent, extent)
    return Case(
        "", f"depthwise {k}x{k} {c}, {extent}^2, stride {stride}", DEPTHWISE_STRIDED,
        Convolution(stride, depthwise=True), (Input((1, c, size, size)), Input((c, k, k))), out,
        2 * prod(out) * k * k, "memory", (stride,),
    )  # fmt: skip


def _conv1d(n: int, c: int, f: int, width: int, k: int) -> Case:
    out = (n, f, width - k + 1)
    inputs = Input((n, c, width)), Input((f, c, k))
    return Case("", f"conv1d {k} {c}->{f}, {width}", CONV1D, Convolution(), inputs, out, 2 * prod(out) * c * k)


def _rows(name: str, text: str, n: int, d: int, operands: int = 1, vectors: int = 0, flops: int = 5) -> Case:
    shape = (n, d)
    inputs = (Input(shape),) * operands + (Input((d,)),) * vectors
    title = f"{name.replace('_', ' ')} {n}x{d}"
    return Case("", title, text, name, inputs, shape, flops * prod(shape), "memory")


def _reduced(name: str, text: str, n: int, d: int, output: tuple[int, ...]) -> Case:
    title = f"{name.replace('_', ' ')} {n}x{d}"
    return Case("", title, text, name, (Input((n, d)),), output, n * d, "memory")


def _group_norm(n: int, g: int, c: int, s: int) -> Case:
    shape = (n, g, c, s)
    inputs = Input(shape), Input((g, c)), Input((g, c))
    title = f"group norm {n}x{g}x{c}x{s}"
    return Case("", title, GROUP_NORM, "group_norm", inputs, shape, 8 * prod(shape), "memory")


def _batch_norm_relu(n: int, c: int, size: int) -> Case:
    shape = (n, c, size, size)
    inputs = (Input(shape), *(Input((c,)),) * 4)
    title = f"batch norm + relu {n}x{c}x{size}^2"
    return Case("", title, BATCH_NORM_RELU, "batch_norm_relu", inputs, shape, 5 * prod(shape), "memory")


def _gelu_layer(m: int, k: int, n: int) -> Case:
    inputs = Input((m, k)), Input((k, n)), Input((n,))
    return Case("", f"gelu(X W + b) {m}x{k}x{n}", GELU_LAYER, "gelu_layer", inputs, (m, n), m * n * (2 * k + 9))


def more(small: bool = False) -> tuple[Case, ...]:
    """The cases of the suite; ``small`` ones have the same programs at sizes for tests."""
    cases = _small() if small else _full()
    return tuple(replace(case, key=f"M{number}") for number, case in enumerate(cases, 1))


def _full() -> tuple[Case, ...]:
    return (
        _product("matmul, odd", "mk,kn->mn", 1023, 1025, 1021),
        _product("matmul, prime", "mk,kn->mn", 509, 521, 503),
        _product("matmul, tiny", "mk,kn->mn", 33, 17, 29),
        _product("matmul, skinny result", "mk,kn->mn", 4096, 512, 5),
        _product("matmul, deep", "mk,kn->mn", 48, 16384, 48),
        _product("matmul, shallow", "mk,kn->mn", 2000, 7, 2000),
        _product("A^T B", "km,kn->mn", 300, 700, 500),
        _product("A B^T", "mk,nk->mn", 1000, 300, 700),
        _product("A^T B^T", "km,nk->mn", 300, 700, 500),
        _transposed_views(384, 400, 416),
        _product("matrix-vector", "mk,k->m", 4096, 2048),
        _product("vector-matrix", "k,kn->n", 2048, 4096),
        _product("batched matmul, odd", "bnk,bkm->bnm", 100, 37, 53, 61),
        _product("heads of attention", "blhd,bshd->bhls", 2, 256, 8, 48, 256),
        _product("Kronecker step", "abnc,dn->abdc", 64, 16, 32, 64, 16),
        _conv2d(1, 3, 64, 229, 7, stride=2),
        _conv2d(1, 64, 128, 57, 3, stride=2),
        _conv2d(1, 32, 48, 60, 3, dilation=2),
        _conv2d(4, 256, 64, 28, 1),
        _conv2d(2, 17, 19, 43, 5),
        _depthwise(96, 113, 5, 1),
        _depthwise(144, 113, 3, 2),
        _conv1d(8, 64, 96, 515, 5),
        _rows("softmax", SOFTMAX, 32768, 31),
        _rows("softmax", SOFTMAX, 64, 32003),
        _rows("log_softmax", LOG_SOFTMAX, 1000, 1003),
        _rows("layer_norm", LAYER_NORM, 500, 769, vectors=2, flops=8),
        _rows("rms_norm", RMS_NORM, 2048, 1000, vectors=1, flops=4),
        _rows("residual_norm", RESIDUAL_NORM, 2048, 768, operands=2, vectors=2, flops=9),
        _group_norm(8, 16, 8, 28 * 28),
        _batch_norm_relu(8, 64, 56),
        _gelu_layer(256, 768, 1000),
        _rows("swiglu", SWIGLU, 2048, 1365, operands=2),
        _reduced("column_means", COLUMN_MEANS, 4099, 1031, (1031,)),
        _reduced("row_sums", ROW_SUMS, 4099, 1031, (4099,)),
        _reduced("transpose", TRANSPOSE, 2051, 1999, (1999, 2051)),
    )


def _small() -> tuple[Case, ...]:
    return (
        _product("matmul", "mk,kn->mn", 23, 25, 21),
        _product("A^T B", "km,kn->mn", 13, 17, 11),
        _product("A^T B^T", "km,nk->mn", 13, 17, 11),
        _transposed_views(19, 18, 17),
        _product("matrix-vector", "mk,k->m", 40, 33),
        _product("heads of attention", "blhd,bshd->bhls", 2, 9, 3, 5, 9),
        _product("Kronecker step", "abnc,dn->abdc", 4, 3, 5, 6, 4),
        _conv2d(1, 3, 4, 19, 7, stride=2),
        _conv2d(1, 3, 5, 14, 3, dilation=2),
        _conv2d(2, 6, 4, 5, 1),
        _depthwise(4, 12, 5, 1),
        _depthwise(3, 13, 3, 2),
        _conv1d(2, 3, 4, 21, 5),
        _rows("softmax", SOFTMAX, 30, 7),
        _rows("log_softmax", LOG_SOFTMAX, 10, 33),
        _rows("layer_norm", LAYER_NORM, 9, 31, vectors=2, flops=8),
        _rows("rms_norm", RMS_NORM, 12, 20, vectors=1, flops=4),
        _rows("residual_norm", RESIDUAL_NORM, 12, 20, operands=2, vectors=2, flops=9),
        _group_norm(2, 3, 4, 9),
        _batch_norm_relu(2, 3, 5),
        _gelu_layer(12, 20, 17),
        _rows("swiglu", SWIGLU, 12, 21, operands=2),
        _reduced("column_means", COLUMN_MEANS, 41, 13, (13,)),
        _reduced("row_sums", ROW_SUMS, 41, 13, (41,)),
        _reduced("transpose", TRANSPOSE, 13, 19, (19, 13)),
    )
