"""Elements moved: rolls, flips, mirrors, scatters to affine places, triangles, sampling."""

from __future__ import annotations

import torch
from torch.nn import functional

from tests.derivatives.equivalents.case import Case, Values, positive, real, truth, whole

CASES = {
    "roll": Case(
        "def f(double(N) X, double(N) w) -> (Y) { Y(i) = X((i+2)%N)*w(i) }",
        [real(7), real(7)],
        lambda x, w: x.roll(-2) * w,
    ),
    "roll_back": Case(
        "def f(double(N) X) -> (Y) { Y(i) = X((i-3)%N)*X(i) where i in 0:N }",
        [real(7)],
        lambda x: x.roll(3) * x,
    ),
    "flip": Case(
        "def f(double(N,M) X) -> (Y) { Y(i,j) = exp(X(N-1-i,M-1-j)) }",
        [real(3, 4)],
        lambda x: x.flip(0, 1).exp(),
    ),
    "transposed_and_flipped": Case(
        "def f(double(N,M) X) -> (Y) { Y(i,j) = X(j,M-1-i)*X(0,0) where i in 0:M }",
        [real(3, 4)],
        lambda x: x.flip(1).T * x[0, 0],
    ),
    "every_second": Case(
        "def f(double(N) X) -> (Y) { Y(i) = X(2*i)*X(2*i+1) where i in 0:N/2 }",
        [real(9)],
        lambda x: x[0:8:2] * x[1:8:2],
    ),
    "every_third_from_the_end": Case(
        "def f(double(N) X) -> (Y) { Y(i) = sin(X(N-1-3*i)) where i in 0:(N+2)/3 }",
        [real(10)],
        lambda x: x.flip(0)[::3].sin(),
    ),
    "pixel_shuffle": Case(
        "def f(double(N,C,H,W) X) -> (Y) { Y(n,c,h,w) = X(n,4*c+2*(h%2)+w%2,h/2,w/2) where n in 0:N, c in 0:C/4, "
        "h in 0:2*H, w in 0:2*W }",
        [real(2, 8, 3, 2)],
        lambda x: functional.pixel_shuffle(x, 2),
    ),
    "pixel_unshuffle": Case(
        "def f(double(N,C,H,W) X) -> (double(N,4*C,H/2,W/2) Y) { Y(n,4*c+2*(h%2)+w%2,h/2,w/2) = X(n,c,h,w) }",
        [real(2, 3, 4, 6)],
        lambda x: functional.pixel_unshuffle(x, 2),
    ),
    "channel_shuffle": Case(
        "def f(double(N,C,L) X) -> (Y) { Y(n,c,l) = X(n,3*(c%2)+c/2,l)*X(n,c,l) where c in 0:6 }",
        [real(2, 6, 3)],
        lambda x: x.unflatten(1, (2, 3)).transpose(1, 2).flatten(1, 2) * x,
    ),
    "patches": Case(
        "def f(double(C,H,W) X) -> (Y) { Y(h/2,w/3,c,h%2,w%3) = X(c,h,w)*X(c,h,w) }",
        [real(2, 4, 6)],
        lambda x: (x**2).unflatten(2, (2, 3)).unflatten(1, (2, 2)).permute(1, 3, 0, 2, 4),
    ),
    "flattened": Case(
        "def f(double(N,M) X, double(12) w) -> (Y) { Y(i*4+j) = X(i,j)*w(4*i+j) }",
        [real(3, 4), real(12)],
        lambda x, w: x.flatten() * w,
    ),
    "flattened_by_sizes": Case(
        "def f(double(N,M) X) -> (Y) { Y(i*M+j) = sin(X(i,j)) }",
        [real(3, 4)],
        lambda x: x.flatten().sin(),
    ),
    "unflattened": Case(
        "def f(double(12) X) -> (Y) { Y(i,j) = X(4*i+j)*X(4*i+j) where i in 0:3, j in 0:4 }",
        [real(12)],
        lambda x: x.reshape(3, 4) ** 2,
    ),
    "divided_and_rest": Case(
        "def f(double(L) X) -> (Y) { Y(l/3,l%3) = exp(X(l)) }",
        [real(12)],
        lambda x: x.exp().reshape(4, 3),
    ),
    "interleaved": Case(
        "def f(double(N) A, double(N) B) -> (Y) { Y(2*i) = A(i)*B(i)  Y(2*i+1) = sin(B(i)) }",
        [real(5), real(5)],
        lambda a, b: torch.stack([a * b, b.sin()], 1).flatten(),
    ),
    "interleaved_three": Case(
        "def f(double(N) A, double(N) B) -> (Y) { Y(3*i) = A(i)  Y(3*i+2) = B(i)*A(i)  Y(3*i+1) = B(i) }",
        [real(4), real(4)],
        lambda a, b: torch.stack([a, b, a * b], 1).flatten(),
    ),
    "concatenated_three": Case(
        "def f(double(N,D) A, double(M,D) B, double(K,D) C) -> (Y) { Y(i,d) = A(i,d)*A(i,d)  Y(N+i,d) = "
        "sin(B(i,d))  Y(N+M+i,d) = C(i,d) }",
        [real(2, 3), real(4, 3), real(3, 3)],
        lambda a, b, c: torch.cat([a * a, b.sin(), c]),
    ),
    "padded_by_conditions": Case(
        "def f(double(N) X) -> (Y) { Y(i) = 2 <= i && i < N+2 ? exp(X(i-2)) : 1.0 where i in 0:N+5 }",
        [real(4)],
        lambda x: functional.pad(x.exp(), (2, 3), value=1.0),
    ),
    "padded_by_a_number": Case(
        "def f(double(N,M) X) -> (Y) { Y(i,j) = constant_exterior(X, 0.5)(i-1,j-2)*constant_exterior(X, "
        "0.5)(i-1,j-2) where i in 0:N+2, j in 0:M+3 }",
        [real(3, 4)],
        lambda x: functional.pad(x, (2, 1, 1, 1), value=0.5) ** 2,
    ),
    "padded_by_data": Case(
        "def f(double(N) X, double(N) v) -> (Y) { Y(i,j) = constant_exterior(X, v(j))(i-2)*X(j) where i in "
        "0:N+3, j in 0:N }",
        [real(4), real(4)],
        lambda x, v: torch.cat([v.expand(2, 4), x[:, None].expand(4, 4), v.expand(1, 4)]) * x,
    ),
    "padded_by_a_scalar": Case(
        "def f(double(H,W) X, double v) -> (Y) { Y(i,j) = exp(constant_exterior(X, v*v)(i-1,j+1)) where i in "
        "0:H, j in 0:W }",
        [real(3, 4), real()],
        lambda x, v: torch.cat([torch.cat([(v * v).expand(1, 3), x[:2, 1:]]), (v * v).expand(3, 1)], 1).exp(),
    ),
    "diagonal": Case(
        "def f(double(N,N) X) -> (y) { y(i) = X(i,i)*X(i,i) }",
        [real(4, 4)],
        lambda x: x.diagonal() ** 2,
    ),
    "trace": Case(
        "def f(double(N,N) X) -> (y) { y +=! X(i,i) }",
        [real(4, 4)],
        torch.trace,
    ),
    "diagonal_written": Case(
        "def f(double(N) x, double(N,N) A) -> (Y) { Y(i,j) = A(i,j)*A(j,i)  Y(i,i) = exp(x(i)) }",
        [real(4), real(4, 4)],
        lambda x, a: torch.where(torch.eye(4, dtype=torch.bool), x.exp()[:, None], a * a.T),
    ),
    "diagonal_added": Case(
        "def f(double(N) x, double(N,N) A) -> (Y) { Y(i,j) = A(i,j)*A(i,j)  Y(i,i) += x(i)*x(i) }",
        [real(4), real(4, 4)],
        lambda x, a: a * a + torch.diag(x * x),
    ),
    "diagonal_embedded": Case(
        "def f(double(N) x) -> (Y) { Y(i,j) = i == j ? x(i)*x(j) : double(0) where i in 0:N, j in 0:N }",
        [real(4)],
        lambda x: torch.diag(x * x),
    ),
    "lower_triangle": Case(
        "def f(double(N,N) X) -> (Y) { Y(i,j) = j <= i ? X(i,j)*X(j,i) : double(0) }",
        [real(4, 4)],
        lambda x: (x * x.T).tril(),
    ),
    "sum_of_a_triangle": Case(
        "def f(double(N,N) X) -> (y) { y +=! X(i,j)*X(i,j) where i in 0:N, j in 0:i+1 }",
        [real(4, 4)],
        lambda x: (x * x).tril().sum(),
    ),
    "pairs": Case(
        "def f(double(N,D) X) -> (y) { y +=! X(i,d)*X(j,d) where i in 0:N, j in i+1:N }",
        [real(4, 3)],
        lambda x: (x @ x.T).triu(1).sum(),
    ),
    "cumulative_sum": Case(
        "def f(double(N) X) -> (Y) { Y(i) +=! X(j) where i in 0:N, j in 0:i+1 }",
        [real(6)],
        lambda x: x.cumsum(0),
    ),
    "cumulative_sum_reversed": Case(
        "def f(double(N,D) X) -> (Y) { Y(i,d) +=! X(j,d)*X(j,d) where i in 0:N, j in i:N }",
        [real(6, 2)],
        lambda x: (x * x).flip(0).cumsum(0).flip(0),
    ),
    "cumulative_sum_exclusive": Case(
        "def f(double(N) X) -> (Y) { Y(i) +=! exp(X(j)) where i in 0:N, j in 0:i }",
        [real(6)],
        lambda x: x.exp().cumsum(0) - x.exp(),
    ),
    "cumulative_product": Case(
        "def f(double(N) X) -> (Y) { Y(i) *=! X(j) where i in 0:N, j in 0:i+1 }",
        [real(6)],
        lambda x: x.cumprod(0),
    ),
    "cumulative_maximum": Case(
        "def f(double(N) X) -> (Y) { Y(i) max=! X(j) where i in 0:N, j in 0:i+1 }",
        [real(6)],
        lambda x: x.cummax(0).values,
    ),
    "sum_of_windows_by_ranges": Case(
        "def f(double(N) X) -> (Y) { Y(i) +=! X(j)*X(j) where i in 0:N-2, j in i:i+3 }",
        [real(7)],
        lambda x: (x * x).unfold(0, 3, 1).sum(1),
    ),
    "bilinear_sampling": Case(
        "def f(double(H,W) X, double(N) u, double(N) v) -> (Y) { Y(n) = (1.0-a)*(1.0-b)*X(i,j) + "
        "(1.0-a)*b*X(i,j+1) + a*(1.0-b)*X(i+1,j) + a*b*X(i+1,j+1) where a = u(n)-floor(u(n)), b = "
        "v(n)-floor(v(n)), i = int(u(n)), j = int(v(n)) }",
        [real(5, 6), Values((4,), 0.1, 3.9), Values((4,), 0.1, 4.9)],
        lambda x, u, v: functional.grid_sample(
            x[None, None], torch.stack([2 * v / 5 - 1, 2 * u / 4 - 1], -1)[None, None], align_corners=True
        )[0, 0, 0],
    ),
    "linear_interpolation": Case(
        "def f(double(N) X, double(M) t) -> (Y) { Y(m) = X(int(t(m))) + "
        "(t(m)-floor(t(m)))*(X(int(t(m))+1)-X(int(t(m)))) }",
        [real(6), Values((4,), 0.1, 4.9)],
        lambda x, t: x[t.long()] + t.frac() * (x[t.long() + 1] - x[t.long()]),
    ),
    "permuted_rows": Case(
        "def f(double(N,D) X, int(N) P) -> (Y) { Y(i,d) = X(P(i),d)*X(i,d) }",
        [real(4, 3), whole(4, 4)],
        lambda x, p: x[p.long()] * x,
    ),
    "looked_up_twice": Case(
        "def f(double(E) T, int(E) J, int(N) I) -> (Y) { Y(n) = T(J(I(n)))*T(I(n)) }",
        [real(5), whole(5, 5), whole(5, 4)],
        lambda t, j, i: t[j.long()[i.long()]] * t[i.long()],
    ),
    "take_along": Case(
        "def f(double(N,M) X, int(N,K) I) -> (Y) { Y(n,k) = exp(X(n,I(n,k))) }",
        [real(3, 5), whole(5, 3, 2)],
        lambda x, i: x.gather(1, i.long()).exp(),
    ),
    "chosen_by_booleans": Case(
        "def f(double(N) X, double(N) Z, bool(N) M) -> (Y) { Y(n) = select(M(n), X(n)*Z(n), sin(Z(n))) }",
        [real(8), real(8), truth(8)],
        lambda x, z, m: torch.where(m, x * z, z.sin()),
    ),
    "guarded_logarithm": Case(
        "def f(double(N) X) -> (Y) { Y(n) = X(n) > 0.0 ? log(X(n)) : double(0) }",
        [real(8)],
        lambda x: torch.where(x > 0, torch.where(x > 0, x, 1).log(), 0),
    ),
    "guarded_root": Case(
        "def f(double(N) X) -> (Y) { s(n) = relu(X(n))  Y(n) = s(n) > 0.0 ? sqrt(s(n)) : s(n) }",
        [real(8)],
        lambda x: torch.where(x > 0, torch.where(x > 0, x, 1).sqrt(), x.relu()),
    ),
    "starts_above_0": Case(
        "def f(double(N) X) -> (Y) { Y(i) = X(i-2)*X(i-1) }",
        [real(6)],
        lambda x: x[:-1] * x[1:],
    ),
    "starts_above_0_and_read": Case(
        "def f(double(N) X) -> (Y, Z) { Y(i) = X(i)*X(i) where i in 2:N  Z(i) = Y(i)*X(i-2) }",
        [real(6)],
        lambda x: (x[2:] ** 2, x[2:] ** 2 * x[:-2]),
    ),
    "wavelet": Case(
        "def f(double(N) X) -> (A, D) { A(i) = (X(2*i)+X(2*i+1))*0.5  D(i) = (X(2*i)-X(2*i+1))*A(i) where i in 0:N/2 }",
        [real(8)],
        lambda x: ((x[::2] + x[1::2]) * 0.5, (x[::2] - x[1::2]) * (x[::2] + x[1::2]) * 0.5),
    ),
    "laplacian": Case(
        "def f(double(H,W) X) -> (Y) { Y(i,j) = X(i-1,j)+X(i+1,j)+X(i,j-1)+X(i,j+1)-4.0*X(i,j)*X(i,j) }",
        [real(5, 6)],
        lambda x: x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] - 4 * x[1:-1, 1:-1] ** 2,
    ),
    "total_variation": Case(
        "def f(double(H,W) X) -> (y) { a +=! abs(X(i+1,j)-X(i,j))  b +=! abs(X(i,j+1)-X(i,j))  y = a+b }",
        [real(4, 5)],
        lambda x: x.diff(dim=0).abs().sum() + x.diff(dim=1).abs().sum(),
    ),
    "sheared": Case(
        "def f(double(N,M) X) -> (Y) { Y(i,j) = X(i,i+j)*X(i,j) where i in 0:N, j in 0:M-N+1 }",
        [real(3, 7)],
        lambda x: torch.stack([x[i, i : i + 5] for i in range(3)]) * x[:, :5],
    ),
    "antidiagonals": Case(
        "def f(double(N,M) X) -> (Y) { Y(i+j) +=! X(i,j)*X(i,j) }",
        [real(3, 4)],
        lambda x: torch.stack([(x * x).flip(1).diagonal(3 - k).sum() for k in range(6)]),
    ),
    "outer_sum_by_product": Case(
        "def f(double(12) X) -> (Y) { Y(i,j) = X(i*j)*X(i+j) where i in 0:4, j in 0:4 }",
        [real(12)],
        lambda x: x[torch.arange(4)[:, None] * torch.arange(4)] * x[torch.arange(4)[:, None] + torch.arange(4)],
    ),
    "toeplitz": Case(
        "def f(double(M) c, double(N) x) -> (Y) { Y(i) +=! c(i-j+N-1)*x(j) where i in 0:N }",
        [real(9), real(5)],
        lambda c, x: torch.stack([(c[i : i + 5].flip(0) * x).sum() for i in range(5)]),
    ),
    "hankel": Case(
        "def f(double(M) c, double(N) x) -> (Y) { Y(i) +=! c(i+j)*x(j) }",
        [real(9), real(5)],
        lambda c, x: c.unfold(0, 5, 1) @ x,
    ),
    "histogram_weights": Case(
        "def f(double(N) w, int(N) B, double(5) s) -> (h) { h(b) +=! B(n) == b ? w(n)*s(b) : double(0) }",
        [real(9), whole(5, 9), real(5)],
        lambda w, b, s: torch.zeros(5, dtype=torch.float64).index_add(0, b.long(), w) * s,
    ),
    "segment_sums": Case(
        "def f(double(N,D) X) -> (Y) { Y(i/3,d) +=! X(i,d)*X(i,d) }",
        [real(9, 2)],
        lambda x: (x * x).reshape(3, 3, 2).sum(1),
    ),
    "rows_repeated": Case(
        "def f(double(N,D) X) -> (Y) { Y(r,n,d) = X(n,d)*r where r in 0:3 }",
        [real(2, 3)],
        lambda x: x * torch.arange(3)[:, None, None],
    ),
    "one_element": Case(
        "def f(double(N,M) X) -> (y) { y = X(1,2)*X(0,0) }",
        [real(3, 4)],
        lambda x: x[1, 2] * x[0, 0],
    ),
    "last_row": Case(
        "def f(double(N,M) X) -> (Y) { Y(j) = X(N-1,j)*X(0,M-1-j) }",
        [real(3, 4)],
        lambda x: x[-1] * x[0].flip(0),
    ),
    "broadcast_scalar": Case(
        "def f(double a, double(N) X) -> (Y) { Y(i) = a*X(i)+a }",
        [real(), real(4)],
        lambda a, x: a * x + a,
    ),
    "nothing_read": Case(
        "def f(double(N) X, double(M) Z) -> (Y) { Y(i) = X(i)*X(i) + M }",
        [real(4), real(3)],
        lambda x, z: x * x + 3 + 0 * z.sum(),
    ),
    "only_through_integers": Case(
        "def f(double(N) X, double(N) Z) -> (Y) { Y(i) = X(i)*int(Z(i)*4.0) }",
        [real(6), positive(6)],
        lambda x, z: x * (z * 4).int() + 0 * z,
    ),
    "mirrored_by_hand": Case(
        "def f(double(N) X) -> (Y) { Y(i) = X(abs(i-2)) * X(i) where i in 0:N }",
        [real(6)],
        lambda x: x[(torch.arange(6) - 2).abs()] * x,
    ),
    "clamped_by_hand": Case(
        "def f(double(N) X) -> (Y) { Y(i) = X(min(max(i-2, 0), N-1))*X(i) where i in 0:N }",
        [real(6)],
        lambda x: x[(torch.arange(6) - 2).clamp(0, 5)] * x,
    ),
}
