"""A cache that is killed, refused, damaged and attacked: nothing but what was written is ever loaded or believed."""

from __future__ import annotations

import argparse
import errno
import hashlib
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.host import native, processes
from tcomp.storage import cache
from tcomp.storage.cache import CacheWarning, store
from tcomp.storage.entries import pack
from tests.hostile import faultyfiles
from tests.hostile.faultyfiles import SCENES, Scene
from tests.hostile.subprocesses import ROOT, run

pytestmark = pytest.mark.sweep(6)

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
TWICE = "def twice(float(N) X) -> (Y) { Y(i) = X(i) + X(i) }"
A, B = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)
KEY = "ab" * 32
OTHER_KEY = "cd" * 32


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that ``TCOMP_CACHE`` names, not there yet."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("TCOMP_CACHE", str(folder))
    return folder


def _in_new_process(function: Callable[..., int], *arguments: object) -> int:
    """What a function of ``faultyfiles`` returns, in a process that has nothing but tcomp loaded."""
    program = (
        "import warnings; warnings.simplefilter('ignore')\n"
        "from tests.hostile.faultyfiles import *\n"
        f"print({function.__name__}({', '.join(map(str, arguments))}))"
    )
    return int(run(program, {"PYTHONPATH": str(ROOT)}, seconds=280))


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_killed_at_operations(scene: Scene) -> None:
    """At every third; ``python -m tests.hostile.faultyfiles`` takes them all."""
    assert _in_new_process(faultyfiles.killed_everywhere, f"SCENES[{SCENES.index(scene)}]", 3) >= 2


def test_killed_within_writes() -> None:
    assert _in_new_process(faultyfiles.cut_off_everywhere, 4000) >= 4


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_refused_at_operations(scene: Scene) -> None:
    """As by a full disk, at every third; ``python -m tests.hostile.faultyfiles`` takes them all, and other errors."""
    assert _in_new_process(faultyfiles.refused_everywhere, f"SCENES[{SCENES.index(scene)}]", errno.ENOSPC, 3) >= 2


@contextmanager
def only_known_images(folder: Path) -> Iterator[set[str]]:
    """AssertionError if an image is loaded that is none of those which the compiler made in here.

    Yields the digests of those that were loaded.
    """
    known: set[str] = set()
    loaded: set[str] = set()
    image_of, open_image = native.toolchain._image, native.open_image

    def compiled(*arguments: object) -> bytes:
        image: bytes = image_of(*arguments)
        known.add(hashlib.sha256(image).hexdigest())
        return image

    def opening(image: bytes) -> object:
        digest = hashlib.sha256(image).hexdigest()
        assert digest in known, "an image that no compiler made is loaded"
        loaded.add(digest)
        return open_image(image)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native.toolchain, "_image", compiled)
        patch.setattr(native, "open_image", opening)
        patch.setenv("TCOMP_CACHE", str(folder))
        yield loaded


def _call_as_new_process() -> None:
    native._LOADED = type(native._LOADED)()
    np.testing.assert_array_equal(tc.define(MM).mm(A, B), A @ B)


def _entries() -> list[Path]:
    directory = store().directory
    assert directory is not None
    return sorted(path for path in directory.iterdir() if not path.name.startswith("."))


def flipped(folder: Path, flips: int, seed: int) -> int:
    """Flip one bit at a time of the kept text and kernel; returns how many.  AssertionError if any is not noticed."""
    order = random.Random(seed)
    with only_known_images(folder):
        _call_as_new_process()
        sound = {path: path.read_bytes() for path in _entries()}
        for _ in range(flips):
            path, content = order.choice(list(sound.items()))
            damaged = bytearray(content)
            # Half in the header, which is as likely to matter.
            end = content.index(b"\n") if order.random() < 0.5 else len(content)
            damaged[order.randrange(end)] ^= 1 << order.randrange(8)
            path.write_bytes(damaged)
            kind, _, key = path.name.partition("-")
            assert store().get(kind, key) is None, path.name
            path.write_bytes(content)
        for path, content in sound.items():
            damaged = bytearray(content)
            damaged[order.randrange(len(content))] ^= 1 << order.randrange(8)
            path.write_bytes(damaged)
            _call_as_new_process()
            assert path.read_bytes() == content
    return flips


def cut_short(folder: Path) -> int:
    """Cut both files off at the borders of everything in them; returns how often."""
    count = 0
    with only_known_images(folder):
        _call_as_new_process()
        for path in _entries():
            content = path.read_bytes()
            header = content.index(b"\n") + 1
            borders = {0, 1, header - 2, header - 1, header, header + 1, header + 64, 4096, len(content) - 1}
            for length in sorted(n for n in borders if n < len(content)):
                path.write_bytes(content[:length])
                _call_as_new_process()
                assert path.read_bytes() == content, (path.name, length)
                count += 1
            path.write_bytes(content + b"\0")
            _call_as_new_process()
            count += 1
    return count


def test_200_flipped_bits(home: Path) -> None:
    assert flipped(home, 200, 1) == 200


def test_files_cut_short(home: Path) -> None:
    assert cut_short(home) >= 16


def test_entries_under_names_of_others(home: Path) -> None:
    """Every entry under every other name, with and without its header changed to fit."""
    with only_known_images(home):
        _call_as_new_process()
        np.testing.assert_array_equal(tc.define(TWICE).twice(A[0]), 2 * A[0])
        sound = {path: path.read_bytes() for path in _entries()}
        assert len(sound) == 4
        for path in sound:
            for other, content in sound.items():
                if other == path:
                    continue
                path.write_bytes(content)
                _call_as_new_process()
                path.write_bytes(content.replace(other.name.partition("-")[2].encode(), path.name[-64:].encode()))
                _call_as_new_process()
                path.write_bytes(sound[path])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o666, 0o4755])
