"""Operations as operators of torch: opcheck, torch.compile, torch.export."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch._inductor.utils import run_and_get_code
from torch.fx.experimental.proxy_tensor import make_fx

import tcomp as tc
from tcomp.autograd.fake import Fake
from tcomp.autograd.operators import operator_of
from tests.torch.test_autograd import TEXT, doubles

pytestmark = pytest.mark.sweep(3)


@pytest.fixture(scope="module")
def ops() -> tc.Module:
    return tc.define(TEXT)


def test_opcheck(ops: tc.Module) -> None:
    indices = torch.arange(5, dtype=torch.int32)
    a, b = doubles((4, 3), (3, 5))
    for operation, arguments in (
        (ops.mm, (a, b)),
        (ops.mm, (a.detach().t().contiguous().t(), b)),
        (ops.softmax, tuple(doubles((3, 4)))),
        (ops.conv, (*doubles((1, 2, 7, 7), (2, 2, 3, 3)), 2)),
        (ops.several, (doubles((5,))[0], indices, doubles(())[0])),
        (ops.after, (torch.ones(4),)),
    ):
        torch.library.opcheck(operator_of(operation).overload, arguments)


def test_compile_before_any_call() -> None:
    """The operator is registered while the compiler goes through the call; nothing breaks the graph."""
    operation = tc.define(TEXT.replace("def mm(", "def fresh(")).fresh
    compiled = torch.compile(lambda a, b: operation(a, B=b) + 1, fullgraph=True, backend="aot_eager")
    a, b = doubles((4, 3), (3, 5))
    torch.testing.assert_close(compiled(a, b), a @ b + 1)
    compiled(a, b).sum().backward()
    torch.testing.assert_close(a.grad, b.detach().sum(1).expand(4, 3))


def test_compile_of_element_types_before_any_call() -> None:
    """Which types a def is for is not traced; numbers have Python's."""
    operation = tc.define("def scaled<T>(T(N) X, T a) -> (T(N) Y) { Y(n) = a * X(n) * X(n) }").scaled
    compiled = torch.compile(operation, fullgraph=True, backend="aot_eager")
    for dtype in (torch.float32, torch.float64):
        x = torch.arange(4, dtype=dtype, requires_grad=True)
        y = compiled(x, 2.0)
        assert y.dtype == dtype
        y.sum().backward()
        torch.testing.assert_close(x.grad, 4 * x.detach())
        torch.testing.assert_close(compiled(x, torch.tensor(3, dtype=dtype)), 3 * x * x)


def test_tangents_and_batches_of_a_def_for_any_types_are_traced() -> None:
    scaled = tc.define("def scaled<T>(T(N) X, T a) -> (T(N) Y) { Y(n) = a * X(n) * X(n) }").scaled
    tangent, many = scaled.tangent("X"), scaled.batched((0, None))

    def both(x: torch.Tensor) -> torch.Tensor:
        return tangent(X=x, a=3.0, t_X=x) + many(torch.stack([x, x]), 2.0)[1]

    for dtype in (torch.float32, torch.float64):
        x = torch.arange(4, dtype=dtype)
        made = torch.compile(both, fullgraph=True, backend="eager")(x)
        assert made.dtype == dtype and torch.equal(made, 8 * x * x)


@pytest.mark.parametrize("name", ["softmax", "conv", "several"])
def test_compiled_is_eager(ops: tc.Module, name: str) -> None:
    indices = torch.arange(5, dtype=torch.int32)
    f, inputs = {
        "softmax": (lambda x: ops.softmax(x * 2), doubles((3, 4))),
        "conv": (lambda i, k: ops.conv(i, k, 2).sin(), doubles((1, 2, 7, 7), (2, 2, 3, 3))),
        "several": (lambda x, a: torch.cat(ops.several(x, indices, a)[::2]), doubles((5,), ())),
    }[name]
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    expected, found = f(*inputs), compiled(*inputs)
    torch.testing.assert_close(found, expected)
    cotangent = torch.rand_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, inputs, cotangent), torch.autograd.grad(expected, inputs, cotangent)
    )


