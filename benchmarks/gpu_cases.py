"""The programs that the GPU benchmark times, with their sizes on a GPU and on the simulator.

Programs and sizes are those of the benchmarks of Tensor Comprehensions (facebookresearch/TensorComprehensions,
``tc/benchmarks``), then square matmul and the rows of softmax and layer norm.  Everything is 32 bits wide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Sizes = Mapping[str, int]

WORD = 4
"""Bytes of an element."""


@dataclass(frozen=True, slots=True)
class Case:
    """A program at given sizes.

    ``flops`` and ``elements`` give, for sizes, the floating-point operations that the definition does and the elements
    that must be read or written once.  ``formula`` is the name of the same in torch (``gpu_peers``), ``library`` what
    runs it there where torch only hands it on, ``triton`` the name of a Triton kernel (``gpu_triton``), where there is
    one.  ``small`` are sizes for the simulator.
    """

    name: str
    text: str
    sizes: Sizes
    small: Sizes
    formula: str
    flops: Callable[[Sizes], int]
    elements: Callable[[Sizes], int]
    library: str = ""
    triton: str = ""

    def least_bytes(self, sizes: Sizes) -> int:
        """Bytes that no implementation can avoid to move."""
        return WORD * self.elements(sizes)

    def label(self, sizes: Sizes) -> str:
        """The sizes as text, in the program's order."""
        return " ".join(f"{name}={value}" for name, value in sizes.items())


MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,r_k) * B(r_k,n) }"
TMM = "def tmm(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,r_k) * B(n,r_k) }"
TBMM = "def tbmm(float(B,N,M) X, float(B,M,K) Y) -> (Z) { Z(b,n,k) +=! X(b,n,r_m) * Y(b,r_m,k) }"
GROUP_CONVOLUTION = """
def group_convolution(float(N,G,C,H,W) I, float(G,F,C,KH,KW) W1, float(G,F) B) -> (O) {
  O(n,g,f,h,w) +=! I(n,g,r_c,h+r_kh,w+r_kw) * W1(g,f,r_c,r_kh,r_kw)
  O(n,g,f,h,w)  =  O(n,g,f,h,w) + B(g,f)
}
"""
KRONECKER = {
    1: "def kron1(float(D2,N2) W2, float(M,N0,N1,N2) X) -> (Y) { Y(m,n0,n1,d2) +=! X(m,n0,n1,r_n2) * W2(d2,r_n2) }",
    2: "def kron2(float(D1,N1) W1, float(M,N0,N1,D2) X) -> (Y) { Y(m,n0,d1,d2) +=! X(m,n0,r_n1,d2) * W1(d1,r_n1) }",
    3: "def kron3(float(D0,N0) W0, float(M,N0,D1,D2) X) -> (Y) { Y(m,d0,d1,d2) +=! X(m,r_n0,d1,d2) * W0(d0,r_n0) }",
}
LUT1 = "def lut1(float(E1,D) LUT1, int32(B,L1) I1) -> (O1) { O1(b,d) +=! LUT1(I1(b,r_l1),d) }"
LUT2 = """
def lut2(float(E1,D) LUT1, int32(B,L1) I1, float(E2,D) LUT2, int32(B,L2) I2) -> (O1, O2) {
  O1(b,d) +=! LUT1(I1(b,r_l1),d)
  O2(b,d) +=! LUT2(I2(b,r_l2),d)
}
"""
C3 = "def c3(float(B,WX) I, float(WY,WX) W) -> (C3) { C3(b,wy) +=! I(b,r_wx) * W(wy,r_wx) }"
MLP1 = """
def mlp1(float(B,M) I, float(M,N) W1, float(N) B1) -> (O1) {
  O1(b,n) +=! I(b,r_m) * W1(r_m,n)
  O1(b,n)  =  O1(b,n) + B1(n)
  O1(b,n)  =  fmax(O1(b,n), 0)
}
"""
MLP3 = """
def mlp3(float(B,N) I, float(O,N) W2, float(O) B2, float(P,O) W3, float(P) B3, float(Q,P) W4, float(Q) B4)
    -> (O2, O3, O4) {
  O2(b,o) +=! I(b,r_n) * W2(o,r_n)
  O2(b,o)  =  O2(b,o) + B2(o)
  O2(b,o)  =  fmax(O2(b,o), 0)
  O3(b,p) +=! O2(b,r_o) * W3(p,r_o)
  O3(b,p)  =  O3(b,p) + B3(p)
  O3(b,p)  =  fmax(O3(b,p), 0)
  O4(b,q) +=! O3(b,r_p) * W4(q,r_p)
  O4(b,q)  =  O4(b,q) + B4(q)
  O4(b,q)  =  fmax(O4(b,q), 0)
}
"""
SOFTMAX = """
def softmax(float(N,D) X) -> (Y) {
  largest(n) max=! X(n,d)
  E(n,d)      =    exp(X(n,d) - largest(n))
  total(n)   +=!   E(n,d)
  Y(n,d)      =    E(n,d) / total(n)
}
"""
LAYER_NORM = """
def layer_norm(float(N,D) X, float(D) gamma, float(D) beta) -> (Y) {
  mean(n) +=! X(n,d)
  mean(n)  =  mean(n) / D
  var(n)  +=! (X(n,d) - mean(n)) * (X(n,d) - mean(n))
  var(n)   =  var(n) / D
  Y(n,d)   =  (X(n,d) - mean(n)) * rsqrt(var(n) + 0.00001) * gamma(d) + beta(d)
}
"""


