"""Operators of PyTorch over what data choose, running extremes, and tensors without elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as f  # noqa: E402

import tcomp as tc  # noqa: E402
from tests.networks.test_torch_operators import NAN, agree  # noqa: E402
from tests.networks.test_unseen import Apply  # noqa: E402

Y = torch.randn(2, 3, 8, 9, generator=torch.Generator().manual_seed(1))
X = Y[0, 0]


def test_extremes_up_to_each_element_and_the_last_of_their_places() -> None:
    agree(lambda y: (*y.cummax(1), *y.cummin(0), *torch.cummax((2 * X).to(torch.int32), 0)), NAN)
    agree(lambda y: (*y.cummax(0), *y.cummin(0)), torch.tensor([1.0, 1.0, 0.0, 2.0, 2.0, -1.0]))


def test_logarithms_of_running_sums() -> None:
    rows = torch.tensor([[-np.inf, -np.inf, 1.0, 2.0], [1000, 1001, 3, 1], [1, np.inf, 0, 2], [1, np.nan, 0, 2]])
    agree(lambda y: (y.logcumsumexp(1), y.logcumsumexp(0)), rows)
    agree(lambda y: y[1].logcumsumexp(0), rows)
    agree(lambda y: (*y.cummax(0), *y.cummin(-1), y.logcumsumexp(0)), rows[0, 2])
    agree(lambda y: ((y > 1).logsumexp(1), (100 * y[1]).long().logsumexp(0)), rows[:2])


def test_rounding_to_digits() -> None:
    agree(lambda y: (y.round(decimals=2), (1000 * y).round(decimals=-2), y.round(decimals=0)), X)
    agree(
        lambda y: (
            f.rrelu(y),
            *torch.var_mean(y, 1),
            *torch.std_mean(y, correction=0),
            *torch.var_mean(y.T, 0, keepdim=True),
        ),
        X,
    )


def test_distances_by_other_norms() -> None:
    norms = (0.0, 1.0, 2.0, float("inf"))
    agree(lambda y: tuple(torch.cdist(y, y.flip(0) + 1, p=p) for p in norms), X)
    agree(lambda y: tuple(torch.cdist(y[:, :0], y[:, :0], p=p) for p in norms), X)
    agree(lambda y: tuple(torch.cdist(y, 2 * y, p=p) for p in (0.0, 1.0)), NAN)


def test_counts_between_limits() -> None:
    some = torch.tensor([0.0, 1.0, 0.5, -0.1, 1.1, np.nan, 0.24, 0.25, 0.75, np.inf])
    agree(lambda y: (y.histc(4, 0, 1), torch.histc(X, 7, -1, 2)), some)
    agree(lambda y: (y[0].histc(3, -1, 2), y[5].histc(3, -1, 2), y[:0].histc(3, -1, 2)), some)
    with pytest.raises(tc.NetworkError, match="between the least and the largest"):
        tc.networks.from_torch(Apply(lambda y: y.histc(4)).eval(), some)


TABLE = torch.randn(7, 5, generator=torch.Generator().manual_seed(4))
PLACES = torch.tensor([3, 0, 6, 2, 2, 1, 5, 2, 4])


def test_bags_of_rows() -> None:
    ends = torch.tensor([0, 3, 3, 7])
    agree(lambda i: tuple(f.embedding_bag(i, TABLE, ends, mode=mode) for mode in ("sum", "mean", "max")), PLACES)
    agree(lambda i: f.embedding_bag(i, TABLE, ends, mode="max", padding_idx=2), PLACES)
    last = torch.tensor([0, 4, 7, 9])
    agree(lambda i: f.embedding_bag(i, TABLE, last, padding_idx=2, include_last_offset=True), PLACES)
    # What is behind the last offset is in no bag, and there may be no place in any.
    agree(lambda i: f.embedding_bag(i, TABLE, last[:3], mode="sum", include_last_offset=True), PLACES)
    agree(lambda i: f.embedding_bag(i[:0], TABLE, last[:1].expand(3), mode="max"), PLACES)
    agree(lambda i: f.embedding_bag(i[:0], TABLE, last[:0], mode="mean"), PLACES)
    shares = torch.arange(9.0).reshape(3, 3)
    agree(lambda i: f.embedding_bag(i, TABLE, mode="sum", per_sample_weights=shares), PLACES.reshape(3, 3))


def test_means_and_extremes_of_what_is_put_alone() -> None:
    at = torch.tensor([[3, 0, 3, 1, 1], [3, 2, 1, 1, 3]])
    for how in ("sum", "mean", "prod", "amax", "amin"):
        agree(lambda y, how=how: y.scatter_reduce(0, at, 2 * X, how, include_self=False), X)
    agree(lambda y: (y.scatter_reduce(0, at, X, "mean"), y.scatter_reduce(1, at, X, "mean", include_self=False)), X)
    whole = torch.tensor([[5, 6, 7], [-(2**62), 2**62, 0]])
    for how in ("amin", "amax"):
        agree(lambda i, how=how: i.scatter_reduce(0, torch.zeros(1, 3).long(), 3 - i, how, include_self=False), whole)


def test_masked_elements_are_taken_from_a_row() -> None:
    agree(lambda y: y.masked_scatter(y > 0, torch.arange(72.0)), X)
    agree(lambda y: y.masked_scatter(y[0] > 0, torch.arange(144.0).reshape(2, 72)), X)
    few = tc.compile_network(Apply(lambda y: y.masked_scatter(y > 0, torch.arange(3.0))).eval(), X)
    with pytest.raises(tc.ShapeError, match=r"must lie in 0\.\.2"):
        few(torch.ones(8, 9))


def test_three_tensors_at_once() -> None:
    weights = torch.randn(4, 9, 8, generator=torch.Generator().manual_seed(5))
    agree(lambda y: f.bilinear(y, y.T[:8], weights, X[0, :4]), X)


def test_images_are_made_smaller_without_aliases() -> None:
    for mode in ("bilinear", "bicubic"):
        agree(lambda y, mode=mode: f.interpolate(y, size=(4, 13), mode=mode, antialias=True), Y)
        agree(lambda y, mode=mode: f.interpolate(y, scale_factor=0.4, mode=mode, antialias=True), Y)
        agree(lambda y, m=mode: f.interpolate(y, size=(3, 4), mode=m, antialias=True, align_corners=True), Y)


def test_tensors_without_elements_take_no_part() -> None:
    def partly(y: Any) -> Any:
        nothing, rest = y[:, :0], y[:, 0:]
        return torch.cat([nothing * 2, rest, nothing.relu()], 1), y + nothing.sum(), y * nothing.T.mm(y).sum()

    agree(partly, X)


@pytest.mark.parametrize("largest", [lambda y: y.max(), lambda y: y.min(1)[0], lambda y: y[:, :0].max() + y])
def test_there_is_no_largest_of_no_elements(largest: Any) -> None:
    with pytest.raises(tc.NetworkError, match=r"of which there are none|fails on what no input changes: max\(\)"):
        tc.networks.from_torch(Apply(largest).eval(), torch.ones(3, 0))
    agree(lambda y: (y.amax(0), y.max(0)[0]), torch.ones(3, 0))


@torch.library.custom_op("transformers::grouped_mm_fallback", mutates_args=())
def by_groups(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Under the name and with the arguments that the layers of experts in transformers use on a CPU."""
    starts = [0, *offs.tolist()[:-1]]
    return torch.cat([input[a:b] @ m for a, b, m in zip(starts, offs.tolist(), weight, strict=True)])


