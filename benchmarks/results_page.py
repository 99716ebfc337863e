"""``RESULTS.md``: the latest runs of every machine, as tables made from the JSON in ``results/``.

python -m benchmarks.results_page
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ratios import GpuCase, gpu_ratios, mean

FOLDER = Path(__file__).parent
PAGE = FOLDER / "RESULTS.md"

_HEAD = """# Measured

The latest run of each machine, made from the JSON in `results/` by `python -m benchmarks.results_page`. Ratios above 1
mean that tcomp is faster. [README.md](README.md) says how it was measured and what the words in the tables mean. What
was measured before, also on a processor without AVX-512, is in
[results/history-2026-11.md](results/history-2026-11.md).
"""
_SUITES = {
    "w": ("the 18 workloads", ""),
    "more": ("36 other sizes, layouts and operators", " --suite more"),
    "tccg": ("48 tensor contractions (TCCG)", " --suite tccg"),
}


@dataclass(frozen=True, slots=True)
class Run:
    """One file of results."""

    file: str
    found: Mapping[str, Any]

    @property
    def date(self) -> str:
        return str(self.found["date"])


@dataclass(frozen=True, slots=True)
class Section:
    """A run on the page: its line in the summary, and its text."""

    title: str
    against: str
    ratio: float | None
    worst: str
    lines: Sequence[str]


def runs(folder: Path) -> list[Run]:
    """Every file of a folder, the latest first."""
    read = (Run(path.name, json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.json")))
    return sorted(read, key=lambda run: run.date, reverse=True)


def page(folder: Path) -> str:
    """The text of the page for the results in a folder."""
    found = runs(folder)
    sections = [*_cpu_sections(found), *_gpu_sections(found)]
    summary = [
        (s.title, s.against, "" if s.ratio is None else f"{s.ratio:.2f}", s.worst)
        for s in sections
        if s.ratio is not None
    ]
    lines = [*table(("run", "against", "geometric mean", "worst row"), summary)]
    for section in sections:
        lines += ["", f"## {section.title}", "", *section.lines]
    lines += [line for run in _latest(found, lambda run: _is(run, "gradients")) for line in _gradients(run)]
    lines += [line for run in _latest(found, lambda run: _is(run, "attention")) for line in _attention(run)]
    lines += [line for run in _latest(found, lambda run: _is(run, "networks")) for line in _networks(run)]
    lines += [line for run in _latest(found, lambda run: _is(run, "recurrences")) for line in _recurrences(run)]
    lines += [line for run in _latest(found, lambda run: _is(run, "threads")) for line in _threads(run)]
    lines += [line for run in _latest(found, lambda run: _is(run, "overhead")) for line in _overhead(run)]
    return _HEAD + "\n" + "\n".join(lines) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table in Markdown."""
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _is(run: Run, benchmark: str) -> tuple[str, ...] | None:
    """What a later run of the same benchmark on the same machine replaces; None for another benchmark."""
    if run.found.get("benchmark", "cpu") != benchmark:
        return None
    return (benchmark, *run.file.split("-")[1:2])


def _latest(found: Sequence[Run], key: Any) -> list[Run]:
    """The first run of each key, which is the latest."""
    kept: dict[tuple[str, ...], Run] = {}
    for run in found:
        what = key(run)
        if what is not None:
            kept.setdefault(what, run)
    return list(kept.values())


def _cpu_sections(found: Sequence[Run]) -> Iterator[Section]:
    def key(run: Run) -> tuple[str, ...] | None:
        base = _is(run, "cpu")
        return None if base is None else (*base, run.found["suite"], str(run.found["threads"]))

    for run in sorted(_latest(found, key), key=lambda run: list(_SUITES).index(run.found["suite"])):
        yield _cpu(run)


