"""Normalisations, losses, activations."""

from __future__ import annotations

import torch
from torch.nn import functional

from tests.derivatives.equivalents.case import Case, positive, real, truth, whole

CASES = {
    "layer_norm": Case(
        "def f(double(N,D) X, double(D) g, double(D) b) -> (Y) { m(n) +=! X(n,d) / D  v(n) +=! "
        "(X(n,d)-m(n))*(X(n,d)-m(n)) / D  Y(n,d) = (X(n,d)-m(n))*rsqrt(v(n)+0.125)*g(d)+b(d) }",
        [real(3, 5), real(5), real(5)],
        lambda x, g, b: functional.layer_norm(x, (5,), g, b, 0.125),
    ),
    "rms_norm": Case(
        "def f(double(N,D) X, double(D) g) -> (Y) { s(n) +=! X(n,d)*X(n,d)  Y(n,d) = X(n,d) / sqrt(s(n)/D + "
        "0.125) * g(d) }",
        [real(3, 5), real(5)],
        lambda x, g: functional.rms_norm(x, (5,), g, 0.125),
    ),
    "group_norm": Case(
        "def f(double(N,G,C,L) X) -> (Y) { m(n,g) +=! X(n,g,c,l)  m(n,g) = m(n,g) / (C*L)  v(n,g) +=! "
        "(X(n,g,c,l)-m(n,g))*(X(n,g,c,l)-m(n,g))  Y(n,g,c,l) = (X(n,g,c,l)-m(n,g))/sqrt(v(n,g)/(C*L)+0.125) }",
        [real(2, 2, 3, 4)],
        lambda x: functional.group_norm(x.flatten(1, 2), 2, eps=0.125).reshape(x.shape),
    ),
    "instance_norm": Case(
        "def f(double(N,C,H,W) X, double(C) g) -> (Y) { m(n,c) +=! X(n,c,h,w) / (H*W)  q(n,c) +=! "
        "X(n,c,h,w)*X(n,c,h,w) / (H*W)  Y(n,c,h,w) = g(c)*(X(n,c,h,w)-m(n,c))*rsqrt(q(n,c)-m(n,c)*m(n,c)+0.125) }",
        [real(2, 3, 3, 4), real(3)],
        lambda x, g: functional.instance_norm(x, weight=g, eps=0.125),
    ),
    "batch_norm": Case(
        "def f(double(N,C,L) X, double(C) g, double(C) b) -> (Y, m, v) { m(c) +=! X(n,c,l) / (N*L)  v(c) +=! "
        "(X(n,c,l)-m(c))*(X(n,c,l)-m(c)) / (N*L)  Y(n,c,l) = (X(n,c,l)-m(c))*rsqrt(v(c)+0.125)*g(c)+b(c) }",
        [real(4, 3, 5), real(3), real(3)],
        lambda x, g, b: (
            functional.batch_norm(x, None, None, g, b, True, eps=0.125),
            x.mean((0, 2)),
            x.var((0, 2), correction=0),
        ),
    ),
    "batch_norm_in_use": Case(
        "def f(double(N,C) X, double(C) m, double(C) v, double(C) g, double(C) b) -> (Y) { Y(n,c) = "
        "(X(n,c)-m(c))/sqrt(v(c)+0.125)*g(c)+b(c) }",
        [real(4, 3), real(3), positive(3), real(3), real(3)],
        lambda x, m, v, g, b: (x - m) / (v + 0.125).sqrt() * g + b,
    ),
    "weight_norm": Case(
        "def f(double(O,I) V, double(O) g) -> (W) { s(o) +=! V(o,i)*V(o,i)  W(o,i) = g(o)*V(o,i)/sqrt(s(o)) }",
        [real(3, 4), real(3)],
        lambda v, g: v * (g / v.norm(dim=1))[:, None],
    ),
    "cosine_similarity": Case(
        "def f(double(N,D) A, double(N,D) B) -> (C) { p(n) +=! A(n,d)*B(n,d)  a(n) +=! A(n,d)*A(n,d)  b(n) +=! "
        "B(n,d)*B(n,d)  C(n) = p(n)*rsqrt(a(n))*rsqrt(b(n)) }",
        [real(3, 5), real(3, 5)],
        functional.cosine_similarity,
    ),
    "softmax": Case(
        "def f(double(N,D) X) -> (Y) { m(n) max=! X(n,d)  e(n,d) = exp(X(n,d)-m(n))  s(n) +=! e(n,d)  Y(n,d) = "
        "e(n,d)/s(n) }",
        [real(3, 5)],
        lambda x: x.softmax(1),
    ),
    "softmax_of_a_temperature": Case(
        "def f(double(N,D) X, double t) -> (Y) { e(n,d) = exp(X(n,d)/t)  s(n) +=! e(n,d)  Y(n,d) = e(n,d)/s(n) }",
        [real(3, 5), positive()],
        lambda x, t: (x / t).softmax(1),
    ),
    "log_softmax": Case(
        "def f(double(N,D) X) -> (Y) { m(n) max=! X(n,d)  s(n) +=! exp(X(n,d)-m(n))  Y(n,d) = X(n,d)-m(n)-log(s(n)) }",
        [real(3, 5)],
        lambda x: x.log_softmax(1),
    ),
    "logsumexp_of_two_indices": Case(
        "def f(double(N,C,D) X) -> (Y) { m(n) max=! X(n,c,d)  s(n) +=! exp(X(n,c,d)-m(n))  Y(n) = m(n)+log(s(n)) }",
        [real(3, 2, 5)],
        lambda x: x.logsumexp((1, 2)),
    ),
    "logsumexp_of_all": Case(
        "def f(double(N,M) X) -> (y) { m max=! X(i,j)  s +=! exp(X(i,j)-m)  y = m+log(s) }",
        [real(3, 5)],
        lambda x: x.logsumexp((0, 1)),
    ),
    "cross_entropy": Case(
        "def f(double(N,C) X, int(N) T) -> (loss) { m(n) max=! X(n,c)  s(n) +=! exp(X(n,c)-m(n))  loss +=! "
        "(m(n)+log(s(n))-X(n,T(n))) / N }",
        [real(4, 5), whole(5, 4)],
        lambda x, t: functional.cross_entropy(x, t.long()),
    ),
    "cross_entropy_smoothed": Case(
        "def f(double(N,C) X, int(N) T) -> (loss) { m(n) max=! X(n,c)  s(n) +=! exp(X(n,c)-m(n))  L(n,c) = "
        "X(n,c)-m(n)-log(s(n))  a(n) +=! L(n,c)  loss +=! -0.75*L(n,T(n))/N - 0.25*a(n)/C/N }",
        [real(4, 5), whole(5, 4)],
        lambda x, t: functional.cross_entropy(x, t.long(), label_smoothing=0.25),
    ),
    "nll_weighted": Case(
        "def f(double(N,C) L, int(N) T, double(C) w) -> (loss) { z +=! w(T(n))  s +=! -w(T(n))*L(n,T(n))  loss = s/z }",
        [real(4, 5), whole(5, 4), positive(5)],
        lambda x, t, w: (
            functional.nll_loss(x, t.long(), w.detach())
            if not w.requires_grad
            else -(w[t.long()] * x[torch.arange(4), t.long()]).sum() / w[t.long()].sum()
        ),
    ),
    "nll_ignoring": Case(
        "def f(double(N,C) L, int(N) T) -> (loss) { z +=! T(n) != 2 ? double(1) : double(0)  s +=! T(n) != 2 ? "
        "-L(n,T(n)) : double(0)  loss = s/z }",
        [real(8, 4), whole(4, 8)],
        lambda x, t: functional.nll_loss(x, t.long(), ignore_index=2),
    ),
    "smooth_l1": Case(
        "def f(double(N) X, double(N) T) -> (loss) { loss +=! (a < 0.5 ? a*a : a-0.25)/N where a = abs(X(n)-T(n)) }",
        [real(9), real(9)],
        lambda x, t: functional.smooth_l1_loss(x, t, beta=0.5),
    ),
    "huber": Case(
        "def f(double(N) X, double(N) T) -> (Y) { Y(n) = abs(u) <= 0.5 ? 0.5*u*u : 0.5*(abs(u)-0.25) where u = "
        "X(n)-T(n) }",
        [real(9), real(9)],
        lambda x, t: functional.huber_loss(x, t, reduction="none", delta=0.5),
    ),
    "hinge": Case(
        "def f(double(N,D) X, double(D) w, double(N) y) -> (loss) { s(n) +=! X(n,d)*w(d)  loss +=! max(0.0, "
        "1.0-y(n)*s(n))/N }",
        [real(5, 3), real(3), real(5)],
        lambda x, w, y: (1 - y * (x @ w)).clamp(min=0).mean(),
    ),
    "multi_margin": Case(
        "def f(double(N,C) X, int(N) T) -> (loss) { loss +=! c == T(n) ? double(0) : relu(1.0-X(n,T(n))+X(n,c))/C/N }",
        [real(4, 5), whole(5, 4)],
        lambda x, t: functional.multi_margin_loss(x, t.long()),
    ),
    "kl_divergence": Case(
        "def f(double(N,D) P, double(N,D) Q) -> (loss) { loss +=! P(n,d)*(log(P(n,d))-Q(n,d))/N }",
        [positive(3, 4), real(3, 4)],
        lambda p, q: functional.kl_div(q, p, reduction="batchmean"),
    ),
    "bce_with_logits": Case(
        "def f(double(N) X, double(N) T, double(N) w) -> (loss) { loss +=! w(n)*(max(X(n), "
        "0.0)-X(n)*T(n)+log1p(exp(-abs(X(n)))))/N }",
        [real(7), positive(7), positive(7)],
        lambda x, t, w: (w * ((-x).exp().log1p() + (1 - t) * x)).mean(),
    ),
    "binary_cross_entropy": Case(
        "def f(double(N) P, double(N) T) -> (loss) { loss +=! -(T(n)*log(p)+(1.0-T(n))*log(1.0-p))/N where p = "
        "sigmoid(P(n)) }",
        [real(7), real(7)],
        lambda x, t: -(t * x.sigmoid().log() + (1 - t) * (1 - x.sigmoid()).log()).mean(),
    ),
    "triplet": Case(
        "def f(double(N,D) A, double(N,D) P, double(N,D) M) -> (loss) { p(n) +=! (A(n,d)-P(n,d))*(A(n,d)-P(n,d)) "
        " q(n) +=! (A(n,d)-M(n,d))*(A(n,d)-M(n,d))  loss +=! max(sqrt(p(n))-sqrt(q(n))+1.0, 0.0)/N }",
        [real(3, 4), real(3, 4), real(3, 4)],
        lambda a, p, n: ((a - p).norm(dim=1) - (a - n).norm(dim=1) + 1).clamp(min=0).mean(),
    ),
    "poisson_nll": Case(
        "def f(double(N) X, double(N) T) -> (loss) { loss +=! (exp(X(n))-T(n)*X(n))/N }",
        [real(6), positive(6)],
        functional.poisson_nll_loss,
    ),
    "gaussian_nll": Case(
        "def f(double(N) X, double(N) T, double(N) v) -> (loss) { loss +=! "
        "0.5*(log(v(n))+(X(n)-T(n))*(X(n)-T(n))/v(n))/N }",
        [real(6), real(6), positive(6)],
        functional.gaussian_nll_loss,
    ),
    "focal": Case(
        "def f(double(N) X, int(N) T) -> (loss) { loss +=! T(n) == 1 ? -(1.0-p)*(1.0-p)*log(p) : -p*p*log(1.0-p) "
        "where p = sigmoid(X(n)) }",
        [real(8), whole(2, 8)],
        lambda x, t: torch.where(
            t == 1, -((1 - x.sigmoid()) ** 2) * x.sigmoid().log(), -(x.sigmoid() ** 2) * (1 - x.sigmoid()).log()
        ).sum(),
    ),
    "dice": Case(
        "def f(double(N) P, double(N) T) -> (loss) { i +=! P(n)*T(n)  p +=! P(n)  t +=! T(n)  loss = "
        "1.0-(2.0*i+1.0)/(p+t+1.0) }",
        [positive(6), positive(6)],
        lambda p, t: 1 - (2 * (p * t).sum() + 1) / (p.sum() + t.sum() + 1),
    ),
    "contrastive": Case(
        "def f(double(N,D) A, double(N,D) B) -> (loss) { s(i,j) +=! A(i,d)*B(j,d)  m(i) max=! s(i,j)  z(i) +=! "
        "exp(s(i,j)-m(i))  loss +=! (log(z(i))+m(i)-s(i,i))/N }",
        [real(4, 3), real(4, 3)],
        lambda a, b: functional.cross_entropy(a @ b.T, torch.arange(4)),
    ),
    "softplus": Case(
        "def f(double(N) X) -> (Y) { Y(n) = log1p(exp(X(n))) }",
        [real(6)],
        functional.softplus,
    ),
    "softplus_safe": Case(
        "def f(double(N) X) -> (Y) { Y(n) = X(n) > 20.0 ? X(n) : log1p(exp(X(n))) }",
        [real(6)],
        functional.softplus,
    ),
    "gelu": Case(
        "def f(double(N) X) -> (Y) { Y(n) = X(n)*normcdf(X(n)) }",
        [real(6)],
        functional.gelu,
    ),
    "gelu_tanh": Case(
        "def f(double(N) X) -> (Y) { Y(n) = "
        "0.5*X(n)*(1.0+tanh(sqrt(2.0/acos(double(-1)))*(X(n)+0.0625*X(n)*X(n)*X(n)))) }",
        [real(6)],
        lambda x: 0.5 * x * (1 + ((2 / torch.pi) ** 0.5 * (x + 0.0625 * x**3)).tanh()),
    ),
    "silu": Case(
        "def f(double(N) X) -> (Y) { Y(n) = X(n)*sigmoid(X(n)) }",
        [real(6)],
        functional.silu,
    ),
    "mish": Case(
        "def f(double(N) X) -> (Y) { Y(n) = X(n)*tanh(log1p(exp(X(n)))) }",
        [real(6)],
        functional.mish,
    ),
    "elu": Case(
        "def f(double(N) X) -> (Y) { Y(n) = X(n) > 0.0 ? X(n) : expm1(X(n)) }",
        [real(6)],
        functional.elu,
    ),
    "leaky_relu": Case(
        "def f(double(N) X) -> (Y) { Y(n) = max(X(n), 0.25*X(n)) }",
        [real(6)],
        lambda x: functional.leaky_relu(x, 0.25),
    ),
    "prelu": Case(
        "def f(double(N,C) X, double(C) a) -> (Y) { Y(n,c) = X(n,c) > 0.0 ? X(n,c) : a(c)*X(n,c) }",
        [real(4, 3), real(3)],
        functional.prelu,
    ),
    "hardswish": Case(
        "def f(double(N) X) -> (Y) { Y(n) = x*clamp(x+3.0, 0.0, 6.0)/6 where x = 4.0*X(n) }",
        [real(12)],
        lambda x: functional.hardswish(4 * x),
    ),
    "hardtanh": Case(
        "def f(double(N) X) -> (Y) { Y(n) = clamp(X(n), -0.5, 0.25) }",
        [real(9)],
        lambda x: functional.hardtanh(x, -0.5, 0.25),
    ),
    "softsign": Case(
        "def f(double(N) X) -> (Y) { Y(n) = X(n)/(1.0+abs(X(n))) }",
        [real(6)],
        functional.softsign,
    ),
    "swiglu": Case(
        "def f(double(N,D) X, double(D,H) U, double(D,H) V, double(H,D) W) -> (Y) { u(n,h) +=! X(n,d)*U(d,h)  "
        "v(n,h) +=! X(n,d)*V(d,h)  a(n,h) = u(n,h)*sigmoid(u(n,h))*v(n,h)  Y(n,e) +=! a(n,h)*W(h,e) }",
        [real(3, 4), real(4, 5), real(4, 5), real(5, 4)],
        lambda x, u, v, w: (functional.silu(x @ u) * (x @ v)) @ w,
    ),
    "glu": Case(
        "def f(double(N,2*D) X, double(D) s) -> (Y) { Y(n,d) = X(n,d)*sigmoid(X(n,d+D))*s(d) }",
        [real(3, 8), real(4)],
        lambda x, s: functional.glu(x) * s,
    ),
    "highway": Case(
        "def f(double(N,D) X, double(D,D) W, double(D,D) T) -> (Y) { h(n,e) +=! X(n,d)*W(d,e)  t(n,e) +=! "
        "X(n,d)*T(d,e)  t(n,e) = sigmoid(t(n,e))  Y(n,e) = t(n,e)*relu(h(n,e)) + (1.0-t(n,e))*X(n,e) }",
        [real(3, 4), real(4, 4), real(4, 4)],
        lambda x, w, t: (x @ t).sigmoid() * (x @ w).relu() + (1 - (x @ t).sigmoid()) * x,
    ),
    "gru_cell": Case(
        "def f(double(N,I) X, double(N,H) S, double(3,H,I) W, double(3,H,H) U) -> (Y) { a(n,g,h) +=! "
        "X(n,i)*W(g,h,i)  b(n,g,h) +=! S(n,k)*U(g,h,k)  r(n,h) = sigmoid(a(n,0,h)+b(n,0,h))  z(n,h) = "
        "sigmoid(a(n,1,h)+b(n,1,h))  c(n,h) = tanh(a(n,2,h)+r(n,h)*b(n,2,h))  Y(n,h) = "
        "(1.0-z(n,h))*c(n,h)+z(n,h)*S(n,h) }",
        [real(2, 3), real(2, 4), real(3, 4, 3), real(3, 4, 4)],
        lambda x, s, w, u: torch.gru_cell(x, s, w.reshape(12, 3), u.reshape(12, 4)),
    ),
    "lstm_cell": Case(
        "def f(double(N,I) X, double(N,H) S, double(N,H) C, double(4,H,I) W, double(4,H,H) U) -> (Y, D) { "
        "a(n,g,h) +=! X(n,i)*W(g,h,i)  a(n,g,h) += S(n,k)*U(g,h,k)  D(n,h) = "
        "sigmoid(a(n,1,h))*C(n,h)+sigmoid(a(n,0,h))*tanh(a(n,2,h))  Y(n,h) = sigmoid(a(n,3,h))*tanh(D(n,h)) }",
        [real(2, 3), real(2, 4), real(2, 4), real(4, 4, 3), real(4, 4, 4)],
        lambda x, s, c, w, u: torch.lstm_cell(x, (s, c), w.reshape(16, 3), u.reshape(16, 4)),
    ),
    "dropout_by_mask": Case(
        "def f(double(N,D) X, bool(N,D) M) -> (Y) { Y(n,d) = M(n,d) ? X(n,d)/0.75 : double(0) }",
        [real(4, 5), truth(4, 5)],
        lambda x, m: torch.where(m, x / 0.75, torch.zeros(())),
    ),
    "standard_deviation": Case(
        "def f(double(N,D) X) -> (s) { m(d) +=! X(n,d)  m(d) = m(d)/N  v(d) +=! "
        "(X(n,d)-m(d))*(X(n,d)-m(d))/(N-1)  s(d) = sqrt(v(d)) }",
        [real(4, 3)],
        lambda x: x.std(0),
    ),
    "covariance": Case(
        "def f(double(N,D) X) -> (C) { m(d) +=! X(n,d)/N  C(d,e) +=! (X(n,d)-m(d))*(X(n,e)-m(e))/(N-1) }",
        [real(5, 3)],
        lambda x: x.T.cov(),
    ),
    "skewness": Case(
        "def f(double(N) X) -> (y) { m +=! X(n)/N  v +=! (X(n)-m)*(X(n)-m)/N  y +=! pow((X(n)-m)/sqrt(v), 3.0)/N }",
        [real(6)],
        lambda x: (((x - x.mean()) / x.std(correction=0)) ** 3).mean(),
    ),
    "range_normalised": Case(
        "def f(double(N,D) X) -> (Y) { a(n) min=! X(n,d)  b(n) max=! X(n,d)  Y(n,d) = (X(n,d)-a(n))/(b(n)-a(n)+0.5) }",
        [real(3, 5)],
        lambda x: (x - x.amin(1, True)) / (x.amax(1, True) - x.amin(1, True) + 0.5),
    ),
}
