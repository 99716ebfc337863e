"""CUDA devices for tests on machines that have none."""

from __future__ import annotations

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
