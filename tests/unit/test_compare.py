"""``tcomp compare``: mappings side by side, as tables, JSON and a page."""

from __future__ import annotations

import html.parser
import json
from pathlib import Path

import pytest

from tcomp.cli import main

TEXT = "def f(float(N,M) A) -> (C) { B(i,j) = A(i,j) + A(i,j+1)  C(i,j) = B(i,j) * B(i+1,j) }"


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "f.tc").write_text(TEXT)
    return str(tmp_path / "f.tc")


def test_sides_are_shown_beside_each_other(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    words = ("compare", file, "--sizes", "N=33,M=17", "--options", "default", "--options", "fuse=min", "--text")
    assert main((*words, "--html", str(page))) == 0
    shown = capsys.readouterr().out
    rows = {line[:32].strip(): line[32:].split() for line in shown.splitlines()}
    assert rows["nests"] == ["1", "2"]
    # B has 33 x 16 elements of 4 bytes, which are in memory only where the statements are not fused.
    assert rows["bytes of temporaries in memory"] == ["0", "B", "2,112", "B"]
    # What tiles touch: 33 x 17 of A and 32 x 16 of C; then B is written, and read.
    touched = rows["bytes that tiles touch"]
    assert int(touched[0].replace(",", "")) < int(touched[2].replace(",", ""))
    assert "us" in rows["time of a call"] or "ms" in rows["time of a call"]
    assert "lines differ between default and fuse=min" in shown and "\n--- default\n+++ fuse=min\n" in shown

    class Tags(html.parser.HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[str] = []

        def handle_starttag(self, tag: str, _: object) -> None:
            if tag not in ("meta", "link"):
                self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.open.pop() == tag

    text = page.read_text()
    tags = Tags()
    tags.feed(text)
    assert not tags.open
    assert '<tr class="differs"><td>nests</td><td>1</td><td>2</td></tr>' in text
    assert "<script" not in text and '<span class="more">' in text


def test_on_a_gpu_blocks_are_simulated(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("compare", file, "--sizes", "N=33,M=17", "--target", "cuda:sm_90", "--options", "naive", "--json")
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert [side["name"] for side in found["sides"]] == ["default", "naive"]
    default, naive = (side["facts"] for side in found["sides"])
    assert default["f_0: bytes moved"]["value"] > 0 and default["f_0: estimated time"]["unit"] == "s"
    assert naive["nests"]["value"] >= default["nests"]["value"]
    assert found["text"][0].startswith("--- default")


def test_nothing_to_compare_is_an_error(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(("compare", file, "--sizes", "N=9,M=9")) == 1
    assert "give --options more than once" in capsys.readouterr().err
    assert main(("compare", file, "--sizes", "N=9,M=9", "--options", "tile=4", "--options", "nothing=1")) == 1
    assert "nothing" in capsys.readouterr().err


def test_of_what_runs_step_by_step_all_pieces_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "g.tc").write_text(
        "def g(float(T,N) X) -> (U) { S(0,i) = X(0,i)  for t in 1:T { S(t,i) = S(t-1,i) * X(t,i) } U(i) = S(T-1,i) }"
    )
    words = ("compare", str(tmp_path / "g.tc"), "--sizes", "T=5,N=300", "--options", "threads=32", "--json")
    assert main((*words, "--no-time", "--target", "cuda:sm_90")) == 0
    default, narrow = json.loads(capsys.readouterr().out)["sides"]
    assert default["facts"]["pieces"]["value"] == 3 and default["facts"]["launches"]["value"] == 6
    assert default["loops"].count("for step t:") == 1 and default["loops"] != narrow["loops"]
    assert default["nest"].count("piece") == 3
    assert narrow["facts"]["g_piece1_0: threads of a block"]["value"] == 32
