"""Complex numbers and Fourier transforms of PyTorch, as tensors of floats."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tcomp as tc  # noqa: E402
from tests.networks.test_torch_operators import agree  # noqa: E402
from tests.networks.test_unseen import Apply  # noqa: E402

X = torch.randn(5, 7, generator=torch.Generator().manual_seed(1))
IMAGES = torch.randn(2, 3, 6, 9, generator=torch.Generator().manual_seed(2))


def test_rotary_embeddings_by_complex_numbers() -> None:
    angles = torch.polar(torch.ones(5, 3), torch.arange(15.0).reshape(5, 3))

    def rotated(x: Any) -> Any:
        pairs = torch.view_as_complex(x[:, :6].reshape(5, 3, 2).contiguous())
        return torch.view_as_real(pairs * angles).flatten(1), torch.view_as_real(pairs * x[:, :1] * 2 / 3)

    agree(rotated, X)


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
def test_transforms_forth_and_back(norm: str) -> None:
    fft = torch.fft

    def several(x: Any) -> Any:
        half = fft.rfft2(x, norm=norm)
        return (
            fft.fft(fft.fft(x, dim=-1, norm=norm), dim=-2).real, fft.fft2(x, norm=norm).imag, half.abs(),
            fft.rfft(x[:1], norm=norm).angle(), fft.irfft2(half * half, s=(5, 7), norm=norm),
            fft.irfft(half, n=6, norm=norm),
            fft.ifftn(fft.ifftshift(fft.fftn(x, norm=norm)), norm=norm).real, fft.rfft(x, n=4, norm=norm).real,
        )  # fmt: skip

    agree(several, X)


def test_arithmetic_of_complex_numbers() -> None:
    def several(y: Any) -> Any:
        z = torch.complex(y, X + 1)
        w = torch.complex(X, y)
        made = (z + y, y[0] - z, z - w, z * w, z * w.conj(), z[:, :5] @ w, w + y[:, :, None].squeeze(2)[:1], -z / 2)
        return tuple(torch.view_as_real(one) for one in made)

    agree(several, X)


def test_layers_that_filter_spectra() -> None:
    weights = torch.complex(torch.ones(3, 4, 3), torch.arange(36.0).reshape(3, 4, 3) / 36)
    window = torch.hann_window(16)

    def filtered(y: Any) -> Any:
        rows = y[:, :, 0]
        low = torch.einsum("bix,iox->box", torch.fft.rfft(rows)[:, :, :3], weights)
        spectrum = torch.fft.rfft2(y, norm="ortho") * weights[:, :1, :1]
        return torch.fft.irfft(low, n=9), torch.fft.irfft2(spectrum, s=(6, 9), norm="ortho")

    agree(filtered, IMAGES)

    def spoken(y: Any) -> Any:
        spectrum = torch.stft(y, 16, 4, window=window, return_complex=True)
        return spectrum.abs() ** 2, torch.istft(spectrum * 2, 16, 4, window=window, length=64)

    agree(spoken, torch.randn(2, 64, generator=torch.Generator().manual_seed(3)))


def test_floats_among_complex_numbers_have_no_imaginary_part() -> None:
    z = torch.complex(X, X + 1)
    numbers = torch.arange(35).reshape(5, 7)

    def several(x: Any, whole: Any) -> Any:
        y = z * x
        w = torch.zeros(5, 9, dtype=torch.complex64)
        w[:, :7] = y
        w[1] = x[0, 0]
        made = (
            torch.cat([y, x, whole]), torch.cat([x, y]), torch.nn.functional.pad(y, (1, 2), value=3.0),
            torch.complex(x[:, :1], x), torch.complex(x[:1], x[:, :1]), whole.to(torch.complex64), w,
            x[0, 0].sum(0, dtype=torch.complex64), y[1, 2].cumsum(-1), y[1, 2].mean(0),
            x.sum(0, dtype=torch.complex64), torch.where(x > 0, y, 2.0), y.unbind(1)[1], y.mean() + 0 * y,
        )  # fmt: skip
        return *(torch.view_as_real(one) for one in made), whole.to(torch.complex64).real

    agree(several, X, numbers)


def test_complex_numbers_by_numbers() -> None:
    def several(x: Any) -> Any:
        z = torch.complex(x, x + 1)
        made = (z / 0, z / 3, z * (2 - 3j), x * 1j, x + 1j, z - 1, z + (1 + 2j), torch.full_like(z, 1j) * z)
        return tuple(torch.view_as_real(one) for one in made)

    agree(several, X)


def test_moduli_are_computed_without_overflow() -> None:
    module = Apply(lambda x: (torch.complex(x, x).abs(), torch.complex(1e-30 * x, x * 0).abs())).eval()
    large = torch.tensor([3e25, -1e20, float("inf")])
    for mine, other in zip(tc.compile_network(module, large)(large.numpy()), module(large), strict=True):
        torch.testing.assert_close(torch.from_numpy(mine), other)


class Known(torch.nn.Module):
    """Buffers whose names are those of parts of others, one without axes, some conjugate or negated lazily."""

    def __init__(self) -> None:
        super().__init__()
        z = torch.complex(X, X + 2)
        numbers = {"w": torch.tensor(1 + 2j), "w_real": torch.tensor(5.0), "c": z.conj(), "n": z.conj().imag}
        for name, number in numbers.items():
            self.register_buffer(name, number)

    def forward(self, x: Any) -> Any:
        return torch.view_as_real(x * self.w * self.c), torch.view_as_real(self.w + x.sum()), self.w_real * self.n * x


def test_known_complex_numbers_keep_their_shapes_and_names() -> None:
    module = Known().eval()
    for mine, other in zip(tc.networks.from_torch(module, X).reference(X.numpy()), module(X), strict=True):
        torch.testing.assert_close(torch.from_numpy(mine), other)


def test_operators_outside_take_and_give_complex_numbers() -> None:
    module = Apply(lambda x: torch.view_as_real((torch.complex(x, x + 1) * x).exp() * x)).eval()
    outside = tc.networks.from_torch(module, X, fallback=["aten.exp.default"])
    torch.testing.assert_close(torch.from_numpy(outside.reference(X.numpy())), module(X))


def test_what_stays_complex_is_refused() -> None:
    with pytest.raises(tc.NetworkError, match="returns complex numbers"):
        tc.networks.from_torch(Apply(torch.fft.fft).eval(), X)
    with pytest.raises(tc.NetworkError, match=r"aten\.exp\.default has no rule for complex numbers"):
        tc.networks.from_torch(Apply(lambda x: torch.fft.fft(x).exp().real).eval(), X)
    with pytest.raises(tc.NetworkError, match="gives float32 of complex numbers"):
        tc.networks.from_torch(Apply(lambda x: torch.fft.fft(x).sum(0, dtype=torch.float32)).eval(), X)
    with pytest.raises(tc.NetworkError, match="gives float32 of complex numbers"):
        tc.networks.from_torch(Apply(lambda x: x.clone().select_scatter(torch.fft.fft(x)[0], 0, 1)).eval(), X)
    with pytest.raises(tc.NetworkError, match="is complex64"):
        tc.networks.from_torch(Apply(lambda z: z.real + 1).eval(), X + 1j)
    with pytest.raises(tc.NetworkError, match="several inputs are given as one tuple"):
        tc.networks.from_torch(Apply(torch.add).eval(), X, X)
