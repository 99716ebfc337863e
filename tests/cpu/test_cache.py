"""What is kept on disk: found by other processes, and never trusted further than it can be checked."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

import tcomp as tc
from tcomp import driver
from tcomp.backends.host import native, toolchain
from tcomp.runtime import specialisation
from tcomp.storage import cache
from tcomp.storage.cache import CacheWarning, store
from tcomp.storage.entries import pack
from tcomp.storage.eviction import COUNTER

pytestmark = pytest.mark.sweep(2)

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
KEY = "ab" * 32
OTHER_KEY = "cd" * 32
A, B = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that ``TCOMP_CACHE`` names, not there yet."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("TCOMP_CACHE", str(folder))
    return folder


class Counts:
    """How often the compiler and the pipeline ran."""

    compiled = 0
    lowered = 0


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    """A process that has loaded no kernel yet, as far as the cache is concerned, and the work that it does."""
    found = Counts()
    begin_compiling, lower = toolchain.compiling, specialisation.lower

    def compiling(*arguments: object, **choices: object) -> object:
        found.compiled += 1
        return begin_compiling(*arguments, **choices)

    def lowering(*arguments: object, **options: object) -> object:
        found.lowered += 1
        return lower(*arguments, **options)

    monkeypatch.setattr(toolchain, "compiling", compiling)
    monkeypatch.setattr(specialisation, "lower", lowering)
    return found


def run_as_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Call a kernel as a process does that has loaded none before."""
    monkeypatch.setattr(native, "_LOADED", type(native._LOADED)())
    result = tc.define(MM).mm(A, B)
    np.testing.assert_array_equal(result, A @ B)


def files(kind: str) -> list[Path]:
    directory = store().directory
    assert directory is not None
    return sorted(path for path in directory.iterdir() if path.name.startswith(f"{kind}-"))


