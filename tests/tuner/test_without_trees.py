"""Tuning where scikit-learn is not installed: genetic, which the result says, or an error that names the extra."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("sklearn", "scipy"):
            raise ModuleNotFoundError(name)
sys.modules["sklearn"] = None
sys.meta_path.insert(0, Hidden())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "sklearn" else found(name, package)
import tcomp as tc
from tcomp import cli
mm = tc.define("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }").mm
sizes = {"M": 8, "N": 8, "K": 8}
try:
    mm.tune(sizes=sizes, strategy="model", budget=1.0)
except tc.TargetError as error:
    print(error)
result = mm.tune(sizes=sizes, budget=2.0)
print(result)
cli.main(["doctor"])
"""


def test_tuning_is_genetic_and_says_so(tmp_path: Path) -> None:
    places = {"TCOMP_CACHE": str(tmp_path / "cache"), "TCOMP_TUNED": str(tmp_path / "tuned")}
    environment = os.environ | places
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False, env=environment, timeout=120
    )
    assert run.returncode == 0, run.stderr
    assert "the strategy model needs scikit-learn" in run.stdout and "pip install 'tcomp[tune]'" in run.stdout
    assert "genetic search" in run.stdout and "so no model guides the search" in run.stdout
    assert "not installed, so tuning is genetic" in run.stdout
