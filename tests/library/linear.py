"""Expected results of products: matrices, batches, vectors, layers, attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.library.case import Case, Cases, Draw, case, exact, functional, tensor

SHAPES = ((1, 1, 1), (5, 7, 3), (33, 17, 40))


def _products(draw: Draw, a: str, b: str, c: str) -> Cases:
    """C = A B for each of SHAPES, with the axes of the operands as ``einsum`` names them."""
    for m, n, k in SHAPES:
        extents = {"m": m, "n": n, "k": k, "b": 4}
        A, B = (draw(*(extents[axis] for axis in axes)) for axes in (a, b))
        yield case(A, B, expect=np.einsum(f"{a},{b}->{c}", exact(A), exact(B)))


class Matmul:
    def matmul(self, draw: Draw) -> Cases:
        yield from _products(draw, "mk", "kn", "mn")

    def matmul_nt(self, draw: Draw) -> Cases:
        yield from _products(draw, "mk", "nk", "mn")

    def matmul_tn(self, draw: Draw) -> Cases:
        yield from _products(draw, "km", "kn", "mn")

    def matmul_tt(self, draw: Draw) -> Cases:
        yield from _products(draw, "km", "nk", "mn")

    def addmm(self, draw: Draw) -> Cases:
        A, B, C = draw(9, 5), draw(5, 11), draw(9, 11)
        yield case(A, B, C, 1.5, -0.25, expect=1.5 * (exact(A) @ B) - 0.25 * exact(C))

    def matmul_bias(self, draw: Draw) -> Cases:
        A, B, bias = draw(9, 5), draw(5, 11), draw(11)
        yield case(A, B, bias, expect=exact(A) @ B + bias)

    def matmul_bias_relu(self, draw: Draw) -> Cases:
        A, B, bias = draw(9, 5), draw(5, 11), draw(11)
        yield case(A, B, bias, expect=np.maximum(exact(A) @ B + bias, 0))

    def matmul_half(self, draw: Draw) -> Cases:
        A, B = draw(9, 30).astype(np.float16), draw(30, 11).astype(np.float16)
        yield case(A, B, expect=(exact(A) @ exact(B)).astype(np.float16))

    def matmul_int8(self, draw: Draw) -> Cases:
        A, B = draw.below(128, 9, 300, dtype=np.int8), draw.below(128, 300, 11, dtype=np.int8)
        yield case(A, -B, expect=A.astype(np.int32) @ -B.astype(np.int32))

    def matmul_chain(self, draw: Draw) -> Cases:
        A, B, C = draw(9, 5), draw(5, 11), draw(11, 6)
        yield case(A, B, C, expect=exact(A) @ B @ C)


class BatchedMatmul:
    def batched_matmul(self, draw: Draw) -> Cases:
        yield from _products(draw, "bmk", "bkn", "bmn")

    def batched_matmul_nt(self, draw: Draw) -> Cases:
        yield from _products(draw, "bmk", "bnk", "bmn")

    def batched_matmul_tn(self, draw: Draw) -> Cases:
        yield from _products(draw, "bkm", "bkn", "bmn")

    def batched_matmul_tt(self, draw: Draw) -> Cases:
        yield from _products(draw, "bkm", "bnk", "bmn")

    def batched_matmul_shared(self, draw: Draw) -> Cases:
        yield from _products(draw, "bmk", "kn", "bmn")

    def tensordot(self, draw: Draw) -> Cases:
        X, Y = draw(2, 3, 5, 4, 7), draw(2, 5, 6, 4, 7)
        yield case(X, Y, expect=np.einsum("npchw,ncqhw->npqhw", exact(X), exact(Y)))

    def bilinear(self, draw: Draw) -> Cases:
        X, W, Y, bias = draw(5, 6), draw(4, 6, 7), draw(5, 7), draw(4)
        yield case(X, W, Y, bias, expect=functional().bilinear(*map(tensor, (X, Y, W, bias))))


class Vector:
    def dot(self, draw: Draw) -> Cases:
        for n in (1, 1000):
            X, Y = draw(n), draw(n)
            yield case(X, Y, expect=exact(X) @ Y)

    def outer(self, draw: Draw) -> Cases:
        X, Y = draw(13), draw(7)
        yield case(X, Y, expect=np.outer(exact(X), Y))

    def matvec(self, draw: Draw) -> Cases:
        A, X = draw(13, 37), draw(37)
        yield case(A, X, expect=exact(A) @ X)

    def matvec_t(self, draw: Draw) -> Cases:
        A, X = draw(13, 37), draw(13)
        yield case(A, X, expect=exact(A).T @ X)

    def axpy(self, draw: Draw) -> Cases:
        X, Y = draw(37), draw(37)
        yield case(-2.5, X, Y, expect=-2.5 * exact(X) + Y)

    def norm(self, draw: Draw) -> Cases:
        X = draw(37)
        yield case(X, expect=np.linalg.norm(exact(X)))


class Mlp:
    def linear(self, draw: Draw) -> Cases:
        X, W, bias = draw(6, 11), draw(5, 11), draw(5)
        yield case(X, W, bias, expect=functional().linear(*map(tensor, (X, W, bias))))

    def mlp1(self, draw: Draw) -> Cases:
        X, W, bias = draw(6, 11), draw(5, 11), draw(5)
        yield case(X, W, bias, expect=functional().linear(*map(tensor, (X, W, bias))).relu())

    def mlp3(self, draw: Draw) -> Cases:
        F, arrays = functional(), (draw(21, 12), draw(9, 12), draw(9), draw(7, 9), draw(7), draw(3, 7), draw(3))
        X, W1, bias1, W2, bias2, W3, bias3 = map(tensor, arrays)
        hidden = F.linear(F.linear(X, W1, bias1).relu(), W2, bias2).relu()
        yield case(*arrays, expect=F.linear(hidden, W3, bias3))

    def swiglu(self, draw: Draw) -> Cases:
        F, arrays = functional(), (draw(6, 11), draw(8, 11), draw(8, 11), draw(11, 8))
        X, gate, up, down = map(tensor, arrays)
        yield case(*arrays, expect=F.linear(F.silu(F.linear(X, gate)) * F.linear(X, up), down))

    def linear_gradient(self, draw: Draw) -> Cases:
        X, W, dY = draw(6, 11), draw(5, 11), draw(6, 5)
        x, w, bias = tensor(X).requires_grad_(), tensor(W).requires_grad_(), tensor(dY[0]).requires_grad_()
        functional().linear(x, w, bias).backward(tensor(dY))
        yield case(X, W, dY, expect=(x.grad, w.grad, bias.grad))


class Attention:
    def attention(self, draw: Draw) -> Cases:
        for queries, keys in ((1, 1), (19, 35)):
            yield _attention(draw, queries, keys)
        yield _attention(draw, 5, 9, scale_of_scores=300)

    def attention_causal(self, draw: Draw) -> Cases:
        for queries, keys in ((1, 1), (19, 19), (7, 21), (21, 7)):
            yield _attention(draw, queries, keys, is_causal=True)
        yield _attention(draw, 9, 9, scale_of_scores=300, is_causal=True)

    def attention_masked(self, draw: Draw) -> Cases:
        mask = np.where(draw(19, 35) > 0.5, np.float32(-np.inf), draw(19, 35))
        mask[:, 3] = 0
        found = _attention(draw, 19, 35, scale_of_scores=300, attn_mask=tensor(mask))
        yield Case((*found.arguments, mask), found.expected)


def _attention(draw: Draw, queries: int, keys: int, scale_of_scores: float = 4, **choices: Any) -> Case:
    """Attention by torch.  Where scores are large, exp overflows unless they are shifted first."""
    Q, K, V = scale_of_scores * draw(2, 3, queries, 8), draw(2, 3, keys, 8), draw(2, 3, keys, 5)
    attention = functional().scaled_dot_product_attention
    return case(Q, K, V, expect=attention(*map(tensor, (Q, K, V)), **choices))
