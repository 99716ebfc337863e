"""The progress of a tuning run: a few lines that follow it on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from tcomp import debug
from tcomp.tuner.progress import Phase, Progress
from tcomp.tuner.report.wording import readable_seconds

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 60
_SECONDS_BETWEEN_LINES = 10.0


class ProgressDisplay:
    """Shows the progress of runs on stderr; ``place`` says which of several problems it is."""

    def __init__(self, quiet: bool) -> None:
        self.place = ""
        self._console = Console(stderr=True)
        self._quiet = quiet
        self._live: Live | None = None
        self._latest: Progress | None = None
        self._next_line = 0.0

    def __enter__(self) -> ProgressDisplay:
        if not self._quiet and self._console.is_terminal:
            self._live = Live(self, console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, progress: Progress) -> None:
        """Show the latest state."""
        self._latest = progress
        if self._live is not None or self._quiet or time.monotonic() < self._next_line:
            return
        self._next_line = time.monotonic() + _SECONDS_BETWEEN_LINES
        debug.say("; ".join(lines_of(progress, self.place, time.monotonic())[:3]))

    def __rich_console__(self, _: Console, __: ConsoleOptions) -> RenderResult:
        """What stands on the terminal: the time left goes on between two events."""
        if self._latest is None:
            yield Text("preparing", style="dim")
            return
        first, *rest = lines_of(self._latest, self.place, time.monotonic())
        yield Text(first, style="bold", no_wrap=True, overflow="ellipsis")
        for line in rest:
            yield Text(line, no_wrap=True, overflow="ellipsis")


def lines_of(progress: Progress, place: str, now: float) -> list[str]:
    """What there is to tell, one thing a line."""
    left = max(0.0, progress.end - now)
    clock = f"{int(left) // 60}:{int(left) % 60:02d} left"
    counts = f"{progress.compiled} compiled, {progress.measured} measured, {progress.failed} failed"
    lines = [
        f"{progress.label}{place}",
        f"{progress.phase.value}, generation {progress.generation}: {counts}; {clock}",
    ]
    if progress.curve:
        gain = f" ({progress.default / progress.best:.2f}x)" if progress.default < math.inf else ""
        lines.append(
            f"default {readable_seconds(progress.default)}, best {readable_seconds(progress.best)}{gain}, "
            f"median {readable_seconds(progress.median)}"
        )
        lines.append(f"{sparkline(progress.curve)} {progress.options}")
    return lines


def sparkline(values: Sequence[float], width: int = _WIDTH) -> str:
    """A curve as bars of a text, from the lowest to the highest value; of each column's values the last one."""
    if not values:
        return ""
    columns = min(width, len(values))
    shown = [values[(k + 1) * len(values) // columns - 1] for k in range(columns)]
    low, high = min(shown), max(shown)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((v - low) * scale)] for v in shown)


def finished(progress: Progress) -> bool:
    """Whether a run has ended."""
    return progress.phase is Phase.DONE
