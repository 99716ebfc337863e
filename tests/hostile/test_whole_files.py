"""What people keep under a name survives a write that fails."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from tcomp import wholefiles
from tcomp.wholefiles import write_whole


def test_new_content_takes_the_place_of_the_old(tmp_path: Path) -> None:
    file, link = tmp_path / "kept", tmp_path / "link"
    write_whole(file, b"one")
    file.chmod(0o640)
    link.symlink_to(file)
    write_whole(link, b"two")
    assert file.read_bytes() == b"two" and link.is_symlink()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert sorted(tmp_path.iterdir()) == [file, link]


def test_a_disk_that_is_full_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kept"
    file.write_bytes(b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(wholefiles.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, b"new")
    assert file.read_bytes() == b"old" and list(tmp_path.iterdir()) == [file]


def test_a_folder_where_nothing_new_may_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kept"
    file.write_bytes(b"old")

    opened = Path.open

    def refused(self: Path, mode: str = "r", *more: Any) -> Any:
        if mode == "xb":
            raise PermissionError(13, "Permission denied")
        return opened(self, mode, *more)

    monkeypatch.setattr(Path, "open", refused)
    write_whole(file, b"new")
    assert file.read_bytes() == b"new"
    with pytest.raises(PermissionError):
        write_whole(tmp_path / "another", b"new")


def test_pipes_get_the_content(tmp_path: Path) -> None:
    pipe, found = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, b"content")
    reader.join()
    assert found == [b"content"] and stat.S_ISFIFO(pipe.stat().st_mode)
