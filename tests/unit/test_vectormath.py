"""The elementary functions that kernels vectorise: greatest errors, limits, and that they do vectorise."""

from __future__ import annotations

import ctypes
import math
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tcomp.backends.host import toolchain
from tcomp.backends.host.toolchain import GCC, Toolchain
from tcomp.values.intrinsics import INTRINSICS, OF_KERNELS, c_declarations, row_of
from tcomp.values.vectormath import VECTORISED

pytestmark = pytest.mark.sweep(5)

Run = Callable[..., np.ndarray]
"""Runs a loop, called by its name, over arrays of arguments."""

TYPES = {"float": np.float32, "double": np.float64}
CASES = sorted(VECTORISED)
UNARY = [(name, c_type) for name, c_type in CASES if INTRINSICS[name].arity == 1]

GREATEST_ERROR = {
    "exp": 1.1, "exp2": 0.9, "exp10": 1.1, "expm1": 1.5, "sigmoid": 2.0, "tanh": 1.4, "erf": 1.7, "log": 0.9,
    "log2": 1.1, "log10": 1.0, "log1p": 0.9, "sin": 0.51, "cos": 0.51, "tan": 0.51, "sinh": 0.51, "cosh": 0.51,
}  # fmt: skip
"""Of the float functions, in units in the last place, over all arguments and with fused multiply-adds."""

SCALES = {"one": 1.0, "eighth": 0.125, "third": float(np.float32(1 / 3)), "large": 2.0**60, "small": 2.0**-60}
"""What the exponential of a scaled weight is tried with."""

UNFUSED = 0.8
"""What they may lose on a processor without fused multiply-adds."""


def _library(folder: Path, flags: tuple[str, ...]) -> Run:
    loops = [
        f"void run_{name}_{c}(long n, {c} *restrict out, const {c} *restrict x)"
        f" {{ for (long i = 0; i < n; ++i) out[i] = {INTRINSICS[name].c_name(c)}(x[i]); }}"
        for name, c in UNARY
    ]
    parameters = "long n, float *restrict out, const float *restrict x"
    power = f"for (long i = 0; i < n; ++i) out[i] = {INTRINSICS['pow'].c_name('float')}"
    loops.append(f"void run_pow({parameters}, const float *restrict y) {{ {power}(x[i], y[i]); }}")
    length = power.replace(INTRINSICS["pow"].c_name("float"), INTRINSICS["hypot"].c_name("float"))
    loops.append(f"void run_hypot({parameters}, const float *restrict y) {{ {length}(x[i], y[i]); }}")
    weight = OF_KERNELS["exp_of_weight"].c_name("float")
    loops.append(f"void run_exp_of_weight({parameters}) {{ for (long i = 0; i < n; ++i) out[i] = {weight}(x[i]); }}")
    scaled = OF_KERNELS["exp_of_scaled_weight"].c_name("float")
    for name, by in SCALES.items():
        body = f"for (long i = 0; i < n; ++i) out[i] = {scaled}(x[i], {by!r});"
        loops.append(f"void run_exp_of_scaled_weight_{name}({parameters}) {{ {body} }}")
    loops.append(f"void run_square({parameters}) {{ {power}(x[i], 2.f); }}")
    loops.append(f"void run_cube({parameters}) {{ {power}(x[i], 3.f); }}")
    text = "\n".join([*c_declarations([*CASES, ("exp_of_weight", "float"), ("exp_of_scaled_weight", "float")]), *loops])
    path = folder / "functions.so"
    path.write_bytes(toolchain.compile_shared(toolchain.find(), text, flags, "functions"))
    library = ctypes.CDLL(str(path))

    def call(loop: str, *arguments: np.ndarray) -> np.ndarray:
        dtype = np.float64 if loop.endswith("_double") else np.float32
        arrays = [np.ascontiguousarray(a, dtype) for a in arguments]
        out = np.empty_like(arrays[0])
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (out, *arrays)]
        getattr(library, f"run_{loop}")(ctypes.c_long(out.size), *pointers)
        return out

    return call


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _library(tmp_path_factory.mktemp("vectormath"), ())


