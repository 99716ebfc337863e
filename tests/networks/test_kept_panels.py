"""Panels that were packed before: found for the same weights alone, whole or not at all, and never too many."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tcomp as tc
from tcomp.mapping.machines.fitted import networks
from tcomp.networks.kept import panels
from tcomp.networks.program import CompiledNetwork
from tcomp.runtime.kernel import Kernel
from tcomp.storage import cache
from tcomp.storage.cache import store
from tcomp.storage.entries import pack

TEXT = """def linear(float(N,K) X, float(M,K) W) -> (Y) { Y(n,m) +=! X(n,k) * W(m,k) }
def net(float(8,96) x, float(96,96) u, float(96,96) v) -> (y) { h = linear(x, u) y = linear(h, v) }"""
EACH_ALONE = networks.Kept(least_bytes=1, part_bytes=1)
X = np.arange(8 * 96, dtype=np.float32).reshape(8, 96) % 7
U, V = (np.arange(96 * 96, dtype=np.float32).reshape(96, 96) % k for k in (5, 3))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TCOMP_CACHE", str(tmp_path))
    monkeypatch.setattr(panels, "KEPT", EACH_ALONE)
    return tmp_path / "v1"


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[Kernel]:
    """The kernels that pack panels, each time they do."""
    found, own = [], Kernel.pack
    monkeypatch.setattr(Kernel, "pack", lambda self, addresses: (found.append(self), own(self, addresses))[1])
    return found


def compiled(u: np.ndarray = U, v: np.ndarray = V, **options: object) -> CompiledNetwork:
    return tc.compile_network(TEXT, X, weights={"u": u, "v": v}, options=options)


def test_who_starts_again_packs_nothing(own_cache: Path, packed: list[Kernel]) -> None:
    first = compiled()
    assert first.panel_bytes and len(packed) == len(list(own_cache.glob("panels-*"))) == 2
    again = compiled()
    assert len(packed) == 2 and again.panel_bytes == first.panel_bytes
    assert (again(X) == X @ U.T @ V.T).all() and (first(X) == again(X)).all()


def test_other_weights_and_options_have_other_panels(packed: list[Kernel]) -> None:
    compiled()
    other = compiled(V, U)
    assert len(packed) == 4 and (other(X) == X @ V.T @ U.T).all()
    changed = V.copy()
    changed[95, 95] += 1
    assert (compiled(U, changed)(X) == X @ U.T @ changed.T).all() and len(packed) == 6
    compiled(views=False)
    assert len(packed) == 8
    compiled(jobs=1)
    assert len(packed) == 8


@pytest.mark.parametrize("jobs", [1, 2])
def test_panels_that_lie_in_one_part_are_read_at_once(
    own_cache: Path, packed: list[Kernel], monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    monkeypatch.setattr(panels, "KEPT", networks.Kept(least_bytes=1))
    first = compiled(jobs=jobs)
    (entry,) = own_cache.glob("panels-*")
    again = compiled(jobs=jobs)
    assert len(packed) == 2 and (again(X) == X @ U.T @ V.T).all()
    starts = [panel.ctypes.data for panel in again._panels.values()]
    assert all(start % 64 == 0 for start in starts) and starts[1] - starts[0] >= first.panel_bytes // 2
    entry.unlink()
    assert (compiled(jobs=jobs)(X) == X @ U.T @ V.T).all() and len(packed) == 4 and entry.exists()


def test_parts_of_memory_hold_all_panels_one_behind_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panels, "KEPT", networks.Kept(part_bytes=200))
    assert panels._laid_out([]) == []
    assert panels._laid_out([100, 70, 1, 300, 8]) == [
        (198, [(0, 0), (1, 128)]),
        (1, [(2, 0)]),
        (300, [(3, 0)]),
        (8, [(4, 0)]),
    ]
    assert panels._laid_out([128, 72]) == [(200, [(0, 0), (1, 128)])]


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_was_read_while_kernels_were_looked_for_is_not_read_again(
    monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    compiled(jobs=jobs)
    read: list[object] = []
    own = cache.Store.get_into
    monkeypatch.setattr(cache.Store, "get_into", lambda *which: (read.append(which[2]), own(*which))[1])
    again = compiled(jobs=jobs)
    assert len(read) == len(set(read)) == 2 and (again(X) == X @ U.T @ V.T).all()


@pytest.mark.parametrize("jobs", [1, 2])
def test_each_weight_is_looked_at_once_whoever_does(monkeypatch: pytest.MonkeyPatch, jobs: int) -> None:
    compiled(jobs=jobs)
    seen, own = [], panels._elements
    monkeypatch.setattr(panels, "_elements", lambda array: (seen.append(array), own(array))[1])
    assert (compiled(jobs=jobs)(X) == X @ U.T @ V.T).all() and len(seen) == 2


def test_weights_are_looked_at_in_groups_of_some_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    network = compiled().source
    assert panels._grouped(network) == [["u"], ["v"]]
    monkeypatch.setattr(panels, "KEPT", networks.Kept(part_bytes=U.nbytes + V.nbytes))
    assert panels._grouped(network) == [["u", "v"]] and panels._grouped(replace(network, weights={})) == []


WRONG_LISTS = {
    "nothing": b"", "no list": b"{}", "too short": b"[1]", "no sizes": b'["0", "a"]', "no text": b"\x80",
    "others": b'["0", [8]]', "negative": b'["0", [-8]]', "endless": b'["0", [1e999]]',
    "vast": b'["0", [4611686018427387904]]',
}  # fmt: skip


@pytest.mark.parametrize("content", WRONG_LISTS.values(), ids=WRONG_LISTS)
@pytest.mark.parametrize("limit", [1 << 30, None])
def test_a_wrong_list_of_parts_does_no_harm(
    own_cache: Path, packed: list[Kernel], monkeypatch: pytest.MonkeyPatch, content: bytes, limit: int | None
) -> None:
    compiled(jobs=2)
    (path,) = own_cache.glob("panellist-*")
    right = path.read_bytes()
    monkeypatch.setattr(store(), "limit", limit)
    assert store().put("panellist", path.name.partition("-")[2], "", content)
    assert (compiled(jobs=2)(X) == X @ U.T @ V.T).all() and len(packed) == 2 and path.read_bytes() == right


def test_a_network_whose_kernels_changed_reads_none_of_the_old_panels(
    own_cache: Path, packed: list[Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(jobs=2)
    (path,) = own_cache.glob("panellist-*")
    old, own = path.read_bytes(), panels._facts
    monkeypatch.setattr(panels, "_facts", lambda wanted: own(wanted)[::-1])
    assert (compiled(jobs=2)(X) == X @ U.T @ V.T).all() and len(packed) == 4 and path.read_bytes() != old
    monkeypatch.setattr(panels, "_facts", own)
    # These are there still, and the list is theirs again.
    assert (compiled(jobs=2)(X) == X @ U.T @ V.T).all() and len(packed) == 4 and path.read_bytes() == old


def _damaged(content: bytes) -> dict[str, bytes]:
    start = content.index(b"\n") + 1
    name = content[content.index(b'"key": "') + 8 :][:64].decode()
    return {
        "a bit": content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
        "its end": content[:-1],
        "more behind it": content + b"0",
        "its first line": content[start:],
        "another's": pack("panels", "0" * 64, "", content[start:]),
        "smaller": pack("panels", name, "", content[start:-64]),
        "nothing": b"",
    }


@pytest.mark.parametrize("what", _damaged(pack("panels", "0" * 64, "", bytes(100))))
def test_what_is_damaged_is_packed_anew(own_cache: Path, packed: list[Kernel], what: str) -> None:
    compiled()
    for path in own_cache.glob("panels-*"):
        path.write_bytes(_damaged(path.read_bytes())[what])
    assert (compiled()(X) == X @ U.T @ V.T).all() and len(packed) == 4
    compiled()
    assert len(packed) == 4


def test_an_entry_that_is_not_believed_leaves_zeros(own_cache: Path) -> None:
    assert store().put("panels", "1" * 64, "", bytes(range(1, 9)))
    room = bytearray(8)
    assert store().get_into("panels", "1" * 64, memoryview(room)) and room == bytes(range(1, 9))
    path = own_cache / f"panels-{'1' * 64}"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert not store().get_into("panels", "1" * 64, memoryview(room)) and not any(room)


def test_nothing_is_kept_without_a_cache(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
    monkeypatch.setenv("TCOMP_CACHE", "0")
    assert (compiled()(X) == X @ U.T @ V.T).all() and not own_cache.exists()


def test_small_networks_and_those_that_would_fill_the_cache_keep_none(
    monkeypatch: pytest.MonkeyPatch, own_cache: Path
) -> None:
    monkeypatch.setattr(panels, "KEPT", networks.Kept(least_bytes=U.nbytes + V.nbytes + 1))
    compiled()
    monkeypatch.setattr(panels, "KEPT", EACH_ALONE)
    monkeypatch.setattr(store(), "limit", U.nbytes)
    compiled()
    assert not list(own_cache.glob("panels-*"))


def test_threads_that_compile_one_network_at_once_get_the_same(own_cache: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        nets = [one.result() for one in [pool.submit(compiled) for _ in range(4)]]
    assert all((net(X) == X @ U.T @ V.T).all() for net in nets) and len(list(own_cache.glob("panels-*"))) == 2


def test_a_saved_network_finds_its_own(tmp_path: Path, packed: list[Kernel]) -> None:
    compiled().save(tmp_path / "net.npz")
    tc.load_network(tmp_path / "net.npz")
    before = len(packed)
    assert (tc.load_network(tmp_path / "net.npz")(X) == X @ U.T @ V.T).all() and len(packed) == before


def test_the_same_arrays_under_each_others_names_have_other_panels(packed: list[Kernel]) -> None:
    network = compiled().source
    turned = replace(network, weights={"v": network.weights["u"], "u": network.weights["v"]})
    assert (CompiledNetwork(turned)(X) == X @ V.T @ U.T).all() and len(packed) == 4


def test_weights_that_are_written_meanwhile_are_not_kept(
    own_cache: Path, packed: list[Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a step of an optimiser in another thread, where a network shares its arrays."""
    shared, pack_one = U.copy(), Kernel.pack
    network = compiled().source
    network = replace(network, weights={**network.weights, "u": shared})
    for entry in own_cache.glob("panels-*"):
        entry.unlink()

    def pack_later(kernel: Kernel, addresses: object) -> None:
        shared[0, 0] += 1
        pack_one(kernel, addresses)  # type: ignore[arg-type]

    monkeypatch.setattr(Kernel, "pack", pack_later)
    CompiledNetwork(network)
    assert not list(own_cache.glob("panels-*"))


def test_panels_that_no_entry_may_hold_are_not_written(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LARGEST_ENTRY", cache.LARGEST_HEADER + 1000)
    assert (compiled()(X) == X @ U.T @ V.T).all()
    assert not list(own_cache.glob("panels-*"))
