"""Operators of PyTorch that order elements, put them at places, or compute with integers and truth values."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as f  # noqa: E402

import tcomp as tc  # noqa: E402
from tests.networks.test_blocks import error  # noqa: E402
from tests.networks.test_unseen import Apply  # noqa: E402

Y = torch.randn(1, 4, 6, 6, generator=torch.Generator().manual_seed(1))
SMALL = Y[0, :, :3, :3].contiguous()


def ordered(y: Any) -> Any:
    values, places = torch.topk(y, 2, 0)
    least, at = y.min(2, keepdim=True)
    return (
        values, places, torch.sort(y, dim=1, descending=True)[0], y.argsort(0), y.median(), y.median(1)[1],
        y.kthvalue(2, 2, keepdim=True)[0], least + y, at,
    )  # fmt: skip


def placed(y: Any) -> Any:
    z = y.clone()
    z[1] = 0.5
    z[:, :, 0:2] = 2 * z[:, :, 1:3]
    z[[0, 2, 0], :, [1, 1, -1]] = y[:3, 0]
    w = torch.index_put(y, (torch.tensor([[1], [1]]),), y[1], accumulate=True)
    u = y.scatter(0, torch.tensor([[[2, 0, 1]]]), y[3:]).scatter(2, torch.tensor([[[1]], [[2]]]), 7.0)
    return (
        z,
        w,
        u,
        y.scatter_reduce(0, (y[:2] > 0).long(), 3 * y, "amax"),
        f.fold(f.unfold(y, 2, padding=1), 3, 2, padding=1),
    )


def mixed(y: Any) -> Any:
    positive, whole = y > 0, (3 * y).to(torch.int64)
    mean = (y * positive).sum(1) / positive.sum(1).clamp(min=1)
    chosen = torch.where(positive ^ (y > 0.5), y, -1.0).masked_fill(positive.any(0), 2.0)
    limits = torch.tensor([-1.0, 0.0, 1.0])
    return (
        mean, chosen, whole + 2 * positive, (whole % 3) * whole, positive.all(2), torch.nan_to_num(y / positive),
        torch.bucketize(y, limits), torch.searchsorted(limits, y, right=True), 2 ** y + y.abs() ** y,
        torch.clamp(y, y - 1, -0.5 * y), f.selu(y) + torch.ones_like(y).cumprod(0),
        torch.exp2(y) - torch.log2(2 + y.abs()),
    )  # fmt: skip


def moved(y: Any) -> Any:
    odd = f.conv2d(y, Y[0, :, :2, :2].unsqueeze(1).expand(4, 4, 2, 2), padding="same")
    wide = f.conv_transpose2d(y[None], Y[0, :, :3, :2].unsqueeze(1), groups=2, stride=2, output_padding=1)
    row = f.conv_transpose1d(f.conv1d(y[:1], Y[0, :3, :2, :3].transpose(0, 1), padding="same"), Y[0, :2, :3, :3])
    largest, at = f.max_pool2d(y[None], 2, 1, return_indices=True)
    return (
        odd, wide, row, largest, at, f.adaptive_max_pool2d(y[None], 1), f.interpolate(y[None], size=(5, 4)),
        y.diagonal(1, 1, 2), y.movedim(0, 2), y.swapaxes(0, 1), y.unfold(1, 2, 1), y @ y[0, 0], y[0] @ y[1, 2],
        torch.addmm(y[0], y[1], y[2], beta=0.5, alpha=2), torch.softmax(y, 0, dtype=torch.float32),
    )  # fmt: skip


def attending(y: Any) -> Any:
    mask = (Y[:, :, :, :1] > 0) | torch.eye(6, dtype=torch.bool)
    shared = f.scaled_dot_product_attention(y, y[:, ::2], y[:, 1::2], attn_mask=mask, enable_gqa=True)
    return shared, f.scaled_dot_product_attention(y, y[:, :1], y[:, 1:2], is_causal=True)


FUNCTIONS: dict[str, tuple[Callable[..., Any], Any]] = {
    "ordered": (ordered, SMALL),
    "placed": (placed, SMALL),
    "mixed": (mixed, SMALL),
    "moved": (moved, SMALL),
    "attending": (attending, Y),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_texts_compute_what_operators_do(name: str) -> None:
    function, y = FUNCTIONS[name]
    expected = function(y)
    network = tc.networks.from_torch(Apply(function).eval(), (y,))
    found = network.reference(y.numpy())
    assert len(found) == len(expected)
    for mine, other in zip(found, expected, strict=True):
        assert mine.shape == tuple(other.shape)
        if other.dtype.is_floating_point:
            assert error(mine, other) < 1e-5
        else:
            assert (mine == other.numpy()).all()


def agree(function: Callable[..., Any], *given: Any) -> None:
    """The interpreter gives what torch does, NaN included, of the types that it has."""
    results = tc.networks.from_torch(Apply(function).eval(), given).reference(*(x.numpy() for x in given))
    expected = torch.utils._pytree.tree_leaves(function(*given))
    found = results if isinstance(results, (list, tuple)) else [results]
    for mine, other in zip(found, expected, strict=True):
        made = torch.from_numpy(np.array(mine))
        torch.testing.assert_close(made, other, equal_nan=True, rtol=1e-5, atol=1e-6)


def test_integers_and_truth_values_are_added_up_in_64_bits() -> None:
    few = torch.tensor([[2**30, 4], [4, 1]], dtype=torch.int32)
    agree(lambda x: ((x > 2).cumsum(0) - 1, (x > 2).cumprod(1), x.cumprod(0), x.cumsum(1), x.prod(), x.prod(1)), few)
    agree(lambda x: (x.cumprod(0, dtype=torch.float32), x.prod(0, dtype=torch.float32)), few.long() << 20)


def test_queries_that_see_no_key_get_nothing() -> None:
    seen = torch.rand(6, 6, generator=torch.Generator().manual_seed(2)) > 0.4
    seen[1] = False
    bias = torch.zeros(6, 6).masked_fill(~seen, -np.inf)
    bias[3] = torch.finfo(torch.float32).min
    agree(lambda y: tuple(f.scaled_dot_product_attention(y, y, 2 * y, attn_mask=mask) for mask in (seen, bias)), Y)


NAN = torch.tensor([[1.0, np.nan, 3.0, np.nan], [4.0, -1.0, -1.0, 0.0]])


def test_rows_without_an_order_have_no_median() -> None:
    agree(lambda y: (*y.median(1), *y.median(0, keepdim=True), y.median(), y[1].median()), NAN)


def test_what_is_no_number_stays_that_beside_bounds() -> None:
    one = torch.ones_like(NAN)
    agree(lambda y: (torch.clamp(y, 0 * one, one), torch.clamp_min(one, y), torch.clamp(one, y, y + 1)), NAN)
    agree(lambda y: (y.clamp(min=0), y.clamp(max=2), y.maximum(one), torch.min(one, y)), NAN)
    agree(lambda x: (x.maximum(x - 1), torch.clamp(x, x - 1, 0 * x)), torch.tensor([2**60 + 1, -3]))


def test_numbers_are_of_the_type_of_the_elements_beside_them() -> None:
    def choose(i: Any) -> Any:
        at, true = torch.tensor([0]), i > 2
        return (
            i.scatter(0, at, 2**60 + 1), true.scatter(0, at, True), 2**i, 2.5**i, torch.where(true, False, true),
            torch.where(true, i, -1), torch.where(true, True, False), torch.where(true, 2, true),
            true.masked_fill(true, False), i < 0.5, true == True, true > 0, true < 0.5,  # noqa: E712
        )  # fmt: skip

    agree(choose, torch.tensor([0, 3, 5]))


def test_what_is_no_number_stands_behind_all_of_a_row() -> None:
    limits = torch.tensor([0.0, 1.0, 3.0])
    agree(lambda y: (torch.searchsorted(limits, y), torch.bucketize(y, limits, right=True)), NAN)
    agree(lambda y: torch.bucketize(y, limits, out_int32=True) + 1, NAN)


def test_what_is_added_no_times_is_not_read() -> None:
    one, other = torch.ones(2, 3), Y[0, 0, :3, :4]
    agree(lambda y: (y.addmm(one, other, beta=0), y.addmm(one, other, beta=0, alpha=2)), NAN)


def test_the_largest_of_a_window_is_never_a_pad() -> None:
    least = torch.full((1, 1, 5, 4), -np.inf)
    least[0, 0, 4, 3] = 1
    agree(lambda x: f.max_pool2d(x, 3, 1, 1, return_indices=True), least)
    agree(lambda x: f.max_pool2d(x, 2, (2, 1), 1, dilation=(1, 3), return_indices=True), least)
    agree(lambda x: f.max_pool2d(x, (4, 3), 2, (2, 1), dilation=(1, 2), return_indices=True), least)


def test_along_no_axes_each_element_is_asked() -> None:
    agree(
        lambda y: (y.any(dim=[]), torch.all(y, dim=[], keepdim=True), torch.all(y > 0, dim=[]) + 1, y.any(dim=None)),
        NAN,
    )


def test_a_number_counts_as_a_row_of_one() -> None:
    def single(y: Any) -> Any:
        x = y[1].sum()
        return (
            *torch.max(x, 0), x.any(0), x.all(-1, keepdim=True), x.cumprod(0), *torch.sort(x), *x.topk(1, 0),
            x.argmax(0), *x.median(0), x.softmax(0), x.sum(0), x.mean([-1]), x.amax(0), (x > 0).cumsum(0),
            x.prod(0, dtype=torch.float32),
        )  # fmt: skip

    agree(single, NAN)
    with pytest.raises(tc.NetworkError, match=r"aten.gather.default takes a tensor without axes \(node gather\)"):
        tc.networks.from_torch(Apply(lambda y: y.sum().gather(0, torch.tensor(0))).eval(), (NAN,))


@pytest.mark.parametrize("place", [2, -3])
def test_places_outside_are_refused(place: int) -> None:
    outside = torch.tensor([0, place])
    for change in (
        lambda y: torch.index_put(y, (outside,), torch.ones(4)),
        lambda y: y[outside],
        lambda y: y[outside, 1],
    ):
        with pytest.raises(tc.NetworkError, match=f"takes the place {place} of 2 along axis 0"):
            tc.networks.from_torch(Apply(change).eval(), (NAN,))


def test_orders_are_the_same_on_kernels_with_equal_elements_and_without_numbers() -> None:
    y = torch.tensor([[2.0, -np.inf, 2.0, np.nan, 5.0, -np.inf], [1.0, np.inf, 1.0, 0.0, -0.0, 1.0]])
    net = tc.compile_network(Apply(lambda y: torch.topk(y, 6)).eval(), y)
    values, places = net(y)
    torch.testing.assert_close(values, torch.topk(y, 6)[0], equal_nan=True)
    assert places.tolist() == [[3, 4, 0, 2, 1, 5], [1, 0, 2, 5, 3, 4]]


def test_logarithms_of_sums_of_rows_with_infinities() -> None:
    agree(lambda y: torch.logsumexp(y, 1), torch.tensor([[-np.inf] * 2, [1000, 1001], [np.inf, 1], [np.nan, 1]]))


def test_what_has_no_rule_is_named_where_its_result_is_checked_in_order() -> None:
    inverse, x = Apply(torch.linalg.inv).eval(), 2 * torch.eye(3)
    with pytest.raises(tc.NetworkError, match=r"aten\.linalg_inv_ex\.default has no rule"):
        tc.networks.from_torch(inverse, (x,))
    net = tc.compile_network(inverse, x, fallback={"aten.linalg_inv_ex.default"})
    assert torch.equal(net(x), inverse(x))


@pytest.mark.parametrize("kind", ["uint8", "int8", "int16", "float16", "float64"])
def test_inputs_of_other_types_are_converted_first(kind: str) -> None:
    x = torch.tensor([0, 1, 7, 100]).to(getattr(torch, kind))
    module = Apply(lambda y: torch.relu(y.float() / 255 - 0.01)).eval()
    torch.testing.assert_close(tc.compile_network(module, x)(x), module(x))
    with pytest.raises(tc.NetworkError, match=f"of {kind}"):
        tc.networks.from_torch(Apply(lambda y: y + y).eval(), (x,))


TAKEN_APART: dict[str, Callable[[Any], Any]] = {
    "softplus": lambda x: f.softplus(x, 2, 1.0),
    "given statistics": lambda x: f.instance_norm(x, x[0, :, 0, 0], x[1, :, 0, 0] ** 2, use_input_stats=False),
    "norms": lambda x: (x.norm(p=1, dim=1), x.norm(p=float("inf"), dim=(1, 2)), x.norm(p=3)),
    "as one": lambda x: x.roll(5),
    "divisor": lambda x: f.avg_pool2d(x, 3, 2, 1, divisor_override=5),
    "views": lambda x: (x.narrow(1, 1, 3).mT, *torch.tensor_split(x, 3, 3)),
    "extremes": lambda x: (x.max(), x.min(), x.to(torch.int32).max()),
    "one vector": lambda x: torch.addmv(x[0, 0, :, 0], x[0, 0], x[0, 0, 0]),
}


@pytest.mark.parametrize("name", TAKEN_APART)
def test_what_no_rule_knows_is_taken_apart_by_torch(name: str) -> None:
    module, x = Apply(TAKEN_APART[name]).eval(), torch.randn(2, 4, 6, 7, generator=torch.Generator().manual_seed(3))
    found, right = tc.networks.from_torch(module, x).reference(x.numpy()), module(x)
    for mine, other in zip(*(y if isinstance(y, tuple) else (y,) for y in (found, right)), strict=True):
        np.testing.assert_allclose(mine, other.numpy(), rtol=1e-5, atol=1e-6)


def test_one_number_of_a_row_is_a_view() -> None:
    x = torch.arange(15.0).reshape(3, 5)
    net = tc.compile_network(Apply(lambda x: x[1, 2] + 1).eval(), x)
    assert net(x) == 8
    assert len(net.steps) == 1


def test_what_is_returned_without_being_a_tensor() -> None:
    x = torch.tensor([-1.0, 2.0])
    written = Apply(lambda x: {"y": f.relu(x, inplace=True), "scores": None, "z": x + 1}).eval()
    y, z = tc.networks.from_torch(written, x.clone()).reference(x.numpy())
    assert (y.tolist(), z.tolist()) == ([0, 2], [1, 3])
    with pytest.raises(tc.NetworkError, match="output 1 of the module is 2, which is no tensor"):
        tc.networks.from_torch(Apply(lambda x: (x + 1, x.shape[0])).eval(), x)


def test_a_module_that_returns_no_tensor_is_refused() -> None:
    with pytest.raises(tc.NetworkError, match="the module returns no tensor"):
        tc.networks.from_torch(Apply(lambda x: {}).eval(), torch.ones(3))


def test_extrema_that_pass_over_nan_and_signs() -> None:
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([[1.0, -0.0, nan, inf, -2.0]])
    y = torch.tensor([[nan], [-0.0], [3.0], [-inf]])
    net = tc.networks.from_torch(
        Apply(lambda x, y: (x.fmax(y), x.fmin(y), x.copysign(y), x.copysign(-1))).eval(), (x, y)
    )
    expected = (x.fmax(y), x.fmin(y), x.copysign(y), x.copysign(-1))
    for found, wanted in zip(net.reference(x.numpy(), y.numpy()), expected, strict=True):
        np.testing.assert_array_equal(found, wanted.numpy())
        known = ~np.isnan(found)
        assert (np.signbit(found) == np.signbit(wanted.numpy()))[known].all()


def test_a_broken_file_is_one_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Torch would log the tracebacks of what it tried."""
    (tmp_path / "broken.pt2").write_bytes(b"PK\x03\x04 and nothing else")
    with pytest.raises(tc.NetworkError, match="cannot be read as an exported program") as caught:
        tc.networks.read(tmp_path / "broken.pt2")
    assert not caplog.records and "Traceback" not in str(caught.value)
    assert not logging.getLogger("torch.export").disabled


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float64])
def test_an_example_of_another_type_than_the_layer_is_refused(dtype: torch.dtype) -> None:
    """torch.export takes it; PyTorch does not."""
    with pytest.raises(tc.NetworkError, match=r"linear\.default takes"):
        tc.networks.from_torch(torch.nn.Linear(3, 4).eval(), torch.ones(2, 3, dtype=dtype))
    with pytest.raises(tc.NetworkError, match=r"matmul\.default takes"):
        tc.networks.from_torch(Apply(lambda x: x @ torch.ones(3, 2)).eval(), torch.ones(2, 3, dtype=dtype))


def test_arguments_that_are_no_tensors_are_fixed() -> None:
    module = Apply(lambda x, mask, factor: x * factor if mask is None else x * mask).eval()
    x = torch.tensor([1.0, 2.0])
    assert tc.networks.from_torch(module, (x, None, 3)).reference(x.numpy()).tolist() == [3, 6]


def test_buffers_that_change_are_named() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return x * self.calls

    with pytest.raises(tc.NetworkError, match="changes its buffers: calls"):
        tc.networks.from_torch(Counts().eval(), torch.ones(2))