def _cpu(run: Run) -> Section:
    found = run.found
    peers = list(dict.fromkeys(peer for row in found["rows"] for peer in row["entries"] if peer != "tcomp"))
    what, option = _SUITES[found["suite"]]
    limits, summary = found["limits"], found["summary"]
    machine = f"{found['processor']}, {found['threads']} threads"
    text = (
        f"`python benchmarks/cpu.py{option} --peers {','.join(peers)}`, {run.date[:10]}: {machine}, "
        f"{found['compiler']}, Python {found['python']}, {_versions(found['versions'])}. "
        f"Measured limits: {limits['flops'] / 1e9:.0f} GFLOP/s (fp32), {limits['int8_ops'] / 1e9:.0f} Gop/s (int8), "
        f"{limits['bandwidth'] / 1e9:.1f} GB/s copied. Median milliseconds ([JSON](results/{run.file}))."
    )
    lines = [text, ""]
    columns = ("", "workload", *peers, "tcomp", "best peer", "of limit", "first call")
    lines += table(columns, (_cpu_row(row, peers) for row in found["rows"]))
    lines += ["", f"Geometric mean against the best peer: {summary['against_best']:.2f}"]
    if summary["against_compiler"]:
        lines[-1] += f"; against torch.compile: {summary['against_compiler']:.2f}"
    lines[-1] += "."
    problems = [
        f"{row['key']}: {peer}: {entry['problem'].splitlines()[0]}."
        for row in found["rows"]
        for peer, entry in row["entries"].items()
        if entry["problem"]
    ]
    lines += [*([""] if problems else []), *problems]
    worst = summary["worst"]
    title = f"CPU: {what}, {machine}"
    return Section(title, ", ".join(peers), summary["against_best"], f"{worst[0]}, {worst[1]:.2f}", lines)


def _cpu_row(row: Mapping[str, Any], peers: Sequence[str]) -> tuple[str, ...]:
    entries, ours = row["entries"], row["entries"]["tcomp"]
    first = ours["first_ms"]
    return (
        row["key"],
        row["title"],
        *(_milliseconds(entries.get(peer), peer == row["best_peer"]) for peer in peers),
        _milliseconds(ours, best=False),
        "" if row["ratio"] is None else f"{row['ratio']:.2f}",
        _reached(row),
        "" if first is None else f"{first:.0f} ms",
    )


def _milliseconds(entry: Mapping[str, Any] | None, best: bool) -> str:
    if entry is None or not entry["times"]:
        return "failed" if entry is not None and entry["problem"] else ""
    times = entry["times"]
    text = f"{times['median_ms']:.3g}{'*' if times['noisy'] else ''}"
    return f"**{text}**" if best else text


def _reached(row: Mapping[str, Any]) -> str:
    times = row["entries"]["tcomp"]["times"]
    if row["bound"] == "memory" and times:
        return f"{row['least_bytes'] / times['median_ms'] / 1e6:.0f} GB/s"
    share = row["share_of_limit"]
    return "" if share is None else f"{100 * share:.0f} %"


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(
        f"{name} {version}" for name, version in versions.items() if name not in ("torch.compile", "tcomp")
    )


def _gpu_sections(found: Sequence[Run]) -> Iterator[Section]:
    def newest(part: str) -> list[Run]:
        return _latest([run for run in found if run.found.get("parts", {}).get(part)], lambda run: _is(run, "gpu"))

    for run in newest("cases"):
        yield _gpu_cases(run)
    for run in newest("tuned"):
        same = [other for other in found if _is(other, "gpu") == _is(run, "gpu")]
        yield _gpu_tuned([other for other in same if other.found["parts"].get("tuned")])
    for run in newest("corpus"):
        yield _gpu_checks(run)


def _gpu_machine(run: Run) -> str:
    found = run.found
    return f"{found['device'].partition('(')[2].partition(',')[0]}, {run.date[:10]}"


def _gpu_cases(run: Run) -> Section:
    found = run.found
    cases = gpu_ratios(found)
    names = list(dict.fromkeys(_family(peer) for case in cases for peer in case.peers))
    text = (
        f"`python benchmarks/gpu.py --parts cases`, {_gpu_machine(run)}: {found['driver']}; "
        f"{_versions(found['versions'])}; {found['method']}. Microseconds ([JSON](results/{run.file}))."
    )
    closing = (
        f"Geometric mean against the best peer: {mean(cases):.2f}; {_by_peer(cases, names)}. "
        "*Unchecked* kernels do not check subscripts that are data while they run, as no peer does."
    )
    rows = table(("case", "tcomp", "of roof", *names, "best peer"), (_gpu_row(case, names) for case in cases))
    lines = [text, "", *rows, "", closing]
    worst = min(cases, key=lambda case: case.ratio)
    title = f"GPU: {len(cases)} fp32 kernels, {_gpu_machine(run)}"
    return Section(title, ", ".join(names), mean(cases), f"{worst.name}, {worst.ratio:.2f}", lines)