@pytest.mark.long
def test_inductor(ops: tc.Module) -> None:
    (x,) = doubles((6, 5))
    compiled = torch.compile(lambda x: (ops.softmax(x) * x).sum(0), fullgraph=True)
    expected = (torch.softmax(x, 1) * x).sum(0)
    torch.testing.assert_close(compiled(x), expected)
    torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), x), torch.autograd.grad(expected.sum(), x))


@pytest.mark.long
def test_code_of_inductor_calls_what_runs_a_kernel(ops: tc.Module) -> None:
    """Not the operator, which torch's dispatcher enters; nothing is compiled here but Python."""
    compiled = torch.compile(lambda a, b: ops.mm(a.T[1:], b), fullgraph=True, dynamic=True)
    for rows in (4, 5):
        a, b = doubles((3, rows), (3, 5))
        found, code = run_and_get_code(compiled, a, b)
        expected = a.T[1:] @ b
        torch.testing.assert_close(found, expected)
        (gradient,), backward = run_and_get_code(torch.autograd.grad, found.sum(), a)
        torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), a)[0])
        if rows == 4:
            for text in (*code, *backward):
                calls = [line for line in text.splitlines() if " = torch.ops.tcomp.mm" in line]
                assert calls
                assert all(".default_direct(" in call for call in calls)


def test_one_graph_for_all_sizes(ops: tc.Module) -> None:
    counter = CompileCounter()
    compiled = torch.compile(lambda i, k: ops.conv(i, k, 1) * 2, fullgraph=True, backend=counter, dynamic=True)
    _, kernel = doubles((1,), (2, 2, 3, 3))
    for size in (5, 6, 9, 12):
        (image,) = doubles((2, 2, size, size + 1))
        torch.testing.assert_close(compiled(image, kernel), 2 * torch.nn.functional.conv2d(image, kernel))
    assert counter.frame_count == 1


def test_second_calls_compile_nothing(ops: tc.Module) -> None:
    counter = CompileCounter()
    compiled = torch.compile(lambda a, b: ops.mm(a, b), fullgraph=True, backend=counter)
    a, b = doubles((4, 3), (3, 5))
    for _ in range(3):
        compiled(a, b)
    assert counter.frame_count == 1


class Product(torch.nn.Module):
    def __init__(self, operation: Any) -> None:
        super().__init__()
        self.operation = operation

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> Any:
        return self.operation(a, b) + 1


@pytest.mark.parametrize("strict", [False, True])
def test_export(ops: tc.Module, strict: bool) -> None:
    a, b = (t.detach() for t in doubles((4, 3), (3, 5)))
    shapes = ({0: torch.export.Dim("m")}, None)
    exported = torch.export.export(Product(ops.mm), (a, b), dynamic_shapes=shapes, strict=strict)
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    (other,) = (t.detach() for t in doubles((7, 3)))
    torch.testing.assert_close(loaded(other, b), other @ b + 1)


def test_the_same_words_without_memory(ops: tc.Module) -> None:
    """What fails when it runs fails while torch traces it, and says the same."""
    wrong = [((4, 3), (4, 5)), ((2, 2, 3, 3), (2, 2, 5, 3)), ((4, 3), (3,))]
    for shapes in wrong:
        operation = ops.conv if len(shapes[0]) == 4 else ops.mm
        extra = (1,) if operation is ops.conv else ()
        with pytest.raises(tc.ShapeError) as real:
            operation(*(t.detach() for t in doubles(*shapes)), *extra)
        with pytest.raises(tc.ShapeError) as fake:
            operation(*(torch.empty(s, dtype=torch.float64, device="meta") for s in shapes), *extra)
        assert str(real.value) == str(fake.value)


