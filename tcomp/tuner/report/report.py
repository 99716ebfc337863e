"""A page about tuning runs: one file of HTML that needs no other, to be read, kept and sent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from tcomp.driver import Compilation
from tcomp.errors import TcompError
from tcomp.mapping.machines.cpu import this_machine
from tcomp.mapping.options.choices import CPU_TARGETS
from tcomp.storage.wholefiles import write_whole
from tcomp.tuner.database.trials import Trial
from tcomp.tuner.report.charts import Axis, Chart, counting, listing, logarithmic
from tcomp.tuner.report.found import Found
from tcomp.tuner.report.influence import Influence, influences
from tcomp.tuner.report.roofs import Roofs, Work, roofs_of, work_of
from tcomp.tuner.report.wording import readable_rate, readable_seconds
from tcomp.version import __version__

_MOST_CHARTED = 8
_LEAST_SHARE = 0.01
_DECADES = 1.5
_GOLDEN, _SPREAD = 0.618, 0.4

_STYLE = """
:root { color-scheme: light dark; --ink: #222; --soft: #777; --grid: #e3e3e3; --best: #0a6; --dot: #47a; --bad: #c33;
  --paper: #fff; --shade: #f5f5f5 }
@media (prefers-color-scheme: dark) { :root { --ink: #ddd; --soft: #999; --grid: #333; --best: #3d9; --dot: #7ad;
  --bad: #f77; --paper: #151515; --shade: #202020 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1000px;
  margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.4em } h2 { font-size: 1.2em; margin-top: 2.5em; border-top: 1px solid var(--grid); padding-top: 1em }
h3 { font-size: 1em; margin: 1.6em 0 0.4em }
pre { background: var(--shade); padding: 0.8em; overflow: auto; font-size: 12.5px; line-height: 1.4 }
svg { width: 100%; height: auto; font-size: 11px } @media (max-width: 600px) { svg.wide { width: 760px }
  .scroll { overflow-x: auto } }
svg text { fill: var(--soft) } .grid { stroke: var(--grid) } .axis { font-style: italic }
circle.dot { fill: var(--dot); fill-opacity: 0.55 } circle.win { fill: var(--best) } circle.default { fill: var(--ink) }
polyline { fill: none; stroke-width: 2 } polyline.best { stroke: var(--best) }
polyline.default { stroke: var(--soft); stroke-dasharray: 5 4; stroke-width: 1.2 } polyline.roof { stroke: var(--soft) }
table { border-collapse: collapse; font-size: 13px } td, th { padding: 2px 10px 2px 0; text-align: left;
  vertical-align: top } th { color: var(--soft); font-weight: normal } td.number { text-align: right }
.small { display: grid; grid-template-columns: repeat(auto-fill, minmax(300px, 1fr)); gap: 8px }
.bar { background: var(--dot); height: 0.7em; display: inline-block } .bad { color: var(--bad) }
"""


def write_report(path: str | Path, results: Sequence[Found]) -> None:
    """Write a page about some results.  Raises TcompError if that is not possible."""
    try:
        write_whole(Path(path), page(results).encode())
    except OSError as error:
        raise TcompError(f"cannot write {path}: {error.strerror or error}") from None


def page(results: Sequence[Found]) -> str:
    """The text of the page."""
    title = results[0].label if len(results) == 1 else f"{len(results)} problems"
    sections = "".join(_section(result, number) for number, result in enumerate(results))
    contents = _contents(results) if len(results) > 1 else ""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width">'
        f"<title>tcomp tune: {escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>tcomp tune: {escape(title)}</h1>{contents}{sections}"
        f"<p><small>tcomp {__version__}</small></p></body></html>\n"
    )


def curve(result: Found) -> str:
    """The best against the candidates measured, as SVG; nothing where none was."""
    ran = [t for t in result.history if t.certain and 0 < t.ratio < math.inf]
    return f"<div><style>{_STYLE}</style>{_curve(result, ran)}</div>" if ran else ""


def _contents(results: Sequence[Found]) -> str:
    rows = [
        (f'<a href="#p{n}">{escape(r.label)}</a>', readable_seconds(r.seconds), f"{r.speedup:.2f}", escape(str(r.best)))
        for n, r in enumerate(results)
    ]
    return _table(("def", "time", "faster", "options"), rows)


def _section(result: Found, number: int) -> str:
    """Everything about one problem."""
    ran = [t for t in result.history if t.certain and 0 < t.ratio < math.inf]
    specialisation = result.problem.with_options(result.best)
    compilation = specialisation.lower()
    parts = [
        f'<h2 id="p{number}">{escape(result.label)}</h2>',
        f"<pre>{escape(result.summary())}</pre>",
        "<h3>To paste</h3>",
        f"<pre>options = tc.{escape(result.best.to_source())}</pre>",
    ]
    if ran:
        parts += ["<h3>The best against the candidates measured</h3>", _movable(_curve(result, ran))]
        parts += _options(result, ran)
    parts += _roofline(result, compilation)
    parts += [
        _folded(f"All {len(result.history)} candidates", _candidates(result)),
        _folded("The program", f"<pre>{escape(str(specialisation.function))}</pre>"),
        _folded("The kernel of the best options", f"<pre>{escape(compilation.source.text)}</pre>"),
    ]
    return "".join(parts)


def _curve(result: Found, ran: Sequence[Trial]) -> str:
    chart = Chart(counting(len(ran), "candidates measured"), _time_axis(ran), 760, 320)
    chart.line([(0, 1.0), (len(ran), 1.0)], "default", "the default options")
    best, steps = math.inf, []
    for count, trial in enumerate(ran, 1):
        chart.point(count, trial.ratio, _style(result, trial), _told(trial))
        steps += [(count, best)] if best < math.inf else []
        best = min(best, trial.ratio)
        steps.append((count, best))
    chart.line(steps, "best", "the best so far")
    return chart.svg()


def _time_axis(ran: Sequence[Trial]) -> Axis:
    return logarithmic([1.0, *(t.ratio for t in ran)], "time, the default's is 1", lambda v: f"{v:.3g}")


def _style(result: Found, trial: Trial) -> str:
    if trial.options == result.best:
        return "win"
    return "default" if trial.options == result.problem.specialisation.options else "dot"


def _told(trial: Trial) -> str:
    faster = f"{1 / trial.ratio:.2f} times as fast as the default"
    return f"{readable_seconds(trial.seconds)}, {faster} ({trial.compiled.candidate.origin}): {trial.options}"


def _options(result: Found, ran: Sequence[Trial]) -> list[str]:
    """Which options mattered, and each candidate by the values of these."""
    every = influences(ran)
    found = [i for i in every if i.share >= _LEAST_SHARE]
    others = ", ".join(i.name for i in every if i.share < _LEAST_SHARE)
    if not every:
        return []
    rows = [
        (
            f"<code>{escape(i.name)}</code>",
            f'<span class="bar" style="width:{240 * i.share:.0f}px"></span>',
            f"{i.share:.0%}",
        )
        for i in found
    ]
    heading = (
        "<h3>Which options mattered</h3><p>How much of the spread of the times goes with each option alone. Options "
        "changed together each count for the same spread, so the parts may add up to more than the whole.</p>"
    )
    y = _time_axis(ran)
    small = "".join(f"<div>{_by_value(result, i, y)}</div>" for i in every[:_MOST_CHARTED])
    return [
        heading,
        _table(("option", "", "share"), rows),
        f"<p>Less than {_LEAST_SHARE:.0%}: {escape(others)}.</p>" if others else "",
        "<h3>Every candidate by option</h3>",
        f'<div class="small">{small}</div>',
    ]


def _by_value(result: Found, influence: Influence, y: Axis) -> str:
    names = [value for value, _ in influence.groups]
    chart = Chart(listing(_spaced(names), influence.name), y, 380, 220)
    for position, (_, trials) in enumerate(influence.groups):
        for number, trial in enumerate(trials):
            # Side by side, so that equal times do not hide one another.
            aside = (number * _GOLDEN % 1 - 0.5) * _SPREAD
            chart.point(position + aside, trial.ratio, _style(result, trial), _told(trial))
    return chart.svg()


def _spaced(names: Sequence[str]) -> list[str]:
    """As many of the names as there is room for; the others are left blank."""
    step = math.ceil(len(names) / 9)
    return [name[:9] if k % step == 0 else "" for k, name in enumerate(names)]


def _roofline(result: Found, compilation: Compilation) -> list[str]:
    """Where the default and the best options are under the roof; nothing for a program that computes nothing."""
    work = work_of(compilation)
    if not work.flops or not work.bytes or result.seconds == math.inf:
        return []
    roofs = roofs_of(result.problem)
    heading = f"<h3>Roofline</h3><p>{escape(_placed(result, work, roofs))}</p>"
    return [heading, _movable(_roof_chart(result, work, roofs))]


def _placed(result: Found, work: Work, roofs: Roofs) -> str:
    intensity = work.flops / work.bytes
    least = max(work.flops / roofs.flops, work.bytes / roofs.bandwidth)
    limit = "arithmetic" if work.flops / roofs.flops >= work.bytes / roofs.bandwidth else "memory"
    return (
        f"{readable_rate(work.flops, 'flop')} and {readable_rate(work.bytes, 'B')} of inputs and outputs, "
        f"{intensity:.3g} flop/B: bound by {limit}, at least {readable_seconds(least)}{_reached(result, work, least)}. "
        f"The roof is {roofs.source}: {readable_rate(roofs.flops, 'flop/s')} and "
        f"{readable_rate(roofs.bandwidth, 'B/s')}."
    )


def _reached(result: Found, work: Work, least: float) -> str:
    """How near the roof the best options are, where that says something: not for arrays that stay in a cache."""
    on_processor = result.problem.specialisation.target.partition(":")[0] in CPU_TARGETS
    if on_processor and not this_machine().overflows(work.bytes):
        return "; but these arrays stay in a cache, which is faster than memory"
    if least > result.seconds:
        return "; the best options take less, so the roof is higher than what was measured"
    return f", of which the best options reach {least / result.seconds:.0%}"


def _roof_chart(result: Found, work: Work, roofs: Roofs) -> str:
    intensity, ridge = work.flops / work.bytes, roofs.flops / roofs.bandwidth
    reach = 10.0**_DECADES
    x = logarithmic([min(intensity, ridge) / reach, max(intensity, ridge) * reach], "flop/B", lambda v: f"{v:g}")
    rates = [work.flops / s for s in (result.seconds, result.default_seconds) if s < math.inf]
    lowest = min([*rates, roofs.flops / 100, roofs.bandwidth * x.low * reach])
    y = logarithmic([lowest, max([roofs.flops, *rates])], "flop/s", lambda v: readable_rate(v, ""))
    chart = Chart(x, y, 760, 300)
    start = max(x.low, lowest / roofs.bandwidth)
    chart.line([(start, start * roofs.bandwidth), (ridge, roofs.flops), (x.high, roofs.flops)], "roof")
    if result.default_seconds < math.inf:
        chart.point(intensity, work.flops / result.default_seconds, "default", "the default options")
    chart.point(intensity, work.flops / result.seconds, "win", "the best options")
    chart.text(intensity, work.flops / result.seconds, "best")
    return chart.svg()


def _candidates(result: Found) -> str:
    order = sorted(result.history, key=lambda t: (t.doubtful, t.ratio, t.when))
    rows = [
        (
            f"{1 / t.ratio:.2f}" if t.ratio < math.inf else "",
            readable_seconds(t.seconds) if t.times else f'<span class="bad">{t.outcome.value}</span>',
            str(t.generation),
            escape(t.compiled.candidate.origin),
            escape(str(t.options)) + (f"<br><small>{escape(t.message)}</small>" if t.message else ""),
        )
        for t in order
    ]
    return _table(("faster", "time", "generation", "from", "options"), rows)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    head = "".join(f"<th>{h}</th>" for h in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _movable(chart: str) -> str:
    """A chart in a box of its own that moves sideways where the page is narrow."""
    return f'<div class="scroll">{chart}</div>'


def _folded(title: str, content: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{content}</details>"
