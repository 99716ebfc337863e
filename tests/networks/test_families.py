"""Networks of many families give what PyTorch gives, as text and as kernels."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import tcomp as tc  # noqa: E402
from tests.networks.families import FAMILIES, made  # noqa: E402
from tests.networks.test_blocks import error  # noqa: E402


@pytest.mark.parametrize("name", FAMILIES)
def test_texts_compute_what_eager_does(name: str) -> None:
    module, example = made(name)
    with torch.no_grad():
        expected = module(*(x.clone() for x in example))
    network = tc.networks.from_torch(module, example)
    assert error(network.reference(*(x.numpy() for x in example)), expected) < 1e-5


@pytest.mark.long
@pytest.mark.parametrize("name", FAMILIES)
def test_kernels_compute_what_eager_does(name: str) -> None:
    module, example = made(name)
    with torch.no_grad():
        expected = module(*(x.clone() for x in example))
    assert error(tc.compile_network(module, *example)(*example), expected) < 1e-5