def product(sizes: Sizes, names: str) -> int:
    """The product of the sizes that a text like ``"M N K"`` names."""
    return math.prod(sizes[name] for name in names.split())


def _matmul_elements(s: Sizes) -> int:
    return product(s, "M K") + product(s, "K N") + product(s, "M N")


def matmul(extent: int) -> Case:
    """Square matmul."""
    sizes = dict.fromkeys("MNK", extent)
    small = dict.fromkeys("MNK", 128)
    flops = lambda s: 2 * product(s, "M N K")  # noqa: E731  (a field's value)
    return Case(f"mm {extent}^3", MM, sizes, small, "mm", flops, _matmul_elements, "cuBLAS", "mm")


def tmm(m: int, n: int, k: int) -> Case:
    """Matmul with a transposed second factor."""
    return Case(
        f"tmm {m}x{n}x{k}", TMM, {"M": m, "N": n, "K": k}, {"M": m, "N": min(n, 256), "K": min(k, 64)},
        "tmm", lambda s: 2 * product(s, "M N K"), _matmul_elements, "cuBLAS", "tmm",
    )  # fmt: skip


def tbmm() -> Case:
    """Batched matmul."""
    return Case(
        "tbmm", TBMM, {"B": 500, "N": 26, "M": 72, "K": 26}, {"B": 20, "N": 26, "M": 72, "K": 26},
        "tbmm", lambda s: 2 * product(s, "B N M K"),
        lambda s: product(s, "B N M") + product(s, "B M K") + product(s, "B N K"), "cuBLAS",
    )  # fmt: skip


def group_convolution(channels: int, extent: int) -> Case:
    """3x3 convolution in 32 groups of ``channels`` channels, images of ``extent`` squared."""
    fixed = {"C": channels, "F": channels, "H": extent, "W": extent, "KH": 3, "KW": 3}
    small = {"N": 1, "G": 2, **fixed, "H": min(extent, 18), "W": min(extent, 18)}

    def outputs(s: Sizes) -> int:
        return product(s, "N G F") * (s["H"] - s["KH"] + 1) * (s["W"] - s["KW"] + 1)

    return Case(
        f"group convolution {channels}x{extent}^2", GROUP_CONVOLUTION, {"N": 32, "G": 32, **fixed}, small,
        "group_convolution", lambda s: outputs(s) * (2 * product(s, "C KH KW") + 1),
        lambda s: product(s, "N G C H W") + product(s, "G F C KH KW") + product(s, "G F") + outputs(s), "cuDNN",
    )  # fmt: skip


_KRONECKER_SHAPES = {1: ("M N0 N1", "N2", "D2"), 2: ("M N0 D2", "N1", "D1"), 3: ("M D1 D2", "N0", "D0")}
"""By step: the sizes that input and output share, the summed one, and the one that takes its place."""


def kronecker(step: int, n0: int, n: int) -> Case:
    """One of the three products with a factor that make a product with a Kronecker product of three 16 x ``n``."""
    shared, summed, new = _KRONECKER_SHAPES[step]
    every = {"M": 256, "D0": 16, "D1": 16, "D2": 16, "N0": n0, "N1": n, "N2": n}
    names = (*shared.split(), summed, new)
    sizes = {name: value for name, value in every.items() if name in names}
    small = {name: min(value, 8) if name in ("M", "N0", "D1") else min(value, 32) for name, value in sizes.items()}
    return Case(
        f"Kronecker3_{step} N={n0},{n},{n}", KRONECKER[step], sizes, small, f"kronecker{step}",
        lambda s: 2 * product(s, f"{shared} {summed} {new}"),
        lambda s: product(s, f"{shared} {summed}") + product(s, f"{shared} {new}") + product(s, f"{summed} {new}"),
        "cuBLAS",
    )  # fmt: skip