def test_a_sound_entry_of_another_user(mode: int, home: Path) -> None:
    """It is another's machine code, however well its digest fits."""
    assert store().put("kernel", KEY, "label", b"theirs")
    (path,) = _entries()
    os.chown(path, 12345, 12345)
    path.chmod(mode)
    assert store().get("kernel", KEY) is None
    assert not list(store().entries())
    assert store().put("kernel", KEY, "label", b"mine") and store().get("kernel", KEY) == b"mine"
    assert path.stat().st_uid == os.geteuid() and path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o777])
def test_a_sound_entry_that_others_may_write(mode: int) -> None:
    assert store().put("kernel", KEY, "label", b"payload")
    (path,) = _entries()
    path.chmod(mode)
    assert store().get("kernel", KEY) is None


@pytest.mark.parametrize("part", ["", "v1"])
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_directory_that_others_may_write(part: str, mode: int, home: Path) -> None:
    (home / "v1").mkdir(parents=True)
    (home / part).chmod(mode)
    with pytest.warns(CacheWarning, match="others may write"):
        assert store().directory is None


def test_a_link_in_place_of_an_entry(home: Path, tmp_path: Path) -> None:
    """Not followed when it is read, and replaced, not written through, when the entry is made again."""
    victim = tmp_path / "victim"
    victim.write_bytes(pack("kernel", KEY, "label", b"planted"))
    directory = store().directory
    assert directory is not None
    path = directory / f"kernel-{KEY}"
    for target in (victim, tmp_path / "nothing", directory, Path("/dev/zero"), path):
        path.symlink_to(target)
        assert store().get("kernel", KEY) is None
        assert store().put("kernel", KEY, "label", b"mine") and store().get("kernel", KEY) == b"mine"
        assert not path.is_symlink()
        path.unlink()
    assert victim.read_bytes() == pack("kernel", KEY, "label", b"planted")


def test_the_directory_goes_away(home: Path, recwarn: pytest.WarningsRecorder) -> None:
    """Somebody clears ``~/.cache`` under a running process: it begins anew, and only for this user."""
    assert store().put("kernel", KEY, "label", b"payload")
    directory = store().directory
    assert directory is not None
    shutil.rmtree(home)
    before = os.umask(0)
    try:
        assert store().put("kernel", KEY, "label", b"payload")
    finally:
        os.umask(before)
    assert store().get("kernel", KEY) == b"payload" and not recwarn.list
    assert home.stat().st_mode & 0o077 == 0 == directory.stat().st_mode & 0o077


def test_a_cache_that_is_cleared_while_it_is_written(
    home: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """The file that was about to be renamed is gone: it is written once more."""
    cleared = []
    replace = Path.replace

    def clearing(path: Path, target: Path) -> Path:
        if not cleared:
            cleared.append(store().clear())
        return replace(path, target)

    assert store().put("kernel", KEY, "label", b"payload")
    monkeypatch.setattr(Path, "replace", clearing)
    assert store().put("kernel", OTHER_KEY, "label", b"payload")
    assert cleared == [1] and not recwarn.list
    assert [path.name for path in _entries()] == [f"kernel-{OTHER_KEY}"]


@pytest.mark.parametrize("offset", [-1e9, -7200.0, 7200.0, 1e9])
def test_clocks_that_jump(offset: float, home: Path) -> None:
    """Entries serve whatever their date; what killed processes left goes, even if it seems to come from the future."""
    assert store().put("kernel", KEY, "label", b"payload")
    (path,) = _entries()
    draft = path.parent / ".draft-left"
    draft.write_bytes(b"")
    for file in (path, draft):
        when = file.stat().st_mtime + offset
        os.utime(file, (when, when))
    cache._sweep(path.parent, cache._STALE_SECONDS)
    assert store().get("kernel", KEY) == b"payload" and not draft.exists()
    assert [entry.key for entry in store().entries()] == [KEY]


@pytest.mark.parametrize("offset", [-1e9, 1e9])
def test_old_work_directories_are_removed(offset: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of processes that were killed; nothing that is called otherwise, is new or is a link."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with processes.work_directory() as left:
        pattern = left.name
    first, second = [letter for letter in "qwz" if letter != pattern[-1]][:2]
    stem = pattern[:-1]
    names = {"old": stem + "X", "mine": "tcomp-work", "new": stem + first, "theirs": "tcomp-work-results"}
    stale = tmp_path / pattern
    for folder in (stale, *(tmp_path / name for name in names.values())):
        folder.mkdir()
        (folder / "file").touch()
        if folder.name != names["new"]:
            os.utime(folder, (folder.stat().st_mtime + offset,) * 2)
    link = tmp_path / (stem + second)
    link.symlink_to(tmp_path / "tcomp-work")
    processes._sweep.cache_clear()
    with processes.work_directory():
        assert not stale.exists()
    assert all((tmp_path / name / "file").exists() for name in names.values()) and link.is_symlink()


def main() -> None:
    """More flips, with other seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    for seed in range(parser.parse_args().rounds):
        with tempfile.TemporaryDirectory(prefix="tcomp-test-") as name:
            flips, cuts = flipped(Path(name, "flipped"), 1000, seed), cut_short(Path(name, "cut"))
        sys.stdout.write(f"seed {seed}: {flips} flipped bits and {cuts} files cut short, all noticed\n")


if __name__ == "__main__":
    main()