def _family(peer: str) -> str:
    """torch's eager mode is one column, whichever library it calls."""
    return peer.partition(" (")[0]


def _gpu_row(case: GpuCase, names: Sequence[str]) -> tuple[str, ...]:
    times = {_family(peer): time for peer, time in case.peers.items()}
    texts = (f"{times[name]:.1f}" if name in times else "" for name in names)
    return (case.name, f"{case.microseconds:.1f}", f"{100 * case.share_of_roof:.0f} %", *texts, f"{case.ratio:.2f}")


def _by_peer(cases: Sequence[GpuCase], names: Sequence[str]) -> str:
    def against(name: str) -> str:
        ratios = [
            time / case.microseconds for case in cases for peer, time in case.peers.items() if _family(peer) == name
        ]
        return f"against {name} {statistics.geometric_mean(ratios):.2f} ({len(ratios)} rows)"

    return ", ".join(against(name) for name in names)


def _gpu_tuned(found: Sequence[Run]) -> Section:
    outcomes = {outcome["item"]: outcome for run in reversed(found) for outcome in run.found["parts"]["tuned"]}
    rows = []
    for name, outcome in outcomes.items():
        result = outcome["result"]
        times = {kind: entry.get("median_us") for kind, entry in result.get("implementations", {}).items()}
        default = times.get("tcomp unchecked") or times.get("tcomp")
        tuned = times.get("tcomp tuned")
        if default and tuned:
            rows.append((name, f"{default:.1f}", f"{tuned:.1f}", f"{default / tuned:.2f}"))
    files = ", ".join(f"[{run.date[:10]}](results/{run.file})" for run in found)
    text = (
        "`python benchmarks/gpu.py --parts tuned`: each case tuned for a minute; microseconds with default options and "
        f"with those that were found ({files})."
    )
    lines = [text, "", *table(("case", "default", "tuned", "gain"), rows)]
    return Section(f"GPU: tuned, {_gpu_machine(found[0])}", "", None, "", lines)


def _gpu_checks(run: Run) -> Section:
    parts = run.found["parts"]
    lines = [f"`python benchmarks/gpu.py` ([JSON](results/{run.file})):", ""]
    for part, what in (("corpus", "published programs"), ("sanitizer", "compute-sanitizer")):
        verdicts = [str(o["result"].get("verdict", o["status"])) for o in parts.get(part, ())]
        counted = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))
        lines.append(f"- {what}: {counted}.")
    calls = [(o["item"], what, t["median_us"]) for o in parts.get("overhead", ()) for what, t in o["result"].items()]
    if calls:
        lines += ["", "A call of `add` on 256 elements, microseconds of the host:", ""]
        lines += table(("arrays", "call", "median"), ((item, what, f"{time:.1f}") for item, what, time in calls))
    return Section(f"GPU: checks and calls, {_gpu_machine(run)}", "", None, "", lines)


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


def _recurrences(run: Run) -> Iterator[str]:
    machine, peers = run.found["machine"], ("gcc", "numpy", "numba")
    yield from (
        "",
        f"## Blocks of steps, PolyBench {run.found['size'].upper()}, {machine['processor']}, {run.date[:10]}",
        "",
    )
    yield (
        f"`python -m benchmarks.recurrences`: {machine['threads']} threads, gcc {run.found['flags']} on one, numba "
        f"parallel with fastmath, Python {machine['python']}, rounds: {run.found['rounds']} "
        f"([JSON](results/{run.file})). Milliseconds; the kernels that were run, not all 30."
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


def _threads(run: Run) -> Iterator[str]:
    machine, columns = run.found["machine"], run.found["columns"]
    yield from ("", f"## Threads around kernels, {machine['processor']}, {run.date[:10]}", "")
    yield (
        f"`python benchmarks/threads.py`: {machine['threads']} threads, numpy {machine['numpy']}, torch "
        f"{machine['torch']}, Python {machine['python']} ([JSON](results/{run.file})). Milliseconds of a 3x3 "
        "convolution, 64 channels, 56x56, medians; a rest is 60 ms."
    )
    yield ""
    situations = next(iter(columns.values()))
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


if __name__ == "__main__":
    PAGE.write_text(page(FOLDER / "results"), encoding="utf-8")
    print(PAGE)
