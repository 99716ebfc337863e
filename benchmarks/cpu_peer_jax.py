"""jax.jit of the shared formulas."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.cpu_case import Array, Case, Convolution, Einsum
from benchmarks.cpu_formulas import NAMED
from benchmarks.cpu_peer import Implementation, returning


def _convolve(how: Convolution, image: Any, kernel: Any, bias: Any = None) -> Any:
    """``lax.conv_general_dilated``, with groups as neighbouring channels."""
    shape = image.shape
    groups = shape[1] if how.depthwise or how.group_axis else 1
    if how.depthwise:
        kernel = kernel[:, None]
    if how.group_axis:
        image = image.reshape(shape[0], shape[1] * shape[2], *shape[3:])
        kernel = kernel.reshape(-1, *kernel.shape[2:])
    spatial = image.ndim - 2
    result = jax.lax.conv_general_dilated(
        image, kernel, (how.stride,) * spatial, "VALID", None, (how.dilation,) * spatial, feature_group_count=groups
    )
    if bias is not None:
        result = result + bias.reshape(-1, *(1,) * spatial)
    return result.reshape(shape[0], groups, -1, *result.shape[2:]) if how.group_axis else result


def _in_jax(case: Case) -> Callable[..., Any]:
    match case.formula:
        case Einsum(subscripts):
            sums = jnp.int32 if case.output_dtype == "int32" else jnp.float32
            return functools.partial(jnp.einsum, subscripts, preferred_element_type=sums)
        case Convolution() as how:
            return functools.partial(_convolve, how)
        case str(name):
            return functools.partial(NAMED[name], jnp)
    raise AssertionError(case.formula)


class Jax:
    """Results are new arrays each time; a call waits for them."""

    version = jax.__version__

    def __init__(self) -> None:
        jax.jit(lambda x: x + 1)(jnp.zeros(4)).block_until_ready()

    def build(self, case: Case, inputs: list[Array]) -> Implementation | None:
        """Compiled by the first call."""
        function = jax.jit(_in_jax(case))
        arrays = [jnp.asarray(a) for a in inputs]
        return returning(lambda: function(*arrays).block_until_ready(), np.asarray)


def peer() -> Jax:
    """This process's jax."""
    return Jax()
