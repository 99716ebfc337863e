"""Operations on an OpenCL device: element types, layouts, checks, options, names, functions."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.opencl.devices import current, opencl_module
from tcomp.backends.opencl.functions import opencl_definitions, opencl_name
from tcomp.backends.opencl.images import FLAGS, build
from tcomp.driver import lower
from tcomp.errors import TargetError, TcompError
from tcomp.grammar import define
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import Sizes
from tcomp.values.intrinsics import INTRINSICS
from tests.agreement import OF_FLOATS
from tests.cuda.compiled import compiled_text, data_for
from tests.cuda.test_steps import FACTOR, HEAT, SCALED, heat
from tests.cuda.texts import EXAMPLES
from tests.opencl.here import NEEDS_DEVICE, assert_same
from tests.targets import OPENCL

pytestmark = [NEEDS_DEVICE, pytest.mark.sweep(2)]

PRODUCT = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
TYPES = (*INTEGERS, "float16", "bfloat16", "float", "double", "bool")
RNG = np.random.default_rng(7)


def small(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    return RNG.integers(0 if dtype.startswith("u") else -3, 4, shape).astype(dtype)


@pytest.mark.parametrize("name", ["softmax", "attention", "convolution", "mlp"])
def test_examples(name: str) -> None:
    """Kernels with reductions between threads, temporaries in all memories, fetches, and several launches."""
    example = EXAMPLES[name]
    operation = tc.define(example.text).f
    inputs = data_for(example, compiled_text(example)).inputs
    arrays = [inputs[t.name] for t in operation.function.inputs]
    expected = operation.reference(*arrays)
    for kind in ("cpu", "gpu"):
        np.testing.assert_allclose(operation(*arrays, target=f"opencl:{kind}"), expected, rtol=2e-5, atol=2e-5)


def test_steps_are_launched_one_after_another_on_the_slices_that_they_name() -> None:
    A = np.random.default_rng(0).random(40).astype(np.float32)
    np.testing.assert_allclose(tc.define(HEAT).heat(A, 5, target="opencl"), heat(A, 5), rtol=1e-6)
    assert_same(SCALED, small((5, 7))[::-1, ::-1])
    half = small((6, 6))
    matrix = half @ half.T + 9 * np.eye(6, dtype=np.float32)
    found = tc.define(FACTOR).cholesky(matrix, target="opencl")
    np.testing.assert_allclose(found, np.linalg.cholesky(matrix), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("source", ["float32", "float64", "int64", "uint64", "int8"])
def test_conversions(source: str) -> None:
    """From each of these to all types, at the ends of their ranges and where rounding is decided."""
    if source.startswith("float"):
        near = [0, 3.5, -3.5, 1e3, 7e4, 3e9, -3e9, 1e19, -1e19, math.inf, -math.inf, math.nan, 127.9, 255.9]
        values = np.array([*near, 65504, 65520, 1e-8, 6e-8, 1 + 2.0**-11, 1 + 2.0**-8], source)
    else:
        info = np.iinfo(source)
        values = np.array([0, 1, 2, info.min, info.max, info.max - 1, info.min + 1, 100, info.max // 3], source)
    outputs = ", ".join(f"O{n}" for n in range(len(TYPES)))
    body = " ".join(f"O{n}(i) = {to}(X(i))" for n, to in enumerate(TYPES))
    assert_same(f"def f({source}(N) X) -> ({outputs}) {{ {body} }}", values)


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint32", "int64"])
def test_integers_wrap_and_divide(dtype: str) -> None:
    info = np.iinfo(dtype)
    x, y = (RNG.integers(info.min, info.max, 90, dtype=dtype, endpoint=True) for _ in "xy")
    y[::5], y[1::7], x[::11], y[::11] = 0, 1, info.min, np.array(-1).astype(dtype)
    calls = (
        "X(i) + Y(i)",
        "X(i) * Y(i)",
        "X(i) / Y(i)",
        "X(i) % Y(i)",
        "min(X(i), Y(i))",
        "abs(X(i))",
        "popcount(X(i))",
        "clz(X(i))",
    )
    body = " ".join(f"O{n}(i) = {call}" for n, call in enumerate(calls))
    outputs = ", ".join(f"O{n}" for n in range(len(calls)))
    assert_same(f"def f({dtype}(N) X, {dtype}(N) Y) -> ({outputs}) {{ {body} }}", x, y)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int8", "uint16", "int64"])
def test_products_and_reductions_of_a_type(dtype: str) -> None:
    storage = dtype if dtype != "bfloat16" else pytest.importorskip("ml_dtypes").bfloat16
    a, b = (small((64, 48), "uint16" if dtype.startswith("u") else "int16") for _ in "ab")
    text = f"""def f({dtype}(M,K) A, {dtype}(N,K) B) -> (C, S, L) {{
      C(m,n) +=! A(m,k) * B(n,k)
      S(m) +=! A(m,k)
      L(m) max=! B(m,k)
    }}"""
    assert_same(text, a.astype(storage), b.astype(storage))


def test_layouts() -> None:
    """Backwards, transposed, with gaps, at odd addresses; nothing beside the elements of an output changes."""
    a, b = small((80, 200)), small((120, 96))
    for left, right in (
        (a[::-1, :64], b[:64, ::-1]),
        (a[:64, 1:65], b[1:65, 3:67]),
        (a[:64, :128:2], b[:64]),
        (a.T[:64, :64], b[:64]),
    ):
        assert_same(PRODUCT, left, right)
    memory = np.full((200, 300), 9, np.float32)
    out = memory[73:9:-1, 132:4:-2]
    tc.define(PRODUCT).f(a[:64, :64], b[:64, :64], out=out, target="opencl")
    np.testing.assert_array_equal(out, a[:64, :64] @ b[:64, :64])
    out[...] = 9
    assert (memory == 9).all()


def test_arrays_of_pyopencl() -> None:
    """They are mapped for a call, also parts of them; what was given as the output holds the result."""
    queue, of = current().queue, opencl_module().array
    a, b = small((12, 9)), small((9, 7))
    left, right, out = of.to_device(queue, a), of.to_device(queue, b), of.zeros(queue, (12, 7), np.float32)
    product = tc.define(PRODUCT).f
    for target in ("opencl", "cpu"):
        out.fill(0)
        assert product(left, right, out=out, target=target) is out
        np.testing.assert_array_equal(out.get(), a @ b)
        np.testing.assert_array_equal(product(left[:, 2:5], right[2:5], target=target), a[:, 2:5] @ b[2:5])


def test_arrays_without_elements() -> None:
    for shape in ((0, 3), (3, 0)):
        assert_same("def f(float(M,K) A) -> (C) { C(m) +=! A(m,k) }", np.zeros(shape, np.float32))


def test_subscripts_are_checked() -> None:
    """The message is the one of the CPU, and a call after it is right."""
    take = tc.define("def f(float(E,D) T, int32(B) I) -> (O) { O(b,d) = T(I(b),d) }").f
    table, places = small((29, 37)), RNG.integers(0, 29, 23).astype(np.int32)
    for wrong in (29, -1, 2**31 - 1):
        places[7] = wrong
        with pytest.raises(TcompError) as ours:
            take(table, places, target="opencl")
        with pytest.raises(TcompError) as theirs:
            take(table, places, target="cpu")
        assert str(ours.value) == str(theirs.value)
    places[7] = 3
    np.testing.assert_array_equal(take(table, places, target="opencl"), table[places])


@pytest.mark.parametrize(
    "options",
    [
        {"threads": (32, 8)},
        {"max_shared_memory": 0},
        {"prefetch": False},
        {"blocks": (2, 2)},
        {"split_reduction": 3},
        {"fast_math": True},
    ],
    ids=str,
)
def test_options(options: dict[str, object]) -> None:
    assert_same(PRODUCT, small((70, 90)), small((90, 50)), options=MappingOptions(**options))


def test_tiles_in_global_memory() -> None:
    """Without shared memory the threads of a block meet in global memory, so barriers wait for that."""
    text = """def f(float(N,D) I) -> (O) {
      m(n) max=! I(n,d)
      e(n,d) = I(n,d) - m(n)
      s(n) +=! e(n,d)
      O(n,d) = e(n,d) + s(n)
    }"""
    options = MappingOptions(max_shared_memory=0, threads=(64, 4))
    assert_same(text, small((11, 203)), options=options)
    kernel = tc.define(text).f.compile(small((11, 203)), target="opencl", options=options)
    assert "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);" in kernel.source


@pytest.mark.long
def test_what_only_optimised_kernels_showed() -> None:
    """A barrier behind the last statement of a loop ended PoCL; a half was read before its bits were there."""
    cases = [
        str(Path(__file__).parent / f"{name}.tc") for name in ("barrier-at-the-end-of-a-loop", "half-through-a-pointer")
    ]
    variables = {name: value for name, value in os.environ.items() if name != "PYOPENCL_BUILD_OPTIONS"}
    command = [sys.executable, "-m", "tcomp", "fuzz", "--replay", *cases]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_names() -> None:
    """Words of OpenCL may be names in a program."""
    words = (
        "kernel",
        "global",
        "local",
        "constant",
        "dot",
        "mix",
        "step",
        "uchar",
        "as_float",
        "vload4",
        "INFINITY",
        "NAN",
    )
    more = (
        "CLK_LOCAL_MEM_FENCE",
        "barrier",
        "thread",
        "report",
        "get_local_id",
        "sampler_t",
        "float4",
        "isnan",
        "event_t",
    )
    names = (*words, *more)
    parameters, terms = ", ".join(f"float(N) {n}" for n in names), " + ".join(f"{n}(i)" for n in names)
    assert_same(f"def f({parameters}) -> (O) {{ O(i) = {terms} }}", *(small((9,)) for _ in names))
    indices = ", ".join(names[:6])
    assert_same(f"def f(float(A,B,C,D,E,F) X) -> (O) {{ O({indices}) = X({indices}) + 1 }}", small((2, 3, 2, 2, 1, 3)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions(dtype: str) -> None:
    """All that OpenCL has, or for which there is a text, against their meaning in NumPy."""
    names = [name for name in sorted(OF_FLOATS) if name not in ("j0", "j1", "y0", "y1")]
    inputs = [(RNG.random(65) * k + start).astype(dtype) for k, start in ((3, 0.1), (2, 0.2), (5, 0.3), (4, 0.5))]
    c_type = "float" if dtype == "float32" else "double"
    arguments = {name: [f"{x}[i]" for x in "xyzw"[: INTRINSICS[name].arity]] for name in names}
    text = opencl_definitions((name, c_type) for name in names)
    lines = [
        f"o[{n * 65} + i] = {opencl_name(name, c_type)}({', '.join(arguments[name])});" for n, name in enumerate(names)
    ]
    pointers = ", ".join(f"__global {c_type} *{x}" for x in "xyzwo")
    text += f"__kernel void f({pointers}) {{ const int i = get_global_id(0);\n" + "\n".join(lines) + "\n}"
    opencl, here = opencl_module(), current()
    buffers = [opencl.array.to_device(here.queue, array) for array in inputs]
    result = opencl.array.zeros(here.queue, (len(names), 65), dtype)
    kernel = opencl.Program(here.context, text).build(FLAGS).f
    kernel(here.queue, (65,), None, *(b.data for b in buffers), result.data)
    for name, found in zip(names, result.get(), strict=True):
        given = inputs[: INTRINSICS[name].arity]
        typed = INTRINSICS[name].typed
        with np.errstate(all="ignore"):
            expected = INTRINSICS[name].evaluate(*(given if typed else (a.astype(np.float64) for a in given)))
        tolerance = 64 * np.finfo(dtype).eps
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=name)


def test_what_devices_lack_is_refused() -> None:
    ones = np.ones(3, np.float32)
    with pytest.raises(TargetError, match="OpenCL has no function j0"):
        tc.define("def f(float(N) X) -> (O) { O(i) = j0(X(i)) }").f(ones, target="opencl")
    with pytest.raises(TargetError, match="double precision, which opencl:gpu-single has not"):
        tc.define("def f(double(N) X) -> (O) { O(i) = X(i) }").f(ones.astype(np.float64), target="opencl:gpu-single")
    assert_same("def f(float(N) X) -> (O) { O(i) = int32(X(i) * 1.5) }", ones, target="opencl:gpu-single")
    with pytest.raises(TargetError, match="there is no kind 'tpu'"):
        tc.define(PRODUCT).f(small((2, 2)), small((2, 2)), target="opencl:tpu")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_says_why_it_cannot() -> None:
    product, a = tc.define(PRODUCT).f, small((3, 3))
    product(a, a, target="opencl")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            product(a, a, target="opencl")
        except TargetError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert "forked from one that had used OpenCL" in os.read(reading, 1000).decode()


def test_indices_of_64_bits_are_built() -> None:
    """Nobody has arrays like these here: only the compiler sees the text."""
    text = "def f(float(N,M) A, int32(K) I) -> (B) { B(i,j) = A(I(i),j) + mirror_image(A)(i - 3,j) where i in 0:K }"
    source = lower(define(text)["f"], Sizes({"N": 70_000, "M": 70_000, "K": 60_000}), MappingOptions(), OPENCL).source
    assert "const long b_j" in source.text
    build(source)


def test_one_operation_from_several_threads() -> None:
    product, wrong = tc.define(PRODUCT).f, []
    pairs = [(small((40, 30)), small((30, 20))) for _ in range(8)]

    def run(a: np.ndarray, b: np.ndarray) -> None:
        for _ in range(5):
            if not np.array_equal(product(a, b, target="opencl"), a @ b):
                wrong.append(1)

    threads = [threading.Thread(target=run, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
