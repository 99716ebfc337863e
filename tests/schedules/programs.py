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
"""Those that random schedules are drawn for, too."""

MORE = {
    "time": (
        (
            "def time(float(N) A) -> (T3) { T1(i) = A(i) + A(i+1) + A(i+2)  T2(i) = T1(i) + T1(i+1) + T1(i+2)  "
            "T3(i) = T2(i) + T2(i+1) + T2(i+2) }"
        ),
        {"N": 19},
    ),
    "stencil": (
        ("def stencil(float(H,W) A) -> (C) { B(i,j) = A(i,j) + A(i+2,j+2)  C(i,j) = B(i,j) + B(i+1,j+2) + B(i+2,j) }"),
        {"H": 11, "W": 12},
    ),
    "scan": (
        (
            "def scan(float(N,M) A) -> (Y) "
            "{ S(n,i) +=! A(n,j) where i in 0:M, j in 0:i+1  Y(n,i) = S(n,i) * 2 - S(n,0) }"
        ),
        {"N": 4, "M": 7},
    ),
    "edges": (
        (
            "def edges(float(H,W) A) -> (O) { B(i,j) = A(i,j) * 2  "
            "O(i,j) = repeat_edge(B)(i-1,j) + repeat_edge(B)(i,j+1) where i in 0:H, j in 0:W }"
        ),
        {"H": 7, "W": 8},
    ),
    "mirror": (
        "def mirror(float(N) A) -> (O) { B(i) = A(i) + 1  O(i) = mirror_image(B)(i-2) where i in 0:N }",
        {"N": 9},
    ),
    "ring": ("def ring(float(N) A) -> (O) { B(i) = A(i) * 3  O(i) = repeat_image(B)(i+3) where i in 0:N }", {"N": 9}),
    "inplace": (
        (
            "def inplace(float(N,N) A) -> (B) { B(i,j) = A(i,j) + 1  B(i,j) = B(i,j) * B(i,j)  "
            "B(i,j) = B(i,j) - B(N-1-j, i) where i in 0:N, j in 0:N }"
        ),
        {"N": 5},
    ),
    "update": (
        (
            "def update(float(N,M) A, float(N) x) -> (y, z) "
            "{ y(i) = x(i)  y(i) += A(i,j) * x(j)  z(i) max=! y(i) + A(i,j) }"
        ),
        {"N": 6, "M": 6},
    ),
    "twice": (
        (
            "def twice(float(N,D) X) -> (Y) "
            "{ m(n) +=! X(n,d)  v(n) +=! (X(n,d) - m(n)) * X(n,d)  Y(n,d) = X(n,d) * v(n) - m(n) }"
        ),
        {"N": 4, "D": 5},
    ),
    "power": (
        "def power(float(N,N) A) -> (Q) { P(i,j) +=! A(i,k) * A(k,j)  Q(i,j) +=! P(i,k) * A(k,j) }",
        {"N": 5},
    ),
    "pool": (
        (
            "def pool(float(H,W) I) -> (P, Q) { R(y,x) = relu(I(y,x))  "
            "P(y,x) max=! R(2*y+a, 2*x+b) where a in 0:2, b in 0:2  Q(y,x) = R(2*y,2*x) + P(y,x) }"
        ),
        {"H": 8, "W": 10},
    ),
    "halves": (
        ("def halves(float(N) A) -> (O) { B(2*i) = A(i)  B(2*i+1) = A(i) + 1  O(i) = B(i) + B(N-1-i) where i in 0:N }"),
        {"N": 10},
    ),
    "attend": (
        (
            "def attend(float(L,D) Q, float(S,D) K, float(S,E) V) -> (O) "
            "{ s(l,t) +=! Q(l,d) * K(t,d)  m(l) max=! s(l,t)  p(l,t) = s(l,t) - m(l)  O(l,e) +=! p(l,t) * V(t,e) }"
        ),
        {"L": 4, "S": 5, "D": 3, "E": 3},
    ),
    "places": (
        "def places(float(N,D) X) -> (at, v) { at(n) argmax=! X(n,d)  v(n) = X(n,at(n)) }",
        {"N": 4, "D": 6},
    ),
}


@functools.cache
def operation(name: str) -> tc.Operation:
    """A program of the list, ready to call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tc.ProgramWarning)
        return tc.define((TEXTS | MORE)[name][0])[name]


@functools.cache
def schedule(name: str) -> Schedule:
    """Its schedule, with nothing said yet."""
    return operation(name).schedule(sizes=(TEXTS | MORE)[name][1], target="cpu")