def lut(tables: int) -> Case:
    """Sums of 50 rows of tables of ten million; what must be read of a table are the rows that are looked up."""
    numbers = range(1, tables + 1)
    sizes = {"B": 128, "D": 64} | {f"L{n}": 50 for n in numbers} | {f"E{n}": 10_000_000 for n in numbers}
    small = {"B": 128, "D": 64} | {f"L{n}": 50 for n in numbers} | {f"E{n}": 1000 for n in numbers}
    return Case(
        f"{tables}LUT", LUT1 if tables == 1 else LUT2, sizes, small, f"lut{tables}",
        lambda s: sum(product(s, f"B L{n} D") for n in numbers),
        lambda s: sum(product(s, f"B L{n}") * (s["D"] + 1) + product(s, "B D") for n in numbers),
    )  # fmt: skip


def mlp3() -> Case:
    """Three layers, all of whose results are outputs."""
    layers = ("N O", "O P", "P Q")
    return Case(
        "MLP3", MLP3, {"B": 128, "N": 128, "O": 64, "P": 32, "Q": 2}, {"B": 128, "N": 128, "O": 64, "P": 32, "Q": 2},
        "mlp3", lambda s: sum(2 * s["B"] * product(s, pair) + 2 * s["B"] * s[pair[-1]] for pair in layers),
        lambda s: product(s, "B N") + sum(product(s, pair) + s[pair[-1]] + s["B"] * s[pair[-1]] for pair in layers),
        "cuBLAS",
    )  # fmt: skip


def softmax(rows: int, columns: int) -> Case:
    """Softmax of each row."""
    return Case(
        f"softmax {rows}x{columns}", SOFTMAX, {"N": rows, "D": columns}, {"N": 256, "D": 256},
        "softmax", lambda s: 5 * product(s, "N D"), lambda s: 2 * product(s, "N D"), triton="softmax",
    )  # fmt: skip


def layer_norm(rows: int, columns: int) -> Case:
    """Layer norm of each row, with scale and shift."""
    return Case(
        f"layer norm {rows}x{columns}", LAYER_NORM, {"N": rows, "D": columns}, {"N": 256, "D": 256},
        "layer_norm", lambda s: 8 * product(s, "N D"), lambda s: 2 * product(s, "N D") + 2 * s["D"],
    )  # fmt: skip


CASES: tuple[Case, ...] = (
    matmul(4096),
    *(matmul(extent) for extent in (777, 1000, 1536, 4099)),
    tmm(128, 256, 32),
    tmm(128, 1024, 1024),
    tmm(128, 16384, 4096),
    tbmm(),
    group_convolution(4, 56),
    group_convolution(8, 28),
    group_convolution(16, 14),
    group_convolution(32, 7),
    Case(
        "C3", C3, {"B": 128, "WX": 1000, "WY": 1024}, {"B": 128, "WX": 100, "WY": 256}, "tmm",
        lambda s: 2 * product(s, "B WX WY"),
        lambda s: product(s, "B WX") + product(s, "WY WX") + product(s, "B WY"), "cuBLAS", "tmm",
    ),
    Case(
        "MLP1", MLP1, {"B": 128, "M": 2000, "N": 128}, {"B": 128, "M": 200, "N": 128}, "mlp1",
        lambda s: 2 * product(s, "B M N") + 2 * product(s, "B N"),
        lambda s: product(s, "B M") + product(s, "M N") + s["N"] + product(s, "B N"), "cuBLAS",
    ),
    mlp3(),
    softmax(4096, 1024),
    softmax(4096, 12672),
    layer_norm(4096, 1024),
    layer_norm(4096, 8192),
    lut(1),
    lut(2),
    *(kronecker(step, n0, n) for n0, n in ((32, 32), (64, 64), (64, 128)) for step in (1, 2, 3)),
)  # fmt: skip
"""Every case; where time runs out the last ones are left out."""

QUICK = ("mm 4096^3", "tmm 128x1024x1024", "group convolution 8x28^2", "MLP3", "1LUT", "softmax 4096x1024")
"""What ``--quick`` runs."""

TUNED = (
    *("tmm 128x1024x1024", "tbmm", "group convolution 16x14^2", "group convolution 32x7^2", "C3", "MLP1", "MLP3"),
    *("1LUT", "Kronecker3_1 N=64,128,128", "tmm 128x256x32", "tmm 128x16384x4096", "2LUT"),
    *("group convolution 4x56^2", "group convolution 8x28^2", "Kronecker3_2 N=64,128,128"),
)
"""What is tuned, of the cases of Tensor Comprehensions; where time runs out the last ones are left out."""

COPY = "copy of 1 GiB"
"""An item beside the cases on a device: the bandwidth that it really has."""

BY_NAME = {case.name: case for case in CASES}


def different(names: Sequence[str]) -> tuple[str, ...]:
    """Those names whose cases differ at small sizes."""
    found = {(BY_NAME[name].text, *BY_NAME[name].small.values()): name for name in reversed(names)}
    return tuple(reversed(found.values()))
