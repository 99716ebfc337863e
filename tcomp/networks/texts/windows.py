"""Windows over images of one to three axes: where they lie, and the defs of convolutions and pools over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tcomp.networks.network import Definition
from tcomp.networks.texts.general import definition, lowest, tensor, typed

AXES = {1: "w", 2: "hw", 3: "dhw"}
"""The axes of an image, by their number."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Extents, steps and pads along each axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]

    @property
    def strided(self) -> bool:
        return any(k != 1 for k in self.strides)

    @property
    def dilated(self) -> bool:
        return any(k != 1 for k in self.dilations)

    @property
    def padded(self) -> bool:
        return any((*self.low, *self.high))

    def numbers(self, letters: str) -> dict[str, int]:
        """``const`` parameters: of kernel, stride, dilation and low pads, a letter and an axis each."""
        which = {"K": self.kernel, "S": self.strides, "D": self.dilations, "P": self.low}
        axes = AXES[len(self.kernel)].upper()
        return {f"{c}{axis}": k for c in letters for axis, k in zip(axes, which[c], strict=True)}

    def extents(self, image: Sequence[int]) -> dict[str, int]:
        """How many windows there are along each axis, as ``const`` parameters."""
        each = zip(image, self.kernel, self.strides, self.dilations, self.low, self.high, strict=True)
        counts = [(e + p + q - d * (k - 1) - 1) // s + 1 for e, k, s, d, p, q in each]
        return {f"O{axis.upper()}": count for axis, count in zip(AXES[len(image)], counts, strict=True)}

    def counts(self, image: Sequence[int], after: Sequence[int], padding: bool) -> list[np.ndarray[Any, Any]]:
        """How many elements of the image, or of it and its padding, each window has along each axis."""
        found = []
        for k, (extent, windows) in enumerate(zip(image, after, strict=True)):
            first = np.arange(windows)[:, None] * self.strides[k] - self.low[k]
            at = first + np.arange(self.kernel[k]) * self.dilations[k]
            low, high = (-self.low[k], extent + self.high[k]) if padding else (0, extent)
            found.append(((at >= low) & (at < high)).sum(1))
        return found


def _constants(letters: str, axes: int) -> list[str]:
    return [f"const int {c}{axis.upper()}" for c in letters for axis in AXES[axes]]


def _ranges(prefix: str, letters: Iterable[str]) -> str:
    return ", ".join(f"{c} in 0:{prefix}{c.upper()}" for c in letters)


def convolution(axes: int, groups: str, bias: bool) -> Definition:
    """A convolution with pads that may differ; ``groups`` is one, depthwise or grouped."""
    i = AXES[axes]
    kernel = ["kd", "kh", "kw"][3 - axes :]
    name = "_".join([f"conv{axes}d_padded_apart", *([groups] if groups != "one" else []), *(["bias"] if bias else [])])
    image = {"one": "nc", "depthwise": "nf", "grouped": ["n", "G*C"]}[groups]
    second = {"one": "fc", "depthwise": "f1", "grouped": "fc"}[groups]
    channels = {"one": ("c", "f,c"), "depthwise": ("f", "f,0"), "grouped": ("f/(F/G)*C+c", "f,c")}[groups]
    parameters = [f"{tensor([*image, *i])} I", f"{tensor([*second, *kernel])} K", *(["float(F) b"] if bias else [])]
    parameters += ["const int G"] if groups == "grouped" else []
    parameters += _constants("SDPO", axes)
    at = ",".join(f"S{c.upper()}*{c}+D{c.upper()}*k{c}-P{c.upper()}" for c in i)
    left = f"O(n,f,{','.join(i)})"
    lines = [
        f"{left} +=! constant_exterior(I, 0)(n,{channels[0]},{at}) * K({channels[1]},{','.join(kernel)})",
        f"  where n in 0:N, f in 0:F, {_ranges('O', i)}",
    ]
    lines += [f"{left}  =  {left} + b(f)"] if bias else []
    biased = None if bias else convolution(axes, groups, True)
    return replace(definition(name, parameters, "O", lines), biased=biased)


def transposed(axes: int, bias: bool) -> Definition:
    """Every input spread over the output: a transposed convolution in groups."""
    i = AXES[axes]
    kernel = ["kd", "kh", "kw"][3 - axes :]
    parameters = [f"{tensor(['n', 'c', *i])} I", f"{tensor(['c', 'f', *kernel])} K"]
    parameters += ["float(B) b"] if bias else []
    parameters += ["const int G", *_constants("SDPTO", axes)]
    spread = ",".join(f"S{c.upper()}*{c}+D{c.upper()}*k{c}" for c in i)
    shifted = ",".join(f"{c}+P{c.upper()}" for c in i)
    places = ",".join(i)
    lines = [
        f"T(n,f,{places}) = 0.0 where n in 0:N, f in 0:G*F, {_ranges('T', i)}",
        f"T(n,g*F+f,{spread}) += I(n,g*(C/G)+c,{places}) * K(g*(C/G)+c,f,{','.join(kernel)})",
        "  where g in 0:G, c in 0:C/G",
        f"O(n,f,{places}) = T(n,f,{shifted}){' + b(f)' if bias else ''}",
        f"  where n in 0:N, f in 0:G*F, {_ranges('O', i)}",
    ]
    return definition(f"conv_transpose{axes}d_grouped{'_bias' if bias else ''}", parameters, "O", lines)


def _pool(name: str, axes: int, read: str, after: list[str], dtype: str, counted: bool = False) -> Definition:
    """A reduction over windows; ``read`` has ``{x}`` for the operator and the subscripts."""
    i = AXES[axes]
    at = ",".join(f"S{c.upper()}*{c}+D{c.upper()}*k{c}-P{c.upper()}" for c in i)
    left = f"O(n,c,{','.join(i)})"
    parameters = [f"{tensor(['n', 'c', *i], dtype)} I"]
    parameters += [f"{tensor([f'O{c}' for c in i])} count"] if counted else []
    constants = [c for c in _constants("KSDPO", axes) if not (counted and c.split()[2].startswith("O"))]
    windows = ", ".join(f"k{c} in 0:K{c.upper()}" for c in i)
    lines = [f"{left} {read.format(at=at)}", f"  where n in 0:N, c in 0:C, {_ranges('O', i)}, {windows}"]
    lines += [f"{left} = {line.format(y=left, places=','.join(i))}" for line in after]
    return definition(typed(name, dtype), [*parameters, *constants], "O", lines)


def max_pool(axes: int, dilated: bool, dtype: str) -> Definition:
    """The largest element of each window; what is outside the image is none."""
    # Without dilation, the element at the edge that is repeated lies in the window itself.
    image = f"constant_exterior(I, {lowest(dtype)})" if dilated else "repeat_edge(I)"
    name = f"max_pool{axes}d_apart{'_dilated' if dilated else ''}"
    return _pool(name, axes, f"max=! {image}(n,c,{{at}})", [], dtype)


def average_pool(axes: int, counted: bool) -> Definition:
    """The mean of each window, divided by its size or by counts that are given."""
    whole = "*".join(f"K{c.upper()}" for c in AXES[axes])
    after = "{y} / count({places})" if counted else f"{{y}} / ({whole})"
    name = f"avg_pool{axes}d{'_counted' if counted else '_apart'}"
    return _pool(name, axes, "+=! constant_exterior(I, 0)(n,c,{at})", [after], "float32", counted)


def lp_pool(axes: int, p: int) -> Definition:
    """The p-norm of each window."""
    x = "constant_exterior(I, 0)(n,c,{at})"
    body = f"{x} * {x}" if p == 2 else f"pow(abs({x}), {p}.0)"
    after = "sqrt({y})" if p == 2 else f"pow({{y}}, 1.0 / {p})"
    return _pool(f"l{p}_pool{axes}d", axes, f"+=! {body}", [after], "float32")