@pytest.fixture(scope="module")
def run_unfused(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return _library(tmp_path_factory.mktemp("unfused"), ("-ffp-contract=off", "-U__FP_FAST_FMAF", "-U__FP_FAST_FMA"))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def _meaning(name: str, x: np.ndarray) -> np.ndarray:
    """The function in the precision of ``x``, within 1 ulp of that."""
    if name == "erf":
        return np.fromiter(map(math.erf, x.tolist()), x.dtype, x.size)
    if name == "exp10":
        return np.power(x.dtype.type(10), x)
    return _sigmoid(x) if name == "sigmoid" else np.asarray(getattr(np, name)(x))


def _ulps(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Errors in units in the last place of the type of ``found``; an overflow counts as the next power of two."""
    info = np.finfo(found.dtype)
    wide = exact.dtype.type
    top = np.ldexp(wide(1), int(info.maxexp))
    exact = np.clip(exact, -top, top)
    values = np.clip(found.astype(exact.dtype), -top, top)
    exponent = np.clip(np.frexp(exact)[1], int(info.minexp) + 1, int(info.maxexp))
    return np.abs(values - exact) / np.ldexp(wide(1), exponent - int(info.nmant) - 1)


def _check(found: np.ndarray, exact: np.ndarray, limit: float, x: np.ndarray) -> None:
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
    known = ~np.isnan(exact)
    np.testing.assert_array_equal(np.signbit(found[known]), np.signbit(exact[known]))
    np.testing.assert_array_equal(found[np.isinf(exact)], exact[np.isinf(exact)])
    errors = np.where(known, _ulps(found, exact), 0)
    worst = int(np.argmax(errors))
    assert errors[worst] <= limit, f"{errors[worst]} ulp at {x[worst]!r}: {found[worst]!r}, not {exact[worst]!r}"


def _all_floats(step: int) -> np.ndarray:
    """Every ``step``-th bit pattern: all signs, exponents, denormals, infinities and NaN."""
    return np.arange(0, 1 << 32, step, dtype=np.uint32).view(np.float32)


@pytest.mark.parametrize("name", GREATEST_ERROR)
def test_floats_of_all_magnitudes(name: str, run: Run, run_unfused: Run) -> None:
    x = _all_floats(16381 if name == "erf" else 2039)
    with np.errstate(all="ignore"):
        exact = _meaning(name, x.astype(np.float64))
    _check(run(f"{name}_float", x), exact, GREATEST_ERROR[name], x)
    _check(run_unfused(f"{name}_float", x), exact, GREATEST_ERROR[name] + UNFUSED, x)


@pytest.mark.parametrize("name", GREATEST_ERROR)
def test_floats_where_the_function_bends(name: str, run: Run) -> None:
    rng = np.random.default_rng(3)
    count = 100_000 if name == "erf" else 1_000_000
    x = np.concatenate([rng.uniform(-4, 4, count), rng.uniform(-110, 110, count // 4)]).astype(np.float32)
    with np.errstate(all="ignore"):
        exact = _meaning(name, x.astype(np.float64))
    _check(run(f"{name}_float", x), exact, GREATEST_ERROR[name], x)


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 60, reason="there is nothing wider than double")
@pytest.mark.parametrize("name", [name for name, c_type in UNARY if c_type == "double"])
def test_doubles(name: str, run: Run, run_unfused: Run) -> None:
    rng = np.random.default_rng(4)
    bits = rng.integers(0, 1 << 64, 200_000, np.uint64, endpoint=False).view(np.float64)
    x = np.concatenate([rng.uniform(-2, 2, 200_000), rng.uniform(-760, 720, 200_000), bits])
    with np.errstate(all="ignore"):
        exact = _meaning(name, x.astype(np.longdouble))
    _check(run(f"{name}_double", x), exact, 2.0, x)
    _check(run_unfused(f"{name}_double", x), exact, 2.0, x)


@pytest.mark.parametrize(("name", "c_type"), UNARY)
def test_limits(name: str, c_type: str, run: Run) -> None:
    info = np.finfo(TYPES[c_type])
    edges = [0.0, 1.0, float(info.tiny), float(info.smallest_subnormal), float(info.max), 104, 746, np.inf]
    x = np.array([sign * edge for edge in edges for sign in (1, -1)] + [np.nan, -np.nan], TYPES[c_type])
    with np.errstate(all="ignore"):
        exact = _meaning(name, x.astype(np.float64 if c_type == "float" else np.longdouble))
    _check(run(f"{name}_{c_type}", x), exact, 2.0, x)


def test_nan_payloads_do_not_leak(run: Run) -> None:
    x = np.concatenate([np.arange(0x7F800001, 0x80000000, 997), np.arange(0xFF800001, 1 << 32, 997)])
    for name in GREATEST_ERROR:
        assert np.isnan(run(f"{name}_float", x.astype(np.uint32).view(np.float32))).all(), name


def test_exp_underflows_gradually(run: Run) -> None:
    x = np.linspace(-103.9, -87.4, 1000, dtype=np.float32)
    found = run("exp_float", x)
    assert (found > 0).all() and (found < np.finfo(np.float32).tiny).all()
    np.testing.assert_allclose(found, np.exp(x.astype(np.float64)), rtol=0, atol=1.5e-45)


def test_exponentials_of_weights_are_0_below_normal_numbers(run: Run, run_unfused: Run) -> None:
    bits = np.append(np.arange(0x80000000, 0xFFFFFFFF, 2039), np.arange(0x7F800001, 0x80000000, 99991))
    chosen = np.append(np.linspace(-104, 88, 500_000), [0.0, -87.3365]).astype(np.float32)
    x = np.concatenate([chosen, bits.astype(np.uint32).view(np.float32)])
    with np.errstate(invalid="ignore"):
        exact = np.exp(x.astype(np.float64))
    exact[x < np.float32(-87.3365)] = 0
    assert exact[exact > 0].min() < 1.0001 * float(np.finfo(np.float32).tiny)
    _check(run("exp_of_weight", x), exact, 1.1, x)
    _check(run_unfused("exp_of_weight", x), exact, 1.1 + UNFUSED, x)


@pytest.mark.parametrize("scale", SCALES)
def test_exponentials_of_scaled_weights_err_as_those_of_a_product(scale: str, run: Run, run_unfused: Run) -> None:
    by = SCALES[scale]
    bits = np.append(np.arange(0x80000000, 0xFFFFFFFF, 20389), np.arange(0x7F800001, 0x80000000, 99991))
    chosen = np.append(np.linspace(-104, 0, 300_000) / by, [0.0, -np.inf]).astype(np.float32)
    x = np.concatenate([chosen, bits.astype(np.uint32).view(np.float32)])
    with np.errstate(invalid="ignore"):
        product = x.astype(np.float64) * by
        exact, least = np.exp(product), float(np.finfo(np.float32).tiny)
    for found, ulps in ((run, 1.1), (run_unfused, 1.1 + UNFUSED)):
        error = np.abs(found(f"exp_of_scaled_weight_{scale}", x) - exact)
        normal = exact >= 1.5 * least
        with np.errstate(invalid="ignore"):
            bound = exact * (np.abs(product) * 2.0**-24 + ulps * 2.0**-23)
        assert (error[normal] <= bound[normal]).all() and (error[~normal] <= 1.5 * least)[exact[~normal] >= 0].all()
        assert np.isnan(error).sum() == np.isnan(x).sum()
        assert (found(f"exp_of_scaled_weight_{scale}", x[product < -88]) == 0).all()
    assert run(f"exp_of_scaled_weight_{scale}", np.zeros(9, np.float32)).tolist() == [1.0] * 9


def test_pow(run: Run, run_unfused: Run) -> None:
    """Arguments whose powers are neither 0 nor infinite, and all combinations of the peculiar ones."""
    rng = np.random.default_rng(5)
    x = np.concatenate([np.exp(rng.uniform(-80, 80, 300_000)), rng.uniform(0.5, 2, 300_000)]).astype(np.float32)
    y = (rng.uniform(-150, 128, x.size) / np.log2(x.astype(np.float64))).astype(np.float32)
    y[::9] = np.rint(y[::9])
    x[::18] *= -1
    peculiar = [0, 0.5, 1, 1.5, 2, 3, 1 - 2**-24, 1 + 2**-23, 2**24 - 1, 2**24 + 2, 1e-45, 3.4e38, np.inf]
    values = np.array([sign * v for v in peculiar for sign in (1, -1)] + [np.nan], np.float32)
    x, y = np.append(x, np.repeat(values, values.size)), np.append(y, np.tile(values, values.size))
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
    _check(run("pow", x, y), exact, 0.6, x)
    _check(run_unfused("pow", x, y), exact, 0.6, x)


def test_hypot(run: Run) -> None:
    rng = np.random.default_rng(6)
    x, y = (np.exp(rng.uniform(-100, 88, 300_000)) * rng.choice([-1, 1], 300_000) for _ in range(2))
    peculiar = np.array([0, -0.0, 1, -1, 1e-45, 3.4e38, np.inf, -np.inf, np.nan])
    x, y = np.append(x, np.repeat(peculiar, peculiar.size)), np.append(y, np.tile(peculiar, peculiar.size))
    x, y = x.astype(np.float32), y.astype(np.float32)
    _check(run("hypot", x, y), np.hypot(x.astype(np.float64), y.astype(np.float64)), 0.51, x)


def test_small_constant_powers_are_products(run: Run) -> None:
    x = np.array([-0.0, -3.7, 1e-20, 2e19, -np.inf, np.nan], np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(run("square", x), x * x)
        np.testing.assert_array_equal(run("cube", x), x * x * x)


def test_fast_math_keeps_them_close(tmp_path: Path) -> None:
    fast = _library(tmp_path, ("-ffast-math",))
    x = np.concatenate([np.linspace(-80, 80, 100_001), np.geomspace(1e-30, 1e30, 1001)]).astype(np.float32)
    for name in sorted(GREATEST_ERROR.keys() - {"erf"}):
        with np.errstate(all="ignore"):
            exact = _meaning(name, x.astype(np.float64))
        sound = np.isfinite(exact) & (np.abs(exact) > 1e-37) & (np.abs(exact) < 3e38)
        zero = 1e-6 if name in ("sin", "cos") else 0
        found = fast(f"{name}_float", x)
        np.testing.assert_allclose(found[sound], exact[sound], rtol=1e-5, atol=zero, err_msg=name)


LOOPS = {
    "plain": "void loop(const T *restrict x, T *restrict y, long n) { for (long i = 0; i < n; i++) y[i] = F(x[i]); }",
    "conditional": "void loop(const T *restrict x, T *restrict y, long n)"
    " { for (long i = 0; i < n; i++) y[i] = x[i] > 0.5f ? F(x[i]) : 0; }",
    "reduction": "T loop(const T *restrict x, long n) { T s = 0;\n"
    "#pragma omp simd reduction(+:s)\nfor (long i = 0; i < n; i++) s += F(x[i]);\nreturn s; }",
}


def _packed(name: str, c_type: str) -> str:
    """How the packed arithmetic of a function ends: some float functions compute in double."""
    wide = ("sin", "cos", "tan", "sinh", "cosh", "pow", "hypot")
    return "ps" if c_type == "float" and name not in wide else "pd"


@pytest.fixture(scope="module")
def gcc() -> Toolchain:
    found = toolchain.find()
    if found.family is not GCC:
        pytest.skip("how the loops come out is known of gcc only")
    features = Path("/proc/cpuinfo")
    if not features.exists() or "avx2" not in features.read_text(encoding="utf-8"):
        pytest.skip("which instructions are packed is known of x86 with AVX2 only")
    return found


def _assembly(text: str, gcc: Toolchain, folder: Path) -> str:
    flags = [f for f in gcc.arguments(text, ()) if f not in ("-shared", "-lm", "-lgcc")]
    path = folder / "loop.s"
    command = [*gcc.command, *flags, "-S", "-o", str(path)]
    subprocess.run(command, input=text, text=True, check=True, timeout=60)
    return path.read_text()


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("name", "c_type"),
    [*CASES, *((name, "float") for name in (*OF_KERNELS, "sqrt", "rsqrt")), ("rsqrt", "double")],
)
def test_loops_vectorise(name: str, c_type: str, loop: str, gcc: Toolchain, tmp_path: Path) -> None:
    call = f"{row_of(name).c_name(c_type)}({'x, 1.7f' if row_of(name).arity == 2 else 'x'})"
    macros = f"#define T {c_type}\n#define F(x) {call}"
    instructions = _assembly("\n".join([*c_declarations([(name, c_type)]), macros, LOOPS[loop]]), gcc, tmp_path)
    assert not re.search(rf"\bcall\b|\bj\w+\s+{name}", instructions)
    assert re.search(rf"\bv(mul|sqrt|fn?m(add|sub)\d+){_packed(name, c_type)}\b.*%[yz]mm", instructions)


@pytest.mark.parametrize("outer", ["log1p", "log", "tanh", "sqrt"])
def test_functions_of_an_exponential_vectorise(outer: str, gcc: Toolchain, tmp_path: Path) -> None:
    """What the bounds of one function leave must not be a constant from which the other is specialised."""
    names = [("exp", "float"), *([(outer, "float")] if outer != "sqrt" else [])]
    call = "__builtin_sqrtf" if outer == "sqrt" else INTRINSICS[outer].c_name("float")
    loop = LOOPS["plain"].replace("F(x[i])", f"{call}({INTRINSICS['exp'].c_name('float')}(-__builtin_fabsf(x[i])))")
    text = "\n".join([*c_declarations(names), "#define T float", loop])
    assert re.search(r"\bv(mul|fn?m(add|sub)\d+)ps\b.*%[yz]mm", _assembly(text, gcc, tmp_path))


@pytest.mark.parametrize("exponent", ["0.5f", "-1", "5", "(float)n", "x[n - i]"])
def test_powers_vectorise_whatever_is_known_of_the_exponent(exponent: str, gcc: Toolchain, tmp_path: Path) -> None:
    call = f"{INTRINSICS['pow'].c_name('float')}(x, {exponent})"
    loop = LOOPS["plain"].replace("F(x[i])", call.replace("(x,", "(x[i],"))
    text = "\n".join([*c_declarations([("pow", "float")]), "#define T float", loop])
    assert re.search(r"\bv(mul|fn?m(add|sub)\d+)pd\b.*%[yz]mm", _assembly(text, gcc, tmp_path))


@pytest.mark.parametrize("c_type", ["float", "double"])
@pytest.mark.parametrize("name", ["fmax", "fmin"])
def test_extrema_of_extrema_vectorise(name: str, c_type: str, gcc: Toolchain, tmp_path: Path) -> None:
    call = INTRINSICS[name].c_name(c_type)
    loop = LOOPS["plain"].replace("F(x[i])", f"{call}(x[i], {call}(x[i + 1], x[i + 2]))")
    instructions = _assembly("\n".join([*c_declarations([(name, c_type)]), f"#define T {c_type}", loop]), gcc, tmp_path)
    assert re.search(r"\bv(blend[vm]|andn?|cmp\w*)p[sd]\b.*%[yz]mm", instructions)
