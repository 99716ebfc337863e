"""Attention and what belongs to it."""

from __future__ import annotations

import torch
from torch.nn import functional

from tests.derivatives.equivalents.case import Case, positive, real, truth, whole


def _masked(q, k, v, mask):  # type: ignore[no-untyped-def]
    return functional.scaled_dot_product_attention(q, k, v, mask, scale=1.0)


CASES = {
    "attention": Case(
        "def f(double(B,N,D) Q, double(B,M,D) K, double(B,M,E) V) -> (O) { s(b,i,j) +=! Q(b,i,d)*K(b,j,d)  "
        "s(b,i,j) = s(b,i,j)/sqrt(double(D))  m(b,i) max=! s(b,i,j)  p(b,i,j) = exp(s(b,i,j)-m(b,i))  z(b,i) +=! "
        "p(b,i,j)  O(b,i,e) +=! p(b,i,j)*V(b,j,e)  O(b,i,e) = O(b,i,e)/z(b,i) }",
        [real(2, 3, 4), real(2, 5, 4), real(2, 5, 3)],
        functional.scaled_dot_product_attention,
    ),
    "attention_causal": Case(
        "def f(double(B,L,D) Q, double(B,L,D) K, double(B,L,D) V) -> (O) { s(b,i,j) +=! j <= i ? "
        "Q(b,i,d)*K(b,j,d) : double(0)  s(b,i,j) = j <= i ? s(b,i,j) : double(-1e30)  m(b,i) max=! s(b,i,j)  "
        "p(b,i,j) = exp(s(b,i,j)-m(b,i))  z(b,i) +=! p(b,i,j)  w(b,i,j) = p(b,i,j)/z(b,i)  O(b,i,d) +=! "
        "w(b,i,j)*V(b,j,d) }",
        [real(2, 4, 3), real(2, 4, 3), real(2, 4, 3)],
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0),
    ),
    "attention_causal_by_ranges": Case(
        "def f(double(L,D) Q, double(L,D) K, double(L,D) V) -> (O) { s(i,j) +=! Q(i,d)*K(j,d)  m(i) max=! s(i,j) "
        "where i in 0:L, j in 0:i+1  z(i) +=! exp(s(i,j)-m(i)) where i in 0:L, j in 0:i+1  O(i,d) +=! "
        "exp(s(i,j)-m(i))/z(i)*V(j,d) where i in 0:L, j in 0:i+1 }",
        [real(4, 3), real(4, 3), real(4, 3)],
        lambda q, k, v: functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, scale=1.0)[
            0
        ],
    ),
    "attention_masked": Case(
        "def f(double(B,N,D) Q, double(B,M,D) K, double(B,M,D) V, bool(N,M) A) -> (O) { s(b,i,j) +=! "
        "Q(b,i,d)*K(b,j,d)  t(b,i,j) = A(i,j) || j == 0 ? s(b,i,j) : -1e30  m(b,i) max=! t(b,i,j)  p(b,i,j) = "
        "exp(t(b,i,j)-m(b,i))  z(b,i) +=! p(b,i,j)  O(b,i,d) +=! p(b,i,j)*V(b,j,d)/z(b,i) }",
        [real(2, 3, 4), real(2, 5, 4), real(2, 5, 4), truth(3, 5)],
        lambda q, k, v, a: _masked(q, k, v, a | (torch.arange(5) == 0)),
    ),
    "attention_of_grouped_heads": Case(
        "def f(double(H,N,D) Q, double(G,M,D) K, double(G,M,D) V) -> (O) { s(h,i,j) +=! Q(h,i,d)*K(h/2,j,d)  "
        "m(h,i) max=! s(h,i,j)  p(h,i,j) = exp(s(h,i,j)-m(h,i))  z(h,i) +=! p(h,i,j)  O(h,i,d) +=! "
        "p(h,i,j)*V(h/2,j,d)/z(h,i) }",
        [real(4, 3, 4), real(2, 5, 4), real(2, 5, 4)],
        lambda q, k, v: functional.scaled_dot_product_attention(
            q, k.repeat_interleave(2, 0), v.repeat_interleave(2, 0), scale=1.0
        ),
    ),
    "attention_of_one_key_head": Case(
        "def f(double(H,N,D) Q, double(M,D) K, double(M,D) V) -> (O) { s(h,i,j) +=! Q(h,i,d)*K(j,d)  p(h,i,j) = "
        "exp(s(h,i,j))  z(h,i) +=! p(h,i,j)  O(h,i,d) +=! p(h,i,j)/z(h,i)*V(j,d) }",
        [real(3, 2, 4), real(5, 4), real(5, 4)],
        lambda q, k, v: (q @ k.T).softmax(-1) @ v,
    ),
    "attention_with_alibi": Case(
        "def f(double(H,L,D) Q, double(H,L,D) K, double(H,L,D) V, double(H) a) -> (O) { s(h,i,j) +=! "
        "Q(h,i,d)*K(h,j,d)  s(h,i,j) = s(h,i,j) - a(h)*abs(i-j)  m(h,i) max=! s(h,i,j)  p(h,i,j) = "
        "exp(s(h,i,j)-m(h,i))  z(h,i) +=! p(h,i,j)  O(h,i,d) +=! p(h,i,j)*V(h,j,d)/z(h,i) }",
        [real(2, 4, 3), real(2, 4, 3), real(2, 4, 3), positive(2)],
        lambda q, k, v, a: _masked(q, k, v, -a[:, None, None] * (torch.arange(4) - torch.arange(4)[:, None]).abs()),
    ),
    "attention_of_relative_positions": Case(
        "def f(double(L,D) Q, double(L,D) K, double(2*L,D) R, double(L,D) V) -> (O) { s(i,j) +=! "
        "Q(i,d)*(K(j,d)+R(j-i+L,d))  m(i) max=! s(i,j)  p(i,j) = exp(s(i,j)-m(i))  z(i) +=! p(i,j)  O(i,d) +=! "
        "p(i,j)*V(j,d)/z(i) }",
        [real(4, 3), real(4, 3), real(8, 3), real(4, 3)],
        lambda q, k, r, v: (
            torch.einsum("id,ijd->ij", q, k[None] + r[torch.arange(4) - torch.arange(4)[:, None] + 4]).softmax(-1) @ v
        ),
    ),
    "attention_with_bias_by_bucket": Case(
        "def f(double(L,D) Q, double(L,D) K, double(E) b, int(L,L) P) -> (w) { s(i,j) +=! Q(i,d)*K(j,d)  s(i,j) "
        "= s(i,j)+b(P(i,j))  m(i) max=! s(i,j)  p(i,j) = exp(s(i,j)-m(i))  z(i) +=! p(i,j)  w(i,j) = p(i,j)/z(i) "
        "}",
        [real(4, 3), real(4, 3), real(5), whole(5, 4, 4)],
        lambda q, k, b, p: (q @ k.T + b[p.long()]).softmax(-1),
    ),
    "attention_with_soft_cap": Case(
        "def f(double(N,D) Q, double(M,D) K, double(M,D) V) -> (O) { s(i,j) +=! Q(i,d)*K(j,d)  s(i,j) = "
        "2.0*tanh(s(i,j)/2.0)  m(i) max=! s(i,j)  p(i,j) = exp(s(i,j)-m(i))  z(i) +=! p(i,j)  O(i,d) +=! "
        "p(i,j)*V(j,d)/z(i) }",
        [real(3, 4), real(5, 4), real(5, 4)],
        lambda q, k, v: (2 * (q @ k.T / 2).tanh()).softmax(-1) @ v,
    ),
    "attention_of_a_window": Case(
        "def f(double(L,D) Q, double(L,D) K, double(L,D) V) -> (O) { s(i,w) +=! Q(i,d)*constant_exterior(K, "
        "0)(i+w-1,d) where w in 0:3, d in 0:D  p(i,w) = 0 <= i+w-1 && i+w-1 < L ? exp(s(i,w)) : double(0)  z(i) "
        "+=! p(i,w)  O(i,d) +=! p(i,w)/z(i)*constant_exterior(V, 0)(i+w-1,d) where d in 0:D }",
        [real(5, 3), real(5, 3), real(5, 3)],
        lambda q, k, v: (
            (q @ k.T).masked_fill((torch.arange(5) - torch.arange(5)[:, None]).abs() > 1, -torch.inf).softmax(-1) @ v
        ),
    ),
    "linear_attention": Case(
        "def f(double(L,D) Q, double(L,D) K, double(L,E) V) -> (O) { q(i,d) = Q(i,d) > 0.0 ? Q(i,d)+1.0 : "
        "exp(Q(i,d))  k(i,d) = K(i,d) > 0.0 ? K(i,d)+1.0 : exp(K(i,d))  S(d,e) +=! k(i,d)*V(i,e)  z(d) +=! "
        "k(i,d)  n(i) +=! q(i,d)*z(d)  O(i,e) +=! q(i,d)*S(d,e)/n(i) }",
        [real(4, 3), real(4, 3), real(4, 2)],
        lambda q, k, v: (
            (functional.elu(q) + 1)
            @ ((functional.elu(k) + 1).T @ v)
            / ((functional.elu(q) + 1) @ (functional.elu(k) + 1).sum(0))[:, None]
        ),
    ),
    "rotary": Case(
        "def f(double(L,2*D) X, double(L,D) c, double(L,D) s) -> (Y) { Y(l,d) = X(l,d)*c(l,d) - X(l,d+D)*s(l,d)  "
        "Y(l,D+d) = X(l,d+D)*c(l,d) + X(l,d)*s(l,d) }",
        [real(3, 6), real(3, 3), real(3, 3)],
        lambda x, c, s: torch.cat([x[:, :3] * c - x[:, 3:] * s, x[:, 3:] * c + x[:, :3] * s], 1),
    ),
    "rotary_interleaved": Case(
        "def f(double(L,2*D) X, double(L,D) c, double(L,D) s) -> (Y) { Y(l,2*d) = X(l,2*d)*c(l,d) - "
        "X(l,2*d+1)*s(l,d)  Y(l,2*d+1) = X(l,2*d+1)*c(l,d) + X(l,2*d)*s(l,d) }",
        [real(3, 6), real(3, 3), real(3, 3)],
        lambda x, c, s: torch.stack([x[:, ::2] * c - x[:, 1::2] * s, x[:, 1::2] * c + x[:, ::2] * s], 2).flatten(1),
    ),
    "rotary_half_by_remainder": Case(
        "def f(double(L,4) X, double(L,4) c, double(L,4) s) -> (Y) { Y(l,d) = X(l,d)*c(l,d) + (d < 2 ? "
        "-X(l,(d+2)%4) : X(l,(d+2)%4))*s(l,d) }",
        [real(3, 4), real(3, 4), real(3, 4)],
        lambda x, c, s: x * c + torch.cat([-x[:, 2:], x[:, :2]], 1) * s,
    ),
    "mlp_with_residual": Case(
        "def f(double(N,D) X, double(D,H) U, double(H) a, double(H,D) V, double(D) b) -> (Y) { h(n,k) +=! "
        "X(n,d)*U(d,k)  h(n,k) = h(n,k)+a(k)  h(n,k) = h(n,k)*normcdf(h(n,k))  Y(n,d) +=! h(n,k)*V(k,d)  Y(n,d) "
        "= Y(n,d)+b(d)+X(n,d) }",
        [real(3, 4), real(4, 5), real(5), real(5, 4), real(4)],
        lambda x, u, a, v, b: functional.gelu(x @ u + a) @ v + b + x,
    ),
    "mixture_of_experts": Case(
        "def f(double(N,D) X, double(D,E) G, double(E,D,H) W) -> (Y) { g(n,e) +=! X(n,d)*G(d,e)  p(n,e) = "
        "exp(g(n,e))  z(n) +=! p(n,e)  Y(n,h) +=! p(n,e)/z(n)*X(n,d)*W(e,d,h) }",
        [real(3, 4), real(4, 2), real(2, 4, 3)],
        lambda x, g, w: torch.einsum("ne,nd,edh->nh", (x @ g).softmax(1), x, w),
    ),
    "embedding": Case(
        "def f(double(E,D) T, int(B,L) I) -> (Y) { Y(b,l,d) = T(I(b,l),d) }",
        [real(6, 3), whole(6, 2, 4)],
        lambda t, i: functional.embedding(i.long(), t),
    ),
    "embedding_bag_weighted": Case(
        "def f(double(E,D) T, int(B,L) I, double(B,L) w) -> (Y) { Y(b,d) +=! w(b,l)*T(I(b,l),d) }",
        [real(6, 3), whole(6, 2, 4), real(2, 4)],
        lambda t, i, w: torch.einsum("bl,bld->bd", w, t[i.long()]),
    ),
    "embedding_with_positions": Case(
        "def f(double(E,D) T, double(L,D) P, int(B,L) I) -> (Y) { Y(b,l,d) = tanh(T(I(b,l),d)+P(l,d)) }",
        [real(6, 3), real(4, 3), whole(6, 2, 4)],
        lambda t, p, i: (t[i.long()] + p).tanh(),
    ),
    "embedding_normalised": Case(
        "def f(double(E,D) T, int(B) I) -> (Y) { s(b) +=! T(I(b),d)*T(I(b),d)  Y(b,d) = T(I(b),d)*rsqrt(s(b)) }",
        [real(6, 3), whole(6, 4)],
        lambda t, i: functional.normalize(t[i.long()], dim=1),
    ),
    "gather_of_a_shift": Case(
        "def f(double(N,M) X, int(N) S) -> (Y) { Y(i,j) = X(i,j+S(i))*X(i,j) where j in 0:M-2 }",
        [real(4, 7), whole(3, 4)],
        lambda x, s: torch.stack([x[i, int(s[i]) : int(s[i]) + 5] for i in range(4)]) * x[:, :5],
    ),
    "cache_of_pages": Case(
        "def f(double(P,2,D) C, int(B,T) A) -> (Y) { Y(b,s,d) = C(A(b,s/2),s%2,d) where b in 0:B, s in 0:2*T }",
        [real(5, 2, 3), whole(5, 2, 3)],
        lambda c, a: c[a.long()].flatten(1, 2),
    ),
    "attention_of_indices": Case(
        "def f(double(L,D) Q, double(L,D) K, int(L,T) I) -> (S) { S(i,t) +=! Q(i,d)*K(I(i,t),d) }",
        [real(4, 3), real(4, 3), whole(4, 4, 2)],
        lambda q, k, i: torch.einsum("id,itd->it", q, k[i.long()]),
    ),
}
