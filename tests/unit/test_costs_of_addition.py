"""What CONTRIBUTING says an addition costs: a copy of the sources with so many files changed does the new thing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_changed(folder: Path, changes: dict[str, tuple[str, str]], program: str) -> str:
    """What a program prints with tcomp as it is after one replacement in each of some files."""
    for top in ("tcomp", "grammar", "mapping"):
        shutil.copytree(ROOT / top, folder / top, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name, (before, after) in changes.items():
        text = (folder / name).read_text(encoding="utf-8")
        assert text.count(before) == 1
        (folder / name).write_text(text.replace(before, after), encoding="utf-8")
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, timeout=120)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_a_reduction_is_a_row(tmp_path: Path) -> None:
    row = 'Reduction("max", False, "maximum", lambda dtype: dtype.lowest),'
    program = """
import numpy as np, tcomp as tc
every = tc.define("def every(bool(N,M) A) -> (o) { o(i) &&=! A(i,j) }").every
A = np.random.default_rng(0).random((37, 50)) > 0.02
assert (every(A) == A.all(1)).all() and (every.reference(A) == A.all(1)).all() and not A.all(1).all()
print(str(every))
"""
    changes = {"tcomp/values/operators.py": (row, f'{row} Reduction("&&", False, "logical_and", lambda dtype: True),')}
    assert "o(i) &&=! A(i, j)" in run_changed(tmp_path, changes, program)


def test_a_built_in_function_is_a_row(tmp_path: Path) -> None:
    row = 'Intrinsic("lgamma", 1, _lgamma, partials=("digamma(a)",)),'
    program = """
import numpy as np, tcomp as tc
cubed = tc.define("def f(float(N) A) -> (B) { B(i) = cubed(A(i)) }").f
A = np.arange(5, dtype=np.float32)
assert (cubed(A) == A**3).all() and (cubed.reference(A) == A**3).all()
assert (cubed.gradient()(A, np.ones(5, np.float32)) == 3 * A**2).all()
print(cubed)
"""
    c = '_c("$T $name($T x) { return x * x * x; }")'
    own = f'Intrinsic("cubed", 1, lambda x: x**3, {c}, cuda_native=False, partials=("3.0 * a * a",)),'
    assert "cubed(A(i))" in run_changed(tmp_path, {"tcomp/values/intrinsics.py": (row, f"{row} {own}")}, program)


def test_a_mapping_option_is_a_field_and_who_reads_it(tmp_path: Path) -> None:
    before = "    fast_math: bool = declare("
    field = '    shout: bool = declare(Flag(), False, "write kernels in capital letters", targets=CPU_TARGETS)\n'
    program = """
import contextlib, io, tcomp as tc
from tcomp import cli
options = tc.MappingOptions.from_text("shout=true")
assert options.shout and tc.MappingOptions.from_json(options.to_json()) == options
assert "shout: " in tc.MappingOptions.__doc__
text = "def f(float(N) A) -> (B) { B(i) = A(i) }"
kernels = [tc.define(text).f.compile(sizes={"N": 4}, options=f"shout={value}") for value in ("true", "false")]
keys = {kernel.specialisation.key() for kernel in kernels}
assert len(keys) == 2
with contextlib.redirect_stdout(io.StringIO()) as out:
    assert cli.main(["options"]) == 0
print(out.getvalue())
"""
    changes = {"mapping/options/declared.py": (before, field + before)}
    assert "write kernels in capital letters" in run_changed(tmp_path, changes, program)


def test_a_library_operator_is_a_file(tmp_path: Path) -> None:
    for top in ("tcomp", "grammar", "mapping"):
        shutil.copytree(ROOT / top, tmp_path / top, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "tcomp/library/own.tc").write_text("def doubled(float(N) A) -> (B) { B(i) = 2 * A(i) }", "utf-8")
    program = "import numpy as np, tcomp as tc; print(tc.library.doubled(np.ones(3, np.float32)))"
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=120)
    assert run.stdout == "[2. 2. 2.]\n", run.stderr
