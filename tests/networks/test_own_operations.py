"""Modules that compute by defs of tcomp's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import tcomp as tc  # noqa: E402
import tcomp.torch as tct  # noqa: E402

OPS = tct.define("""
def soft(float(N,D) X) -> (Y) {
  m(n) max=! X(n,d)
  e(n,d) = exp(X(n,d) - m(n))
  s(n) +=! e(n,d)
  Y(n,d) = e(n,d) / s(n)
}
def attend(float(N,D) Q, float(N,D) K) -> (O) { S(i,j) +=! Q(i,d) * K(j,d)  P = soft(S)  O(i,d) +=! P(i,j) * K(j,d) }
def two(float(N,D) X, const int S) -> (A, B) { A(n,d) = X(n,d) * S  B(n) +=! X(n,d) }
def square<T>(T(N,D) X) -> (T(N,D) Y) { Y(n,d) = X(n,d) * X(n,d) }
def scaled(float(N,D) X, float a) -> (Y) { Y(n,d) = a * X(n,d) }
def biased(float(N,D) X, float(D) b) -> (Y) { Y(n,d) = X(n,d) + b(d) }
""")


class Applied(torch.nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(torch.relu(x))


MODULES = {
    "a layer": torch.nn.Sequential(torch.nn.Linear(6, 8), tct.Layer(OPS.biased, b=(8,)), torch.nn.Linear(8, 4)),
    "calls": Applied(lambda x: OPS.attend(x, x) + 1),
    "several results and a constant": Applied(lambda x: OPS.two(x, 3)[0] + OPS.two(x, S=2)[1][:, None]),
    "a number": Applied(lambda x: OPS.scaled(x, 2.5)),
    "element types": Applied(OPS.square),
}


@pytest.mark.parametrize("name", MODULES)
def test_defs_are_called_by_their_text(name: str, tmp_path: Path) -> None:
    module, x = MODULES[name].eval(), torch.linspace(-1, 2, 30).reshape(5, 6)
    net = tc.compile_network(module, x)
    torch.testing.assert_close(net(x), module(x))
    net.save(tmp_path / "kept.tcn")
    assert torch.equal(tc.load_network(tmp_path / "kept.tcn")(x), net(x))


def test_names_of_layers_do_not_make_them() -> None:
    """Passes rewrite convolutions and norms by their names: those of others are called something else."""
    text = """
    def conv2d(float(N,C,H,W) X, float(K,C,3,3) F) -> (Y) { Y(n,k,p,q) max=! X(n,c,p+i,q+j) + F(k,c,i,j) }
    def batch_norm_own(float(N,C,H,W) X, float(C) a) -> (Y) { Y(n,c,h,w) = X(n,c,h,w) * a(c) + 1.0 }
    """
    ops, F, a = tct.define(text), torch.randn(64, 64, 3, 3), torch.randn(64)
    x = torch.randn(1, 64, 12, 12)
    module = Applied(lambda x: ops.batch_norm_own(torch.nn.functional.conv2d(ops.conv2d(x, F), F), a)).eval()
    torch.testing.assert_close(tc.compile_network(module, x)(x), module(x), rtol=1e-3, atol=1e-2)
    net = "def net(float(N,C,H,W) X, float(K,C,3,3) F) -> (Y) { Y = conv2d(X, F) }"
    made = tc.compile_network(text + net, x, weights={"F": F.numpy()})
    assert torch.equal(made(x), ops.conv2d(x, F))
