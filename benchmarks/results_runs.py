"""Files of results, and tables made of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Run:
    """One file of results."""

    file: str
    found: Mapping[str, Any]

    @property
    def date(self) -> str:
        return str(self.found["date"])


def runs(folder: Path) -> list[Run]:
    """Every file of a folder, the latest first."""
    read = (Run(path.name, json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.json")))
    return sorted(read, key=lambda run: run.date, reverse=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table in Markdown."""
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def run_of(run: Run, benchmark: str) -> tuple[str, ...] | None:
    """What a later run of the same benchmark on the same machine replaces; None for another benchmark."""
    if run.found.get("benchmark", "cpu") != benchmark:
        return None
    return (benchmark, *run.file.split("-")[1:2])


def latest(found: Sequence[Run], key: Any) -> list[Run]:
    """The first run of each key, which is the latest."""
    kept: dict[tuple[str, ...], Run] = {}
    for run in found:
        what = key(run)
        if what is not None:
            kept.setdefault(what, run)
    return list(kept.values())
