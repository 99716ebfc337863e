"""Programs that the tests of the GPU path take apart, with sizes that no tile divides and small enough to simulate."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Text:
    """A program whose only definition is ``f``, and its sizes; ``limits`` bounds inputs that are indices."""

    text: str
    sizes: dict[str, int]
    limits: dict[str, int] = field(default_factory=dict)


EXAMPLES = {
    "matmul": Text(
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }", {"M": 37, "K": 41, "N": 43}
    ),
    "tmm": Text("def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }", {"M": 37, "K": 41, "N": 35}),
    "matmul of halves": Text(
        "def f(float16(M,K) A, float16(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }", {"M": 48, "K": 96, "N": 48}
    ),
    "batched_matmul": Text(
        "def f(float(B,M,K) X, float(B,K,N) Y) -> (Z) { Z(b,m,n) +=! X(b,m,k) * Y(b,k,n) }",
        {"B": 3, "M": 19, "K": 26, "N": 37},
    ),
    "batches of short rows": Text(
        "def f(float(B,M,K) X, float(B,K,N) Y) -> (Z) { Z(b,m,n) +=! X(b,m,k) * Y(b,k,n) }",
        {"B": 3, "M": 14, "K": 36, "N": 18},
    ),
    "convolution": Text(
        """def f(float(N,C,H,W) I, float(F,C,KH,KW) K, float(F) B) -> (O) {
          O(n,f,h,w) +=! I(n,c,h+kh,w+kw) * K(f,c,kh,kw)
          O(n,f,h,w) = fmax(O(n,f,h,w) + B(f), 0)
        }""",
        {"N": 2, "C": 3, "H": 13, "W": 21, "F": 5, "KH": 3, "KW": 3},
    ),
    "softmax": Text(
        """def f(float(N,D) I) -> (O) {
          m(n) max=! I(n,d)
          e(n,d) = exp(I(n,d) - m(n))
          s(n) +=! e(n,d)
          O(n,d) = e(n,d) / s(n)
        }""",
        {"N": 11, "D": 203},
    ),
    "layer_norm": Text(
        """def f(float(N,D) I, float(D) G, float(D) B) -> (O) {
          mu(n) +=! I(n,d)
          mu(n) = mu(n) / D
          v(n) +=! (I(n,d) - mu(n)) * (I(n,d) - mu(n))
          v(n) = v(n) / D
          O(n,d) = (I(n,d) - mu(n)) * rsqrt(v(n) + 1e-5) * G(d) + B(d)
        }""",
        {"N": 11, "D": 203},
    ),
    "attention": Text(
        """def f(float(B,Q,D) q, float(B,K,D) k, float(B,K,D) v) -> (O) {
          s(b,i,j) +=! q(b,i,d) * k(b,j,d)
          m(b,i) max=! s(b,i,j)
          e(b,i,j) = exp((s(b,i,j) - m(b,i)) * 0.125)
          l(b,i) +=! e(b,i,j)
          a(b,i,d) +=! e(b,i,j) * v(b,j,d)
          O(b,i,d) = a(b,i,d) / l(b,i)
        }""",
        {"B": 2, "Q": 19, "K": 35, "D": 18},
    ),
    "blur": Text(
        """def f(float(H,W) I) -> (O) {
          x(h,w) = (I(h,w) + I(h,w+1) + I(h,w+2)) / 3
          O(h,w) = (x(h,w) + x(h+1,w) + x(h+2,w)) / 3
        }""",
        {"H": 21, "W": 77},
    ),
    "mlp": Text(
        """def f(float(B,M) I, float(N,M) W1, float(N) B1, float(O,N) W2, float(O) B2) -> (Y) {
          h(b,n) +=! I(b,m) * W1(n,m)
          h(b,n) = fmax(h(b,n) + B1(n), 0)
          Y(b,o) +=! h(b,n) * W2(o,n)
          Y(b,o) = fmax(Y(b,o) + B2(o), 0)
        }""",
        {"B": 21, "M": 37, "N": 19, "O": 13},
    ),
    "sum over two axes": Text("def f(float(N,H,W) I) -> (S) { S(n) +=! I(n,h,w) }", {"N": 7, "H": 21, "W": 37}),
    "transpose": Text("def f(float(M,N) A) -> (T) { T(n,m) = A(m,n) }", {"M": 37, "N": 67}),
    "gather": Text(
        "def f(float(E,D) T, int32(B) I) -> (O) { O(b,d) = T(I(b),d) }", {"E": 29, "D": 37, "B": 23}, {"I": 29}
    ),
    "lookup": Text(
        "def f(float(E,D) T, int32(B,L) I) -> (O) { O(b,d) +=! T(I(b,l),d) }",
        {"E": 29, "D": 37, "B": 23, "L": 5},
        {"I": 29},
    ),
}
