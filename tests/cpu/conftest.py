"""Counts of programs that were equal, printed after the tests that count them; processors with other facts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from tcomp.mapping.machines.cpu import this_machine


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes kernels for this processor as if some facts of it were others."""

    def use(**facts: int) -> None:
        other = replace(this_machine(), **facts)
        monkeypatch.setattr("tcomp.runtime.registry.this_machine", lambda: other)
        monkeypatch.setenv("TCOMP_CACHE", "0")

    return use


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Add the line "corpus: N programs, ..." where ``test_corpus.py`` ran, on however many processes."""
    outcomes: Counter[str] = Counter()
    for report in (r for reports in terminalreporter.stats.values() for r in reports):
        if isinstance(report, pytest.TestReport) and report.when == "call":
            outcomes.update(str(value) for name, value in report.user_properties if name == "corpus")
    if outcomes:
        rounded = outcomes["equal within rounding"]
        equal = f"{outcomes['equal'] + rounded} equal ({rounded} of them within rounding)"
        others = "".join(f", {outcomes[kind]} {kind}" for kind in ("expected errors", "failed") if outcomes[kind])
        terminalreporter.write_line(f"corpus: {outcomes.total()} programs, {equal}{others}")
