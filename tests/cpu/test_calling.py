"""The ways to give arguments and options: by name, as scalars of NumPy, as text; and the library from Python."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.mapping.options.options import OPTIONS

TEXT = """
def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
def scale(float(N) A, float s) -> (B) { B(i) = s * A(i) }
def count(float(N) A, int32 s) -> (B) { B(i) = s where i in 0:N }
def odd(float(N) out, float(N) target) -> (B) { B(i) = out(i) - target(i) }
"""
A, B = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones((4, 5), np.float32)


@pytest.fixture(scope="module")
def ops() -> tc.Module:
    return tc.define(TEXT)


def test_arguments_by_name(ops: tc.Module) -> None:
    expected = A @ B
    for result in (
        ops.mm(A=A, B=B),
        ops.mm(B=B, A=A),
        ops.mm(A, B=B),
        ops.mm.compile(B=B, A=A)(B=B, A=A),
        ops.mm.reference(A, B=B),
    ):
        np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(ops.odd(A[0], A[1]), A[0] - A[1])  # names that calls use otherwise: by position


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda mm: mm(a=A, B=B), "mm has no parameter a\n  help: did you mean `A`"),
        (lambda mm: mm(A, B, A=A), "A is given by position and by name"),
        (lambda mm: mm(A, B, A), "expected 2 inputs but found 3"),
        (lambda mm: mm(A=A), "there is no argument for B"),
        (lambda mm: mm(A, B, C=A), r"it is an output: write out=\{'C': ...\}"),
        (lambda mm: mm.compile(M=3, K=4, N=5), r"compile\(sizes=\{'M': ...\}\)"),
        (lambda mm: mm.tune(A, X=B), "mm has no parameter X"),
    ],
)
def test_names_that_do_not_fit(ops: tc.Module, call: Callable[[Any], object], message: str) -> None:
    with pytest.raises(tc.ShapeError, match=message) as failure:
        call(ops.mm)
    assert isinstance(failure.value, TypeError)  # as Python has it for its own functions


@pytest.mark.parametrize("shape", [(3, 4), (5, 5), (3, 5, 1)])
def test_kernels_are_for_outputs_that_fit(ops: tc.Module, shape: tuple[int, ...]) -> None:
    """Who passes places in memory alone, as networks do, is told before anything is written beyond them."""
    with pytest.raises(tc.ShapeError, match="output C: expected"):
        ops.mm.compile(A, B, out=np.zeros(shape, np.float32))


def test_a_sum_over_nothing_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By each process that makes the kernel, also of a text from the cache."""
    monkeypatch.setenv("TCOMP_CACHE", str(tmp_path))
    for _ in range(2):
        ops = tc.define("def f(float(N) A, float(K) W) -> (S) { S +=! A(i) * W(i+3) }")
        with pytest.warns(tc.ProgramWarning, match="no value of i has"):
            assert ops.f(np.ones(4, np.float32), np.ones(3, np.float32)) == 0
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert ops.f(np.ones(4, np.float32), np.ones(3, np.float32)) == 0


def test_names_in_any_order_again_and_again(ops: tc.Module) -> None:
    """Where names go is remembered; what does not fit is found after that, too."""
    for _ in range(3):
        np.testing.assert_array_equal(ops.mm(B=B, A=A), A @ B)
        np.testing.assert_array_equal(ops.mm(A, B=B), A @ B)
        for call in (
            lambda: ops.mm(B, B=B, A=A),
            lambda: ops.mm(B=B),
            lambda: ops.mm(A, C=B),
            lambda: ops.mm(A, B, B=B),
        ):
            with pytest.raises(TypeError):
                call()


@pytest.mark.parametrize("two", [np.float64(2), np.sqrt(4.0), np.float32(2), np.float16(2), np.int64(2), 2, 2.0])
def test_scalars_of_numpy_are_numbers(ops: tc.Module, two: Any) -> None:
    np.testing.assert_array_equal(ops.scale(A[0], two), 2 * A[0])


def test_scalars_that_a_type_cannot_hold(ops: tc.Module) -> None:
    assert ops.count(A[0], np.uint8(7)).tolist() == [7] * 4
    for value in (np.float64(1e300), np.bool_(True)):
        with pytest.raises(tc.ShapeError, match="pass a number that the type can hold"):
            ops.scale(A[0], value)
    for value in (np.float64(2), np.int64(2**40)):
        with pytest.raises(tc.ShapeError, match="expected type int32"):
            ops.count(A[0], value)
    with pytest.raises(tc.ShapeError, match="found float64"):
        ops.scale(A[0], np.array(2.0))  # an array is no number: its type must be the declared one


