"""The 18 workloads of the CPU benchmark (W4 at two sizes), full size or small."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from benchmarks.cpu_case import Case, Convolution, Input, contraction
from benchmarks.gpu_cases import GROUP_CONVOLUTION, LAYER_NORM, LUT1, MLP1, MM, SOFTMAX, TBMM, TMM

CONV2D = "def conv2d(float(N,C,H,W) I, float(F,C,KH,KW) K) -> (O) { O(n,f,h,w) +=! I(n,c,h+kh,w+kw) * K(f,c,kh,kw) }"
DEPTHWISE = """
def depthwise(float(N,C,H,W) I, float(C,KH,KW) K) -> (O) { O(n,c,h,w) +=! I(n,c,h+kh,w+kw) * K(c,kh,kw) }
"""
MLP3 = """
def mlp3(float(B,N) I, float(O,N) W2, float(O) B2, float(P,O) W3, float(P) B3, float(Q,P) W4, float(Q) B4) -> (O4) {
  O2(b,o) +=! I(b,n) * W2(o,n)
  O2(b,o)  =  relu(O2(b,o) + B2(o))
  O3(b,p) +=! O2(b,o) * W3(p,o)
  O3(b,p)  =  relu(O3(b,p) + B3(p))
  O4(b,q) +=! O3(b,p) * W4(q,p)
  O4(b,q)  =  relu(O4(b,q) + B4(q))
}
"""
BLUR = """
def blur(float(H,W) I) -> (O) {
  T(h,w) = (I(h,w) + I(h,w+1) + I(h,w+2)) * 0.33333334
  O(h,w) = (T(h,w) + T(h+1,w) + T(h+2,w)) * 0.33333334
}
"""
RELU_TANH = """
def relu_tanh(float(N) A, float(N) B, float(N) C, float(N) D) -> (O) { O(n) = relu(A(n) * B(n) + C(n)) * tanh(D(n)) }
"""
INT8_MM = "def mm(int8(M,K) A, int8(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
ATTENTION = """
def attention(float(B,L,D) Q, float(B,S,D) K, float(B,S,E) V) -> (O) {
  score(b,l,s)   +=!   Q(b,l,d) * K(b,s,d)
  largest(b,l)   max=! score(b,l,s)
  weight(b,l,s)   =    exp((score(b,l,s) - largest(b,l)) * 0.125)
  total(b,l)     +=!   weight(b,l,s)
  O(b,l,e)       +=!   weight(b,l,s) * V(b,s,e)
  O(b,l,e)        =    O(b,l,e) / total(b,l)
}
"""

Sizes = Mapping[str, int]


def _times(sizes: Sizes) -> str:
    return "x".join(str(value) for value in sizes.values())


def _matmul(s: Sizes) -> Case:
    return contraction("", f"matmul {_times(s)}", "mk,kn->mn", list(s.items()), MM)


def _batched(s: Sizes) -> Case:
    return contraction("", f"batched matmul {_times(s)}", "bnk,bkm->bnm", list(s.items()), TBMM)


def _transposed(s: Sizes) -> Case:
    return contraction("", f"A B^T {_times(s)}", "mk,nk->mn", list(s.items()), TMM)


def _conv2d(s: Sizes) -> Case:
    n, c, f, size, k = s["n"], s["c"], s["f"], s["size"], s["k"]
    out = (n, f, size - k + 1, size - k + 1)
    inputs = Input((n, c, size, size)), Input((f, c, k, k))
    return Case("", f"conv {k}x{k} {c}->{f}, {out[2]}^2", CONV2D, Convolution(), inputs, out, 2 * prod(out) * c * k * k)


def _grouped(s: Sizes) -> Case:
    n, g, c, f, size, k = s["n"], s["g"], s["c"], s["f"], s["size"], s["k"]
    out = (n, g, f, size - k + 1, size - k + 1)
    inputs = Input((n, g, c, size, size)), Input((g, f, c, k, k)), Input((g, f))
    title = f"group conv {g}x{c}->{f}, {out[3]}^2"
    formula = Convolution(group_axis=True)
    return Case("", title, GROUP_CONVOLUTION, formula, inputs, out, prod(out) * (2 * c * k * k + 1))


def _depthwise(s: Sizes) -> Case:
    c, size, k = s["c"], s["size"], s["k"]
    out = (1, c, size - k + 1, size - k + 1)
    inputs = Input((1, c, size, size)), Input((c, k, k))
    title = f"depthwise {k}x{k} {c}, {out[2]}^2"
    return Case("", title, DEPTHWISE, Convolution(depthwise=True), inputs, out, 2 * prod(out) * k * k, "memory")


def _layer(s: Sizes) -> Case:
    m, k, n = s["m"], s["k"], s["n"]
    inputs = Input((m, k)), Input((k, n)), Input((n,))
    return Case("", f"relu(X W + b) {_times(s)}", MLP1, "layer", inputs, (m, n), 2 * m * n * (k + 1))


def _mlp3(s: Sizes) -> Case:
    batch, widths = s["b"], [s["n"], s["o"], s["p"], s["q"]]
    pairs = list(pairwise(widths))
    layers = [Input(shape) for into, out in pairs for shape in ((out, into), (out,))]
    flops = sum(2 * batch * out * (into + 1) for into, out in pairs)
    title = f"MLP3 {batch}x{'->'.join(map(str, widths))}"
    return Case("", title, MLP3, "mlp3", (Input((batch, widths[0])), *layers), (batch, widths[3]), flops)


def _softmax(s: Sizes) -> Case:
    shape = s["n"], s["d"]
    return Case("", f"softmax {_times(s)}", SOFTMAX, "softmax", (Input(shape),), shape, 5 * prod(shape), "memory")


def _layer_norm(s: Sizes) -> Case:
    shape, d = (s["n"], s["d"]), (s["d"],)
    inputs = Input(shape), Input(d), Input(d)
    return Case("", f"layer norm {_times(s)}", LAYER_NORM, "layer_norm", inputs, shape, 8 * prod(shape), "memory")


def _blur(s: Sizes) -> Case:
    size = s["size"]
    out = (size - 2, size - 2)
    return Case("", f"blur 3x3 {size}^2", BLUR, "blur", (Input((size, size)),), out, 6 * prod(out), "memory")


def _lut(s: Sizes) -> Case:
    e, d, b, rows = s["e"], s["d"], s["b"], s["l"]
    inputs = Input((e, d)), Input((b, rows), "int32", below=e)
    flops, read = b * rows * d, 4 * b * rows * (d + 1)
    return Case("", f"LUT {_times(s)}", LUT1, "lut", inputs, (b, d), flops, "memory", read_bytes=read)


def _relu_tanh(s: Sizes) -> Case:
    shape = (s["n"],)
    inputs = (Input(shape),) * 4
    return Case("", f"relu(a b+c) tanh(d) {s['n']}", RELU_TANH, "relu_tanh", inputs, shape, 5 * s["n"], "memory")


def _reordered(s: Sizes) -> Case:
    return contraction("", "C[abcd]=A[aebf]B[dfce]", "aebf,dfce->abcd", list(s.items()))


def _int8(s: Sizes) -> Case:
    made = contraction("", f"int8 matmul {_times(s)}", "mk,kn->mn", list(s.items()), INT8_MM)
    return replace(made, inputs=tuple(replace(i, dtype="int8") for i in made.inputs), bound="int8")


def _attention(s: Sizes) -> Case:
    b, length, d = s["b"], s["l"], s["d"]
    shape = (b, length, d)
    title = f"attention {_times(s)}"
    return Case("", title, ATTENTION, "attention", (Input(shape),) * 3, shape, 4 * prod(shape) * length)


@dataclass(frozen=True, slots=True)
class Workload:
    """A key of the table, what makes its case from sizes, and the sizes: those measured, and small ones for tests."""

    key: str
    make: Callable[[Sizes], Case]
    full: Sizes
    small: Sizes


def _mkn(m: int, k: int, n: int) -> Sizes:
    return {"m": m, "k": k, "n": n}


def _bnkm(b: int) -> Sizes:
    return {"b": b, "n": 26, "k": 72, "m": 26}


WORKLOADS = (
    Workload("W1", _matmul, _mkn(1024, 1024, 1024), _mkn(33, 17, 40)),
    Workload("W2", _matmul, _mkn(512, 512, 512), _mkn(64, 64, 64)),
    Workload("W3", _matmul, _mkn(4096, 64, 64), _mkn(70, 8, 8)),
    Workload("W4", _batched, _bnkm(64), _bnkm(3)),
    Workload("W4b", _batched, _bnkm(500), _bnkm(5)),
    Workload("W5", _transposed, {"m": 128, "n": 32, "k": 256}, {"m": 20, "n": 9, "k": 30}),
    Workload(
        "W6", _conv2d,
        {"n": 1, "c": 64, "f": 64, "size": 58, "k": 3}, {"n": 1, "c": 5, "f": 6, "size": 12, "k": 3},
    ),
    Workload(
        "W7", _grouped,
        {"n": 8, "g": 32, "c": 4, "f": 4, "size": 28, "k": 3}, {"n": 2, "g": 3, "c": 4, "f": 4, "size": 9, "k": 3},
    ),
    Workload("W8", _depthwise, {"c": 128, "size": 58, "k": 3}, {"c": 5, "size": 12, "k": 3}),
    Workload("W9", _layer, _mkn(128, 512, 256), _mkn(20, 30, 17)),
    Workload(
        "W10", _mlp3,
        {"b": 128, "n": 128, "o": 64, "p": 32, "q": 2}, {"b": 10, "n": 12, "o": 8, "p": 6, "q": 2},
    ),
    Workload("W11", _softmax, {"n": 4096, "d": 1024}, {"n": 20, "d": 50}),
    Workload("W12", _layer_norm, {"n": 4096, "d": 1024}, {"n": 20, "d": 50}),
    Workload("W13", _blur, {"size": 2048}, {"size": 40}),
    Workload("W14", _lut, {"e": 10000, "d": 64, "b": 128, "l": 50}, {"e": 30, "d": 16, "b": 8, "l": 5}),
    Workload("W15", _relu_tanh, {"n": 8 << 20}, {"n": 1000}),
    Workload(
        "W16", _reordered,
        {"a": 24, "b": 32, "c": 24, "d": 32, "e": 24, "f": 24}, {"a": 4, "b": 6, "c": 5, "d": 3, "e": 4, "f": 2},
    ),
    Workload("W17", _int8, _mkn(512, 512, 512), _mkn(24, 33, 40)),
    Workload("W18", _attention, {"b": 16, "l": 256, "d": 64}, {"b": 2, "l": 20, "d": 8}),
)  # fmt: skip


def workloads(small: bool = False) -> tuple[Case, ...]:
    """The cases of the table, in its order."""
    return tuple(replace(w.make(w.small if small else w.full), key=w.key) for w in WORKLOADS)
