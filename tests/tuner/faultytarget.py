"""Adds the target with faults to a process."""

from __future__ import annotations

from tcomp.runtime.registry import TARGETS
from tests.tuner.faulty import FAULTY, TARGET

TARGETS[TARGET] = FAULTY