@by_groups.register_fake
def _(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:  # noqa: A002
    return input.new_empty(input.shape[0], weight.shape[2])


def test_rows_by_the_matrices_of_their_groups() -> None:
    matrices, ends = torch.randn(4, 9, 6, generator=torch.Generator().manual_seed(6)), torch.tensor([3, 3, 7, 8])
    agree(lambda y: by_groups(y, matrices, ends.int()), X)
    agree(lambda y: by_groups(y[:7], matrices, (y > 10).sum(1)[:4].cumsum(0) + torch.tensor([0, 0, 1, 7])), X)


def test_a_constant_of_half_the_digits_beside_floats() -> None:
    scale = torch.tensor(5.65, dtype=torch.bfloat16)
    agree(lambda y: (y * scale, y + scale.float()), X)


def test_numbers_that_only_assertions_read() -> None:
    class Checked(torch.nn.Module):
        def forward(self, lengths: Any, y: Any) -> Any:
            longest = lengths.max().item()
            torch._check(longest <= 8)
            return y[:, : y.shape[0]] * lengths[:, None]

    class Cut(torch.nn.Module):
        def forward(self, lengths: Any, y: Any) -> Any:
            longest = lengths.max().item()
            torch._check(longest <= 8)
            return y * torch.full((8, 9), longest)

    lengths = torch.tensor([3, 1, 4, 1, 5, 1, 2, 6])
    found = tc.networks.from_torch(Checked().eval(), (lengths, X)).reference(lengths.numpy(), X.numpy())
    np.testing.assert_allclose(found, Checked()(lengths, X), rtol=1e-6)
    with pytest.raises(tc.NetworkError, match="a number that is computed from an input"):
        tc.networks.from_torch(Cut().eval(), (lengths, X))


def test_parts_without_gradients_or_in_their_own_precision() -> None:
    def partly(y: Any) -> Any:
        with torch.autocast("cpu", enabled=False):
            z = torch.hypot(y.float() * 2, y)
        with torch.no_grad():
            w = y + 1
        return w + z, z

    agree(partly, X)


def test_a_size_that_data_choose_is_named() -> None:
    with pytest.raises(tc.NetworkError, match=r"aten\.nonzero\.default has a size that is not fixed \(node nonzero\)"):
        tc.networks.from_torch(Apply(torch.nonzero).eval(), X)


def test_norms_of_groups_with_a_scale_alone() -> None:
    scale = torch.arange(3.0)
    agree(lambda y: (f.group_norm(y, 1, scale), f.group_norm(y, 3, None, scale)), Y)
