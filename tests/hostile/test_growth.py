"""Kernels without end: neither the cache on disk nor what is loaded grows beyond its bounds."""

from __future__ import annotations

import gc
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import tcomp as tc
from tcomp import cli
from tcomp.backends.host import native
from tcomp.errors import TcompError
from tcomp.operation import Operation
from tcomp.storage.cache import Store, store
from tcomp.storage.eviction import COUNTER
from tcomp.storage.memo import Memo, Recent
from tests.hostile.subprocesses import PRELUDE, start

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
MIB = 1 << 20
PAYLOAD = bytes(40_000)
DIRECT = 1
"""The library that calls kernels directly, which looks like one of them."""


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCOMP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TCOMP_CACHE_SIZE", "1")


def key(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def directory() -> Path:
    found = store().directory
    assert found is not None
    return found


def total() -> int:
    return sum(entry.size for entry in store().entries())


def put(number: int, size: int = 40_000) -> None:
    assert store().put("kernel", key(number), f"number {number}", bytes(size))


def age(number: int, seconds: float) -> None:
    path = directory() / f"kernel-{key(number)}"
    when = path.stat().st_mtime - seconds
    os.utime(path, (when, when))


class TestOnDisk:
    def test_it_stays_below_its_limit(self) -> None:
        for number in range(100):
            put(number)
            assert total() <= MIB
        assert total() > MIB // 2
        assert store().get("kernel", key(99)) is not None

    def test_what_was_used_least_recently_goes(self) -> None:
        for number in range(20):
            put(number)
            age(number, 1000 - number)
        assert store().get("kernel", key(3)) == PAYLOAD
        for number in range(20, 35):
            put(number)
        left = {entry.key for entry in store().entries()}
        assert key(3) in left and {key(n) for n in range(20, 35)} <= left
        assert not {key(0), key(1), key(2), key(4)} & left

    def test_one_that_is_larger_than_all_is_not_kept(self) -> None:
        put(1)
        put(2, 2 * MIB)
        assert total() <= MIB
        put(3)
        assert store().get("kernel", key(3)) == PAYLOAD

    def test_a_cache_from_before_is_looked_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TCOMP_CACHE_SIZE", "0")
        for number in range(40):
            put(number)
            age(number, 1000 - number)
        assert total() > MIB
        monkeypatch.setenv("TCOMP_CACHE_SIZE", "1")
        put(40)
        assert total() <= MIB
        assert store().get("kernel", key(40)) is not None and store().get("kernel", key(0)) is None

    @pytest.mark.parametrize("content", ["gone", "long", "a link", "a directory", "read-only"])
    def test_a_counter_that_is_not_one(self, content: str) -> None:
        put(0)
        counter = directory() / COUNTER
        counter.unlink()
        match content:
            case "long":
                counter.write_bytes(bytes(10 * MIB))
            case "a link":
                counter.symlink_to("/dev/zero")
            case "a directory":
                counter.mkdir()
            case "read-only":
                counter.touch(0o400)
        for number in range(40):
            put(number)
            assert store().get("kernel", key(number)) == PAYLOAD
        if content not in ("a link", "a directory"):
            assert total() <= MIB

    @pytest.mark.parametrize("offset", [-1e9, 1e9])
    def test_clocks_that_jump(self, offset: float) -> None:
        """Files from another time go first, whichever it is."""
        for number in range(20):
            put(number)
            age(number, offset)
        for number in range(20, 40):
            put(number)
        left = {entry.key for entry in store().entries()}
        assert {key(n) for n in range(20, 40)} <= left and total() <= MIB

    @pytest.mark.long
    def test_processes_share_one_limit(self, tmp_path: Path) -> None:
        program = (
            "import warnings; warnings.simplefilter('error')\n"
            + PRELUDE
            + """
import hashlib
from tcomp.storage.cache import store
seed = int(sys.argv[1])
for number in range(150):
    key = hashlib.sha256(f"{seed} {number}".encode()).hexdigest()
    assert store().put("kernel", key, "label", bytes(30_000 + seed))
    assert store().get("kernel", key) in (None, bytes(30_000 + seed))
check()
"""
        )
        changes = {"TCOMP_CACHE": str(tmp_path / "cache"), "TCOMP_CACHE_SIZE": "1"}
        running = [start(program, changes, [str(seed)]) for seed in range(3)]
        for process in running:
            _, errors = process.communicate(timeout=200)
            assert process.returncode == 0, errors.decode()
        assert MIB // 2 < total() <= MIB
        assert not list(directory().glob(".draft-*"))

    def test_archives_count(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TCOMP_CACHE_SIZE", "0")
        for number in range(60):
            put(number)
        store().export_to(tmp_path / "archive.tar.gz")
        store().clear()
        monkeypatch.setenv("TCOMP_CACHE_SIZE", "1")
        assert store().import_from(tmp_path / "archive.tar.gz") == 60
        assert total() <= MIB

    @pytest.mark.parametrize("text", ["-1", "1.5", "x", " ", "1G", "9" * 13, "٣"])
    def test_sizes_without_sense(self, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TCOMP_CACHE_SIZE", text)
        with pytest.raises(TcompError, match=r"TCOMP_CACHE_SIZE is .*; it must be a number of MiB"):
            tc.define(MM).mm(np.ones((2, 3), np.float32), np.ones((3, 2), np.float32))

    def test_the_command_says_what_there_may_be(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        put(1)
        for size, said in (("1", " of at most 1.0 MiB, in "), ("", " of at most 1.0 GiB, in "), ("0", " KiB, in ")):
            monkeypatch.setenv("TCOMP_CACHE_SIZE", size)
            assert cli.main(["cache", "ls"]) == 0
            assert said in capsys.readouterr().out.splitlines()[-1]

    def test_a_store_without_limit_or_directory(self, tmp_path: Path) -> None:
        assert not Store(None).put("kernel", key(1), "label", b"")
        unlimited = Store(tmp_path)
        assert unlimited.put("kernel", key(1), "label", b"") and not (tmp_path / COUNTER).exists()


class TestInMemory:
    def test_a_memo_forgets_what_was_asked_for_least_recently(self) -> None:
        memo: Memo[int, list[int]] = Memo(3)
        first = memo.get(1, lambda: [1])
        for number in (2, 3):
            memo.get(number, lambda n=number: [n])  # type: ignore[misc]
        assert memo.get(1, list) is first
        memo.get(4, lambda: [4])
        assert memo.values() == [[3], [1], [4]]
        assert memo.get(2, lambda: [22]) == [22]

    def test_a_dict_of_the_last(self) -> None:
        recent: Recent[int, str] = Recent(2)
        for number in range(5):
            recent[number] = str(number)
        recent[3] = "three"
        assert dict(recent) == {3: "three", 4: "4"}

    def test_threads_fill_one(self) -> None:
        recent: Recent[int, int] = Recent(3)
        memo: Memo[int, int] = Memo(3)

        def fill(seed: int) -> None:
            for number in range(2000):
                recent[seed * 10_000 + number] = number
                assert memo.get(number % 7, lambda n=number: n % 7) == number % 7  # type: ignore[misc]

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(fill, range(6)))
        assert len(recent) <= 3 and len(memo.values()) <= 3

    @pytest.mark.long
    def test_kernels_that_nobody_holds_are_unloaded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The last few stay; one that the caller holds serves however many come after it."""
        loaded: Memo[str, native.NativeFunction] = Memo(4)
        monkeypatch.setattr(native, "_LOADED", loaded)
        before = loaded_kernels()
        operation = keeping(4)
        held = operation.compile(*matrices(1))
        for rows in (*range(2, 14), *range(2, 14)):
            a, b = matrices(rows)
            np.testing.assert_array_equal(operation(a, b), a @ b)
        assert loaded_kernels() <= before + 4 + 1 + DIRECT
        a, b = matrices(1)
        np.testing.assert_array_equal(held(a, b), a @ b)
        big = np.ones((150, 150), np.float32)
        assert (operation(big, big) == 150).all()
        del operation, held
        loaded._values.clear()
        # The first that runs threads stays: with it GNU's OpenMP would go, whose threads wait for work.
        assert loaded_kernels() <= before + 1 + DIRECT

    def test_kernels_are_forgotten_while_threads_run_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(native, "_LOADED", Memo(1))
        operation = keeping(1)

        def call(seed: int) -> None:
            for number in range(60):
                a, b = matrices(1 + (seed + number) % 3)
                np.testing.assert_array_equal(operation(a, b), a @ b)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(call, range(4)))


def keeping(kernels: int) -> Operation:
    """A product that keeps fewer kernels than others do."""
    operation: Operation = tc.define(MM).mm
    operation._kernels, operation._chosen = Memo(kernels), Memo(kernels)
    operation._bindings, operation._quick._known = Recent(kernels), Recent(kernels)
    return operation


def matrices(rows: int) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    return np.ones((rows, 5), np.float32), np.ones((5, 7), np.float32)


def loaded_kernels() -> int:
    """Files of kernels that are mapped into this process."""
    gc.collect()
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sum("memfd:tcomp-kernel" in line and " r-xp " in line for line in lines)
