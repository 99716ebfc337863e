"""Convolutions and pools."""

from __future__ import annotations

import torch
from torch.nn import functional

from tests.derivatives.equivalents.case import Case, real

CASES = {
    "conv1d": Case(
        "def f(double(N,C,L) X, double(K,C,R) W) -> (Y) { Y(n,k,l) +=! X(n,c,l+r) * W(k,c,r) }",
        [real(2, 3, 9), real(4, 3, 3)],
        functional.conv1d,
    ),
    "conv1d_stride_2": Case(
        "def f(double(N,C,L) X, double(K,C,R) W) -> (Y) { Y(n,k,l) +=! X(n,c,2*l+r) * W(k,c,r) }",
        [real(2, 3, 10), real(4, 3, 3)],
        lambda x, w: functional.conv1d(x, w, stride=2),
    ),
    "conv1d_stride_3_longer_than_the_kernel": Case(
        "def f(double(N,C,L) X, double(K,C,2) W) -> (Y) { Y(n,k,l) +=! X(n,c,3*l+r) * W(k,c,r) }",
        [real(2, 3, 10), real(4, 3, 2)],
        lambda x, w: functional.conv1d(x, w, stride=3),
    ),
    "conv1d_dilated": Case(
        "def f(double(N,C,L) X, double(K,C,R) W) -> (Y) { Y(n,k,l) +=! X(n,c,l+3*r) * W(k,c,r) }",
        [real(2, 3, 12), real(4, 3, 3)],
        lambda x, w: functional.conv1d(x, w, dilation=3),
    ),
    "conv1d_stride_2_dilation_3": Case(
        "def f(double(N,C,L) X, double(K,C,R) W) -> (Y) { Y(n,k,l) +=! X(n,c,2*l+3*r) * W(k,c,r) }",
        [real(2, 3, 14), real(4, 3, 4)],
        lambda x, w: functional.conv1d(x, w, stride=2, dilation=3),
    ),
    "conv1d_stride_4_dilation_2": Case(
        "def f(double(N,C,L) X, double(K,C,R) W) -> (Y) { Y(n,k,l) +=! X(n,c,4*l+2*r) * W(k,c,r) }",
        [real(2, 3, 17), real(4, 3, 4)],
        lambda x, w: functional.conv1d(x, w, stride=4, dilation=2),
    ),
    "conv1d_stride_2_dilation_2_padded": Case(
        "def f(double(N,C,L) X, double(K,C,R) W) -> (Y) { Y(n,k,l) +=! constant_exterior(X, 0)(n,c,2*l+2*r-3) * "
        "W(k,c,r) where l in 0:(L+6-2*(R-1)-1)/2+1, n in 0:N }",
        [real(2, 3, 12), real(4, 3, 3)],
        lambda x, w: functional.conv1d(x, w, stride=2, dilation=2, padding=3),
    ),
    "conv1d_symbolic": Case(
        "def f(double(N,C,L) X, double(K,C,R) W, const int S, const int D, const int P) -> (Y) { Y(n,k,l) +=! "
        "constant_exterior(X, 0)(n,c,S*l+D*r-P) * W(k,c,r) where n in 0:N, l in 0:(L+2*P-D*(R-1)-1)/S+1 }",
        [real(2, 3, 12), real(4, 3, 3), 2, 3, 2],
        lambda x, w, s, d, p: functional.conv1d(x, w, stride=s, dilation=d, padding=p),
    ),
    "conv2d_same": Case(
        "def f(double(N,C,H,W) X, double(K,C,3,3) G, double(K) b) -> (Y) { Y(n,k,h,w) +=! constant_exterior(X, "
        "0)(n,c,h+r-1,w+s-1) * G(k,c,r,s) where n in 0:N, h in 0:H, w in 0:W Y(n,k,h,w) = Y(n,k,h,w) + b(k) }",
        [real(2, 3, 5, 6), real(4, 3, 3, 3), real(4)],
        lambda x, w, b: functional.conv2d(x, w, b, padding=1),
    ),
    "conv2d_grouped": Case(
        "def f(double(N,G,C,H,W) X, double(G,K,C,R,S) V) -> (Y) { Y(n,g,k,h,w) +=! X(n,g,c,h+r,w+s) * V(g,k,c,r,s) }",
        [real(2, 2, 3, 5, 6), real(2, 2, 3, 3, 2)],
        lambda x, w: functional.conv2d(x.flatten(1, 2), w.flatten(0, 1), groups=2).unflatten(1, (2, 2)),
    ),
    "conv2d_grouped_by_quotients": Case(
        "def f(double(N,C,H,W) X, double(K,2,R,S) V) -> (Y) { Y(n,k,h,w) +=! X(n,2*(k/2)+c,h+r,w+s) * V(k,c,r,s) "
        "where k in 0:K, c in 0:2 }",
        [real(2, 6, 5, 6), real(6, 2, 3, 2)],
        lambda x, w: functional.conv2d(x, w, groups=3),
    ),
    "depthwise": Case(
        "def f(double(N,C,H,W) X, double(C,R,S) V) -> (Y) { Y(n,c,h,w) +=! X(n,c,2*h+r,w+s) * V(c,r,s) }",
        [real(2, 3, 7, 6), real(3, 3, 2)],
        lambda x, w: functional.conv2d(x, w[:, None], stride=(2, 1), groups=3),
    ),
    "depthwise_with_multiplier": Case(
        "def f(double(N,C,H,W) X, double(C,M,R,S) V) -> (Y) { Y(n,2*c+m,h,w) +=! X(n,c,h+r,w+s) * V(c,m,r,s) "
        "where m in 0:2 }",
        [real(2, 3, 5, 6), real(3, 2, 3, 2)],
        lambda x, w: functional.conv2d(x, w.reshape(6, 1, 3, 2), groups=3),
    ),
    "separable": Case(
        "def f(double(H,W) X, double(R) u, double(S) v) -> (Y) { t(h,w) +=! X(h+r,w) * u(r)  Y(h,w) +=! t(h,w+s) "
        "* v(s) }",
        [real(7, 8), real(3), real(4)],
        lambda x, u, v: functional.conv2d(x[None, None], (u[:, None] * v)[None, None])[0, 0],
    ),
    "conv3d": Case(
        "def f(double(N,C,A,H,W) X, double(K,C,Q,R,S) V) -> (Y) { Y(n,k,a,h,w) +=! X(n,c,a+q,2*h+r,w+2*s) * "
        "V(k,c,q,r,s) }",
        [real(1, 2, 4, 5, 6), real(2, 2, 2, 2, 2)],
        lambda x, w: functional.conv3d(x, w, stride=(1, 2, 1), dilation=(1, 1, 2)),
    ),
    "conv_transpose1d": Case(
        "def f(double(N,C,L) X, double(C,K,R) W) -> (Y) { Y(n,k,2*l+r) +=! X(n,c,l) * W(c,k,r) }",
        [real(2, 3, 5), real(3, 4, 3)],
        lambda x, w: functional.conv_transpose1d(x, w, stride=2),
    ),
    "conv_transpose1d_dilated": Case(
        "def f(double(N,C,L) X, double(C,K,R) W) -> (Y) { Y(n,k,i) = double(0) where n in 0:N, k in 0:K, i in "
        "0:2*L+3*R-4  Y(n,k,2*l+3*r) += X(n,c,l) * W(c,k,r) }",
        [real(2, 3, 5), real(3, 4, 3)],
        lambda x, w: functional.conv_transpose1d(x, w, stride=2, dilation=3),
    ),
    "conv_transpose2d": Case(
        "def f(double(N,C,H,V) X, double(C,K,R,S) W) -> (Y) { Y(n,k,i,j) = double(0) where n in 0:N, k in 0:K, i "
        "in 0:2*H+R-2, j in 0:3*V+S-3  Y(n,k,2*h+r,3*v+s) += X(n,c,h,v) * W(c,k,r,s) }",
        [real(2, 3, 4, 3), real(3, 2, 3, 2)],
        lambda x, w: functional.conv_transpose2d(x, w, stride=(2, 3)),
    ),
    "conv_circular": Case(
        "def f(double(L) X, double(R) W) -> (Y) { Y(l) +=! repeat_image(X)(l+r-1) * W(r) where l in 0:L }",
        [real(7), real(3)],
        lambda x, w: functional.conv1d(functional.pad(x[None, None], (1, 1), mode="circular"), w[None, None])[0, 0],
    ),
    "conv_reflect": Case(
        "def f(double(H,V) X, double(R,S) W) -> (Y) { Y(h,v) +=! mirror_interior(X)(h+r-1,v+s-1) * W(r,s) where "
        "h in 0:H, v in 0:V }",
        [real(5, 6), real(3, 3)],
        lambda x, w: functional.conv2d(functional.pad(x[None, None], (1, 1, 1, 1), mode="reflect"), w[None, None])[
            0, 0
        ],
    ),
    "conv_replicate": Case(
        "def f(double(H,V) X, double(R,S) W) -> (Y) { Y(h,v) +=! repeat_edge(X)(h+r-2,v+s-1) * W(r,s) where h in "
        "0:H, v in 0:V }",
        [real(5, 6), real(5, 3)],
        lambda x, w: functional.conv2d(functional.pad(x[None, None], (1, 1, 2, 2), mode="replicate"), w[None, None])[
            0, 0
        ],
    ),
    "padding_of_many_edges": Case(
        "def f(double(L) X) -> (Y) { Y(l) = repeat_edge(X)(l-9) * repeat_edge(X)(l-9) where l in 0:L+18 }",
        [real(4)],
        lambda x: functional.pad(x[None, None], (9, 9), mode="replicate")[0, 0] ** 2,
    ),
    "padding_of_many_periods": Case(
        "def f(double(L) X) -> (Y) { Y(l) = repeat_image(X)(l-9) * repeat_image(X)(l-9) where l in 0:L+18 }",
        [real(4)],
        lambda x: x[torch.arange(-9, 13) % 4] ** 2,
    ),
    "padding_of_many_mirrors": Case(
        "def f(double(L) X) -> (Y) { Y(l) = mirror_interior(X)(l-9) * mirror_image(X)(l-7) where l in 0:L+18 }",
        [real(4)],
        lambda x: (
            torch.cat([x, x.flip(0)[1:-1]])[torch.arange(-9, 13) % 6]
            * torch.cat([x, x.flip(0)])[torch.arange(-7, 15) % 8]
        ),
    ),
    "max_pool": Case(
        "def f(double(N,C,H,W) X) -> (Y) { Y(n,c,h,w) max=! X(n,c,2*h+r,2*w+s) where r in 0:2, s in 0:2 }",
        [real(2, 3, 6, 5)],
        lambda x: functional.max_pool2d(x, 2),
    ),
    "max_pool_overlapping": Case(
        "def f(double(N,C,H,W) X) -> (Y) { Y(n,c,h,w) max=! X(n,c,2*h+r,2*w+s) where r in 0:3, s in 0:3 }",
        [real(2, 3, 7, 8)],
        lambda x: functional.max_pool2d(x, 3, 2),
    ),
    "max_pool_padded": Case(
        "def f(double(N,C,H,W) X) -> (Y) { Y(n,c,h,w) max=! constant_exterior(X, -1e30)(n,c,2*h+r-1,2*w+s-1) "
        "where n in 0:N, c in 0:C, h in 0:(H-1)/2+1, w in 0:(W-1)/2+1, r in 0:3, s in 0:3 }",
        [real(2, 3, 7, 8)],
        lambda x: functional.max_pool2d(x, 3, 2, 1),
    ),
    "max_pool_dilated": Case(
        "def f(double(L) X) -> (Y) { Y(l) max=! X(2*l+3*r) where r in 0:3 }",
        [real(15)],
        lambda x: functional.max_pool1d(x[None, None], 3, 2, dilation=3)[0, 0],
    ),
    "min_pool": Case(
        "def f(double(L) X) -> (Y) { Y(l) min=! X(l+r) where r in 0:3 }",
        [real(9)],
        lambda x: -functional.max_pool1d(-x[None, None], 3, 1)[0, 0],
    ),
    "avg_pool": Case(
        "def f(double(H,W) X) -> (Y) { Y(h,w) +=! X(2*h+r,2*w+s) / 9 where r in 0:3, s in 0:3 }",
        [real(7, 8)],
        lambda x: functional.avg_pool2d(x[None, None], 3, 2)[0, 0],
    ),
    "avg_pool_padded": Case(
        "def f(double(H,W) X) -> (Y) { s(h,w) +=! constant_exterior(X, 0)(2*h+r-1,2*w+q-1) where h in "
        "0:(H-1)/2+1, w in 0:(W-1)/2+1, r in 0:3, q in 0:3  Y(h,w) = s(h,w) / 9 }",
        [real(7, 8)],
        lambda x: functional.avg_pool2d(x[None, None], 3, 2, 1)[0, 0],
    ),
    "avg_pool_with_count": Case(
        "def f(double(L) X) -> (Y) { c(l) +=! 0 <= 2*l+r-1 && 2*l+r-1 < L ? double(1) : double(0) where l in "
        "0:(L-1)/2+1, r in 0:3 s(l) +=! constant_exterior(X, 0)(2*l+r-1) where l in 0:(L-1)/2+1, r in 0:3  Y(l) "
        "= s(l) / c(l) }",
        [real(8)],
        lambda x: functional.avg_pool1d(x[None, None], 3, 2, 1, count_include_pad=False)[0, 0],
    ),
    "lp_pool": Case(
        "def f(double(L) X) -> (Y) { s(l) +=! X(2*l+r) * X(2*l+r) where r in 0:3  Y(l) = sqrt(s(l)) }",
        [real(9)],
        lambda x: x.unfold(0, 3, 2).square().sum(-1).sqrt(),
    ),
    "global_max_pool": Case(
        "def f(double(N,C,H,W) X) -> (Y) { Y(n,c) max=! X(n,c,h,w) }",
        [real(2, 3, 4, 5)],
        lambda x: x.amax((2, 3)),
    ),
    "local_response_norm": Case(
        "def f(double(N,C,H) X) -> (Y) { s(n,c,h) +=! constant_exterior(X, 0)(n,c+k-1,h)*constant_exterior(X, "
        "0)(n,c+k-1,h) where n in 0:N, c in 0:C, h in 0:H, k in 0:3  Y(n,c,h) = X(n,c,h) / pow(1.0 + s(n,c,h) * "
        "0.25 / 3, 0.75) }",
        [real(2, 5, 3)],
        lambda x: functional.local_response_norm(x, 3, alpha=0.25, beta=0.75),
    ),
    "bilinear_upsampling_by_2": Case(
        "def f(double(L) X) -> (Y) { Y(2*i) = 0.25*repeat_edge(X)(i-1) + 0.75*X(i)  Y(2*i+1) = 0.75*X(i) + "
        "0.25*repeat_edge(X)(i+1) where i in 0:L }",
        [real(5)],
        lambda x: functional.interpolate(x[None, None], scale_factor=2, mode="linear")[0, 0],
    ),
    "nearest_upsampling": Case(
        "def f(double(H,W) X) -> (Y) { Y(h,w) = X(h/3,w/2) * X(h/3,w/2) where h in 0:3*H, w in 0:2*W }",
        [real(3, 4)],
        lambda x: x.repeat_interleave(3, 0).repeat_interleave(2, 1) ** 2,
    ),
    "im2col": Case(
        "def f(double(C,H,W) X, const int KH, const int KW) -> (Y) { Y(h*(W-KW+1)+w,(c*KH+kh)*KW+kw) = "
        "X(c,h+kh,w+kw) where h in 0:H-KH+1, w in 0:W-KW+1, kh in 0:KH, kw in 0:KW }",
        [real(2, 4, 5), 2, 3],
        lambda x, p, q: functional.unfold(x[None], (p, q))[0].T,
    ),
    "unfold": Case(
        "def f(double(L) X) -> (Y) { Y(i,k) = X(2*i+k) where k in 0:4 }",
        [real(11)],
        lambda x: x.unfold(0, 4, 2),
    ),
    "fold": Case(
        "def f(double(N,K) P) -> (Y) { Y(2*i+k) +=! P(i,k) }",
        [real(4, 3)],
        lambda p: functional.fold(p.T[None], (1, 9), (1, 3), stride=(1, 2))[0, 0, 0],
    ),
    "correlation_of_two": Case(
        "def f(double(N) X, double(M) Y) -> (C) { C(k) +=! X(i+k) * Y(i) }",
        [real(9), real(4)],
        lambda x, y: functional.conv1d(x[None, None], y[None, None])[0, 0],
    ),
    "autocorrelation": Case(
        "def f(double(N) X) -> (C) { C(k) +=! X(i+k) * X(i) where k in 0:4, i in 0:N-3 }",
        [real(9)],
        lambda x: torch.stack([(x[k : k + 6] * x[:6]).sum() for k in range(4)]),
    ),
    "local_self_attention_scores": Case(
        "def f(double(L,D) Q, double(L,D) K) -> (S) { S(l,r) +=! Q(l,d) * constant_exterior(K, 0)(l+r-2,d) where "
        "r in 0:5, d in 0:D }",
        [real(6, 3), real(6, 3)],
        lambda q, k: torch.einsum("ld,ldr->lr", q, functional.pad(k, (0, 0, 2, 2)).unfold(0, 5, 1)),
    ),
    "involution": Case(
        "def f(double(C,H,W) X, double(H,W,3,3) G) -> (Y) { Y(c,h,w) +=! constant_exterior(X, 0)(c,h+r-1,w+s-1) "
        "* G(h,w,r,s) where c in 0:C }",
        [real(2, 4, 5), real(4, 5, 3, 3)],
        lambda x, g: torch.einsum(
            "crshw,hwrs->chw", functional.unfold(x[None], 3, padding=1).reshape(2, 3, 3, 4, 5), g
        ),
    ),
    "conv_of_a_conv": Case(
        "def f(double(L) X, double(R) U, double(Q) V) -> (Y) { t(l) +=! X(2*l+r) * U(r)  t(l) = tanh(t(l))  Y(l) "
        "+=! t(l+q) * V(q) }",
        [real(13), real(3), real(2)],
        lambda x, u, v: functional.conv1d(
            functional.conv1d(x[None, None], u[None, None], stride=2).tanh(), v[None, None]
        )[0, 0],
    ),
}
