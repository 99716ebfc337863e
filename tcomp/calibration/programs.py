"""Small programs by which numbers are fitted: of each kind that the CPU's passes distinguish one or two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Program:
    """A def and its sizes."""

    text: str
    sizes: Mapping[str, int]


_PRODUCT = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
_TURNED = "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }"
_BATCHES = "def f(float(Q,M,K) A, float(Q,K,N) B) -> (C) { C(q,m,n) +=! A(q,m,k) * B(q,k,n) }"
_CONVOLUTION = "def f(float(C,H,W) I, float(F,C,KH,KW) K) -> (O) { O(f,h,w) +=! I(c,h+kh,w+kw) * K(f,c,kh,kw) }"
_STRIDED = "def f(float(C,H,W) I, float(F,C,KH,KW) K) -> (O) { O(f,h,w) +=! I(c,2*h+kh,2*w+kw) * K(f,c,kh,kw) }"
_SOFTMAX = """def f(float(N,D) X) -> (Y) {
  m(n) max=! X(n,d)  e(n,d) = exp(X(n,d) - m(n))  s(n) +=! e(n,d)  Y(n,d) = e(n,d) / s(n)
}"""
_NORM = """def f(float(N,D) X) -> (Y) {
  s(n) +=! X(n,d)  v(n) +=! (X(n,d) - s(n)/D) * (X(n,d) - s(n)/D)  Y(n,d) = (X(n,d) - s(n)/D) * rsqrt(v(n)/D + 1e-5)
}"""
_MLP = """def f(float(B,I) X, float(I,H) U, float(H,O) V) -> (Y) {
  h(b,j) +=! X(b,i) * U(i,j)  g(b,j) = fmax(h(b,j), 0.0)  Y(b,o) +=! g(b,j) * V(j,o)
}"""
_BLUR = """def f(float(H,W) I) -> (Y) {
  X(h,w) = (I(h,w) + I(h,w+1) + I(h,w+2)) / 3.0  Y(h,w) = (X(h,w) + X(h+1,w) + X(h+2,w)) / 3.0
}"""
_SUM = "def f(float(N,M) A, float(N,M) B) -> (C) { C(n,m) = A(n,m) + B(n,m) }"
_COLUMNS = "def f(float(N,M) A) -> (S) { S(m) +=! A(n,m) }"
_TRANSPOSE = "def f(float(N,M) A) -> (T) { T(m,n) = A(n,m) }"

PROGRAMS: Mapping[str, Program] = {
    "product": Program(_PRODUCT, {"M": 384, "K": 384, "N": 384}),
    "odd product": Program(_PRODUCT, {"M": 197, "K": 211, "N": 203}),
    "deep product": Program(_PRODUCT, {"M": 64, "K": 4096, "N": 64}),
    "small product": Program(_PRODUCT, {"M": 48, "K": 48, "N": 48}),
    "turned product": Program(_TURNED, {"M": 256, "K": 500, "N": 256}),
    "batches": Program(_BATCHES, {"Q": 200, "M": 26, "K": 72, "N": 26}),
    "convolution": Program(_CONVOLUTION, {"C": 64, "H": 30, "W": 30, "F": 64, "KH": 3, "KW": 3}),
    "strided convolution": Program(_STRIDED, {"C": 32, "H": 57, "W": 57, "F": 64, "KH": 3, "KW": 3}),
    "softmax": Program(_SOFTMAX, {"N": 512, "D": 1000}),
    "norm": Program(_NORM, {"N": 1024, "D": 768}),
    "mlp": Program(_MLP, {"B": 128, "I": 256, "H": 512, "O": 256}),
    "blur": Program(_BLUR, {"H": 1026, "W": 1026}),
    "sum": Program(_SUM, {"N": 64, "M": 1000}),
    "large sum": Program(_SUM, {"N": 1500, "M": 2048}),
    "columns": Program(_COLUMNS, {"N": 2000, "M": 1000}),
    "transpose": Program(_TRANSPOSE, {"N": 1024, "M": 1024}),
}
"""By name."""
