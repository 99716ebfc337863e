"""Memory of results is used again once nobody refers to it, and never before."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.arrays.kept import LEAST, KeptMemory, size_class
from tcomp.arrays.kinds import NumpyKind
from tcomp.errors import TcompError
from tcomp.values.operators import DTYPES

FLOAT = DTYPES["float32"]
SHAPE = (512, 300)
Maker = Callable[[], Any]


@pytest.fixture
def numpy_maker() -> Maker:
    return NumpyKind().maker(SHAPE, FLOAT, NumpyKind().view(np.empty(1, np.float32)).place)


@pytest.fixture
def torch_maker() -> Maker:
    pytest.importorskip("torch")
    from tcomp.arrays.kinds import TorchKind

    return TorchKind().maker(SHAPE, FLOAT, NumpyKind().view(np.empty(1, np.float32)).place)


def _address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def test_a_dropped_array_is_the_next_one(numpy_maker: Maker) -> None:
    first = numpy_maker()
    at = _address(first)
    assert at % 64 == 0 and first.shape == SHAPE and first.dtype == np.float32
    del first
    assert _address(numpy_maker()) == at


def test_no_array_that_is_looked_at_is_made_again(numpy_maker: Maker) -> None:
    arrays = [numpy_maker() for _ in range(12)]
    corner, reshaped, octets = arrays[0][-1:, -1], arrays[1].T.reshape(-1, order="F"), arrays[2].view(np.uint8)
    seen = {_address(a) for a in arrays}
    assert len(seen) == 12
    held = {_address(arrays[n]) for n in range(3)}
    del arrays
    again = [numpy_maker() for _ in range(12)]
    assert not held & {_address(a) for a in again}
    assert corner.size and reshaped.size and octets.size


def test_a_tensor_keeps_its_memory_while_anything_refers_to_it(torch_maker: Maker) -> None:
    import torch

    weight = torch.ones(SHAPE, requires_grad=True)
    plain = torch_maker().fill_(1.0)
    array = torch_maker().fill_(2.0).numpy()
    row = torch_maker().fill_(3.0)[7]
    product = (torch_maker().fill_(4.0) * weight).sum()
    at = plain.data_ptr()
    del plain
    others = [torch_maker().fill_(9.0) for _ in range(6)]
    assert at in {o.data_ptr() for o in others}
    product.backward()
    assert (array == 2.0).all() and (row == 3.0).all() and (weight.grad == 4.0).all()


def test_tensors_are_as_torch_makes_them(torch_maker: Maker) -> None:
    import torch

    torch_maker().add_(1)
    again = torch_maker()
    assert (again._version, again.is_inference(), again.requires_grad) == (0, False, False)
    del again
    with torch.inference_mode():
        assert torch_maker().is_inference()
    weight = torch.ones(SHAPE, requires_grad=True)
    (torch_maker() * weight).sum().backward()  # refused if the tensor were one of inference mode


@pytest.mark.parametrize("change", ["untyped_storage().resize_(0)", "share_memory_()", "resize_(1024, 1024)"])
def test_memory_that_torch_replaced_is_not_used_again(torch_maker: Maker, change: str) -> None:
    changed = torch_maker()
    eval(f"changed.{change}")
    at = changed.data_ptr()
    del changed
    made = [torch_maker().fill_(1.0) for _ in range(3)]
    assert at not in {m.data_ptr() for m in made}
    assert all(m.untyped_storage().nbytes() >= 4 * m.numel() for m in made)


def test_threads_never_share_an_array(numpy_maker: Maker) -> None:
    wrong: list[int] = []

    def work(own: int) -> None:
        for _ in range(300):
            array = numpy_maker()
            array[::64] = own
            time.sleep(0)
            if (array[::64] != own).any():
                wrong.append(own)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


class _Piece:
    def __init__(self, size: int) -> None:
        self.size = size


def test_what_is_kept_is_bounded_and_the_oldest_size_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCOMP_KEPT", "2")
    made: list[int] = []

    def make(size: int) -> _Piece:
        made.append(size)
        return _Piece(size)

    kept = KeptMemory[_Piece](lambda _: 1, lambda _: True, lambda: _Piece(1))
    makers = [kept.maker(None, LEAST * n, make, lambda piece: piece.size) for n in (1, 2, 3, 4)]
    assert [makers[n]() // LEAST for n in (0, 1, 2, 1, 0)] == [1, 2, 3, 2, 1]
    assert len(made) == 3  # six quarters of a MiB are kept; the last two sizes were there
    makers[3]()
    makers[2]()
    assert len(made) == 4  # one and two quarters have gone, for their pieces were made first
    makers[1]()
    assert len(made) == 5
    monkeypatch.setenv("TCOMP_KEPT", "0")
    kept.maker(None, LEAST * 5, make, lambda piece: piece.size)()
    makers[0]()
    assert len(made) == 7
    monkeypatch.setenv("TCOMP_KEPT", "much")
    with pytest.raises(TcompError, match="TCOMP_KEPT is 'much'"):
        makers[0]()


@pytest.mark.parametrize("size", [1, 15, 16, 17, 1 << 20, (1 << 20) + 1, 20_480_000, 999_999_999])
def test_pieces_are_a_little_larger_than_asked(size: int) -> None:
    whole = size_class(size)
    assert size <= whole <= size * 9 / 8 + 1
    assert size_class(whole) == whole


def test_results_of_calls_do_not_change_while_they_are_held() -> None:
    twice = tc.define("def twice(float(N,M) X) -> (Y) { Y(n,m) = 2 * X(n,m) }").twice
    X = np.ones((400, 400), np.float32)
    held = [twice(n * X) for n in range(20)]
    for n, array in enumerate(held):
        assert (array == 2 * n).all()
