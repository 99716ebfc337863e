"""Every lesson in examples/ runs, checks its own results, and prints what it promises."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tcomp

pytestmark = pytest.mark.sweep(5)

ROOT = Path(__file__).parents[2]
LESSONS = sorted((ROOT / "examples").glob("[0-9]*.py"))
SECONDS = 120

PROMISES: dict[str, tuple[str, ...]] = {
    "01_matmul.py": (
        r"picture: out/matmul_footprint\.svg|no picture",
        r"largest difference from NumPy in float64: \d\.\de-0[5-9]",
    ),
    "02_blur_photo.py": (
        r"picture: out/edges_memory\.svg|no picture",
        r"china\.jpg \(427, 640, 3\): blur equals SciPy's in all 819,840 values",
        r"flower\.jpg \(427, 640, 3\): blur equals SciPy's in all 819,840 values",
        r"grey_\d+: \(\d+, 640\) float32 in tile memory",
    ),
    "03_digits_network.py": (
        r"picture: out/digits_loops\.svg|no picture",
        r"predictions equal scikit-learn's on all 1,797 images",
        r"accuracy: 9\d\.\d% of the images seen in training, 9\d\.\d% of the others",
        r"nest 0: S0i S0 ",
    ),
    "04_attention.py": (
        r"picture: out/attention_memory\.svg|no picture",
        r"one loop nest of \d clusters",
        r"score_\w+: .* bytes per thread, in tile memory",
    ),
    "05_indirect_and_padding.py": (
        r"picture: out/convolve_footprint\.svg|no picture",
        r"mistakes\.tc:3:23: error: undefined variable b",
        r"help: did you mean `\+=!`\?",
        r"an index outside the table: ShapeError",
    ),
    "06_inspect.py": (
        r"picture: out/softmax_tree\.svg|no picture",
        r"stage schedule: \d+ lines",
        r"dumped repro\.py",
        r"nothing fused: 4 loop nests, [\d,]+ bytes",
    ),
    "07_gpu_on_the_simulator.py": (
        r"picture: out/mm_threads\.svg|no picture",
        r'extern "C" __global__ void',
        r"sm_90 \(H100, 132 multiprocessors\)|no table of resources: .*NVRTC",
        r"naive: tiles of 32 x 32, 8,388,608 bytes read",
        r"the kernel reads \d+ times fewer bytes",
    ),
    "08_tune.py": (
        r"picture: out/tuning\.svg|no picture",
        r"depthwise\(C=64, H=58, W=58, KH=3, KW=3\) for cpu on ",
        r"best: .* a call; (nothing faster than|[\d.]+ times as fast as) the default",
        r"outcomes: .*\b\d+ measured",
        r"us, \w+: MappingOptions\(",
        r"a call takes \d+ us, \d+ us with the default options",
        r"wrote out/tuning\.html, \d+,\d+ bytes",
    ),
    "14_schedules.py": (
        r"ms  breadth first; B_1 \[770, 1024\] in global",
        r"ms  tiled, threads and vectors; B_1 \[34, 256\] in tile",
        r"ms  sliding window; B_1 \[3, 1024\] in tile",
        r"picture: out/blur_sliding_window\.svg|no pictures",
        r"One iteration too late: .* B at i=1 must run before C at i=0, and would not",
    ),
    "15_loop_orders.py": (
        r"picture: out/mm_kmn\.svg|no picture",
        r"mkn +\d,\d{3} .* ms",
        r"fused, tiled and sunk: [\d.]+ ms",
        r"mapped to a GPU: mm_0, grid",
    ),
    "11_jax.py": (
        r"picture: out/gated_tree\.svg|no picture|needs JAX",
        r"under jit equal those|needs JAX",
    ),
    "13_recurrences.py": (
        r"picture: out/life_dates\.svg|no picture",
        r"from polyhedron to polygon: 4 edits",
        r"piece 1, for each t",
        r"such as S\(5\) at t=1",
    ),
    "16_networks.py": (
        r"picture: out/small_kernels\.svg|no picture|needs the package onnx",
        r"conv2d_padded\(image, |needs the package onnx",
        r"after fold_norms: 6 calls|needs the package onnx",
        r"results are the same: True|needs the package onnx",
    ),
    "17_sparse.py": (
        r"2000 nodes, 12000 links",
        r"picture: out/sparse_rows\.svg|no picture",
        r"d_V\(e\) \+=! i_of_e\(e\) < 0 \? 0\.0 : d_Y",
        r"ends at row\(i\+1\), which is 12007 at i = 2",
    ),
    "18_digits.py": (
        r"picture: out/digits_kernels\.svg|no picture|needs PyTorch",
        r"PyTorch tells 9\d of 97 digits|needs PyTorch",
        r"with all \(\d kernels\) and with none \(1\d\), all are told the same|needs PyTorch",
        r"int8: [01] digits are told otherwise|needs PyTorch",
    ),
    "12_calls.py": (
        r"picture: out/network_memory\.svg|no picture",
        r"softmax_largest",
        r"Mismatched sizes for dimension F: 8 by dimension 0 of K",
    ),
    "10_transformer.py": (
        r"picture: out/attend_memory\.svg|no picture|needs PyTorch",
        r"109,248 parameters, 103 letters|needs PyTorch",
        r"ms a step|needs PyTorch",
    ),
    "09_training.py": (
        r"picture: out/loss_memory\.svg|no picture",
        r"loss 2\.\d+ .* 0\.\d+",
        r"accuracy on digits that it has not seen: 0\.[89]\d*",
        r"d_V\(g, f, p, q\) \+=!",
    ),
}
"""What the output of each lesson must match."""

SIMULATED = "07_gpu_on_the_simulator.py"
"""The lesson that needs what the simulator needs."""

PACKAGES = {"PIL": "pillow", "scipy": "scipy", "sklearn": "scikit-learn"}


def run(lesson: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    """A lesson as a user runs it, in an empty directory and with an empty cache."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("TCOMP_")}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, str(lesson)],
        cwd=directory,
        env={**variables, "PYTHONPATH": path, "TCOMP_CACHE": str(directory / "cache")},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def packages(lesson: Path) -> set[str]:
    """The optional packages that a lesson imports at its top."""
    tree = ast.parse(lesson.read_text(encoding="utf-8"))
    imported = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in tree.body if isinstance(node, ast.ImportFrom)}
    return {name.partition(".")[0] for name in imported} & set(PACKAGES)


