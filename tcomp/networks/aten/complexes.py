"""Complex numbers of PyTorch as two tensors of floats, and Fourier transforms as products with known matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tcomp.networks.aten.parts import expand
from tcomp.networks.aten.single import import_single
from tcomp.networks.importing import Builder, Node, import_node
from tcomp.networks.network import Value
from tcomp.networks.texts import elements, general, parts

_PARTS = ("real", "imag")


@dataclass(frozen=True)
class Complex:
    """The real and the imaginary part of a tensor."""

    real: Value
    imag: Value

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of both."""
        return self.real.shape


Made = Complex | Value
Operator = Callable[[Builder, Node, Mapping[str, Any]], Made]


def weight(builder: Builder, name: str, array: np.ndarray[Any, Any]) -> Complex:
    """What is known before any input."""
    real, imag = (np.array(part, np.float32, order="C") for part in (array.real, array.imag))
    return Complex(builder.weight(f"{name}_real", real), builder.weight(f"{name}_imag", imag))


def separated(x: Made) -> list[Value]:
    """The parts of complex numbers, and of others themselves."""
    return [x.real, x.imag] if isinstance(x, Complex) else [x]


def joined(parts: Sequence[Value]) -> Made:
    """What ``separated`` took apart."""
    return Complex(*parts) if len(parts) > 1 else parts[0]


def nodes_of(n: Node) -> list[Node]:
    """A node for each tensor of floats that a result becomes.  Raises NetworkError."""
    if n.dtype == "complex128":
        raise n.refuse("gives complex128", "numbers of two float32 are known")
    if not n.dtype.startswith("complex"):
        return [n]
    return [replace(n, name=f"{n.name}_{part}", dtype="float32") for part in _PARTS]


def concerns(n: Node) -> bool:
    """Whether an operator takes or gives complex numbers."""
    return n.dtype.startswith("complex") or any(_has_complex(given) for given in n.arguments.values())


def _has_complex(given: Any) -> bool:
    return isinstance(given, Complex) or (isinstance(given, list) and any(_has_complex(one) for one in given))


def import_complex(b: Builder, n: Node) -> Made | list[Complex]:
    """The result of an operator on complex numbers, or several.  Raises NetworkError for one that is not known."""
    nodes_of(n)
    if n.operator in _BY_PARTS:
        made = [import_single(b, one) for one in _of_parts(b, n)]
        return [Complex(*both) for both in zip(*made, strict=True)] if isinstance(made[0], list) else Complex(*made)
    operator = _OPERATORS.get(n.operator)
    if operator is None:
        raise n.refuse("has no rule for complex numbers")
    return operator(b, n, n.arguments)


_ELEMENTS = ("self", "other", "tensors", "src", "values", "value")
"""What arguments are called that have elements, not places or conditions."""


def _of_parts(b: Builder, n: Node) -> list[Node]:
    """A node for the real parts of all elements and one for the imaginary ones, which are 0 where there are none."""
    dtype = str(n.arguments.get("dtype") or "complex").removeprefix("torch.")
    if isinstance(n.arguments.get("self"), Value) and not n.dtype.startswith("complex"):
        dtype = n.dtype
    if not dtype.startswith("complex"):
        raise n.refuse(f"gives {dtype} of complex numbers")

    def own(name: str, given: Any, part: str) -> Any:
        if isinstance(given, list):
            return [own(f"{name}_{k}", one, part) for k, one in enumerate(given)]
        if isinstance(given, Value):
            given = _whole(b, n, name, given)
        if isinstance(given, (int, float, complex)):
            return float(getattr(given, part))
        return getattr(given, part) if isinstance(given, Complex) else given

    made = []
    for part in _PARTS:
        arguments = {name: own(name, x, part) if name in _ELEMENTS else x for name, x in n.arguments.items()}
        arguments |= {"dtype": None} if "dtype" in arguments else {}
        made.append(replace(n, name=f"{n.name}_{part}", arguments=arguments, dtype="float32"))
    return made


def _whole(b: Builder, n: Node, label: str, x: Value) -> Complex:
    """Other numbers as complex ones."""
    inner = replace(n, name=f"{n.name}_{label}", shape=x.shape, dtype="float32")
    zero = b.weight(f"{inner.name}_imag", np.zeros(x.shape, np.float32))
    return Complex(_float(b, inner, x), zero)


def _float(b: Builder, n: Node, x: Value) -> Value:
    return x if x.dtype == "float32" else b.call(n, general.conversion(len(x.shape), x.dtype, "float32"), [x])


