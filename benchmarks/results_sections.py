"""Sections of ``RESULTS.md`` beside those of processors and GPUs: for the latest run of a benchmark on a machine."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.results_runs import Run, latest, run_of, table


def sections(found: Sequence[Run]) -> Iterator[str]:
    """The lines of all of them."""
    for benchmark, lines in _SECTIONS.items():
        for run in latest(found, lambda run, wanted=benchmark: run_of(run, wanted)):
            yield from lines(run)


def _gradients(run: Run) -> Iterator[str]:
    machine = run.found["machine"]
    yield from ("", f"## Forward and backward in PyTorch, {machine['processor']}, {run.date[:10]}", "")
    yield (
        f"`python benchmarks/gradients.py`: {machine['threads']} threads, torch {machine['torch']}, "
        f"Python {machine['python']} ([JSON](results/{run.file})). Milliseconds; gradients by all inputs of floats."
    )
    yield ""
    rows = run.found["rows"]
    names = list(next(iter(rows.values())))
    ratios = [min(t for n, t in times.items() if n != "tcomp") / times["tcomp"] for times in rows.values()]
    texts = (
        (*(f"{t:.2f}" for t in times.values()), f"{r:.2f}") for times, r in zip(rows.values(), ratios, strict=True)
    )
    mean = ("geometric mean", *[""] * len(names), f"{statistics.geometric_mean(ratios):.2f}")
    yield from table(("case", *names, "best peer"), [*((c, *t) for c, t in zip(rows, texts, strict=True)), mean])
    yield from ("", "A product of 8x6 by 6x5, microseconds of a call, the least of many:", "")
    calls = ((what, *(f"{t:.1f}" for t in times.values())) for what, times in run.found["calls"].items())
    yield from table(("call", "tcomp", "torch.mm"), calls)


def _attention(run: Run) -> Iterator[str]:
    machine = run.found["machine"]
    yield from ("", f"## Attention over long rows, {machine['processor']}, {run.date[:10]}", "")
    yield (
        f"`python -m benchmarks.attention`: {machine['threads']} threads, torch {machine['torch']} "
        f"(scaled_dot_product_attention), Python {machine['python']} ([JSON](results/{run.file})). Milliseconds."
    )
    yield ""
    rows = run.found["rows"]
    ratios = [t["torch"] / t["tcomp"] for t in rows.values()]
    texts = [
        (c, f"{t['tcomp']:.2f}", f"{t['torch']:.2f}", f"{r:.2f}")
        for (c, t), r in zip(rows.items(), ratios, strict=True)
    ]
    mean = ("geometric mean", "", "", f"{statistics.geometric_mean(ratios):.2f}")
    yield from table(("heads x queries x keys x channels", "tcomp", "torch", "ratio"), [*texts, mean])


def _networks(run: Run) -> Iterator[str]:
    machine, rows = run.found["machine"], run.found["rows"]
    peers = [peer for peer in rows[0]["ms"] if peer != "tcomp"]
    yield from ("", f"## Whole networks, {machine['processor']}, {run.date[:10]}", "")
    yield (
        f"`python -m benchmarks.networks`, rounds: {run.found['rounds']}: {machine['threads']} threads, torch "
        f"{machine['torch']}, ONNX Runtime {machine['onnxruntime']}, OpenVINO {machine['openvino']}, Python "
        f"{machine['python']} ([JSON](results/{run.file})). Median milliseconds; first answers in seconds, with an "
        "empty cache and from the cache, and by how many MB a process grows."
    )
    yield ""
    columns = ("network", "batch", *peers, "tcomp", "best peer", "kernels", "first", "cached", "MB")
    yield from table(columns, (_network_row(row, peers) for row in rows))
    ratios = [row["ratio"] for row in rows]
    yield from ("", f"Geometric mean against the best peer of each row: {statistics.geometric_mean(ratios):.2f}.")


def _ablation(run: Run) -> Iterator[str]:
    machine, kinds = run.found["machine"], run.found["classes"]
    yield from ("", f"## Networks without each pass, {machine['processor']}, {run.date[:10]}", "")
    yield (
        f"`python -m benchmarks.ablation`, rounds: {run.found['rounds']}: {machine['threads']} threads, Python "
        f"{machine['python']} ([JSON](results/{run.file})). A call with one input, one with {run.found['batch']}, "
        "compiling with an empty cache, and the memory that a process grows by meanwhile: what it takes with all "
        "passes, and how many times that without a pass. Rows of passes that change nothing in a network are left out."
    )
    for kind in kinds:
        whole, *others = kind["rows"]
        yield from ("", f"### {kind['network']} ({kind['class']})", "")
        shown = [_ablation_row("with all", whole, None)]
        shown += [_ablation_row(f"without {row['without']}", row, whole) for row in others if not row["same"]]
        yield from table(("", "one, ms", f"{run.found['batch']}, ms", "compiling, s", "memory, MB", "kernels"), shown)
    if all(row["joules"] is None for kind in kinds for row in kind["rows"]):
        yield from ("", "Energy cannot be read on this machine.")


def _ablation_row(title: str, row: Mapping[str, Any], whole: Mapping[str, Any] | None) -> tuple[str, ...]:
    """What a variant takes; beside a whole network, how many times that."""
    forms = {"ms": "{:.2f}", "several_ms": "{:.2f}", "compile_s": "{:.1f}", "peak_mb": "{:.0f}"}
    texts = []
    for name, form in forms.items():
        own, beside = row[name], None if whole is None else whole[name]
        told = "-" if own is None else f"{own / beside:.2f}" if beside else form.format(own)
        texts.append(told)
    return (title, *texts, str(row["kernels"]))


def _network_row(row: Mapping[str, Any], peers: Sequence[str]) -> tuple[str, ...]:
    times = row["ms"]
    best = min(peers, key=lambda peer: times[peer])
    told = (f"**{times[p]:.3g}**" if p == best else f"{times[p]:.3g}" for p in peers)
    firsts = (f"{row['cold_s']:.1f}", f"{row['cached_s']:.2f}", f"{row['grown_mb']:.0f}")
    name = row["network"].replace("_", " ")
    return (
        name,
        str(row["batch"]),
        *told,
        f"{times['tcomp']:.3g}",
        f"{row['ratio']:.2f}",
        str(row["kernels"]),
        *firsts,
    )


def _polybench(run: Run) -> Iterator[str]:
    machine, peers = run.found["machine"], ("gcc", "numpy", "numba")
    yield from (
        "",
        f"## PolyBench {run.found['size'].upper()}, {machine['processor']}, {run.date[:10]}",
        "",
    )
    script, remark = run.found.get("script", "benchmarks.polybench"), run.found.get("remark", "")
    yield (
        f"`python -m {script}`: {machine['threads']} threads, gcc {run.found['flags']} on one, numba parallel with "
        f"fastmath, Python {machine['python']}, rounds: {run.found['rounds']} ([JSON](results/{run.file})). "
        f"Milliseconds; {len(run.found['seconds'])} of the 30 kernels.{remark}"
    )
    yield ""
    rows, ratios = [], []
    for kernel, times in run.found["seconds"].items():
        own = {peer: times[peer] for peer in peers if peer in times}
        ratios.append(min(own.values()) / times["tcomp"])
        cells = (f"{1e3 * times[p]:.2f}" if p in times else "" for p in ("tcomp", *peers))
        rows.append((kernel, *cells, f"{ratios[-1]:.2f}"))
    mean = ("geometric mean", *[""] * 4, f"{statistics.geometric_mean(ratios):.2f}")
    yield from table(("kernel", "tcomp", *peers, "best peer / tcomp"), [*rows, mean])


def _latency(run: Run) -> Iterator[str]:
    machine, columns = run.found["machine"], run.found["columns"]
    packages = ", ".join(f"{name} {version}" for name, version in run.found["packages"].items())
    yield from ("", f"## What is around kernels, {machine['processor']}, {run.date[:10]}", "")
    yield (
        f"`python -m benchmarks.latency`: {machine['threads']} threads, {packages}, Python {machine['python']} "
        f"([JSON](results/{run.file})). Milliseconds of a 3x3 convolution, 64 channels, 56x56, and of products of "
        "512 x 512 matrices in turn with it, medians."
    )
    yield ""
    situations = dict.fromkeys(what for times in columns.values() for what in times)
    rows = ((what, *(f"{times[what]:.2f}" for times in columns.values())) for what in situations)
    yield from table(("situation", *columns), rows)


def _overhead(run: Run) -> Iterator[str]:
    machine = run.found["machine"]
    yield from ("", f"## What tcomp costs besides running kernels, {run.date[:10]}", "")
    yield (
        f"`python benchmarks/overhead.py`: {machine['threads']} threads, {machine['compiler']}, "
        f"Python {machine['python']}. Medians of fresh processes; calls are the least of many "
        f"([JSON](results/{run.file}))."
    )
    yield ""
    rows = run.found["rows"]
    goals = ("" if row["goal"] is None else f"{row['goal']:g} {row['unit']}" for row in rows)
    yield from table(
        ("what", "measured", "goal"),
        (
            (row["what"].strip(), f"{row['value']:.3g} {row['unit']}", goal)
            for row, goal in zip(rows, goals, strict=True)
        ),
    )


def _drawn(run: Run) -> Iterator[str]:
    machine, every = run.found["machine"], run.found["rows"]
    yield from ("", f"## Random contractions and convolutions, {machine['processor']}, {run.date[:10]}", "")
    yield (
        f"`python -m benchmarks.drawn --seed {run.found['seed']}`: threads {machine['threads']}, "
        f"torch {machine['torch']}, Python {machine['python']} ([JSON](results/{run.file})). torch's time over tcomp's."
    )
    yield ""
    ratios = {kind: sorted(theirs / ours for _, ours, theirs in rows) for kind, rows in every.items()}
    summary = (
        (
            *(kind, str(len(r)), f"{statistics.geometric_mean(r):.2f}", f"{statistics.median(r):.2f}"),
            *(f"{r[0]:.2f}", str(sum(x < 0.9 for x in r))),
        )
        for kind, r in ratios.items()
    )
    yield from table(("programs", "drawn", "geometric mean", "median", "least", "below 0.9"), summary)
    yield from ("", "The slowest of each, microseconds:", "")
    slowest = [row for rows in every.values() for row in sorted(rows, key=lambda row: row[2] / row[1])[:6]]
    texts = ((name, f"{ours:.0f}", f"{theirs:.0f}", f"{theirs / ours:.2f}") for name, ours, theirs in slowest)
    yield from table(("program", "tcomp", "torch", "ratio"), texts)


_SECTIONS: dict[str, Callable[[Run], Iterator[str]]] = {
    "gradients": _gradients,
    "attention": _attention,
    "networks": _networks,
    "ablation": _ablation,
    "polybench": _polybench,
    "latency": _latency,
    "overhead": _overhead,
    "drawn": _drawn,
}
