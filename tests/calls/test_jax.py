"""The lesson's way to call an operation from JAX, which says at once where it is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax")

ROOT = Path(__file__).parents[2]
SECONDS = 200
"""A callback that waits for JAX, while JAX waits for the callback, would never end."""

SCRIPT = """
import importlib.util, sys
import jax, jax.numpy as jnp, numpy as np
import tcomp as tc

spec = importlib.util.spec_from_file_location("lesson", sys.argv[1])
lesson = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lesson)
operation = tc.define(lesson.PROGRAM).gated
gated = lesson.in_jax(operation)

for size in (7, 300):  # JAX hands large arrays to callbacks before they are there
    x, w, g = (jax.random.normal(jax.random.key(k), (size, size)) / size for k in range(3))
    values = gated(x, w, g)
    np.testing.assert_allclose(values, (x @ w) * jax.nn.sigmoid(x @ g), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(jax.jit(gated)(x, w, g), values)

    loss = lambda f: lambda *inputs: jnp.sum(jnp.sin(f(*inputs)))
    theirs = lambda x, w, g: (x @ w) * jax.nn.sigmoid(x @ g)
    found = jax.jit(jax.grad(loss(gated), argnums=(0, 1, 2)))(x, w, g)
    expected = jax.grad(loss(theirs), argnums=(0, 1, 2))(x, w, g)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6)
    only = jax.jit(jax.grad(loss(gated), argnums=1))(x, w, g)
    np.testing.assert_allclose(only, found[1], rtol=1e-6, atol=1e-7)

batch = jax.vmap(gated, in_axes=(0, None, None))(jnp.stack([x, 2 * x]), w, g)
np.testing.assert_allclose(batch[1], gated(2 * x, w, g), rtol=1e-4, atol=1e-6)

try:
    jax.jit(gated)(x, w[1:], g)
except tc.ShapeError as error:
    print(error)
"""


def test_the_lesson_under_jit_and_grad() -> None:
    path = os.pathsep.join(filter(None, (str(ROOT), str(ROOT / "examples"), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(ROOT / "examples" / "11_jax.py")],
        env={**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Mismatched sizes for dimension D" in done.stdout
