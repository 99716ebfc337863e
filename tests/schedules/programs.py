"""Programs that schedules are tried on, each with small sizes."""

from __future__ import annotations

import functools
import warnings

import tcomp as tc
from tcomp.schedules import Schedule

TEXTS = {
    "blur": (
        "def blur(float(H,W) I) -> (O) { B(y,x) = I(y,x) + I(y,x+1) + I(y,x+2)  O(y,x) = B(y,x) + B(y+1,x) + B(y+2,x)}",
        {"H": 13, "W": 17},
    ),
    "mm": ("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }", {"M": 9, "N": 10, "K": 7}),
    "mlp": (
        (
            "def mlp(float(M,K) A, float(K,N) B, float(N,P) D) -> (E) "
            "{ C(m,n) +=! A(m,k) * B(k,n)  R(m,n) = fmax(C(m,n), 0)  E(m,p) +=! R(m,n) * D(n,p) }"
        ),
        {"M": 6, "N": 7, "K": 5, "P": 4},
    ),
    "rows": (
        (
            "def rows(float(N,D) X) -> (Y) "
            "{ m(n) max=! X(n,d)  e(n,d) = X(n,d) - m(n)  s(n) +=! e(n,d)  Y(n,d) = e(n,d) * s(n) }"
        ),
        {"N": 5, "D": 9},
    ),
    "chain": (
        "def chain(float(N) A) -> (D) { B(i) = A(i) + A(i+1)  C(i) = B(i) * 2 + B(i+1)  D(i) = C(i) - C(i+1) }",
        {"N": 23},
    ),
    "conv": (
        "def conv(float(N,C,H,W) I, float(M,C,R,S) K) -> (O) { O(n,m,h,w) +=! I(n,c,h+r,w+s) * K(m,c,r,s) }",
        {"N": 2, "C": 3, "H": 7, "W": 8, "M": 3, "R": 3, "S": 2},
    ),
    "two": (
        "def two(float(N) A) -> (X, Y) { B(i) = A(i) + A(i+1)  X(i) = B(i) + B(i+2)  Y(i) = B(i) * 3 }",
        {"N": 22},
    ),
    "sums": ("def sums(float(N) A) -> (s, B) { s +=! A(i)  B(i) = A(i) - s }", {"N": 9}),
    "scatter": (
        "def scatter(float(N,D) A, int32(N) at, const int V) -> (float(V,D) O) { O(at(n),d) +=! A(n,d) * 2 }",
        {"N": 6, "D": 5, "V": 4},
    ),
    "again": (
        "def again(float(N) A) -> (B) { B(i) = A(i) + 1  B(i) = B(i) * 2  C(i) = B(i) + A(i)  B(i) = B(i) + C(i) }",
        {"N": 13},
    ),
    "acc": ("def acc(float(N,M) A, float(M) v) -> (y) { y(i) += A(i,j) * v(j) }", {"N": 6, "M": 7}),
}


@functools.cache
def operation(name: str) -> tc.Operation:
    """A program of the list, ready to call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tc.ProgramWarning)
        return tc.define(TEXTS[name][0])[name]


@functools.cache
def schedule(name: str) -> Schedule:
    """Its schedule, with nothing said yet."""
    return operation(name).schedule(sizes=TEXTS[name][1], target="cpu")
