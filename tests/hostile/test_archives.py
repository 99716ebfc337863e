"""Archives for ``tcomp cache import`` that nobody exported: what they hold is refused, however little it weighs."""

from __future__ import annotations

import gzip
import os
import random
import tarfile
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from tcomp.storage import cache
from tcomp.storage.cache import store
from tcomp.storage.entries import pack
from tcomp.storage.eviction import COUNTER
from tests.hostile.subprocesses import run

pytestmark = pytest.mark.sweep(2)

KEY = "ab" * 32
OTHER_KEY = "cd" * 32
MIB = 1 << 20


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that ``TCOMP_CACHE`` names, not there yet."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("TCOMP_CACHE", str(folder))
    return folder


def _member(name: str, content: bytes, kind: bytes = tarfile.REGTYPE, link: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(content)
    info.mode, info.uid = 0o4777, 12345
    return info, content


_GOOD = pack("kernel", KEY, "label", b"payload")
MEMBERS = {
    "above": _member("../escaped", _GOOD),
    "above, named well": _member(f"../kernel-{KEY}", _GOOD),
    "absolute": _member(f"/tmp/kernel-{KEY}", _GOOD),
    "below": _member(f"deep/kernel-{KEY}", _GOOD),
    "line break": _member(f"kernel-{KEY}\n", _GOOD),
    "draft": _member(".draft-x", _GOOD),
    "lock": _member(".lock-ab", _GOOD),
    "other key": _member(f"kernel-{OTHER_KEY}", _GOOD),
    "other kind": _member(f"source-{KEY}", _GOOD),
    "symbolic link": _member(f"kernel-{KEY}", b"", tarfile.SYMTYPE, "/etc/passwd"),
    "hard link": _member(f"kernel-{KEY}", b"", tarfile.LNKTYPE, "/etc/passwd"),
    "directory": _member(f"kernel-{KEY}", b"", tarfile.DIRTYPE),
    "device": _member(f"kernel-{KEY}", b"", tarfile.CHRTYPE),
    "pipe": _member(f"kernel-{KEY}", b"", tarfile.FIFOTYPE),
    "empty": _member(f"kernel-{KEY}", b""),
    "header only": _member(f"kernel-{KEY}", _GOOD[: _GOOD.index(b"\n") + 1]),
}


@pytest.mark.parametrize("name", MEMBERS)
def test_imported_members_that_are_refused(name: str, home: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive.tar.gz"
    other = pack("kernel", "12" * 32, "label", b"payload")
    with tarfile.open(archive, "w:gz") as tar:
        for info, content in (MEMBERS[name], _member(f"kernel-{'12' * 32}", other)):
            tar.addfile(info, BytesIO(content))
    before = sorted(path for path in tmp_path.rglob("*"))
    assert store().import_from(archive) == 1
    created = sorted(path for path in tmp_path.rglob("*") if path not in before and path.is_file())
    assert [path.name for path in created] == [COUNTER, f"kernel-{'12' * 32}"]
    assert all(path.stat().st_mode & 0o7777 == 0o600 and path.stat().st_uid == os.geteuid() for path in created)


def _zeros(name: str, size: int) -> bytes:
    """A gzip file: the head of a member that claims so many bytes, then zeros without an end."""
    info = tarfile.TarInfo(name)
    info.size = size
    # After a full flush equal blocks are equal bytes: a gigabyte need not be compressed.
    packer, block = zlib.compressobj(wbits=-zlib.MAX_WBITS), bytes(MIB)
    head = packer.compress(info.tobuf(tarfile.GNU_FORMAT)) + packer.flush(zlib.Z_FULL_FLUSH)
    zeros = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    return gzip.compress(b"")[:10] + head + zeros * (min(size, 1300 * MIB) // MIB)


def _extended(size: int) -> bytes:
    """A member whose extended header is as long as a bomb."""
    info = tarfile.TarInfo("header")
    info.type, info.size = tarfile.XHDTYPE, size
    return gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(MIB))


def _negative() -> bytes:
    """A size below zero, which sends a reader back where it came from."""
    content = bytearray(tarfile.TarInfo(f"kernel-{KEY}").tobuf(tarfile.GNU_FORMAT))
    content[124:136] = b"\xff" * 10 + b"\xfc\x00"
    content[148:156] = b" " * 8
    content[148:156] = f"{sum(content[:512]):06o}\0 ".encode()
    return gzip.compress(bytes(content) + bytes(2048))


def _many() -> bytes:
    """More members than any export has."""
    one = tarfile.TarInfo("x").tobuf(tarfile.GNU_FORMAT)
    return gzip.compress(one * (cache._MOST_MEMBERS + 1), 1)


BOMBS: dict[str, Callable[[], bytes]] = {
    "a member of a terabyte": lambda: _zeros("large", 1 << 40),
    "an entry of a terabyte": lambda: _zeros(f"kernel-{KEY}", 1 << 40),
    "an extended header of a terabyte": lambda: _extended(1 << 40),
    "an extended header of a gibibyte": lambda: _extended(1 << 30),
    "a negative size": _negative,
    "too many members": _many,
    "rubbish": lambda: gzip.compress(random.Random(3).randbytes(5000)),
    "not compressed": lambda: b"rubbish",
}


@pytest.mark.parametrize("name", BOMBS)
def test_archives_that_are_bombs(name: str, home: Path, tmp_path: Path) -> None:
    """Refused within a gibibyte of memory and without a file left."""
    archive = tmp_path / "archive.tar.gz"
    archive.write_bytes(BOMBS[name]())
    program = """
import resource, sys
from pathlib import Path
from tcomp import TcompError
from tcomp.storage.cache import store
size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 30), size + (1 << 30)))
try: print(store().import_from(Path(sys.argv[1])))
except TcompError as error: print(error)
"""
    output = run(program, {"TCOMP_CACHE": str(home)}, [str(archive)], seconds=200)
    assert output.startswith("error: cannot import"), output
    assert not [path for path in home.rglob("*") if path.is_file()]
