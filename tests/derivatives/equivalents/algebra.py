"""Linear algebra, products of many tensors, functions, types."""

from __future__ import annotations

import torch

from tests.derivatives.equivalents.case import Case, Values, positive, real, whole


def _det3(a):  # type: ignore[no-untyped-def]
    return torch.linalg.det(a)


CASES = {
    "matmul": Case(
        "def f(double(M,K) A, double(K,N) B) -> (C) { C(m,n) +=! A(m,k)*B(k,n) }",
        [real(3, 4), real(4, 5)],
        torch.matmul,
    ),
    "matmul_transposed": Case(
        "def f(double(K,M) A, double(N,K) B) -> (C) { C(m,n) +=! A(k,m)*B(n,k) }",
        [real(4, 3), real(5, 4)],
        lambda a, b: a.T @ b.T,
    ),
    "batched_matmul": Case(
        "def f(double(B,M,K) A, double(B,K,N) C) -> (Y) { Y(b,m,n) +=! A(b,m,k)*C(b,k,n) }",
        [real(2, 3, 4), real(2, 4, 5)],
        torch.bmm,
    ),
    "gram": Case(
        "def f(double(N,D) X) -> (G) { G(i,j) +=! X(i,d)*X(j,d) }",
        [real(4, 3)],
        lambda x: x @ x.T,
    ),
    "square_of_a_matrix": Case(
        "def f(double(N,N) A) -> (Y) { Y(i,j) +=! A(i,k)*A(k,j) }",
        [real(4, 4)],
        lambda a: a @ a,
    ),
    "quadratic_form": Case(
        "def f(double(N) x, double(N,N) A) -> (y) { y +=! x(i)*A(i,j)*x(j) }",
        [real(4), real(4, 4)],
        lambda x, a: x @ a @ x,
    ),
    "outer": Case(
        "def f(double(N) x, double(M) z) -> (Y) { Y(i,j) = x(i)*z(j) }",
        [real(3), real(4)],
        torch.outer,
    ),
    "kronecker": Case(
        "def f(double(N,M) A, double(3,2) B) -> (Y) { Y(3*i+k,2*j+l) = A(i,j)*B(k,l) }",
        [real(2, 3), real(3, 2)],
        torch.kron,
    ),
    "einsum_of_3": Case(
        "def f(double(I,J) A, double(J,K) B, double(K,L) C) -> (Y) { Y(i,l) +=! A(i,j)*B(j,k)*C(k,l) }",
        [real(2, 3), real(3, 4), real(4, 2)],
        lambda a, b, c: a @ b @ c,
    ),
    "einsum_of_4": Case(
        "def f(double(A,R) U, double(B,R) V, double(C,R) W, double(R) s) -> (Y) { Y(a,b,c) +=! "
        "U(a,r)*V(b,r)*W(c,r)*s(r) }",
        [real(2, 3), real(3, 3), real(2, 3), real(3)],
        lambda u, v, w, s: torch.einsum("ar,br,cr,r->abc", u, v, w, s),
    ),
    "einsum_of_5": Case(
        "def f(double(A,B,C) G, double(I,A) U, double(J,B) V, double(K,C) W, double(K) x) -> (Y) { Y(i,j) +=! "
        "G(a,b,c)*U(i,a)*V(j,b)*W(k,c)*x(k) }",
        [real(2, 3, 2), real(3, 2), real(2, 3), real(4, 2), real(4)],
        lambda g, u, v, w, x: torch.einsum("abc,ia,jb,kc,k->ij", g, u, v, w, x),
    ),
    "bilinear": Case(
        "def f(double(N,D) X, double(N,E) Z, double(O,D,E) W, double(O) b) -> (Y) { Y(n,o) +=! "
        "X(n,d)*W(o,d,e)*Z(n,e)  Y(n,o) = Y(n,o)+b(o) }",
        [real(3, 2), real(3, 4), real(2, 2, 4), real(2)],
        torch.nn.functional.bilinear,
    ),
    "distances": Case(
        "def f(double(N,D) X, double(M,D) Z) -> (Y) { s(i,j) +=! (X(i,d)-Z(j,d))*(X(i,d)-Z(j,d))  Y(i,j) = "
        "sqrt(s(i,j)) }",
        [real(3, 4), real(5, 4)],
        lambda x, z: (x[:, None] - z).norm(dim=-1),
    ),
    "manhattan": Case(
        "def f(double(N,D) X, double(M,D) Z) -> (Y) { Y(i,j) +=! abs(X(i,d)-Z(j,d)) }",
        [real(3, 4), real(5, 4)],
        lambda x, z: (x[:, None] - z).abs().sum(-1),
    ),
    "chebyshev": Case(
        "def f(double(N,D) X, double(M,D) Z) -> (Y) { Y(i,j) max=! abs(X(i,d)-Z(j,d)) }",
        [real(3, 4), real(5, 4)],
        lambda x, z: (x[:, None] - z).abs().amax(-1),
    ),
    "kernel_of_gauss": Case(
        "def f(double(N,D) X, double g) -> (Y) { s(i,j) +=! (X(i,d)-X(j,d))*(X(i,d)-X(j,d))  Y(i,j) = exp(-g*s(i,j)) }",
        [real(4, 3), positive()],
        lambda x, g: (-g * (x[:, None] - x).square().sum(-1)).exp(),
    ),
    "det2": Case(
        "def f(double(N,2,2) A) -> (y) { y(n) = A(n,0,0)*A(n,1,1) - A(n,0,1)*A(n,1,0) }",
        [real(3, 2, 2)],
        torch.linalg.det,
    ),
    "det3": Case(
        "def f(double(3,3) A) -> (y) { y +=! A(0,i)*(A(1,(i+1)%3)*A(2,(i+2)%3) - A(1,(i+2)%3)*A(2,(i+1)%3)) "
        "where i in 0:3 }",
        [real(3, 3)],
        _det3,
    ),
    "inverse2": Case(
        "def f(double(2,2) A) -> (Y) { d = A(0,0)*A(1,1)-A(0,1)*A(1,0)  Y(i,j) = i == j ? A(1-i,1-j)/d : "
        "-A(i,j)/d where i in 0:2, j in 0:2 }",
        [positive(2, 2)],
        torch.linalg.inv,
    ),
    "cross_product": Case(
        "def f(double(N,3) A, double(N,3) B) -> (Y) { Y(n,i) = "
        "A(n,(i+1)%3)*B(n,(i+2)%3)-A(n,(i+2)%3)*B(n,(i+1)%3) where i in 0:3 }",
        [real(2, 3), real(2, 3)],
        lambda a, b: torch.linalg.cross(a, b),
    ),
    "complex_product": Case(
        "def f(double(N,2) A, double(N,2) B) -> (Y) { Y(n,0) = A(n,0)*B(n,0)-A(n,1)*B(n,1)  Y(n,1) = "
        "A(n,0)*B(n,1)+A(n,1)*B(n,0) }",
        [real(3, 2), real(3, 2)],
        lambda a, b: torch.view_as_real(torch.view_as_complex(a) * torch.view_as_complex(b)),
    ),
    "quaternion_norm": Case(
        "def f(double(N,4) Q) -> (Y) { Y(n,i) = Q(n,i)/norm4d(Q(n,0),Q(n,1),Q(n,2),Q(n,3)) }",
        [real(3, 4)],
        lambda q: q / q.norm(dim=1, keepdim=True),
    ),
    "product_with_zeros": Case(
        "def f(double(N,M) X, int(N,M) Z) -> (Y) { Y(n) *=! Z(n,m) == 0 ? double(0) : X(n,m) }",
        [real(5, 3), whole(3, 5, 3)],
        lambda x, z: torch.where(z == 0, 0, x).prod(1),
    ),
    "product_over_two": Case(
        "def f(double(N,A,B) X) -> (Y) { Y(n) *=! 1.0+X(n,a,b)*X(n,a,b) }",
        [real(3, 2, 2)],
        lambda x: (1 + x * x).flatten(1).prod(1),
    ),
    "geometric_mean": Case(
        "def f(double(N) X) -> (y) { p *=! X(i)  y = pow(p, 1.0/N) }",
        [positive(4)],
        lambda x: x.prod() ** 0.25,
    ),
    "maximum_of_products": Case(
        "def f(double(N,K) A, double(K,M) B) -> (Y) { Y(n,m) max=! A(n,k)*B(k,m) }",
        [real(3, 4), real(4, 3)],
        lambda a, b: (a[:, :, None] * b).amax(1),
    ),
    "tropical": Case(
        "def f(double(N,K) A, double(K,M) B) -> (Y) { Y(n,m) min=! A(n,k)+B(k,m) }",
        [real(3, 4), real(4, 3)],
        lambda a, b: (a[:, :, None] + b).amin(1),
    ),
    "of_extremes": Case(
        "def f(double(N) X, double(N) Z) -> (Y) { Y(n) = max(X(n),Z(n))*min(X(n),Z(n)*Z(n)) }",
        [real(8), real(8)],
        lambda x, z: torch.maximum(x, z) * torch.minimum(x, z * z),
    ),
    "median_of_3": Case(
        "def f(double(N,3) X) -> (Y) { Y(n) = max(min(X(n,0),X(n,1)),min(max(X(n,0),X(n,1)),X(n,2))) }",
        [real(6, 3)],
        lambda x: x.median(1).values,
    ),
    "modulo": Case(
        "def f(double(N) X, double(N) Z) -> (Y) { Y(n) = 3.0*X(n) % Z(n) }",
        [real(8), positive(8)],
        lambda x, z: (3 * x).remainder(z),
    ),
    "fmod": Case(
        "def f(double(N) X, double(N) Z) -> (Y) { Y(n) = fmod(3.0*X(n), Z(n)) }",
        [real(8), positive(8)],
        lambda x, z: (3 * x).fmod(z),
    ),
    "copysign": Case(
        "def f(double(N) X, double(N) Z) -> (Y) { Y(n) = copysign(X(n)*X(n), Z(n))*X(n) }",
        [real(8), real(8)],
        lambda x, z: (x * x).copysign(z) * x,
    ),
    "powers": Case(
        "def f(double(N) X, double(N) Z) -> (Y) { Y(n) = pow(X(n), Z(n)) + pow(X(n), 3.0) + pow(2.0, Z(n)) }",
        [positive(6), real(6)],
        lambda x, z: x**z + x**3 + 2**z,
    ),
    "gammas": Case(
        "def f(double(N) X) -> (Y) { Y(n) = lgamma(X(n)) * X(n) }",
        [positive(6)],
        lambda x: torch.lgamma(x) * x,
    ),
    "beta_function": Case(
        "def f(double(N) A, double(N) B) -> (Y) { Y(n) = exp(lgamma(A(n))+lgamma(B(n))-lgamma(A(n)+B(n))) }",
        [positive(5), positive(5)],
        lambda a, b: (torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)).exp(),
    ),
    "error_functions": Case(
        "def f(double(N) X) -> (Y) { Y(n) = erfinv(0.5*X(n)) + erfcx(X(n)) }",
        [real(6)],
        lambda x: torch.erfinv(0.5 * x) + torch.special.erfcx(x),
    ),
    "bessel_functions": Case(
        "def f(double(N) X) -> (Y) { Y(n) = cyl_bessel_i0(X(n))*X(n) }",
        [real(6)],
        lambda x: torch.special.i0(x) * x,
    ),
    "bessel_i1": Case(
        "def f(double(N) X) -> (Y) { Y(n) = cyl_bessel_i1(X(n)) }",
        [real(6)],
        torch.special.i1,
    ),
    "inverse_of_normcdf": Case(
        "def f(double(N) X) -> (Y) { Y(n) = normcdfinv(sigmoid(X(n))) }",
        [real(6)],
        lambda x: torch.special.ndtri(x.sigmoid()),
    ),
    "circles": Case(
        "def f(double(N) X) -> (Y) { Y(n) = sinpi(X(n))*cospi(X(n)) }",
        [real(6)],
        lambda x: (torch.pi * x).sin() * (torch.pi * x).cos(),
    ),
    "norms_inverted": Case(
        "def f(double(N) X, double(N) Z) -> (Y) { Y(n) = rhypot(X(n), Z(n)) }",
        [positive(6), positive(6)],
        lambda x, z: 1 / torch.hypot(x, z),
    ),
    "float_beside_double": Case(
        "def f(float(N) X, double(N) Z) -> (Y) { Y(n) = X(n)*Z(n)*Z(n) }",
        [Values((6,), kind="f4"), real(6)],
        lambda x, z: x * z * z,
    ),
    "casts": Case(
        "def f(double(N) X, int(N) P, bool(N) M) -> (Y) { Y(n) = X(n)*double(P(n)) + float(M(n))*X(n)*X(n) }",
        [real(6), whole(5, 6), Values((6,), kind="?")],
        lambda x, p, m: x * p + m * x * x,
    ),
    "integer_output": Case(
        "def f(double(N) X, int(N) P) -> (Y, Q) { Y(n) = X(n)*P(n)  Q(n) = P(n)*2 }",
        [real(6), whole(5, 6)],
        lambda x, p: (x * p, p * 2),
    ),
    "indices_as_values": Case(
        "def f(double(N,M) X) -> (Y) { Y(i,j) = X(i,j)*(i-j)/(i+j+1.0) + i }",
        [real(3, 4)],
        lambda x: (
            x * (torch.arange(3)[:, None] - torch.arange(4)) / (torch.arange(3)[:, None] + torch.arange(4) + 1.0)
            + torch.arange(3)[:, None]
        ),
    ),
    "sizes_as_values": Case(
        "def f(double(N,M) X) -> (y) { y +=! X(i,j)*X(i,j)/(N*M) }",
        [real(3, 4)],
        lambda x: (x * x).mean(),
    ),
    "empty_sum": Case(
        "def f(double(N,M) X, double(N) Z) -> (Y) { s(n) +=! X(n,m)*Z(n)  Y(n) = exp(s(n))*Z(n) }",
        [real(3, 0), real(3)],
        lambda x, z: (x.sum(1) * z).exp() * z,
    ),
    "empty_result": Case(
        "def f(double(N,M) X) -> (Y) { Y(n) +=! X(n,m)*X(n,m) }",
        [real(0, 3)],
        lambda x: (x * x).sum(1),
    ),
    "scalars": Case(
        "def f(double a, double b) -> (y, z) { y = a*b  z = sin(y)*a }",
        [real(), real()],
        lambda a, b: (a * b, (a * b).sin() * a),
    ),
    "many_outputs": Case(
        "def f(double(N) X) -> (s, p, m, Y) { s +=! X(i)  p *=! X(i)  m max=! X(i)  Y(i) = X(i)*s + p*m }",
        [real(5)],
        lambda x: (x.sum(), x.prod(), x.max(), x * x.sum() + x.prod() * x.max()),
    ),
    "unused_temporary": Case(
        "def f(double(N) X) -> (Y) { t(i) = exp(X(i))  u(i) = t(i)*X(i)  Y(i) = X(i)*t(i) }",
        [real(5)],
        lambda x: x * x.exp(),
    ),
    "reused_name": Case(
        "def f(double(N) d_Y, double(N) Y_1) -> (Y) { Y(i) = d_Y(i)*Y_1(i)  Y(i) = Y(i)*d_Y(i) }",
        [real(5), real(5)],
        lambda a, b: a * b * a,
    ),
    "linked_reductions": Case(
        "def f(double(N,M) X) -> (y) { r(i) +=! X(i,j)*X(i,j)  c(j) +=! X(i,j)  y +=! r(i)*c(j)*X(i,j) }",
        [real(3, 4)],
        lambda x: torch.einsum("i,j,ij->", (x * x).sum(1), x.sum(0), x),
    ),
    "quotients_of_sums": Case(
        "def f(double(N) X) -> (Y) { s +=! X(i)*X(i)  t +=! X(i)  Y(i) = X(i)*s/(t*t + s) }",
        [real(5)],
        lambda x: x * (x * x).sum() / (x.sum() ** 2 + (x * x).sum()),
    ),
    "sum_of_quotients": Case(
        "def f(double(N,M) X, double(N) z) -> (Y) { Y(n) +=! X(n,m)/(z(n)*z(n)+1.0)/(X(n,m)*X(n,m)+2.0) }",
        [real(3, 4), real(3)],
        lambda x, z: (x / (z * z + 1)[:, None] / (x * x + 2)).sum(1),
    ),
}
