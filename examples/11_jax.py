"""Lesson 11: a def in JAX, under ``jit`` and ``grad``, by a callback to the host.

JAX asks for the types of results before it runs anything, and for the backward pass as a function of its own; an
operation has both.  The kernels run on the CPU.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Any

if importlib.util.find_spec("jax") is None:
    print("lesson 11 needs JAX: pip install jax")
    sys.exit(0)

import jax
import jax.numpy as jnp
import numpy as np
from pictures import picture

import tcomp as tc

PROGRAM = """
def gated(float(N,D) X, float(D,F) W, float(D,F) G) -> (Y) {
    value(n,f) +=! X(n,d) * W(d,f)
    gate(n,f) +=! X(n,d) * G(d,f)
    Y(n,f) = value(n,f) * sigmoid(gate(n,f))
}
"""


def in_jax(operation: tc.Operation) -> Callable[..., Any]:
    """A function of JAX arrays that runs an operation with one output, whose inputs are all floats."""
    gradient = operation.gradient()

    def on_host(run: Callable[..., Any], results: Any, *arrays: Any) -> Any:
        return jax.pure_callback(lambda *a: run(*map(np.asarray, a)), results, *arrays, vmap_method="sequential")

    @jax.custom_vjp
    def call(*arrays: Any) -> Any:
        ((shape, dtype),) = operation.result_types(*arrays)
        return on_host(operation, jax.ShapeDtypeStruct(shape, dtype), *arrays)

    def backward(arrays: Any, cotangent: Any) -> Any:
        results = tuple(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays)
        return on_host(gradient, results, *arrays, cotangent)

    call.defvjp(lambda *arrays: (call(*arrays), arrays), backward)
    return call


def main() -> None:
    gated = in_jax(tc.define(PROGRAM).gated)
    rng = np.random.default_rng(0)
    x, w, g = (jnp.asarray(rng.standard_normal(s), jnp.float32) for s in ((32, 16), (16, 24), (16, 24)))

    def ours(x: Any, w: Any, g: Any) -> Any:
        return jnp.sum(gated(x, w, g) ** 2)

    def theirs(x: Any, w: Any, g: Any) -> Any:
        return jnp.sum(((x @ w) * jax.nn.sigmoid(x @ g)) ** 2)

    found = jax.jit(jax.value_and_grad(ours, argnums=(0, 1, 2)))(x, w, g)
    expected = jax.value_and_grad(theirs, argnums=(0, 1, 2))(x, w, g)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3), found, expected)
    print("the value and three gradients under jit equal those of jax.numpy")

    batch = jax.vmap(gated, in_axes=(0, None, None))(jnp.stack([x, 2 * x]), w, g)
    np.testing.assert_allclose(batch[1], gated(2 * x, w, g), rtol=1e-4)
    print("vmap calls it for each of a batch")

    picture("gated_tree", tc.define(PROGRAM).gated.compile(*map(np.asarray, (x, w, g))).draw, "tree")


if __name__ == "__main__":
    main()
