"""Attention over long rows: the plain text against torch's scaled_dot_product_attention.

    python -m benchmarks.attention [--only 12x2048x2048x64] [--rounds 5] [--json out/benchmarks/attention.json]

A case is heads x queries x keys x channels, float32.  Results are compared first.  Implementations take turns of a
quarter of a second in this process, each after 30 ms of warming up; the time is the median of all calls.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from datetime import UTC, datetime
from pathlib import Path

import torch

import tcomp as tc
from benchmarks.gradients import TURN, WARM, machine, turn
from tcomp.commands.terminal.display import show_table

TEXT = """
def attention(float(B,L,D) Q, float(B,S,D) K, float(B,S,E) V) -> (O) {
    s(b,i,j) +=! Q(b,i,d) * K(b,j,d)
    m(b,i) max=! s(b,i,j)
    p(b,i,j) = exp((s(b,i,j) - m(b,i)) * rsqrt(float(D)))
    z(b,i) +=! p(b,i,j)
    O(b,i,e) +=! p(b,i,j) * V(b,j,e)
    O(b,i,e) = O(b,i,e) / z(b,i)
}
"""

_HIDDEN = "exp((s(b,i,j) - m(b,i)) * rsqrt(float(D)))"
CAUSAL = TEXT.replace("max=! s(b,i,j)", "max=! j <= i ? s(b,i,j) : -3.4e38")
CAUSAL = CAUSAL.replace(_HIDDEN, f"j <= i ? {_HIDDEN} : 0.0")

CASES = (
    (12, 512, 512, 64), (12, 1024, 1024, 64), (12, 2048, 2048, 64), (4, 4096, 4096, 64), (1, 16384, 16384, 64),
    (16, 2048, 2048, 32), (12, 2048, 2048, 128), (3, 1000, 1500, 80), (12, 16, 4096, 64), (12, 1, 8192, 64),
)  # fmt: skip
"""The first five are the goal's."""

CAUSAL_CASES = ((12, 256, 256, 64), (12, 512, 512, 64), (12, 1024, 1024, 64), (12, 2048, 2048, 64), (4, 4096, 4096, 64))

TOLERANCE = 1e-5


def measure(case: tuple[int, int, int, int], rounds: int, causal: bool) -> dict[str, float]:
    """Milliseconds by implementation.  Raises AssertionError where results differ."""
    heads, queries, keys, channels = case
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(heads, n, channels, generator=generator) for n in (queries, keys, keys))
    ours, theirs = tc.define(CAUSAL if causal else TEXT).attention, torch.nn.functional.scaled_dot_product_attention
    calls = {
        "tcomp": lambda: ours(q, k, v),
        "torch": lambda: theirs(q[None], k[None], v[None], is_causal=causal)[0],
    }
    error = float((calls["tcomp"]() - calls["torch"]()).norm() / calls["torch"]().norm())
    assert error < TOLERANCE, f"{case} differs by {error:.1e}"
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            turn(call, WARM)
            times[name] += turn(call, TURN)
    return {name: 1e3 * statistics.median(taken) for name, taken in times.items()}


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases, with commas between them")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=Path("out/benchmarks/attention.json"))
    chosen = parser.parse_args()
    wanted = set(filter(None, chosen.only.split(",")))
    cases = {"x".join(map(str, case)): (case, False) for case in CASES}
    cases |= {f"{'x'.join(map(str, case))} causal": (case, True) for case in CAUSAL_CASES}
    found = {
        name: measure(case, chosen.rounds, causal)
        for name, (case, causal) in cases.items()
        if not wanted or name in wanted
    }
    rows = [
        (name, f"{t['tcomp']:.2f} ms", f"{t['torch']:.2f} ms", f"{t['torch'] / t['tcomp']:.2f}")
        for name, t in found.items()
    ]
    show_table(("heads x queries x keys x channels", "tcomp", "torch", "ratio"), rows)
    print(f"geometric mean {math.exp(statistics.fmean(math.log(t['torch'] / t['tcomp']) for t in found.values())):.2f}")
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    facts = {
        "benchmark": "attention",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "rows": found,
    }
    chosen.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
