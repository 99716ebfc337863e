"""CUDA devices for tests on machines that have none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.cuda.fake_devices import FakeDevices, forget_devices

MakeDevices = Callable[..., FakeDevices]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeDevices]:
    """``machine("90", "86")`` gives this one devices of compute capabilities 9.0 and 8.6, in place of its own."""

    def make(*capabilities: str) -> FakeDevices:
        forget_devices()
        return FakeDevices(monkeypatch, *capabilities)

    monkeypatch.setenv("TCOMP_CACHE", "0")
    yield make
    forget_devices()


@pytest.fixture
def one(machine: MakeDevices) -> FakeDevices:
    """One device."""
    return machine("90")


@pytest.fixture
def two(machine: MakeDevices) -> FakeDevices:
    """Two devices of different architectures."""
    return machine("90", "86")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Add the line "simulated: N programs, ..." where ``test_corpus.py`` ran."""
    reports = (r for rs in terminalreporter.stats.values() for r in rs if getattr(r, "when", "") == "call")
    outcomes = Counter(str(v) for r in reports for name, v in r.user_properties if name == "simulated")
    if outcomes:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
        terminalreporter.write_line(f"simulated: {outcomes.total()} programs, {counts}")
