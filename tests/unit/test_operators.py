"""Element types, reductions and intrinsics: the tables, and the C text of every intrinsic run on real numbers."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tcomp.values.intrinsics import Intrinsic, c_declarations, cuda_definitions
from tcomp.values.operators import (
    BFLOAT16,
    BOOL,
    DTYPES,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    INTRINSICS,
    REDUCTIONS,
    UINT8,
    UINT16,
    UINT32,
    DType,
    accumulation_type,
    promote,
)

ORIGINAL = {
    1: "acos acosh asin asinh atan atanh cbrt ceil cos cosh cospi cyl_bessel_i0 cyl_bessel_i1 erf erfc erfcinv erfcx"
    " erfinv exp exp10 exp2 expm1 fabs floor j0 j1 lgamma log log10 log1p log2 logb normcdf normcdfinv rcbrt round"
    " rsqrt sin sinh sinpi sqrt tan tanh tgamma trunc y0 y1",
    2: "atan2 copysign fdim fdivide fmax fmin fmod hypot nextafter pow remainder rhypot",
    3: "fma norm3d rnorm3d",
    4: "norm4d rnorm4d",
}


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (FLOAT16, INT64, FLOAT16),
        (FLOAT16, BFLOAT16, FLOAT32),
        (BFLOAT16, FLOAT32, FLOAT32),
        (FLOAT64, FLOAT32, FLOAT64),
        (INT8, UINT32, INT32),
        (UINT8, INT8, INT32),
        (UINT16, INT16, INT16),
        (BOOL, UINT8, UINT8),
        (BOOL, FLOAT32, FLOAT32),
        (INT16, INT16, INT16),
    ],
)
def test_promotion_is_commutative(a: DType, b: DType, expected: DType) -> None:
    assert promote(a, b) == promote(b, a) == expected


def test_narrow_sums_accumulate_wider() -> None:
    assert [accumulation_type(t) for t in (FLOAT16, BFLOAT16, INT8, UINT8, INT16, INT64, FLOAT64)] == [
        FLOAT32, FLOAT32, INT32, INT32, INT16, INT64, FLOAT64,
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", [t for t in DTYPES.values() if t.is_integer])
def test_integer_limits_are_those_of_numpy(dtype: DType) -> None:
    info = np.iinfo(dtype.name)
    assert (dtype.lowest, dtype.highest, dtype.itemsize) == (info.min, info.max, info.dtype.itemsize)


@pytest.mark.parametrize("dtype", [FLOAT32, INT32, UINT8])
@pytest.mark.parametrize("symbol", REDUCTIONS)
def test_identity_is_neutral(symbol: str, dtype: DType) -> None:
    reduction = REDUCTIONS[symbol]
    values = np.array([0, 1, dtype.highest, dtype.lowest], dtype.name)
    neutral = np.array(reduction.identity(dtype), dtype.name)
    np.testing.assert_array_equal(getattr(np, reduction.ufunc)(values, neutral), values)


def test_table_has_every_function_of_the_original() -> None:
    for arity, names in ORIGINAL.items():
        for name in names.split():
            assert INTRINSICS[name].arity == arity
    extra = INTRINSICS.keys() - set(" ".join(ORIGINAL.values()).split())
    of_bits = {"bit_and", "bit_or", "bit_xor", "bit_not", "shift_left", "shift_right", "popcount", "clz"}
    assert extra == {"relu", "sigmoid", "abs", "sign", "digamma", "trigamma", "tetragamma"} | of_bits
    assert {f.name for f in INTRINSICS.values() if f.keeps_integers} == {"relu", "abs", "sign"} | of_bits
    assert {f.name for f in INTRINSICS.values() if f.only_integers} == of_bits


def test_declarations_come_once_and_after_what_they_call() -> None:
    texts = c_declarations([("erfinv", "float"), ("normcdfinv", "double"), ("acosh", "float"), ("erfinv", "float")])
    assert len(texts) == len(set(texts))
    position = {t: k for k, t in enumerate(texts)}
    quantile = next(k for t, k in position.items() if "tc_normal_quantile_double(double q" in t)
    assert position["double sqrt(double);"] < quantile
    assert quantile < next(k for t, k in position.items() if "tc_erfinv_double(double x)" in t)
    assert "float acoshf(float);" in texts


def test_cuda_defines_only_what_it_lacks() -> None:
    assert cuda_definitions([("erfinv", "float"), ("exp", "double")]) == ()
    assert INTRINSICS["erfinv"].cuda_name("float") == "erfinvf"
    (text,) = cuda_definitions([("relu", "unsigned int")])
    assert text.startswith("__device__ __forceinline__ unsigned int tc_relu_unsigned_int(unsigned int x)")
    assert INTRINSICS["relu"].cuda_name("unsigned int") == "tc_relu_unsigned_int"


INTEGERS = {
    "signed char": np.int8, "short": np.int16, "int": np.int32, "long long": np.int64,
    "unsigned char": np.uint8, "unsigned short": np.uint16, "unsigned int": np.uint32, "unsigned long long": np.uint64,
}  # fmt: skip
C_TYPES = {"float": np.float32, "double": np.float64, **INTEGERS}
OF_FLOATS = [f.name for f in INTRINSICS.values() if not f.only_integers]
Run = Callable[..., np.ndarray]


def _uses() -> list[tuple[str, str]]:
    floats = [(name, t) for name in OF_FLOATS for t in ("float", "double")]
    return floats + [(f.name, t) for f in INTRINSICS.values() if f.keeps_integers for t in INTEGERS]


def _loop(intrinsic: Intrinsic, c_type: str) -> str:
    parameters = ", ".join(f"const {c_type} *x{k}" for k in range(intrinsic.arity))
    arguments = ", ".join(f"x{k}[i]" for k in range(intrinsic.arity))
    return (
        f"void run_{intrinsic.name}_{c_type.replace(' ', '_')}(long n, {c_type} *out, {parameters})"
        f" {{ for (long i = 0; i < n; ++i) out[i] = {intrinsic.c_name(c_type)}({arguments}); }}"
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs the C text of an intrinsic on arrays; every intrinsic is compiled without headers or warnings."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    folder: Path = tmp_path_factory.mktemp("intrinsics")
    loops = [_loop(INTRINSICS[name], c_type) for name, c_type in _uses()]
    (folder / "all.c").write_text("\n".join([*c_declarations(_uses()), *loops]))
    command = [compiler, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "all.c", "-o", "all.so", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "all.so"))

    def call(name: str, c_type: str, *arguments: np.ndarray) -> np.ndarray:
        arrays = [np.ascontiguousarray(a, C_TYPES[c_type]) for a in arguments]
        out = np.empty_like(arrays[0])
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (out, *arrays)]
        getattr(library, f"run_{name}_{c_type.replace(' ', '_')}")(ctypes.c_long(out.size), *pointers)
        return out

    return call


RANGES = {
    "acos": (-1, 1), "acosh": (1, 50), "asin": (-1, 1), "atanh": (-0.99, 0.99), "erfcinv": (1e-12, 1.99),
    "erfinv": (-0.9999, 0.9999), "erfcx": (-5, 60), "j0": (0, 2), "j1": (0.1, 3), "lgamma": (3, 60), "log": (2, 99),
    "log10": (2, 99), "log1p": (0, 99), "log2": (2, 99), "normcdf": (-30, 8), "normcdfinv": (1e-9, 0.49),
    "pow": (0.1, 9), "rcbrt": (0.1, 99), "rsqrt": (0.1, 99), "sqrt": (0, 99), "tgamma": (0.5, 30), "y0": (2.5, 3.5),
    "y1": (0.1, 2), "cyl_bessel_i0": (-60, 60), "cyl_bessel_i1": (-60, 60), "exp10": (-8, 8), "tan": (-1, 1),
    "digamma": (0.05, 40), "trigamma": (0.05, 40), "tetragamma": (0.05, 40),
    "cospi": (-0.3, 0.3), "sinpi": (-0.4, 0.4), "cos": (-1, 1), "sin": (-2, 2),
}  # fmt: skip
"""Where the function is well conditioned; elsewhere [-5, 5]."""


@pytest.mark.parametrize("name", [f.name for f in INTRINSICS.values() if f.only_integers])
@pytest.mark.parametrize("c_type", INTEGERS)
def test_c_text_of_bits_is_the_numpy_meaning(name: str, c_type: str, run: Run) -> None:
    dtype = np.dtype(INTEGERS[c_type])
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(2)
    x = rng.integers(limits.min, limits.max, 500, dtype, endpoint=True) >> rng.integers(0, limits.bits, 500).astype(
        dtype
    )
    x[:4] = limits.min, limits.max, 0, 1
    y = rng.integers(max(limits.min, -limits.bits), limits.bits + 9, 500).astype(dtype)
    y[4:12] = limits.bits - 1, limits.bits, limits.bits + 1, 0, limits.max, limits.min, 31, 32
    intrinsic = INTRINSICS[name]
    arguments = (x, y)[: intrinsic.arity]
    found, expected = run(name, c_type, *arguments), intrinsic.evaluate(*arguments)
    np.testing.assert_array_equal(found, expected)
    assert expected.dtype == dtype


@pytest.mark.parametrize("name", OF_FLOATS)
def test_c_text_agrees_with_the_numpy_meaning(name: str, run: Run) -> None:
    pytest.importorskip("scipy")
    intrinsic = INTRINSICS[name]
    rng = np.random.default_rng(1)
    for c_type, relative in (("float", 3e-6), ("double", 1e-14)):
        low, high = RANGES.get(name, (-5, 5))
        arguments = [rng.uniform(low, high, 500).astype(C_TYPES[c_type]) for _ in range(intrinsic.arity)]
        found = run(name, c_type, *arguments)
        wide = arguments if intrinsic.typed else [a.astype(np.float64) for a in arguments]
        np.testing.assert_allclose(found, intrinsic.evaluate(*wide), rtol=relative, atol=relative / 100)


@pytest.mark.parametrize(("name", "power", "factor"), [("digamma", 1, -1), ("trigamma", 2, 1), ("tetragamma", 3, -2)])
def test_derivatives_of_lgamma_just_below_0(name: str, power: int, factor: int, run: Run) -> None:
    """There they are those of the pole alone."""
    x = -np.logspace(-17, -100 / power, 20)
    np.testing.assert_allclose(run(name, "double", x), factor / x**power, rtol=1e-15 if power < 3 else 2e-15)


@pytest.mark.parametrize("name", sorted(OF_FLOATS))
def test_special_values_agree(name: str, run: Run) -> None:
    pytest.importorskip("scipy")
    intrinsic = INTRINSICS[name]
    values = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0, 0.5, -2.5])
    first, second = np.repeat(values, values.size), np.tile(values, values.size)
    arguments = [first, second, *[np.full(first.size, 2.0)] * 2][: intrinsic.arity]
    with np.errstate(all="ignore"):
        expected = intrinsic.evaluate(*arguments)
    found = run(name, "double", *arguments)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    if name not in ("fmax", "fmin"):  # which, of zeros, may give either
        zero = found == 0
        np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(expected[zero]), "signs of zeros")


def test_lgamma_has_no_infinity_beside_its_pole(run: Run) -> None:
    pytest.importorskip("scipy")
    values = np.array([1e-310, -5e-324])
    np.testing.assert_allclose(run("lgamma", "double", values), INTRINSICS["lgamma"].evaluate(values), rtol=1e-12)


@pytest.mark.parametrize(("name", "expected"), [("relu", [0, 0, 7]), ("abs", [5, 0, 7]), ("sign", [-1, 0, 1])])
def test_integers_stay_integers(name: str, expected: list[int], run: Run) -> None:
    values = np.array([-5, 0, 7], np.int32)
    assert INTRINSICS[name].evaluate(values).tolist() == run(name, "int", values).tolist() == expected
    assert INTRINSICS[name].evaluate(values).dtype == np.int32
    unsigned = np.array([0, 200], np.uint8)
    assert INTRINSICS[name].evaluate(unsigned).tolist() == run(name, "unsigned char", unsigned).tolist()


def test_rounding_is_half_away_and_remainder_half_even() -> None:
    halves = np.array([-2.5, -0.5, 0.5, 1.5, 2.5, 0.49999999999999994])
    assert INTRINSICS["round"].evaluate(halves).tolist() == [-3, -1, 1, 2, 3, 0]
    x, y = np.array([5.0, 7.0, -7.0, 3.0]), np.array([2.0, 2.0, 2.0, 2.0])
    assert INTRINSICS["remainder"].evaluate(x, y).tolist() == [1, -1, 1, -1]


def test_half_turns_are_exact() -> None:
    x = np.array([0, 0.5, 1, 1.5, 2, -0.5, -1, 1e15])
    assert INTRINSICS["sinpi"].evaluate(x).tolist() == [0, 1, 0, -1, 0, -1, 0, 0]
    assert INTRINSICS["cospi"].evaluate(x).tolist() == [1, 0, -1, 0, 1, 0, -1, 1]


def test_zeros_of_half_turns_have_the_signs_of_the_standard(run: Run) -> None:
    x = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 4e15, -4e15])
    for sines in (INTRINSICS["sinpi"].evaluate(x), run("sinpi", "double", x)):
        assert not sines.any() and (np.signbit(sines) == np.signbit(x)).all()
    for cosines in (INTRINSICS["cospi"].evaluate(x[2:8] - 0.5), run("cospi", "double", x[2:8] - 0.5)):
        assert not cosines.any() and not np.signbit(cosines).any()
