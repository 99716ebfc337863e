"""``RESULTS.md``: the latest runs of every machine, as tables made from the JSON in ``results/``.

python -m benchmarks.results_page
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ratios import GpuCase, gpu_ratios, mean
from benchmarks.results_runs import Run, latest, run_of, runs, table
from benchmarks.results_sections import sections

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
class Section:
    """A run on the page: its line in the summary, and its text."""

    title: str
    against: str
    ratio: float | None
    worst: str
    lines: Sequence[str]


def page(folder: Path) -> str:
    """The text of the page for the results in a folder."""
    found = runs(folder)
    machines = [*_cpu_sections(found), *_gpu_sections(found)]
    summary = [
        (s.title, s.against, "" if s.ratio is None else f"{s.ratio:.2f}", s.worst)
        for s in machines
        if s.ratio is not None
    ]
    lines = [*table(("run", "against", "geometric mean", "worst row"), summary)]
    for section in machines:
        lines += ["", f"## {section.title}", "", *section.lines]
    lines += sections(found)
    return _HEAD + "\n" + "\n".join(lines) + "\n"


def _cpu_sections(found: Sequence[Run]) -> Iterator[Section]:
    def key(run: Run) -> tuple[str, ...] | None:
        base = run_of(run, "cpu")
        return None if base is None else (*base, run.found["suite"], str(run.found["threads"]))

    for run in sorted(latest(found, key), key=lambda run: list(_SUITES).index(run.found["suite"])):
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
        return latest([run for run in found if run.found.get("parts", {}).get(part)], lambda run: run_of(run, "gpu"))

    for run in newest("cases"):
        yield _gpu_cases(run)
    for run in newest("tuned"):
        same = [other for other in found if run_of(other, "gpu") == run_of(run, "gpu")]
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


if __name__ == "__main__":
    PAGE.write_text(page(FOLDER / "results"), encoding="utf-8")
    print(PAGE)
