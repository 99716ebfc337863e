"""What is found out about a compiled network: faster options for its kernels, and its picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import tcomp as tc  # noqa: E402
from tcomp.arrays.devices import MAIN  # noqa: E402
from tcomp.cli import main  # noqa: E402
from tcomp.networks.studies import tuning  # noqa: E402
from tcomp.tuner.database.file import open_database  # noqa: E402
from tcomp.tuner.database.identity import device_model, identity_of  # noqa: E402
from tcomp.tuner.database.records import Tuned  # noqa: E402

TEXT = """
def dense(float(N,K) X, float(M,K) W) -> (Y) { Y(n,m) +=! X(n,k) * W(m,k) }
def net(float(8,64) x, float(64,64) v, float(64,64) w) -> (y) {
  a = dense(x, v)
  b = dense(a, w)
  y = dense(b, v)
}
"""


@pytest.fixture
def own_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TCOMP_TUNED", str(tmp_path / "tuned.sqlite"))
    return tmp_path


def small() -> Any:
    x, v, w = torch.rand(8, 64), torch.rand(64, 64), torch.rand(64, 64)
    net = tc.compile_network(TEXT, x.numpy(), weights={"v": v.numpy(), "w": w.numpy()})
    return net, x, x @ v.T @ w.T @ v.T


def test_equal_layers_are_tuned_once_and_kept(own_results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "_COMPARISON", 0.1)
    net, x, right = small()
    result = net.tune(x.numpy(), budget=2.5, strategy="random")
    assert [(row.steps, row.told) for row in result.rows] == [(3, "tuned")]
    assert result.after <= result.before and "3" in str(result)
    assert torch.allclose(torch.from_numpy(net(x.numpy())), right, rtol=1e-4)
    other, _, _ = small()
    assert [row.told for row in other.tune(x.numpy(), budget=2.5).rows] == ["known"]


def test_options_that_were_found_are_used(own_results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tc.MappingOptions(tile_sizes=(4, 16))
    net, x, right = small()
    chosen = tuning.replace  # rows say what a search would have
    monkeypatch.setattr(
        tuning, "_tuned", lambda net, step, row, *_: chosen(row, options=found, speedup=2.0, told="tuned")
    )
    monkeypatch.setattr(tuning, "_in_turn", lambda nets, inputs: [2.0, 1.0][: len(nets)])
    result = net.tune(x.numpy(), budget=5.0)
    assert result.speedup == 2 and "tile_sizes=4x16" in str(result)
    assert [step.kernel.specialisation.options for step in net.steps] == [found] * 3
    assert torch.allclose(torch.from_numpy(net(x.numpy())), right, rtol=1e-4)
    with pytest.raises(tc.TcompError, match="budget is 0"):
        net.tune(x.numpy(), budget=0)
    with pytest.raises(tc.ShapeError):
        net.tune(x.numpy()[1:])


def test_what_a_search_kept_serves_other_networks(own_results: Path) -> None:
    net, x, right = small()
    step = net.steps[0]
    identity = identity_of(step.kernel.specialisation, device_model(step.kernel.specialisation.target, MAIN))
    found = tc.MappingOptions(tile_sizes=(4, 16))
    with open_database() as kept:
        kept.keep(Tuned(identity, "dense", found, (1.0,), (2.0,), True, 1, 0.0, "here"))
    other, x, right = small()
    assert [step.kernel.specialisation.options for step in other.steps] == [found] * 3
    assert torch.allclose(torch.from_numpy(other(x.numpy())), right, rtol=1e-4)


def test_a_network_that_is_no_faster_stays(own_results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tc.MappingOptions(tile_sizes=(4, 16))
    net, x, _ = small()
    chosen = tuning.replace
    monkeypatch.setattr(
        tuning, "_tuned", lambda net, step, row, *_: chosen(row, options=found, speedup=2.0, told="tuned")
    )
    monkeypatch.setattr(tuning, "_in_turn", lambda nets, inputs: [1.0, 2.0][: len(nets)])
    assert net.tune(x.numpy(), budget=5.0).speedup == 1
    assert net.options.kernels == {}


def test_ablation_counts_panels() -> None:
    net, x, _ = small()
    assert net.panel_bytes
    rows = {
        row.without: row
        for row in tc.networks.ablate(net.source, [x.numpy()], rounds=1, passes=["pack_weights"], processes=False).rows
    }
    assert rows[""].bytes == net.weight_bytes + net.panel_bytes + net.places.bytes
    assert rows["pack_weights"].bytes == 2 * 64 * 64 * 4 + net.places.bytes


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.one, self.two = (
            nn.Conv2d(3, 8, 3, padding=1),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.Conv2d(8, 8, 1),
        )

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.enter(x))
        return x + self.two(torch.relu(self.one(x)))


def test_the_picture_names_kernels_and_results() -> None:
    pytest.importorskip("matplotlib")
    x = torch.rand(1, 3, 8, 8)
    net = tc.compile_network(Residual().eval(), x)
    plain, timed = net.picture(), net.picture(x)
    for step in net.steps:
        assert step.told.split(" ")[0] in plain.svg
    for life in net.lives:
        assert life.name in plain.svg
    assert "ms" in timed.svg and plain.svg != timed.svg
    with pytest.raises(tc.ShapeError):
        net.picture(x[:, 1:])


def test_commands(tmp_path: Path, own_results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    text, svg = tmp_path / "net.tc", tmp_path / "net.svg"
    text.write_text(TEXT)
    assert main(["network", "picture", str(text), "--output", str(svg)]) == 0
    assert "dense" in svg.read_text()
    assert main(["network", "tune", str(text), "--budget", "0.5"]) == 0
    assert "dense: no time" in capsys.readouterr().out
    assert main(["network", "picture", str(text), "--output", str(tmp_path / "net.txt")]) == 1
