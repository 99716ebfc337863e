"""What is installed, what imports what, and what stays unimported until it is needed."""

from __future__ import annotations

import configparser
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tcomp

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def setup_cfg() -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def test_every_package_is_installed(setup_cfg: configparser.RawConfigParser) -> None:
    listed = set(setup_cfg["options"]["packages"].split())
    found = {path.parent.relative_to(ROOT).parts for path in ROOT.glob("*/**/__init__.py")}
    own = {parts for parts in found if parts[0] in ("tcomp", "grammar", "mapping")}
    assert listed == {".".join(parts if parts[0] == "tcomp" else ("tcomp", *parts)) for parts in own}


@pytest.mark.parametrize("name", ["grammar", "mapping"])
def test_a_package_of_the_top_level_has_one_name(name: str, setup_cfg: configparser.RawConfigParser) -> None:
    package = importlib.import_module(f"tcomp.{name}")
    assert package.__file__ is not None
    assert Path(package.__file__).resolve() == ROOT / name / "__init__.py"
    assert f"tcomp.{name} = {name}" in setup_cfg["options"]["package_dir"]
    assert name not in sys.modules


def test_import_is_light() -> None:
    """No large packages, nothing of the search and the reports of the tuner, nothing that only GPUs need."""
    program = "import tcomp, sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    modules = set(run.stdout.split())
    packages = {name.partition(".")[0] for name in modules}
    assert not {"torch", "cupy", "scipy", "rich", "sklearn", "ml_dtypes", "pandas", "distributed"} & packages
    assert (
        not {
            f"tcomp.{name}"
            for name in (
                "backends.gpu",
                "backends.cuda.runtime",
                "backends.cuda.tools",
                "backends.simulator",
                "schedules",
                "export",
            )
        }
        & modules
    )
    assert (
        not {f"tcomp.tuner.{name}" for name in ("tuning", "search", "strategies", "report.report", "measuring")}
        & modules
    )


def test_what_is_imported_late_is_there() -> None:
    assert all(hasattr(tcomp, name) for name in tcomp.__all__)
    assert tcomp.TuningResult.__module__ == "tcomp.tuner.report.result"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tcomp.nothing  # noqa: B018


def test_layers_hold() -> None:
    pytest.importorskip("importlinter")
    run = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as main; main()", "--no-cache"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_versions_of_python_are_those_that_are_named(setup_cfg: configparser.RawConfigParser) -> None:
    named = re.findall(r"Python :: (3\.\d+)", setup_cfg["metadata"]["classifiers"])
    least = setup_cfg["options"]["python_requires"].removeprefix(">=")
    assert named[0] == least and named == sorted(named) and f"{sys.version_info[0]}.{sys.version_info[1]}" in named
