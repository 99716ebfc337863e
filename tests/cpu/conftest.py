"""Prints how many programs of the catalogue were compiled and equal, after the tests that count them."""

from __future__ import annotations

from collections import Counter

import pytest


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
