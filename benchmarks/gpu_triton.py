"""Triton kernels for the benchmark, after Triton's tutorials 02 (softmax) and 03 (matmul), in full float32."""

# The bodies of Triton's kernels are not Python, and their parameters have no types.
# mypy: disable-error-code="untyped-decorator,no-untyped-def"

from __future__ import annotations

from collections.abc import Callable

import triton
import triton.language as tl
from torch import Tensor

_SHAPES = (
    (128, 128, 16, 8, 3),
    (128, 128, 32, 8, 2),
    (128, 64, 32, 4, 3),
    (64, 128, 32, 4, 3),
    (64, 64, 32, 4, 3),
    (32, 64, 64, 4, 3),
    (32, 32, 64, 4, 4),
)
"""Rows, columns, depth, warps and stages that are tried for each matmul."""


@triton.autotune(
    [triton.Config({"BM": m, "BN": n, "BK": k}, num_warps=w, num_stages=s) for m, n, k, w, s in _SHAPES],
    key=["M", "N", "K"],
)
@triton.jit
def _matmul(
    a, b, c, M, N, K, a_row, a_column, b_row, b_column, c_row,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    columns = tl.cdiv(N, BN)
    tile = tl.program_id(0)
    # Groups of eight rows of tiles, so that what a wave reads stays in L2.
    group = 8 * columns
    first = tile // group * 8
    height = min(tl.cdiv(M, BM) - first, 8)
    row = first + tile % group % height
    column = tile % group // height
    rm = (row * BM + tl.arange(0, BM)) % M
    rn = (column * BN + tl.arange(0, BN)) % N
    rk = tl.arange(0, BK)
    pa = a + rm[:, None] * a_row + rk[None, :] * a_column
    pb = b + rk[:, None] * b_row + rn[None, :] * b_column
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        left = K - k * BK
        x = tl.load(pa, mask=rk[None, :] < left, other=0.0)
        y = tl.load(pb, mask=rk[:, None] < left, other=0.0)
        total = tl.dot(x, y, total, input_precision="ieee")
        pa += BK * a_column
        pb += BK * b_row
    wm = row * BM + tl.arange(0, BM)
    wn = column * BN + tl.arange(0, BN)
    tl.store(c + wm[:, None] * c_row + wn[None, :], total, mask=(wm[:, None] < M) & (wn[None, :] < N))


@triton.jit
def _softmax(x, y, row_stride, D, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < D
    values = tl.load(x + row * row_stride + columns, mask=inside, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row * row_stride + columns, powers / tl.sum(powers, axis=0), mask=inside)


def mm(a: Tensor, b: Tensor) -> Tensor:
    """A matrix product; any strides."""
    (m, k), n = a.shape, b.shape[1]
    c = a.new_empty(m, n)
    _matmul[lambda s: (triton.cdiv(m, s["BM"]) * triton.cdiv(n, s["BN"]),)](
        a, b, c, m, n, k, *a.stride(), *b.stride(), c.stride(0)
    )
    return c


def softmax(x: Tensor) -> Tensor:
    """Softmax of each row, one program a row."""
    y = x.new_empty(x.shape)
    block = triton.next_power_of_2(x.shape[1])
    _softmax[(x.shape[0],)](x, y, x.stride(0), x.shape[1], BLOCK=block, num_warps=max(4, min(16, block // 512)))
    return y


KERNELS: dict[str, Callable[..., Tensor]] = {
    "mm": mm,
    "tmm": lambda a, b: mm(a, b.t()),
    "softmax": softmax,
}
"""By the name that a case gives."""
