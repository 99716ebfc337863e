"""Files of the cache: a line of JSON (kind, key, label, size, digest), and then the payload."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO

FORMAT = 1
LARGEST_HEADER = 1 << 14
LARGEST_ENTRY = 1 << 28
_WRITE_ATTEMPTS = 4


class DamagedError(Exception):
    """The bytes are not an entry, or not the one that was asked for."""


def pack(kind: str, key: str, label: str, payload: bytes) -> bytes:
    """The bytes of an entry."""
    return header(kind, key, label, payload) + payload


def header(kind: str, key: str, label: str, payload: bytes | memoryview) -> bytes:
    """The line with which an entry begins."""
    facts = {
        "tcomp": FORMAT,
        "kind": kind,
        "key": key,
        "label": label[:1000],
        "size": len(payload),
        "sha256": _digest(kind, key, label[:1000], payload),
    }
    return json.dumps(facts).encode() + b"\n"


def unpack(content: bytes, kind: str | None = None, key: str | None = None) -> tuple[dict[str, str], bytes]:
    """Kind, key and label, and the payload of an entry.  Raises DamagedError if any byte is not what was written, or
    if the entry is sound but another than the one asked for."""
    end = content.find(b"\n", 0, LARGEST_HEADER)
    payload = content[end + 1 :]
    return header_of(content[: max(end, 0)], payload, kind, key), payload


def header_of(
    line: bytes, payload: bytes | memoryview, kind: str | None = None, key: str | None = None
) -> dict[str, str]:
    """Kind, key and label that the first line of an entry tells.  Raises what ``unpack`` does."""
    try:
        header = json.loads(line)
        texts = {name: header[name] for name in ("kind", "key", "label", "sha256")}
        sound = (
            header["tcomp"] == FORMAT
            and all(isinstance(text, str) for text in texts.values())
            and header["size"] == len(payload)
            and texts["sha256"] == _digest(texts["kind"], texts["key"], texts["label"], payload)
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DamagedError("it has no header") from None
    if not sound:
        raise DamagedError("its digest does not fit")
    if (kind, key) not in ((None, None), (texts["kind"], texts["key"])):
        raise DamagedError("it belongs under another name")
    return texts


def _digest(kind: str, key: str, label: str, payload: bytes | memoryview) -> str:
    digest = hashlib.sha256("\0".join((str(FORMAT), kind, key, label, "")).encode())
    digest.update(payload)
    return digest.hexdigest()


def read_own(path: Path) -> bytes:
    """The content of a regular file of this user that nobody else may write.  Raises DamagedError or OSError."""
    with opened_own(path) as file:
        return file.read()


def read_into(path: Path, kind: str, key: str, room: memoryview) -> int:
    """Read the payload of such a file, which has the size of the memory; how many bytes that are.

    Raises DamagedError or OSError; then the memory is as it was, or zeros.
    """
    with opened_own(path) as file:
        line = file.readline(LARGEST_HEADER)
        if os.fstat(file.fileno()).st_size != len(line) + len(room):
            raise DamagedError("it has another size")
        try:
            read = 0
            while count := file.readinto(room[read:]):  # type: ignore[attr-defined]
                read += count
            header_of(line, room, kind, key)
        except (OSError, DamagedError):
            room[:] = bytes(len(room))
            raise
        return read


@contextmanager
def opened_own(path: Path) -> Iterator[BinaryIO]:
    """Such a file, open.  Raises DamagedError or OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise DamagedError("it is not a regular file")
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise DamagedError("others may have written it")
        if status.st_size > LARGEST_ENTRY:
            raise DamagedError("it is too large")
        yield file


def write(directory: Path, name: str, parts: Sequence[bytes | memoryview]) -> None:
    """Make a file appear whole or not at all.  Raises OSError."""
    for attempt in range(_WRITE_ATTEMPTS):
        # Another process may clear the cache, drafts included.
        with suppress(FileNotFoundError) if attempt + 1 < _WRITE_ATTEMPTS else nullcontext():
            _write_once(directory, name, parts)
            return


def _write_once(directory: Path, name: str, parts: Sequence[bytes | memoryview]) -> None:
    descriptor, name_of_draft = tempfile.mkstemp(prefix=".draft-", dir=directory)
    draft = Path(name_of_draft)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(parts)
        draft.replace(directory / name)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
