"""The picture of what networks take without each pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import ablation_plot


def _row(without: str, ms: float, several: float | None, same: bool = False) -> dict[str, object]:
    return {"without": without, "same": same, "ms": ms, "several_ms": several}


FOUND = {
    "date": "2026-11-27T00:00:00",
    "batch": 8,
    "machine": {"processor": "a processor", "threads": 2},
    "classes": [
        {"class": "cnn", "rows": [_row("", 2, 16), _row("pack", 3, 12), _row("fold", 2, None, same=True)]},
        {"class": "mlp", "rows": [_row("", 4, 8), _row("pack", 4, None, same=True), _row("fold", 4, None, same=True)]},
    ],
}


def test_passes_that_change_nothing_are_left_out() -> None:
    assert ablation_plot.ratios(FOUND, "ms") == (["pack"], [[1.5, None]])
    assert ablation_plot.ratios(FOUND, "several_ms") == (["pack"], [[0.75, None]])


def test_picture_has_the_ratios_as_text(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    first, again = tmp_path / "first.svg", tmp_path / "again.svg"
    ablation_plot.draw(FOUND, first)
    ablation_plot.draw(FOUND, again)
    assert first.read_bytes() == again.read_bytes()
    assert all(f">{told}<" in first.read_text() for told in ("1.50", "0.75", "without pack", "8 inputs"))