def test_fake_results_are_like_real_ones(ops: tc.Module) -> None:
    rng, fake = np.random.default_rng(0), Fake(ops.conv.function)
    for _ in range(40):
        n, c, f, kh, kw, s = (int(v) for v in rng.integers(1, 4, 6))
        image, kernel = doubles((n, c, *map(int, rng.integers(3, 9, 2))), (f, c, kh, kw))
        real = ops.conv(image.detach(), kernel.detach(), s)
        expected = fake(image, kernel, s)
        assert (real.shape, real.stride(), real.dtype) == (expected.shape, expected.stride(), expected.dtype)


def test_older_tracers_see_calls(ops: tc.Module) -> None:
    """A call that was quick before must not leave its result in the graph as a constant."""
    first, second = (torch.rand(3, 3, dtype=torch.float64) for _ in range(2))
    for _ in range(3):
        ops.mm(first, first)

    def f(x: torch.Tensor) -> Any:
        return ops.mm(x, x) + x

    for traced in (make_fx(f)(first), torch.jit.trace(f, first), torch.fx.symbolic_trace(f)):
        torch.testing.assert_close(traced(second), second @ second + second)


def test_what_torch_func_traces(ops: tc.Module) -> None:
    """Tangents and batches are in the graph, which was made of other values; tangents were zeros once."""
    x, v, other = (t.detach() for t in doubles((3, 4), (3, 4), (3, 4)))

    def theirs(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, 1)

    expected = torch.func.jvp(theirs, (other,), (v * 3,))[1]
    traced = make_fx(lambda x, t: torch.func.jvp(ops.softmax, (x,), (t,))[1])(x, v)
    torch.testing.assert_close(traced(other, v * 3), expected)
    torch.testing.assert_close(torch.func.linearize(ops.softmax, other)[1](v * 3), expected)
    for transform in (torch.vmap, lambda f: torch.func.grad(lambda x: f(x).pow(2).sum())):
        batch = torch.stack([x, v])
        f = transform(ops.softmax)
        given, later = (batch, batch.flip(1)) if transform is torch.vmap else (x, other)
        torch.testing.assert_close(make_fx(f)(given)(later), transform(lambda x: torch.softmax(x, -1))(later))


def test_operators_lose_no_tangents(ops: tc.Module) -> None:
    """``torch.ops`` in forward mode."""
    x, v = (t.detach() for t in doubles((3, 4), (3, 4)))
    overload = operator_of(ops.softmax).overload
    with torch.autograd.forward_ad.dual_level():
        moved = torch.autograd.forward_ad.unpack_dual(overload(torch.autograd.forward_ad.make_dual(x, v)))
    expected = torch.func.jvp(lambda x: torch.softmax(x, 1), (x,), (v,))[1]
    torch.testing.assert_close(moved.tangent, expected)
    for f in (overload, lambda x: torch.vmap(overload)(x[None])[0]):
        torch.testing.assert_close(torch.func.jvp(f, (x,), (v,))[1], expected)


def test_operators_by_name_are_recorded(ops: tc.Module) -> None:
    overload = operator_of(ops.softmax).overload
    for _ in range(3):
        (x,) = doubles((3, 4))
        torch.testing.assert_close(
            torch.autograd.grad(overload(x).pow(2).sum(), x)[0],
            torch.autograd.grad(torch.softmax(x, 1).pow(2).sum(), x)[0],
        )
        with torch.no_grad():
            assert not overload(x).requires_grad
    assert torch.autograd.gradgradcheck(overload, doubles((3, 4)))


def test_compiled_autograd(ops: tc.Module) -> None:
    """What pulls back is traced, without a break."""
    a, b = doubles((4, 3), (3, 5))
    compiler = torch.compile(fullgraph=True, backend="aot_eager")
    with torch._dynamo.compiled_autograd._enable(compiler):  # type: ignore[no-untyped-call]
        found = torch.autograd.grad(ops.softmax(ops.mm(a, b)).square().sum(), (a, b))
    expected = torch.autograd.grad(torch.softmax(a @ b, 1).square().sum(), (a, b))
    torch.testing.assert_close(found, expected)
