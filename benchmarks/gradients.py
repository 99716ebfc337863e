"""Forward and backward passes through torch's autograd: tcomp's derived gradients against torch and torch.compile.

    python benchmarks/gradients.py [--only conv,mlp] [--rounds 5] [--no-compile] [--json out/benchmarks/gradients.json]

Each call runs the forward pass and the gradients by all inputs of floats, of a loss with a given cotangent.  Results
are compared first.  Implementations take turns of a quarter of a second in this process, each after 30 ms of warming
up; the time is the median of all calls.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import platform
import statistics
import time
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import tcomp as tc
from tcomp.commands.terminal.display import show_table

TURN, WARM = 0.25, 0.03
ROUNDS_OF_CALLS = 100
"""Seconds."""

TEXT = """
def conv(float(N,C,H,W) I, float(F,C,KH,KW) K, float(F) b) -> (O) {
    O(n,f,h,w) +=! I(n,c,h+kh,w+kw) * K(f,c,kh,kw)
    O(n,f,h,w) = relu(O(n,f,h,w) + b(f))
}
def strided(float(N,C,H,W) I, float(F,C,KH,KW) K) -> (O) { O(n,f,h,w) +=! I(n,c,2*h+kh,2*w+kw) * K(f,c,kh,kw) }
def attention(float(B,H,L,D) Q, float(B,H,S,D) K, float(B,H,S,E) V) -> (O) {
    s(b,h,i,j) +=! Q(b,h,i,d) * K(b,h,j,d)
    m(b,h,i) max=! s(b,h,i,j)
    p(b,h,i,j) = exp((s(b,h,i,j) - m(b,h,i)) * rsqrt(float(D)))
    z(b,h,i) +=! p(b,h,i,j)
    O(b,h,i,e) +=! p(b,h,i,j) * V(b,h,j,e)
    O(b,h,i,e) = O(b,h,i,e) / z(b,h,i)
}
def layer_norm(float(N,D) X, float(D) g, float(D) b) -> (Y) {
    mean(n) +=! X(n,d)
    mean(n) = mean(n) / D
    var(n) +=! (X(n,d) - mean(n)) * (X(n,d) - mean(n))
    rstd(n) = rsqrt(var(n) / D + 0.00001)
    Y(n,d) = (X(n,d) - mean(n)) * rstd(n) * g(d) + b(d)
}
def mlp(float(B,M) X, float(H,M) U, float(H) u, float(N,H) V, float(N) v) -> (Y) {
    T(b,h) +=! X(b,m) * U(h,m)
    G(b,h) = 0.5 * z * (1 + erf(z * 0.70710678118654752)) where z = T(b,h) + u(h)
    Y(b,n) +=! G(b,h) * V(n,h)
    Y(b,n) = Y(b,n) + v(n)
}
def local(float(N,C,H,W) I, float(H-2,W-2,F,C,3,3) K) -> (O) {
    O(n,f,h,w) +=! I(n,c,h+kh,w+kw) * K(h,w,f,c,kh,kw)
}
def gated_attention(float(B,L,D) Q, float(B,S,D) K, float(B,S,E) V, float(B,L,E) gate) -> (O) {
    s(b,i,j) +=! Q(b,i,d) * K(b,j,d)
    m(b,i) max=! s(b,i,j)
    p(b,i,j) = exp((s(b,i,j) - m(b,i)) * rsqrt(float(D)))
    z(b,i) +=! p(b,i,j)
    O(b,i,e) +=! p(b,i,j) * V(b,j,e)
    O(b,i,e) = O(b,i,e) / z(b,i) * sigmoid(gate(b,i,e))
}
def cross_entropy(float(N,C) X, int64(N) label) -> (L) {
    m(n) max=! X(n,c)
    z(n) +=! exp(X(n,c) - m(n))
    L +=! log(z(n)) + m(n) - X(n,label(n))
    L = L / N
}
def softmax(float(N,D) X) -> (Y) {
    m(n) max=! X(n,d)
    E(n,d) = exp(X(n,d) - m(n))
    s(n) +=! E(n,d)
    Y(n,d) = E(n,d) / s(n)
}
"""

F = torch.nn.functional


def _local(image: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    windows = image.unfold(2, 3, 1).unfold(3, 3, 1)
    return torch.einsum("nchwkl,hwfckl->nfhw", windows, kernel)


def _gated(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v) * torch.sigmoid(gate)


@dataclass(frozen=True, slots=True)
class Case:
    """A def of the text, what torch's users write for it, and the shapes of the inputs."""

    name: str
    peer: Callable[..., torch.Tensor]
    shapes: Sequence[tuple[int, ...]]
    labels: int = 0
    weights: float = 1.0


CASES = (
    Case("conv", lambda i, k, b: F.relu(F.conv2d(i, k, b)), [(8, 64, 30, 30), (64, 64, 3, 3), (64,)]),
    Case("strided", lambda i, k: F.conv2d(i, k, stride=2), [(8, 32, 33, 33), (64, 32, 3, 3)]),
    Case("attention", F.scaled_dot_product_attention, [(2, 8, 256, 64)] * 3),
    Case(
        "layer_norm", lambda x, g, b: F.layer_norm(x, x.shape[1:], g, b, 1e-5), [(2048, 768), (768,), (768,)]
    ),
    Case(
        "mlp", lambda x, u, c, v, d: F.linear(F.gelu(F.linear(x, u, c)), v, d),
        [(256, 512), (1024, 512), (1024,), (512, 1024), (512,)], weights=0.04,
    ),
    Case("local", _local, [(8, 16, 18, 18), (16, 16, 16, 16, 3, 3)]),
    Case("gated_attention", _gated, [(8, 128, 64)] * 4),
    Case("cross_entropy", F.cross_entropy, [(512, 10_000)], labels=10_000),
    Case("softmax", lambda x: torch.softmax(x, 1), [(2048, 1024)]),
)  # fmt: skip


