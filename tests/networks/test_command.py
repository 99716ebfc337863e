"""``tcomp network``."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import tcomp as tc  # noqa: E402
from tcomp.cli import main  # noqa: E402
from tests.networks.blocks import made  # noqa: E402


@pytest.fixture
def model(tmp_path: Path) -> str:
    module, example = made("MLP-Mixer block")
    path = tmp_path / "mixer.pt2"
    torch.export.save(torch.export.export(module, example), path)
    return str(path)


def test_import_prints_text_that_is_a_program(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["network", "import", model]) == 0
    assert "network" in tc.define(capsys.readouterr().out)


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
        assert main(["network", "import", str(path)]) == 1
        assert "cannot be read" in capsys.readouterr().err


def test_models_of_onnx_with_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx = pytest.importorskip("onnx")
    from tests.networks.onnx_cases import model_of

    model = model_of([onnx.helper.make_node("Relu", ["x"], ["y"])], {"x": ("batch", 3)}, ["y"])
    path = str(tmp_path / "m.onnx")
    onnx.save(model, path)
    for size in ("batch=2", "x=2,3"):
        assert main(["network", "import", path, "--size", size]) == 0
        assert "float(2,3) x" in capsys.readouterr().out
    assert main(["network", "explain", path, "--size", "batch=two"]) == 1
    assert "is not NAME=N" in capsys.readouterr().err
