"""What ``tcomp calibrate`` found for this processor, used by all kernels that are made for it from then on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tcomp import debug
from tcomp.backends.host.toolchain import cpu_identity
from tcomp.errors import TcompError
from tcomp.mapping.machines.fitted.replacing import Number, replace_numbers, replaced
from tcomp.storage.cache import store
from tcomp.storage.wholefiles import write_whole
from tcomp.version import __version__

_NAME = "calibration.json"


@dataclass(frozen=True, slots=True)
class Calibration:
    """Numbers that were found on a processor, by name, and what they gained: the share of the time that is left."""

    numbers: Mapping[str, Number]
    gains: Mapping[str, float]
    processor: str
    date: str


def calibrated() -> Mapping[str, Number]:
    """The numbers that hold in this process; those that are kept, read when somebody asks first."""
    global _read
    if not _read:
        _read = True
        found = kept()
        if found is not None:
            with suppress(TcompError):
                replace_numbers(found.numbers)
    return replaced()


_read = False


def kept() -> Calibration | None:
    """What is kept for this processor and version of tcomp; None where there is nothing, or nobody wants it."""
    path = calibrated_path()
    if path is None:
        return None
    entry = _entries(path).get(_key())
    if not isinstance(entry, dict):
        return None
    numbers, gains = entry.get("numbers"), entry.get("gains")
    if not isinstance(numbers, dict) or not isinstance(gains, dict):
        return None
    return Calibration(numbers, gains, str(entry.get("processor", "")), str(entry.get("date", "")))


def keep(found: Calibration) -> Path:
    """Keep what was found for this processor; from now on it holds in this process, too.  Returns the file.

    Raises TcompError where nothing can be kept.
    """
    path = calibrated_path()
    if path is None:
        raise TcompError(f"nothing is kept: {debug.CALIBRATED.name} is 0, or there is no cache")
    entry = {"numbers": dict(found.numbers), "gains": dict(found.gains)}
    _write(path, {**_entries(path), _key(): {**entry, "processor": found.processor, "date": found.date}})
    _hold(found.numbers)
    return path


def forget() -> bool:
    """Go back to the numbers that tcomp comes with.  Returns whether others were kept.  Raises TcompError."""
    path = calibrated_path()
    entries = {} if path is None else _entries(path)
    known = entries.pop(_key(), None) is not None
    if known and path is not None:
        _write(path, entries)
    _hold({})
    return known


def _hold(numbers: Mapping[str, Number]) -> None:
    global _read
    _read = True
    replace_numbers(numbers)


def calibrated_path() -> Path | None:
    """The file that the environment asks for: ``TCOMP_CALIBRATED``, else one beside the cache; None without one."""
    if not debug.calibrated_enabled():
        return None
    chosen, base = debug.calibrated_file(), store().directory
    return chosen or (None if base is None else base.parent / _NAME)


def _key() -> str:
    """What the numbers were found for: others' passes, or another processor, would want others."""
    return f"{__version__} {cpu_identity()}"


def _entries(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        entries = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(entries, dict):
            return entries
    return {}


def _write(path: Path, entries: Mapping[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, f"{json.dumps(entries, indent=1)}\n".encode())
    except OSError as error:
        raise TcompError(f"cannot write {path}: {error.strerror or error}") from None