def test_a_second_process_neither_schedules_nor_compiles(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    run_as_new_process(monkeypatch)
    assert (counts.lowered, counts.compiled) == (1, 1)
    run_as_new_process(monkeypatch)
    assert (counts.lowered, counts.compiled) == (1, 1)
    kernel = tc.define(MM).mm.compile(A, B)
    assert kernel.stages["kernel"] == kernel.source and counts.lowered == 2


def test_a_plan_that_is_refused_stops_the_compiler_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work: list[list[Path]] = []

    def refuse(*_: object) -> None:
        at_work.append(list(tmp_path.glob("tcomp-work-*")))
        raise tc.LegalityError("no")

    tc.define(MM).mm(B.T, A.T)  # what a process does but once
    monkeypatch.setattr(native, "_LOADED", type(native._LOADED)())  # another test may have loaded this kernel
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(driver, "prove", refuse)
    before = len(files("kernel"))
    with pytest.raises(tc.LegalityError, match="no"):
        tc.define(MM).mm(A, B)
    assert [len(folders) for folders in at_work] == [1], "the compiler did not work meanwhile"
    assert not list(tmp_path.glob("tcomp-work-*")) and len(files("kernel")) == before


def test_options_that_give_the_same_text_share_a_kernel(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCOMP_CACHE", "0")
    monkeypatch.setattr(native, "_LOADED", type(native._LOADED)())
    toolchain.find()
    counts.compiled = 0
    mm = tc.define(MM).mm
    made = [mm.compile(A, B, options=tc.MappingOptions(threads=(count,))) for count in (32, 64, 128)]
    assert len({kernel.source for kernel in made}) == 1 and counts.compiled == 1


def test_the_text_is_kept_though_the_compiler_fails(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    """To make it again at every call would take time, and the memory that isl's bindings lose."""
    toolchain.find()
    monkeypatch.setattr(native, "_LOADED", type(native._LOADED)())  # another test may have loaded this kernel
    monkeypatch.setattr(toolchain, "_image", lambda *_: (_ for _ in ()).throw(tc.TargetError("it failed")))
    for _ in range(2):
        with pytest.raises(tc.TargetError, match="it failed"):
            tc.define(MM).mm(A, B)
    assert (counts.lowered, counts.compiled, len(files("kernel"))) == (1, 2, 0)


def test_nothing_is_kept_if_so_asked(counts: Counts, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("TCOMP_CACHE", "0")
    run_as_new_process(monkeypatch)
    run_as_new_process(monkeypatch)
    assert (counts.lowered, counts.compiled) == (2, 2)
    assert not home.exists() and list(store().entries()) == []


def test_the_text_depends_on_everything_that_goes_in() -> None:
    def key(text: str = MM, unchecked: bool = False, **options: object) -> str:
        kernel = tc.define(text).mm.compile(A, B, options=tc.MappingOptions(**options), unchecked=unchecked)
        return kernel.specialisation.key()

    base = key()
    assert key() == base
    assert key("  # a comment\n" + MM) == base
    others = [
        key(MM.replace("* B", "+ B")),
        key(MM.replace("(C)", "(float(M,N) C)")),
        key(unchecked=True),
        key(parallel=False),
        key(tile_sizes=(4, 4)),
        tc.define(MM).mm.compile(A[:2], B).specialisation.key(),
        tc.define(MM).mm.compile(A[::-1], B).specialisation.key(),
    ]
    assert len({base, *others}) == 1 + len(others)


def test_edited_sources_of_tcomp_find_no_old_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    made = tc.define(MM).mm.compile(A, B).specialisation
    before = made.key()
    monkeypatch.setattr(specialisation, "build_identity", lambda: "another build")
    assert made.key() != before


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1000 if len(content) > 1000 else -1] ^= 4
    path.write_bytes(content)


def _replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _replace_by_link(path: Path) -> None:
    elsewhere = path.parent.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def _give_to_all(path: Path) -> None:
    path.chmod(0o666)


def _swap_payload(path: Path) -> None:
    header, _, payload = path.read_bytes().partition(b"\n")
    path.write_bytes(header + b"\n" + payload[::-1])


def _rubbish_header(path: Path) -> None:
    path.write_bytes(b'{"tcomp": [' * 5000 + b"\n" + b"x")


DAMAGES = [
    *(_truncate, _empty, _flip, _replace_by_directory, _replace_by_pipe, _replace_by_link),
    *(_give_to_all, _swap_payload, _rubbish_header),
]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", ["kernel", "source"])
@pytest.mark.filterwarnings("ignore::tcomp.CacheWarning")
def test_a_damaged_entry_is_made_again(
    damage: Callable[[Path], None], kind: str, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_as_new_process(monkeypatch)
    (path,) = files(kind)
    damage(path)
    run_as_new_process(monkeypatch)
    assert (counts.compiled, counts.lowered) == ((2, 1) if kind == "kernel" else (1, 2))
    if damage is not _replace_by_directory:
        run_as_new_process(monkeypatch)
        assert counts.compiled + counts.lowered == 3


def test_every_flipped_bit_is_noticed(home: Path) -> None:
    assert store().put("kernel", KEY, "label", b"payload")
    (path,) = files("kernel")
    sound = path.read_bytes()
    for position in range(len(sound)):
        for bit in (1, 16, 128):
            damaged = bytearray(sound)
            damaged[position] ^= bit
            path.write_bytes(damaged)
            assert store().get("kernel", KEY) is None, (position, bit)


def test_swapped_entries_are_noticed() -> None:
    store().put("kernel", KEY, "one", b"first")
    store().put("kernel", OTHER_KEY, "other", b"second")
    one, other = files("kernel")
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    assert store().get("kernel", KEY) is None and store().get("kernel", OTHER_KEY) is None


def test_a_kernel_stays_sound_after_its_file_was_damaged() -> None:
    """The file is not what runs: cutting it off under a running process must not crash that process."""
    mm = tc.define(MM).mm
    mm(A, B)
    for path in files("kernel"):
        os.truncate(path, 0)
    np.testing.assert_array_equal(mm(A, B), A @ B)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_entries_planted_by_another_user_are_refused(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    run_as_new_process(monkeypatch)
    (path,) = files("kernel")
    os.chown(path, 12345, -1)
    run_as_new_process(monkeypatch)
    assert counts.compiled == 2
    assert path.stat().st_uid == os.geteuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_directory_of_another_user_is_refused(home: Path) -> None:
    home.mkdir()
    (home / "v1").mkdir()
    os.chown(home / "v1", 12345, -1)
    with pytest.warns(CacheWarning, match="belongs to another user"):
        assert store().directory is None


@pytest.mark.parametrize("part", ["", "v1"])
def test_a_directory_that_others_may_write_is_refused(home: Path, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir()
    (home / part).mkdir(exist_ok=True)
    (home / part).chmod(0o777)
    with pytest.warns(CacheWarning, match="others may write"):
        run_as_new_process(monkeypatch)
    assert not files_below(home)


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_files_are_for_the_user_only(home: Path) -> None:
    before = os.umask(0)
    try:
        store().put("kernel", KEY, "label", b"payload")
    finally:
        os.umask(before)
    for path in [home, *home.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


@pytest.mark.parametrize("place", ["/proc/nothing/here", "/dev/null", "/dev/null/cache"])
def test_kernels_run_where_nothing_can_be_kept(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCOMP_CACHE", place)
    monkeypatch.setattr(cache, "_STORES", type(cache._STORES)())
    with pytest.warns(CacheWarning, match="no cache in"):
        run_as_new_process(monkeypatch)


def test_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TCOMP_CACHE")
    monkeypatch.setattr(cache.platformdirs, "user_cache_path", lambda name: Path("~/.cache") / name)
    monkeypatch.setattr(cache, "_STORES", type(cache._STORES)())
    with pytest.warns(CacheWarning, match="no home directory"):
        run_as_new_process(monkeypatch)
    assert not Path("~").exists()


def test_a_full_disk_is_said_once(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    class Full:
        def __init__(self, *arguments: object) -> None:
            pass

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def writelines(self, parts: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store()
    monkeypatch.setattr(cache.os, "fdopen", Full)
    with pytest.warns(CacheWarning, match="No space left on device") as caught:
        kept = [store().put("kernel", key, "label", b"payload") for key in (KEY, OTHER_KEY)]
    assert kept == [False, False] and len(caught) == 1
    assert not files_below(home)


LIMITED = """
import resource, sys, warnings, numpy as np, tcomp as tc
from tcomp.storage.cache import store
store()
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert not store().put("kernel", "ab" * 32, "label", b"x" * 1000)
    assert store().get("kernel", "ab" * 32) is None
print(len(caught))
"""


def test_a_file_that_cannot_be_finished_leaves_nothing(home: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "1", done.stderr
    assert not files_below(home)


WRITING = """
import sys
from tcomp.storage.cache import store
number = 0
print("ready", flush=True)
while True:
    number += 1
    store().put("kernel", f"{number % 3:064x}", "label", bytes([number % 256]) * 300_000)
"""


@pytest.mark.long
def test_killed_writers_leave_whole_entries_or_none(home: Path) -> None:
    for wait in (0.0, 0.003, 0.01, 0.02):
        writer = subprocess.Popen([sys.executable, "-c", WRITING], stdout=subprocess.PIPE)
        assert writer.stdout is not None and writer.stdout.readline() == b"ready\n"
        time.sleep(0.05 + wait)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        for number in range(3):
            payload = store().get("kernel", f"{number:064x}")
            assert payload is None or (len(payload) == 300_000 and len(set(payload)) == 1)
    assert len(list(store().entries())) == 3
    for draft in home.rglob(".draft-*"):
        os.utime(draft, (0, 0))
    store().put("kernel", KEY, "label", b"")
    cache._sweep(home / "v1", 3600)
    assert not list(home.rglob(".draft-*"))


def _work(seed: int, folder: str) -> int:
    os.environ["TCOMP_CACHE"] = folder
    order = random.Random(seed)
    mm = tc.define(MM).mm
    for _ in range(6):
        size = order.choice([5, 6, 7])
        a = np.arange(size * 4, dtype=np.float32).reshape(size, 4)
        if not (mm(a, B) == a @ B).all():
            return 1
    return 0


def test_processes_share_one_cache(home: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        assert pool.starmap(_work, [(seed, str(home)) for seed in range(4)]) == [0] * 4
    assert len(files("kernel")) == 3 == len(files("source"))


def test_listing_and_clearing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_as_new_process(monkeypatch)
    entries = {entry.kind: entry for entry in store().entries()}
    assert entries["kernel"].label == "mm(A float32[3,4], B float32[4,5]) -> (C float32[3,5])"
    assert entries["source"].label == "mm(M=3, K=4, N=5)"
    assert all(0 < e.size < 100_000 and -1 < e.age < 600 for e in entries.values())
    (home / "v1" / "not-ours").write_text("stays")
    (home / "v1" / ".draft-x").write_text("goes")
    assert store().clear() == 2
    assert [path.name for path in files_below(home)] == ["not-ours"]


def test_export_and_import(tmp_path: Path, counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    run_as_new_process(monkeypatch)
    archive = tmp_path / "kernels.tar.gz"
    assert store().export_to(archive) == 2
    monkeypatch.setenv("TCOMP_CACHE", str(tmp_path / "another"))
    assert store().import_from(archive) == 2
    run_as_new_process(monkeypatch)
    assert (counts.lowered, counts.compiled) == (1, 1)


@pytest.mark.parametrize(("name", "most"), [("_LARGEST_ARCHIVE", 30_000), ("_MOST_MEMBERS", 3)])
def test_nothing_is_exported_that_no_import_would_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    monkeypatch.setattr(cache, name, most)
    archive = tmp_path / "kernels.tar.gz"
    for number in range(3):
        store().put("kernel", f"{number:064x}", "label", random.Random(number).randbytes(4000))
        assert store().export_to(archive) == number + 1
        assert store().import_from(archive) == number + 1
    for number in range(3, 8):
        store().put("kernel", f"{number:064x}", "label", random.Random(number).randbytes(4000))
    whole = archive.read_bytes()
    with pytest.raises(tc.TcompError, match="more than an import takes"):
        store().export_to(archive)
    assert archive.read_bytes() == whole


def test_import_takes_sound_entries_only(tmp_path: Path, home: Path) -> None:
    good = pack("kernel", KEY, "label", b"payload")
    members = {
        f"kernel-{KEY}": good,
        f"kernel-{OTHER_KEY}": good,
        "../escaped": good,
        "kernel-short": good,
        f"source-{KEY}": good[:-1],
    }
    archive = tmp_path / "mixed.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, BytesIO(content))
        link = tarfile.TarInfo(f"kernel-{'ef' * 32}")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    assert store().import_from(archive) == 1
    assert sorted(path.name for path in files_below(home)) == [COUNTER, f"kernel-{KEY}"]
    assert not (tmp_path / "escaped").exists()


def test_bad_archives_are_errors(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with pytest.raises(tc.TcompError, match="cannot import"):
        store().import_from(archive)
    archive.write_bytes(b"rubbish")
    with pytest.raises(tc.TcompError, match="cannot import"):
        store().import_from(archive)
    store().put("kernel", KEY, "label", random.Random(0).randbytes(20_000))
    store().export_to(archive)
    whole = archive.read_bytes()
    order = random.Random(1)
    for _ in range(50):
        damaged = bytearray(whole[: order.randrange(1, len(whole))])
        damaged[order.randrange(len(damaged))] ^= 1 << order.randrange(8)
        archive.write_bytes(damaged)
        try:
            assert store().import_from(archive) in (0, 1)
        except tc.TcompError:
            continue
    with pytest.raises(tc.TcompError, match="cannot write"):
        store().export_to(tmp_path / "no" / "such" / "folder")


def test_a_kept_text_of_another_form_is_made_again(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    run_as_new_process(monkeypatch)
    key = tc.define(MM).mm.compile(A, B).specialisation.key()
    for text in (b"[]", b"{}", b"not json", json.dumps({"arguments": [{}], "checks": [], "flags": []}).encode()):
        store().put("source", key, "label", text)
        before = counts.lowered
        run_as_new_process(monkeypatch)
        assert counts.lowered == before + 1
