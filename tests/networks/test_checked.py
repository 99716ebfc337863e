"""Texts of kernels that were checked before: what is kept is what checking gives, and what is damaged is made again."""

from __future__ import annotations

import gc
import pickle
import pickletools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.errors import Span
from tcomp.grammar.calls import programs
from tcomp.grammar.parsing.parser import parse_recovering
from tcomp.networks import kernels
from tcomp.networks.grouping import group
from tcomp.networks.kept import checked
from tcomp.storage.cache import store
from tcomp.storage.memo import Memo
from tcomp.storage.turns import stand_aside

TEXT = "def layer(float(N,K) X, float(M,K) W) -> (Y) { Y(n,m) +=! X(n,k) * W(m,k) }"
NETWORK = "def network(float(N,3) x, float(4,3) w) -> (a, b) { a = layer(x, w)\n b = layer(x, w) }"


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCOMP_CACHE", str(tmp_path))


def test_a_text_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = checked.checked(TEXT, "layer", "net")
    monkeypatch.setattr(checked, "define_after", lambda *_: pytest.fail("read again"))
    again = checked.checked(TEXT, "layer", "net")
    assert again.function == first.function and again.function is not first.function
    x, w = np.ones((2, 3), np.float32), np.ones((4, 3), np.float32)
    assert (again(x, w) == 3).all()


def test_what_is_kept_is_read_by_calls_of_classes() -> None:
    """The states that dataclasses have for pickle are read by a loop in Python: ten times as slowly."""
    checked.checked(TEXT, "layer", "net")
    read = {code.name for code, *_ in pickletools.genops(store().get("def", checked._key(TEXT)) or b"")}
    assert "BUILD" not in read and "REDUCE" in read


def test_equal_spans_are_kept_once() -> None:
    checked.checked(TEXT, "layer", "net")
    found: dict[int, object] = {}
    wait: list[object] = [checked.checked(TEXT, "layer", "net").function]
    while wait:
        one = wait.pop()
        if id(one) not in found and not isinstance(one, type):
            found[id(one)] = one
            wait += gc.get_referents(one)
    spans = [one for one in found.values() if isinstance(one, Span)]
    assert spans and len(spans) == len(set(spans))


def test_another_text_or_name_or_build_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    checked.checked(TEXT, "layer", "net")
    keys = {checked._key(TEXT), checked._key(TEXT + " ")}
    monkeypatch.setattr(checked, "build_identity", lambda: "another")
    assert len(keys | {checked._key(TEXT)}) == 3
    assert checked.checked(TEXT.replace("layer", "other"), "other", "net").function.name == "other"


@pytest.mark.parametrize("content", [b"", b"no pickle", pickle.dumps("another thing"), b"\x80\x05cno_module\nThing\n."])
def test_what_is_damaged_is_made_again(content: bytes) -> None:
    key = checked._key(TEXT)
    assert store().put("def", key, "layer", content)
    assert checked.checked(TEXT, "layer", "net").function.name == "layer"
    assert pickle.loads(store().get("def", key) or b"").name == "layer"


def test_a_wrong_text_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(tc.CompileError, match="undefined variable Z"):
            checked.checked("def layer(float(N) X) -> (Y) { Y(i) = Z(i) }", "layer", "net")


def test_networks_keep_their_texts() -> None:
    text = "def f(float(N,4) x, float(3,4) w) -> (y) { y(n,m) +=! x(n,k) * w(m,k) }"
    net = tc.compile_network(text, np.zeros((2, 4), "f4"), weights={"w": np.ones((3, 4), "f4")})
    assert [kind for kind, *_ in net.kept()].count("def") == 1


def test_what_several_texts_begin_with_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = (
        "def twice(float(N) X) -> (Y) { Y(i) = 2 * X(i) }\n\n",
        "def less(float(N) X) -> (Y) { Y(i) = X(i) - 1 }\n\n",
    )
    calls = ("twice(less(x0))", "less(twice(x0))")
    texts = [f"def layer(float({4 + n}) x0) -> (y0) {{ y0 = {call} }}\n" for n, call in enumerate(calls)]
    whole = [tc.define("".join((*first, text)), "net").layer.function for text in texts]
    read: list[tuple[str, int]] = []
    monkeypatch.setattr(checked, "_READ", {})
    monkeypatch.setattr(programs, "parse_recovering", lambda source, start=0: _noted(read, source, start))
    found = [checked.checked(text, "layer", "net", first).function for text in texts]
    assert [start for _, start in read] == [0, len(first[0]), len("".join(first)), len("".join(first))]
    assert found == whole and [pickle.dumps(f) for f in found] == [pickle.dumps(f) for f in whole]
    with pytest.raises(tc.CompileError) as wrong:
        checked.checked("def layer(float(4) x0) -> (y0) { y0 = thrice(x0) }\n", "layer", "net", first)
    with pytest.raises(tc.CompileError) as same:
        tc.define("".join((*first, "def layer(float(4) x0) -> (y0) { y0 = thrice(x0) }\n")), "net")
    assert str(wrong.value) == str(same.value)


def _noted(read: list[tuple[str, int]], source: tc.errors.SourceText, start: int) -> programs.Parsed:
    read.append((source.text, start))
    return parse_recovering(source, start)


def test_threads_that_want_one_text_read_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of one text for several layouts are compiled by threads of their own."""
    network = tc.networks.from_text(f"{TEXT}\n{NETWORK}", weights={"w": np.ones((4, 3), "f4")}, sizes={"N": 2})
    read = list[str]()

    def slowly(text: str, *_: Any) -> Any:
        read.append(text)
        time.sleep(0.05)
        return checked.checked(TEXT, "layer", "net")

    monkeypatch.setattr(kernels, "checked", slowly)
    operations = kernels.Operations(network)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(operations, 2 * group(network, followers=True)))
    assert len(found) == 4 and len(read) == 1 and len({id(one) for one in found}) == 1


def test_others_work_while_a_thread_waits_for_its_compiler() -> None:
    at_work, most, waited = 0, 0, threading.Barrier(4, timeout=20)

    def made(number: int) -> int:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        time.sleep(0.01)
        at_work -= 1
        stand_aside()
        waited.wait()
        return number

    assert kernels.side_by_side(made, [(number,) for number in range(8)], 2) == [*range(8)]
    assert most <= 2


def test_turns_are_not_asked_for_again_by_whom_all_others_wait_for() -> None:
    made = Memo[str, int]()

    def slowly() -> int:
        stand_aside()
        time.sleep(0.05)
        return 1

    assert kernels.side_by_side(lambda _: made.get("one", slowly), [(number,) for number in range(6)], 2) == [1] * 6
