"""What can be seen and switched from outside: environment variables, messages on stderr and dumps.

Each variable is one row of ``VARIABLES``; ``tcomp debug`` prints them and docs/debugging.md shows them.  The functions
read the environment whenever they are called, so a variable may change between two calls.
"""

from __future__ import annotations

import filecmp
import os
import re
import shutil
import sys
import uuid
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tcomp.errors import TcompError


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable: its name, the values that it takes and what they do."""

    name: str
    values: str
    help: str


DEBUG = Variable(
    "TCOMP_DEBUG",
    "1..4",
    "say on stderr what happens: 1 compilations and cache hits, 2 each pass and its time, 3 the text after each pass, "
    "4 compiler commands",
)
DUMP = Variable(
    "TCOMP_DUMP", "directory", "write one folder per kernel: every stage in reading order, options, repro.py"
)
CHECK = Variable("TCOMP_CHECK", "1", "prove the plan legal after every pass")
INTERPRET = Variable("TCOMP_INTERPRET", "1", "run the reference interpreter instead of compiled kernels")
CACHE = Variable(
    "TCOMP_CACHE", "directory or 0", "keep kernels and packed weights in this directory; 0 keeps none on disk"
)
CACHE_SIZE = Variable(
    "TCOMP_CACHE_SIZE",
    "MiB or 0",
    "keep at most so many MiB of these on disk, 1024 if not set; those used least recently go; 0 sets no limit",
)
KEPT = Variable(
    "TCOMP_KEPT",
    "MiB",
    "keep at most so much memory of results for the next results, 512 if not set; 0 gives all back at once",
)
THREADS = Variable("TCOMP_THREADS", "openmp", "run kernels on OpenMP's threads, not on tcomp's own")
PRINT_TUNING = Variable(
    "TCOMP_PRINT_TUNING",
    "1",
    "print each better mapping that a tuning run finds, as source to paste",
)
TUNED = Variable(
    "TCOMP_TUNED", "file or 0", "keep and look for tuned options in this file, not beside the cache; 0 knows none"
)
CALIBRATED = Variable(
    "TCOMP_CALIBRATED",
    "file or 0",
    "keep and look for what `tcomp calibrate` found in this file, not beside the cache; 0 knows none",
)

VARIABLES: tuple[Variable, ...] = (
    *(DEBUG, DUMP, CHECK, INTERPRET, CACHE, CACHE_SIZE, KEPT, THREADS, PRINT_TUNING, TUNED),
    CALIBRATED,
)


_DEFAULT_MIB = 1024
_DEFAULT_KEPT_MIB = 512


def level() -> int:
    """The value of TCOMP_DEBUG, 0 where it is not set."""
    text = os.environ.get(DEBUG.name, "") or "0"
    if text not in ("0", "1", "2", "3", "4"):
        raise TcompError(f"{DEBUG.name} is {text!r}; it must be a number from 0 to 4")
    return int(text)


def dump_directory() -> Path | None:
    """Where dumps go, or None."""
    text = os.environ.get(DUMP.name)
    return Path(text) if text else None


def check_every_pass() -> bool:
    """Whether each pass is to be proved, whatever that costs."""
    return _switch(CHECK)


def interpret() -> bool:
    """Whether the reference interpreter stands in for compiled kernels."""
    return _switch(INTERPRET)


def cache_enabled() -> bool:
    """Whether compiled kernels are kept on disk."""
    return os.environ.get(CACHE.name) != "0"


def cache_directory() -> Path | None:
    """The directory that the user chose for compiled kernels; None leaves the choice to the platform."""
    text = os.environ.get(CACHE.name)
    return Path(text) if text and text != "0" else None


def cache_limit() -> int | None:
    """How many bytes of compiled kernels are kept on disk; None sets no limit."""
    return _mebibytes(CACHE_SIZE, _DEFAULT_MIB) or None


def kept_limit() -> int:
    """How many bytes of memory are kept for the results of later calls."""
    return _mebibytes(KEPT, _DEFAULT_KEPT_MIB)


def openmp_threads() -> bool:
    """Whether kernels run on OpenMP's threads, though there are others."""
    text = os.environ.get(THREADS.name, "")
    if text not in ("", "openmp"):
        raise TcompError(f"{THREADS.name} is {text!r}; it must be openmp or nothing")
    return bool(text)


def print_tuning() -> bool:
    """Whether the tuner prints each better mapping that it finds."""
    return _switch(PRINT_TUNING)


