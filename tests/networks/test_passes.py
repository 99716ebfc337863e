"""Every pass may be left out, and leaves what is computed as it was."""

from __future__ import annotations

import gc
import json
import subprocess
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as f  # noqa: E402

import tcomp as tc  # noqa: E402
from tcomp.networks import NetworkOptions  # noqa: E402


class Passes(nn.Module):
    """Something for every pass: equal calls, a product of weights, a norm, followers, heads that are moved."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.mix = nn.Conv2d(8, 8, 1)
        self.scale, self.left, self.right = (nn.Parameter(torch.rand(8, 8)) for _ in range(3))

    def forward(self, x: Any) -> Any:
        y = self.mix(torch.relu(self.norm(self.enter(x)))).flatten(2).transpose(1, 2)
        y = y @ (self.left @ self.right) * torch.sigmoid(y.mean(2, keepdim=True)) + torch.sigmoid(
            y.mean(2, keepdim=True)
        )
        q, k = y.view(*y.shape[:2], 2, 4).transpose(1, 2), (y * 2).view(*y.shape[:2], 2, 4).transpose(1, 2)
        return f.scaled_dot_product_attention(q, k, q).transpose(1, 2).reshape(y.shape)[:, 1:]


@pytest.fixture(scope="module")
def module() -> Passes:
    torch.manual_seed(5)
    made = Passes()
    nn.init.uniform_(made.norm.running_var, 0.5, 2)
    return made.eval()


X = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).sin().view(2, 3, 4, 5)


def close(found: Any, expected: Any) -> bool:
    return bool(np.linalg.norm(np.asarray(found) - np.asarray(expected)) < 1e-5 * np.linalg.norm(np.asarray(expected)))


def test_every_stage_computes_the_same(module: Passes) -> None:
    net = tc.compile_network(module, X)
    with torch.no_grad():
        expected = module(X)
    assert list(net.stages) == [
        "source",
        "share_calls",
        "integer_layers",
        "fold_weights",
        "one_bit",
        "fold_norms",
        "rewrite",
        "point_convolutions",
        "choose_algorithms",
    ]
    for stage in net.stages.values():
        assert close(stage.reference(X.numpy()), expected)
    counts = [len(stage.calls) for stage in list(net.stages.values())[:-1]]
    assert counts == sorted(counts, reverse=True) and len(set(counts)) == 4
    assert "conv2d_point_bias" in [call.function for call in net.network.calls]


ELSEWHERE = {"split_batch", "choose_algorithms", "choose_layouts", "integer_layers", "one_bit", "rewrite", "skip_zeros"}
"""Passes that have tests of their own."""


@pytest.mark.parametrize("name", [*(name for name in NetworkOptions.passes() if name not in ELSEWHERE), "all"])
def test_a_pass_may_be_left_out(name: str, module: Passes) -> None:
    off = NetworkOptions.passes() if name == "all" else (name,)
    net = tc.compile_network(module, X, options=dict.fromkeys(off, False))
    with torch.no_grad():
        assert close(net(X), module(X))
    assert f"left out: {', '.join(off)}" in net.explain()
    whole = tc.compile_network(module, X)
    costs = {
        "views": len(net.steps) - len(whole.steps),
        "share_memory": net.places.bytes - whole.places.bytes,
        "pack_weights": whole.panel_bytes - net.panel_bytes,
        "one_call": ("in one call" in whole.explain()) - ("in one call" in net.explain()),
    }
    calls = sum(a != b for a, b in zip_longest(net.network.calls, whole.network.calls))
    assert costs.get(name, len(net.steps) - len(whole.steps) + calls) > 0


def test_heads_are_read_and_written_where_they_lie(module: Passes) -> None:
    net = tc.compile_network(module, X)
    # Of all that is moved, only the first map of pixels and the rows of the result, an array of its own, are copied.
    assert [step.group.view for step in net.steps if step.group.view] == [("permute", 0, 2, 1), ("take", 1)]


def test_panels_of_weights_are_packed_once_for_calls_that_share_both() -> None:
    same, other = nn.Linear(48, 48), nn.Linear(48, 48)
    module, x = nn.Sequential(same, nn.Tanh(), other, nn.Tanh(), same, nn.Tanh()).eval(), torch.randn(5, 48)
    net = tc.compile_network(module, x)
    packed = [step.panel_bytes for step in net.steps]
    assert len({step.number for step in net.steps if step.panel_bytes}) == 1 and min(packed[:2]) >= 48 * 48 * 4
    assert net.panel_bytes == packed[0] + packed[1]
    with torch.no_grad():
        assert close(net(x), module(x))
    apart = tc.compile_network(module, x, options={"one_call": False})
    assert torch.equal(apart(x), tc.compile_network(module, x, options={"pack_weights": False})(x))


def test_weights_of_which_panels_are_packed_are_not_kept() -> None:
    """Turned and folded ones are computed again for who asks, and are one array while someone has it."""
    conv, x = nn.Conv2d(32, 32, 3, bias=False), torch.randn(1, 32, 14, 14)
    module = nn.Sequential(conv, nn.BatchNorm2d(32), nn.ReLU()).eval()
    net = tc.compile_network(module, x)
    (kernel,) = [value for value in net.network.of_role("weight") if len(value.shape) == 4]
    assert net.panel_bytes and net.weight_bytes == sum(v.bytes for v in net.network.of_role("weight")) - kernel.bytes
    first = net.network.weights[kernel.name]
    assert first is net.network.weights[kernel.name] and not first.flags.writeable
    assert np.isclose(np.sort(first.ravel()), np.sort(conv.weight.detach().numpy().ravel() / np.sqrt(1 + 1e-5))).all()
    assert close(torch.from_numpy(net.network.reference(x.numpy())), net(x))
    kept = tc.compile_network(module, x, options={"one_call": False})
    assert kept.weight_bytes == sum(v.bytes for v in net.network.of_role("weight")) and torch.equal(kept(x), net(x))


def test_options_of_single_kernels(module: Passes) -> None:
    name = tc.compile_network(module, X).steps[0].group.results[0]
    net = tc.compile_network(module, X, options={name: tc.MappingOptions(tile_sizes=(1, 1, 4, 4)), "jobs": 1})
    assert net.steps[0].kernel.specialisation.options.tile_sizes == (1, 1, 4, 4)
    assert net.steps[1].kernel.specialisation.options.tile_sizes != (1, 1, 4, 4)
    with torch.no_grad():
        assert close(net(X), module(X))
    with pytest.raises(tc.NetworkError, match="no kernel of the network makes nothing"):
        tc.compile_network(module, X, options={"nothing": tc.MappingOptions()})
    with pytest.raises(tc.NetworkError, match=r"viewz is no pass\n.*did you mean `views`"):
        tc.compile_network(module, X, options={"viewz": False})


def test_profiles_in_three_forms(module: Passes) -> None:
    net = tc.compile_network(module, X)
    profile = net.profile(X, repeats=2)
    plain = json.loads(profile.to_json())
    assert len(plain["rows"]) == len(net.steps) and plain["seconds"] == pytest.approx(profile.seconds)
    events = json.loads(profile.to_trace())["traceEvents"]
    assert [e["name"] for e in events] == [row.makes for row in profile.rows]
    assert events[1]["ts"] == pytest.approx(events[0]["dur"])


def test_a_network_that_was_saved_runs_as_before(
    module: Passes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = tc.compile_network(module, X, options={"views": False})
    path = tmp_path / "net.tcn"
    net.save(path)
    monkeypatch.setenv("TCOMP_CACHE", str(tmp_path / "other"))
    monkeypatch.setattr(subprocess, "Popen", None)  # no compiler runs
    loaded = tc.load_network(path)
    assert not loaded.options.views and str(loaded.network) == str(net.network)
    assert torch.equal(loaded(X), net(X))
    loaded.save(path)  # in place of the file from which its weights are read
    assert torch.equal(tc.load_network(path)(X), net(X))


def test_files_that_hold_no_network(tmp_path: Path) -> None:
    path = tmp_path / "net.tcn"
    with pytest.raises(tc.NetworkError, match="cannot be read as a compiled network"):
        tc.load_network(path)
    path.write_bytes(b"nothing")
    with pytest.raises(tc.NetworkError, match="cannot be read as a compiled network"):
        tc.load_network(path)
    np.savez(tmp_path / "other.npz", network=np.frombuffer(b'{"format": 99}', np.uint8))
    with pytest.raises(tc.NetworkError, match="format 99"):
        tc.load_network(tmp_path / "other.npz")
    net = tc.compile_network(nn.ReLU().eval(), torch.ones(3))
    with pytest.raises(tc.NetworkError, match="cannot be written"):
        net.save(tmp_path / "missing" / "net.tcn")


def test_ablation_measures_what_passes_change() -> None:
    network = tc.networks.from_torch(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), torch.ones(2, 4))
    rows = {row.without: row for row in tc.networks.ablate(network, [torch.ones(2, 4)], rounds=2, processes=False).rows}
    assert list(rows) == ["", *NetworkOptions.passes(), "all"]
    assert rows["fold_norms"].same and rows["views"].same
    assert rows["join_followers"].steps == 2 == rows[""].steps + 1
    assert all(row.seconds > 0 and row.compiling is row.peak is None for row in rows.values())
    with pytest.raises(tc.NetworkError, match="nothing is no pass"):
        tc.networks.ablate(network, [torch.ones(2, 4)], passes=["nothing"])


def test_an_index_outside_its_table_is_an_error_of_the_call() -> None:
    net = tc.compile_network(nn.Sequential(nn.Embedding(5, 3), nn.ReLU()).eval(), torch.tensor([1, 2]))
    assert "in one call" in net.explain()
    assert net(torch.tensor([4, 0])).shape == (2, 3)
    for wrong in (5, -1):
        with pytest.raises(tc.ShapeError, match=rf"{wrong}"):
            net(torch.tensor([1, wrong]))


class Commonest(nn.Module):
    """What has no rule, with several results, between what has."""

    def forward(self, x: Any) -> Any:
        values, places = torch.mode(torch.relu(x) - 1, 1)
        return values * 2 + values.mean(), places, torch.mode(x, 0).values


def test_operators_without_a_rule_may_run_outside(tmp_path: Path) -> None:
    x = torch.tensor([[3.0, -1, 2], [0.5, 7, -2]])
    with pytest.raises(tc.NetworkError, match=r"fallback=\{'aten.mode.default'\}"):
        tc.compile_network(Commonest().eval(), x)
    net = tc.compile_network(Commonest().eval(), x, fallback={"aten.mode.default"})
    for found in (net(x), net.source.reference(x.numpy())):
        for mine, right in zip(found, Commonest()(x), strict=True):
            assert close(mine, right)
    assert "outside" in net.explain() and "aten_mode_default_" in str(net.network)
    assert len(net.profile(x, repeats=1).rows) == len(net.steps)
    with pytest.raises(tc.NetworkError, match="cannot be kept in a file"):
        net.save(tmp_path / "net.tcn")


def test_panels_packed_side_by_side_are_those_packed_in_turn() -> None:
    torch.manual_seed(0)
    module, x = nn.Sequential(*(nn.Linear(k, k + 16) for k in (48, 64, 80, 96))).eval(), torch.randn(20, 48)
    network = tc.networks.from_torch(module, x)
    nets = [tc.compile_network(network, options={"jobs": jobs}) for jobs in (4, 1)]
    assert len({step.number for step in nets[0].steps if step.panel_bytes}) == 4
    for one, other in zip(*(net._panels.values() for net in nets), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(nets[0](x), module(x).detach(), rtol=1e-4, atol=1e-4)


def test_no_garbage_is_sought_while_a_network_is_compiled() -> None:
    network, sought = tc.networks.from_torch(nn.Linear(8, 8).eval(), torch.randn(3, 8)), list[str]()

    def seek(phase: str, _: Any) -> None:
        sought.append(phase)

    was, threshold = gc.isenabled(), gc.get_threshold()
    try:
        gc.enable()
        gc.collect()
        gc.callbacks.append(seek)
        gc.set_threshold(50)
        with pytest.raises(tc.NetworkError):
            tc.networks.CompiledNetwork(network, {"kernels": {"nothing": tc.MappingOptions()}})
        assert gc.isenabled() and len(sought) < 20
        gc.disable()
        tc.networks.CompiledNetwork(network)
        assert not gc.isenabled()
    finally:
        gc.callbacks.remove(seek)
        gc.set_threshold(*threshold)
        if was:
            gc.enable()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nosuch": 1}, "there is no option nosuch"),
        ({"acuracy": 1e-6}, "there is no option acuracy\n.*did you mean `accuracy`"),
        ({"acuracy": "x"}, "there is no option acuracy"),
        ({"accuracy": "x"}, "accuracy is a number that is not negative, not 'x'"),
        ({"accuracy": float("nan")}, "accuracy is a number"),
        ({"jobs": -1}, "jobs is a whole number"),
        ({"views": "no"}, "views is True or False, not 'no'"),
        ({"exact": 1}, "exact is True or False"),
        ({"algorithms": "F(2,3)"}, "algorithms is a mapping"),
        ({"algorithms": {"conv2d": 3}}, "algorithms is a mapping"),
        ({"leave_rules": 3}, "leave_rules is names of rules"),
        ({"leave_rules": [3]}, "leave_rules is names of rules"),
        ({"kernels": 3, "linear": "unroll=4"}, "kernels is a mapping"),
    ],
)
def test_options_that_are_none(options: dict[str, Any], message: str) -> None:
    with pytest.raises(tc.NetworkError, match=message):
        NetworkOptions.of(options)


def test_options_of_kernels_in_every_form() -> None:
    given = {"a": "unroll=4", "b": {"unroll": 4}, "c": tc.MappingOptions(unroll=4), "d": "naive,unroll=4", "e": ""}
    found = NetworkOptions.of({**given, "kernels": {"f": "unroll=4"}, "leave_rules": iter(["silu"]), "accuracy": 0})
    assert {name: one.unroll for name, one in found.kernels.items()} == {**dict.fromkeys("abcdf", 4), "e": None}
    assert found.leave_rules == {"silu"} and found.accuracy == 0
    assert NetworkOptions(leave_rules="silu", kernels=given).leave_rules == {"silu"}
