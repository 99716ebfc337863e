"""``tcomp cache``: what is kept on disk, and moving it between machines."""

from __future__ import annotations

import argparse
from pathlib import Path

from tcomp.commands.terminal.display import show_line, show_table
from tcomp.commands.terminal.exit_codes import DONE
from tcomp.storage.cache import Entry, store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The four actions of ``tcomp cache``."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    actions.add_parser("ls", help="list what is kept").set_defaults(execute=lambda _: list_entries())
    actions.add_parser("clear", help="remove everything").set_defaults(execute=lambda _: clear())
    for name, verb, execute in (("export", "write", export_to), ("import", "read", import_from)):
        action = actions.add_parser(name, help=f"{verb} a .tar.gz of the entries")
        action.add_argument("archive", metavar="FILE", type=Path)
        action.set_defaults(execute=lambda values, execute=execute: execute(values.archive))


def list_entries() -> int:
    """One row per entry, the one used last first, and their total size."""
    entries = sorted(store().entries(), key=lambda entry: entry.age)
    if entries:
        show_table(("kind", "size", "unused", "of"), [_row(entry) for entry in entries])
    total = sum(entry.size for entry in entries)
    limit = store().limit
    most = f" of at most {readable_size(limit)}" if limit is not None else ""
    show_line(f"{count(len(entries))}, {readable_size(total)}{most}, in {directory_name()}")
    return DONE


def clear() -> int:
    """Remove every entry."""
    show_line(f"removed {count(store().clear())} from {directory_name()}")
    return DONE


def export_to(archive: Path) -> int:
    """Write every entry to an archive."""
    show_line(f"wrote {count(store().export_to(archive))} to {archive}")
    return DONE


def import_from(archive: Path) -> int:
    """Take over the entries of an archive."""
    show_line(f"took {count(store().import_from(archive))} into {directory_name()}")
    return DONE


def directory_name() -> str:
    """Where the cache is, in words."""
    directory = store().directory
    return str(directory) if directory else "no directory: the cache is off or cannot be written"


def count(entries: int) -> str:
    """A number of entries, in words."""
    return "1 entry" if entries == 1 else f"{entries} entries"


def readable_size(size: float) -> str:
    """A number of bytes with a binary unit."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _row(entry: Entry) -> tuple[str, str, str, str]:
    return entry.kind, readable_size(entry.size), readable_age(entry.age), entry.label


def readable_age(seconds: float) -> str:
    """A span of time in its largest unit."""
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