def steps(case: Case, compiled: bool) -> dict[str, Callable[[], Sequence[torch.Tensor]]]:
    """Forward and backward of a case, by implementation, on the same tensors."""
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(s, generator=generator) for s in case.shapes]
    # The first is data, of size 1; the others are as small as weights are, so that no exponential underflows.
    inputs = [(x if n == 0 else x * case.weights).requires_grad_() for n, x in enumerate(made)]
    labels = [torch.randint(case.labels, (case.shapes[0][0],), generator=generator)] if case.labels else []
    with torch.no_grad():
        cotangent = torch.randn(case.peer(*inputs, *labels).shape, generator=generator)
    found: dict[str, Callable[..., Any]] = {"tcomp": tc.define(TEXT)[case.name], "torch": case.peer}
    if compiled:
        found["torch.compile"] = torch.compile(case.peer)

    def step(f: Callable[..., Any]) -> Callable[[], Sequence[torch.Tensor]]:
        return lambda: torch.autograd.grad(f(*inputs, *labels), inputs, cotangent)

    return {name: step(f) for name, f in found.items()}


def measure(case: Case, rounds: int, compiled: bool) -> dict[str, float]:
    """Milliseconds by implementation.  Raises AssertionError where results differ."""
    implementations = steps(case, compiled)
    expected = implementations["torch"]()
    for name, step in implementations.items():
        for got, right in zip(step(), expected, strict=True):
            error = float((got - right).norm() / right.norm())
            assert error < 1e-4, f"{case.name}: {name} differs by {error:.1e}"
    times: dict[str, list[float]] = {name: [] for name in implementations}
    for _ in range(rounds):
        for name, step in implementations.items():
            turn(step, WARM)
            times[name] += turn(step, TURN)
    return {name: 1e3 * statistics.median(taken) for name, taken in times.items()}


def turn(step: Callable[[], object], seconds: float) -> list[float]:
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while not taken or time.perf_counter() < end:
        start = time.perf_counter()
        step()
        taken.append(time.perf_counter() - start)
    return taken


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of cases, with commas between them")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--calls", action="store_true", help="only what calls of a small product cost")
    parser.add_argument("--json", type=Path, default=Path("out/benchmarks/gradients.json"))
    chosen = parser.parse_args()
    if chosen.calls:
        show_calls(calls())
        return
    wanted = set(filter(None, chosen.only.split(",")))
    found = {c.name: measure(c, chosen.rounds, not chosen.no_compile) for c in CASES if not wanted or c.name in wanted}
    names = ["tcomp", "torch", *([] if chosen.no_compile else ["torch.compile"])]
    ratios = {case: min(t for n, t in times.items() if n != "tcomp") / times["tcomp"] for case, times in found.items()}
    rows = [(case, *(f"{times[n]:.2f} ms" for n in names), f"{ratios[case]:.2f}") for case, times in found.items()]
    mean = statistics.geometric_mean(ratios.values())
    show_table(
        ("forward and backward", *names, "best peer"), [*rows, ("geometric mean", *[""] * len(names), f"{mean:.2f}")]
    )
    called = calls()
    show_calls(called)
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    facts = {
        "benchmark": "gradients",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "rows": found,
        "calls": called,
    }
    chosen.json.write_text(json.dumps(facts, indent=1) + "\n")


def calls() -> dict[str, dict[str, float]]:
    """Microseconds of calls of a small product, the least of many turns that both take."""
    mm = tc.define("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }").mm
    a, b, cotangent = torch.rand(8, 6), torch.rand(6, 5), torch.ones(8, 5)
    recorded = a.clone().requires_grad_()

    def backward(f: Callable[..., Any]) -> None:
        recorded.grad = None
        f(recorded, b).backward(cotangent)

    kinds: dict[str, Callable[[Callable[..., Any]], object]] = {
        "forward": lambda f: f(a, b),
        "recording": lambda f: f(recorded, b),
        "with the backward pass": backward,
    }
    functions = {"tcomp": mm, "torch": torch.mm}
    found: dict[str, dict[str, float]] = {what: dict.fromkeys(functions, math.inf) for what in kinds}
    for _ in range(ROUNDS_OF_CALLS):
        for what, call in kinds.items():
            for name, f in functions.items():
                found[what][name] = min(found[what][name], _time(functools.partial(call, f)))
    return found


def show_calls(called: dict[str, dict[str, float]]) -> None:
    show_table(
        ("a product of 8x6 by 6x5", "tcomp", "torch.mm", "ratio"),
        [
            (what, *(f"{t:.1f} us" for t in times.values()), f"{times['tcomp'] / times['torch']:.2f}")
            for what, times in called.items()
        ],
    )


def _time(call: Callable[[], object], number: int = 500) -> float:
    """Microseconds of a call, of many in a row."""
    return 1e6 * timeit.timeit(call, number=number) / number


def machine() -> dict[str, str | int]:
    """What results are measured with."""
    return {
        "processor": processor(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
