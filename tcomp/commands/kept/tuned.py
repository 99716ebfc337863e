"""``tcomp tuned``: what tuning found, and moving it between machines of one kind."""

from __future__ import annotations

import argparse
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tcomp.commands.kept.cache import readable_age
from tcomp.commands.terminal.display import show_line, show_table
from tcomp.commands.terminal.exit_codes import DONE
from tcomp.errors import TcompError
from tcomp.tuner.database.database import Counts, Database
from tcomp.tuner.database.exchange import export_to, import_from
from tcomp.tuner.database.file import database_path, open_database
from tcomp.tuner.database.records import Tuned
from tcomp.tuner.report.wording import readable_seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The four actions of ``tcomp tuned``."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    listing = actions.add_parser("ls", help="list the best options for each program, its sizes and a device")
    listing.set_defaults(execute=lambda _: _with_database(list_results))
    export = actions.add_parser("export", help="write them to a JSON file")
    export.add_argument("--trials", action="store_true", help="every trial, too, from which later searches learn")
    export.set_defaults(execute=lambda v: _with_database(partial(export_results, file=v.file, trials=v.trials)))
    merging = actions.add_parser("import", help="merge those of such a file; of two for the same the faster stays")
    merging.set_defaults(execute=lambda v: _with_database(partial(import_results, file=v.file)))
    for action in (export, merging):
        action.add_argument("file", metavar="FILE", type=Path)
    prune = actions.add_parser("prune", help="remove what other versions of tcomp found")
    prune.add_argument("--trials", action="store_true", help="every trial, too, and keep the best options")
    prune.add_argument("--all", dest="everything", action="store_true", help="everything")
    prune.set_defaults(
        execute=lambda v: _with_database(partial(prune_results, trials=v.trials, everything=v.everything))
    )


def _with_database(action: Callable[[Database], None]) -> int:
    """Raises TcompError if the file is damaged."""
    with open_database() as database:
        try:
            action(database)
        except sqlite3.Error as error:
            raise TcompError(f"cannot read {database.path}: {error}") from None
    return DONE


def list_results(database: Database) -> None:
    """One row per result, latest first."""
    results = database.tuned()
    if results:
        show_table(("of", "target", "on", "time", "faster", "options", "age"), [_row(t) for t in results])
    counts = database.counts()
    show_line(f"{_described(counts)}, in {_place()}")


def export_results(database: Database, file: Path, trials: bool) -> None:
    """Write every result to a file."""
    show_line(f"wrote {_described(export_to(database, file, trials=trials))} to {file}")


def import_results(database: Database, file: Path) -> None:
    """Take over the results of a file."""
    show_line(f"took {_described(import_from(database, file))} into {_place()}")


def prune_results(database: Database, trials: bool, everything: bool) -> None:
    """Remove some results."""
    show_line(f"removed {_described(database.prune(trials=trials, everything=everything))} from {_place()}")


def _place() -> str:
    return str(database_path() or "memory: the cache is off or cannot be written")


def _described(counts: Counts) -> str:
    results = "1 result" if counts.tuned == 1 else f"{counts.tuned} results"
    return f"{results}, {counts.trials} trial{'' if counts.trials == 1 else 's'}"


def _row(tuned: Tuned) -> tuple[str, ...]:
    identity = tuned.identity
    faster = f"{tuned.speedup:.2f}" + ("" if tuned.confirmed else "?")
    age = readable_age(time.time() - tuned.when)
    return (
        tuned.label,
        identity.target,
        identity.device,
        readable_seconds(tuned.seconds),
        faster,
        str(tuned.options),
        age,
    )
