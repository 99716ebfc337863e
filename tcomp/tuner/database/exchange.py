"""Tuned results as JSON files, to be moved between machines of one kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tcomp.errors import TcompError
from tcomp.storage.wholefiles import read_bounded, write_whole
from tcomp.tuner.database.database import FORMAT, Counts, Database
from tcomp.tuner.database.records import trial_from_plain, trial_to_plain, tuned_from_plain, tuned_to_plain
from tcomp.tuner.database.trials import Trial


def export_to(database: Database, file: Path, *, trials: bool = False) -> Counts:
    """Write every result, with its trials if asked for, as JSON; returns how many.  Raises TcompError."""
    results, count = [], 0
    for tuned in database.tuned():
        plain = tuned_to_plain(tuned)
        if trials:
            plain["history"] = [trial_to_plain(t) for t in database.trials(tuned.identity)]
            count += len(plain["history"])
        results.append(plain)
    try:
        text = json.dumps({"tcomp-tuned": FORMAT, "tuned": results}, indent=1) + "\n"
        write_whole(file, text.encode())
    except OSError as error:
        raise TcompError(f"cannot write {file}: {error.strerror or error}") from None
    return Counts(len(results), count)


def import_from(database: Database, file: Path) -> Counts:
    """Merge what ``export_to`` wrote; returns how much was new or better.  Raises TcompError.

    Of two results for the same, a confirmed one stays, then the faster; trials that are known are not doubled.
    """
    content = _read(file)
    try:
        results = [(tuned_from_plain(p), [trial_from_plain(t) for t in p.get("history", ())]) for p in content["tuned"]]
    except (TcompError, KeyError, TypeError, AttributeError) as error:
        raise TcompError(f"cannot import {file}: {error}") from None
    taken = added = 0
    for tuned, trials in results:
        known = database.best(tuned.identity)
        if known is None or (tuned.confirmed, -tuned.seconds) > (known.confirmed, -known.seconds):
            database.keep(tuned)
            taken += 1
        there = {_same(trial) for trial in database.trials(tuned.identity)}
        for trial in trials:
            if _same(trial) not in there:
                there.add(_same(trial))
                database.add(tuned.identity, tuned.label, trial)
                added += 1
    return Counts(taken, added)


def _same(trial: Trial) -> tuple[object, ...]:
    """What two copies of one trial share."""
    return trial.options, trial.worker, trial.when


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_bounded(file))
    except OSError as error:
        raise TcompError(f"cannot read {file}: {error.strerror or error}") from None
    except (ValueError, RecursionError):
        raise TcompError(f"cannot import {file}: it is not JSON") from None
    if not isinstance(content, dict) or content.get("tcomp-tuned") != FORMAT:
        raise TcompError(f"cannot import {file}: it is no export of this version of tcomp tuned")
    return content
