"""What fusion makes of the programs that it exists for: golden loops, and what must hold of them whatever the text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tcomp.driver import Compilation, lower
from tcomp.grammar import define
from tcomp.loops.ir import render
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import Sizes
from tests.targets import CPU


@dataclass(frozen=True)
class Program:
    text: str
    sizes: dict[str, int]
    nest: str


PROGRAMS = {
    "matmul": Program(
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,kk) * B(kk,n) }",
        {"M": 100, "K": 200, "N": 300},
        "p0 p1 t t (m n S0i ; kk m n S0 ; m n S0f)",
    ),
    "softmax": Program(
        """def f(float(N,D) I) -> (O) {
          m(n) max=! I(n,d)
          e(n,d) = exp(I(n,d) - m(n))
          s(n) +=! e(n,d)
          O(n,d) = e(n,d) / s(n)
        }""",
        {"N": 100, "D": 200},
        "p0 (n (S0i ; d S0) ; n d S1 ; n (S2i ; d S2) ; n d S3)",
    ),
    "layer_norm": Program(
        """def f(float(N,D) I, float(D) G, float(D) B) -> (O) {
          mu(n) +=! I(n,d)
          mu(n) = mu(n) / D
          v(n) +=! (I(n,d) - mu(n)) * (I(n,d) - mu(n))
          v(n) = v(n) / D
          O(n,d) = (I(n,d) - mu(n)) * rsqrt(v(n) + 1e-5) * G(d) + B(d)
        }""",
        {"N": 100, "D": 200},
        "p0 (n (S0i ; d S0 ; S1) ; n (S2i ; d S2 ; S3) ; n d S4)",
    ),
    "mlp3": Program(
        """def f(float(B,M) I, float(N,M) W1, float(N) B1, float(O,N) W2, float(O) B2,
                 float(P,O) W3, float(P) B3) -> (Y) {
          h(b,n) +=! I(b,m) * W1(n,m)
          h(b,n) = fmax(h(b,n) + B1(n), 0)
          g(b,o) +=! h(b,n) * W2(o,n)
          g(b,o) = fmax(g(b,o) + B2(o), 0)
          Y(b,p) +=! g(b,o) * W3(p,o)
          Y(b,p) = fmax(Y(b,p) + B3(p), 0)
        }""",
        {"B": 128, "M": 128, "N": 64, "O": 32, "P": 100},
        "p0 (t t (b n S0i ; m b n S0 ; b n S1) ; t (b o S2i ; n b o S2 ; b o S3) ; t (b p S4i ; o b p S4 ; b p S5))",
    ),
    "blur": Program(
        """def f(float(H,W) I) -> (O) {
          x(h,w) = (I(h,w) + I(h,w+1) + I(h,w+2)) / 3
          O(h,w) = (x(h,w) + x(h+1,w) + x(h+2,w)) / 3
        }""",
        {"H": 300, "W": 4100},
        "p0 p1 (h w S0 ; h w S1)",
    ),
    "conv_relu_pool": Program(
        """def f(float(N,C,H,W) I, float(F,C,KH,KW) K, float(F) B) -> (O) {
          t(n,f,h,w) +=! I(n,c,h+kh,w+kw) * K(f,c,kh,kw)
          t(n,f,h,w) = fmax(t(n,f,h,w) + B(f), 0)
          O(n,f,h,w) max=! t(n,f,2*h+ph,2*w+pw) where ph in 0:3, pw in 0:3
        }""",
        {"N": 2, "C": 5, "H": 135, "W": 135, "F": 8, "KH": 3, "KW": 3},
        "p0 p1 (h t (f w S0i ; c kh kw f w S0 ; f w S1) ; f t (h w S2i ; ph pw h w S2 ; h w S2f))",
    ),
    "attention": Program(
        """def f(float(B,Q,D) q, float(B,K,D) k, float(B,K,D) v) -> (O) {
          s(b,i,j) +=! q(b,i,d) * k(b,j,d)
          m(b,i) max=! s(b,i,j)
          e(b,i,j) = exp((s(b,i,j) - m(b,i)) * 0.125)
          l(b,i) +=! e(b,i,j)
          a(b,i,d) +=! e(b,i,j) * v(b,j,d)
          O(b,i,d) = a(b,i,d) / l(b,i)
        }""",
        {"B": 4, "Q": 64, "K": 96, "D": 128},
        "p0 p1 (t t (i j S0i ; d i j S0) ; i (S1i ; j S1) ; i j S2 ; i (S3i ; j S3)"
        " ; t t (i d S4i ; j i d S4 ; i d S5))",
    ),
}


FIXED = MappingOptions()
"""What the model chooses, for a processor that is the same everywhere."""


def compile_program(name: str, options: MappingOptions = FIXED) -> Compilation:
    program = PROGRAMS[name]
    return lower(define(program.text)["f"], Sizes(program.sizes), options, CPU)


@pytest.mark.parametrize("name", PROGRAMS)
def test_becomes_one_fused_parallel_nest(name: str) -> None:
    compilation = compile_program(name)
    assert compilation.nest == PROGRAMS[name].nest
    assert len(compilation.plan.groups) == 1
    assert all(b.space in ("tile", "register") for b in compilation.plan.buffers.values())
    assert compilation.source.text.count("#pragma omp parallel ") <= 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_golden_loops(name: str, golden: Callable[[Path, str], None]) -> None:
    compilation = compile_program(name)
    tables = compilation.stages["pack"].split("'''\n\n")[1]
    golden(Path(__file__).parent / f"{name}.txt", f"{tables}\n{render(compilation.loops)}")


@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - {"matmul"}))
def test_strategy_min_fuses_nothing_between_clusters(name: str) -> None:
    compilation = compile_program(name, FIXED.fuse("min"))
    assert len(compilation.plan.groups) == len(compilation.plan.clusters) > 1


def test_preserve3coincident_keeps_three_loops_or_stores() -> None:
    """Attention fuses only by giving up one of three loops; an MLP whose last layer is a tile wide keeps its two."""
    for name, groups in (("mlp3", 1), ("attention", 2)):
        plan = compile_program(name, FIXED.fuse("preserve3coincident")).plan
        assert len(plan.groups) == groups
        for group in plan.groups:
            assert len(group.members) >= min(3, plan.clusters[group.root].rank)
    blur = compile_program("blur", FIXED.fuse("preserve3coincident")).plan
    assert len(blur.groups) == 1


def test_recompute_limit_bounds_overlap() -> None:
    assert compile_program("blur").plan.groups[0].recompute > 1
    tight = replace(FIXED, recompute_limit=1.0)
    plan = compile_program("blur", tight).plan
    assert len(plan.groups) == 2
    assert plan.buffers["x_1"].space == "global"


def test_overlapping_producers_are_expanded_and_partitioned_ones_are_not() -> None:
    assert compile_program("blur").plan.groups[0].expanded == (0,)
    assert compile_program("softmax").plan.groups[0].expanded == ()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("tiles", [(), (1,), (3, 5), (0, 0, 7), (1000, 1000)])
def test_any_tile_size_is_legal(name: str, tiles: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCOMP_CHECK", "1")
    compilation = compile_program(name, FIXED.tile(*tiles))
    assert compilation.seconds["proof"] > 0
