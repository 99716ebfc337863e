"""What people keep under a name survives a write that fails."""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tcomp import cli
from tcomp.storage import wholefiles
from tcomp.storage.cache import store
from tcomp.storage.wholefiles import read_bounded, whole_file, write_whole
from tests.hostile.subprocesses import start


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


def test_pipes_without_a_name_get_the_content(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader:
        write_whole(Path(f"/dev/fd/{writing}"), b"content")
        os.close(writing)
        assert reader.read() == b"content"


@pytest.mark.parametrize("length", [1, 250, 255])
def test_names_may_be_as_long_as_the_system_allows(length: int, tmp_path: Path) -> None:
    file = tmp_path / ("x" * length)
    write_whole(file, b"content")
    assert file.read_bytes() == b"content" and list(tmp_path.iterdir()) == [file]


def test_what_a_killed_process_left_is_in_nobodys_way(tmp_path: Path) -> None:
    """The first process of a container always has the number 1."""
    file = tmp_path / "kept"
    killed = start(
        "import os, sys; from pathlib import Path; from tcomp.storage.wholefiles import whole_file\n"
        "with whole_file(Path(sys.argv[1])) as file: file.write(b'half'); file.flush(); os._exit(9)",
        {},
        arguments=[str(file)],
    )
    killed.communicate()
    assert killed.returncode == 9 and not file.exists()
    (left,) = tmp_path.iterdir()
    for name in (left.name, f".{file.name}.{os.getpid()}.new"):
        (tmp_path / name).write_bytes(b"half")
    write_whole(file, b"content")
    assert file.read_bytes() == b"content"


def test_a_link_that_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.symlink_to(other)
    other.symlink_to(one)
    with pytest.raises(OSError, match="symbolic links"):
        write_whole(one, b"content")


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_name_that_no_file_can_have_is_an_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no file can have this name"):
        write_whole(tmp_path / name, b"content")


@pytest.mark.parametrize("method", ["replace", "chmod"])
def test_a_file_that_nothing_may_take_the_place_of(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It alone is mounted there, or is another's."""
    file = tmp_path / "kept"
    file.write_bytes(b"older and longer")
    number = file.stat().st_ino

    def refused(*_: Any, **__: Any) -> Any:
        raise OSError(16 if method == "replace" else 1, "refused")

    monkeypatch.setattr(*((Path, "replace") if method == "replace" else (wholefiles.shutil, "copymode")), refused)
    write_whole(file, b"new")
    assert (file.read_bytes(), file.stat().st_ino) == (b"new", number) and list(tmp_path.iterdir()) == [file]


@pytest.mark.skipif(os.geteuid() != 0, reason="only the administrator may give files away")
def test_a_file_keeps_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    file.write_bytes(b"old")
    os.chown(file, 12345, 54321)
    write_whole(file, b"new")
    assert (file.stat().st_uid, file.stat().st_gid, file.read_bytes()) == (12345, 54321, b"new")


def test_a_block_that_fails_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    file.write_bytes(b"old")

    def interrupted() -> None:
        with whole_file(file) as opened:
            opened.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert file.read_bytes() == b"old" and list(tmp_path.iterdir()) == [file]


def test_a_device_that_never_ends_is_not_read_to_its_end(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="it is larger than 1 MiB"):
        read_bounded(Path("/dev/zero"), 1 << 20)
    file = tmp_path / "file"
    for size in (0, 5, (1 << 20) - 1, 1 << 20, (1 << 20) + 1):
        file.write_bytes(bytes(size))
        assert read_bounded(file) == bytes(size)
    with pytest.raises(OSError, match="it is larger than 1 MiB"):
        read_bounded(file, 1 << 20)
    assert read_bounded(file, (1 << 20) + 1) == file.read_bytes()


@pytest.mark.parametrize("command", ["run", "run -", "compile --plan", "compile --options", "tune", "tuned import"])
def test_commands_end_on_what_never_ends(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TCOMP_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "f.tc"
    file.write_text("def f(float(N) A) -> (B) { B(n) = A(n) }")
    arguments = {
        "run -": ["run", "-"],
        "compile --plan": ["compile", str(file), "--sizes", "N=4", "--plan", "/dev/zero"],
        "compile --options": ["compile", str(file), "--sizes", "N=4", "--options", "@/dev/zero"],
    }
    with Path("/dev/zero").open("rb") as zeros:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=zeros))
        assert cli.main(arguments.get(command, [*command.split(), "/dev/zero"])) == 1
    assert "is larger than 256 MiB" in capsys.readouterr().err


def _result(folder: Path) -> Path:
    """What ``tcomp run`` writes."""
    program = folder / "f.tc"
    program.write_text("def f(float(N) A) -> (B) { B(n) = A(n) + 1 }")
    cli.main(["run", str(program), "--sizes", "N=4", "--output", str(folder / "out")])
    return folder / "out" / "B.npy"


def _archive(folder: Path) -> Path:
    """What ``tcomp cache export`` writes."""
    archive = folder / "out" / "archive.tar.gz"
    archive.parent.mkdir(exist_ok=True)
    cli.main(["cache", "export", str(archive)])
    return archive


@pytest.mark.parametrize("write", [_result, _archive])
def test_commands_leave_what_they_cannot_write_anew(
    write: Callable[[Path], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TCOMP_CACHE", str(tmp_path / "cache"))
    store().put("kernel", "ab" * 32, "label", b"payload")
    file = write(tmp_path)
    before = file.read_bytes()
    assert len(before) > 100

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(wholefiles.os, "fsync", full)
    assert write(tmp_path) == file
    assert "No space left on device" in capsys.readouterr().err
    assert file.read_bytes() == before and list(file.parent.iterdir()) == [file]
