"""Files that people name, written as a whole: what was there stays until all of the new content is."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, or send the content to the pipe or device of that name.

    The new content takes the old one's place when the disk has all of it.  Where nothing new may be made beside a file
    that itself may be written, it is written where it is.  Raises OSError; the file is then as it was.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        path.write_bytes(content)
        return
    draft = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        file = draft.open("xb")
    except PermissionError:
        if not target.exists():
            raise
        target.write_bytes(content)
        return
    try:
        with file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, draft)
        draft.replace(target)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