_BY_PARTS = frozenset(
    f"aten.{name}"
    for name in (
        *(f"{name}.default" for name in ("view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "permute", "t")),
        *(f"{name}.default" for name in ("expand", "cat", "stack", "clone", "contiguous", "neg", "roll", "flip")),
        *(f"{name}.default" for name in ("detach", "detach_", "alias", "copy", "repeat", "diagonal", "numpy_T")),
        *(f"{name}.default" for name in ("pad", "constant_pad_nd", "index_select", "cumsum", "sum", "mean", "chunk")),
        *("squeeze.dim", "squeeze.dims", "transpose.int", "slice.Tensor", "select.int", "index.Tensor", "movedim.int"),
        *("sum.dim_IntList", "mean.dim", "flatten.using_ints", "unbind.int", "split.Tensor", "swapaxes.default"),
        *("where.self", "where.ScalarOther", "where.ScalarSelf", "gather.default", "split_with_sizes.default"),
        *("select_scatter.default", "slice_scatter.default"),
    )
)
"""Operators that do the same to both parts."""


def _each(b: Builder, n: Node, label: str, body: str, *operands: Value, dtype: str = "float32") -> Value:
    kinds = [(x.shape, x.dtype) for x in operands]
    made = general.pointwise(label, body, kinds, n.shape, dtype)
    return b.call(replace(n, dtype=dtype), made, operands)


def _parts(given: Made) -> tuple[Value, Value | None]:
    return (given.real, given.imag) if isinstance(given, Complex) else (given, None)


def _both(b: Builder, n: Node, real: tuple[str, str, list[Value]], imag: tuple[str, str, list[Value]]) -> Complex:
    made = []
    for part, (label, body, operands) in zip(_PARTS, (real, imag), strict=True):
        made.append(_each(b, replace(n, name=f"{n.name}_{part}"), label, body, *operands))
    return Complex(*made)


def _multiply(b: Builder, n: Node, given: Mapping[str, Any]) -> Complex:
    x, y = given["self"], given["other"]
    if not isinstance(y, (Complex, Value)):
        return _scaled(b, n, x, y)
    if isinstance(x, Value):
        x, y = y, x
    (a, c), (d, e) = _parts(x), _parts(y)
    assert c is not None
    if e is None:
        return _both(b, n, ("multiply", "{a} * {b}", [a, d]), ("multiply", "{a} * {b}", [c, d]))
    operands = [a, c, d, e]
    return _both(
        b,
        n,
        ("complex_multiply_real", "{a} * {c} - {b} * {d}", operands),
        ("complex_multiply_imag", "{a} * {d} + {b} * {c}", operands),
    )


def _scaled(b: Builder, n: Node, x: Complex | Value, by: complex) -> Complex:
    """A product with a number."""
    real, imag = _parts(x)
    given = {"re": float(by.real), "im": float(by.imag)}
    if imag is None:
        return Complex(*(_with_number(b, n, part, "multiply", real, given[part[:2]]) for part in _PARTS))
    if not given["im"]:
        return Complex(*(_with_number(b, n, part, "multiply", getattr(x, part), given["re"]) for part in _PARTS))
    made = []
    for part, body in zip(_PARTS, ("{a} * re - {b} * im", "{a} * im + {b} * re"), strict=True):
        kinds = [(one.shape, one.dtype) for one in (real, imag)]
        numbers = dict.fromkeys(given, "float32")
        text = general.pointwise(f"complex_scale_{part}", body, kinds, n.shape, "float32", numbers)
        made.append(b.call(replace(n, name=f"{n.name}_{part}", dtype="float32"), text, [real, imag], **given))
    return Complex(*made)


def _with_number(b: Builder, n: Node, part: str, label: str, x: Value, number: float) -> Value:
    inner = replace(n, name=f"{n.name}_{part}", dtype="float32")
    x = _float(b, replace(inner, name=f"{n.name}_float"), x)
    return b.call(inner, elements.with_number(label, len(n.shape)), [x], y=number)


def _divide(b: Builder, n: Node, given: Mapping[str, Any]) -> Complex:
    x, y = given["self"], given["other"]
    if isinstance(y, Complex) or not isinstance(x, Complex) or (isinstance(y, complex) and y.imag):
        raise n.refuse("divides by complex numbers")
    if not isinstance(y, Value):
        return Complex(*(_with_number(b, n, part, "divide", getattr(x, part), float(y.real)) for part in _PARTS))
    return _both(b, n, ("divide", "{a} / {b}", [x.real, y]), ("divide", "{a} / {b}", [x.imag, y]))


def _add(b: Builder, n: Node, given: Mapping[str, Any]) -> Complex:
    x, y = given["self"], given["other"]
    sign = "-" if n.operator.startswith("aten.sub") else "+"
    if given.get("alpha", 1) != 1 or not isinstance(x, (Complex, Value)):
        raise n.refuse("adds a multiple")
    if not isinstance(y, (Complex, Value)):
        x = x if isinstance(x, Complex) else _whole(b, n, "self", x)
        y = -y if sign == "-" else y
        return Complex(*(_with_number(b, n, part, "add", getattr(x, part), float(getattr(y, part))) for part in _PARTS))
    (a, c), (d, e) = _parts(x), _parts(y)
    label, body = ("add", "{a} + {b}") if sign == "+" else ("subtract", "{a} - {b}")
    if c is None or e is None:
        alone = e if c is None else c
        assert alone is not None
        inner = replace(n, name=f"{n.name}_imag", dtype="float32")
        if c is None and sign == "-":
            alone = _each(b, replace(inner, name=f"{n.name}_minus", shape=alone.shape), "negate", "-{a}", alone)
        imag = alone if alone.shape == n.shape else expand(b, inner, x=alone)
        return Complex(_each(b, replace(n, name=f"{n.name}_real"), label, body, a, d), imag)
    return _both(b, n, (label, body, [a, d]), (label, body, [c, e]))


def _conjugate(b: Builder, n: Node, given: Mapping[str, Any]) -> Complex:
    x = given["self"]
    return Complex(x.real, _each(b, replace(n, name=f"{n.name}_imag"), "negate", "-{a}", x.imag))


def _polar(b: Builder, n: Node, given: Mapping[str, Any]) -> Complex:
    operands = [given["abs"], given["angle"]]
    return _both(b, n, ("polar_real", "{a} * cos({b})", operands), ("polar_imag", "{a} * sin({b})", operands))


def _of_floats(b: Builder, n: Node, given: Mapping[str, Any]) -> Made:
    """Complex numbers of two tensors, or of one alone."""
    if "real" in given:
        inner = replace(n, dtype="float32")
        return Complex(*(expand(b, replace(inner, name=f"{n.name}_{part}"), x=given[part]) for part in _PARTS))
    x = given["self"]
    if isinstance(x, Complex):
        if not n.dtype.startswith("complex"):
            raise n.refuse(f"gives {n.dtype} of complex numbers")
        return x
    return _whole(b, n, "float", x)


def _as_complex(b: Builder, n: Node, given: Mapping[str, Any]) -> Complex:
    x = given["self"]
    made = []
    for k, part in enumerate(_PARTS):
        inner = replace(n, name=f"{n.name}_{part}", dtype="float32")
        made.append(b.call(inner, parts.select(len(x.shape), len(n.shape)), [x], AT=k))
    return Complex(*made)


def _as_real(b: Builder, n: Node, given: Mapping[str, Any]) -> Value:
    x, shape = given["self"], (*n.shape[:-1], 1)
    both = []
    for part in _PARTS:
        inner = replace(n, name=f"{n.name}_{part}", shape=shape)
        both.append(b.call(inner, elements.reshape(n.shape[:-1], shape), [getattr(x, part)]))
    return b.call(n, elements.concat(len(n.shape), len(n.shape) - 1, 2), both)


def _products(b: Builder, n: Node, given: Mapping[str, Any]) -> Complex:
    """Of matrices: four products of floats."""
    names = [name for name in ("self", "mat2", "other", "vec2") if name in given]
    (a, c), (d, e) = (_parts(given[name]) for name in names)

    def product(label: str, left: Value, right: Value) -> Value:
        arguments = {**given, names[0]: left, names[1]: right}
        return import_node(b, replace(n, name=f"{n.name}_{label}", arguments=arguments, dtype="float32"))  # type: ignore[no-any-return]

    def combined(part: str, sign: str, one: Value | None, other: Value | None) -> Value:
        if one is None or other is None:
            alone = one or other
            assert alone is not None
            return alone
        label = "add" if sign == "+" else "subtract"
        return _each(b, replace(n, name=f"{n.name}_{part}"), label, f"{{a}} {sign} {{b}}", one, other)

    real = combined("real", "-", product("rr", a, d), product("ii", c, e) if c and e else None)
    return Complex(real, combined("imag", "+", product("ri", a, e) if e else None, product("ir", c, d) if c else None))


def _transformed(b: Builder, n: Node, given: Mapping[str, Any]) -> Made:
    """A Fourier transform along some axes, one after the other, by its matrices.

    PyTorch scales by nothing (0), by the root of the number of elements (1), or by that number (2).
    """
    x: Made = given["self"]
    kind = n.operator.removeprefix("aten._fft_").partition(".")[0]
    rank = len(x.shape)
    axes = [axis % rank for axis in given["dim"]]
    forward = kind == "r2c" or (kind == "c2c" and given["forward"])
    lengths = {axis: x.shape[axis] for axis in axes}
    if kind == "c2r":
        lengths[axes[-1]] = given["last_dim_size"]
    count = float(np.prod([*lengths.values()]))
    scale = {0: 1.0, 1: count**-0.5, 2: 1 / count}[given["normalization"]]
    order = axes if kind == "c2r" else axes[::-1]
    for step, axis in enumerate(order):
        last = step == len(order) - 1
        onesided = kind == "r2c" and axis == axes[-1] and given["onesided"]
        inner = n if last else replace(n, name=f"{n.name}_axis{axis}")
        own = scale if last else 1.0
        if kind == "c2r" and last:
            assert isinstance(x, Complex)
            return _to_floats(b, inner, x, axis, lengths[axis], own)
        x = _along(b, inner, x, axis, onesided, -1 if forward else 1, own)
    return x


def _along(b: Builder, n: Node, x: Made, axis: int, onesided: bool, sign: int, scale: float) -> Complex:
    extent = x.shape[axis]
    count = extent // 2 + 1 if onesided else extent
    cosines, sines = _matrices(count, extent, scale)
    real, imag = _parts(x)
    matrices = [b.weight(f"{n.name}_cosines", cosines), b.weight(f"{n.name}_sines", sign * sines)]
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    if imag is None:
        return Complex(*(_product(b, n, part, real, m, axis, shape) for part, m in zip(_PARTS, matrices, strict=True)))
    each = {
        label: _product(b, n, label, operand, matrix, axis, shape)
        for label, operand, matrix in zip(
            ("rc", "rs", "ic", "is"), (real, real, imag, imag), (*matrices, *matrices), strict=True
        )
    }
    both = replace(n, shape=shape)
    return _both(
        b,
        both,
        ("subtract", "{a} - {b}", [each["rc"], each["is"]]),
        ("add", "{a} + {b}", [each["rs"], each["ic"]]),
    )


def _to_floats(b: Builder, n: Node, x: Complex, axis: int, extent: int, scale: float) -> Value:
    """The inverse of half a spectrum: its other half has the conjugates."""
    count = x.shape[axis]
    twice = np.full(count, 2.0)
    twice[0] = 1.0
    if 2 * (count - 1) == extent:
        twice[-1] = 1.0
    cosines, sines = _matrices(count, extent, scale)
    shape = (*x.shape[:axis], extent, *x.shape[axis + 1 :])
    matrices = [(matrix * twice[:, None]).T.astype(np.float32) for matrix in (cosines, sines)]
    c, s = (b.weight(f"{n.name}_{label}", m) for label, m in zip(("cosines", "sines"), matrices, strict=True))
    one, other = _product(b, n, "c", x.real, c, axis, shape), _product(b, n, "s", x.imag, s, axis, shape)
    return _each(b, n, "subtract", "{a} - {b}", one, other)


def _matrices(count: int, extent: int, scale: float) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Cosines and sines of the first frequencies of a row, times a scale."""
    turns = np.outer(np.arange(count), np.arange(extent)) % extent * (2 * np.pi / extent)
    return (scale * np.cos(turns)).astype(np.float32), (scale * np.sin(turns)).astype(np.float32)


def _product(b: Builder, n: Node, label: str, x: Value, matrix: Value, axis: int, shape: Sequence[int]) -> Value:
    letters = elements.indices(len(x.shape))
    c = letters[axis]
    text = general.einsum([letters, f"z{c}"], letters.replace(c, "z"), True, "float32")
    inner = replace(n, name=f"{n.name}_{label}", shape=tuple(shape), dtype="float32")
    return b.call(inner, text, [x, matrix])


_OPERATORS: dict[str, Operator] = {
    "aten.mul.Tensor": _multiply,
    "aten.mul.Scalar": _multiply,
    "aten.div.Tensor": _divide,
    "aten.div.Scalar": _divide,
    "aten.add.Tensor": _add,
    "aten.sub.Tensor": _add,
    **dict.fromkeys(("aten._conj.default", "aten.conj.default", "aten._conj_physical.default"), _conjugate),
    "aten.conj_physical.default": _conjugate,
    "aten.resolve_conj.default": lambda _, n, given: given["self"],
    "aten.polar.default": _polar,
    "aten.complex.default": _of_floats,
    **dict.fromkeys(("aten._to_copy.default", "aten.to.dtype", "aten.to.dtype_layout"), _of_floats),
    "aten.view_as_complex.default": _as_complex,
    "aten.view_as_real.default": _as_real,
    "aten.real.default": lambda _, n, given: given["self"].real,
    "aten.imag.default": lambda _, n, given: given["self"].imag,
    "aten.abs.default": lambda b, n, given: _each(
        b, n, "hypot", "hypot({a}, {b})", given["self"].real, given["self"].imag
    ),
    "aten.angle.default": lambda b, n, given: _each(
        b, n, "angle", "atan2({b}, {a})", given["self"].real, given["self"].imag
    ),
    **dict.fromkeys(("aten.mm.default", "aten.bmm.default", "aten.matmul.default"), _products),
    **dict.fromkeys(("aten._fft_r2c.default", "aten._fft_c2c.default", "aten._fft_c2r.default"), _transformed),
}
