"""Tensors that are written again, as a whole, in part, or added to."""

from __future__ import annotations

import torch

from tests.derivatives.equivalents.case import Case, positive, real

CASES = {
    "horner": Case(
        "def f(double(N) X, double(4) c) -> (Y) { Y(n) = c(3) where exists X(n)  Y(n) = Y(n)*X(n)+c(2)  Y(n) = "
        "Y(n)*X(n)+c(1)  Y(n) = Y(n)*X(n)+c(0) }",
        [real(5), real(4)],
        lambda x, c: ((c[3] * x + c[2]) * x + c[1]) * x + c[0],
    ),
    "vandermonde": Case(
        "def f(double(N) X, double(K) c) -> (Y) { Y(n) +=! c(k)*pow(X(n), double(k)) }",
        [positive(5), real(4)],
        lambda x, c: (c * x[:, None] ** torch.arange(4)).sum(1),
    ),
    "newton_steps": Case(
        "def f(double(N) A) -> (Y) { Y(n) = A(n)  Y(n) = 0.5*(Y(n)+A(n)/Y(n))  Y(n) = 0.5*(Y(n)+A(n)/Y(n))  Y(n) "
        "= 0.5*(Y(n)+A(n)/Y(n)) }",
        [positive(5)],
        lambda a: (
            0.5 * (0.5 * (0.5 * (a + 1) + a / (0.5 * (a + 1))) + a / (0.5 * (0.5 * (a + 1) + a / (0.5 * (a + 1)))))
        ),
    ),
    "power_iteration": Case(
        "def f(double(N,N) A, double(N) x) -> (y) { u(i) +=! A(i,j)*x(j)  s +=! u(i)*u(i)  u(i) = u(i)/sqrt(s)  "
        "v(i) +=! A(i,j)*u(j)  y +=! u(i)*v(i) }",
        [real(4, 4), real(4)],
        lambda a, x: (a @ x) @ (a @ (a @ x)) / (a @ x).square().sum(),
    ),
    "euler_steps": Case(
        "def f(double(N) X, double h) -> (Y) { a(i) = X(i)+h*(repeat_image(X)(i+1)-X(i))*X(i)  b(i) = "
        "a(i)+h*(repeat_image(a)(i+1)-a(i))*a(i)  Y(i) = b(i)*b(i) }",
        [real(5), real()],
        lambda x, h: ((lambda a: a + h * (a.roll(-1) - a) * a)(x + h * (x.roll(-1) - x) * x)) ** 2,
    ),
    "accumulated": Case(
        "def f(double(M,K) A, double(K) u, double(M,J) B, double(J) v) -> (Y) { Y(m) +=! A(m,k)*u(k)  Y(m) += "
        "B(m,j)*v(j)  Y(m) += u(m) }",
        [real(3, 4), real(4), real(3, 2), real(2)],
        lambda a, u, b, v: a @ u + b @ v + u[:3],
    ),
    "added_to_in_part": Case(
        "def f(double(N) X) -> (Y) { Y(i) = X(i)*X(i)  Y(0) += X(1)*X(2)  Y(i) += sin(X(i)) where i in 1:3 }",
        [real(5)],
        lambda x: x * x + torch.cat([(x[1] * x[2])[None], x[1:3].sin(), torch.zeros(2)]),
    ),
    "scaled_in_place": Case(
        "def f(double(N,D) X, double(D) g) -> (Y) { Y(n,d) = X(n,d)  Y(n,d) = Y(n,d)*g(d)  Y(n,d) = Y(n,d)*Y(n,d) }",
        [real(3, 2), real(2)],
        lambda x, g: (x * g) ** 2,
    ),
    "multiplied_in_place": Case(
        "def f(double(N) X, double(N,M) Z) -> (Y) { Y(n) = sin(X(n))  Y(n) *= Z(n,m) }",
        [real(3), positive(3, 4)],
        lambda x, z: x.sin() * z.prod(1),
    ),
    "multiplied_pointwise_in_place": Case(
        "def f(double(N) X, double(N) Z) -> (Y) { Y(n) = X(n)*X(n)  Y(n) *= Z(n) }",
        [real(5), real(5)],
        lambda x, z: x * x * z,
    ),
    "raised_in_place": Case(
        "def f(double(N) X, double(N,M) Z) -> (Y) { Y(n) = X(n)*X(n)  Y(n) max= Z(n,m) }",
        [real(6), real(6, 3)],
        lambda x, z: torch.maximum(x * x, z.amax(1)),
    ),
    "lowered_in_place": Case(
        "def f(double(N) X, double(N) Z, double(N) U) -> (Y) { Y(n) = X(n)*X(n)  Y(n) min= Z(n)  Y(n) min= U(n)*U(n) }",
        [real(6), real(6), real(6)],
        lambda x, z, u: torch.minimum(torch.minimum(x * x, z), u * u),
    ),
    "extremes_of_two_statements": Case(
        "def f(double(N,M) X, double(N,K) Z) -> (Y) { Y(n) max=! X(n,m)  Y(n) max= Z(n,k) }",
        [real(4, 3), real(4, 2)],
        lambda x, z: torch.cat([x, z], 1).amax(1),
    ),
    "sums_after_extremes": Case(
        "def f(double(N) X) -> (y) { y max=! X(i)  y += X(0)*X(1) }",
        [real(5)],
        lambda x: x.max() + x[0] * x[1],
    ),
    "products_of_two_statements": Case(
        "def f(double(N) X, double(M) Z) -> (y) { y *=! X(i)  y *= Z(j) }",
        [real(4), real(3)],
        lambda x, z: x.prod() * z.prod(),
    ),
    "scatter_again": Case(
        "def f(double(N) X, double(M) W) -> (Y) { Y(i) = X(i)*X(i)  Y(2*i) += X(i) where i in 0:3  Y(i+1) = "
        "W(i)*W(i) where i in 0:2 }",
        [real(6), real(3)],
        lambda x, w: torch.cat([(x * x)[:1] + x[:1], (w * w)[:2], (x * x)[3:4], (x * x)[4:5] + x[2:3], (x * x)[5:]]),
    ),
    "a_sum_over_a_part_again": Case(
        "def f(double(N) X, double(3,M) W) -> (Y) { Y(i) = X(i)*X(i)  Y(2*i) +=! W(i,m)*X(m) where i in 0:3 }",
        [real(7), real(3, 4)],
        lambda x, w: torch.stack([(w @ x[:4])[i // 2] if i in (0, 2, 4) else x[i] ** 2 for i in range(7)]),
    ),
    "read_and_added_to": Case(
        "def f(double(N) X) -> (Y, Z) { Y(i) = X(i)*X(i)  Z(i) = sin(Y(i))  Y(i) += X(i) }",
        [real(5)],
        lambda x: (x * x + x, (x * x).sin()),
    ),
    "rest_written_later": Case(
        "def f(double(N) X) -> (Y, Z) { T(i) = X(i)*X(i) where i in 0:3  Z(i) = T(i)*X(i) where i in 0:3  T(i) = "
        "sin(X(i)) where i in 3:N  Y(i) = T(i)*T(i) }",
        [real(6)],
        lambda x: (torch.cat([x[:3] ** 4, x[3:].sin() ** 2]), x[:3] ** 3),
    ),
    "versions_of_versions": Case(
        "def f(double(N) X) -> (Y) { t(i) = X(i)*X(i)  u(i) = t(i)+1.0  t(i) = u(i)*t(i)  u(i) = t(i)*u(i)  Y(i) "
        "= t(i)/u(i)*X(i) }",
        [real(5)],
        lambda x: x / (x * x + 1),
    ),
    "shifted_in_place": Case(
        "def f(double(N) X) -> (Y) { B(i) = X(i)*X(i)  B(i) = B(i-1)+B(i) where i in 1:N  Y(i) = B(i)*X(i) }",
        [real(5)],
        lambda x: (x * x + torch.cat([torch.zeros(1), (x * x)[:-1]])) * x,
    ),
}
