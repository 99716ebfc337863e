"""``tcomp network``."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tcomp as tc  # noqa: E402
from tcomp.cli import main  # noqa: E402
from tcomp.networks.studies import ablation  # noqa: E402
from tests.networks.blocks import made  # noqa: E402


@pytest.fixture
def model(tmp_path: Path) -> str:
    module, example = made("MLP-Mixer block")
    path = tmp_path / "mixer.pt2"
    torch.export.save(torch.export.export(module, example), path)
    return str(path)


def test_show_prints_text_that_is_a_program(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["network", "show", model]) == 0
    assert "network" in tc.define(capsys.readouterr().out)


def test_only_the_remark_of_torch_on_its_own_code_is_not_passed_on(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load = torch.export.load

    def remarking(path: Path) -> object:
        warnings.warn("`isinstance(treespec, LeafSpec)` is deprecated, use another", FutureWarning, stacklevel=2)
        warnings.warn("something else is deprecated", FutureWarning, stacklevel=2)
        return load(path)

    monkeypatch.setattr(torch.export, "load", remarking)
    assert main(["network", "show", model]) == 0
    assert capsys.readouterr().err == "warning: something else is deprecated\n"


def test_explain_tells_every_kernel(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["network", "explain", model]) == 0
    assert "linear_3d_bias + gelu_3d" in capsys.readouterr().out


def test_ops_are_those_with_a_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["network", "ops"]) == 0
    listed = capsys.readouterr().out.split()
    assert listed == list(tc.networks.operators())
    assert "aten.conv2d.default" in listed


def test_what_is_no_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.pt2").write_bytes(b"nothing")
    for path in (tmp_path / "a.pt2", tmp_path / "missing.pt2", tmp_path / "missing.onnx"):
        assert main(["network", "show", str(path)]) == 1
        assert "cannot be read" in capsys.readouterr().err


def test_models_of_onnx_with_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx = pytest.importorskip("onnx")
    from tests.networks.onnx_cases import model_of

    model = model_of([onnx.helper.make_node("Relu", ["x"], ["y"])], {"x": ("batch", 3)}, ["y"])
    path = str(tmp_path / "m.onnx")
    onnx.save(model, path)
    for size in ("batch=2", "x=2,3"):
        assert main(["network", "show", path, "--size", size]) == 0
        assert "float(2,3) x" in capsys.readouterr().out
    assert main(["network", "show", path]) == 1
    assert "sizes={'batch': 1} gives it, on the command line --size batch=1" in capsys.readouterr().err
    assert main(["network", "explain", path, "--size", "batch=two"]) == 1
    assert "is not NAME=N" in capsys.readouterr().err


def test_run_and_profile(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "y.npz"
    assert main(["network", "run", model, "--output", str(out)]) == 0
    assert "float32 2x10, " in capsys.readouterr().out
    with np.load(out) as arrays:
        assert next(iter(arrays.values())).shape == (2, 10)
    trace = tmp_path / "trace.json"
    assert main(["network", "profile", model, "--repeat", "2", "--as", "trace", "--output", str(trace)]) == 0
    events = json.loads(trace.read_text())["traceEvents"]
    assert all(event["dur"] > 0 for event in events) and events[0]["args"]["calls"].startswith("layer_norm")
    assert main(["network", "profile", model, "--repeat", "2", "--without", "join_followers"]) == 0
    assert "gelu_3d" in capsys.readouterr().out
    assert main(["network", "explain", model, "--without", "nothing"]) == 1
    assert "nothing is no pass" in capsys.readouterr().err


def test_saved_networks_and_ablation(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = str(tmp_path / "mixer.tcn")
    assert main(["network", "save", model, "--output", saved]) == 0
    assert main(["network", "explain", saved]) == 0
    assert "linear_3d_bias + gelu_3d" in capsys.readouterr().out
    assert main(["network", "show", saved]) == 0
    assert "network" in tc.define(capsys.readouterr().out)
    for late in (["--size", "N=7"], ["--weights", "w.npz"], ["--without", "fold_norms"]):
        assert main(["network", "run", saved, *late]) == 1
        assert f"{late[0]} is for models that are compiled now" in capsys.readouterr().err
    assert main(["network", "ablate", saved]) == 1
    assert "ablate the model that it was made of" in capsys.readouterr().err
    variants = ["--without", "fold_norms", "--without", "join_followers"]
    assert main(["network", "ablate", model, "--repeat", "2", *variants, "--as", "json", "--output", saved]) == 0
    whole, same, apart = json.loads(Path(saved).read_text())["rows"]
    assert same["without"] == "fold_norms" and same["same"] and same["peak"] == whole["peak"]
    assert apart["steps"] > whole["steps"] and apart["compiling"] > 0.02 < whole["compiling"]
    assert whole["peak"] > whole["bytes"]
    table = str(tc.networks.Ablation(tuple(ablation.Row(**row) for row in (whole, same, apart))))
    assert (
        "fold_norms         changes nothing here" in table and f"{whole['compiling']:9.2f} {whole['peak']:13,}" in table
    )


def test_arrays_and_sizes_that_fit_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "def net(float(2,4) x, float(3,4) w) -> (p) { p(n,m) +=! x(n,k) * w(m,k) }"
    Path("net.tc").write_text(text)
    np.save("one.npy", np.ones((2, 4), np.float32))
    np.savez("x.npz", x=np.ones((2, 4), np.float32))
    Path("broken.npz").write_bytes(b"nothing")
    for given, message in (
        (["--input", "one.npy"], "one.npy holds one array without a name; save arrays by their names"),
        (["--weights", "one.npy"], "one.npy holds one array without a name"),
        (["--weights", "none.npz"], "cannot read none.npz: No such file or directory"),
        (["--input", "broken.npz"], "cannot read broken.npz: NumPy wrote no plain arrays into it"),
        (["--input", "x.npz"], "x.npz has no array for the input w; it has x"),
        (["--size", "batch=7"], "net: no input has a size batch"),
    ):
        assert main(["network", "run", "net.tc", *given]) == 1
        assert message in capsys.readouterr().err
    assert main(["network", "run", "net.tc", "--output", "y.txt"]) == 0
    assert np.load("y.txt")["p"].shape == (2, 3)


def test_what_models_have_is_not_given(model: str) -> None:
    with pytest.raises(tc.NetworkError, match="weights are for a network of program text"):
        tc.networks.read(model, weights={"w": np.ones(1)})
    with pytest.raises(tc.NetworkError, match="sizes are for program text"):
        tc.networks.read(model, sizes={"N": 3})