@pytest.mark.parametrize("options", ["tile=2x3", {"tile_sizes": (2, 3)}, {"tile_sizes": [np.int64(2), 3]}])
def test_options_in_other_forms(ops: tc.Module, options: Any) -> None:
    expected = ops.mm.compile(A, B, options=tc.MappingOptions(tile_sizes=(2, 3)))
    assert ops.mm.compile(A, B, options=options) is expected
    for _ in range(3):
        np.testing.assert_array_equal(ops.mm(A, B, options=options), A @ B)


def test_options_by_the_name_of_a_set(ops: tc.Module) -> None:
    assert ops.mm.compile(A, B, options="naive") is ops.mm.compile(A, B, options=tc.MappingOptions.named("naive"))


def test_a_dict_that_changes_between_calls(ops: tc.Module) -> None:
    options: dict[str, object] = {"tile_sizes": (2,)}
    ops.mm(A, B, options=options)
    options["tile_size"] = 3
    with pytest.raises(tc.TcompError, match="did you mean `tile_sizes`"):
        ops.mm(A, B, options=options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("nave", "did you mean `naive`"),
        ("tile", "no set of options"),
        ({"tile": 3}, "no mapping option"),
        (3, "not int"),
    ],
)
def test_options_that_are_none(ops: tc.Module, options: Any, message: str) -> None:
    with pytest.raises(tc.TcompError, match=message):
        ops.mm(A, B, options=options)


def test_gradients_are_not_lost_in_silence(ops: tc.Module) -> None:
    torch = pytest.importorskip("torch")
    a, b = torch.from_numpy(A).clone(), torch.from_numpy(B)
    expected = ops.mm(a, b)
    a.requires_grad_()
    recorded = ops.mm(a, b)
    assert recorded.requires_grad and torch.equal(recorded, expected)
    for call in (ops.mm.compile(a.detach(), b), ops.mm.reference):
        with pytest.raises(tc.ShapeError, match=r"(?s)input A requires a gradient.*torch.no_grad\(\)"):
            call(a, b)
        with torch.no_grad():
            assert torch.equal(call(a, b), expected)
        assert torch.equal(call(a.detach(), b), expected)
    with pytest.raises(tc.ShapeError, match="output 0 requires a gradient"):
        ops.mm(a.detach(), b, out=torch.zeros(3, 5, requires_grad=True))
    with torch.inference_mode():
        assert torch.equal(ops.mm(a, b), expected)
    assert ops.mm.compile(a, b)  # nothing is computed


def test_the_library_from_python() -> None:
    assert tc.library.softmax is tc.library.softmax and tc.library["softmax"] is tc.library.softmax
    np.testing.assert_allclose(tc.library.softmax(A).sum(axis=1), 1, rtol=1e-6)
    assert {"softmax", "matmul", "cross_entropy"} <= set(dir(tc.library)) == set(tc.library)
    assert "conv2d" in tc.library and len(tc.library) > 100
    assert pickle.loads(pickle.dumps(tc.library)) is tc.library
    with pytest.raises(AttributeError, match="did you mean `softmax`"):
        tc.library.sofmax  # noqa: B018
    assert "matmul_nt" in tc.define("library:matmul") and "cross_entropy" in tc.define("library:cross_entropy")
    with pytest.raises(tc.TcompError, match="did you mean `softmax`"):
        tc.define("library:softmaxx")


def test_labels_are_as_torch_has_them() -> None:
    torch = pytest.importorskip("torch")
    x, label = torch.from_numpy(A), torch.tensor([3, 0, 1])
    torch.testing.assert_close(tc.library.cross_entropy(x, label), torch.nn.functional.cross_entropy(x, label))
    logs = torch.log_softmax(x, 1)
    torch.testing.assert_close(tc.library.nll_loss(logs, label), torch.nn.functional.nll_loss(logs, label))


def test_what_is_public_is_what_is_listed() -> None:
    assert dir(tc) == sorted(tc.__all__)


def test_help_tells_every_option() -> None:
    text = tc.MappingOptions.__doc__ or ""
    assert all(f"{name}: " in text for name in OPTIONS)


def test_types_of_results_without_a_call(ops: tc.Module) -> None:
    assert ops.mm.result_types(A, B) == ((ops.mm(A, B).shape, np.dtype("f4")),)
    shaped = [np.broadcast_to(np.float32(0), (1 << 20, 3)), np.broadcast_to(np.float32(0), (3, 1 << 20))]
    assert ops.mm.result_types(*shaped)[0][0] == (1 << 20, 1 << 20)
    with pytest.raises(tc.ShapeError, match="Mismatched sizes"):
        ops.mm.result_types(A, A)
    with pytest.raises(tc.ShapeError, match="expected 2 inputs, A, B"):
        ops.mm.result_types(A)