def test_lessons_are_numbered_and_say_what_they_teach() -> None:
    assert [lesson.name for lesson in LESSONS] == sorted(PROMISES)
    for number, lesson in enumerate(LESSONS, 1):
        assert lesson.name.startswith(f"{number:02}_")
        docstring = ast.get_docstring(ast.parse(lesson.read_text(encoding="utf-8"))) or ""
        assert docstring.startswith(f"Lesson {number}: "), lesson.name


def test_every_lesson_promises_a_picture() -> None:
    for name, promises in PROMISES.items():
        assert any(promise.startswith("picture: out/") for promise in promises), name


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.stem)
def test_lesson(lesson: Path, tmp_path: Path) -> None:
    for package in packages(lesson):
        pytest.importorskip(package, reason=f"pip install {PACKAGES[package]}")
    simulator = tcomp.targets()["simulator"]
    if lesson.name == SIMULATED and not simulator:
        pytest.skip(simulator.detail)
    done = run(lesson, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for promise in PROMISES[lesson.name]:
        assert re.search(promise, done.stdout), f"{promise!r} is not in\n{done.stdout}"
    if lesson.name.startswith("02"):
        check_photographs(tmp_path / "out")


def check_photographs(directory: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    names = [f"{photo}_{what}.png" for photo in ("china", "flower") for what in ("blur", "edges")]
    assert sorted(path.name for path in directory.glob("*.png")) == names
    for name in names:
        with image.open(directory / name) as picture:
            assert picture.size == (640, 427)
            assert picture.mode == ("RGB" if "blur" in name else "L")
            extrema = picture.convert("L").getextrema()
            assert extrema[1] - extrema[0] > 100, f"{name} is almost one colour"
