"""The page of results and the pictures are what their scripts make of the JSON."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import pictures, ratios, results_page

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def test_the_page_is_made_from_the_results() -> None:
    assert results_page.PAGE.read_text(encoding="utf-8") == results_page.page(RESULTS)


def test_a_later_run_of_a_machine_replaces_an_earlier_one(tmp_path: Path) -> None:
    old = json.loads((RESULTS / "cpu-zen5-2026-11-24.json").read_text(encoding="utf-8"))
    (tmp_path / "cpu-zen5-2026-11-24.json").write_text(json.dumps(old))
    (tmp_path / "cpu-zen9-2026-11-24.json").write_text(json.dumps({**old, "processor": "another"}))
    new = {**old, "date": "2027-01-02T00:00:00+00:00", "processor": "the same", "rows": old["rows"][:2]}
    (tmp_path / "cpu-zen5-2027-01-02.json").write_text(json.dumps(new))
    text = results_page.page(tmp_path)
    assert re.findall(r"^## CPU: .*?, (.*?), \d+ threads$", text, re.MULTILINE) == ["the same", "another"]
    assert text.count("| W1 |") == 2 and text.count("| W3 |") == 1


def test_ratios_compare_like_with_like() -> None:
    def found(**medians: float) -> dict[str, object]:
        entries = {name.replace("_", " "): {"median_us": us, "share_of_roof": 0.5} for name, us in medians.items()}
        return {"parts": {"cases": [{"item": "case", "result": {"implementations": entries}}]}}

    (plain,) = ratios.gpu_ratios(found(tcomp=10.0, torch=20.0, triton=15.0))
    assert (plain.peer, plain.ratio, plain.name) == ("triton", 1.5, "case")
    (unchecked,) = ratios.gpu_ratios(found(tcomp=50.0, tcomp_unchecked=10.0, torch=20.0))
    assert (unchecked.ratio, unchecked.name) == (2.0, "case, unchecked")
    assert ratios.gpu_ratios(found(tcomp=10.0)) == []


def test_the_picture_of_the_rooms_shows_every_room() -> None:
    folders = {
        "/".join(path.parent.relative_to(top.parent).parts)
        for top in (ROOT / "tcomp", ROOT / "grammar", ROOT / "mapping")
        for path in top.rglob("__init__.py")
        if not {"grammar", "mapping"} & set(path.relative_to(top).parts)
    }
    rooms = {folder.removeprefix("tcomp/") for folder in folders} - {"tcomp"}
    near = {room for room in rooms if room.count("/") < 2}
    assert near - pictures.shown_rooms() == set()
    assert {room for room in pictures.shown_rooms() if "/" in room} - near == set()
    shown = pictures.FOLDER.joinpath("rooms.svg").read_text(encoding="utf-8")
    assert [room for room in near if room.rpartition("/")[2] not in shown] == []


def test_what_is_written_in_a_room_stays_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    drawn: list[Any] = []
    monkeypatch.setattr(pictures, "_save", lambda figure, path: drawn.append(figure))
    pictures.draw_rooms(Path("rooms.svg"))
    (axes,) = drawn[0].axes
    drawn[0].canvas.draw()
    rooms = [patch.get_window_extent() for patch in axes.patches]
    for text in axes.texts:
        box = text.get_window_extent()
        around = [room for room in rooms if room.contains(box.x0, box.y1)]
        assert (
            not text.get_text()
            or text.get_ha() == "center"
            or any(room.contains(box.x1 + 1, box.y0 - 1) for room in around)
        ), text.get_text()


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_the_pictures_are_what_the_script_draws(tmp_path: Path) -> None:
    for drawn in pictures.draw(tmp_path):
        kept, new = (path.read_text(encoding="utf-8") for path in (pictures.FOLDER / drawn.name, drawn))
        texts = [re.findall(r"<text[^>]*>(.*?)</text>", text, re.DOTALL) for text in (kept, new)]
        assert texts[0] == texts[1] and len(texts[0]) > (20 if drawn.stem in ("speed", "rooms") else 1)
        if re.findall("Matplotlib v[0-9.]+", kept) == re.findall("Matplotlib v[0-9.]+", new):
            assert kept == new