def calibrated_enabled() -> bool:
    """Whether numbers that were fitted to this processor are kept and used."""
    return os.environ.get(CALIBRATED.name) != "0"


def calibrated_file() -> Path | None:
    """The file that the user chose for them; None leaves it beside the cache."""
    text = os.environ.get(CALIBRATED.name)
    return Path(text) if text and text != "0" else None


def tuned_enabled() -> bool:
    """Whether tuned options are kept and looked for."""
    return os.environ.get(TUNED.name) != "0"


def tuned_file() -> Path | None:
    """The file that the user chose for tuned options; None leaves it beside the cache."""
    text = os.environ.get(TUNED.name)
    return Path(text) if text and text != "0" else None


def _mebibytes(variable: Variable, default: int) -> int:
    text = os.environ.get(variable.name, "") or str(default)
    if not re.fullmatch("[0-9]{1,12}", text):
        raise TcompError(f"{variable.name} is {text!r}; it must be a number of MiB")
    return int(text) << 20


def _switch(variable: Variable) -> bool:
    text = os.environ.get(variable.name, "") or "0"
    if text not in ("0", "1"):
        raise TcompError(f"{variable.name} is {text!r}; it must be 0 or 1")
    return text == "1"


def log(at: int, message: str) -> None:
    """Write one message to stderr if TCOMP_DEBUG is at least ``at``."""
    if level() >= at:
        say(f"tcomp: {message}")


def say(text: str) -> None:
    """Write a line to stderr, if somebody reads it: what is told on the side stops nothing."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            sys.stderr.write(f"{text}\n")


_SUFFIXES = {"input": "tc", "function": "txt", "scop": "isl", "loops": "c"}


def stage_suffix(stage: str, kernel_suffix: str = "c") -> str:
    """The file name suffix that fits the text of a stage; ``kernel_suffix`` is that of the target's language."""
    return kernel_suffix if stage == "kernel" else _SUFFIXES.get(stage, "toml")


def dump_files(stages: Mapping[str, str], kernel_suffix: str = "c") -> dict[str, str]:
    """File names and contents of a dump, in pipeline order.

    A stage whose text equals that of the stage before it holds "(unchanged)".
    """
    width = max(2, len(str(len(stages))))
    files: dict[str, str] = {}
    previous: str | None = None
    for number, (name, text) in enumerate(stages.items()):
        content = "(unchanged)" if text == previous else text
        files[f"{number:0{width}}-{_file_name(name)}.{stage_suffix(name, kernel_suffix)}"] = content
        previous = text
    return files


def write_dump(
    directory: Path,
    kernel_name: str,
    stages: Mapping[str, str],
    options_json: str,
    repro_source: str,
    kernel_suffix: str = "c",
) -> Path | None:
    """Write the folder of one kernel below ``directory`` and return it.

    The folder appears whole or not at all, under the kernel's name or, where that holds another dump, the name with a
    number behind it; an equal dump is left as it is.  A directory that cannot be written gives a warning and None: a
    dump never stops a compilation.
    """
    files = dump_files(stages, kernel_suffix) | {"options.json": options_json, "repro.py": repro_source}
    draft = directory / f".{uuid.uuid4().hex}"
    try:
        draft.mkdir(parents=True)
        try:
            for name, content in files.items():
                text = content if content.endswith("\n") else content + "\n"
                (draft / name).write_text(text, encoding="utf-8", errors="backslashreplace")
            return _publish(draft, directory, _file_name(kernel_name))
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        warnings.warn(f"no dump of {kernel_name} in {directory}: {error.strerror or error}", stacklevel=2)
        return None


def _publish(draft: Path, directory: Path, name: str) -> Path:
    """Rename a finished draft to the first free name; renaming onto a folder that is not empty fails."""
    number = 1
    while True:
        folder = directory / (name if number == 1 else f"{name}-{number}")
        try:
            draft.rename(folder)
        except OSError:
            if not folder.exists():
                raise
            if _equal(draft, folder):
                return folder
            number += 1
        else:
            return folder


def _equal(one: Path, other: Path) -> bool:
    names = sorted(path.name for path in one.iterdir())
    if not other.is_dir() or sorted(path.name for path in other.iterdir()) != names:
        return False
    _, mismatch, unreadable = filecmp.cmpfiles(one, other, names, shallow=False)
    return not mismatch and not unreadable


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", name).strip("-.")[:100] or "kernel"
